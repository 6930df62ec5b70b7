//! Refusals and ended waits: nothing is kept of what was not accepted; what was accepted goes on without its callers.

use std::collections::VecDeque;

use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::engine::Engine;
use crate::ids::TaskId;
use crate::live::{Line, Place, Timer};
use crate::output::{Answer, Output};
use crate::submit::key_of;

impl Engine {
    // ---- refusing ----------------------------------------------------------------------------------------------

    /// A turn that was not accepted ends without a trace; an accepted one stays as it is (it only waits).
    pub(crate) fn turn_refused(&mut self, task: TaskId, reason: Reason, again: Option<Time>) {
        self.leave_place(task);
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.accepted {
            return;
        }
        let agent = live.row.agent.clone();
        let lines = std::mem::take(&mut live.lines);
        let (parent, key) = (live.row.parent, live.keys.pop_back());
        let behind = match live.previous.take() {
            Some(turn) => {
                // The task itself stays, as it was before this message.
                live.row.turn = turn;
                live.accepted = true;
                VecDeque::new()
            }
            None => std::mem::take(&mut live.behind),
        };
        let follow_up = live.row.version > 0;
        let again = again.filter(|at| *at > now);
        for line in lines {
            self.refuse_line(line.id, &agent, reason, again);
        }
        for s in behind {
            self.keys.remove(&key_of(&s));
            self.answer(s.line, Answer::NotFound);
        }
        if let Some(key) = key {
            self.keys.remove(&key);
        }
        self.set_timer(task, Timer::Deadline, None);
        self.set_timer(task, Timer::Wait, None);
        self.release_lock(task);
        if follow_up {
            return self.next_behind(task);
        }
        if let Some(parent) = parent.and_then(|parent| self.live.get_mut(&parent)) {
            parent.row.turn.budget.refund();
            let parent = parent.row.task;
            self.save(parent);
        }
        self.remove(task);
        self.out.push((None, Output::Discard { task }));
    }

    /// Takes a waiting turn out of whatever line it stands in.
    pub(crate) fn leave_place(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let place = std::mem::replace(&mut live.place, Place::None);
        let id = live.row.agent.clone();
        match place {
            Place::None | Place::Lock => {}
            Place::Backoff => self.set_timer(task, Timer::Retry, None),
            Place::Line(ticket) => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.bulkhead.abandon(ticket);
                    agent.tickets.remove(&ticket);
                }
                self.rewake(&id);
            }
            Place::Queue(place) => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.queue.remove(&place);
                }
                self.rewake(&id);
            }
        }
    }

    // ---- waiting callers ---------------------------------------------------------------------------------------

    /// Sets the timer to the earliest end of a caller's wait.
    pub(crate) fn set_wait_timer(&mut self, task: TaskId) {
        let earliest = self.live.get(&task).and_then(|live| live.lines.iter().filter_map(|line| line.until).min());
        self.set_timer(task, Timer::Wait, earliest);
    }

    /// Callers whose wait is over get the task as it is; the work goes on. If it was not accepted yet, they are told
    /// that there was no slot for them.
    pub(crate) fn waits_ended(&mut self, task: TaskId) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        let accepted = live.accepted;
        let agent = live.row.agent.clone();
        let over = |line: &Line| line.until.is_some_and(|until| until <= now);
        let done: Vec<Line> = live.lines.iter().filter(|line| over(line)).copied().collect();
        live.lines.retain(|line| !over(line));
        let nobody = live.lines.is_empty();
        let reason = live.row.turn.waiting_on.unwrap_or(Reason::BulkheadFull);
        for line in done {
            if accepted {
                self.lines.remove(&line.id);
                let answer = Answer::Task { task, replay: line.replay };
                self.emit(task, Output::Answer { line: line.id, answer });
            } else {
                self.refuse_line(line.id, &agent, reason, None);
            }
        }
        match nobody && !accepted {
            true => self.turn_refused(task, reason, None),
            false => self.set_wait_timer(task),
        }
    }
}

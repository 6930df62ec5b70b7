//! Refusals and ended waits: nothing is kept of what was not accepted; what was accepted goes on without its callers.

use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::engine::Engine;
use crate::ids::TaskId;
use crate::live::{Line, Place, Timer};
use crate::output::{Answer, Cause, Output, Refusal};
use crate::queue::Full;

impl Engine {
    // ---- refusing ----------------------------------------------------------------------------------------------

    /// A turn that was not accepted ends without a trace, and its callers are told why.
    pub(crate) fn turn_refused(&mut self, task: TaskId, reason: Reason, again: Option<Time>) {
        self.turn_full(task, Full { reason, again, bound: None });
    }

    /// Likewise, for want of a place.
    pub(crate) fn turn_full(&mut self, task: TaskId, full: Full) {
        self.take_back_for(task, full);
        self.next_behind(task);
    }

    /// Likewise; a task that it was meant for is as it was before.
    pub(crate) fn take_back(&mut self, task: TaskId, reason: Reason, again: Option<Time>) {
        self.take_back_for(task, Full { reason, again, bound: None });
    }

    fn take_back_for(&mut self, task: TaskId, Full { reason, again, bound }: Full) {
        let now = self.now;
        if self.live.get(&task).is_none_or(|live| live.accepted) {
            return;
        }
        self.leave_place(task);
        let Some(live) = self.live.get_mut(&task) else { return };
        let agent = live.row.agent.clone();
        let lines = std::mem::take(&mut live.lines);
        let (parent, key, previous) = (live.row.parent, live.keys.pop(), live.previous.take());
        let again = again.filter(|at| *at > now);
        for line in lines {
            let cause = bound.map(|bound| Box::new(Cause::Full(bound)));
            self.answer(line.id, Answer::Refused(Refusal { reason, agent: agent.clone(), again, cause }));
        }
        if let Some(key) = key {
            self.keys.remove(key);
        }
        self.set_timer(task, Timer::Deadline, None);
        self.release_lock(task);
        if let (Some(turn), Some(live)) = (previous, self.live.get_mut(&task)) {
            live.row.turn = turn;
            live.wants = None;
            live.accepted = true;
            self.await_caller(task);
            return self.set_wait_timer(task);
        }
        if let Some(parent) = parent {
            self.refund(parent);
        }
        self.remove(task);
    }

    /// Takes a waiting turn out of whatever line it stands in.
    pub(crate) fn leave_place(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let place = std::mem::replace(&mut live.place, Place::None);
        let id = live.row.agent.clone();
        match place {
            Place::None => {}
            Place::Lock => self.leave_lock(task),
            Place::Backoff => self.set_timer(task, Timer::Retry, None),
            Place::Line(ticket) => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.bulkhead.abandon(ticket);
                    agent.tickets.remove(&ticket);
                }
                self.rewake(&id);
            }
            Place::Queue(spot) => {
                self.dequeue(&id, task, spot);
                self.rewake(&id);
            }
        }
    }

    // ---- waiting callers ---------------------------------------------------------------------------------------

    /// Sets the timer to the earliest end of a caller's wait.
    pub(crate) fn set_wait_timer(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        let lines = live.lines.iter().filter_map(|line| line.until);
        let earliest = lines.chain(live.behind.iter().map(|behind| behind.until)).min();
        self.set_timer(task, Timer::Wait, earliest);
    }

    /// Callers whose wait is over get the task as it is; the work goes on. If it was not accepted yet, they are told
    /// that there was no slot for them.
    pub(crate) fn waits_ended(&mut self, task: TaskId) {
        self.waits_behind_ended(task);
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
                let answer = Answer::Task { task, replay: line.replay, receipt: None };
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

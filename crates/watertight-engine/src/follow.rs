//! A message to a task: one turn at a time. What comes while a turn is under way waits behind it, for as long as its
//! caller waits, and is nothing yet: no key, no row. What is answered goes on as the task's next turn; if that is refused, or
//! surely never sent, the task is as it was.

use std::collections::VecDeque;
use std::sync::Arc;

use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::engine::Engine;
use crate::ids::TaskId;
use crate::input::{Named, Submission, Want};
use crate::live::{Behind, Class};
use crate::output::{Answer, Output};
use crate::record::{Cancel, Delivery};
use crate::submit::key_of;

impl Engine {
    pub(crate) fn follow_up(&mut self, s: &Submission, named: Named) {
        let task = named.task;
        match self.live.get(&task) {
            None if named.terminal => self.terminal(s, task),
            None => self.answer(s.line, Answer::NotFound),
            Some(live) if live.row.principal != s.principal || live.row.agent != s.agent || live.is_proposed() => {
                self.answer(s.line, Answer::NotFound);
            }
            Some(live) if s.context_named && live.row.context != s.context => {
                self.answer(s.line, Answer::ContextMismatch);
            }
            Some(live) if live.row.state.is_terminal() => self.terminal(s, task),
            Some(live) if live.takes_next() && self.is_durable(task) => self.next_turn(s, task),
            Some(_) => self.wait_behind(s, task),
        }
    }

    /// Stands on the commit that made the task terminal.
    fn terminal(&mut self, s: &Submission, task: TaskId) {
        self.lines.remove(&s.line);
        self.emit(task, Output::Answer { line: s.line, answer: Answer::TaskTerminal });
    }

    /// Puts the message in the place of the ended turn. Until it is accepted, the old one can come back.
    fn next_turn(&mut self, s: &Submission, task: TaskId) {
        let above = match self.above(s) {
            Ok(above) => above,
            Err(refusal) => return self.decline(s.line, refusal),
        };
        self.charge(s, &above);
        let class = self.class_of(s);
        let Some(no) = self.live.get(&task).map(|live| live.row.turn.no + 1) else { return };
        let turn = self.turn(s, no, class, above.budget, above.parent);
        let Some(live) = self.live.get_mut(&task) else { return };
        live.previous = Some(std::mem::replace(&mut live.row.turn, turn));
        live.accepted = false;
        live.class = class;
        live.queues = class == Class::Queue;
        live.busied = 0;
        self.begin_turn(s, task);
    }

    /// A message to a task that surely was never sent changed nothing at the agent: only its turn fails, and the task asks what
    /// it asked before. False if that is not so.
    pub(crate) fn asks_again(&mut self, task: TaskId, reason: Reason) -> bool {
        let Some(live) = self.live.get_mut(&task) else { return false };
        let Some(asked) = live.row.asked.filter(|_| live.row.cancel == Cancel::None) else { return false };
        // Until it is first sent, what is known of the delivery is known of the turn before.
        if !live.row.turn.is_untried() && live.row.delivery != Delivery::NotSent {
            return false;
        }
        live.row.delivery = Delivery::NotSent;
        self.settle(task, asked, Some(reason));
        self.release(task);
        true
    }

    // ---- waiting behind another turn -----------------------------------------------------------------------------

    fn wait_behind(&mut self, s: &Submission, task: TaskId) {
        let until = self.waits_behind_until(s);
        let max_behind = self.settings.max_behind;
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.behind.len() >= max_behind {
            return self.refuse_line(s.line, &s.agent, Reason::TaskBusy, None);
        }
        live.behind.push_back(Behind { submission: Arc::new(s.clone()), until });
        self.lines.insert(s.line, task);
        self.set_wait_timer(task);
        self.next_behind(task);
    }

    /// Nobody waits behind a turn for longer than it has time at all; who does not want to wait, waits as briefly as for
    /// a slot.
    fn waits_behind_until(&self, s: &Submission) -> Time {
        let Some(agent) = self.agents.get(&s.agent) else { return self.now };
        let (budget, bulkhead) = (&agent.settings.budget, &agent.settings.bulkhead);
        let all = budget.arrive(self.arrived(s), s.budget.remaining_s, None, None).deadline;
        match s.want {
            Want::Reply { until } | Want::Result { until } => until.min(all),
            Want::Stream => all,
            Want::Accepted if agent.settings.native_session => all,
            Want::Accepted => all.min(self.now + bulkhead.max_wait),
        }
    }

    /// If the task can take its next message, the first that waits for that goes on as soon as what came before is
    /// durable: nobody is to see the answer to a question that was never shown.
    pub(crate) fn next_behind(&mut self, task: TaskId) {
        if self.live.get(&task).is_some_and(|live| live.takes_next() && !live.behind.is_empty()) {
            self.answerable.insert(task);
        }
    }

    /// A task with somebody behind it who can go on now.
    pub(crate) fn next_answerable(&self) -> Option<TaskId> {
        self.answerable.iter().copied().find(|task| self.is_durable(*task))
    }

    /// Whoever waits behind turns that are over, and can go on now, does, and their twins with them.
    pub(crate) fn go_on(&mut self) {
        while let Some(task) = self.next_answerable() {
            self.answerable.remove(&task);
            self.touching = Some(task);
            while let Some(live) = self.live.get_mut(&task).filter(|live| live.takes_next()) {
                let Some(next) = live.behind.pop_front() else { break };
                let key = key_of(&next.submission);
                let twins: VecDeque<Behind>;
                (twins, live.behind) = live.behind.drain(..).partition(|other| key_of(&other.submission) == key);
                for waited in [next].into_iter().chain(twins) {
                    self.lines.remove(&waited.submission.line);
                    self.submitted(&waited.submission);
                }
            }
            self.touching = None;
        }
    }

    /// The task is over, and so is the wait of those behind.
    pub(crate) fn end_behind(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        for behind in std::mem::take(&mut live.behind) {
            self.terminal(&behind.submission, task);
        }
    }

    /// Nobody behind gets a turn any more.
    pub(crate) fn refuse_behind(&mut self, task: TaskId, reason: Reason) {
        let Some(live) = self.live.get_mut(&task) else { return };
        for behind in std::mem::take(&mut live.behind) {
            self.refuse_line(behind.submission.line, &behind.submission.agent, reason, None);
        }
        self.set_wait_timer(task);
    }

    /// Whose wait behind a turn is over is told that the task is busy.
    pub(crate) fn waits_behind_ended(&mut self, task: TaskId) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        let over: VecDeque<Behind>;
        (over, live.behind) = live.behind.drain(..).partition(|behind| behind.until <= now);
        for behind in over {
            self.refuse_line(behind.submission.line, &behind.submission.agent, Reason::TaskBusy, None);
        }
    }
}

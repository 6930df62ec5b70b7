//! Cancels: a caller's, and the one owed to the agent after every cut. The task is canceled when the agent says that
//! its work ended, or when it has not said anything for a while; never while it is known to go on.

use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::engine::Engine;
use crate::ids::{AgentId, LineId, Principal, TaskId};
use crate::input::CancelAnswer;
use crate::live::Timer;
use crate::output::{Answer, Output};
use crate::record::{Cancel, Phase, TaskState};

impl Engine {
    pub(crate) fn cancel_asked(&mut self, line: LineId, principal: &Principal, agent: &AgentId, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return self.answer(line, Answer::NotFound) };
        if live.row.principal != *principal || live.row.agent != *agent || live.is_proposed() {
            return self.answer(line, Answer::NotFound);
        }
        match live.row.state {
            TaskState::Canceled => {
                return self
                    .emit(task, Output::Answer { line, answer: Answer::Task { task, replay: false, receipt: None } });
            }
            TaskState::Completed | TaskState::Failed | TaskState::Rejected => {
                return self.emit(task, Output::Answer { line, answer: Answer::NotCancelable });
            }
            TaskState::Submitted | TaskState::Working | TaskState::InputRequired | TaskState::AuthRequired => {}
        }
        live.cancel_lines.push(line);
        self.lines.insert(line, task);
        self.begin_cancel(task);
    }

    /// A task that is not over is to stop: at once if its agent never heard of it, else by the agent's word.
    pub(crate) fn begin_cancel(&mut self, task: TaskId) {
        let now = self.now;
        // A follow-up that waits for its slot never starts.
        self.take_back(task, Reason::Canceled, None);
        self.withdraw_offer(task);
        let Some(live) = self.live.get_mut(&task) else { return };
        let settings = self.agents.get(&live.row.agent).map(|agent| &agent.settings);
        let (wait, grace) = settings.map_or((Span::ZERO, Span::ZERO), |s| (s.cancel_wait, s.cancel_grace));
        if live.row.turn.phase == Phase::Waiting {
            return self.end_waiting(task, TaskState::Canceled, Reason::Canceled);
        }
        if live.row.cancel == Cancel::Owed {
            return;
        }
        live.row.cancel = Cancel::Owed;
        self.save(task);
        self.set_timer(task, Timer::CancelWait, Some(now + wait));
        self.set_timer(task, Timer::CancelGiveUp, Some(now + grace));
        self.cancel_if_owed(task);
    }

    /// Asks the agent to stop, once its id is known.
    pub(crate) fn cancel_if_owed(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let Some(remote_task) = live.row.remote_task.clone() else { return };
        let until = live.timers[Timer::CancelGiveUp as usize];
        let (Cancel::Owed, false, Some(until)) = (live.row.cancel, live.canceling, until) else { return };
        live.canceling = true;
        let agent = live.row.agent.clone();
        self.emit(task, Output::Cancel { task, agent, remote_task, until });
    }

    pub(crate) fn cancel_answered(&mut self, task: TaskId, answer: CancelAnswer) {
        let Some(live) = self.live.get_mut(&task) else { return };
        if !std::mem::take(&mut live.canceling) {
            return;
        }
        if live.row.cancel != Cancel::Owed {
            return self.quiet_if_done(task);
        }
        let (cancel, ended) = match answer {
            CancelAnswer::Ended(TaskState::Canceled) => (Cancel::Confirmed, true),
            CancelAnswer::Ended(_) => (Cancel::Refused, true),
            CancelAnswer::GoesOn => (Cancel::Refused, false),
            CancelAnswer::NotFound => (Cancel::Unknown, true),
            CancelAnswer::Failed => (Cancel::Unknown, false),
        };
        live.row.cancel = cancel;
        let attempting = live.attempting;
        self.save(task);
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.row.state.is_terminal() {
            if let CancelAnswer::Ended(state) = answer {
                live.row.late = live.row.late.or(Some(state).filter(|state| *state != TaskState::Canceled));
            }
            return self.quiet(task, ended);
        }
        match answer {
            CancelAnswer::Ended(TaskState::Canceled) | CancelAnswer::NotFound | CancelAnswer::Failed => {
                self.settle(task, TaskState::Canceled, Some(Reason::Canceled));
                self.quiet(task, ended);
            }
            // It was quicker: its result is on its way, and beats the cancel. `CancelWait` bounds the callers' wait.
            CancelAnswer::Ended(_) if attempting => {}
            CancelAnswer::Ended(state) => {
                self.settle(task, state, None);
                self.quiet(task, ended);
            }
            // Not canceled, and nobody is told that it is.
            CancelAnswer::GoesOn => {
                self.tell_cancel_lines(task);
                self.next_behind(task);
            }
        }
    }

    /// The callers of a cancel have waited long enough.
    pub(crate) fn cancel_waited(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        if live.row.state.is_terminal() {
            return;
        }
        match live.row.cancel {
            // The agent never said. The cancel stays owed, and the slot is held for it.
            Cancel::Owed => self.cut(task, TaskState::Canceled, Reason::Canceled),
            Cancel::None | Cancel::Confirmed | Cancel::Refused | Cancel::Unknown => self.tell_cancel_lines(task),
        }
    }

    /// Callers of a cancel get the task as it is.
    fn tell_cancel_lines(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let lines = std::mem::take(&mut live.cancel_lines);
        for line in lines {
            self.lines.remove(&line);
            self.emit(task, Output::Answer { line, answer: Answer::Task { task, replay: false, receipt: None } });
        }
    }

    /// The agent has had its time to answer.
    pub(crate) fn cancel_given_up(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.row.cancel == Cancel::Owed {
            live.row.cancel = Cancel::Unknown;
            self.save(task);
        }
        let Some(live) = self.live.get(&task) else { return };
        if live.row.state.is_terminal() {
            return self.quiet(task, false);
        }
        self.tell_cancel_lines(task);
        self.next_behind(task);
    }

    /// After a cut: the agent is quiet if neither the attempt nor a cancel is out any more.
    pub(crate) fn quiet_if_done(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.attempting || live.canceling || !live.row.state.is_terminal() {
            return;
        }
        if live.row.cancel == Cancel::Owed {
            // The attempt is gone and its id was never learnt: there is nobody to ask.
            live.row.cancel = Cancel::Unknown;
            self.save(task);
        }
        self.quiet(task, false);
    }

    /// Ends what is left of a cut: the attempt's connection, its slot, its context. If nobody knows whether the
    /// agent's work ended, the context is held a while longer.
    pub(crate) fn quiet(&mut self, task: TaskId, work_ended: bool) {
        let now = self.now;
        self.set_timer(task, Timer::CancelGiveUp, None);
        let Some(live) = self.live.get_mut(&task) else { return };
        live.canceling = false;
        let attempt = live.row.attempt;
        let stop = std::mem::take(&mut live.attempting);
        let agent = live.row.agent.clone();
        let locked = live.lock.is_some();
        if stop {
            self.emit(task, Output::Stop { task, attempt });
        }
        self.release_slot(task);
        if work_ended || !locked {
            self.hold_ended(task);
        } else {
            let grace = self.agents.get(&agent).map_or(Span::ZERO, |agent| agent.settings.context_grace);
            self.hold_until(task, now + grace);
        }
        self.pump(&agent);
    }
}

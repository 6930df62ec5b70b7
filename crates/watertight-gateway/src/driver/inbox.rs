//! The cell's mailbox. Who puts something in sees to it that somebody looks ([`super::seat`]). Faces put in what may be refused, and are told at once when there is no room. What cannot be
//! refused (the end of an attempt, a caller that left, the disk's word) has a place of its own, bounded by the attempts,
//! lines and commits that there are, so that it is never lost and never waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use watertight_engine::ids::{Attempt, LineId, TaskId};
use watertight_engine::input::{CancelAnswer, Input, Outcome, Progress};

/// Calls of callers that may wait for the next step. One more is refused (`cell_overloaded`).
pub(crate) const MAX_ASKED: usize = 4_096;

/// News of one attempt that may wait. Further ones are folded into the last.
const MAX_PROGRESS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    asked: VecDeque<Input>,
    ordered: VecDeque<Input>,
    attempts: BTreeMap<(TaskId, Attempt), News>,
    canceled: BTreeMap<TaskId, CancelAnswer>,
    closed: BTreeSet<LineId>,
    told: Vec<(TaskId, u32, bool)>,
    durable: Vec<(u64, u64, Result<(), String>)>,
    shut: bool,
}

#[derive(Debug, Default)]
struct News {
    progress: VecDeque<Progress>,
    ended: Option<Outcome>,
}

/// There is no room, or the cell is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    Full,
    Gone,
}

/// What was waiting, in the order in which it is to be offered: what frees resources comes before what takes them.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) durable: Vec<(u64, u64, Result<(), String>)>,
    pub(crate) inputs: Vec<Input>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller's input.
    pub(crate) fn ask(&self, input: Input) -> Result<(), Full> {
        let mut waiting = self.lock();
        if waiting.shut {
            return Err(Full::Gone);
        }
        if waiting.asked.len() >= MAX_ASKED {
            return Err(Full::Full);
        }
        waiting.asked.push_back(input);
        Ok(())
    }

    /// An operator's input: rare, and taken before the callers'.
    pub(crate) fn order(&self, input: Input) -> Result<(), Full> {
        let mut waiting = self.lock();
        if waiting.shut {
            return Err(Full::Gone);
        }
        if waiting.ordered.len() >= MAX_ASKED {
            return Err(Full::Full);
        }
        waiting.ordered.push_back(input);
        Ok(())
    }

    pub(crate) fn progressed(&self, task: TaskId, attempt: Attempt, progress: Progress) {
        let mut waiting = self.lock();
        let news = waiting.attempts.entry((task, attempt)).or_default();
        let full = news.progress.len() >= MAX_PROGRESS;
        match news.progress.back_mut() {
            Some(last) if full => {
                last.remote_task = progress.remote_task.or(last.remote_task.take());
                last.remote_context = progress.remote_context.or(last.remote_context.take());
                last.state = progress.state.or(last.state);
                last.seq = progress.seq;
            }
            _ => news.progress.push_back(progress),
        }
    }

    pub(crate) fn ended(&self, task: TaskId, attempt: Attempt, outcome: Outcome) {
        self.lock().attempts.entry((task, attempt)).or_default().ended.get_or_insert(outcome);
    }

    pub(crate) fn cancel_answered(&self, task: TaskId, answer: CancelAnswer) {
        self.lock().canceled.insert(task, answer);
    }

    /// An answer with a receipt was written, or not. There are as many as lines.
    pub(crate) fn told(&self, task: TaskId, turn: u32, written: bool) {
        self.lock().told.push((task, turn, written));
    }

    /// A caller is gone. What it asked for and was not looked at yet is as if it had not asked: `true`.
    pub(crate) fn line_closed(&self, line: LineId) -> bool {
        let mut waiting = self.lock();
        let asked = waiting.asked.len();
        waiting.asked.retain(|input| line_of(input) != Some(line));
        let unseen = waiting.asked.len() < asked;
        if !unseen {
            waiting.closed.insert(line);
        }
        unseen
    }

    /// The lines of what was asked and not taken yet.
    pub(crate) fn asked_on(&self) -> BTreeSet<LineId> {
        self.lock().asked.iter().filter_map(line_of).collect()
    }

    /// Only the store's answers.
    pub(crate) fn take_durable(&self) -> Vec<(u64, u64, Result<(), String>)> {
        std::mem::take(&mut self.lock().durable)
    }

    /// The store's word about commit `n` under this fence.
    pub(crate) fn durable(&self, fence: u64, n: u64, result: Result<(), String>) {
        self.lock().durable.push((fence, n, result));
    }

    /// Nothing more is taken from callers.
    pub(crate) fn shut(&self) {
        self.lock().shut = true;
    }

    /// Takes what is there, at most about `max` inputs.
    pub(crate) fn take(&self, max: usize) -> Taken {
        let mut waiting = self.lock();
        let mut inputs: Vec<Input> = waiting.ordered.drain(..).collect();
        while inputs.len() < max {
            let Some(line) = waiting.closed.pop_first() else { break };
            inputs.push(Input::LineClosed { line });
        }
        let room = max.saturating_sub(inputs.len()).min(waiting.told.len());
        inputs.extend(waiting.told.drain(..room).map(|(task, turn, written)| Input::Told { task, turn, written }));
        while inputs.len() < max {
            let Some((task, answer)) = waiting.canceled.pop_first() else { break };
            inputs.push(Input::CancelAnswered { task, answer });
        }
        while inputs.len() < max {
            let Some(((task, attempt), news)) = waiting.attempts.pop_first() else { break };
            inputs.extend(news.progress.into_iter().map(|progress| Input::Progressed { task, attempt, progress }));
            inputs.extend(news.ended.map(|outcome| Input::Ended { task, attempt, outcome }));
        }
        let room = max.saturating_sub(inputs.len()).min(waiting.asked.len());
        inputs.extend(waiting.asked.drain(..room));
        Taken { durable: std::mem::take(&mut waiting.durable), inputs }
    }

    /// Something waits.
    pub(crate) fn has_some(&self) -> bool {
        let waiting = self.lock();
        waiting.has_inputs() || !waiting.durable.is_empty()
    }
}

/// The line on which an input is to be answered.
pub(crate) fn line_of(input: &Input) -> Option<LineId> {
    match input {
        Input::Submitted(submission) => Some(submission.line),
        Input::CancelAsked { line, .. } | Input::Dropped { line, .. } | Input::Acknowledged { line, .. } => Some(*line),
        Input::WorkAsked { line, .. } => Some(*line),
        Input::LineClosed { .. }
        | Input::Progressed { .. }
        | Input::Ended { .. }
        | Input::CancelAnswered { .. }
        | Input::Told { .. }
        | Input::OutboxesAged { .. }
        | Input::Configured(_)
        | Input::BreakerReset { .. }
        | Input::Stalled { .. }
        | Input::ShuttingDown => None,
    }
}

impl Waiting {
    fn has_inputs(&self) -> bool {
        !(self.asked.is_empty()
            && self.ordered.is_empty()
            && self.attempts.is_empty()
            && self.canceled.is_empty()
            && self.told.is_empty()
            && self.closed.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use watertight_engine::ids::{AgentId, Principal};

    use super::*;

    fn line(n: u64) -> Input {
        let nobody = Principal { tenant: "t".into(), caller: "c".into() };
        Input::CancelAsked { line: LineId(n), principal: nobody, agent: AgentId::new("a"), task: TaskId(1) }
    }

    #[test]
    fn a_caller_that_leaves_before_it_was_seen_never_asked() {
        let inbox = Inbox::default();
        inbox.ask(line(1)).unwrap();
        inbox.ask(line(2)).unwrap();
        assert!(inbox.line_closed(LineId(1)));
        assert!(!inbox.line_closed(LineId(9)));
        let taken = inbox.take(256).inputs;
        assert!(matches!(
            taken[..],
            [Input::LineClosed { line: LineId(9) }, Input::CancelAsked { line: LineId(2), .. }]
        ));
    }

    #[test]
    fn callers_are_refused_when_there_is_no_room_and_the_rest_is_not() {
        let inbox = Inbox::default();
        for n in 0..MAX_ASKED as u64 {
            inbox.ask(line(n)).unwrap();
        }
        assert_eq!(inbox.ask(line(0)), Err(Full::Full));
        inbox.cancel_answered(TaskId(1), CancelAnswer::GoesOn);
        inbox.line_closed(LineId(7_000_000));
        let taken = inbox.take(256);
        assert_eq!(taken.inputs.len(), 256);
        assert!(matches!(taken.inputs[0], Input::LineClosed { line: LineId(7_000_000) }));
        assert!(matches!(taken.inputs[1], Input::CancelAnswered { .. }));
        assert!(inbox.ask(line(0)).is_ok());
        inbox.shut();
        assert_eq!(inbox.ask(line(0)), Err(Full::Gone));
    }

    #[test]
    fn news_of_an_attempt_is_folded_and_never_lost() {
        let inbox = Inbox::default();
        for seq in 1..=20 {
            let remote_task = (seq == 10).then(|| "r".into());
            inbox.progressed(TaskId(1), Attempt(1), Progress { remote_task, seq, ..Progress::default() });
        }
        let taken = inbox.take(256).inputs;
        assert_eq!(taken.len(), MAX_PROGRESS);
        let Some(Input::Progressed { progress, .. }) = taken.last() else { panic!("no progress") };
        assert_eq!((progress.seq, progress.remote_task.as_deref()), (20, Some("r")));
    }
}

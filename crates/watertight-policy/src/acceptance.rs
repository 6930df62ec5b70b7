//! Acceptance: whether what an agent returned is a result.
//!
//! A remote agent's output is data at best, and may be a bug, a loop or an attack. Size is judged before anything else
//! touches the content; only a completed task is a result; every structured part must match the schema agreed with
//! the agent. What is too large is withheld whole, never cut: half an answer is a wrong answer.
//!
//! Assumes that whoever holds the bytes measured them ([`Measure`]) without trusting them. Leaves out the content
//! itself, the schema, and how accepted text is shown to a model.

use crate::reason::Reason;

/// How much is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// Bytes of a result: all parts of all artifacts, as received. Zero accepts only results without content;
    /// `u64::MAX` is no limit. 256 KiB by default: more than a model can use, less than hurts.
    pub max_result_bytes: u64,
    /// Bytes of a task as a whole, relayed and kept, in any state. Zero accepts nothing but empty tasks; `u64::MAX` is
    /// no limit. 64 MiB by default. Below `max_result_bytes` it is the limit of results too.
    pub max_task_bytes: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self { max_result_bytes: 256 * 1024, max_task_bytes: 64 * 1024 * 1024 }
    }
}

/// The state an agent reported for its task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PeerState {
    /// The agent says that it is done.
    Completed,
    /// The agent failed.
    Failed,
    /// The work was canceled.
    Canceled,
    /// The agent decided not to do it.
    Rejected,
    /// The agent waits for another message.
    InputRequired,
    /// The agent waits for a credential.
    AuthRequired,
    /// The agent is at work.
    Working,
    /// The agent has it, and has not begun.
    Submitted,
    /// Missing, or a word this version does not know.
    Unknown,
}

/// What was measured of an answer. Not its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measure {
    /// The state the agent reported.
    pub state: PeerState,
    /// Bytes as received.
    pub bytes: u64,
    /// Structured parts found.
    pub data_parts: u32,
    /// Structured parts that do not match the agreed schema; where a schema is agreed and no structured part came,
    /// that counts as one.
    pub schema_failures: u32,
    /// Whether there is no content at all: no artifact with a part, no message.
    pub empty: bool,
}

/// What an answer is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A result. [`remark`] says whether it should be looked at.
    Accept,
    /// Within limits, and not a result: the state says what it is.
    NotAResult,
    /// Withheld, for this reason.
    Reject(Reason),
}

/// What is odd about an accepted result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remark {
    /// The agent says that it is done and gave nothing: legitimate for work done elsewhere, suspicious otherwise.
    Empty,
}

/// Judges an answer: its size first, then its state, then its shape.
pub const fn judge(params: &Params, measure: &Measure) -> Verdict {
    if measure.bytes > params.max_task_bytes {
        return Verdict::Reject(Reason::ResultTooLarge);
    }
    match measure.state {
        PeerState::Completed => judge_completed(params, measure),
        PeerState::Failed
        | PeerState::Canceled
        | PeerState::Rejected
        | PeerState::InputRequired
        | PeerState::AuthRequired
        | PeerState::Working
        | PeerState::Submitted
        | PeerState::Unknown => Verdict::NotAResult,
    }
}

/// What a reader should know about a result that [`judge`] accepts; `None` for anything that is not completed.
pub const fn remark(measure: &Measure) -> Option<Remark> {
    match (measure.state, measure.empty) {
        (PeerState::Completed, true) => Some(Remark::Empty),
        (PeerState::Completed, false)
        | (
            PeerState::Failed
            | PeerState::Canceled
            | PeerState::Rejected
            | PeerState::InputRequired
            | PeerState::AuthRequired
            | PeerState::Working
            | PeerState::Submitted
            | PeerState::Unknown,
            _,
        ) => None,
    }
}

const fn judge_completed(params: &Params, measure: &Measure) -> Verdict {
    if measure.bytes > params.max_result_bytes {
        Verdict::Reject(Reason::ResultTooLarge)
    } else if measure.schema_failures > 0 {
        Verdict::Reject(Reason::ResultRejected)
    } else {
        Verdict::Accept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [PeerState; 9] = [
        PeerState::Completed,
        PeerState::Failed,
        PeerState::Canceled,
        PeerState::Rejected,
        PeerState::InputRequired,
        PeerState::AuthRequired,
        PeerState::Working,
        PeerState::Submitted,
        PeerState::Unknown,
    ];

    fn measure(state: PeerState, bytes: u64, schema_failures: u32) -> Measure {
        Measure { state, bytes, data_parts: 1, schema_failures, empty: false }
    }

    #[test]
    fn only_completed_is_a_result() {
        let params = Params::default();
        let accepted: Vec<_> =
            STATES.into_iter().filter(|state| judge(&params, &measure(*state, 10, 0)) == Verdict::Accept).collect();
        assert_eq!(accepted, [PeerState::Completed]);
        for state in STATES.into_iter().skip(1) {
            assert_eq!(judge(&params, &measure(state, 10, 3)), Verdict::NotAResult, "{state:?}");
        }
    }

    #[test]
    fn size_is_judged_first() {
        let params = Params::default();
        let too_large = Verdict::Reject(Reason::ResultTooLarge);
        assert_eq!(judge(&params, &measure(PeerState::Completed, 256 * 1024, 0)), Verdict::Accept);
        assert_eq!(judge(&params, &measure(PeerState::Completed, 256 * 1024 + 1, 0)), too_large);
        assert_eq!(judge(&params, &measure(PeerState::Completed, 256 * 1024 + 1, 9)), too_large);
        for state in STATES {
            assert_eq!(judge(&params, &measure(state, 64 * 1024 * 1024 + 1, 0)), too_large, "{state:?}");
        }
        assert_eq!(judge(&params, &measure(PeerState::Working, 64 * 1024 * 1024, 0)), Verdict::NotAResult);
    }

    #[test]
    fn one_part_against_the_schema_rejects_the_whole() {
        let verdict = judge(&Params::default(), &measure(PeerState::Completed, 10, 1));
        assert_eq!(verdict, Verdict::Reject(Reason::ResultRejected));
    }

    #[test]
    fn an_empty_result_is_accepted_and_remarked() {
        let empty = Measure { empty: true, data_parts: 0, ..measure(PeerState::Completed, 0, 0) };
        assert_eq!(judge(&Params::default(), &empty), Verdict::Accept);
        assert_eq!(remark(&empty), Some(Remark::Empty));
        assert_eq!(remark(&measure(PeerState::Completed, 1, 0)), None);
        assert_eq!(remark(&Measure { state: PeerState::Failed, ..empty }), None);
    }
}

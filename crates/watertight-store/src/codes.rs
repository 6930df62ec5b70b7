//! The numbers that stand for states in the database. They are part of the schema: none is ever given a new meaning.

use watertight_engine::record::{Cancel, Delivery, Phase, ReplyKind, Row, TaskState};

use crate::words::Dialect;

pub(crate) fn state(state: TaskState) -> i64 {
    match state {
        TaskState::Submitted => 0,
        TaskState::Working => 1,
        TaskState::InputRequired => 2,
        TaskState::AuthRequired => 3,
        TaskState::Completed => 4,
        TaskState::Failed => 5,
        TaskState::Canceled => 6,
        TaskState::Rejected => 7,
    }
}

/// A state beside the row's own: of a task that is over, what came after the verdict; of one that is not, what it asked for. No
/// task has both, so they have one column.
pub(crate) fn beside(row: &Row) -> Option<TaskState> {
    if row.state.is_terminal() { row.late } else { row.asked }
}

/// What [`beside`] gave, as what came late and what it asked for.
pub(crate) fn of_beside(state: TaskState, beside: Option<TaskState>) -> (Option<TaskState>, Option<TaskState>) {
    if state.is_terminal() { (beside, None) } else { (None, beside) }
}

pub(crate) fn delivery(delivery: Delivery) -> i64 {
    match delivery {
        Delivery::NotSent => 0,
        Delivery::MaybeDelivered => 1,
        Delivery::Delivered => 2,
    }
}

pub(crate) fn phase(phase: Phase) -> i64 {
    match phase {
        Phase::Waiting => 0,
        Phase::Dispatching => 1,
        Phase::Running => 2,
        Phase::Ended => 3,
    }
}

pub(crate) fn cancel(cancel: Cancel) -> i64 {
    match cancel {
        Cancel::None => 0,
        Cancel::Owed => 1,
        Cancel::Confirmed => 2,
        Cancel::Refused => 3,
        Cancel::Unknown => 4,
    }
}

pub(crate) fn reply(reply: ReplyKind) -> i64 {
    match reply {
        ReplyKind::Task => 0,
        ReplyKind::Message => 1,
    }
}

pub(crate) fn dialect(dialect: Dialect) -> i64 {
    match dialect {
        Dialect::V1 => 1,
        Dialect::V03 => 2,
    }
}

const DELIVERIES: [Delivery; 3] = [Delivery::NotSent, Delivery::MaybeDelivered, Delivery::Delivered];
const PHASES: [Phase; 4] = [Phase::Waiting, Phase::Dispatching, Phase::Running, Phase::Ended];
const CANCELS: [Cancel; 5] = [Cancel::None, Cancel::Owed, Cancel::Confirmed, Cancel::Refused, Cancel::Unknown];

pub(crate) fn to_state(code: i64) -> Option<TaskState> {
    TaskState::ALL.into_iter().find(|&it| state(it) == code)
}

pub(crate) fn to_delivery(code: i64) -> Option<Delivery> {
    DELIVERIES.into_iter().find(|&it| delivery(it) == code)
}

pub(crate) fn to_phase(code: i64) -> Option<Phase> {
    PHASES.into_iter().find(|&it| phase(it) == code)
}

pub(crate) fn to_cancel(code: i64) -> Option<Cancel> {
    CANCELS.into_iter().find(|&it| cancel(it) == code)
}

pub(crate) fn to_reply(code: i64) -> Option<ReplyKind> {
    [ReplyKind::Task, ReplyKind::Message].into_iter().find(|&it| reply(it) == code)
}

pub(crate) fn to_dialect(code: i64) -> Option<Dialect> {
    [Dialect::V1, Dialect::V03].into_iter().find(|&it| dialect(it) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_leads_back() {
        assert!(TaskState::ALL.into_iter().all(|it| to_state(state(it)) == Some(it)));
        assert!(TaskState::ALL.into_iter().all(|it| it.is_terminal() == (state(it) >= 4)));
        assert!((0..3).all(|code| to_delivery(code).map(delivery) == Some(code)));
        assert!((0..4).all(|code| to_phase(code).map(phase) == Some(code)));
        assert!((0..5).all(|code| to_cancel(code).map(cancel) == Some(code)));
        assert!((0..2).all(|code| to_reply(code).map(reply) == Some(code)));
        assert!((1..3).all(|code| to_dialect(code).map(dialect) == Some(code)));
        assert_eq!(
            (to_state(8), to_delivery(3), to_phase(4), to_cancel(5), to_reply(2)),
            (None, None, None, None, None)
        );
    }
}

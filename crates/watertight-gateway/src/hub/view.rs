//! A task as everybody sees it, from its row and its record; and how the wire's states and the engine's meet.

use std::sync::Arc;

use watertight_a2a::event::{Body, Event as Heard};
use watertight_a2a::json::Json;
use watertight_a2a::record::{Record, agent_message};
use watertight_a2a::said::Said;
use watertight_a2a::text::quote;
use watertight_engine::record::{Delivery, Phase, Row, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use super::{Detail, EventKind, TaskView};
use crate::error::first_sentence;
use crate::states::wire_state;

/// The wire's milliseconds.
pub(crate) fn millis(at: Time) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

impl TaskView {
    /// What the agent said, and what it is.
    pub fn said(&self) -> Said<'_> {
        self.record.said_in(&wire_state(self.state))
    }
}

/// Writes the row's verdict into the record, over whatever the agent said. Of the detail, what was seen is told, such as
/// the limit that was passed; an error of the agent's own words is not put into ours.
pub(crate) fn overrule(record: &mut Record, row: &Row, detail: Option<&Detail>) {
    let text = row.reason.filter(|_| row.state == TaskState::Failed);
    let message = text.map(|reason| {
        let id = format!("{}-{}-{reason}", row.task, row.turn.no);
        let known = match row.delivery {
            Delivery::NotSent => "; nothing was sent",
            Delivery::MaybeDelivered => "; it may have received the message: outcome unknown",
            Delivery::Delivered => "",
        };
        let seen = detail.filter(|detail| detail.code.is_none()).and_then(|detail| detail.message.as_deref());
        let seen = seen.filter(|seen| !seen.is_empty()).map(|seen| format!("; {seen}")).unwrap_or_default();
        let text = format!("agent {}: {}{seen}{known} ({reason})", row.agent, first_sentence(reason));
        agent_message(&id, record.task_id(), record.context_id(), &text)
    });
    record.set_status(wire_state(row.state), message.as_ref(), millis(row.changed));
}

/// Whether the artifacts are those that came until the task was stopped. What an agent itself failed with is its answer.
pub(crate) fn is_cut_short(state: TaskState, reason: Option<Reason>, record: &Record) -> bool {
    let stopped = match state {
        TaskState::Canceled => true,
        TaskState::Failed => reason.is_some(),
        TaskState::Submitted
        | TaskState::Working
        | TaskState::InputRequired
        | TaskState::AuthRequired
        | TaskState::Completed
        | TaskState::Rejected => false,
    };
    stopped && !withheld(reason) && record.artifacts().next().is_some()
}

/// What a reader is told of our verdict beside its status: why, what is known of the delivery, and that what it has is not all.
pub(crate) fn verdict(row: &Row, record: &Record) -> Option<Json> {
    let reason = row.reason?;
    let partial = if is_cut_short(row.state, row.reason, record) { ",\"partial\":true" } else { "" };
    let mut out = b"{\"agent\":".to_vec();
    quote(row.agent.as_str(), &mut out);
    let delivery = row.delivery.as_str();
    out.extend_from_slice(format!(",\"reason\":\"{reason}\",\"delivery\":\"{delivery}\"{partial}}}").as_bytes());
    Some(Json::assume(out))
}

/// What there is to say when an attempt begins: that the message may have been there before.
pub(super) fn resent(row: Option<&Row>, before: Option<&Detail>) -> Option<Arc<Detail>> {
    let sends = |row: &Row| row.turn.phase == Phase::Dispatching && row.delivery == Delivery::MaybeDelivered;
    let resent = row.is_some_and(sends) || before.is_some_and(|before| before.resent);
    resent.then(|| Arc::new(Detail { resent, ..Detail::default() }))
}

/// Whether the result is kept from callers.
pub(crate) fn withheld(reason: Option<Reason>) -> bool {
    matches!(reason, Some(Reason::ResultTooLarge | Reason::ResultRejected))
}

pub(crate) fn view_of(row: &Row, record: Arc<Record>, detail: Option<Arc<Detail>>) -> TaskView {
    TaskView {
        task: row.task,
        principal: row.principal.clone(),
        agent: row.agent.clone(),
        from: row.chain.last().cloned(),
        context: row.context.clone(),
        state: row.state,
        reason: row.reason,
        delivery: row.delivery,
        cancel: row.cancel,
        late: row.late,
        reply: row.reply,
        waiting_on: row.turn.waiting_on,
        position: None,
        created: row.created,
        changed: row.changed,
        turn: row.turn.no,
        attempts: row.turn.attempts,
        remote_task: row.remote_task.clone(),
        detail,
        replay: false,
        redrives: row.redrives,
        redriven_by: None,
        withheld: withheld(row.reason),
        record,
    }
}

/// What an event is.
pub(super) fn kind_of(heard: &Heard) -> EventKind {
    match heard.body {
        Body::Task(_) => EventKind::Task,
        Body::Message(_) => EventKind::Message,
        Body::Status(_) => EventKind::Status,
        Body::Artifact(_) => EventKind::Artifact,
    }
}

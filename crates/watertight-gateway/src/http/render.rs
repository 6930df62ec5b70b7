//! Tasks as callers see them: what the agent said, and beside it what only we know, under `metadata.watertight`.
//!
//! The time of a status is ours: lists are sorted and filtered by it, and agents' clocks differ.

use watertight_a2a::json::Json;
use watertight_a2a::record::RenderOptions;
use watertight_a2a::text::quote;
use watertight_engine::ids::TaskId;
use watertight_engine::record::{Cancel, TaskState};

use super::redrive;
use crate::hub::TaskView;
use crate::states::{state_of, wire_state};

/// A Task, bare.
pub(super) fn task(view: &TaskView, history_length: Option<u32>, artifacts: bool) -> Vec<u8> {
    let ours = ours(view);
    let include_artifacts = artifacts && !view.withheld;
    let changed = i64::try_from(view.changed.as_millis()).unwrap_or(i64::MAX);
    let options =
        RenderOptions { history_length, include_artifacts, changed: Some(changed), watertight: ours.as_ref() };
    if state_of(view.record.state()) == view.state {
        return view.record.render_task(&options);
    }
    // The durable state outranks what the agent said last.
    let mut record = (*view.record).clone();
    let message = record.status().value().get("message").map(|message| record.status().part(message));
    record.set_status(wire_state(view.state), message.as_ref(), changed);
    record.render_task(&options)
}

/// What a caller can know of a task beyond what the agent said; nothing for a plain success.
fn ours(view: &TaskView) -> Option<Json> {
    let mut words: Vec<(&str, &str)> = Vec::new();
    if let Some(reason) = view.reason {
        words.push(("reason", reason.as_str()));
        words.push(("delivery", view.delivery.as_str()));
    }
    if let Some(waiting) = view.waiting_on {
        words.push(("waitingOn", waiting.as_str()));
    }
    if view.cancel != Cancel::None {
        words.push(("cancel", view.cancel.as_str()));
    }
    // Work may have been done elsewhere; a caller that expects words should not take none for them.
    if view.state == TaskState::Completed && view.record.measure().empty {
        words.push(("remark", "empty_result"));
    }
    if let Some(late) = view.late {
        words.push(("late", late.as_str()));
    }
    if view.detail.as_deref().is_some_and(|detail| detail.resent) {
        words.push(("resent", "true"));
    }
    let link = |task: Option<TaskId>| task.map(|task| task.to_string());
    let (redrives, redriven_by) = (link(view.redrives), link(view.redriven_by));
    words.extend(redrives.as_deref().map(|first| ("redrives", first)));
    words.extend(redriven_by.as_deref().map(|by| ("redrivenBy", by)));
    let again = redrive::path(view.task);
    if view.replay {
        words.push(("replay", "true"));
        if view.state.is_terminal() && view.state != TaskState::Completed {
            words.push(("redrive", &again));
        }
    }
    if words.is_empty() && view.position.is_none() {
        return None;
    }
    let mut out = b"{\"agent\":".to_vec();
    quote(view.agent.as_str(), &mut out);
    for (name, value) in words {
        out.push(b',');
        quote(name, &mut out);
        out.push(b':');
        quote(value, &mut out);
    }
    if let Some(position) = view.position {
        out.extend_from_slice(format!(",\"position\":{position}").as_bytes());
    }
    out.push(b'}');
    Some(Json::assume(out))
}

//! Tasks as callers see them: what the agent said, and beside it what only we know, under `metadata.watertight`.
//!
//! The time of a status is ours: lists are sorted and filtered by it, and agents' clocks differ.

use watertight_a2a::json::Json;
use watertight_a2a::record::RenderOptions;
use watertight_a2a::text::quote;
use watertight_engine::ids::AgentId;
use watertight_engine::record::{Cancel, TaskState};

use super::redrive;
use crate::hub::TaskView;
use crate::hub::view::is_cut_short;
use crate::states::{state_of, wire_state};

/// A Task, bare.
pub(super) fn task(view: &TaskView, history_length: Option<u32>, artifacts: bool) -> Vec<u8> {
    let include_artifacts = artifacts && !view.withheld;
    let ours = ours(view, include_artifacts);
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

/// The same with its artifacts and without its history.
pub(crate) fn whole(view: &TaskView) -> Vec<u8> {
    task(view, Some(0), true)
}

/// What a caller can know of a task beyond what the agent said; nothing for a plain success.
fn ours(view: &TaskView, artifacts: bool) -> Option<Json> {
    let mut words = Words(Vec::new());
    if let Some(reason) = view.reason {
        words.text("reason", reason.as_str());
        words.text("delivery", view.delivery.as_str());
    }
    if let Some(waiting) = view.waiting_on {
        words.text("waitingOn", waiting.as_str());
    }
    if view.cancel != Cancel::None {
        words.text("cancel", view.cancel.as_str());
    }
    // Work may have been done elsewhere; a caller that expects words should not take none for them.
    if view.state == TaskState::Completed && view.record.measure().empty {
        words.text("remark", "empty_result");
    }
    if artifacts && is_cut_short(view.state, view.reason, &view.record) {
        words.raw("partial", "true");
    }
    if let Some(late) = view.late {
        words.text("late", late.as_str());
    }
    if view.detail.as_deref().is_some_and(|detail| detail.resent) {
        words.raw("resent", "true");
    }
    if let Some(first) = view.redrives {
        words.text("redrives", &first.to_string());
    }
    if let Some(by) = view.redriven_by {
        words.text("redrivenBy", &by.to_string());
    }
    if view.replay {
        words.raw("replay", "true");
        if view.state.is_terminal() && view.state != TaskState::Completed {
            words.text("redrive", &redrive::path(view.task));
        }
    }
    if let Some(position) = view.position {
        words.raw("position", &position.to_string());
    }
    words.beside(&view.agent)
}

/// The members of an object of ours, each after a comma.
struct Words(Vec<u8>);

impl Words {
    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, "");
        quote(value, &mut self.0);
    }

    fn raw(&mut self, name: &str, value: &str) {
        self.0.push(b',');
        quote(name, &mut self.0);
        self.0.push(b':');
        self.0.extend_from_slice(value.as_bytes());
    }

    /// The object, if there is anything to say of the agent's task.
    fn beside(self, agent: &AgentId) -> Option<Json> {
        if self.0.is_empty() {
            return None;
        }
        let mut out = b"{\"agent\":".to_vec();
        quote(agent.as_str(), &mut out);
        out.extend(self.0);
        out.push(b'}');
        Some(Json::assume(out))
    }
}

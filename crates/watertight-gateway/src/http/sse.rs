//! A task's events as server-sent events: numbered, so that a reader can come back; never silent for long, so that
//! nobody on the way takes silence for death; and pulled, so that a slow reader's backlog is the hub's bounded one.
//!
//! The first event is the agent's own, if it comes soon and can stand first; else the task as it is, so that the caller
//! has its id. After a task was shown, a lone message comes as the status that ends it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::time::{Instant, sleep_until};
use watertight_a2a::event::wrap;
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::{Id, write_result};
use watertight_a2a::record::status_json;
use watertight_a2a::{sse, text};
use watertight_engine::record::{ReplyKind, TaskState};
use watertight_policy::reason::Reason;

use super::{render, wire_state};
use crate::error::Problem;
use crate::hub::{End, Event, EventId, EventKind, Item, Load, Subscription, TaskView};

/// How long the agent's own first event is waited for.
const OPENING: Duration = Duration::from_secs(1);
/// The first sign of life.
const FIRST_BEAT: Duration = Duration::from_millis(500);
/// The others, after so much silence. Clients with a read timeout of five seconds exist; proxies cut after 30.
const BEAT: Duration = Duration::from_secs(3);
/// What is put together in one piece when several events stand ready.
const PIECE: usize = 16 << 10;

/// A response's body.
pub struct Events {
    pieces: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
}

impl Events {
    /// All events of a turn, from its first on. `view`: the task as it was accepted.
    pub fn of_turn(id: Id, view: TaskView, events: Subscription) -> Events {
        Events::start(id, view, events, false)
    }

    /// What is newer than what the reader has.
    pub fn of_subscriber(id: Id, view: TaskView, events: Subscription) -> Events {
        // The snapshot comes from the hub, or is not wanted.
        Events::start(id, view, events, true)
    }

    fn start(id: Id, view: TaskView, events: Subscription, opened: bool) -> Events {
        let now = Instant::now();
        let pump = Pump {
            id,
            view,
            events,
            opened,
            as_task: opened,
            over: false,
            opening: now + OPENING,
            beat: now + FIRST_BEAT,
        };
        let pieces = unfold(pump, |mut pump| async move { pump.piece().await.map(|piece| (piece, pump)) });
        Events { pieces: Box::pin(pieces) }
    }

    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.pieces.as_mut().poll_next(cx)
    }
}

struct Pump {
    id: Id,
    view: TaskView,
    events: Subscription,
    /// Something was said.
    opened: bool,
    /// And it spoke of a task: a lone message can no longer stand alone.
    as_task: bool,
    over: bool,
    opening: Instant,
    beat: Instant,
}

impl Pump {
    /// The next bytes; `None` at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while !self.over && (out.is_empty() || (self.events.ready() && out.len() < PIECE)) {
            let timer = if self.opened { self.beat } else { self.beat.min(self.opening) };
            tokio::select! {
                biased;
                item = self.events.next() => self.take(item, &mut out),
                () = sleep_until(timer) => self.silence(&mut out),
            }
        }
        if out.is_empty() {
            return None;
        }
        self.beat = Instant::now() + BEAT;
        Some(out.into())
    }

    fn take(&mut self, item: Option<Item>, out: &mut Vec<u8>) {
        match item {
            Some(Item::Snapshot { id, view }) => {
                let is_message = !self.opened && view.reply == ReplyKind::Message && view.state == TaskState::Completed;
                match view.record.render_message_event().filter(|_| is_message) {
                    Some(message) => self.write(id, &message, out),
                    None => self.write_task(id, &view, out),
                }
                self.opened = true;
            }
            Some(Item::Event(event)) => self.event(&event, out),
            Some(Item::End(end)) => self.end(end, out),
            None => self.over = true,
        }
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        match event.kind {
            EventKind::Task => self.as_task = true,
            EventKind::Message if self.as_task => {
                let body = message_as_status(&self.view, &event.body);
                return self.write(event.id, &body, out);
            }
            EventKind::Message => {}
            EventKind::Status | EventKind::Artifact if self.opened => {}
            EventKind::Status | EventKind::Artifact => {
                // Readers want a task before they are told of its changes.
                let before = EventId { n: event.id.n.saturating_sub(1), ..event.id };
                let view = self.view.clone();
                self.write_task(before, &view, out);
            }
        }
        self.opened = true;
        self.write(event.id, &event.body, out);
    }

    fn end(&mut self, end: End, out: &mut Vec<u8>) {
        self.over = true;
        let last = self.events.load().last;
        let (reason, text) = match end {
            End::Over => {
                if !self.opened {
                    self.take(Some(Item::Snapshot { id: last, view: Box::new(self.view.clone()) }), out);
                }
                return;
            }
            End::Lagged => (
                Reason::RateLimited,
                "the reader did not keep up with the events, and its stream was closed; the task goes on: subscribe again",
            ),
            End::ShuttingDown => {
                (Reason::ShuttingDown, "the gateway stops; the task goes on when it is back: subscribe again")
            }
        };
        let problem = Problem::of(reason, format!("agent {}: {text}", self.view.agent));
        let error = problem
            .error
            .agent(self.view.agent.as_str())
            .task_id(&self.view.task.to_string())
            .with("resumable", "true")
            .with("lastEventId", last.to_string());
        sse::write_event(None, None, &error.to_jsonrpc(&self.id), out);
    }

    fn silence(&mut self, out: &mut Vec<u8>) {
        let load = self.events.load();
        if !self.opened && Instant::now() >= self.opening {
            let mut view = self.view.clone();
            view.state = load.state;
            self.opened = true;
            return self.write_task(load.last, &view, out);
        }
        sse::write_comment(&beat(&load), out);
    }

    fn write_task(&mut self, id: EventId, view: &TaskView, out: &mut Vec<u8>) {
        self.as_task = true;
        self.write(id, &wrap("task", &render::task(view, None, true)), out);
    }

    fn write(&self, id: EventId, result: &[u8], out: &mut Vec<u8>) {
        sse::write_event(Some(&id.to_string()), None, &write_result(&self.id, result), out);
    }
}

/// The truth about a stream, in a comment.
fn beat(load: &Load) -> String {
    let state = load.state.as_str().trim_start_matches("TASK_STATE_");
    format!("hb n={} q={}/{} state={state}", load.last.n, load.queued, load.limit)
}

/// A message that ends a task which readers know of already.
fn message_as_status(view: &TaskView, event: &[u8]) -> Vec<u8> {
    let event = Json::assume(event.to_vec());
    let message = event.value().get("message").map(|message| event.part(message));
    let millis = i64::try_from(view.changed.as_millis()).unwrap_or(i64::MAX);
    let status = status_json(&wire_state(TaskState::Completed), message.as_ref(), millis);
    let mut update = b"{\"taskId\":".to_vec();
    text::quote(&view.task.to_string(), &mut update);
    update.extend_from_slice(b",\"contextId\":");
    text::quote(&view.context, &mut update);
    update.extend_from_slice(b",\"status\":");
    update.extend_from_slice(status.as_bytes());
    update.push(b'}');
    wrap("statusUpdate", &update)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_tells_number_queue_and_state() {
        let load = Load { last: EventId { fence: 3, n: 12 }, queued: 0, limit: 128, state: TaskState::Working };
        assert_eq!(beat(&load), "hb n=12 q=0/128 state=WORKING");
        let mut out = Vec::new();
        sse::write_comment(&beat(&load), &mut out);
        assert_eq!(out, b": hb n=12 q=0/128 state=WORKING\n\n");
    }
}

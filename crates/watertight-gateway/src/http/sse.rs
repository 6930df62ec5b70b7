//! A task's events as server-sent events: numbered, so that a reader can come back; never silent for long, so that
//! nobody on the way takes silence for death; and pulled, so that a slow reader's backlog is the hub's bounded one.
//!
//! What comes first, a task or the agent's own first word, is the hub's decision. Here it is only written.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http::StatusCode;
use tokio::time::{Instant, sleep_until};
use watertight_a2a::event::wrap;
use watertight_a2a::jsonrpc::{Id, write_result};
use watertight_a2a::sse;
use watertight_engine::record::ReplyKind;
use watertight_policy::reason::Reason;

use super::render;
use crate::error::Problem;
use crate::hub::{End, EventId, Item, Load, Subscription, TaskView};
use crate::states::state_of;

/// A sign of life after so much silence. Clients with a read timeout of five seconds exist; proxies cut after 30.
pub(super) const BEAT: Duration = Duration::from_secs(3);
/// What is put together in one piece when several events stand ready.
const PIECE: usize = 16 << 10;

/// How an event is written.
pub enum Shape {
    /// Each a JSON-RPC response to the request with this id.
    Rpc(Id),
    /// Bare, as HTTP+JSON has them.
    Rest,
}

/// A response's body.
pub struct Events {
    pieces: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
}

impl Events {
    /// The events of a task, in this shape. `lone`: where the agent's whole answer is a message, it may stand alone.
    pub fn new(shape: Shape, view: &TaskView, lone: bool, events: Subscription) -> Events {
        let name = (view.agent.to_string(), view.task.to_string());
        let pump = Pump { shape, name, lone, events, begun: false, over: false, beat: Instant::now() };
        let pieces = unfold(pump, |mut pump| async move { pump.piece().await.map(|piece| (piece, pump)) });
        Events { pieces: Box::pin(pieces) }
    }

    /// Other events, already written.
    pub(super) fn of(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Events {
        Events { pieces: Box::pin(pieces) }
    }

    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.pieces.as_mut().poll_next(cx)
    }
}

struct Pump {
    shape: Shape,
    /// Agent and task, for an error at the end.
    name: (String, String),
    lone: bool,
    events: Subscription,
    begun: bool,
    over: bool,
    beat: Instant,
}

impl Pump {
    /// The next bytes; `None` at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        // The first sign of life does not wait for the agent.
        if !std::mem::replace(&mut self.begun, true) && !self.events.ready() {
            sse::write_comment(&beat(&self.events.load()), &mut out);
        }
        while !self.over && (out.is_empty() || (self.events.ready() && out.len() < PIECE)) {
            tokio::select! {
                biased;
                item = self.events.next() => self.take(item, &mut out),
                () = sleep_until(self.beat) => sse::write_comment(&beat(&self.events.load()), &mut out),
            }
        }
        self.beat = Instant::now() + BEAT;
        (!out.is_empty()).then(|| out.into())
    }

    fn take(&mut self, item: Option<Item>, out: &mut Vec<u8>) {
        match item {
            Some(Item::Snapshot { id, view }) => self.snapshot(id, *view, out),
            Some(Item::Event(event)) => {
                self.lone = false;
                self.write(event.id, &event.body, out);
            }
            Some(Item::End(end)) => self.end(end, out),
            None => self.over = true,
        }
    }

    fn snapshot(&mut self, id: EventId, mut view: TaskView, out: &mut Vec<u8>) {
        let alone = std::mem::take(&mut self.lone) && view.reply == ReplyKind::Message;
        if let Some(message) = view.record.render_message_event().filter(|_| alone) {
            return self.write(id, &message, out);
        }
        // An end that is known and not yet shown has an event of its own, right behind this.
        let shown = state_of(view.record.state());
        if view.state.is_terminal() && !shown.is_terminal() {
            (view.state, view.reason) = (shown, None);
        }
        self.write(id, &wrap("task", &render::task(&view, None, true)), out);
    }

    fn end(&mut self, end: End, out: &mut Vec<u8>) {
        self.over = true;
        let (reason, text) = match end {
            End::Over => return,
            End::Lagged => (
                Reason::ReaderLagged,
                "the reader did not keep up with the events, and its stream was closed; the task goes on: subscribe again",
            ),
            End::StoreAway => (
                Reason::StoreUnavailable,
                "the gateway's store does not answer, so nothing can be told for now; the task goes on: subscribe again",
            ),
            End::ShuttingDown => {
                (Reason::ShuttingDown, "the gateway stops; the task goes on when it is back: subscribe again")
            }
        };
        let (agent, task) = &self.name;
        let error = Problem::of(reason, format!("agent {agent}: {text}"))
            .error
            .agent(agent)
            .task_id(task)
            .with("resumable", "true")
            .with("lastEventId", self.events.load().last.to_string());
        match &self.shape {
            Shape::Rpc(id) => sse::write_event(None, None, &error.to_jsonrpc(id), out),
            // The binding says nothing of errors in a stream; clients know them by the event's name.
            Shape::Rest => {
                // Whatever the reason: not now, and the way back is open.
                let status = StatusCode::SERVICE_UNAVAILABLE.as_u16();
                sse::write_event(None, Some("error"), &error.to_http(status), out);
            }
        }
    }

    fn write(&self, id: EventId, result: &[u8], out: &mut Vec<u8>) {
        let id = id.to_string();
        match &self.shape {
            Shape::Rpc(request) => sse::write_event(Some(&id), None, &write_result(request, result), out),
            Shape::Rest => sse::write_event(Some(&id), None, result, out),
        }
    }
}

/// The truth about a stream, in a comment.
fn beat(load: &Load) -> String {
    let state = load.state.as_str().trim_start_matches("TASK_STATE_");
    format!("hb n={} q={}/{} state={state}", load.last.n, load.queued, load.limit)
}

#[cfg(test)]
mod tests {
    use watertight_engine::record::TaskState;

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

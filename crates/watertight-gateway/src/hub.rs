//! What is shown of the delegations that are live: their records, their events, and who reads them.
//!
//! Assumes that one driver says what is durable. Nothing that is not durable is shown: an event that changes a task's
//! state waits until its commit is on disk, and everything that came after it waits behind it. The attempt that relays
//! an agent's events never waits for a reader: a reader that stays full is closed with an error that says how to resume.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use watertight_a2a::record::Record;
use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::record::{Cancel, Delivery, ReplyKind, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

/// Limits of streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Events that may wait for one reader before it counts as full.
    pub max_outbound_events: usize,
    /// Bytes that may wait for one reader; above, it is closed at once.
    pub max_outbound_bytes: usize,
    /// How long a reader may stay full.
    pub drain: Span,
    /// Shown events kept per task, to resume after.
    pub ring_events: usize,
    /// Likewise in bytes.
    pub ring_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_outbound_events: 128,
            max_outbound_bytes: 4 << 20,
            drain: Span::from_secs(5),
            ring_events: 256,
            ring_bytes: 1 << 20,
        }
    }
}

/// Names an event for resuming after it: the fence under which it was numbered, and its number. Numbers count up by
/// one per task; a number of another fence means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventId {
    /// The fence.
    pub fence: u64,
    /// The number.
    pub n: u64,
}

impl EventId {
    /// Reads what [`fmt::Display`] wrote; `None` for anything else.
    pub fn parse(text: &str) -> Option<EventId> {
        let (fence, n) = text.split_once('-')?;
        Some(EventId { fence: fence.parse().ok()?, n: n.parse().ok()? })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.fence, self.n)
    }
}

/// What an event is, by the one member of its StreamResponse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// `task`
    Task,
    /// `message`
    Message,
    /// `statusUpdate`
    Status,
    /// `artifactUpdate`
    Artifact,
}

/// One event as it is shown: ids are ours, the rest is as the agent wrote it.
#[derive(Debug)]
pub struct Event {
    /// Its number.
    pub id: EventId,
    /// What it is.
    pub kind: EventKind,
    /// The task's state as this event tells it, if it tells any.
    pub state: Option<TaskState>,
    /// A 1.0 StreamResponse: one JSON object with one member.
    pub body: Bytes,
}

/// What a stream is given next.
#[derive(Debug)]
pub enum Item {
    /// The task as a whole, up to and including the event `id`; only newer events follow.
    Snapshot {
        /// The last event that it contains (`n` is 0 before the first).
        id: EventId,
        /// The task.
        view: Box<TaskView>,
    },
    /// The next event.
    Event(Arc<Event>),
    /// Nothing follows. Given once.
    End(End),
}

/// Why a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The task is terminal or waits for its caller, and everything was given: close cleanly.
    Over,
    /// The reader stayed full for too long. What it had was given; it can subscribe again. (Resumable.)
    Lagged,
    /// The gateway stops; the work goes on when it is back. (Resumable.)
    ShuttingDown,
}

/// What a heartbeat may tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The last event given or queued.
    pub last: EventId,
    /// Events queued.
    pub queued: usize,
    /// Events that may be queued.
    pub limit: usize,
    /// The task's state as it is shown.
    pub state: TaskState,
}

/// One reader of one task's events. Dropping it changes nothing for the task or for other readers.
#[derive(Debug)]
pub struct Subscription {}

impl Subscription {
    /// The next item; `None` after [`Item::End`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<Item> {
        unimplemented!()
    }

    /// What stands ready is given without waiting: [`Subscription::next`] would return at once.
    pub fn ready(&self) -> bool {
        unimplemented!()
    }

    /// For a heartbeat.
    pub fn load(&self) -> Load {
        unimplemented!()
    }
}

/// What is known of a failure beyond its reason. Kept with the record, so that a replay or a later GetTask tells the
/// same. Peer text: escaped and bounded, never to be read by a model as it is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Detail {
    /// The agent's own JSON-RPC error code.
    pub code: Option<i64>,
    /// The agent's own error message, or ours about the connection.
    pub message: Option<String>,
    /// The agent's own error data, as raw JSON.
    pub data: Option<Bytes>,
    /// The HTTP status that it came with.
    pub status: Option<u16>,
    /// The beginning of a body that could not be read as A2A.
    pub excerpt: Option<String>,
}

/// A task as everybody sees it: durable facts only.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// Its id.
    pub task: TaskId,
    /// Whose it is.
    pub principal: Principal,
    /// For whom.
    pub agent: AgentId,
    /// The contextId that the caller sees.
    pub context: Arc<str>,
    /// Its state. It outranks the state inside `record`.
    pub state: TaskState,
    /// Our reason, if the state is our verdict.
    pub reason: Option<Reason>,
    /// What is known of the delivery.
    pub delivery: Delivery,
    /// How far a cancel has come.
    pub cancel: Cancel,
    /// A result that came after the verdict.
    pub late: Option<TaskState>,
    /// Task or lone message.
    pub reply: ReplyKind,
    /// Why it waits, while it waits.
    pub waiting_on: Option<Reason>,
    /// When it was accepted.
    pub created: Time,
    /// When its state last changed.
    pub changed: Time,
    /// The current turn's number.
    pub turn: u32,
    /// Tries made for the current turn.
    pub attempts: u32,
    /// The agent's task id, for people who look into it.
    pub remote_task: Option<Arc<str>>,
    /// More about a failure.
    pub detail: Option<Arc<Detail>>,
    /// The result is withheld (`result_too_large`, `result_rejected`): do not show the record's artifacts.
    pub withheld: bool,
    /// Status message, artifacts, history: what the agent said, reduced.
    pub record: Arc<Record>,
}

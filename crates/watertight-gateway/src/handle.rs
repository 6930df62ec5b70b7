//! The one door to the cells: what every face calls. Cheap to clone.
//!
//! Assumes that the caller is authenticated and may call the agent, and that its body is parsed and bounded. It does
//! the look-ups that the engine needs and has no store for, and waits for the engine's answer on a line; a caller that
//! leaves drops the future, and the line is closed. A foreign task is answered like one that does not exist.

use bytes::Bytes;
use watertight_a2a::call::SendPeek;
use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::input::WireBudget;
use watertight_engine::record::TaskState;
use watertight_policy::breaker;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::AgentSpec;
use crate::hub::{EventId, Subscription, TaskView};

/// See the module's header.
#[derive(Clone)]
pub struct Handle {}

/// A message for an agent.
pub struct NewCall {
    /// Who calls.
    pub principal: Principal,
    /// Whom.
    pub agent: AgentId,
    /// The params of SendMessage, 1.0, as received. Kept raw.
    pub params: Bytes,
    /// What was read of them.
    pub peek: SendPeek,
    /// What the caller waits for.
    pub want: Want,
    /// How long the caller itself says that it waits; the agent's configured wait if it says nothing.
    pub wait: Option<Span>,
    /// What came in `x-budget`.
    pub budget: WireBudget,
    /// The delegation that this one is started for, if the caller says so.
    pub parent: Option<TaskId>,
    /// The W3C trace that it belongs to.
    pub trace: Trace,
}

/// See `watertight_engine::input::Want`, which also says when a wait ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// The turn's end, or the task as it is at the end of the wait.
    Reply,
    /// A stream.
    Stream,
    /// Only that it is accepted.
    Accepted,
}

/// Trace headers, checked by the face.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// `traceparent`
    pub parent: Option<String>,
    /// `tracestate`
    pub state: Option<String>,
}

/// A message that was taken on.
#[derive(Debug)]
pub struct Accepted {
    /// The task.
    pub task: TaskId,
    /// The messageId was seen before: this is the first one's task.
    pub replay: bool,
    /// The task as it is now; over, if the caller waited for that.
    pub view: TaskView,
    /// For [`Want::Stream`]: everything from the first event on. Already over for a replay of a finished turn.
    pub stream: Option<Subscription>,
}

/// Why there is no task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Declined {
    /// Not taken on. No attempt was spent, no dedupe key kept.
    Refused {
        /// From the one vocabulary.
        reason: Reason,
        /// Whose wall it was.
        agent: AgentId,
        /// Not worth trying before.
        retry_after: Option<Span>,
    },
    /// The messageId was used before with another body.
    Conflict {
        /// By this task.
        first: TaskId,
    },
    /// No such task, or not the caller's.
    NotFound,
    /// The task is terminal: it takes no message, and no subscriber.
    TaskTerminal,
    /// The contextId named is not the task's.
    ContextMismatch,
    /// The task is terminal and not canceled.
    NotCancelable,
}

/// Which tasks to list. Always only the caller's own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Through this agent's door; all agents if `None`.
    pub agent: Option<AgentId>,
    /// In this context.
    pub context: Option<String>,
    /// In this state.
    pub state: Option<TaskState>,
    /// Changed at this time or later.
    pub changed_since: Option<Time>,
    /// At most so many: 1 to 100.
    pub limit: usize,
    /// The page's token, from the page before.
    pub after: Option<String>,
}

/// Some of a caller's tasks, last changed first.
#[derive(Debug, Default)]
pub struct Page {
    /// These.
    pub tasks: Vec<TaskView>,
    /// The next page's token; `None` on the last page.
    pub next: Option<String>,
    /// How many there are over all pages.
    pub total: u64,
}

/// One agent's walls at a moment, for people and machines.
#[derive(Clone, Debug)]
pub struct AgentStats {
    /// Its name.
    pub agent: AgentId,
    /// Slots taken.
    pub in_flight: u32,
    /// Slots there are.
    pub max_in_flight: u32,
    /// Callers waiting for a slot.
    pub waiting: u32,
    /// Accepted turns waiting.
    pub queued: u32,
    /// The breaker.
    pub breaker: breaker::Snapshot,
    /// The agent asked to be left alone for this long.
    pub pacing: Option<Span>,
    /// Open streams.
    pub streams: u32,
}

/// The page token is none of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadToken;

/// Why there is no page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// See [`BadToken`].
    BadToken,
    /// The store cannot be read.
    StoreUnavailable,
}

impl Handle {
    /// Sends a message to an agent. Dropping the future means that the caller is gone; the work goes on.
    pub async fn submit(&self, _call: NewCall) -> Result<Accepted, Declined> {
        unimplemented!()
    }

    /// Cancels a task, and gives it as it is afterwards.
    pub async fn cancel(&self, _principal: Principal, _agent: AgentId, _task: TaskId) -> Result<TaskView, Declined> {
        unimplemented!()
    }

    /// A task of this caller with this agent.
    pub async fn task(&self, _principal: &Principal, _agent: &AgentId, _task: TaskId) -> Result<TaskView, Declined> {
        unimplemented!()
    }

    /// The caller's tasks.
    pub async fn list(&self, _principal: &Principal, _filter: Filter) -> Result<Page, NoPage> {
        unimplemented!()
    }

    /// A task's events: a snapshot, then what is newer; or everything after `after`, if that is still held.
    pub async fn subscribe(
        &self,
        _principal: &Principal,
        _agent: &AgentId,
        _task: TaskId,
        _after: Option<EventId>,
    ) -> Result<Subscription, Declined> {
        unimplemented!()
    }

    /// The agents' walls, at most a quarter of a second old.
    pub fn agents(&self) -> Vec<AgentStats> {
        unimplemented!()
    }

    /// New limits and agents: those missing from the list are unknown to callers from now on; what runs goes on.
    pub async fn configure(&self, _agents: Vec<AgentSpec>) {
        unimplemented!()
    }

    /// Lets traffic through to an agent again. `false`: no such agent.
    pub async fn breaker_reset(&self, _agent: &AgentId) -> bool {
        unimplemented!()
    }

    /// Takes nothing new, ends all streams resumably, flushes, and closes the store; within the limit.
    pub async fn drain(&self, _limit: Span) {
        unimplemented!()
    }

    /// The cell answers and the store can be written.
    pub fn ready(&self) -> bool {
        unimplemented!()
    }

    /// Cell time.
    pub fn now(&self) -> Time {
        unimplemented!()
    }

    /// The text for `/metrics`.
    pub fn metrics(&self) -> String {
        unimplemented!()
    }
}

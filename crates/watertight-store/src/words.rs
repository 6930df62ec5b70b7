//! What goes into the store and comes out of it, beside the engine's own rows.

use std::sync::Arc;

use bytes::Bytes;
use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::record::{Row, Save, TaskState};
use watertight_policy::time::Time;

/// How a body is written: the protocol version that it was received in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dialect {
    /// A2A 1.0.
    V1,
    /// A2A 0.3.
    V03,
}

/// Text as it was received. The store never looks into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// How it is written.
    pub dialect: Dialect,
    /// The bytes, unchanged.
    pub bytes: Bytes,
}

/// One save of the engine, with the bodies that it asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// What the engine saves.
    pub save: Save,
    /// The message of the row's turn. Must be there when the save says `message`.
    pub message: Option<Body>,
    /// The whole record of the task: it replaces the one before and all its deltas. `None` keeps what is stored.
    pub record: Option<Body>,
}

impl Write {
    /// A save that needs no body.
    pub fn bare(save: Save) -> Write {
        Write { save, message: None, record: None }
    }
}

/// A task's record as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The last whole one. `None`: nothing was ever said but the message that the task began with.
    pub whole: Option<Body>,
    /// What was appended since, in order.
    pub deltas: Vec<Body>,
}

impl Record {
    pub(crate) fn bytes(&self) -> usize {
        self.whole.iter().chain(&self.deltas).map(|body| body.bytes.len()).sum()
    }

    /// `None` if nothing is stored.
    pub(crate) fn some(self) -> Option<Record> {
        Some(self).filter(|record| record.whole.is_some() || !record.deltas.is_empty())
    }
}

/// Where news of a task is pushed to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Of which task.
    pub task: TaskId,
    /// Which of its hooks.
    pub id: String,
    /// The configuration, as whoever keeps it sealed it.
    pub sealed: Vec<u8>,
    /// The turn whose end arrived there last, and how it ended; none did yet.
    pub told: Option<(u32, TaskState)>,
}

/// A change of a task's hooks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookChange {
    /// It is there, or as it is now.
    Put(Hook),
    /// It is gone.
    Drop(TaskId, String),
}

/// What an agent said of a task after the verdict on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Late {
    /// Of which task.
    pub task: TaskId,
    /// When it came.
    pub at: Time,
    /// How it says that the task ended.
    pub state: TaskState,
    /// Bytes of the whole text.
    pub bytes: u64,
    /// The text, or its beginning.
    pub text: String,
}

/// The right to write, until the next one is given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Every commit names it. It counts up with every lease that was ever given out for this cell.
    pub fence: u64,
    /// The store's clock, never below a time that was saved before: where the cell's time begins.
    pub now: Time,
}

/// Which delegations that are over to read, in the order in which they ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverQuery {
    /// Whose.
    pub tenant: Arc<str>,
    /// Only those behind this one: the `changed` and `task` of the last row that was read.
    pub after: Option<(Time, TaskId)>,
    /// Only those that ended before.
    pub until: Time,
    /// At most this many rows.
    pub limit: usize,
}

impl OverQuery {
    pub(crate) fn matches(&self, row: &Row) -> bool {
        row.state.is_terminal()
            && row.principal.tenant == self.tenant
            && row.changed < self.until
            && self.after.is_none_or(|after| (row.changed, row.task) > after)
    }
}

/// Which delegations to list. They come newest change of state first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListQuery {
    /// Whose. Nobody sees another's.
    pub principal: Principal,
    /// With this agent; `None` for all of the principal's agents.
    pub agent: Option<AgentId>,
    /// Only those of this context, as the caller knows it.
    pub context: Option<String>,
    /// Only those in one of these states.
    pub states: Option<Vec<TaskState>>,
    /// Only those whose state changed at this time or later.
    pub changed_after: Option<Time>,
    /// Only those behind this one in the order: the `changed` and `task` of the last row of the page before.
    pub after: Option<(Time, TaskId)>,
    /// At most this many rows.
    pub limit: usize,
}

impl ListQuery {
    /// The first hundred of all of a principal's delegations.
    pub fn of(principal: Principal) -> ListQuery {
        ListQuery { principal, agent: None, context: None, states: None, changed_after: None, after: None, limit: 100 }
    }

    pub(crate) fn wants(&self, state: TaskState) -> bool {
        self.states.as_ref().is_none_or(|states| states.contains(&state))
    }

    /// Whether a row is on some page of it.
    pub(crate) fn matches(&self, row: &Row) -> bool {
        row.principal == self.principal
            && self.agent.as_ref().is_none_or(|agent| row.agent == *agent)
            && self.context.as_ref().is_none_or(|context| *row.context == **context)
            && self.changed_after.is_none_or(|time| row.changed >= time)
            && self.wants(row.state)
    }

    /// The states asked for, as bits.
    pub(crate) fn mask(&self) -> u32 {
        let all = |states: &[TaskState]| states.iter().fold(0, |mask, &state| mask | 1 << crate::codes::state(state));
        self.states.as_deref().map_or_else(|| all(&TaskState::ALL), all)
    }
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// How many there are over all pages.
    pub total: u64,
}

/// What [`crate::Store::prune`] removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    /// Delegations, with their bodies and keys.
    pub tasks: u64,
    /// Dedupe keys of delegations that stay.
    pub keys: u64,
}

/// What the store did so far. A commit's share of a transaction is what group commit saves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Transactions that wrote commits or deltas.
    pub transactions: u64,
    /// Transactions that wrote pieces of large payloads ahead of their commit.
    pub piece_transactions: u64,
    /// Commits that are durable.
    pub commits: u64,
    /// Commits that were refused or failed.
    pub failed: u64,
    /// Deltas that were given up; each one's successors are given up too, until the task's next whole record.
    pub deltas_dropped: u64,
}

/// A piece of a record, between two whole ones.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    pub(crate) task: TaskId,
    pub(crate) seq: u64,
    pub(crate) body: Body,
}

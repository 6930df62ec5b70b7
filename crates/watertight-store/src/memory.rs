//! What ends with the process: for trying things out, and for tests.
//!
//! [`Memory`] is what is kept, and answers reads at once; [`MemoryStore`] is it behind the store's thread, with its order,
//! fences and refusals. Leaves out bounds: retention alone removes what is over.

mod lists;
mod shelf;
mod thread;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use watertight_engine::ids::{AgentId, ContextKey, Key, Owner, Principal, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::outbox;
use watertight_engine::record::{Notice, Row, TaskState};

use crate::words::{Body, Hook, Late, ListQuery, OverQuery, Page, Record};
use shelf::Shelf;
pub use thread::MemoryStore;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    shelf: RwLock<Shelf>,
}

impl Memory {
    /// Every delegation that is not terminal, or owes a cancel, by its id.
    pub(crate) fn load(&self) -> Vec<Row> {
        self.read().rows().filter(|row| row.is_live()).cloned().collect()
    }

    /// One delegation.
    pub(crate) fn task(&self, task: TaskId) -> Option<Row> {
        self.read().row(task).cloned()
    }

    /// The message of one of its turns.
    pub(crate) fn message(&self, task: TaskId, turn: u32) -> Option<Body> {
        self.read().message(task, turn).cloned()
    }

    /// Its record.
    pub(crate) fn record(&self, task: TaskId) -> Option<Record> {
        self.read().record(task)
    }

    /// Several, in order, until they are more than so many bytes together.
    pub(crate) fn records(&self, tasks: &[TaskId], bytes: usize) -> Vec<Option<Record>> {
        let shelf = self.read();
        let mut size = 0;
        let fits = |record: &Option<Record>| {
            let fits = size <= bytes;
            size += record.as_ref().map_or(0, Record::bytes);
            fits
        };
        tasks.iter().map(|task| shelf.record(*task)).take_while(fits).collect()
    }

    /// An earlier use of a messageId.
    pub(crate) fn key(&self, key: &Key) -> Option<KnownKey> {
        self.read().key(key)
    }

    /// What stands for a caller's context toward the agent.
    pub(crate) fn context(&self, key: &ContextKey) -> Option<RemoteId> {
        self.read().context(key)
    }

    /// The first delegation that got this task id from this agent.
    pub(crate) fn remote_task(&self, agent: &AgentId, remote: &str) -> Option<TaskId> {
        self.read().remote_task(agent, remote)
    }

    /// The delegations that were started for this one, by their ids; at most so many.
    pub(crate) fn children(&self, parent: TaskId, limit: usize) -> Vec<Row> {
        self.read().children(parent, limit)
    }

    /// Who of a tenant has delegations, by name; at most so many.
    pub(crate) fn callers(&self, tenant: &str, limit: usize) -> Vec<Principal> {
        self.read().callers(tenant, limit)
    }

    /// Every outbox that anything was ever put into.
    pub(crate) fn outboxes(&self) -> Vec<outbox::Stored> {
        self.read().outboxes()
    }

    /// What waits in an outbox behind this number, in order; at most so many.
    pub(crate) fn notices(&self, owner: &Owner, after: u64, limit: usize) -> Vec<Notice> {
        self.read().notices(owner, after, limit)
    }

    /// All hooks of all tasks.
    pub(crate) fn hooks(&self) -> Vec<Hook> {
        self.read().hooks.values().cloned().collect()
    }

    /// What the agent said of this task after the verdict on it.
    pub(crate) fn late(&self, task: TaskId) -> Option<Late> {
        self.read().late.get(&task).cloned()
    }

    /// A page of a principal's delegations, and how many there are over all pages.
    pub(crate) fn list(&self, query: &ListQuery) -> Page {
        self.read().list(query)
    }

    /// What is over, in the order in which it ended.
    pub(crate) fn over(&self, query: &OverQuery) -> Vec<Row> {
        let mut rows: Vec<Row> = self.read().rows().filter(|row| query.matches(row)).cloned().collect();
        rows.sort_unstable_by_key(|row| (row.changed, row.task));
        rows.truncate(query.limit);
        rows
    }

    fn read(&self) -> RwLockReadGuard<'_, Shelf> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.shelf.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the shelf has of each task, for compare and set.
fn stored(shelf: &Shelf, task: TaskId) -> Option<(u64, TaskState)> {
    shelf.row(task).map(|row| (row.version, row.state))
}

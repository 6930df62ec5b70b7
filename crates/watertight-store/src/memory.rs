//! What ends with the process: for agents that want no durability, for trying things out, and for tests.
//!
//! [`Memory`] is written and read at once, on the caller's thread. Its bounds count per agent, so that one agent's
//! results never push out another's: beyond them the oldest task that is over and owes nothing goes, with all that
//! belongs to it. What is live is never pushed out; how much of that there may be is the engine's to say.
//! [`MemoryStore`] is the same behind the store's thread, with its order, fences and refusals.

mod lists;
mod shelf;
mod thread;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use watertight_engine::ids::{AgentId, ContextKey, Key, Principal, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::record::{Row, TaskState};
use watertight_policy::time::{Span, Time};

use crate::error::CommitError;
use crate::queue::PruneAsk;
use crate::words::{Body, ListQuery, Page, Pruned, Record, Write};
use crate::{follow, is_live};
use shelf::Shelf;
pub use thread::MemoryStore;

/// How much of each agent's is kept. A task counts with its bodies and about 1 KiB for the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Tasks.
    pub tasks: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Bounds {
    /// Nothing is pushed out.
    pub const NONE: Bounds = Bounds { tasks: usize::MAX, bytes: usize::MAX };
}

/// See the module's header.
#[derive(Debug)]
pub struct Memory {
    shelf: RwLock<Shelf>,
}

impl Memory {
    /// An empty one with these bounds for each agent.
    pub fn bounded(bounds: Bounds) -> Memory {
        Memory { shelf: RwLock::new(Shelf::new(bounds)) }
    }

    /// Writes a commit: all of it or, if a row does not follow the stored one, nothing.
    pub fn put(&self, writes: Vec<Write>) -> Result<(), CommitError> {
        let mut shelf = self.write();
        follow::check(&writes, |task| Ok::<_, CommitError>(stored(&shelf, task)))?;
        for write in writes {
            shelf.put(write);
        }
        shelf.push_out();
        Ok(())
    }

    /// A piece of a task's record, between two whole ones. One for a task that is not there is passed over.
    pub fn append(&self, task: TaskId, seq: u64, events: Body) {
        let mut shelf = self.write();
        shelf.append(task, seq, events);
        shelf.push_out();
    }

    /// Every delegation that is not terminal, or owes a cancel, by its id.
    pub fn load(&self) -> Vec<Row> {
        self.read().rows().filter(|row| is_live(row)).cloned().collect()
    }

    /// One delegation.
    pub fn task(&self, task: TaskId) -> Option<Row> {
        self.read().row(task).cloned()
    }

    /// The message of one of its turns.
    pub fn message(&self, task: TaskId, turn: u32) -> Option<Body> {
        self.read().message(task, turn).cloned()
    }

    /// Its record.
    pub fn record(&self, task: TaskId) -> Option<Record> {
        self.read().record(task)
    }

    /// Several, in order, until they are more than so many bytes together.
    pub fn records(&self, tasks: &[TaskId], bytes: usize) -> Vec<Option<Record>> {
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
    pub fn key(&self, key: &Key) -> Option<KnownKey> {
        self.read().key(key)
    }

    /// What stands for a caller's context toward the agent.
    pub fn context(&self, key: &ContextKey) -> Option<RemoteId> {
        self.read().context(key)
    }

    /// The first delegation that got this task id from this agent.
    pub fn remote_task(&self, agent: &AgentId, remote: &str) -> Option<TaskId> {
        self.read().remote_task(agent, remote)
    }

    /// The delegations that were started for this one, by their ids; at most so many.
    pub fn children(&self, parent: TaskId, limit: usize) -> Vec<Row> {
        self.read().children(parent, limit)
    }

    /// Who of a tenant has delegations, by name; at most so many.
    pub fn callers(&self, tenant: &str, limit: usize) -> Vec<Principal> {
        self.read().callers(tenant, limit)
    }

    /// A page of a principal's delegations, and how many there are over all pages.
    pub fn list(&self, query: &ListQuery) -> Page {
        self.read().list(query)
    }

    /// See [`crate::Store::prune`].
    pub fn prune(&self, now: Time, retention: Span, key_window: Span) -> Pruned {
        let ask = PruneAsk::of(now, retention, key_window);
        let mut all = Pruned::default();
        loop {
            let step = self.write().prune(&ask);
            all.tasks += step.tasks;
            all.keys += step.keys;
            if !step.more {
                return all;
            }
        }
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

//! What survives: the rows and bodies of one cell, behind one enum, written under a fence.
//!
//! The contract, the same for every kind of store:
//!
//! 1. **Order.** [`Store::commit`] hands over and returns. All commits that wait are written in one transaction (at most
//!    512 rows or 1 MiB), and answered in the order in which they came, each exactly once, on the store's thread.
//! 2. **Fences.** A commit under another fence than the latest lease's writes nothing ([`CommitError::Fenced`]).
//! 3. **Compare and set.** Version 1 of a row is an insert, version n follows n − 1, a terminal state stays. A commit that
//!    breaks this writes nothing ([`CommitError::Conflict`]). Because whatever its engine commits later stands on it,
//!    every later commit under the same fence fails too, until [`Store::relet`]. The same holds after a disk error.
//! 4. **Durable.** After `Ok`, neither `kill -9` nor a loss of power takes it away. (Memory: the process' life.)
//! 5. **One owner.** A cell's store is open once; a second one is told who has it ([`OpenError::InUse`]).
//! 6. **Reads** see every commit that was answered. They wait for the disk: not for an async thread, if it is slow.
//!
//! A driver, in numbered steps:
//!
//! 1. [`Store::open`] gives the lease; [`Store::load`] the rows that an engine is restored from.
//! 2. While [`Store::room`], hand over the engine's commits. The answer's number goes back to the engine.
//! 3. After an error, stop, take the answers that are still out (all have been given when `relet` returns), ask
//!    [`Store::relet`] for a new lease until there is one, and go on as after 1.
//!
//! Bodies over 64 KiB are written in pieces, in transactions of their own, ahead of the row that they belong to; what
//! a crash leaves of them is removed at the next opening. Deltas ([`Store::append`]) are best effort: after one that was
//! lost, the task's later ones are passed over until there is a whole record again, so that what is read always fits.
//! What a delegation is born with (ids, principal, agent, context, root, parent, depth, `created`) is written once.
#![warn(missing_docs)]

mod clock;
mod codes;
mod error;
mod follow;
mod memory;
mod queue;
mod sqlite;
mod words;
mod writer;

use std::path::Path;
use std::sync::Arc;

use watertight_engine::ids::{AgentId, ContextKey, Key, Owner, Principal, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::outbox;
use watertight_engine::record::{Notice, Row};
use watertight_policy::time::{Span, Time};

pub use error::{CommitError, OpenError, ReadError};
pub use memory::MemoryStore;
pub use sqlite::SqliteStore;
pub use words::{
    Body, Dialect, Hook, HookChange, Late, Lease, ListQuery, OverQuery, Page, Pruned, Record, Stats, Write,
};

use queue::Queue;
use words::Delta;
use writer::Writer;

/// One cell's store. A clone is the same store; the last one to go lets the thread finish.
#[derive(Clone)]
pub enum Store {
    /// On disk.
    Sqlite(Arc<SqliteStore>),
    /// In the process' memory.
    Memory(Arc<MemoryStore>),
}

impl Store {
    /// Opens the store of a cell in this directory, both made if they are not there, and takes its lease.
    pub fn open(directory: &Path, cell: u32) -> Result<(Store, Lease), OpenError> {
        let (store, lease) = SqliteStore::open(directory, cell)?;
        Ok((Store::Sqlite(Arc::new(store)), lease))
    }

    /// A new, empty store in memory.
    ///
    /// # Panics
    /// If the system gives out no thread.
    pub fn memory() -> (Store, Lease) {
        #[expect(clippy::expect_used, reason = "a process that cannot start a thread cannot start")]
        let (store, lease) = MemoryStore::new().expect("a thread for the store");
        (Store::Memory(Arc::new(store)), lease)
    }

    /// Hands over a commit. `done` is called on the store's thread with `n` and how it went; it must not wait.
    pub fn commit(
        &self,
        n: u64,
        fence: u64,
        writes: Vec<Write>,
        done: Box<dyn FnOnce(u64, Result<(), CommitError>) + Send>,
    ) {
        self.writer().queue.commit(n, fence, writes, done);
    }

    /// Hands over a piece of a task's record. `seq` orders the pieces since the last whole record; a second one with the
    /// same number replaces the first. It is written with the next transaction, and given up silently if that is not
    /// possible.
    pub fn append(&self, task: TaskId, fence: u64, seq: u64, events: Body) {
        self.writer().queue.append(fence, Delta { task, seq, body: events });
    }

    /// Commits whose answer is still out.
    pub fn backlog(&self) -> usize {
        self.queue().backlog()
    }

    /// Another commit may be handed over: the store is not behind. A driver that goes on without room is refused at last.
    pub fn room(&self) -> bool {
        self.queue().room()
    }

    /// Gives out a new lease, so that the engine can be loaded again. What was handed over before is written or refused
    /// first, and answered. Waits for the disk.
    pub fn relet(&self) -> Result<Lease, CommitError> {
        self.writer().relet()
    }

    /// Every delegation that is not terminal, or owes a cancel, by its id.
    pub fn load(&self) -> Result<Vec<Row>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.load(),
            Store::Memory(store) => Ok(store.memory.load()),
        }
    }

    /// One delegation.
    pub fn task(&self, task: TaskId) -> Result<Option<Row>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.task(task),
            Store::Memory(store) => Ok(store.memory.task(task)),
        }
    }

    /// The message of one of its turns.
    pub fn message(&self, task: TaskId, turn: u32) -> Result<Option<Body>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.message(task, turn),
            Store::Memory(store) => Ok(store.memory.message(task, turn)),
        }
    }

    /// Its record.
    pub fn record(&self, task: TaskId) -> Result<Option<Record>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.record(task),
            Store::Memory(store) => Ok(store.memory.record(task)),
        }
    }

    /// The records of several tasks, in their order; fewer, but at least one, when they are more than so many bytes.
    pub fn records(&self, tasks: &[TaskId], bytes: usize) -> Result<Vec<Option<Record>>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.records(tasks, bytes),
            Store::Memory(store) => Ok(store.memory.records(tasks, bytes)),
        }
    }

    /// An earlier use of a messageId.
    pub fn key(&self, key: &Key) -> Result<Option<KnownKey>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.key(key),
            Store::Memory(store) => Ok(store.memory.key(key)),
        }
    }

    /// This messageId was surely never stored, or its key is gone: there is no need to ask for it. Never waits for the
    /// disk, and may say `false` of a new one.
    pub fn is_new_key(&self, key: &Key) -> bool {
        match self {
            Store::Sqlite(sqlite) => sqlite.is_new_key(key),
            Store::Memory(store) => store.memory.key(key).is_none(),
        }
    }

    /// Likewise of what stands for a caller's context.
    pub fn is_new_context(&self, key: &ContextKey) -> bool {
        match self {
            Store::Sqlite(sqlite) => sqlite.is_new_context(key),
            Store::Memory(store) => store.memory.context(key).is_none(),
        }
    }

    /// Likewise of an agent's task id.
    pub fn is_new_remote(&self, agent: &AgentId, remote_task: &str) -> bool {
        match self {
            Store::Sqlite(sqlite) => sqlite.is_new_remote(agent, remote_task),
            Store::Memory(store) => store.memory.remote_task(agent, remote_task).is_none(),
        }
    }

    /// What stands for a caller's context toward the agent.
    pub fn context(&self, key: &ContextKey) -> Result<Option<RemoteId>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.context(key),
            Store::Memory(store) => Ok(store.memory.context(key)),
        }
    }

    /// The first delegation that got this task id from this agent.
    pub fn remote_task(&self, agent: &AgentId, remote_task: &str) -> Result<Option<TaskId>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.remote_task(agent, remote_task),
            Store::Memory(store) => Ok(store.memory.remote_task(agent, remote_task)),
        }
    }

    /// The delegations that were started for this one, by their ids; at most so many.
    pub fn children(&self, parent: TaskId, limit: usize) -> Result<Vec<Row>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.children(parent, limit),
            Store::Memory(store) => Ok(store.memory.children(parent, limit)),
        }
    }

    /// Every outbox that anything was ever put into.
    pub fn outboxes(&self) -> Result<Vec<outbox::Stored>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.outboxes(),
            Store::Memory(store) => Ok(store.memory.outboxes()),
        }
    }

    /// What waits in an outbox behind this number, in order; at most so many.
    pub fn notices(&self, owner: &Owner, after: u64, limit: usize) -> Result<Vec<Notice>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.notices(owner, after, limit),
            Store::Memory(store) => Ok(store.memory.notices(owner, after, limit)),
        }
    }

    /// Who of a tenant has delegations, by name; at most so many.
    pub fn callers(&self, tenant: &str, limit: usize) -> Result<Vec<Principal>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.callers(tenant, limit),
            Store::Memory(store) => Ok(store.memory.callers(tenant, limit)),
        }
    }

    /// A page of a principal's delegations, and how many there are over all pages.
    pub fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.list(query),
            Store::Memory(store) => Ok(store.memory.list(query)),
        }
    }

    /// What is over, in the order in which it ended.
    pub fn over(&self, query: &OverQuery) -> Result<Vec<Row>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.over(query),
            Store::Memory(store) => Ok(store.memory.over(query)),
        }
    }

    /// Removes the delegations that ended `retention` ago or earlier and owe nothing, with all that belongs to them, and
    /// the keys of those that ended `key_window` ago. Goes in small steps, between which commits are written. Waits.
    pub fn prune(&self, now: Time, retention: Span, key_window: Span) -> Result<Pruned, CommitError> {
        self.writer().prune(now, retention, key_window)
    }

    /// All hooks of all tasks.
    pub fn hooks(&self) -> Result<Vec<Hook>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.hooks(),
            Store::Memory(store) => Ok(store.memory.hooks()),
        }
    }

    /// Changes a task's hooks. Waits for the disk.
    pub fn change_hook(&self, change: HookChange) -> Result<(), CommitError> {
        self.writer().hook(change)
    }

    /// What the agent said of this task after the verdict on it.
    pub fn late(&self, task: TaskId) -> Result<Option<Late>, ReadError> {
        match self {
            Store::Sqlite(sqlite) => sqlite.late(task),
            Store::Memory(store) => Ok(store.memory.late(task)),
        }
    }

    /// Keeps that, where nothing is kept of it yet. Waits for the disk.
    pub fn keep_late(&self, late: Late) -> Result<(), CommitError> {
        self.writer().late(late)
    }

    /// What was written so far.
    pub fn stats(&self) -> Stats {
        self.queue().counts.stats()
    }

    /// Writes what was handed over, and ends. Other clones can no longer write. Waits for the disk.
    pub fn close(self) {
        match &self {
            Store::Sqlite(sqlite) => sqlite.close(),
            Store::Memory(memory) => memory.writer.close(),
        }
    }

    /// For tests and drills: `good` more transactions succeed, the next `bad` fail like a broken disk, then it is well.
    pub fn fail_after(&self, good: u64, bad: u64) {
        self.queue().fail_after(good, bad);
    }

    /// For tests and drills: nothing is written any more, and nothing fails, until it is taken back.
    pub fn hang(&self, hangs: bool) {
        self.queue().hang(hangs);
    }

    /// For tests: nothing is put off any longer.
    #[cfg(test)]
    fn settle(&self) {
        self.settle_some(None);
    }

    /// For tests: so many tasks go to the tables. Whether they could be written.
    #[cfg(test)]
    fn settle_some(&self, count: Option<usize>) -> bool {
        let (sender, done) = std::sync::mpsc::sync_channel(1);
        self.queue().ask(queue::Item::Settle(count, sender));
        done.recv().unwrap()
    }

    #[cfg(test)]
    fn limit_pages(&self, pages: u32) {
        self.queue().ask(queue::Item::Limit(pages));
    }

    fn queue(&self) -> &Queue {
        &self.writer().queue
    }

    fn writer(&self) -> &Writer {
        match self {
            Store::Sqlite(sqlite) => &sqlite.writer,
            Store::Memory(memory) => &memory.writer,
        }
    }
}

#[cfg(test)]
mod tests;

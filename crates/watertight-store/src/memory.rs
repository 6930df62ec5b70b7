//! A store that ends with the process: for trying things out, for tests, and for agents that want no durability.
//!
//! It goes through the same thread as the one on disk, so fences, order and refusals are the same. What a transaction
//! writes is gathered first and put in place when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use watertight_engine::ids::{AgentId, ContextKey, Fingerprint, Key, Principal, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::record::{Row, Save, TaskState};
use watertight_policy::time::Time;

use crate::error::CommitError;
use crate::queue::{Job, PruneAsk, PruneStep};
use crate::words::{Body, Delta, Lease, ListQuery, Page, Write};
use crate::writer::{Disk, Writer};
use crate::{clock, is_live};

/// One pruning step takes at most this many tasks, and as many owners of keys.
const PRUNE_TASKS: usize = 256;

/// The way to a store in memory.
pub struct MemoryStore {
    pub(crate) writer: Writer,
    shelf: Arc<RwLock<Shelf>>,
}

impl MemoryStore {
    pub(crate) fn new() -> std::io::Result<(MemoryStore, Lease)> {
        let shelf = Arc::new(RwLock::new(Shelf { fence: 1, ..Shelf::default() }));
        let disk = Hand { shelf: shelf.clone(), staged: Staged::default() };
        let writer = Writer::start("store-memory".into(), disk, 1)?;
        Ok((MemoryStore { writer, shelf }, Lease { fence: 1, now: clock::now() }))
    }

    pub(crate) fn load(&self) -> Vec<Row> {
        self.shelf().rows.values().filter(|row| is_live(row)).cloned().collect()
    }

    pub(crate) fn task(&self, task: TaskId) -> Option<Row> {
        self.shelf().rows.get(&task).cloned()
    }

    pub(crate) fn message(&self, task: TaskId, turn: u32) -> Option<Body> {
        self.shelf().bodies.get(&task)?.messages.get(&turn).cloned()
    }

    pub(crate) fn record(&self, task: TaskId) -> Option<(Body, Vec<Body>)> {
        let shelf = self.shelf();
        let bodies = shelf.bodies.get(&task)?;
        Some((bodies.record.clone()?, bodies.deltas.values().cloned().collect()))
    }

    pub(crate) fn key(&self, key: &Key) -> Option<KnownKey> {
        let shelf = self.shelf();
        let &(fingerprint, task, turn) = shelf.keys.get(key)?;
        let never_sent = shelf.rows.get(&task).is_some_and(|row| row.never_sent(turn));
        Some(KnownKey { task, fingerprint, never_sent })
    }

    pub(crate) fn context(&self, key: &ContextKey) -> Option<RemoteId> {
        self.shelf().contexts.get(key).cloned()
    }

    pub(crate) fn remote_task(&self, agent: &AgentId, remote: &str) -> Option<TaskId> {
        self.shelf().remotes.get(&(agent.clone(), remote.into()))?.first().copied()
    }

    pub(crate) fn list(&self, query: &ListQuery) -> Page {
        let shelf = self.shelf();
        let mask = query.mask();
        let after = query.after.unwrap_or((Time::FAR, TaskId(u128::MAX)));
        let first = (query.principal.clone(), Time::ZERO, TaskId(0));
        let last = (query.principal.clone(), Time::FAR, TaskId(u128::MAX));
        let matching = |row: &&Row| {
            query.agent.as_ref().is_none_or(|agent| row.agent == *agent)
                && query.context.as_ref().is_none_or(|context| *row.context == **context)
                && query.changed_after.is_none_or(|time| row.changed >= time)
                && mask >> crate::codes::state(row.state) & 1 == 1
        };
        let mut page = Page::default();
        let newest_first = shelf.changed.range(first..=last).rev().filter_map(|(_, _, task)| shelf.rows.get(task));
        for row in newest_first.filter(matching) {
            page.total += 1;
            if page.rows.len() < query.limit && (query.after.is_none() || (row.changed, row.task) < after) {
                page.rows.push(row.clone());
            }
        }
        page
    }

    fn shelf(&self) -> RwLockReadGuard<'_, Shelf> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is stored.
#[derive(Default)]
struct Shelf {
    fence: u64,
    rows: BTreeMap<TaskId, Row>,
    bodies: BTreeMap<TaskId, Bodies>,
    keys: BTreeMap<Key, (Fingerprint, TaskId, u32)>,
    keys_of: BTreeMap<TaskId, BTreeSet<Key>>,
    contexts: BTreeMap<ContextKey, RemoteId>,
    /// Tasks by context, so that a context goes with its last task.
    members: BTreeMap<ContextKey, BTreeSet<TaskId>>,
    remotes: BTreeMap<(AgentId, RemoteId), BTreeSet<TaskId>>,
    changed: BTreeSet<(Principal, Time, TaskId)>,
    /// What is terminal and owes nothing, by its end.
    ended: BTreeSet<(Time, TaskId)>,
    /// The last one whose keys were looked at.
    keys_pruned: Option<(Time, TaskId)>,
}

#[derive(Default)]
struct Bodies {
    messages: BTreeMap<u32, Body>,
    record: Option<Body>,
    deltas: BTreeMap<u64, Body>,
}

impl Shelf {
    fn put(&mut self, write: Write) {
        match write.save {
            Save::Delegation { row, .. } => {
                let bodies = self.bodies.entry(row.task).or_default();
                if let Some(message) = write.message {
                    bodies.messages.insert(row.turn.no, message);
                }
                if let Some(record) = write.record {
                    bodies.record = Some(record);
                    bodies.deltas.clear();
                }
                self.put_row(*row);
            }
            Save::Key { key, fingerprint, task, turn } => {
                if let Some((_, before, _)) = self.keys.insert(key.clone(), (fingerprint, task, turn)) {
                    self.keys_of.entry(before).or_default().remove(&key);
                }
                self.keys_of.entry(task).or_default().insert(key);
            }
            Save::Context { key, remote } => {
                self.contexts.insert(key, remote);
            }
        }
    }

    fn put_row(&mut self, row: Row) {
        self.unlink(row.task);
        self.changed.insert((row.principal.clone(), row.changed, row.task));
        self.members.entry(context_of(&row)).or_default().insert(row.task);
        if let Some(remote) = &row.remote_task {
            self.remotes.entry((row.agent.clone(), remote.clone())).or_default().insert(row.task);
        }
        if !is_live(&row) {
            self.ended.insert((row.changed, row.task));
        }
        self.rows.insert(row.task, row);
    }

    /// Takes a row out of everything it can be found by.
    fn unlink(&mut self, task: TaskId) -> Option<Row> {
        let row = self.rows.remove(&task)?;
        self.changed.remove(&(row.principal.clone(), row.changed, task));
        self.ended.remove(&(row.changed, task));
        remove_from(&mut self.members, context_of(&row), task);
        if let Some(remote) = &row.remote_task {
            remove_from(&mut self.remotes, (row.agent.clone(), remote.clone()), task);
        }
        Some(row)
    }

    fn drop_keys(&mut self, task: TaskId) -> u64 {
        let keys = self.keys_of.remove(&task).unwrap_or_default();
        keys.iter().filter(|key| self.keys.remove(key).is_some()).count() as u64
    }

    fn drop_task(&mut self, task: TaskId) {
        self.drop_keys(task);
        self.bodies.remove(&task);
        if let Some(row) = self.unlink(task) {
            let context = context_of(&row);
            if !self.members.contains_key(&context) {
                self.contexts.remove(&context);
            }
        }
    }
}

fn context_of(row: &Row) -> ContextKey {
    ContextKey { principal: row.principal.clone(), agent: row.agent.clone(), context: row.context.clone() }
}

fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<TaskId>>, key: K, task: TaskId) {
    if let Some(tasks) = map.get_mut(&key) {
        tasks.remove(&task);
        if tasks.is_empty() {
            map.remove(&key);
        }
    }
}

/// The thread's side.
struct Hand {
    shelf: Arc<RwLock<Shelf>>,
    staged: Staged,
}

/// A transaction that is not over.
#[derive(Default)]
struct Staged {
    steps: Vec<Step>,
    rows: BTreeMap<TaskId, (u64, TaskState)>,
}

enum Step {
    Write(Box<Write>),
    Delta(Delta),
}

impl Hand {
    fn shelf(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.shelf.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Version and state of a row as the transaction sees it.
    fn stored(&self, fresh: &BTreeMap<TaskId, (u64, TaskState)>, task: TaskId) -> Option<(u64, TaskState)> {
        let on_shelf = || self.shelf().rows.get(&task).map(|row| (row.version, row.state));
        fresh.get(&task).or_else(|| self.staged.rows.get(&task)).copied().or_else(on_shelf)
    }
}

impl Disk for Hand {
    type Laid = ();

    fn lay(&mut self, _job: &Job) -> Result<((), u64), CommitError> {
        Ok(((), 0))
    }

    fn begin(&mut self) -> Result<u64, CommitError> {
        Ok(self.shelf().fence)
    }

    fn apply(&mut self, writes: &[Write], _laid: &()) -> Result<(), CommitError> {
        let mut fresh = BTreeMap::new();
        for write in writes {
            if let Save::Delegation { row, message, .. } = &write.save {
                crate::may_follow(row, self.stored(&fresh, row.task))?;
                if *message && write.message.is_none() {
                    return Err(CommitError::Incomplete { task: row.task });
                }
                fresh.insert(row.task, (row.version, row.state));
            }
        }
        self.staged.rows.extend(fresh);
        self.staged.steps.extend(writes.iter().map(|write| Step::Write(Box::new(write.clone()))));
        Ok(())
    }

    fn delta(&mut self, delta: &Delta, _laid: &()) -> Result<(), CommitError> {
        self.staged.steps.push(Step::Delta(delta.clone()));
        Ok(())
    }

    fn end(&mut self) -> Result<(), CommitError> {
        let staged = std::mem::take(&mut self.staged);
        let mut shelf = self.shelf();
        for step in staged.steps {
            match step {
                Step::Write(write) => shelf.put(*write),
                Step::Delta(delta) => {
                    if shelf.rows.contains_key(&delta.task) {
                        shelf.bodies.entry(delta.task).or_default().deltas.insert(delta.seq, delta.body);
                    }
                }
            }
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.staged = Staged::default();
    }

    fn lease(&mut self) -> Result<Lease, CommitError> {
        let mut shelf = self.shelf();
        shelf.fence += 1;
        let saved = shelf.rows.values().map(|row| row.changed.max(row.created)).max();
        Ok(Lease { fence: shelf.fence, now: clock::now().max(saved.unwrap_or_default()) })
    }

    fn prune(&mut self, ask: &PruneAsk) -> Result<PruneStep, CommitError> {
        let mut shelf = self.shelf();
        let mut step = PruneStep::default();
        if let Some(before) = ask.keys_before {
            let from = shelf.keys_pruned.map_or(Bound::Unbounded, Bound::Excluded);
            let due = shelf.ended.range((from, Bound::Unbounded)).take_while(|it| it.0 <= before);
            let due: Vec<_> = due.take(PRUNE_TASKS).copied().collect();
            step.more |= due.len() == PRUNE_TASKS;
            for (time, task) in due {
                step.keys += shelf.drop_keys(task);
                shelf.keys_pruned = Some((time, task));
            }
        }
        if let Some(before) = ask.tasks_before {
            let due: Vec<_> = shelf.ended.iter().take_while(|it| it.0 <= before).take(PRUNE_TASKS).copied().collect();
            step.more |= due.len() == PRUNE_TASKS;
            step.tasks += due.len() as u64;
            for (_, task) in due {
                shelf.drop_task(task);
            }
        }
        Ok(step)
    }
}

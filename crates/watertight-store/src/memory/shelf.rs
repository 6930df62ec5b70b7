//! What is stored in memory, and everything that it is found by. All of it changes together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use watertight_engine::ids::{AgentId, ContextKey, Fingerprint, Key, Owner, Principal, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::outbox;
use watertight_engine::record::{Notice, Row, Save, TaskState};
use watertight_policy::time::Time;

use crate::queue::{PruneAsk, PruneStep};
use crate::words::{Body, Hook, HookChange, Late, Record, Write};

/// One pruning step takes at most this many tasks, and as many owners of keys.
const PRUNE_TASKS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Shelf {
    tasks: BTreeMap<TaskId, Kept>,
    keys: BTreeMap<Key, (Fingerprint, TaskId, u32)>,
    contexts: BTreeMap<ContextKey, RemoteId>,
    /// Tasks by context: they are listed by it, and it goes with its last one.
    pub(super) members: BTreeMap<ContextKey, BTreeSet<TaskId>>,
    remotes: BTreeMap<(AgentId, RemoteId), BTreeSet<TaskId>>,
    parents: BTreeSet<(TaskId, TaskId)>,
    /// Tasks by state and change, for each pair of a principal and an agent.
    pub(super) pairs: BTreeMap<(Principal, AgentId), States>,
    outboxes: BTreeMap<Owner, Outbox>,
    pub(super) hooks: BTreeMap<(TaskId, String), Hook>,
    pub(super) late: BTreeMap<TaskId, Late>,
    /// What is terminal and owes nothing, by its end.
    ended: BTreeSet<(Time, TaskId)>,
    /// The last one whose keys were looked at.
    keys_pruned: Option<(Time, TaskId)>,
}

/// Tasks in each state, by when they came into it.
type States = [BTreeSet<(Time, TaskId)>; TaskState::ALL.len()];

#[derive(Debug, Default)]
struct Outbox {
    last: u64,
    lost: u64,
    notices: BTreeMap<u64, Arc<Notice>>,
}

#[derive(Debug)]
struct Kept {
    row: Row,
    keys: BTreeSet<Key>,
    messages: BTreeMap<u32, Body>,
    record: Option<Body>,
    deltas: BTreeMap<u64, Body>,
}

impl Shelf {
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tasks.values().map(|kept| &kept.row)
    }

    pub(super) fn row(&self, task: TaskId) -> Option<&Row> {
        self.tasks.get(&task).map(|kept| &kept.row)
    }

    pub(super) fn message(&self, task: TaskId, turn: u32) -> Option<&Body> {
        self.tasks.get(&task)?.messages.get(&turn)
    }

    pub(super) fn record(&self, task: TaskId) -> Option<Record> {
        let kept = self.tasks.get(&task)?;
        Record { whole: kept.record.clone(), deltas: kept.deltas.values().cloned().collect() }.some()
    }

    pub(super) fn key(&self, key: &Key) -> Option<KnownKey> {
        let &(fingerprint, task, turn) = self.keys.get(key)?;
        let never_sent = self.row(task).is_some_and(|row| row.never_sent(turn));
        Some(KnownKey { task, fingerprint, never_sent })
    }

    pub(super) fn context(&self, key: &ContextKey) -> Option<RemoteId> {
        self.contexts.get(key).cloned()
    }

    pub(super) fn remote_task(&self, agent: &AgentId, remote: &str) -> Option<TaskId> {
        self.remotes.get(&(agent.clone(), remote.into()))?.first().copied()
    }

    pub(super) fn children(&self, parent: TaskId, limit: usize) -> Vec<Row> {
        let children = self.parents.range((parent, TaskId(0))..=(parent, TaskId(u128::MAX)));
        children.filter_map(|(_, child)| self.row(*child)).take(limit).cloned().collect()
    }

    pub(super) fn keep_late(&mut self, late: Late) {
        self.late.entry(late.task).or_insert(late);
    }

    pub(super) fn change_hook(&mut self, change: HookChange) {
        match change {
            HookChange::Put(hook) => drop(self.hooks.insert((hook.task, hook.id.clone()), hook)),
            HookChange::Drop(task, id) => drop(self.hooks.remove(&(task, id))),
        }
    }

    pub(super) fn outboxes(&self) -> Vec<outbox::Stored> {
        let stored = |(owner, outbox): (&Owner, &Outbox)| outbox::Stored {
            owner: owner.clone(),
            last: outbox.last,
            lost: outbox.lost,
            waiting: outbox.notices.iter().map(|(seq, notice)| (*seq, notice.at)).collect(),
        };
        self.outboxes.iter().map(stored).collect()
    }

    pub(super) fn notices(&self, owner: &Owner, after: u64, limit: usize) -> Vec<Notice> {
        let Some(outbox) = self.outboxes.get(owner) else { return Vec::new() };
        let behind = outbox.notices.range(after.saturating_add(1)..);
        behind.take(limit).map(|(_, notice)| (**notice).clone()).collect()
    }

    /// The latest time of any row.
    pub(super) fn latest(&self) -> Time {
        self.rows().map(|row| row.changed.max(row.created)).max().unwrap_or_default()
    }

    pub(super) fn put(&mut self, write: Write) {
        match write.save {
            Save::Delegation { row, .. } => {
                let task = row.task;
                self.put_row(Arc::unwrap_or_clone(row));
                self.put_bodies(task, write.message, write.record);
            }
            Save::Key { key, fingerprint, task, turn } => {
                if let Some((_, before, _)) = self.keys.insert(key.clone(), (fingerprint, task, turn))
                    && let Some(kept) = self.tasks.get_mut(&before)
                {
                    kept.keys.remove(&key);
                }
                match self.tasks.get_mut(&task) {
                    Some(kept) => drop(kept.keys.insert(key)),
                    // A key without its task would never go.
                    None => drop(self.keys.remove(&key)),
                }
            }
            Save::Context { key, remote } => {
                self.contexts.insert(key, remote);
            }
            Save::Notice(notice) => {
                let outbox = self.outboxes.entry(notice.owner.clone()).or_default();
                outbox.last = outbox.last.max(notice.seq);
                outbox.notices.insert(notice.seq, notice);
            }
            Save::Taken { owner, first, last, lost } => {
                let outbox = self.outboxes.entry(owner).or_default();
                outbox.lost = outbox.lost.max(lost);
                outbox.notices.retain(|seq, _| *seq < first || *seq > last);
            }
        }
    }

    pub(super) fn append(&mut self, task: TaskId, seq: u64, events: Body) {
        if let Some(kept) = self.tasks.get_mut(&task) {
            kept.deltas.insert(seq, events);
        }
    }

    /// One bounded step.
    pub(super) fn prune(&mut self, ask: &PruneAsk) -> PruneStep {
        let mut step = PruneStep::default();
        if let Some(before) = ask.keys_before {
            let from = self.keys_pruned.map_or(Bound::Unbounded, Bound::Excluded);
            let due = self.ended.range((from, Bound::Unbounded)).take_while(|it| it.0 <= before);
            let due: Vec<_> = due.take(PRUNE_TASKS).copied().collect();
            step.more |= due.len() == PRUNE_TASKS;
            for (time, task) in due {
                step.keys += self.drop_keys(task);
                self.keys_pruned = Some((time, task));
            }
        }
        if let Some(before) = ask.tasks_before {
            let due: Vec<_> = self.ended.iter().take_while(|it| it.0 <= before).take(PRUNE_TASKS).copied().collect();
            step.more |= due.len() == PRUNE_TASKS;
            step.tasks += due.len() as u64;
            for (_, task) in due {
                self.drop_task(task);
            }
        }
        step
    }

    fn put_row(&mut self, row: Row) {
        self.unlink(row.task);
        self.link(&row);
        match self.tasks.get_mut(&row.task) {
            Some(kept) => kept.row = row,
            None => {
                let (messages, deltas) = (BTreeMap::new(), BTreeMap::new());
                let kept = Kept { keys: BTreeSet::new(), messages, record: None, deltas, row };
                self.tasks.insert(kept.row.task, kept);
            }
        }
    }

    fn put_bodies(&mut self, task: TaskId, message: Option<Body>, record: Option<Body>) {
        let Some(kept) = self.tasks.get_mut(&task) else { return };
        if let Some(message) = message {
            kept.messages.insert(kept.row.turn.no, message);
        }
        if let Some(record) = record {
            kept.record = Some(record);
            kept.deltas.clear();
        }
    }

    /// Puts a row into everything that it is found by.
    fn link(&mut self, row: &Row) {
        let (pair, at) = ((row.principal.clone(), row.agent.clone()), (row.changed, row.task));
        self.pairs.entry(pair).or_default()[row.state as usize].insert(at);
        self.members.entry(context_of(row)).or_default().insert(row.task);
        if let Some(remote) = &row.remote_task {
            self.remotes.entry((row.agent.clone(), remote.clone())).or_default().insert(row.task);
        }
        if let Some(parent) = row.parent {
            self.parents.insert((parent, row.task));
        }
        if !row.is_live() {
            self.ended.insert(at);
        }
    }

    fn unlink(&mut self, task: TaskId) {
        let Some(Kept { row, .. }) = self.tasks.get(&task) else { return };
        let (pair, at) = ((row.principal.clone(), row.agent.clone()), (row.changed, row.task));
        if let Some(states) = self.pairs.get_mut(&pair) {
            states[row.state as usize].remove(&at);
            if states.iter().all(BTreeSet::is_empty) {
                self.pairs.remove(&pair);
            }
        }
        remove_from(&mut self.members, context_of(row), task);
        if let Some(remote) = &row.remote_task {
            remove_from(&mut self.remotes, (row.agent.clone(), remote.clone()), task);
        }
        if let Some(parent) = row.parent {
            self.parents.remove(&(parent, task));
        }
        self.ended.remove(&at);
    }

    fn drop_keys(&mut self, task: TaskId) -> u64 {
        let Some(kept) = self.tasks.get_mut(&task) else { return 0 };
        let keys = std::mem::take(&mut kept.keys);
        keys.iter().filter(|key| self.keys.remove(key).is_some()).count() as u64
    }

    fn drop_task(&mut self, task: TaskId) {
        self.drop_keys(task);
        self.hooks.retain(|(of, _), _| *of != task);
        self.late.remove(&task);
        self.unlink(task);
        let Some(Kept { row, .. }) = self.tasks.remove(&task) else { return };
        let context = context_of(&row);
        if !self.members.contains_key(&context) {
            self.contexts.remove(&context);
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

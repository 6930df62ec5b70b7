//! A store in memory that enforces what the real ones do: versions, terminal once. What it has not acknowledged may or
//! may not be there after a crash.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use watertight_engine::ids::{ContextKey, Key, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::output::Commit;
use watertight_engine::record::{Cancel, Durability, Row, Save};
use watertight_policy::rng::Rng;
use watertight_policy::time::Time;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) rows: BTreeMap<TaskId, Row>,
    keys: BTreeMap<Key, (TaskId, u32, u128)>,
    /// Keys that are in the process' memory alone.
    keys_in_memory: BTreeSet<Key>,
    contexts: BTreeMap<ContextKey, RemoteId>,
    pending: VecDeque<(Time, Commit)>,
    /// Commits made durable over all lives of the engine.
    pub(crate) commits: u64,
    /// What the store would have refused.
    pub(crate) broken: Vec<String>,
}

impl Disk {
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < 4
    }

    pub(crate) fn write(&mut self, at: Time, commit: Commit) {
        self.pending.push_back((at, commit));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.pending.front().map(|(at, _)| *at)
    }

    /// Makes the next commit durable if it is due, and gives its number.
    pub(crate) fn done(&mut self, now: Time) -> Option<u64> {
        let due = self.pending.front().is_some_and(|(at, _)| *at <= now);
        let (_, commit) = due.then(|| self.pending.pop_front()).flatten()?;
        self.apply(&commit);
        Some(commit.n)
    }

    /// Kept in the process' memory: there at once, and gone with it.
    pub(crate) fn keep(&mut self, save: &Save) {
        self.put(save, Durability::Memory);
        if let Save::Key { key, .. } = save {
            self.keys_in_memory.insert(key.clone());
        }
    }

    /// The process dies: of what waits, a prefix made it, which nobody will be told of. What was kept in memory is gone.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        self.rows.retain(|_, row| row.durability == Durability::Durable);
        for key in std::mem::take(&mut self.keys_in_memory) {
            self.keys.remove(&key);
        }
        let kept = rng.below(self.pending.len() as u64 + 1);
        for (_, commit) in std::mem::take(&mut self.pending).into_iter().take(kept as usize) {
            self.apply(&commit);
        }
    }

    /// Everything that waits is written; the numbers of those commits.
    pub(crate) fn flush(&mut self) -> Vec<u64> {
        let pending = std::mem::take(&mut self.pending);
        for (_, commit) in &pending {
            self.apply(commit);
        }
        pending.into_iter().map(|(_, commit)| commit.n).collect()
    }

    pub(crate) fn live(&self) -> Vec<Row> {
        let live = |row: &&Row| !row.state.is_terminal() || row.cancel == Cancel::Owed;
        self.rows.values().filter(live).cloned().collect()
    }

    pub(crate) fn key(&self, key: &Key) -> Option<KnownKey> {
        let (task, turn, fingerprint) = self.keys.get(key).copied()?;
        let never_sent = self.rows.get(&task).is_some_and(|row| row.never_sent(turn));
        Some(KnownKey { task, fingerprint, never_sent })
    }

    pub(crate) fn context(&self, key: &ContextKey) -> Option<RemoteId> {
        self.contexts.get(key).cloned()
    }

    fn apply(&mut self, commit: &Commit) {
        self.commits += 1;
        for save in &commit.saves {
            self.put(save, Durability::Durable);
        }
    }

    fn put(&mut self, save: &Save, durability: Durability) {
        match save {
            Save::Delegation { row, .. } => {
                let before = self.rows.get(&row.task);
                let version = before.map_or(0, |row| row.version);
                if version + 1 != row.version {
                    self.broken.push(format!("{}: version {} after {version}", row.task, row.version));
                }
                if row.durability != durability {
                    self.broken.push(format!("{}: {} is kept elsewhere", row.task, row.durability.as_str()));
                }
                let over = before.filter(|before| before.state.is_terminal() && before.state != row.state);
                if let Some(before) = over {
                    let (was, is) = (before.state.as_str(), row.state.as_str());
                    self.broken.push(format!("{}: {is} over {was}", row.task));
                }
                self.rows.insert(row.task, (**row).clone());
            }
            Save::Key { key, fingerprint, task, turn } => {
                self.keys.insert(key.clone(), (*task, *turn, *fingerprint));
            }
            Save::Context { key, remote } => {
                self.contexts.insert(key.clone(), remote.clone());
            }
        }
    }
}

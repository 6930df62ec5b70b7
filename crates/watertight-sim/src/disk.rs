//! A store in memory that enforces what the real ones do: versions, terminal once. What it has not acknowledged may or
//! may not be there after a crash, and when it fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use watertight_engine::ids::{ContextKey, Key, Owner, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::outbox::Stored;
use watertight_engine::output::Commit;
use watertight_engine::record::{Durability, Notice, Row, Save};
use watertight_policy::rng::Rng;
use watertight_policy::time::Time;

/// What waits longer than this many commits finds no room.
const ROOM: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) rows: BTreeMap<TaskId, Row>,
    /// Those that a restored engine gets.
    live: BTreeSet<TaskId>,
    keys: BTreeMap<Key, (TaskId, u32, u128)>,
    /// Keys that are in the process' memory alone.
    keys_in_memory: BTreeSet<Key>,
    contexts: BTreeMap<ContextKey, RemoteId>,
    outboxes: BTreeMap<Owner, Stored>,
    /// Notices of a delegation's end.
    pub(crate) ends: BTreeMap<TaskId, u32>,
    pending: VecDeque<(Time, Commit)>,
    /// Commits made durable over all lives of the engine.
    pub(crate) commits: u64,
    /// What the store would have refused.
    pub(crate) broken: Vec<(TaskId, String)>,
}

impl Disk {
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < ROOM
    }

    pub(crate) fn write(&mut self, at: Time, commit: Commit) {
        let after = self.pending.back().map_or(at, |(before, _)| at.max(*before));
        self.pending.push_back((after, commit));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.pending.front().map(|(at, _)| *at)
    }

    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    /// Makes the next commit durable, and gives its number.
    pub(crate) fn done(&mut self) -> Option<u64> {
        let (_, commit) = self.pending.pop_front()?;
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
        let volatile: Vec<TaskId> =
            self.rows.values().filter(|row| row.durability == Durability::Memory).map(|row| row.task).collect();
        for task in volatile {
            self.rows.remove(&task);
            self.live.remove(&task);
        }
        for key in std::mem::take(&mut self.keys_in_memory) {
            self.keys.remove(&key);
        }
        self.fail(rng);
    }

    /// It says that it cannot write: of what waits, a prefix is written all the same.
    pub(crate) fn fail(&mut self, rng: &mut Rng) {
        let kept = rng.below(self.pending.len() as u64 + 1);
        for (_, commit) in std::mem::take(&mut self.pending).into_iter().take(kept as usize) {
            self.apply(&commit);
        }
    }

    /// The process dies before anything else is written.
    pub(crate) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// Everything that waits is written.
    pub(crate) fn flush(&mut self) {
        for (_, commit) in std::mem::take(&mut self.pending) {
            self.apply(&commit);
        }
    }

    pub(crate) fn live(&self) -> Vec<Row> {
        self.live.iter().filter_map(|task| self.rows.get(task)).cloned().collect()
    }

    pub(crate) fn outboxes(&self) -> Vec<Stored> {
        self.outboxes.values().cloned().collect()
    }

    pub(crate) fn is_live(&self, task: TaskId) -> bool {
        self.live.contains(&task)
    }

    pub(crate) fn key(&self, key: &Key) -> Option<KnownKey> {
        let (task, turn, fingerprint) = self.keys.get(key).copied()?;
        let never_sent = self.rows.get(&task).is_some_and(|row| row.never_sent(turn));
        Some(KnownKey { task, fingerprint, never_sent })
    }

    pub(crate) fn context(&self, key: &ContextKey) -> Option<RemoteId> {
        self.contexts.get(key).cloned()
    }

    /// Retention: the row and its keys are too old to be looked for.
    pub(crate) fn prune(&mut self, task: TaskId, keys: &[Key]) -> Option<Row> {
        for key in keys {
            if self.keys.get(key).is_some_and(|(of, _, _)| *of == task) {
                self.keys.remove(key);
                self.keys_in_memory.remove(key);
            }
        }
        self.live.remove(&task);
        self.ends.remove(&task);
        self.rows.remove(&task)
    }

    fn apply(&mut self, commit: &Commit) {
        self.commits += 1;
        for save in &commit.saves {
            self.put(save, Durability::Durable);
        }
    }

    fn notice(&mut self, notice: &Notice) {
        let owner = notice.owner.clone();
        let empty = || Stored { owner: owner.clone(), last: 0, lost: 0, waiting: Vec::new() };
        let outbox = self.outboxes.entry(owner.clone()).or_insert_with(empty);
        let mut broken = |what: String| self.broken.push((notice.task, what));
        if notice.seq != outbox.last + 1 {
            broken(format!("notice {} follows {}", notice.seq, outbox.last));
        }
        match self.rows.get(&notice.task) {
            Some(row) if row.durability == Durability::Durable && row.state != notice.state => {
                broken(format!("notice of {} goes with {}", notice.state.as_str(), row.state.as_str()));
            }
            Some(_) | None => {}
        }
        outbox.last = notice.seq;
        outbox.waiting.push((notice.seq, notice.at));
        if notice.state.is_terminal() {
            *self.ends.entry(notice.task).or_default() += 1;
        }
    }

    fn put(&mut self, save: &Save, durability: Durability) {
        match save {
            Save::Delegation { row, .. } => {
                let before = self.rows.get(&row.task);
                let version = before.map_or(0, |row| row.version);
                let mut broken = |what: String| self.broken.push((row.task, what));
                if version + 1 != row.version {
                    broken(format!("version {} after {version}", row.version));
                }
                if row.durability != durability {
                    broken(format!("{} is kept elsewhere", row.durability.as_str()));
                }
                let over = before.filter(|before| before.state.is_terminal() && before.state != row.state);
                if let Some(before) = over {
                    broken(format!("{} is written over {}", row.state.as_str(), before.state.as_str()));
                }
                if row.is_live() {
                    self.live.insert(row.task);
                } else {
                    self.live.remove(&row.task);
                }
                self.rows.insert(row.task, (**row).clone());
            }
            Save::Key { key, fingerprint, task, turn } => {
                self.keys.insert(key.clone(), (*task, *turn, *fingerprint));
            }
            Save::Context { key, remote } => {
                self.contexts.insert(key.clone(), remote.clone());
            }
            Save::Notice(notice) => self.notice(notice),
            Save::Taken { owner, first, last, lost } => {
                let Some(outbox) = self.outboxes.get_mut(owner) else { return };
                outbox.lost = *lost;
                outbox.waiting.retain(|(seq, _)| seq < first || seq > last);
            }
        }
    }
}

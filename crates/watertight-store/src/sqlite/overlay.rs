//! What is durable in the log and not in the tables yet: the newest state of each task, by everything that it is
//! asked for. Readers look here first.
//!
//! Only the store's thread changes it, and only after its transaction: so what is seen here is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_engine::ids::{ContextKey, Fingerprint, Key, RemoteId, TaskId};
use watertight_engine::record::{Row, TaskState};

use super::disk::Run;
use super::log::{Entry, Text};

/// What a task costs in memory beside its bodies, about.
const TASK_BYTES: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Overlay {
    tasks: BTreeMap<TaskId, Fresh>,
    /// Tasks by the row of the log with the first thing that is not in the tables.
    order: BTreeSet<(u64, TaskId)>,
    pub(super) keys: BTreeMap<Key, Use>,
    pub(super) contexts: BTreeMap<ContextKey, RemoteId>,
    /// Bodies that were written ahead and have been replaced before they were in their place.
    pub(super) litter: Vec<Run>,
    bytes: usize,
    /// Counts up with every change of the tables.
    generation: u64,
}

/// What is new of a task.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    since: u64,
    /// The tables know nothing of it.
    pub(super) born: bool,
    pub(super) row: Option<Arc<Row>>,
    pub(super) messages: BTreeMap<u32, Text>,
    /// A whole record: what the tables have of the record does not count any more.
    pub(super) record: Option<Text>,
    pub(super) deltas: BTreeMap<u64, Text>,
    pub(super) keys: Vec<Key>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) fingerprint: Fingerprint,
    pub(super) task: TaskId,
    pub(super) turn: u32,
}

impl Overlay {
    /// An empty one in this one's place.
    pub(super) fn successor(&self) -> Overlay {
        Overlay { generation: self.generation + 1, ..Overlay::default() }
    }

    /// What was counted in the tables before does not hold any more.
    pub(super) fn tables_changed(&mut self) {
        self.generation += 1;
    }

    /// Of the tables, as they are seen together with what is here.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.contexts.is_empty()
    }

    pub(super) fn tasks(&self) -> usize {
        self.tasks.len() + self.contexts.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, task: TaskId) -> Option<&Fresh> {
        self.tasks.get(&task)
    }

    pub(super) fn row(&self, task: TaskId) -> Option<&Row> {
        self.tasks.get(&task)?.row.as_deref()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tasks.values().filter_map(|fresh| fresh.row.as_deref())
    }

    pub(super) fn version(&self, task: TaskId) -> Option<(u64, TaskState)> {
        self.row(task).map(|row| (row.version, row.state))
    }

    /// The row of the log that the oldest task waits in.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.order.first().map(|(since, _)| *since)
    }

    /// The oldest tasks, at most so many, and the oldest row of the log that is needed once they are in the tables.
    pub(super) fn first(&self, count: usize) -> (Vec<TaskId>, Option<u64>) {
        let mut order = self.order.iter();
        let tasks = order.by_ref().take(count).map(|(_, task)| *task).collect();
        (tasks, order.next().map(|(since, _)| *since))
    }

    /// What was written into this row of the log. `replayed`: after a crash, when the tables may have it already.
    pub(super) fn put(&mut self, seq: u64, entry: Entry, replayed: bool) {
        match entry {
            Entry::Row { row, message, record } => {
                let (task, turn, born) = (row.task, row.turn.no, row.version == 1 && !replayed);
                let gained = size(&message) + size(&record);
                let fresh = self.fresh(seq, task);
                fresh.born |= born;
                fresh.row = Some(row);
                let mut old = Vec::new();
                if let Some(message) = message {
                    old.extend(fresh.messages.insert(turn, message));
                }
                if let Some(record) = record {
                    old.extend(fresh.record.replace(record));
                    old.extend(std::mem::take(&mut fresh.deltas).into_values());
                }
                self.resize(task, gained, old);
            }
            Entry::Key { key, fingerprint, task, turn } => {
                self.keys.insert(key.clone(), Use { fingerprint, task, turn });
                self.fresh(seq, task).keys.push(key);
            }
            Entry::Context { key, remote } => drop(self.contexts.insert(key, remote)),
            Entry::Delta { task, seq: number, text } => {
                let gained = text.bytes();
                let old = self.fresh(seq, task).deltas.insert(number, text);
                self.resize(task, gained, old);
            }
            Entry::Gone(tasks) => tasks.into_iter().for_each(|task| self.remove(task)),
            Entry::KeysGone(tasks) => tasks.into_iter().for_each(|task| self.remove_keys(task)),
        }
    }

    fn fresh(&mut self, seq: u64, task: TaskId) -> &mut Fresh {
        let (order, bytes) = (&mut self.order, &mut self.bytes);
        self.tasks.entry(task).or_insert_with(|| {
            order.insert((seq, task));
            *bytes += TASK_BYTES;
            Fresh { since: seq, bytes: TASK_BYTES, ..Fresh::default() }
        })
    }

    fn resize(&mut self, task: TaskId, gained: usize, old: impl IntoIterator<Item = Text>) {
        let mut lost = 0;
        for text in old {
            lost += text.bytes();
            self.litter.extend(text.run());
        }
        if let Some(fresh) = self.tasks.get_mut(&task) {
            fresh.bytes = fresh.bytes + gained - lost;
            self.bytes = self.bytes + gained - lost;
        }
    }

    /// These are in the tables now, as they are here; and so are all contexts, and the litter is gone.
    pub(super) fn settled(&mut self, tasks: &[TaskId]) {
        self.tables_changed();
        tasks.iter().for_each(|task| self.remove(*task));
        self.contexts.clear();
        self.litter.clear();
    }

    /// They could not be written to the tables, and perhaps were all the same.
    pub(super) fn in_doubt(&mut self) {
        self.tasks.values_mut().for_each(|fresh| fresh.born = false);
    }

    fn remove(&mut self, task: TaskId) {
        self.remove_keys(task);
        if let Some(fresh) = self.tasks.remove(&task) {
            self.order.remove(&(fresh.since, task));
            self.bytes -= fresh.bytes;
        }
    }

    fn remove_keys(&mut self, task: TaskId) {
        let keys = self.tasks.get_mut(&task).map(|fresh| std::mem::take(&mut fresh.keys));
        for key in keys.into_iter().flatten() {
            if self.keys.get(&key).is_some_and(|it| it.task == task) {
                self.keys.remove(&key);
            }
        }
    }
}

fn size(text: &Option<Text>) -> usize {
    text.as_ref().map_or(0, Text::bytes)
}

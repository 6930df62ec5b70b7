//! What is durable in the log and not in the tables yet: the newest state of each task, by everything that it is
//! asked for. Readers look here first.
//!
//! Only the store's thread changes it, and only after its transaction: so what is seen here is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_engine::ids::{ContextKey, Fingerprint, Key, Principal, RemoteId, TaskId};
use watertight_engine::record::{Row, TaskState};

use super::counts::Counts;
use super::disk::Run;
use super::log::{Entry, Text};
use super::order::{Listed, Order};
use super::outbox::{News, Outboxes};

/// What a task costs in memory beside its bodies, about.
const TASK_BYTES: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Overlay {
    tasks: BTreeMap<TaskId, Fresh>,
    /// Tasks by the row of the log with the first thing that is not in the tables.
    waiting: BTreeSet<(u64, TaskId)>,
    /// Rows, as lists show them.
    pub(super) order: Order,
    /// Rows that the tables have perhaps.
    doubted: BTreeSet<TaskId>,
    /// Of the tables, as they are seen together with what is here.
    pub(super) counts: Arc<Counts>,
    pub(super) keys: BTreeMap<Key, Use>,
    pub(super) contexts: BTreeMap<ContextKey, RemoteId>,
    pub(super) outboxes: Outboxes,
    /// Bodies that were written ahead and have been replaced before they were in their place.
    pub(super) litter: Vec<Run>,
    bytes: usize,
}

/// What is new of a task.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    since: u64,
    tables: Tables,
    pub(super) row: Option<Arc<Row>>,
    pub(super) messages: BTreeMap<u32, Text>,
    /// A whole record: what the tables have of the record does not count any more.
    pub(super) record: Option<Text>,
    pub(super) deltas: BTreeMap<u64, Text>,
    pub(super) keys: Vec<Key>,
    bytes: usize,
}

/// What the tables have of a task that there is news of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Tables {
    Nothing,
    Row(Listed),
    /// It was not asked for, or they could not be written, and perhaps were all the same.
    #[default]
    Unknown,
}

impl Tables {
    pub(super) fn listed(self) -> Option<Listed> {
        match self {
            Tables::Row(listed) => Some(listed),
            Tables::Nothing | Tables::Unknown => None,
        }
    }
}

impl Fresh {
    /// The tables know nothing of it.
    pub(super) fn born(&self) -> bool {
        self.tables == Tables::Nothing
    }

    pub(super) fn tables(&self) -> Tables {
        self.tables
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) fingerprint: Fingerprint,
    pub(super) task: TaskId,
    pub(super) turn: u32,
}

impl Overlay {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.contexts.is_empty() && self.outboxes.is_empty()
    }

    pub(super) fn tasks(&self) -> usize {
        self.tasks.len() + self.contexts.len() + self.outboxes.len()
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

    /// Rows of a principal of which it is not known what the tables have: few, and only where these could not be written.
    pub(super) fn doubted(&self, principal: &Principal) -> Vec<Arc<Row>> {
        let rows = self.doubted.iter().filter_map(|task| self.tasks.get(task)?.row.as_ref());
        rows.filter(|row| row.principal == *principal).cloned().collect()
    }

    pub(super) fn version(&self, task: TaskId) -> Option<(u64, TaskState)> {
        self.row(task).map(|row| (row.version, row.state))
    }

    /// The row of the log that the oldest task waits in.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.waiting.first().map(|(since, _)| *since)
    }

    /// The oldest tasks, at most so many, and the oldest row of the log that is needed once they are in the tables.
    pub(super) fn first(&self, count: usize) -> (Vec<TaskId>, Option<u64>) {
        let mut waiting = self.waiting.iter();
        let tasks = waiting.by_ref().take(count).map(|(_, task)| *task).collect();
        (tasks, waiting.next().map(|(since, _)| *since))
    }

    /// What was written into this row of the log. `tables`: what they have of the row in it, if it is the task's first
    /// here.
    pub(super) fn put(&mut self, seq: u64, entry: Entry, tables: Tables) {
        match entry {
            Entry::Row { row, message, record } => {
                let (task, turn) = (row.task, row.turn.no);
                let gained = size(&message) + size(&record);
                self.put_row(seq, row, tables);
                let fresh = self.fresh(seq, task);
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
            Entry::Notice(notice) => {
                self.outboxes.entry(notice.owner.clone()).or_default().put(notice, tables == Tables::Nothing);
            }
            Entry::Taken { owner, first, last, lost } => {
                self.outboxes.entry(owner).or_default().take(first, last, lost);
            }
            Entry::Gone(tasks) => tasks.into_iter().for_each(|task| self.remove(task)),
            Entry::KeysGone(tasks) => tasks.into_iter().for_each(|task| self.remove_keys(task)),
        }
    }

    fn put_row(&mut self, seq: u64, row: Arc<Row>, tables: Tables) {
        let fresh = self.fresh(seq, row.task);
        let before = fresh.row.replace(row.clone());
        if before.is_none() {
            fresh.tables = tables;
            if tables == Tables::Unknown {
                self.doubted.insert(row.task);
            }
        }
        self.order.put(&row, before.as_deref(), tables.listed());
    }

    fn fresh(&mut self, seq: u64, task: TaskId) -> &mut Fresh {
        let (waiting, bytes) = (&mut self.waiting, &mut self.bytes);
        self.tasks.entry(task).or_insert_with(|| {
            waiting.insert((seq, task));
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

    /// These are in the tables now, as they are here; and so are all contexts and outboxes, and the litter is gone.
    pub(super) fn settled(&mut self, tasks: &[TaskId]) {
        let moved = || tasks.iter().filter_map(|task| self.tasks.get(task));
        if moved().any(|fresh| fresh.row.is_some() && fresh.tables == Tables::Unknown) {
            self.counts.forget();
        } else {
            let rows = moved().filter_map(|fresh| Some((&**fresh.row.as_ref()?, fresh.tables.listed())));
            self.counts.moved(rows);
        }
        tasks.iter().for_each(|task| self.remove(*task));
        self.contexts.clear();
        self.outboxes.clear();
        self.litter.clear();
    }

    /// They could not be written to the tables, and perhaps were all the same.
    pub(super) fn in_doubt(&mut self, tasks: &[TaskId]) {
        self.counts.forget();
        self.outboxes.values_mut().for_each(News::in_doubt);
        for task in tasks {
            let Some(fresh) = self.tasks.get_mut(task) else { continue };
            let tables = std::mem::take(&mut fresh.tables);
            let Some(row) = &fresh.row else { continue };
            self.doubted.insert(*task);
            if let Some(listed) = tables.listed() {
                self.order.doubt(row, listed);
            }
        }
    }

    fn remove(&mut self, task: TaskId) {
        self.remove_keys(task);
        if let Some(fresh) = self.tasks.remove(&task) {
            self.waiting.remove(&(fresh.since, task));
            self.doubted.remove(&task);
            if let Some(row) = &fresh.row {
                self.order.remove(row, fresh.tables.listed());
            }
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

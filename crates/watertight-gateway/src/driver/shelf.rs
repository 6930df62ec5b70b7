//! What is kept in memory alone, for agents that are configured so: the rows, which outlive a cell that is loaded again,
//! and what has ended, within bounds for each agent, for those who ask for it later.
//!
//! Assumes that the driver puts a row here before anybody is told of it, and the record with the end. While a delegation
//! is live its record is the hub's. Nothing here survives the process, and nothing waits: every answer is a look into maps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use watertight_a2a::record::Record;
use watertight_engine::ids::{AgentId, ContextKey, Fingerprint, Key, Principal, RemoteId, TaskId};
use watertight_engine::input::{KnownKey, Submission};
use watertight_engine::record::{Row, Save};
use watertight_policy::time::{Span, Time};
use watertight_store::ListQuery;

use crate::hub::{Detail, TaskView, view::view_of};
use crate::{InMemory, Kept};

/// What a delegation costs beside its record, roughly.
const ROW_BYTES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Shelf {
    /// Something was put here, ever: who keeps everything on disk pays nothing for looking.
    used: AtomicBool,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    kept: Kept,
    tasks: BTreeMap<TaskId, Delegation>,
    keys: BTreeMap<ByMessage, Use>,
    contexts: BTreeMap<ByContext, Context>,
    /// Whose the agents' task ids are.
    remotes: BTreeMap<(RemoteId, AgentId), TaskId>,
    agents: BTreeMap<AgentId, OfAgent>,
}

/// A key, in an order that tells two of them apart at once.
type ByMessage = (Arc<str>, AgentId, Principal);
type ByContext = (Arc<str>, AgentId, Principal);

#[derive(Debug)]
struct Delegation {
    row: Arc<Row>,
    keys: Vec<ByMessage>,
    over: Option<Over>,
}

/// How it ended.
#[derive(Debug)]
struct Over {
    record: Arc<Record>,
    detail: Option<Arc<Detail>>,
    bytes: usize,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    fingerprint: Fingerprint,
    task: TaskId,
    turn: u32,
}

/// What a context is called toward the agent, for as long as one of its delegations is here.
#[derive(Debug, Default)]
struct Context {
    tasks: usize,
    remote: Option<RemoteId>,
}

#[derive(Debug, Default)]
struct OfAgent {
    limits: InMemory,
    /// What has ended, oldest first.
    ended: VecDeque<TaskId>,
    bytes: usize,
}

impl Shelf {
    pub(crate) fn new(kept: Kept) -> Shelf {
        Shelf { used: AtomicBool::new(false), inside: Mutex::new(Inside { kept, ..Inside::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_unused(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }

    /// How much of what an agent ended is kept.
    pub(crate) fn limit(&self, agent: &AgentId, limits: InMemory) {
        self.lock().agents.entry(agent.clone()).or_default().limits = limits;
    }

    /// Keeps what the cell says.
    pub(crate) fn put(&self, save: &Save) {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.lock();
        match save {
            Save::Delegation { row, .. } => inside.put(row),
            Save::Key { key, fingerprint, task, turn } => {
                let (key, used) = (by_message(key), Use { fingerprint: *fingerprint, task: *task, turn: *turn });
                if let Some(delegation) = inside.tasks.get_mut(task) {
                    delegation.keys.push(key.clone());
                    inside.keys.insert(key, used);
                }
            }
            Save::Context { key, remote } => {
                if let Some(context) = inside.contexts.get_mut(&by_context(key)) {
                    context.remote = Some(remote.clone());
                }
            }
            // Of these there is nothing in memory alone.
            Save::Notice(_) | Save::Taken { .. } => {}
        }
    }

    /// A delegation is over and nothing is owed for it. The oldest ones make room for it.
    pub(crate) fn bury(&self, task: TaskId, record: Arc<Record>, detail: Option<Arc<Detail>>, now: Time) {
        let mut inside = self.lock();
        let inside = &mut *inside;
        let Some(delegation) = inside.tasks.get_mut(&task) else { return };
        let bytes = ROW_BYTES + record.bytes();
        if delegation.over.replace(Over { record, detail, bytes, at: now }).is_some() {
            return;
        }
        let of = inside.agents.entry(delegation.row.agent.clone()).or_default();
        of.ended.push_back(task);
        of.bytes += bytes;
        let mut gone = Vec::new();
        while of.ended.len() > of.limits.max_tasks || of.bytes > of.limits.max_bytes {
            let Some(oldest) = of.ended.pop_front() else { break };
            let over = inside.tasks.get(&oldest).and_then(|delegation| delegation.over.as_ref());
            of.bytes -= over.map_or(0, |over| over.bytes);
            gone.push(oldest);
        }
        gone.into_iter().for_each(|task| inside.remove(task));
    }

    /// Removes what has been kept for long enough by now; how many those were.
    pub(crate) fn prune(&self, now: Time, kept: Kept) -> u64 {
        let mut inside = self.lock();
        let inside = &mut *inside;
        inside.kept = kept;
        let mut gone = Vec::new();
        for of in inside.agents.values_mut() {
            while let Some(oldest) = of.ended.front() {
                let over = inside.tasks.get(oldest).and_then(|delegation| delegation.over.as_ref());
                if over.is_some_and(|over| now.since(over.at) < kept.retention) {
                    break;
                }
                of.bytes -= over.map_or(0, |over| over.bytes);
                gone.extend(of.ended.pop_front());
            }
        }
        gone.iter().for_each(|task| inside.remove(*task));
        gone.len() as u64
    }

    // ---- questions -----------------------------------------------------------------------------------------------

    /// Tells a message what is known here of its key, its context and the task that it names. In the turn in which the
    /// cell is given the message: nothing can leave the cell in between.
    pub(crate) fn complete(&self, submission: &mut Arc<Submission>, now: Time) {
        if self.is_unused() {
            return;
        }
        let inside = self.lock();
        let s = Arc::make_mut(submission);
        let key = (s.message_id.clone(), s.agent.clone(), s.principal.clone());
        if let Some(known) = inside.known(&key, now, inside.kept.dedupe_window) {
            s.known = Some(known);
        }
        if s.context_named {
            let known = inside.contexts.get(&(s.context.clone(), s.agent.clone(), s.principal.clone()));
            s.remote_context = known.and_then(|context| context.remote.clone()).or(s.remote_context.take());
        }
        if let Some(named) = &mut s.names
            && let Some(delegation) = inside.tasks.get(&named.task)
        {
            let row = &delegation.row;
            named.terminal = row.state.is_terminal() && row.principal == s.principal && row.agent == s.agent;
        }
    }

    pub(crate) fn row(&self, task: TaskId) -> Option<Arc<Row>> {
        if self.is_unused() {
            return None;
        }
        self.lock().tasks.get(&task).map(|delegation| delegation.row.clone())
    }

    /// A delegation that is over.
    pub(crate) fn view(&self, task: TaskId) -> Option<TaskView> {
        if self.is_unused() {
            return None;
        }
        let inside = self.lock();
        let Delegation { row, over, .. } = inside.tasks.get(&task)?;
        let over = over.as_ref()?;
        Some(view_of(row, over.record.clone(), over.detail.clone()))
    }

    /// The delegation that got this task id from this agent.
    pub(crate) fn owner(&self, agent: &AgentId, remote_task: &RemoteId) -> Option<TaskId> {
        if self.is_unused() {
            return None;
        }
        self.lock().remotes.get(&(remote_task.clone(), agent.clone())).copied()
    }

    /// Every delegation that is not over, or for which something is owed.
    pub(crate) fn live(&self) -> Vec<Row> {
        let inside = self.lock();
        let rows = inside.tasks.values().map(|delegation| &delegation.row).filter(|row| row.is_live());
        rows.map(|row| Row::clone(row)).collect()
    }

    /// The first of a principal's delegations in a list's order, and how many there are over all pages.
    pub(crate) fn list(&self, query: &ListQuery) -> (Vec<Arc<Row>>, u64) {
        if self.is_unused() {
            return (Vec::new(), 0);
        }
        let matches = |row: &Row| {
            row.principal == query.principal
                && query.agent.as_ref().is_none_or(|agent| row.agent == *agent)
                && query.context.as_ref().is_none_or(|context| *row.context == **context)
                && query.changed_after.is_none_or(|time| row.changed >= time)
                && query.states.as_ref().is_none_or(|states| states.contains(&row.state))
        };
        let inside = self.lock();
        let rows = inside.tasks.values().map(|delegation| &delegation.row).filter(|row| matches(row));
        let mut rows: Vec<Arc<Row>> = rows.cloned().collect();
        drop(inside);
        let total = rows.len() as u64;
        rows.retain(|row| query.after.is_none_or(|after| (row.changed, row.task) < after));
        rows.sort_unstable_by_key(|row| std::cmp::Reverse((row.changed, row.task)));
        rows.truncate(query.limit);
        (rows, total)
    }

    /// What is kept of an agent's ended delegations: how many, and their bytes.
    pub(crate) fn held(&self, agent: &AgentId) -> (usize, usize) {
        self.lock().agents.get(agent).map_or((0, 0), |of| (of.ended.len(), of.bytes))
    }
}

impl Inside {
    fn put(&mut self, row: &Arc<Row>) {
        if let Some(remote) = &row.remote_task {
            self.remotes.entry((remote.clone(), row.agent.clone())).or_insert(row.task);
        }
        if let Some(delegation) = self.tasks.get_mut(&row.task) {
            delegation.row = row.clone();
            return;
        }
        self.contexts.entry(context_of(row)).or_default().tasks += 1;
        self.tasks.insert(row.task, Delegation { row: row.clone(), keys: Vec::new(), over: None });
    }

    fn known(&self, key: &ByMessage, now: Time, window: Span) -> Option<KnownKey> {
        let Use { fingerprint, task, turn } = *self.keys.get(key)?;
        let Delegation { row, over, .. } = self.tasks.get(&task)?;
        let is_past = over.as_ref().is_some_and(|over| now.since(over.at) >= window);
        (!is_past).then(|| KnownKey { task, fingerprint, never_sent: row.never_sent(turn) })
    }

    fn remove(&mut self, task: TaskId) {
        let Some(Delegation { row, keys, .. }) = self.tasks.remove(&task) else { return };
        for key in keys {
            // A key may be another's by now: of one that was never sent it may be used again.
            if self.keys.get(&key).is_some_and(|used| used.task == task) {
                self.keys.remove(&key);
            }
        }
        if let Some(remote) = row.remote_task.clone() {
            let remote = (remote, row.agent.clone());
            if self.remotes.get(&remote) == Some(&task) {
                self.remotes.remove(&remote);
            }
        }
        let context = context_of(&row);
        if let Some(members) = self.contexts.get_mut(&context) {
            members.tasks -= 1;
            if members.tasks == 0 {
                self.contexts.remove(&context);
            }
        }
    }
}

fn by_message(key: &Key) -> ByMessage {
    (key.message_id.clone(), key.agent.clone(), key.principal.clone())
}

fn by_context(key: &ContextKey) -> ByContext {
    (key.context.clone(), key.agent.clone(), key.principal.clone())
}

fn context_of(row: &Row) -> ByContext {
    (row.context.clone(), row.agent.clone(), row.principal.clone())
}

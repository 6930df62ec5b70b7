//! What waits for the store's thread: bounded, in order, and every commit answered exactly once.
//!
//! Nobody waits here to be let in. A driver asks for [`Queue::room`] before it makes another commit; one that does not
//! ask meets a hard limit, at which its commit fails. Deltas are dropped long before that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use watertight_engine::ids::TaskId;
use watertight_engine::record::Save;
use watertight_policy::time::{Span, Time};

use crate::error::CommitError;
use crate::words::{Body, Delta, HookChange, Late, Lease, Stats, Write};

/// A body of more bytes than this is written in pieces, ahead of the row that it belongs to.
pub(crate) const PIECE: usize = 64 * 1024;
/// What one transaction takes: rows, and bytes of small bodies.
const BATCH_ROWS: usize = 512;
const BATCH_BYTES: usize = 1024 * 1024;
/// Above these there is no room: a driver gathers inputs instead.
const ROOM_COMMITS: usize = 64;
const ROOM_BYTES: usize = 16 * 1024 * 1024;
/// Deltas that may wait, of one task and of all: every commit stands behind them, so that an agent that floods would
/// make all the others wait. A crash would cost what is dropped; who reads now has it already.
const DELTAS_OF_ONE: usize = 256;
const MAX_DELTAS: usize = 1_024;
const DELTA_BYTES: usize = 4 * 1024 * 1024;
/// Above these a commit is refused.
const MAX_COMMITS: usize = 8_192;
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Who is told, and of what.
pub(crate) type Done = Box<dyn FnOnce(u64, Result<(), CommitError>) + Send>;

pub(crate) enum Item {
    Work(Work),
    Relet(SyncSender<Result<Lease, CommitError>>),
    Prune(PruneAsk, SyncSender<Result<PruneStep, CommitError>>),
    Hook(HookChange, SyncSender<Result<(), CommitError>>),
    Late(Late, SyncSender<Result<(), CommitError>>),
    /// For tests: the database may not grow beyond so many pages, as if the disk were full.
    #[cfg(test)]
    Limit(u32),
    /// For tests: everything goes to where it stays.
    #[cfg(test)]
    Settle(Option<usize>, SyncSender<bool>),
}

/// Something to write under a fence.
pub(crate) struct Work {
    pub(crate) fence: u64,
    pub(crate) job: Job,
    /// Who is told; nobody, of a delta.
    pub(crate) ack: Option<Ack>,
    rows: usize,
    bytes: usize,
    large: bool,
}

pub(crate) enum Job {
    Commit(Vec<Write>),
    /// A commit that came when too much waited already. It keeps its place, so that the answers stay in order.
    Refused,
    Delta(Delta),
}

impl Job {
    /// The tasks with bodies in it: without these, deltas that come later would not fit.
    pub(crate) fn bodies(&self) -> Vec<TaskId> {
        match self {
            Job::Commit(writes) => snapshots(writes).collect(),
            Job::Delta(delta) => vec![delta.task],
            Job::Refused => Vec::new(),
        }
    }
}

/// One bounded piece of pruning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PruneAsk {
    /// The first piece of a round.
    pub(crate) first: bool,
    pub(crate) now: Time,
    /// Terminal tasks that ended at or before this go.
    pub(crate) tasks_before: Option<Time>,
    /// Keys of tasks that ended at or before this go.
    pub(crate) keys_before: Option<Time>,
}

impl PruneAsk {
    pub(crate) fn of(now: Time, retention: Span, key_window: Span) -> PruneAsk {
        let before = |span| Some(now - span).filter(|&time| time > Time::ZERO);
        PruneAsk { first: true, now, tasks_before: before(retention), keys_before: before(key_window) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PruneStep {
    pub(crate) tasks: u64,
    pub(crate) keys: u64,
    pub(crate) more: bool,
}

/// What there is to do.
pub(crate) enum Taken {
    Batch(Vec<Item>),
    /// Nothing came for a while.
    Idle,
    Closed,
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    /// Commits whose answer is still out.
    waiting: AtomicUsize,
    pub(crate) counts: Counts,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    /// Deltas that wait, by their task, and all together.
    deltas: BTreeMap<TaskId, usize>,
    delta_count: usize,
    delta_bytes: usize,
    closed: bool,
    /// Tasks with a lost delta: what follows it would not fit, until there is a whole record again.
    torn: BTreeSet<TaskId>,
    /// Transactions that still succeed, and how many then fail.
    faults: Option<(u64, u64)>,
    /// Nothing is taken, as if the disk did not answer.
    hangs: bool,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) transactions: AtomicU64,
    pub(crate) pieces: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl Counts {
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            transactions: self.transactions.load(Relaxed),
            piece_transactions: self.pieces.load(Relaxed),
            commits: self.commits.load(Relaxed),
            failed: self.failed.load(Relaxed),
            deltas_dropped: self.dropped.load(Relaxed),
        }
    }
}

impl Queue {
    pub(crate) fn commit(self: &Arc<Self>, n: u64, fence: u64, writes: Vec<Write>, done: Done) {
        self.waiting.fetch_add(1, Relaxed);
        let ack = Ack { n, done: Some(done), queue: self.clone() };
        let mut state = self.state();
        if state.closed {
            drop(state);
            return ack.give(Err(CommitError::Unavailable("it is closed".into())));
        }
        let bytes = writes.iter().map(weight).sum::<usize>();
        let full = self.backlog() > MAX_COMMITS || (state.bytes + bytes > MAX_BYTES && !state.items.is_empty());
        let work = if full {
            state.torn.extend(snapshots(&writes));
            Work { fence, job: Job::Refused, ack: Some(ack), rows: 1, bytes: 0, large: false }
        } else {
            for task in snapshots(&writes) {
                state.torn.remove(&task);
            }
            let large = writes.iter().flat_map(|write| [&write.message, &write.record]).flatten().any(is_large);
            Work { fence, rows: writes.len().max(1), bytes, large, job: Job::Commit(writes), ack: Some(ack) }
        };
        self.push(state, Item::Work(work));
    }

    pub(crate) fn append(&self, fence: u64, delta: Delta) {
        let mut state = self.state();
        let bytes = delta.body.bytes.len() + 64;
        if state.closed || state.torn.contains(&delta.task) || !state.has_room_for(&delta, bytes) {
            state.torn.insert(delta.task);
            self.counts.dropped.fetch_add(1, Relaxed);
            return;
        }
        let large = is_large(&delta.body);
        self.push(state, Item::Work(Work { fence, rows: 1, bytes, large, job: Job::Delta(delta), ack: None }));
    }

    /// Takes a request that is answered at once when the store is closed: its sender is dropped.
    pub(crate) fn ask(&self, item: Item) {
        let state = self.state();
        if !state.closed {
            self.push(state, item);
        }
    }

    fn push(&self, mut state: MutexGuard<'_, State>, item: Item) {
        if let Item::Work(work) = &item {
            state.bytes += work.bytes;
            if let Job::Delta(delta) = &work.job {
                *state.deltas.entry(delta.task).or_default() += 1;
                state.delta_count += 1;
                state.delta_bytes += work.bytes;
            }
        }
        state.items.push_back(item);
        drop(state);
        self.ready.notify_one();
    }

    /// All that waits and goes together, in order: one request, or the works of one transaction.
    ///
    /// There is no timer to gather more. What arrives while a transaction is written is the next one. The time is only
    /// for who has something to tidy up when nothing comes.
    pub(crate) fn take(&self, idle_after: Option<Duration>) -> Taken {
        let mut state = self.state();
        while state.items.is_empty() || state.hangs && !state.closed {
            if state.closed {
                return Taken::Closed;
            }
            let Some(time) = idle_after.filter(|_| !state.hangs) else {
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (woken, wait) = self.ready.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if wait.timed_out() && state.items.is_empty() && !state.hangs && !state.closed {
                return Taken::Idle;
            }
        }
        let (mut batch, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while let Some(item) = state.items.pop_front() {
            let Item::Work(work) = &item else {
                // A request goes alone, after what came before it.
                if batch.is_empty() {
                    batch.push(item);
                } else {
                    state.items.push_front(item);
                }
                break;
            };
            rows += work.rows;
            bytes += if work.large { 0 } else { work.bytes };
            let fits = !work.large && rows <= BATCH_ROWS && bytes <= BATCH_BYTES;
            if !batch.is_empty() && !fits {
                state.items.push_front(item);
                break;
            }
            state.bytes -= work.bytes;
            if let Job::Delta(delta) = &work.job {
                let (task, bytes) = (delta.task, work.bytes);
                state.delta_taken(task, bytes);
            }
            batch.push(item);
        }
        Taken::Batch(batch)
    }

    /// Nothing waits at this moment.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().items.is_empty()
    }

    /// Nothing more comes in. What waits is still taken.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.ready.notify_all();
    }

    /// Nothing is taken any more: whoever waits is told so.
    pub(crate) fn abort(&self) {
        let mut state = self.state();
        state.closed = true;
        let left = std::mem::take(&mut state.items);
        drop(state);
        drop(left);
    }

    pub(crate) fn backlog(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(crate) fn room(&self) -> bool {
        self.backlog() < ROOM_COMMITS && self.state().bytes < ROOM_BYTES
    }

    /// These bodies were not written: the deltas that come after them would not fit.
    pub(crate) fn tear(&self, tasks: impl IntoIterator<Item = TaskId>) {
        self.state().torn.extend(tasks);
    }

    pub(crate) fn fail_after(&self, good: u64, bad: u64) {
        self.state().faults = Some((good, bad));
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.state().hangs = hangs;
        self.ready.notify_all();
    }

    /// Whether the transaction about to end is one that a test wants to fail.
    pub(crate) fn struck(&self) -> bool {
        match &mut self.state().faults {
            Some((0, 0)) | None => false,
            Some((0, bad)) => {
                *bad -= 1;
                true
            }
            Some((good, _)) => {
                *good -= 1;
                false
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room_for(&self, delta: &Delta, bytes: usize) -> bool {
        let own = self.deltas.get(&delta.task).copied().unwrap_or_default();
        let few = own < DELTAS_OF_ONE && self.delta_count < MAX_DELTAS;
        // One alone may be larger: it was bounded where it came in.
        let small = self.delta_bytes == 0 || self.delta_bytes + bytes <= DELTA_BYTES;
        few && small && self.bytes + bytes <= ROOM_BYTES
    }

    fn delta_taken(&mut self, task: TaskId, bytes: usize) {
        self.delta_count -= 1;
        self.delta_bytes -= bytes;
        if let Some(own) = self.deltas.get_mut(&task) {
            *own -= 1;
            if *own == 0 {
                self.deltas.remove(&task);
            }
        }
    }
}

/// A promise to answer. One that is dropped says that the store's thread is gone.
pub(crate) struct Ack {
    n: u64,
    done: Option<Done>,
    queue: Arc<Queue>,
}

impl Ack {
    pub(crate) fn give(mut self, result: Result<(), CommitError>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<(), CommitError>) {
        let Some(done) = self.done.take() else { return };
        self.queue.waiting.fetch_sub(1, Relaxed);
        let count = if result.is_ok() { &self.queue.counts.commits } else { &self.queue.counts.failed };
        count.fetch_add(1, Relaxed);
        let n = self.n;
        // A panic belongs to whoever is told; the store goes on for the others.
        let _ = catch_unwind(AssertUnwindSafe(|| done(n, result)));
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        self.answer(Err(CommitError::Unavailable("its thread is gone".into())));
    }
}

pub(crate) fn is_large(body: &Body) -> bool {
    body.bytes.len() > PIECE
}

/// The tasks of which a whole record is written.
fn snapshots(writes: &[Write]) -> impl Iterator<Item = TaskId> {
    writes.iter().filter(|write| write.record.is_some()).filter_map(|write| match &write.save {
        Save::Delegation { row, .. } => Some(row.task),
        Save::Key { .. } | Save::Context { .. } | Save::Notice(_) | Save::Taken { .. } => None,
    })
}

fn weight(write: &Write) -> usize {
    let size = |body: &Option<Body>| body.as_ref().map_or(0, |body| body.bytes.len());
    512 + size(&write.message) + size(&write.record)
}

//! The store's thread: folds all commits that wait into one transaction, under the fence.
//!
//! It is the same for every kind of store; a [`Disk`] only knows how to write. What is decided here: which commits are
//! of the past, which stand on one that failed, and what is answered, in which order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use watertight_engine::ids::TaskId;
use watertight_policy::time::{Span, Time};

use crate::error::CommitError;
use crate::queue::{Ack, Item, Job, PruneAsk, PruneStep, Queue, Taken, Work};
use crate::words::{Delta, HookChange, Late, Lease, Pruned, Write};

/// Where it is written to. One transaction at a time: `begin`, any number of `apply` and `delta`, `end` or `abandon`.
pub(crate) trait Disk: Send + 'static {
    /// Where large payloads were put ahead of the transaction that refers to them.
    type Laid: Default;

    /// Writes the large ones of these bodies in pieces, in transactions of their own, and says in how many.
    fn lay(&mut self, job: &Job) -> Result<(Self::Laid, u64), CommitError>;

    /// Begins a transaction; gives the fence that is stored.
    fn begin(&mut self) -> Result<u64, CommitError>;

    /// All of a commit, or nothing of it. After `Unavailable` the whole transaction has to be abandoned.
    fn apply(&mut self, writes: Vec<Write>, laid: Self::Laid) -> Result<(), CommitError>;

    /// A piece of a record. One for a task that is not there is passed over.
    fn delta(&mut self, delta: Delta, laid: Self::Laid) -> Result<(), CommitError>;

    /// Makes it durable. After an error nothing of it is.
    fn end(&mut self) -> Result<(), CommitError>;

    /// Takes all of it back.
    fn abandon(&mut self);

    /// Raises the fence, durably, and clears up what commits of the old one left.
    fn lease(&mut self) -> Result<Lease, CommitError>;

    /// Changes a task's hooks, durably, in a transaction of its own.
    fn hook(&mut self, change: HookChange) -> Result<(), CommitError>;

    /// Keeps what came too late, durably, in a transaction of its own.
    fn late(&mut self, late: Late) -> Result<(), CommitError>;

    /// A bounded piece of pruning, in a transaction of its own.
    fn prune(&mut self, ask: &PruneAsk) -> Result<PruneStep, CommitError>;

    /// Between transactions: some of what was put off, a bounded piece. Whether there is more of it.
    fn tidy(&mut self, _when: Tidy) -> bool {
        false
    }

    /// For tests: so many tasks of what was put off. Whether they could be written.
    #[cfg(test)]
    fn settle_some(&mut self, _count: usize) -> bool {
        true
    }

    /// For tests: no more than so many pages, as if the disk were full.
    #[cfg(test)]
    fn limit(&mut self, _pages: u32) {}
}

/// How much there is to be tidied up now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tidy {
    /// What cannot be put off any longer: others wait.
    Must,
    /// What has piled up: nobody waits.
    Should,
    /// What there is: nothing has come for a while, or will come.
    May,
}

/// Nothing came for so long: it is quiet.
const QUIET: Duration = Duration::from_millis(50);

/// The way to the thread.
pub(crate) struct Writer {
    pub(crate) queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(crate) fn start(name: String, disk: impl Disk, fence: u64) -> std::io::Result<Writer> {
        let queue = Arc::new(Queue::default());
        let inside = queue.clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            let mut desk = Desk { disk, queue: inside.clone(), fence, broken: None };
            // A panic here is our bug. Whoever waits is told, and nobody waits for ever.
            let _ = catch_unwind(AssertUnwindSafe(|| desk.run()));
            inside.abort();
        })?;
        Ok(Writer { queue, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn relet(&self) -> Result<Lease, CommitError> {
        let (sender, answer) = sync_channel(1);
        self.queue.ask(Item::Relet(sender));
        answer.recv().unwrap_or_else(|_| Err(CommitError::Unavailable("it is closed".into())))
    }

    pub(crate) fn hook(&self, change: HookChange) -> Result<(), CommitError> {
        let (sender, answer) = sync_channel(1);
        self.queue.ask(Item::Hook(change, sender));
        answer.recv().unwrap_or_else(|_| Err(CommitError::Unavailable("it is closed".into())))
    }

    pub(crate) fn late(&self, late: Late) -> Result<(), CommitError> {
        let (sender, answer) = sync_channel(1);
        self.queue.ask(Item::Late(late, sender));
        answer.recv().unwrap_or_else(|_| Err(CommitError::Unavailable("it is closed".into())))
    }

    pub(crate) fn prune(&self, now: Time, retention: Span, key_window: Span) -> Result<Pruned, CommitError> {
        let mut ask = PruneAsk::of(now, retention, key_window);
        let mut all = Pruned::default();
        loop {
            let (sender, answer) = sync_channel(1);
            self.queue.ask(Item::Prune(ask, sender));
            let step = answer.recv().unwrap_or_else(|_| Err(CommitError::Unavailable("it is closed".into())))?;
            all.tasks += step.tasks;
            all.keys += step.keys;
            ask.first = false;
            if !step.more {
                return Ok(all);
            }
        }
    }

    /// Lets the thread write what waits, and waits for its end.
    pub(crate) fn close(&self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may be dropped by a callback, on the thread itself: that one ends by itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the thread has before it.
struct Desk<D> {
    disk: D,
    queue: Arc<Queue>,
    fence: u64,
    /// A commit under this fence failed, and all that come after it stand on it.
    broken: Option<CommitError>,
}

impl<D: Disk> Desk<D> {
    fn run(&mut self) {
        let mut untidy = self.disk.tidy(Tidy::Must);
        loop {
            let batch = match self.queue.take(untidy.then_some(QUIET)) {
                Taken::Batch(batch) => batch,
                Taken::Idle => {
                    untidy = self.disk.tidy(Tidy::May);
                    continue;
                }
                Taken::Closed => break,
            };
            let mut works = Vec::with_capacity(batch.len());
            for item in batch {
                match item {
                    Item::Work(work) => works.push(work),
                    Item::Relet(answer) => {
                        let _ = answer.send(self.relet());
                    }
                    Item::Hook(change, answer) => {
                        let _ = answer.send(self.weather().and_then(|()| self.disk.hook(change)));
                    }
                    Item::Late(late, answer) => {
                        let _ = answer.send(self.weather().and_then(|()| self.disk.late(late)));
                    }
                    Item::Prune(ask, answer) => {
                        let _ = answer.send(self.prune(&ask));
                    }
                    #[cfg(test)]
                    Item::Limit(pages) => self.disk.limit(pages),
                    #[cfg(test)]
                    Item::Settle(Some(count), done) => {
                        let _ = done.send(self.disk.settle_some(count));
                    }
                    #[cfg(test)]
                    Item::Settle(None, done) => {
                        while self.disk.tidy(Tidy::May) {}
                        let _ = done.send(true);
                    }
                }
            }
            if !works.is_empty() {
                self.fold(works);
            }
            untidy = self.disk.tidy(if self.queue.is_idle() { Tidy::Should } else { Tidy::Must });
        }
        while self.disk.tidy(Tidy::May) {}
    }

    fn relet(&mut self) -> Result<Lease, CommitError> {
        self.weather()?;
        let lease = self.disk.lease()?;
        self.fence = lease.fence;
        self.broken = None;
        Ok(lease)
    }

    fn prune(&mut self, ask: &PruneAsk) -> Result<PruneStep, CommitError> {
        self.weather()?;
        self.disk.prune(ask)
    }

    fn fold(&mut self, works: Vec<Work>) {
        let mut batch = Batch::default();
        for Work { fence, job, ack, .. } in works {
            let deltas = u64::from(matches!(job, Job::Delta(_)));
            let bodies = job.bodies();
            let result = self.write(&mut batch, fence, job);
            if let Err(error) = &result
                && *error != CommitError::Fenced
                && fence == self.fence
            {
                self.broken.get_or_insert_with(|| error.clone());
            }
            if result.is_ok() {
                batch.written.extend(bodies);
                batch.deltas += deltas;
            } else {
                self.queue.counts.dropped.fetch_add(deltas, Relaxed);
                self.queue.tear(bodies);
            }
            batch.answers.extend(ack.map(|ack| (ack, result)));
        }
        if batch.open {
            let ended = self.weather().and_then(|()| self.disk.end());
            if let Err(error) = ended {
                self.disk.abandon();
                batch.open = false;
                self.broken = Some(error);
            } else {
                self.queue.counts.transactions.fetch_add(1, Relaxed);
                batch.written.clear();
                batch.deltas = 0;
            }
        }
        // What is left here was written into a transaction that was taken back.
        self.queue.tear(std::mem::take(&mut batch.written));
        self.queue.counts.dropped.fetch_add(std::mem::take(&mut batch.deltas), Relaxed);
        let lost = self.broken.clone().filter(|_| !batch.open);
        for (ack, result) in batch.answers {
            ack.give(match (result, &lost) {
                (Ok(()), Some(error)) => Err(error.clone()),
                (result, _) => result,
            });
        }
    }

    fn write(&mut self, batch: &mut Batch, fence: u64, job: Job) -> Result<(), CommitError> {
        if fence != self.fence {
            return Err(CommitError::Fenced);
        }
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if matches!(job, Job::Refused) {
            return Err(CommitError::Unavailable("too much waits for it already".into()));
        }
        let result = self.put(batch, job);
        if matches!(result, Err(CommitError::Unavailable(_) | CommitError::Fenced)) && batch.open {
            self.disk.abandon();
            batch.open = false;
        }
        result
    }

    fn put(&mut self, batch: &mut Batch, job: Job) -> Result<(), CommitError> {
        let (laid, pieces) = self.disk.lay(&job)?;
        self.queue.counts.pieces.fetch_add(pieces, Relaxed);
        if !batch.open {
            let stored = self.disk.begin()?;
            batch.open = true;
            if stored != self.fence {
                // Somebody wrote past the lock. Nothing here is ours any more.
                return Err(CommitError::Fenced);
            }
        }
        match job {
            Job::Commit(writes) => self.disk.apply(writes, laid),
            Job::Delta(delta) => self.disk.delta(delta, laid),
            Job::Refused => Ok(()),
        }
    }

    fn weather(&self) -> Result<(), CommitError> {
        match self.queue.struck() {
            true => Err(CommitError::Unavailable("a fault was injected".into())),
            false => Ok(()),
        }
    }
}

/// One transaction's worth.
#[derive(Default)]
struct Batch {
    open: bool,
    /// Tasks with bodies in this transaction.
    written: Vec<TaskId>,
    deltas: u64,
    answers: Vec<(Ack, Result<(), CommitError>)>,
}

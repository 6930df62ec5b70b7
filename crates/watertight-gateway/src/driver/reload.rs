//! The cell is lost, by a failed commit or a panic: it is loaded from its store and goes on. Attempts that run go on
//! meanwhile, and their ends wait in the inbox.
//!
//! While there is no store, callers are told so within the second, and nothing that was refused is tried later.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use watertight_engine::cell::Cell;
use watertight_engine::ids::{Attempt, Key, LineId, TaskId};
use watertight_engine::input::Input;
use watertight_engine::outbox;
use watertight_engine::record::Row;
use watertight_engine::tree::ends_its_children;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;
use watertight_store::{ReadError, Record, Store};

use super::inbox::line_of;
use super::shared::Health;
use super::{Broken, Driver, act};
use crate::hub::{End, Live, Stored, needs_message, only_waits};

/// Between two tries to load.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How long streams live on without a store, by heartbeats and what needs no commit.
const STREAMS_WAIT: Span = Span::from_secs(2);

/// Records that are read in one go.
const RECORDS: usize = 256;

/// Panics over one delegation, after which it is parked.
const PANICS: u32 = 2;

impl Driver {
    pub(super) async fn reload(&mut self, broken: Broken) {
        self.shared.metrics.reloaded();
        let now = self.shared.clock.now();
        if now.since(self.reloaded) < Span::from_millis(1_000) {
            // It comes again at once: not a busy loop.
            tokio::time::sleep(AGAIN.0).await;
        }
        self.reloaded = now;
        let mut blame = None;
        match broken {
            Broken::Panic => {
                blame = self.cell.touching();
                tracing::error!(task = ?blame, "a step panicked; the cell is loaded again");
            }
            Broken::Commit(why) => tracing::error!(%why, "a commit failed; the cell is loaded again"),
        }
        let parked = blame.filter(|task| {
            let panics = self.blamed.entry(*task).or_insert(0);
            *panics += 1;
            *panics >= PANICS
        });
        self.take_what_is_due();
        let mut pause = AGAIN.0;
        loop {
            match self.load().await {
                Ok((fence, rows, outboxes)) => {
                    // Every answer that was out has been given by now.
                    let durable = self.shared.inbox.take_durable();
                    self.answered(durable);
                    self.take_what_is_due();
                    if self.resume(fence, rows, outboxes, parked).await {
                        break;
                    }
                }
                Err(why) => tracing::error!(%why, "the store is not available"),
            }
            self.shared.set_health(Health::NoStore);
            self.refuse_all();
            if self.shared.clock.now().since(now) > STREAMS_WAIT {
                self.shared.hub.end_streams(End::StoreAway);
            }
            if self.shared.draining().is_some_and(|until| self.shared.clock.now() >= until) {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN.1);
        }
        self.shared.set_health(Health::Well);
        self.looked = self.shared.clock.now();
    }

    /// What a new process finds in the store. A row that cannot be restored is no reason to leave the others: it is
    /// tried again like after a panic.
    pub(super) async fn adopt(&mut self, rows: Vec<Row>, outboxes: Vec<outbox::Stored>) {
        self.reconcile(&rows).await;
        let (settings, seed, now) = (self.settings.clone(), self.seed, self.shared.clock.now());
        let restore = move || {
            let mut cell = Cell::restore(settings, seed, rows, BTreeSet::new(), Vec::new(), now);
            cell.restore_outboxes(outboxes);
            cell
        };
        match catch_unwind(AssertUnwindSafe(restore)) {
            Ok(cell) => self.cell = cell,
            Err(_) => self.reload(Broken::Panic).await,
        }
    }

    /// Outputs whose commit is durable are due, whatever becomes of the cell.
    fn take_what_is_due(&mut self) {
        let now = self.shared.clock.now();
        if catch_unwind(AssertUnwindSafe(|| self.act(now))).is_err() {
            tracing::error!("what was due could not be taken");
        }
    }

    async fn load(&self) -> Result<(u64, Vec<Row>, Vec<outbox::Stored>), String> {
        let (store, shared) = (self.shared.store.clone(), self.shared.clone());
        let load = move |store: Store| {
            let lease = store.relet().map_err(|error| error.to_string())?;
            // From the lease on, however long loading takes.
            shared.clock.advance_to(lease.now);
            let mut rows = under_way(&store).map_err(|error| error.to_string())?;
            rows.extend(shared.shelf.live());
            let outboxes = store.outboxes().map_err(|error| error.to_string())?;
            Ok((lease.fence, rows, outboxes))
        };
        let loaded = tokio::task::spawn_blocking(move || load(store)).await;
        loaded.unwrap_or_else(|_| Err("loading panicked".to_owned()))
    }

    /// A new cell in the place of the old one. `false`: it could not be made.
    async fn resume(
        &mut self,
        fence: u64,
        rows: Vec<Row>,
        outboxes: Vec<outbox::Stored>,
        parked: Option<TaskId>,
    ) -> bool {
        self.fence = fence;
        self.pending.clear();
        let empty = Cell::new(self.settings.clone(), self.seed);
        let old = std::mem::replace(&mut self.cell, empty);
        let salvaged = catch_unwind(AssertUnwindSafe(|| old.salvage())).unwrap_or_default();
        let wanted = salvaged.into_iter().filter(|input| self.is_wanted(input, parked)).collect();
        let mut salvaged = asked_anew(&self.shared.store, wanted).await;
        for input in &mut salvaged {
            if let Input::Submitted(submission) = input {
                self.shared.shelf.complete(submission, self.shared.clock.now());
            }
        }
        self.tell_the_lost(&salvaged);
        let live: BTreeSet<(TaskId, Attempt)> = rows.iter().map(|row| (row.task, row.attempt)).collect();
        self.running.retain(|attempt, handle| {
            // Nobody would stop it any more.
            let is_live = live.contains(attempt);
            if !is_live {
                handle.abort();
            }
            is_live
        });
        let alive: BTreeSet<(TaskId, Attempt)> = self.running.keys().copied().collect();
        self.reconcile(&rows).await;
        self.seed = self.seed.wrapping_add(1);
        let (settings, seed, now) = (self.settings.clone(), self.seed, self.shared.clock.now());
        let shutting_down = self.shutting_down;
        let made = catch_unwind(AssertUnwindSafe(move || {
            let mut cell = Cell::restore(settings, seed, rows, alive, salvaged, now);
            cell.restore_outboxes(outboxes);
            if let Some(task) = parked {
                cell.park(task, now);
            }
            if shutting_down {
                cell.offer(Input::ShuttingDown);
            }
            cell
        }));
        match made {
            Ok(cell) => self.cell = cell,
            Err(_) => {
                tracing::error!("the cell could not be restored");
                return false;
            }
        }
        for handle in std::mem::take(&mut self.cancels).into_values() {
            // The restored cell asks again for what is owed.
            handle.abort();
        }
        true
    }

    /// Whether a salvaged input is to be offered again: not if its caller has been refused meanwhile, and not if it is
    /// what the cell dies of.
    fn is_wanted(&self, input: &Input, parked: Option<TaskId>) -> bool {
        let (line, task) = match input {
            Input::Submitted(submission) => (Some(submission.line), submission.task),
            Input::CancelAsked { line, task, .. } | Input::Dropped { line, task } => (Some(*line), *task),
            Input::Progressed { task, .. } | Input::Ended { task, .. } | Input::CancelAnswered { task, .. } => {
                (None, *task)
            }
            // No delegation is to blame for what is asked of an outbox, or by a worker.
            Input::Acknowledged { line, .. } | Input::WorkAsked { line, .. } => {
                return self.shared.lines.is_open(*line);
            }
            Input::LineClosed { .. }
            | Input::Told { .. }
            | Input::OutboxesAged { .. }
            | Input::Configured(_)
            | Input::BreakerReset { .. }
            | Input::Stalled { .. }
            | Input::ShuttingDown => return true,
        };
        if parked == Some(task) {
            if let Some(line) = line {
                self.refuse(line, Reason::InputParked);
            }
            return false;
        }
        line.is_none_or(|line| self.shared.lines.is_open(line))
    }

    /// After a panic an answer may have been lost on its way out: who waits for it is told what is known, not left.
    fn tell_the_lost(&self, salvaged: &[Input]) {
        let mut asked = self.shared.inbox.asked_on();
        asked.extend(salvaged.iter().filter_map(line_of));
        for id in self.shared.lines.open_up_to(self.asked).into_iter().filter(|id| !asked.contains(id)) {
            match self.shared.lines.take(id) {
                Some(line) => self.tell_at_the_end(id, line, Reason::Internal),
                None => self.shared.hub.withdraw(id),
            }
        }
    }

    /// The hub holds what the store says is live, and nothing else.
    async fn reconcile(&mut self, rows: &[Row]) {
        let (known, now): (BTreeSet<TaskId>, _) = (rows.iter().map(|row| row.task).collect(), self.shared.clock.now());
        for live in self.shared.hub.all() {
            if !known.contains(&live.task) {
                let row = match self.shared.shelf.row(live.task) {
                    Some(row) => Some(row),
                    None => stored_row(&self.shared.store, live.task).await.map(Arc::new),
                };
                if let Some(row) = row {
                    live.restage(row, now);
                }
                self.forget(live.task, now);
            }
        }
        let is_missing = |row: &&Row| self.shared.hub.live(row.task).is_none_or(|live| live.is_hollow());
        let missing: Vec<&Row> = rows.iter().filter(|row| !only_waits(row)).filter(is_missing).collect();
        for some in missing.chunks(RECORDS) {
            let stored = stored_records(&self.shared.store, some.iter().map(|row| row.task).collect()).await;
            for (row, stored) in some.iter().zip(stored) {
                self.shared.hub.recall(row, self.fence, stored);
            }
        }
        for row in rows {
            if let Some(live) = self.shared.hub.live(row.task) {
                live.restage(row.clone().into(), now);
            }
        }
    }

    /// What a delegation is, as far as everybody is told, if this is its durable row; from what is stored, if it is only
    /// there. `None`: the row is not, or not any more.
    pub(crate) fn recall(&mut self, row: &Row, stored: Stored) -> Option<Arc<Live>> {
        if let Some(live) = self.shared.hub.live(row.task).filter(|live| !live.is_hollow()) {
            return Some(live);
        }
        self.cell.row(row.task).filter(|now| now.version == row.version)?;
        let live = self.shared.hub.recall(row, self.fence, stored);
        live.restage(row.clone().into(), self.shared.clock.now());
        Some(live)
    }

    /// Who waits is told. What was accepted before has its task, and may have reached the agent: only the rest is refused.
    fn refuse_all(&self) {
        for (id, line) in self.shared.lines.take_all() {
            let is_shown = self.shared.hub.of_line(id).is_some_and(|live| live.view().is_some());
            if is_shown || self.cell.on_line(id).is_some() {
                self.tell_at_the_end(id, line, Reason::StoreUnavailable);
                continue;
            }
            self.shared.hub.withdraw(id);
            self.shared.metrics.refused(&line.agent, true, Reason::StoreUnavailable);
            let _ = line.to.send(act::refused(&line.agent, Reason::StoreUnavailable, Some(Span::from_millis(1_000))));
        }
    }

    fn refuse(&self, id: LineId, reason: Reason) {
        self.shared.hub.withdraw(id);
        if let Some(line) = self.shared.lines.take(id) {
            let _ = line.to.send(act::refused(&line.agent, reason, None));
        }
    }
}

/// A commit that was taken for lost may have been written, and what it began may be over: then no live row tells of it, and
/// what was known of a message when it came would begin it a second time.
async fn asked_anew(store: &Store, inputs: Vec<Input>) -> Vec<Input> {
    let (store, mut asked) = (store.clone(), inputs.clone());
    let ask = tokio::task::spawn_blocking(move || {
        for input in &mut asked {
            let Input::Submitted(submission) = input else { continue };
            let s = Arc::make_mut(submission);
            let (principal, agent, message_id) = (s.principal.clone(), s.agent.clone(), s.message_id.clone());
            s.known = store.key(&Key { principal, agent, message_id })?;
            if let Some(named) = &mut s.names {
                let row = store.task(named.task)?;
                let own = row.filter(|row| row.principal == s.principal && row.agent == s.agent);
                named.terminal = own.is_some_and(|row| row.state.is_terminal());
            }
        }
        Ok::<_, ReadError>(asked)
    });
    match ask.await {
        Ok(Ok(asked)) => asked,
        Ok(Err(error)) => {
            tracing::error!(%error, "the store cannot be asked about what was salvaged");
            inputs
        }
        Err(_) => inputs,
    }
}

async fn stored_row(store: &Store, task: TaskId) -> Option<Row> {
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.task(task)).await.ok()?.ok()?
}

/// What is under way, and the parents that were cut before their children were: those go along.
pub(crate) fn under_way(store: &Store) -> Result<Vec<Row>, ReadError> {
    let mut rows = store.load()?;
    let known: BTreeSet<TaskId> = rows.iter().map(|row| row.task).collect();
    let children = rows.iter().filter(|row| !row.state.is_terminal());
    let ended: BTreeSet<TaskId> =
        children.filter_map(|row| row.parent).filter(|parent| !known.contains(parent)).collect();
    for parent in ended {
        rows.extend(store.task(parent)?.filter(ends_its_children));
    }
    Ok(rows)
}

/// Stored records' parts. One that cannot be read is passed over: the row tells the state.
async fn stored_records(store: &Store, tasks: Vec<TaskId>) -> Vec<Stored> {
    let (store, count) = (store.clone(), tasks.len());
    let read = move |task| {
        read_record(&store, task).unwrap_or_else(|error| {
            tracing::error!(%task, %error, "the record cannot be read");
            Stored::default()
        })
    };
    let read = tokio::task::spawn_blocking(move || tasks.into_iter().map(read).collect()).await;
    read.unwrap_or_else(|_| vec![Stored::default(); count])
}

/// Waits for the disk.
pub(crate) fn read_record(store: &Store, task: TaskId) -> Result<Stored, ReadError> {
    read_parts(store, task, store.record(task)?)
}

/// Those of several tasks, in order; fewer, but at least one, when they are more than so many bytes. Waits for the disk.
pub(crate) fn read_records(store: &Store, tasks: &[TaskId], bytes: usize) -> Result<Vec<Stored>, ReadError> {
    let records = store.records(tasks, bytes)?;
    tasks.iter().zip(records).map(|(task, record)| read_parts(store, *task, record)).collect()
}

fn read_parts(store: &Store, task: TaskId, record: Option<Record>) -> Result<Stored, ReadError> {
    let record = record.unwrap_or_default();
    // The first commit of a task leaves its record away: it is only the message.
    let is_bare = record.whole.as_ref().is_none_or(|whole| needs_message(&whole.bytes));
    let message = if is_bare { store.message(task, 1)? } else { None };
    Ok(Stored {
        whole: record.whole.map(|body| body.bytes),
        deltas: record.deltas.into_iter().map(|body| body.bytes).collect(),
        message: message.map(|body| body.bytes),
    })
}

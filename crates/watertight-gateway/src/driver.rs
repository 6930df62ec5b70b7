//! Drives one cell: takes what is ready, lets it decide, hands its commits to the store, and carries out what it asks for
//! once that is durable.
//!
//! Assumes that nothing here blocks: the store has a thread of its own, attempts have tasks of their own. A failed commit
//! or a panic costs the cell's memory and nothing else ([`reload`]); callers are told within the second, never left in
//! silence. Time that this process itself lost is told to the cell before any of its timers.

mod act;
pub(crate) mod drains;
pub(crate) mod inbox;
pub(crate) mod lines;
pub(crate) mod reload;
pub(crate) mod seat;
pub(crate) mod shared;
pub(crate) mod shelf;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::AbortHandle;
use watertight_engine::cell::{AgentView, Cell, STEP_INPUTS};
use watertight_engine::ids::{AgentId, Attempt, LineId, TaskId};
use watertight_engine::input::Input;
use watertight_engine::output::Commit;
use watertight_engine::record::{Row, Save, TaskState};
use watertight_engine::settings::Settings;
use watertight_policy::breaker;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};
use watertight_store::{Body, Dialect, Write};

use crate::hub::Stored;
use inbox::line_of;
pub(crate) use reload::{read_record, read_records};
use shared::{Health, Shared};

/// The driver looks around at least this often.
const TICK: Span = Span::from_millis(250);

/// Longer without looking around, and we ourselves stood still.
const STALL: Span = Span::from_millis(1_000);

/// After a standstill sockets are read first, for about this long.
const DRAW_BREATH: Span = Span::from_millis(20);

/// After a standstill the other threads get at least this long to hear what has arrived.
const BREATH: Duration = Duration::from_millis(10);

/// Records are appended to this often.
const APPEND_EVERY: Span = Span::from_millis(20);

/// The walls are published this often.
const STATS_EVERY: Span = Span::from_millis(20);

/// Rows in one commit, and bytes of those that are not small.
const COMMIT_ROWS: usize = 512;
const COMMIT_BYTES: usize = 1 << 20;
const SMALL: usize = 64 << 10;

/// A store that answers nothing for so long is taken for lost: nothing new is accepted until it answers.
const HANGS: Span = Span::from_secs(3);

/// How long the store may take to write what it has been given, at the end.
const FLUSH: Duration = Duration::from_millis(1_000);

/// One cell's driver.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    cell: Cell,
    settings: Arc<Settings>,
    seed: u64,
    fence: u64,
    /// Rows of commits that are not answered yet.
    pending: BTreeMap<u64, Vec<Arc<Row>>>,
    /// When the store last answered, or was given something while it had nothing to do.
    answered: Time,
    /// It has not answered for too long.
    hangs: bool,
    /// Tasks whose durable row is not shown yet.
    staged: BTreeSet<TaskId>,
    running: BTreeMap<(TaskId, Attempt), AbortHandle>,
    cancels: BTreeMap<TaskId, AbortHandle>,
    /// Panics by the delegation that was being worked on.
    blamed: BTreeMap<TaskId, u32>,
    /// The agents' breakers as they were last logged.
    breakers: BTreeMap<AgentId, breaker::State>,
    /// Lines that closed, until all that was asked for on them is on its way to the store.
    closed: Vec<LineId>,
    /// The latest line on which something was offered to the cell.
    asked: LineId,
    shutting_down: bool,
    /// Why it has to be loaded again, until the cell's thread does that.
    broken: Option<Broken>,
    reloaded: Time,
    looked: Time,
    appended: Time,
    published: Time,
}

/// What one commit takes: many small rows, and of the large ones as many as keep nobody waiting for long, neither this
/// driver while it puts them together nor the commits of others behind them.
#[derive(Default)]
struct Size {
    rows: usize,
    large: usize,
}

impl Size {
    fn takes(&mut self, bytes: usize) -> bool {
        let is_small = bytes <= SMALL;
        let takes = self.rows < COMMIT_ROWS && (is_small || self.large == 0 || self.large + bytes <= COMMIT_BYTES);
        if takes {
            self.rows += 1;
            self.large += if is_small { 0 } else { bytes };
        }
        takes
    }
}

/// Why the cell has to be loaded again.
#[derive(Debug)]
enum Broken {
    Panic,
    Commit(String),
}

impl Driver {
    /// Before it has picked up what the store holds.
    fn empty(shared: Arc<Shared>, seed: u64, fence: u64) -> Driver {
        let (now, settings) = (shared.clock.now(), shared.settings());
        let cell = Cell::new(settings.clone(), seed);
        Driver {
            broken: None,
            shared,
            cell,
            settings,
            seed,
            fence,
            pending: BTreeMap::new(),
            answered: now,
            hangs: false,
            staged: BTreeSet::new(),
            running: BTreeMap::new(),
            cancels: BTreeMap::new(),
            blamed: BTreeMap::new(),
            breakers: BTreeMap::new(),
            closed: Vec::new(),
            asked: LineId(0),
            shutting_down: false,
            reloaded: Time::ZERO,
            looked: now,
            appended: now,
            published: Time::ZERO,
        }
    }

    /// When somebody should look again who has nothing to bring.
    fn next_look(&self) -> Time {
        let now = self.looked;
        let mut at = now + TICK;
        if let Some(wake) = self.cell.wake() {
            // Without room nothing can be written: the store's next answer wakes us.
            let patient = now + Span::from_millis(5);
            at = at.min(if wake < patient && !self.shared.store.room() { patient } else { wake });
        }
        if self.shared.hub.is_dirty() {
            at = at.min(self.appended + APPEND_EVERY);
        }
        if self.published < self.looked {
            at = at.min(self.published + STATS_EVERY);
        }
        at
    }

    /// The cell has not decided about everything that it could.
    fn goes_on(&self) -> bool {
        self.cell.wake().is_some_and(|wake| wake <= self.looked) && self.shared.store.room()
    }

    /// Nobody looked for so long that we ourselves stood still.
    fn stood_still(&self) -> bool {
        self.shared.clock.now().since(self.looked) > STALL
    }

    /// After a standstill, what has arrived meanwhile is heard first: it is not the agents who were silent. How long it was.
    async fn draw_breath(&self) -> Option<Span> {
        let now = self.shared.clock.now();
        let gap = now.since(self.looked);
        if gap <= STALL {
            return None;
        }
        for _ in 0..8 {
            tokio::task::yield_now().await;
            if self.shared.clock.now().since(now) > DRAW_BREATH {
                // So much stands in line before us that one turn of it has heard all there is.
                break;
            }
        }
        tokio::time::sleep(BREATH).await;
        tracing::warn!(gap = %gap, "stood still; deadlines of others are moved by as much");
        Some(gap)
    }

    /// One turn of the wheel. `gap`: we stood still for so long before it.
    fn turn(&mut self, gap: Option<Span>) -> Result<(), Broken> {
        let now = self.shared.clock.now();
        self.looked = now;
        let taken = self.shared.inbox.take(STEP_INPUTS.saturating_sub(self.cell.waiting()));
        let failed = self.answered(taken.durable);
        self.shared.metrics.took_inputs(taken.inputs.len());
        if let Some(gap) = gap {
            self.cell.offer(Input::Stalled { gap });
        }
        for mut input in taken.inputs {
            self.noticed(&input);
            if let Input::Submitted(submission) = &mut input {
                self.shared.shelf.complete(submission, now);
            }
            // Who has been answered already, because there was no store, must not be served later.
            if line_of(&input).is_none_or(|line| self.shared.lines.is_open(line)) {
                self.cell.offer(input);
            }
        }
        if let Some(why) = failed {
            return Err(Broken::Commit(why));
        }
        let room = self.shared.store.room();
        let (cell, hub, mut size) = (&mut self.cell, &self.shared.hub, Size::default());
        #[cfg(test)]
        let panics = self.shared.panics_now();
        #[cfg(not(test))]
        let panics = false;
        let step = AssertUnwindSafe(|| {
            let commit = cell.step_within(now, room, |waiting| size.takes(hub.weight(waiting)));
            assert!(!panics, "as ordered by a drill");
            commit
        });
        match catch_unwind(step) {
            Ok(Some(commit)) => self.commit(commit),
            Ok(None) => {}
            Err(_) => return Err(Broken::Panic),
        }
        self.act(now);
        if !self.cell.is_undecided() {
            // Until then a message may still be needed for a commit, though its caller is gone.
            for line in std::mem::take(&mut self.closed) {
                self.shared.hub.withdraw(line);
            }
        }
        self.append(now);
        self.publish(now);
        Ok(())
    }

    /// What an input means for the driver itself.
    fn noticed(&mut self, input: &Input) {
        self.asked = self.asked.max(line_of(input).unwrap_or(LineId(0)));
        match input {
            Input::Ended { task, attempt, .. } => {
                self.running.remove(&(*task, *attempt));
            }
            Input::CancelAnswered { task, .. } => {
                self.cancels.remove(task);
            }
            Input::LineClosed { line } => self.closed.push(*line),
            Input::Configured(settings) => self.settings = settings.clone(),
            Input::Told { .. } | Input::Acknowledged { .. } | Input::OutboxesAged { .. } => {}
            Input::Submitted(_)
            | Input::WorkAsked { .. }
            | Input::Progressed { .. }
            | Input::CancelAsked { .. }
            | Input::Dropped { .. }
            | Input::BreakerReset { .. }
            | Input::Stalled { .. } => {}
            Input::ShuttingDown => self.shutting_down = true,
        }
    }

    /// The store's answers. Why one failed, if one did.
    fn answered(&mut self, durable: Vec<(u64, u64, Result<(), String>)>) -> Option<String> {
        let mut failed = None;
        for (fence, n, result) in durable {
            if fence != self.fence {
                continue;
            }
            let rows = self.pending.remove(&n).unwrap_or_default();
            self.answered = self.shared.clock.now();
            match result {
                Ok(()) => {
                    self.shared.metrics.committed(rows.len());
                    for row in rows {
                        self.staged.insert(row.task);
                        if let Some(live) = self.shared.hub.live(row.task) {
                            live.stage(row);
                        }
                    }
                    self.cell.committed(n);
                }
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        failed
    }

    /// Adds the bodies that the engine never sees, and hands the commit to the store.
    fn commit(&mut self, commit: Commit) {
        let mut rows = Vec::new();
        let mut writes = Vec::with_capacity(commit.saves.len());
        for save in commit.saves {
            let (mut message, mut record) = (None, None);
            if let Save::Delegation { row, message: with_message, record: with_record } = &save {
                let live = match *with_message {
                    true => self.shared.hub.adopt(row, self.fence, Stored::default()),
                    false => self.shared.hub.stir(row, self.fence),
                };
                if *with_message && let Some(proposed) = self.shared.hub.proposed(row) {
                    self.shared.hub.keep_message(&live, row.turn.no, &proposed, false);
                    message = Some(body(proposed.to_bytes()));
                } else if *with_message {
                    message = live.message(row.turn.no).map(|kept| body(kept.to_bytes()));
                }
                // The first one is only the message, which is written beside it.
                let bare = *with_message && row.version == 1 && row.state == TaskState::Submitted;
                if *with_record && !bare {
                    record = Some(body(live.whole(row)));
                }
                rows.push(row.clone());
            }
            writes.push(Write { save, message, record });
        }
        if self.pending.is_empty() {
            self.answered = self.shared.clock.now();
        }
        self.pending.insert(commit.n, rows);
        let (shared, fence) = (Arc::downgrade(&self.shared), self.fence);
        let done = move |n, result: Result<(), watertight_store::CommitError>| {
            if let Some(shared) = shared.upgrade() {
                shared.durable(fence, n, result.map_err(|error| error.to_string()));
            }
        };
        self.shared.store.commit(commit.n, fence, writes, Box::new(done));
    }

    /// Appends what was relayed to the stored records.
    fn append(&mut self, now: Time) {
        if now.since(self.appended) < APPEND_EVERY {
            return;
        }
        self.appended = now;
        for task in self.shared.hub.take_dirty() {
            let Some(live) = self.shared.hub.live(task) else { continue };
            let deltas = live.take_deltas();
            for (seq, bytes) in (deltas.first..).zip(deltas.bodies) {
                self.shared.store.append(task, self.fence, seq, body(bytes));
            }
        }
    }

    fn publish(&mut self, now: Time) {
        if now.since(self.published) >= STATS_EVERY {
            self.published = now;
            self.shared.hub.rest_again();
            let walls = self.cell.agents(now);
            self.cell.forget_peaks();
            self.shared.figures.look(now, &walls);
            self.log_breakers(&walls);
            self.watch_store(now);
            self.shared.set_walls(walls, self.cell.held());
        }
    }

    /// A disk that neither writes nor fails: who came before waits for it, nobody else has to.
    fn watch_store(&mut self, now: Time) {
        let hangs = !self.pending.is_empty() && now.since(self.answered) > HANGS;
        match (self.hangs, hangs) {
            (false, true) if self.shared.health() == Health::Well => {
                tracing::error!(commits = self.pending.len(), "the store does not answer; nothing new is accepted");
                self.shared.set_health(Health::NoStore);
                self.hangs = true;
            }
            (true, false) => {
                tracing::info!("the store answers again");
                self.shared.set_health(Health::Well);
                self.hangs = false;
            }
            (_, _) => {}
        }
    }

    /// People on call are told when traffic is kept from an agent, and when it flows again.
    fn log_breakers(&mut self, walls: &[AgentView]) {
        for wall in walls {
            let (state, agent) = (wall.breaker.state, wall.agent.as_str());
            let before = self.breakers.insert(wall.agent.clone(), state).unwrap_or(breaker::State::Admitting);
            let (failures, ejections) = (wall.breaker.failures, wall.breaker.ejections);
            match (before, state) {
                (_, breaker::State::Ejected) if before != state => {
                    tracing::warn!(agent, failures, ejections, "ejected: calls are refused until a trial goes well");
                }
                (breaker::State::Ejected | breaker::State::Probing, breaker::State::Admitting) => {
                    tracing::info!(agent, "admitted again");
                }
                (_, breaker::State::Admitting | breaker::State::Ejected | breaker::State::Probing) => {}
            }
        }
    }

    // ---- the end -------------------------------------------------------------------------------------------------

    /// Nobody waits any more and everything is written, or there is only the time left to write it.
    fn drained(&self, until: Time) -> bool {
        let quiet = self.shared.lines.is_empty() && self.pending.is_empty();
        quiet && self.shutting_down || self.shared.clock.now() >= until
    }

    /// Leaves running work as it is on disk, and closes the store.
    async fn finish(mut self: Box<Self>) {
        self.shared.inbox.shut();
        for handle in self.running.values().chain(self.cancels.values()) {
            handle.abort();
        }
        for (id, line) in self.shared.lines.take_all() {
            self.tell_at_the_end(id, line, Reason::ShuttingDown);
        }
        self.appended = Time::ZERO;
        let now = self.shared.clock.now();
        self.append(now);
        let store = self.shared.store.clone();
        let closing = tokio::task::spawn_blocking(move || store.close());
        if tokio::time::timeout(FLUSH, closing).await.is_err() {
            tracing::error!("the store did not close in time; what was not written was not answered either");
        }
        self.shared.set_health(Health::Gone);
    }
}

fn body(bytes: Bytes) -> Body {
    Body { dialect: Dialect::V1, bytes }
}

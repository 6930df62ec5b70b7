//! A cell: the engine, its mailbox, and the gate that holds an output back until the commit that it stands on is
//! durable. The gateway and the simulator drive this same type, so that batching, gating, panics and reloads are the
//! same in both.
//!
//! The engine does not wait for the disk. While the store has no room, rows that have to be written are folded: a row
//! that changes twice is written once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use watertight_policy::breaker;
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::agent::Agent;
use crate::engine::{Dirty, Engine};
use crate::ids::{AgentId, Attempt, LineId, TaskId};
use crate::input::Input;
use crate::live::{Live, Place};
use crate::outbox::{self, notice_of};
use crate::output::{Commit, Output};
use crate::record::{Cancel, Row, Save, TaskState};
use crate::settings::Settings;

/// Inputs that one step takes at most.
pub const STEP_INPUTS: usize = 256;

/// Due timers that one step takes at most.
pub const STEP_TIMERS: usize = 512;

/// A row that waits to be written.
#[derive(Debug)]
pub struct Waiting<'a> {
    /// As it is now.
    pub row: &'a Row,
    /// The current turn's message is to be written with it.
    pub message: bool,
    /// Its whole record is.
    pub record: bool,
}

/// One agent's walls at a moment.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// Its name.
    pub agent: AgentId,
    /// Slots taken.
    pub in_flight: u32,
    /// Slots taken at once at most, since [`Cell::forget_peaks`].
    pub peak: u32,
    /// Slots there are.
    pub max_in_flight: u32,
    /// Callers waiting for a slot.
    pub waiting: u32,
    /// Accepted turns waiting for a slot. Those that wait for their context, or for another try, are not among them.
    pub queued: u32,
    /// Since when the oldest of them waits.
    pub oldest: Option<Time>,
    /// The breaker.
    pub breaker: breaker::Snapshot,
    /// The agent asked to be left alone until then.
    pub pacing_until: Option<Time>,
    /// It is no longer configured; what runs goes on.
    pub removed: bool,
    /// Turns that it dropped while it is drained, and that are watched again when it is back.
    pub suspended: u32,
    /// Nobody answered there lately, and its wake hook is called.
    pub asleep: bool,
    /// It fetches its work: so many of its workers wait for some.
    pub workers: Option<u32>,
}

/// See the module's header.
#[derive(Debug)]
pub struct Cell {
    engine: Engine,
    /// Inputs by urgency: what frees something comes before what takes something.
    mail: [VecDeque<Input>; 3],
    /// The number of the next commit.
    next: u64,
    /// Steps so far.
    steps: u64,
    /// Since which step a row waits to be written.
    since: BTreeMap<TaskId, u64>,
    /// Outputs that stand on rows that no commit has taken yet.
    unsaved: BTreeMap<TaskId, Vec<Output>>,
    /// Likewise, on what is kept beside rows.
    unsaved_beside: Vec<Output>,
    /// News of the world that was decided about, by the step; not all of its effects are in a commit yet.
    news: VecDeque<(u64, Input)>,
    /// The same, and the commit that makes its effects durable.
    in_doubt: VecDeque<(u64, Input)>,
    /// What the callers on open lines asked for. A line is open until its answer has left the cell.
    open: BTreeMap<LineId, Input>,
    /// Outputs by the commit that they stand on.
    held: BTreeMap<u64, Vec<Output>>,
    ready: VecDeque<Output>,
    /// Something has to be written, and the store had no room for it.
    blocked: bool,
    /// Handled in the current step, in order; after a panic, the last one is the one to blame.
    handling: Vec<Input>,
}

impl Cell {
    /// An empty cell. The seed is for jitter alone.
    pub fn new(settings: Arc<Settings>, seed: u64) -> Cell {
        Cell {
            engine: Engine::new(settings, seed),
            mail: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
            next: 1,
            steps: 0,
            since: BTreeMap::new(),
            unsaved: BTreeMap::new(),
            unsaved_beside: Vec::new(),
            news: VecDeque::new(),
            in_doubt: VecDeque::new(),
            open: BTreeMap::new(),
            held: BTreeMap::new(),
            ready: VecDeque::new(),
            blocked: false,
            handling: Vec::new(),
        }
    }

    /// A cell as its rows say. `alive`: attempts that still run in this process (after a panic or a failed commit);
    /// all others are picked up by watching, or their outcome is unknown. `salvaged` comes from the cell before, less
    /// what is to blame for its end. What the restored cell has to write and to send comes out of its first step.
    pub fn restore(
        settings: Arc<Settings>,
        seed: u64,
        rows: Vec<Row>,
        mut alive: BTreeSet<(TaskId, Attempt)>,
        salvaged: Vec<Input>,
        now: Time,
    ) -> Cell {
        // An attempt whose end is only waiting to be decided about again is as good as running.
        alive.extend(salvaged.iter().filter_map(|input| match input {
            Input::Ended { task, attempt, .. } => Some((*task, *attempt)),
            Input::Submitted(_)
            | Input::LineClosed { .. }
            | Input::Progressed { .. }
            | Input::CancelAsked { .. }
            | Input::Dropped { .. }
            | Input::WorkAsked { .. }
            | Input::CancelAnswered { .. }
            | Input::Told { .. }
            | Input::Acknowledged { .. }
            | Input::OutboxesAged { .. }
            | Input::Configured(_)
            | Input::BreakerReset { .. }
            | Input::Stalled { .. }
            | Input::ShuttingDown => None,
        }));
        let mut cell = Cell::new(settings, seed);
        cell.engine.restore(rows, &alive, now);
        for input in salvaged {
            cell.offer(input);
        }
        cell
    }

    /// The outboxes as the store has them. Comes before the first step.
    pub fn restore_outboxes(&mut self, stored: Vec<outbox::Stored>) {
        let views = self.engine.outboxes.restore(stored);
        self.ready.extend(views.into_iter().map(Output::Outbox));
    }

    /// Puts an input into the mailbox. The driver bounds how many it offers.
    pub fn offer(&mut self, input: Input) {
        if let Input::LineClosed { line } = &input {
            // It would overtake what its own caller asked for, which nobody would ever take back.
            self.mail.iter_mut().for_each(|mail| mail.retain(|waiting| line_of(waiting) != Some(*line)));
        }
        let urgency = match &input {
            Input::CancelAsked { .. } | Input::CancelAnswered { .. } | Input::Stalled { .. } | Input::ShuttingDown => 0,
            Input::Dropped { .. } | Input::Configured(_) | Input::BreakerReset { .. } | Input::LineClosed { .. } => 0,
            Input::Told { .. } | Input::Acknowledged { .. } | Input::OutboxesAged { .. } => 0,
            Input::Progressed { .. } | Input::Ended { .. } => 1,
            Input::Submitted(_) | Input::WorkAsked { .. } => 2,
        };
        self.mail[urgency].push_back(input);
    }

    /// Inputs that wait to be decided about.
    pub fn waiting(&self) -> usize {
        self.mail.iter().map(VecDeque::len).sum()
    }

    /// Takes at most [`STEP_INPUTS`] inputs and [`STEP_TIMERS`] due timers, and decides. `room`: the store takes
    /// another commit; without it nothing is lost, what has to be written waits for a step that has room.
    pub fn step(&mut self, now: Time, room: bool) -> Option<Commit> {
        self.step_within(now, room, |_| true)
    }

    /// Likewise, with a commit of bounded size: rows that do not fit wait for the next one. They are asked for in the
    /// order in which they began to wait; the first is taken whatever is said of it.
    pub fn step_within(&mut self, now: Time, room: bool, fits: impl FnMut(&Waiting<'_>) -> bool) -> Option<Commit> {
        self.engine.now = self.engine.now.max(now);
        self.engine.go_on();
        self.engine.wake_agents();
        for _ in 0..STEP_INPUTS {
            let Some(input) = self.mail.iter_mut().find_map(VecDeque::pop_front) else { break };
            match &input {
                Input::Submitted(submission) => {
                    self.open.insert(submission.line, input.clone());
                }
                Input::CancelAsked { line, .. }
                | Input::Dropped { line, .. }
                | Input::WorkAsked { line, .. }
                | Input::Acknowledged { line, .. } => {
                    self.open.insert(*line, input.clone());
                }
                Input::LineClosed { line } => {
                    self.open.remove(line);
                }
                Input::Progressed { .. }
                | Input::Ended { .. }
                | Input::CancelAnswered { .. }
                | Input::Told { .. }
                | Input::OutboxesAged { .. }
                | Input::Configured(_)
                | Input::BreakerReset { .. }
                | Input::Stalled { .. }
                | Input::ShuttingDown => {}
            }
            self.handling.push(input);
            if let Some(input) = self.handling.last() {
                self.engine.handle(input);
            }
        }
        for _ in 0..STEP_TIMERS {
            if !self.engine.tick() {
                break;
            }
        }
        self.engine.hurry_lazy();
        self.collect(room, fits)
    }

    /// Numbers what has to be written, and sorts the outputs by what they stand on.
    fn collect(&mut self, room: bool, fits: impl FnMut(&Waiting<'_>) -> bool) -> Option<Commit> {
        self.keep();
        let unsaved = !self.engine.dirty.is_empty() || !self.engine.extra.is_empty();
        self.steps += 1;
        self.since.retain(|task, _| self.engine.dirty.contains_key(task));
        for task in self.engine.dirty.keys() {
            self.since.entry(*task).or_insert(self.steps);
        }
        // A row that is not to be written after all: what stood on it stands on its last save.
        let is_clean = |task: &&TaskId| !self.engine.dirty.contains_key(task);
        for task in self.unsaved.keys().filter(is_clean).copied().collect::<Vec<_>>() {
            for output in self.unsaved.remove(&task).unwrap_or_default() {
                self.hold(self.engine.saved_in(task), output);
            }
        }
        for (task, output) in std::mem::take(&mut self.engine.out) {
            match task.filter(|task| self.engine.dirty.contains_key(task)) {
                Some(task) => self.unsaved.entry(task).or_default().push(output),
                None => self.hold(task.map_or(0, |task| self.engine.saved_in(task)), output),
            }
        }
        let beside = std::mem::take(&mut self.engine.beside);
        match self.engine.extra.is_empty() {
            // All that was kept beside rows is in a commit.
            true => beside.into_iter().for_each(|output| self.hold(self.next - 1, output)),
            false => self.unsaved_beside.extend(beside),
        }
        let step = self.steps;
        self.news.extend(self.handling.drain(..).filter(|input| unsaved && is_news(input)).map(|input| (step, input)));
        self.blocked = unsaved && !room;
        let commit = (unsaved && room).then(|| self.write(fits));
        // The effects of a step are in a commit when no row waits any more that began to wait by then.
        let waits = self.since.values().min().copied().unwrap_or(u64::MAX);
        while let Some((_, input)) = self.news.pop_front_if(|(step, _)| *step < waits) {
            self.in_doubt.push_back((self.next - 1, input));
        }
        for task in self.engine.leave() {
            self.ready.push_back(Output::Forget { task });
            self.engine.remove(task);
        }
        self.engine.doze();
        self.ready.extend(self.engine.rested.drain(..).map(|task| Output::Rests { task }));
        commit
    }

    /// What is kept in memory alone goes out at once, before the outputs that stand on it.
    fn keep(&mut self) {
        for (task, dirty) in std::mem::take(&mut self.engine.passing) {
            let live = self.engine.live.get_mut(&task).filter(|live| !live.is_proposed());
            let Some(live) = live else { continue };
            let save = Save::Delegation { row: live.next_save(), message: dirty.message, record: dirty.record };
            self.ready.push_back(Output::Keep(save));
        }
        self.ready.extend(std::mem::take(&mut self.engine.kept).into_iter().map(Output::Keep));
    }

    fn hold(&mut self, needs: u64, output: Output) {
        match needs <= self.engine.durable {
            true => self.ready.push_back(output),
            false => self.held.entry(needs).or_default().push(output),
        }
    }

    /// Takes the rows that fit out of those that wait.
    fn due(&mut self, mut fits: impl FnMut(&Waiting<'_>) -> bool) -> BTreeMap<TaskId, Dirty> {
        let mut order: Vec<(u64, TaskId)> = self.since.iter().map(|(task, since)| (*since, *task)).collect();
        order.sort_unstable();
        let mut due = BTreeMap::new();
        for (_, task) in order {
            let Some(dirty) = self.engine.dirty.get(&task).copied() else { continue };
            let row = self.engine.live.get(&task).map(|live| &live.row);
            let waiting = row.map(|row| Waiting { row, message: dirty.message, record: dirty.record });
            if waiting.is_none_or(|waiting| fits(&waiting)) || due.is_empty() {
                self.engine.dirty.remove(&task);
                self.since.remove(&task);
                due.insert(task, dirty);
            }
        }
        due
    }

    /// A commit of what is due.
    fn write(&mut self, fits: impl FnMut(&Waiting<'_>) -> bool) -> Commit {
        let n = self.next;
        self.next += 1;
        let due = self.due(fits);
        let stand = due.keys().filter_map(|task| self.unsaved.remove(task)).flatten();
        self.held.entry(n).or_default().extend(stand);
        let mut saves = Vec::with_capacity(due.len() + self.engine.extra.len());
        let mut notices = Vec::new();
        for (task, dirty) in due {
            let Some(live) = self.engine.live.get_mut(&task) else { continue };
            if live.is_proposed() {
                continue;
            }
            live.saved_in = n;
            let row = live.next_save();
            notices.extend(dirty.notice.then(|| notice_of(&row)).flatten());
            saves.push(Save::Delegation { row, message: dirty.message, record: dirty.record });
        }
        // A key goes with the row that it names.
        let dirty = &self.engine.dirty;
        let goes = |save: &mut Save| !matches!(save, Save::Key { task, .. } if dirty.contains_key(task));
        for save in self.engine.extra.extract_if(.., goes) {
            match save {
                Save::Notice(notice) => notices.push(Arc::unwrap_or_clone(notice)),
                Save::Delegation { .. } | Save::Key { .. } | Save::Context { .. } | Save::Taken { .. } => {
                    saves.push(save)
                }
            }
        }
        saves.extend(self.engine.outboxes.take_lazy());
        let max = self.engine.settings.max_outbox;
        notices.into_iter().for_each(|notice| self.engine.outboxes.post(notice, max, &mut saves));
        // Of what is kept beside rows, only keys may wait longer.
        self.held.entry(n).or_default().append(&mut self.unsaved_beside);
        let changed = self.engine.outboxes.take_changed();
        self.held.entry(n).or_default().extend(changed.into_iter().map(Output::Outbox));
        Commit { n, saves }
    }

    /// All commits up to this one are durable.
    pub fn committed(&mut self, n: u64) {
        self.engine.durable = self.engine.durable.max(n);
        self.blocked = false;
        while let Some(entry) = self.held.first_entry() {
            if *entry.key() > self.engine.durable {
                break;
            }
            self.ready.extend(entry.remove());
        }
        while self.in_doubt.front().is_some_and(|(needs, _)| *needs <= self.engine.durable) {
            self.in_doubt.pop_front();
        }
    }

    /// The next output whose commit is durable.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.ready.pop_front();
        if let Some(Output::Answer { line, .. }) = &output {
            self.open.remove(line);
        }
        output
    }

    /// Something waits to be decided about, or to be handed to the store.
    pub fn is_undecided(&self) -> bool {
        self.waiting() > 0 || !self.engine.dirty.is_empty() || !self.engine.extra.is_empty() || self.is_unkept()
    }

    /// Something is to be kept in memory, or to leave it: only between a step and what was done beside it.
    fn is_unkept(&self) -> bool {
        !self.engine.passing.is_empty() || !self.engine.kept.is_empty() || !self.engine.leaving.is_empty()
    }

    /// When to step again without an input or a durable commit; now if there is something to decide or to write
    /// already. What waits for room in the store waits for [`Cell::committed`]. `None`: not before an input.
    pub fn wake(&self) -> Option<Time> {
        let unsaved = !self.engine.dirty.is_empty() || !self.engine.extra.is_empty();
        let untold = !self.engine.out.is_empty() || self.engine.next_answerable().is_some();
        if unsaved && !self.blocked || untold || self.waiting() > 0 || self.is_unkept() {
            return Some(self.engine.now);
        }
        self.engine.next_wake()
    }

    /// The delegation that a step is working on; after a panic, the one to blame.
    pub fn touching(&self) -> Option<TaskId> {
        self.engine.touching
    }

    /// What has to be offered to the cell that is restored in this one's place: news whose effects are not durable,
    /// then what the callers on open lines asked for (dedupe brings those back to their tasks whose acceptance was
    /// durable), then what was not decided about yet. Take the outputs that are ready first: they are due.
    pub fn salvage(self) -> Vec<Input> {
        let in_doubt = self.in_doubt.into_iter().chain(self.news).map(|(_, input)| input);
        let handling = self.handling.into_iter().filter(is_news);
        in_doubt.chain(handling).chain(self.open.into_values()).chain(self.mail.into_iter().flatten()).collect()
    }

    /// Ends a delegation that a step cannot handle (`input_parked`): its row failed, its callers are told, and the
    /// cell goes on.
    pub fn park(&mut self, task: TaskId, now: Time) {
        self.engine.now = self.engine.now.max(now);
        self.engine.wake(task);
        self.engine.take_back(task, Reason::InputParked, None);
        let Some(live) = self.engine.live.get_mut(&task) else { return };
        if live.row.cancel == Cancel::Owed {
            live.row.cancel = Cancel::Unknown;
        }
        match live.row.state.is_terminal() {
            true => self.engine.save(task),
            false => self.engine.settle(task, TaskState::Failed, Some(Reason::InputParked)),
        }
        self.engine.quiet(task, false);
    }

    /// A live delegation's row, as the engine has it now: not necessarily durable yet.
    pub fn row(&self, task: TaskId) -> Option<Row> {
        let live = self.engine.live.get(&task).map(|live| live.row.clone());
        live.or_else(|| self.engine.peek(task).map(|live| live.row))
    }

    /// The delegation that a caller waits for on this line, if it is durable as it is.
    pub fn on_line(&self, line: LineId) -> Option<TaskId> {
        let task = self.engine.lines.get(&line).copied()?;
        let accepted = self.engine.live.get(&task).is_some_and(|live| live.row.version > 0);
        (accepted && self.engine.is_durable(task)).then_some(task)
    }

    /// Accepted delegations that are not terminal.
    pub fn accepted(&self) -> usize {
        self.engine.accepted
    }

    /// Delegations in memory.
    pub fn held(&self) -> usize {
        self.engine.live.len() + self.engine.dormant.len()
    }

    /// Of those, the ones that only wait for a slot and are packed.
    pub fn dormant(&self) -> usize {
        self.engine.dormant.len()
    }

    /// Contradictions between the engine's parts, in words: for tests and the simulator. Walks over everything.
    pub fn audit(&self) -> Vec<String> {
        self.engine.audit()
    }

    /// The place that a turn which waits for a slot had when it came: not later than that. `None`: it does not wait for one.
    pub fn stood(&self, task: TaskId) -> Option<u32> {
        let waits = |live: &Live| matches!(live.place, Place::Queue(_)).then_some(live.stood);
        match self.engine.live.get(&task) {
            Some(live) => waits(live),
            None => waits(&self.engine.peek(task)?),
        }
    }

    /// The place of a waiting turn among those that wait for its agent's slots: exactly so as it stands, or, far behind,
    /// not later than that. `None`: it does not wait for a slot.
    pub fn position(&mut self, task: TaskId) -> Option<usize> {
        self.engine.position(task)
    }

    /// How many wait for an agent's slots.
    pub fn queued(&self, agent: &AgentId) -> usize {
        self.engine.agents.get(agent).map_or(0, |agent| agent.queue.len())
    }

    /// What waits for an agent's slots, in the order in which it goes if nothing else comes: so many after so many, each
    /// of which is walked over.
    pub fn queue(&mut self, agent: &AgentId, skip: usize, limit: usize) -> Vec<TaskId> {
        self.engine.queue_of(agent, skip, limit)
    }

    /// The agents' walls.
    pub fn agents(&self, now: Time) -> Vec<AgentView> {
        self.engine.agents.iter().map(|(id, agent)| view(id, agent, now)).collect()
    }

    /// One agent's walls.
    pub fn agent(&self, id: &AgentId, now: Time) -> Option<AgentView> {
        self.engine.agents.get(id).map(|agent| view(id, agent, now))
    }

    /// The agents' peaks have been read, and are counted anew.
    pub fn forget_peaks(&mut self) {
        self.engine.agents.values_mut().for_each(|agent| agent.bulkhead.forget_peak());
    }
}

fn view(id: &AgentId, agent: &Agent, now: Time) -> AgentView {
    AgentView {
        agent: id.clone(),
        in_flight: agent.bulkhead.in_flight(),
        peak: agent.bulkhead.peak(),
        max_in_flight: agent.bulkhead.params().max_in_flight,
        waiting: agent.bulkhead.waiting(),
        queued: u32::try_from(agent.queue.len()).unwrap_or(u32::MAX),
        oldest: agent.queue.oldest(),
        breaker: agent.breaker.snapshot(),
        pacing_until: agent.pacing.until(now),
        removed: agent.removed,
        suspended: u32::try_from(agent.suspended.len()).unwrap_or(u32::MAX),
        asleep: agent.asleep.is_some(),
        workers: agent.settings.fetches.then(|| u32::try_from(agent.workers.len()).unwrap_or(u32::MAX)),
    }
}

/// The line on which a caller asked for it.
fn line_of(input: &Input) -> Option<LineId> {
    match input {
        Input::Submitted(submission) => Some(submission.line),
        Input::CancelAsked { line, .. } | Input::Dropped { line, .. } | Input::Acknowledged { line, .. } => Some(*line),
        Input::WorkAsked { line, .. } => Some(*line),
        Input::LineClosed { .. }
        | Input::Progressed { .. }
        | Input::Ended { .. }
        | Input::CancelAnswered { .. }
        | Input::Told { .. }
        | Input::OutboxesAged { .. }
        | Input::Configured(_)
        | Input::BreakerReset { .. }
        | Input::Stalled { .. }
        | Input::ShuttingDown => None,
    }
}

/// It tells of something that happened outside and will not be told again.
fn is_news(input: &Input) -> bool {
    match input {
        Input::Progressed { .. } | Input::Ended { .. } | Input::CancelAnswered { .. } => true,
        Input::Configured(_) | Input::Stalled { .. } | Input::ShuttingDown | Input::BreakerReset { .. } => false,
        Input::Submitted(_) | Input::CancelAsked { .. } | Input::Dropped { .. } | Input::LineClosed { .. } => false,
        // An answer that was told, and of which that is forgotten, is read twice.
        Input::Told { .. } | Input::Acknowledged { .. } | Input::OutboxesAged { .. } => false,
        Input::WorkAsked { .. } => false,
    }
}

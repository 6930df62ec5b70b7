//! The loop: virtual time, cells with their disks, agents and callers; invariants after every step.

use std::collections::BTreeMap;

use watertight_engine::cell::Waiting;
use watertight_engine::ids::{AgentId, Attempt, LineId, RemoteId, TaskId};
use watertight_engine::input::Input;
use watertight_engine::output::Output;
use watertight_engine::record::{Save, TaskState};
use watertight_policy::rng::Rng;
use watertight_policy::time::{Span, Time};

use crate::agent::Side;
use crate::callers::{Kid, Twist};
use crate::chaos::Mishap;
use crate::check::SLACK;
use crate::node::{Node, Tracked};
use crate::report::{Broken, Report, Tally};
use crate::scenario::{Fault, Scenario};

/// The start of virtual time.
pub(crate) const START: Time = Time::from_millis(1_700_000_000_000);

/// So many broken invariants are told; after the first few, one follows from another.
const MOST_BROKEN: usize = 20;

/// So many of the last events of a delegation are told.
const LAST_EVENTS: usize = 40;

/// Plays a scenario to its end.
pub fn run(scenario: &Scenario) -> Report {
    run_watched(scenario, |_| {})
}

/// Likewise; `seen` is told now and then how many messages were sent. What broke is played once more, to tell the
/// events of the delegation that it happened to.
pub fn run_watched(scenario: &Scenario, mut seen: impl FnMut(u64)) -> Report {
    let mut world = World::new(scenario, None);
    world.play(&mut seen);
    let mut report = world.report();
    if let Some(first) = report.broken.first().cloned() {
        // What is no delegation's is told with what happened to the cells.
        let task = first.task.as_deref().and_then(TaskId::parse).unwrap_or(TaskId(0));
        let mut again = World::new(scenario, Some((task, first.step)));
        again.play(&mut seen);
        let events = again.events_of_traced();
        report.broken.iter_mut().filter(|broken| broken.task == first.task).for_each(|broken| {
            broken.events.clone_from(&events);
        });
    }
    report
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The next message of a caller.
    Arrives(u64),
    /// A message is sent, or sent again.
    Sends(u64, Twist),
    /// A caller cancels its task, or a stranger tries to.
    Cancels { node: usize, task: TaskId, stranger: bool },
    /// A caller follows up, whatever the task is at.
    Follows { node: usize, task: TaskId },
    /// A caller leaves.
    HangsUp { node: usize, life: u64, line: LineId },
    /// Something comes back from an agent; only to the life of the process that asked.
    Back { node: usize, life: u64, input: Input, stubborn: bool },
    /// A watch looks again.
    Looks { node: usize, life: u64, task: TaskId, attempt: Attempt, agent: usize, id: RemoteId },
    /// The hook of an agent has worked.
    Wakes(usize),
    /// Something goes wrong.
    Happens(usize, Mishap),
    /// The next mishap of a cell is drawn.
    Brews(usize),
}

pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) nodes: Vec<Node>,
    pub(crate) names: Vec<AgentId>,
    pub(crate) sides: Vec<Side>,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) now: Time,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    pub(crate) next_line: u64,
    pub(crate) sent: u64,
    pub(crate) faults: Vec<Fault>,
    pub(crate) arrivals: Rng,
    lateness: Rng,
    pub(crate) kids: BTreeMap<u64, Kid>,
    pub(crate) report: Report,
    /// Whose events are kept, and the step after which nothing matters any more.
    trace: Option<(TaskId, u64)>,
    traced: Vec<String>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, trace: Option<(TaskId, u64)>) -> World<'a> {
        let settings = scenario.settings();
        let rng = Rng::new(scenario.seed);
        let node = |n| Node::new(n, settings.clone(), scenario.callers, scenario.seed, START);
        let mut world = World {
            scenario,
            nodes: (0..scenario.cells.max(1)).map(node).collect(),
            names: scenario.agents.iter().map(|player| AgentId::new(&player.name)).collect(),
            sides: scenario.agents.iter().map(|_| Side::default()).collect(),
            tallies: scenario.agents.iter().map(|_| Tally::default()).collect(),
            now: START,
            events: BTreeMap::new(),
            next_event: 0,
            next_line: 0,
            sent: 0,
            faults: scenario.faults.clone(),
            arrivals: rng.split("arrivals"),
            lateness: rng.split("lateness"),
            kids: BTreeMap::new(),
            report: Report::default(),
            trace,
            traced: Vec::new(),
        };
        if scenario.delegations > 0 {
            world.schedule(START, Event::Arrives(0));
        }
        if scenario.chaos.every().is_some() {
            (0..world.nodes.len()).for_each(|n| world.schedule(START, Event::Brews(n)));
        }
        world
    }

    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    pub(crate) fn later(&mut self, after: Span, event: Event) {
        self.schedule(self.now + after, event);
    }

    fn play(&mut self, seen: &mut impl FnMut(u64)) {
        let longest = self.scenario.delegations * 2_000 + 1_000_000;
        while self.report.steps < longest && self.trace.is_none_or(|(_, step)| self.report.steps <= step) {
            let Some(at) = self.next() else { return };
            let late = Span::from_micros(self.lateness.below(self.scenario.late.as_micros() + 1));
            self.now = self.now.max(at) + late;
            for n in 0..self.nodes.len() {
                self.disk_goes_on(n);
            }
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let event = entry.remove();
                self.happens(event);
                if self.scenario.late == Span::ZERO {
                    break;
                }
            }
            for n in 0..self.nodes.len() {
                let node = &self.nodes[n];
                let due = node.stirred || node.cell.wake().is_some_and(|wake| wake <= self.now);
                if node.is_up() && due {
                    self.step(n);
                }
            }
            if self.report.steps.is_multiple_of(4_096) {
                seen(self.sent);
            }
        }
        if self.trace.is_none() {
            let held: usize = self.nodes.iter().map(|node| node.cell.held()).sum();
            self.broken(0, None, format!("no end after {longest} steps: {held} delegations in memory"));
        }
    }

    /// When something happens next.
    fn next(&mut self) -> Option<Time> {
        let mut next = self.events.keys().next().map(|(at, _)| *at);
        for n in 0..self.nodes.len() {
            let node = &self.nodes[n];
            let wake = node.cell.wake().filter(|_| node.is_up());
            // After a standstill more timers are due than one step takes.
            let steady = self.now > node.up_since + SLACK && node.cell.waiting() == 0 && !node.stirred;
            let past = wake.is_some_and(|wake| steady && wake < self.now);
            next = [next, wake, node.disk.next()].into_iter().flatten().min();
            if past {
                self.broken(n, None, format!("a wake-up in the past: {wake:?} at {:?}", self.now));
            }
        }
        next
    }

    /// Commits that are due become durable, one after the other, and what should go wrong at one of them does.
    fn disk_goes_on(&mut self, n: usize) {
        while self.nodes[n].disk.is_due(self.now) {
            let node = &mut self.nodes[n];
            if std::mem::take(&mut node.fails_next) {
                return self.disk_fails(n);
            }
            let upcoming = node.disk.commits + 1;
            if n == 0 && self.take_fault(Fault::CrashBefore(upcoming)) {
                self.nodes[n].disk.drop_pending();
                return self.crash(n, Span::ZERO);
            }
            let node = &mut self.nodes[n];
            let Some(number) = node.disk.done() else { return };
            if n == 0 && self.take_fault(Fault::CrashAfter(upcoming)) {
                return self.crash(n, Span::ZERO);
            }
            if n == 0 && self.take_fault(Fault::ReloadAfter(upcoming)) {
                return self.reload(n);
            }
            let node = &mut self.nodes[n];
            node.cell.committed(number);
            node.stirred = true;
        }
    }

    fn take_fault(&mut self, fault: Fault) -> bool {
        let at = self.faults.iter().position(|planned| *planned == fault);
        at.map(|at| self.faults.remove(at)).is_some()
    }

    pub(crate) fn step(&mut self, n: usize) {
        self.report.steps += 1;
        let now = self.now;
        let small = self.scenario.small_commits;
        let node = &mut self.nodes[n];
        node.stirred = false;
        // Commits of every size: what does not fit waits for the next one.
        let most = match now.as_micros() % 4 {
            some if small => 1 + some,
            0 => 1 + now.as_micros() / 4 % 8,
            _ => 512,
        };
        let mut rows = 0;
        let fits = |_: &Waiting<'_>| {
            rows += 1;
            rows <= most
        };
        let room = node.disk.has_room();
        if let Some(commit) = node.cell.step_within(now, room, fits) {
            let slow = if node.slow_until > now { 50 } else { 1 };
            let takes = Span::from_micros(node.rng.below(self.scenario.disk.as_micros().max(1)) * slow);
            for save in &commit.saves {
                self.saves(n, save);
            }
            self.nodes[n].disk.write(now + takes, commit);
        }
        self.carry_out(n);
        self.check(n);
    }

    /// Everything that may be done now.
    pub(crate) fn carry_out(&mut self, n: usize) {
        while let Some(output) = self.nodes[n].cell.poll_output() {
            self.trace_output(n, &output);
            match output {
                Output::Keep(save) => {
                    self.saves(n, &save);
                    self.nodes[n].disk.keep(&save);
                }
                Output::Answer { line, answer } => self.told(n, line, answer),
                Output::Send(dispatch) => self.deliver(n, dispatch),
                Output::Watch(dispatch) => self.watch(n, dispatch),
                Output::Cancel { task, agent, remote_task, until } => {
                    self.cancels(n, task, &agent, &remote_task, until)
                }
                Output::Stop { task, attempt } => {
                    // What was on its way already comes all the same, now and then.
                    self.nodes[n].ends(task, attempt);
                }
                Output::Settled { task, state, .. } => self.settled(n, task, state),
                Output::Publish { .. } | Output::Rests { .. } => {}
                Output::Outbox(view) => self.reads(n, view),
                Output::Wake { agent, .. } => self.wakes(n, &agent),
                Output::Forget { task } => self.leaves(n, task),
            }
        }
    }

    /// The engine decided to write this.
    fn saves(&mut self, n: usize, save: &Save) {
        let node = &mut self.nodes[n];
        match save {
            Save::Delegation { row, .. } => {
                node.touched.insert(row.task);
                if row.version == 1 {
                    self.accepted(n, row);
                }
                if self.trace.is_some_and(|(task, _)| task == row.task) {
                    let Report { steps, .. } = self.report;
                    let (state, turn) = (row.state.as_str(), &row.turn);
                    let text = format!(
                        "step {steps}: saves version {} {state} turn {} {:?} attempt {} waits on {:?} cancel {}",
                        row.version,
                        turn.no,
                        turn.phase,
                        row.attempt.0,
                        turn.waiting_on.map(|reason| reason.as_str()),
                        row.cancel.as_str(),
                    );
                    self.traced.push(text);
                }
            }
            Save::Key { key, task, .. } => {
                if let Some(tracked) = node.tracked.get_mut(task) {
                    tracked.keys.push(key.clone());
                }
            }
            Save::Context { .. } | Save::Notice(_) | Save::Taken { .. } => {}
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives(message) => self.arrives(message),
            Event::Sends(message, twist) => self.send(message, twist),
            Event::Cancels { node, task, stranger } => self.asks_to_cancel(node, task, stranger),
            Event::Follows { node, task } => self.follows(node, task),
            Event::HangsUp { node, life, line } => self.hangs_up(node, life, line),
            Event::Back { node, life, input, stubborn } => self.comes_back(node, life, input, stubborn),
            Event::Looks { node, life, task, attempt, agent, id } => self.look(node, life, task, attempt, agent, &id),
            Event::Wakes(agent) => self.woken(agent),
            Event::Happens(node, mishap) => self.mishap(node, mishap),
            Event::Brews(node) => self.brews(node),
        }
    }

    /// An input of a cell.
    pub(crate) fn offer(&mut self, n: usize, input: Input) {
        self.report.inputs += 1;
        if let Some((task, _)) = self.trace {
            let of = match &input {
                Input::Submitted(s) => s.task == task || s.names.is_some_and(|named| named.task == task),
                Input::Progressed { task: of, .. }
                | Input::Ended { task: of, .. }
                | Input::CancelAsked { task: of, .. }
                | Input::Dropped { task: of, .. }
                | Input::Told { task: of, .. }
                | Input::CancelAnswered { task: of, .. } => *of == task,
                Input::LineClosed { .. } | Input::Configured(_) | Input::BreakerReset { .. } => false,
                Input::Acknowledged { .. } | Input::OutboxesAged { .. } | Input::WorkAsked { .. } => false,
                Input::Stalled { .. } | Input::ShuttingDown => false,
            };
            if of {
                self.trace_text(n, &format!("is offered {input:?}"));
            }
        }
        self.nodes[n].offer(input);
    }

    // ---- the record of what went wrong ---------------------------------------------------------------------------

    pub(crate) fn broken(&mut self, cell: usize, task: Option<TaskId>, what: String) {
        if self.report.broken.len() < MOST_BROKEN {
            let at = self.now.since(START).as_millis();
            let what = format!("{at} ms: {what}");
            let task = task.map(|task| task.to_string());
            self.report.broken.push(Broken { step: self.report.steps, cell, task, what, events: Vec::new() });
        }
    }

    fn trace_output(&mut self, n: usize, output: &Output) {
        let Some((task, _)) = self.trace else { return };
        let of = match output {
            Output::Keep(_) | Output::Publish { .. } | Output::Wake { .. } | Output::Outbox(_) => None,
            Output::Answer { line, .. } => self.nodes[n].lines.get(line).and_then(|open| open.proposed()),
            Output::Send(dispatch) | Output::Watch(dispatch) => Some(dispatch.task),
            Output::Cancel { task, .. } | Output::Stop { task, .. } | Output::Settled { task, .. } => Some(*task),
            Output::Forget { task } | Output::Rests { task } => Some(*task),
        };
        if of == Some(task) {
            self.trace_text(n, &format!("{output:?}"));
        }
    }

    pub(crate) fn trace_text(&mut self, n: usize, text: &str) {
        let at = self.now.since(START).as_millis();
        self.traced.push(format!("step {}: {at} ms, cell {n}: {text}", self.report.steps));
    }

    /// A mishap of the whole cell, in a trace.
    pub(crate) fn trace_mishap(&mut self, n: usize, text: &str) {
        if self.trace.is_some() {
            self.trace_text(n, text);
        }
    }

    fn events_of_traced(mut self) -> Vec<String> {
        let first = self.traced.len().saturating_sub(LAST_EVENTS);
        self.traced.split_off(first)
    }

    /// A state that somebody is shown is the one that everybody is shown.
    pub(crate) fn shown(&mut self, n: usize, task: TaskId, state: TaskState) {
        let Some(tracked) = self.nodes[n].tracked.get_mut(&task) else { return };
        if !state.is_terminal() {
            if let Some(told) = tracked.told {
                self.broken(n, Some(task), format!("shown as {} after {}", state.as_str(), told.as_str()));
            }
            return;
        }
        let before = *tracked.told.get_or_insert(state);
        if before != state {
            self.broken(n, Some(task), format!("shown as {} after {}", state.as_str(), before.as_str()));
        }
    }

    pub(crate) fn tracked(&mut self, n: usize, task: TaskId) -> Option<&mut Tracked> {
        self.nodes[n].tracked.get_mut(&task)
    }
}

//! The loop: virtual time, one cell, its disk, its agents and its callers; invariants after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_engine::cell::{Cell, Waiting};
use watertight_engine::ids::{AgentId, Attempt, ContextKey, Key, LineId, Principal, RemoteId, TaskId};
use watertight_engine::input::{
    Fault, Input, Named, Outcome, Progress, Reply, Submission, Want, WireBudget, WireQueue,
};
use watertight_engine::output::{Answer, Dispatch, Output};
use watertight_engine::record::{Cancel, Delivery, Phase, ReplyKind, Save, TaskState};
use watertight_engine::settings::Settings;
use watertight_policy::acceptance::{Measure, PeerState};
use watertight_policy::reason::Reason;
use watertight_policy::rng::Rng;
use watertight_policy::time::{Span, Time};

use crate::agent::{Behaviour, Side, Work, fault_of};
use crate::disk::Disk;
use crate::scenario::{self, Scenario};

/// The start of virtual time.
const START: Time = Time::from_millis(1_700_000_000_000);

/// Everything is looked at every so many steps; what a step touched, in every one.
const AUDIT_EVERY: u64 = 7;

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What should not have happened; empty if all is well.
    pub broken: Vec<String>,
    /// Terminal tasks by state and reason.
    pub outcomes: BTreeMap<String, u64>,
    /// Answers that were refusals, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Durable commits.
    pub commits: u64,
    /// Steps of the engine.
    pub steps: u64,
    /// Messages that reached an agent.
    pub executions: u64,
    /// CancelTasks that reached an agent.
    pub cancels: u64,
    /// Virtual time that passed.
    pub took: Span,
    /// How each message ended for its caller, in order: what two runs are compared by.
    pub fates: BTreeMap<u64, String>,
}

/// Plays a scenario to its end.
pub fn run(scenario: &Scenario) -> Report {
    let mut world = World::new(scenario);
    world.play();
    world.report()
}

#[derive(Clone, Debug)]
enum Event {
    Sends(u64),
    SendsAgain(u64),
    Cancels(u64),
    /// Something comes back from an agent; only to the life of the process that asked.
    Back(u64, Input),
    /// A watch looks again.
    Looks(u64, TaskId, Attempt, AgentId, RemoteId),
}

struct World<'a> {
    scenario: &'a Scenario,
    settings: Arc<Settings>,
    cell: Cell,
    disk: Disk,
    sides: BTreeMap<AgentId, Side>,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    next_line: u64,
    /// Which life of the process this is.
    life: u64,
    faults: Vec<scenario::Fault>,
    arrivals: Rng,
    behaviour: Rng,
    disk_rng: Rng,
    running: BTreeSet<(TaskId, Attempt)>,
    /// Which message a line asks about.
    lines: BTreeMap<LineId, u64>,
    given_out: BTreeSet<TaskId>,
    /// Those that are gone with the process.
    volatile: BTreeSet<TaskId>,
    messages: BTreeMap<TaskId, u64>,
    tasks: BTreeMap<u64, TaskId>,
    /// (task, turn) that an agent has, and how often.
    reached: BTreeMap<(TaskId, u32), u64>,
    report: Report,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> World<'a> {
        let settings = scenario.settings();
        let rng = Rng::new(scenario.seed);
        let mut world = World {
            scenario,
            cell: Cell::new(settings.clone(), scenario.seed),
            disk: Disk::default(),
            sides: settings.agents.keys().map(|id| (id.clone(), Side::default())).collect(),
            settings,
            now: START,
            events: BTreeMap::new(),
            next_event: 0,
            next_line: 0,
            life: 0,
            faults: scenario.faults.clone(),
            arrivals: rng.split("arrivals"),
            behaviour: rng.split("behaviour"),
            disk_rng: rng.split("disk"),
            running: BTreeSet::new(),
            lines: BTreeMap::new(),
            given_out: BTreeSet::new(),
            volatile: BTreeSet::new(),
            messages: BTreeMap::new(),
            tasks: BTreeMap::new(),
            reached: BTreeMap::new(),
            report: Report::default(),
        };
        let mut at = START;
        for message in 0..scenario.delegations {
            at = at + Span::from_micros(world.arrivals.below(scenario.every.as_micros().max(1) * 2));
            world.schedule(at, Event::Sends(message));
        }
        world
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.arrivals.below(n) == 0
    }

    fn play(&mut self) {
        let longest = self.scenario.delegations * 1_000 + 1_000_000;
        while self.report.steps < longest {
            let next = [self.events.keys().next().map(|(at, _)| *at), self.disk.next(), self.cell.wake()];
            let Some(at) = next.into_iter().flatten().min() else { return };
            if self.cell.wake().is_some_and(|wake| wake < self.now && self.cell.waiting() == 0) {
                self.broken(format!("a wake-up in the past: {:?} at {:?}", self.cell.wake(), self.now));
            }
            self.now = self.now.max(at);
            if let Some(n) = self.disk.done(self.now) {
                if self.fault_due() {
                    continue;
                }
                self.cell.committed(n);
            } else if let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let event = entry.remove();
                self.happens(event);
            }
            self.step();
        }
        self.broken(format!("no end after {longest} steps: {} delegations in memory", self.cell.held()));
    }

    fn step(&mut self) {
        self.report.steps += 1;
        let room = self.disk.has_room();
        // Commits of every size: what does not fit waits for the next one.
        let (mut rows, most) = (0, 1 + self.now.as_micros() % 4);
        let fits = |_: &Waiting<'_>| {
            rows += 1;
            rows <= most
        };
        if let Some(commit) = self.cell.step_within(self.now, room, fits) {
            let takes = Span::from_micros(self.disk_rng.below(self.scenario.disk.as_micros().max(1)));
            let at = self.disk.next().map_or(self.now, |_| self.now) + takes;
            self.disk.write(at.max(self.disk.next().unwrap_or(at)), commit);
        }
        while let Some(output) = self.cell.poll_output() {
            self.carry_out(output);
        }
        self.check();
    }

    // ---- our own faults ----------------------------------------------------------------------------------------

    /// The commit that just became durable is where something goes wrong.
    fn fault_due(&mut self) -> bool {
        let commits = self.disk.commits;
        let due = |fault: &scenario::Fault| match fault {
            scenario::Fault::CrashAfter(n) | scenario::Fault::ReloadAfter(n) => *n == commits,
        };
        let Some(at) = self.faults.iter().position(due) else { return false };
        match self.faults.remove(at) {
            scenario::Fault::CrashAfter(_) => self.crash(),
            scenario::Fault::ReloadAfter(_) => {
                // The store is asked what became of all commits before the engine is replaced.
                self.cell.committed(u64::MAX);
                self.disk.flush();
                while let Some(output) = self.cell.poll_output() {
                    self.carry_out(output);
                }
                let empty = Cell::new(self.settings.clone(), 0);
                let salvaged = std::mem::replace(&mut self.cell, empty).salvage();
                self.restore(self.running.clone(), salvaged);
            }
        }
        self.step();
        true
    }

    fn crash(&mut self) {
        let mut rng = self.disk_rng.clone();
        self.disk.crash(&mut rng);
        for task in std::mem::take(&mut self.volatile) {
            self.given_out.remove(&task);
            self.tasks.retain(|_, known| *known != task);
        }
        self.life += 1;
        self.running.clear();
        // Callers on open lines see their connection die; each sends its message again, as an SDK would.
        let lost: BTreeSet<u64> = std::mem::take(&mut self.lines).into_values().collect();
        for message in lost {
            self.schedule(self.now + Span::from_millis(20), Event::SendsAgain(message));
        }
        self.restore(BTreeSet::new(), Vec::new());
    }

    fn restore(&mut self, running: BTreeSet<(TaskId, Attempt)>, salvaged: Vec<Input>) {
        let (settings, rows) = (self.settings.clone(), self.disk.live());
        self.cell = Cell::restore(settings, self.scenario.seed, rows, running, salvaged, self.now);
    }

    // ---- callers -----------------------------------------------------------------------------------------------

    fn happens(&mut self, event: Event) {
        match event {
            Event::Sends(message) => {
                let (twin, cancel) = (self.one_in(self.scenario.twin_one_in), self.one_in(self.scenario.cancel_one_in));
                self.send(message, None);
                if twin {
                    self.send(message, None);
                }
                if cancel {
                    let after = Span::from_millis(self.arrivals.below(3_000));
                    self.schedule(self.now + after, Event::Cancels(message));
                }
            }
            Event::SendsAgain(message) => self.send(message, None),
            Event::Cancels(message) => {
                let Some(task) = self.tasks.get(&message).copied() else { return };
                let (principal, agent, _) = self.who(message);
                let line = self.line(message);
                self.cell.offer(Input::CancelAsked { line, principal, agent, task });
            }
            Event::Back(life, input) if life == self.life => {
                // An attempt that was stopped says nothing any more.
                let stopped = match &input {
                    Input::Ended { task, attempt, .. } => !self.running.remove(&(*task, *attempt)),
                    Input::Submitted(_) | Input::LineClosed { .. } | Input::Progressed { .. } => false,
                    Input::CancelAsked { .. } | Input::CancelAnswered { .. } | Input::Configured(_) => false,
                    Input::BreakerReset { .. } | Input::Stalled { .. } | Input::ShuttingDown => false,
                };
                if stopped {
                    return;
                }
                self.cell.offer(input);
            }
            Event::Back(..) => {}
            Event::Looks(life, task, attempt, agent, id) => self.look(life, task, attempt, agent, id),
        }
    }

    fn line(&mut self, message: u64) -> LineId {
        self.next_line += 1;
        let line = LineId(self.next_line);
        self.lines.insert(line, message);
        line
    }

    /// Who sends a message, to whom, and how: fixed by its number, so that a repetition is a true one.
    fn who(&self, message: u64) -> (Principal, AgentId, bool) {
        let mut rng = Rng::new(self.scenario.seed ^ message.wrapping_mul(0x9e37_79b9)).split("who");
        let caller = format!("caller-{}", rng.below(self.scenario.callers.max(1)));
        let at = rng.below(self.scenario.agents.len().max(1) as u64) as usize;
        let agent = self.settings.agents.keys().nth(at).cloned().unwrap_or_else(|| AgentId::new("nobody"));
        let queued = self.scenario.queued_one_in > 0 && rng.below(self.scenario.queued_one_in) == 0;
        (Principal { tenant: "acme".into(), caller: caller.into() }, agent, queued)
    }

    fn send(&mut self, message: u64, follows: Option<TaskId>) {
        let (principal, agent, queued) = self.who(message);
        let line = self.line(message);
        let task = TaskId(u128::from(self.next_line) << 8);
        let message_id: Arc<str> = match follows {
            Some(_) => format!("answer-{message}-{}", self.next_line).into(),
            None => format!("message-{message}").into(),
        };
        let key = Key { principal: principal.clone(), agent: agent.clone(), message_id: message_id.clone() };
        let context: Arc<str> = format!("context-{}", message / 3).into();
        let context_key = ContextKey { principal: principal.clone(), agent: agent.clone(), context: context.clone() };
        let names = follows.map(|task| {
            let terminal = self.disk.rows.get(&task).is_some_and(|row| row.state.is_terminal());
            Named { task, terminal }
        });
        let context = match follows.and_then(|task| self.disk.rows.get(&task)) {
            Some(row) => row.context.clone(),
            None => context,
        };
        self.messages.insert(task, message);
        self.cell.offer(Input::Submitted(Arc::new(Submission {
            line,
            want: if queued { Want::Accepted } else { Want::Reply { until: self.now + self.scenario.budget } },
            task,
            known: self.disk.key(&key),
            principal,
            agent,
            message_id,
            fingerprint: u128::from(message),
            names,
            context,
            context_named: true,
            remote_context: self.disk.context(&context_key).or_else(|| Some(format!("minted-{}", line.0).into())),
            budget: WireBudget {
                remaining_s: Some(self.scenario.budget.as_secs_f64()),
                depth: Some(3),
                fanout: Some(4),
            },
            queue: WireQueue::default(),
            parent: None,
            arrived: self.now,
        })));
    }

    // ---- outputs -----------------------------------------------------------------------------------------------

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Keep(save) => {
                if let Save::Delegation { row, .. } = &save {
                    self.volatile.insert(row.task);
                }
                self.disk.keep(&save);
            }
            Output::Answer { line, answer } => self.told(line, answer),
            Output::Send(dispatch) => self.deliver(dispatch),
            Output::Watch(dispatch) => {
                self.running.insert((dispatch.task, dispatch.attempt));
                if let Some(id) = dispatch.remote_task {
                    self.look(self.life, dispatch.task, dispatch.attempt, dispatch.agent, id);
                }
            }
            Output::Cancel { task, agent, remote_task, .. } => {
                let times = if self.scenario.twice { 2 } else { 1 };
                let obeys = self.scenario.agents.get(agent.as_str()).is_some_and(|(model, _)| model.obeys);
                for _ in 0..times {
                    self.report.cancels += 1;
                    let Some(side) = self.sides.get_mut(&agent) else { continue };
                    let answer = side.cancel(&remote_task, obeys, self.now);
                    let at = self.now + Span::from_millis(5);
                    self.schedule(at, Event::Back(self.life, Input::CancelAnswered { task, answer }));
                }
            }
            Output::Stop { task, attempt } => {
                self.running.remove(&(task, attempt));
            }
            Output::Settled { task, state, .. } => {
                let row = self.disk.rows.get(&task).map(|row| row.state);
                if let Some(row) = row.filter(|row| *row != state) {
                    let (shown, is) = (state.as_str(), row.as_str());
                    self.broken(format!("{task} shown as {shown} while its row says {is}"));
                }
                if state == TaskState::InputRequired {
                    let Some(message) = self.messages.get(&task).copied() else { return };
                    self.send(message, Some(task));
                }
            }
            Output::Publish { .. } | Output::Forget { .. } => {}
        }
    }

    fn told(&mut self, line: LineId, answer: Answer) {
        let Some(message) = self.lines.remove(&line) else {
            return self.broken(format!("line {} is answered, and was not open", line.0));
        };
        let fate = match answer {
            Answer::Task { task, .. } => {
                if !self.disk.rows.contains_key(&task) {
                    self.broken(format!("{task} was given out and is not kept"));
                }
                self.given_out.insert(task);
                self.tasks.insert(message, task);
                return;
            }
            Answer::Refused(refusal) => {
                *self.report.refusals.entry(refusal.reason.as_str().into()).or_default() += 1;
                refusal.reason.as_str()
            }
            Answer::Conflict { .. } => "conflict",
            Answer::NotFound => "not found",
            Answer::TaskTerminal | Answer::NotCancelable => return,
            Answer::ContextMismatch => "context mismatch",
        };
        self.report.fates.insert(message, fate.into());
    }

    fn deliver(&mut self, dispatch: Dispatch) {
        let Dispatch { task, turn, attempt, .. } = dispatch;
        let agent = dispatch.agent.clone();
        self.running.insert((task, attempt));
        let row = self.disk.rows.get(&task);
        if row.is_none_or(|row| row.attempt != attempt || row.turn.phase == Phase::Waiting) {
            self.broken(format!("{task} attempt {} is sent before it is kept", attempt.0));
        }
        let Some((model, settings)) = self.scenario.agents.get(agent.as_str()) else { return };
        let (behaviour, takes) = (model.choose(&mut self.behaviour), model.duration(&mut self.behaviour));
        let idempotent = settings.idempotent;
        let back = self.now + takes;
        let id = match (&dispatch.remote_task, self.sides.get_mut(&agent)) {
            (Some(id), _) => id.clone(),
            (None, Some(side)) => side.mint(agent.as_str()),
            (None, None) => return,
        };
        if behaviour != Behaviour::Refuses {
            let times = self.reached.entry((task, turn)).or_default();
            *times += 1;
            self.report.executions += 1;
            // 429 means: not taken on. Everything else may have run.
            if *times > 1 && !idempotent {
                self.broken(format!("{task} turn {turn} reached its agent {} times", self.reached[&(task, turn)]));
            }
        }
        let ends = match behaviour {
            Behaviour::Completes | Behaviour::Resets => Some((back, TaskState::Completed)),
            Behaviour::Fails => Some((back, TaskState::Failed)),
            Behaviour::Asks => Some((back, TaskState::InputRequired)),
            Behaviour::Rejects => Some((back, TaskState::Rejected)),
            Behaviour::HangsKnown | Behaviour::HangsSilent => None,
            Behaviour::Message | Behaviour::Refuses | Behaviour::Garbles | Behaviour::Paces => {
                return self.short(dispatch, behaviour, back);
            }
        };
        if let Some(side) = self.sides.get_mut(&agent) {
            side.works.insert(id.clone(), Work { ends, canceled: false });
        }
        match behaviour {
            Behaviour::Resets => self.short(dispatch, behaviour, self.now + Span::from_millis(10)),
            Behaviour::HangsSilent | Behaviour::Refuses | Behaviour::Garbles | Behaviour::Paces => {}
            Behaviour::Completes
            | Behaviour::Fails
            | Behaviour::Asks
            | Behaviour::Message
            | Behaviour::Rejects
            | Behaviour::HangsKnown => {
                let progress = Progress {
                    remote_task: Some(id.clone()),
                    remote_context: dispatch.remote_context.clone(),
                    state: Some(TaskState::Working),
                    seq: 1,
                };
                let at = self.now + Span::from_millis(10);
                self.schedule(at, Event::Back(self.life, Input::Progressed { task, attempt, progress }));
                self.schedule(back, Event::Looks(self.life, task, attempt, agent, id));
            }
        }
    }

    /// An exchange without a task on the agent's side.
    fn short(&mut self, dispatch: Dispatch, behaviour: Behaviour, at: Time) {
        let outcome = match fault_of(behaviour) {
            Some(reason) => Outcome::Failed(Fault {
                reason,
                delivery: if behaviour == Behaviour::Refuses { Delivery::NotSent } else { Delivery::MaybeDelivered },
                retry_after: (behaviour == Behaviour::Paces).then_some(Span::from_secs(1)),
            }),
            None => Outcome::Replied(reply(TaskState::Completed, ReplyKind::Message, None)),
        };
        let input = Input::Ended { task: dispatch.task, attempt: dispatch.attempt, outcome };
        self.schedule(at, Event::Back(self.life, input));
    }

    fn look(&mut self, life: u64, task: TaskId, attempt: Attempt, agent: AgentId, id: RemoteId) {
        if life != self.life || !self.running.contains(&(task, attempt)) {
            return;
        }
        let state = self.sides.get(&agent).and_then(|side| side.state(&id, self.now));
        match state {
            Some(TaskState::Working) | None => {
                let again = self.now + Span::from_millis(500);
                self.schedule(again, Event::Looks(life, task, attempt, agent, id));
            }
            Some(state) => {
                let outcome = Outcome::Replied(reply(state, ReplyKind::Task, Some(id)));
                self.running.remove(&(task, attempt));
                self.cell.offer(Input::Ended { task, attempt, outcome });
            }
        }
    }

    // ---- invariants --------------------------------------------------------------------------------------------

    fn broken(&mut self, what: String) {
        if self.report.broken.len() < 20 {
            let at = self.now.since(START).as_millis();
            self.report.broken.push(format!("{at} ms: {what}"));
        }
    }

    fn check(&mut self) {
        for what in std::mem::take(&mut self.disk.broken) {
            self.broken(what);
        }
        if self.report.steps.is_multiple_of(AUDIT_EVERY) {
            for what in self.cell.audit() {
                self.broken(what);
            }
        }
        for view in self.cell.agents(self.now) {
            if view.in_flight > view.max_in_flight {
                self.broken(format!("{} has {} in flight", view.agent, view.in_flight));
            }
        }
    }

    fn report(mut self) -> Report {
        for view in self.cell.agents(self.now) {
            if view.in_flight + view.waiting + view.queued > 0 {
                self.broken(format!("{} still holds something at the end", view.agent));
            }
        }
        if self.cell.held() > 0 {
            self.broken(format!("{} delegations in memory at the end", self.cell.held()));
        }
        for line in std::mem::take(&mut self.lines).into_keys() {
            self.broken(format!("line {} was never answered", line.0));
        }
        for task in std::mem::take(&mut self.given_out) {
            match self.disk.rows.get(&task) {
                None => self.broken(format!("{task} was given out and is lost")),
                Some(row) if !row.state.is_terminal() => {
                    let state = row.state.as_str();
                    self.broken(format!("{task} is {state} at the end"));
                }
                Some(row) if row.remote_task.is_some() && matches!(row.cancel, Cancel::Owed | Cancel::Unknown) => {
                    let cancel = row.cancel.as_str();
                    self.broken(format!("the cancel of {task} ended as {cancel}, though its agent answers"));
                }
                Some(row) if row.turn.waiting_on.is_some() => self.broken(format!("{task} is over and waits")),
                Some(_) => {}
            }
        }
        for row in self.disk.rows.values() {
            let reason = row.reason.map_or("", Reason::as_str);
            *self.report.outcomes.entry(format!("{} {reason}", row.state.as_str()).trim().into()).or_default() += 1;
            if let Some(message) = self.messages.get(&row.task) {
                self.report.fates.insert(*message, format!("{} {reason}", row.state.as_str()));
            }
        }
        self.report.commits = self.disk.commits;
        self.report.took = self.now.since(START);
        self.report
    }
}

fn reply(state: TaskState, kind: ReplyKind, remote_task: Option<RemoteId>) -> Reply {
    let peer = match state {
        TaskState::Completed => PeerState::Completed,
        TaskState::Failed => PeerState::Failed,
        TaskState::Canceled => PeerState::Canceled,
        TaskState::Rejected => PeerState::Rejected,
        TaskState::InputRequired => PeerState::InputRequired,
        TaskState::AuthRequired => PeerState::AuthRequired,
        TaskState::Working => PeerState::Working,
        TaskState::Submitted => PeerState::Submitted,
    };
    Reply {
        state,
        kind,
        measure: Measure { state: peer, bytes: 1_000, data_parts: 1, schema_failures: 0, empty: false },
        remote_task,
        remote_context: None,
        seq: 2,
    }
}

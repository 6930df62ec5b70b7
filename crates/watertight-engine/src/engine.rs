//! The engine's state, and how one input or one due timer is handed to the part that decides about it. What a step
//! decides collects here (dirty rows, outputs); [`crate::cell::Cell`] numbers and gates it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use watertight_policy::breaker::Sample;
use watertight_policy::rate::Rates;
use watertight_policy::reason::Reason;
use watertight_policy::rng::{self, Rng};
use watertight_policy::time::{Span, Time};

use crate::agent::{Agent, Closed};
use crate::former::Conversations;
use crate::hashed::{Hash, Hashed};
use crate::ids::{AgentId, ContextKey, Fingerprint, LineId, Principal, RemoteId, TaskId};
use crate::input::Input;
use crate::live::{Live, Place, Timer};
use crate::outbox::Outboxes;
use crate::output::{Answer, Output, Refusal};
use crate::queue::Senders;
use crate::record::{Phase, Save};
use crate::settings::{Serialize, Settings};
use crate::tree::{AtWork, Pace};

/// How long a terminal delegation stays in memory: longer than any look-up in the store can be under way, so that a
/// messageId is found either here or there.
const LINGER: Span = Span::from_secs(5);

/// The use of a messageId by a delegation in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyUse {
    pub(crate) task: TaskId,
    pub(crate) turn: u32,
    pub(crate) fingerprint: Fingerprint,
}

/// A context in use: who works in it, who waits for it, and its name toward the agent.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) refs: u32,
    pub(crate) remote: Option<RemoteId>,
    pub(crate) holder: Option<TaskId>,
    pub(crate) waiting: VecDeque<TaskId>,
}

impl Context {
    fn is_unused(&self) -> bool {
        self.refs == 0 && self.holder.is_none() && self.waiting.is_empty()
    }
}

/// What of a row has to be written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) message: bool,
    pub(crate) record: bool,
    /// A notice of its end goes with it.
    pub(crate) notice: bool,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) settings: Arc<Settings>,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) live: BTreeMap<TaskId, Box<Live>>,
    /// Those that only wait, packed.
    pub(crate) dormant: BTreeMap<TaskId, Box<[u8]>>,
    /// Contexts in which there is nothing but a packed one.
    pub(crate) asleep: BTreeMap<Hash, TaskId>,
    /// Those that came to wait, and are not packed yet.
    pub(crate) drowsy: VecDeque<TaskId>,
    /// Those that were packed in this step.
    pub(crate) rested: Vec<TaskId>,
    /// What a number in a packed one means.
    pub(crate) agent_names: Vec<AgentId>,
    pub(crate) keys: Hashed<KeyUse>,
    pub(crate) contexts: Hashed<Context>,
    pub(crate) lines: BTreeMap<LineId, TaskId>,
    pub(crate) senders: Senders,
    pub(crate) at_work: AtWork,
    /// Conversations that agents were called in lately.
    pub(crate) former: Conversations,
    /// (parent, child) of all that is not over.
    pub(crate) below: BTreeSet<(TaskId, TaskId)>,
    pub(crate) rates: Rates<Pace>,
    pub(crate) timers: BTreeSet<(Time, TaskId, Timer)>,
    pub(crate) agent_wakes: BTreeSet<(Time, AgentId)>,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    /// Accepted and not terminal.
    pub(crate) accepted: usize,
    pub(crate) shutting_down: bool,
    /// All commits up to this one are durable.
    pub(crate) durable: u64,
    /// Tasks that can take a message which waits behind them, once what was decided about them is durable.
    pub(crate) answerable: BTreeSet<TaskId>,
    pub(crate) touching: Option<TaskId>,
    pub(crate) dirty: BTreeMap<TaskId, Dirty>,
    pub(crate) extra: Vec<Save>,
    /// The same of what is kept in memory alone: it never waits.
    pub(crate) passing: BTreeMap<TaskId, Dirty>,
    pub(crate) kept: Vec<Save>,
    pub(crate) outboxes: Outboxes,
    /// What stands on everything that is to be kept beside rows.
    pub(crate) beside: Vec<Output>,
    /// Delegations that are over, and leave with the end of the step if nothing is owed for them.
    pub(crate) leaving: Vec<TaskId>,
    /// Outputs, each with the task whose latest save it stands on.
    pub(crate) out: Vec<(Option<TaskId>, Output)>,
}

impl Engine {
    pub(crate) fn new(settings: Arc<Settings>, seed: u64) -> Engine {
        let agents = settings.agents.iter().map(|(id, agent)| (id.clone(), Agent::new(agent.clone()))).collect();
        let mut names = Rng::new(seed).split("names");
        Engine {
            rates: Rates::new(settings.rate),
            settings,
            agents,
            live: BTreeMap::new(),
            dormant: BTreeMap::new(),
            asleep: BTreeMap::new(),
            drowsy: VecDeque::new(),
            rested: Vec::new(),
            agent_names: Vec::new(),
            keys: Hashed::new(&mut names),
            contexts: Hashed::new(&mut names),
            lines: BTreeMap::new(),
            senders: Senders::default(),
            at_work: AtWork::default(),
            former: Conversations::default(),
            below: BTreeSet::new(),
            timers: BTreeSet::new(),
            agent_wakes: BTreeSet::new(),
            rng: Rng::new(seed).split("backoff"),
            now: Time::ZERO,
            accepted: 0,
            shutting_down: false,
            durable: 0,
            answerable: BTreeSet::new(),
            touching: None,
            dirty: BTreeMap::new(),
            extra: Vec::new(),
            passing: BTreeMap::new(),
            kept: Vec::new(),
            outboxes: Outboxes::default(),
            beside: Vec::new(),
            leaving: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Decides about one input.
    pub(crate) fn handle(&mut self, input: &Input) {
        match input {
            Input::Submitted(submission) => {
                self.touching = Some(submission.task);
                self.submitted(submission);
            }
            Input::LineClosed { line } => self.line_closed(*line),
            Input::Progressed { task, attempt, progress } => {
                self.touching = Some(*task);
                self.wake(*task);
                self.progressed(*task, *attempt, progress);
            }
            Input::Ended { task, attempt, outcome } => {
                self.touching = Some(*task);
                self.wake(*task);
                self.ended(*task, *attempt, outcome);
            }
            Input::CancelAsked { line, principal, agent, task } => {
                self.touching = Some(*task);
                self.wake(*task);
                self.cancel_asked(*line, principal, agent, *task);
            }
            Input::Dropped { line, task } => {
                self.touching = Some(*task);
                self.wake(*task);
                self.drop_asked(*line, *task);
            }
            Input::CancelAnswered { task, answer } => {
                self.touching = Some(*task);
                self.wake(*task);
                self.cancel_answered(*task, *answer);
            }
            Input::WorkAsked { line, agent, waits } => self.work_asked(*line, agent, *waits),
            Input::Told { task, turn, written } => self.told(*task, *turn, *written),
            Input::Acknowledged { line, owner, up_to } => self.acknowledged(*line, owner, *up_to),
            Input::OutboxesAged { before } => self.age_outboxes(*before),
            Input::Configured(settings) => self.configured(settings.clone()),
            Input::BreakerReset { agent } => {
                let now = self.now;
                if let Some(agent) = self.agents.get_mut(agent) {
                    agent.breaker.reset(now);
                    agent.pacing.clear();
                }
                self.pump(agent);
            }
            Input::Stalled { gap } => {
                for agent in self.agents.values_mut() {
                    agent.breaker.shift(*gap);
                    agent.pacing.shift(*gap);
                }
                self.rewake_all();
            }
            Input::ShuttingDown => self.shut_down(),
        }
        self.touching = None;
    }

    /// Looks at every agent whose time has come. Before the inputs of a step: what they start at an agent takes its wake-up
    /// away, as if nobody had waited for that.
    pub(crate) fn wake_agents(&mut self) {
        while let Some((at, id)) = self.agent_wakes.pop_first() {
            if at > self.now {
                self.agent_wakes.insert((at, id));
                return;
            }
            if let Some(agent) = self.agents.get_mut(&id) {
                agent.wake = None;
            }
            self.pump(&id);
        }
    }

    /// Carries out at most one due timer; false if none is due.
    pub(crate) fn tick(&mut self) -> bool {
        let Some((at, task, timer)) = self.timers.first().filter(|(at, _, _)| *at <= self.now).copied() else {
            return false;
        };
        self.timers.remove(&(at, task, timer));
        self.touching = Some(task);
        self.wake(task);
        if let Some(live) = self.live.get_mut(&task) {
            live.timers[timer as usize] = None;
            match timer {
                Timer::Wait => self.waits_ended(task),
                Timer::Deadline => self.deadline_passed(task),
                Timer::Retry => self.advance(task),
                Timer::CancelWait => self.cancel_waited(task),
                Timer::CancelGiveUp => self.cancel_given_up(task),
                Timer::LockGrace => self.hold_ended(task),
                Timer::Interrupted => self.interrupted_too_long(task),
                Timer::Linger => self.let_go(task),
                Timer::TakenAlong => self.taken_along(task),
            }
        }
        self.touching = None;
        true
    }

    /// When the next timer is due.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        let agent = self.agent_wakes.first().map(|(at, _)| *at);
        let task = self.timers.first().map(|(at, _, _)| *at);
        [agent, task].into_iter().flatten().min()
    }

    // ---- collecting --------------------------------------------------------------------------------------------

    /// The row has to be written.
    pub(crate) fn save(&mut self, task: TaskId) {
        self.dirty(task);
    }

    /// The row and the task's record have to be written.
    pub(crate) fn save_record(&mut self, task: TaskId) {
        self.dirty(task).record = true;
    }

    /// The row and the current turn's message have to be written.
    pub(crate) fn save_message(&mut self, task: TaskId) {
        self.dirty(task).message = true;
    }

    pub(crate) fn dirty(&mut self, task: TaskId) -> &mut Dirty {
        let volatile = self.live.get(&task).is_some_and(|live| live.is_volatile());
        if volatile { &mut self.passing } else { &mut self.dirty }.entry(task).or_default()
    }

    /// Something else has to be kept with this task.
    pub(crate) fn save_beside(&mut self, task: TaskId, save: Save) {
        let volatile = self.live.get(&task).is_some_and(|live| live.is_volatile());
        if volatile { &mut self.kept } else { &mut self.extra }.push(save);
    }

    /// The commit that has the latest save of this task. None is needed for what is not in memory: nothing leaves it
    /// before all about it is durable.
    pub(crate) fn saved_in(&self, task: TaskId) -> u64 {
        self.live.get(&task).map_or(0, |live| live.saved_in)
    }

    /// Everything decided about this task is on disk.
    pub(crate) fn is_durable(&self, task: TaskId) -> bool {
        let waits = self.dirty.contains_key(&task) || self.passing.contains_key(&task);
        self.saved_in(task) <= self.durable && !waits
    }

    /// An output that stands on what is saved of this task.
    pub(crate) fn emit(&mut self, task: TaskId, output: Output) {
        self.out.push((Some(task), output));
    }

    /// An answer that stands on nothing.
    pub(crate) fn answer(&mut self, line: LineId, answer: Answer) {
        self.lines.remove(&line);
        self.out.push((None, Output::Answer { line, answer }));
    }

    pub(crate) fn refuse_line(&mut self, line: LineId, agent: &AgentId, reason: Reason, again: Option<Time>) {
        self.answer(line, Answer::Refused(Refusal { reason, agent: agent.clone(), again, cause: None }));
    }

    pub(crate) fn set_timer(&mut self, task: TaskId, timer: Timer, at: Option<Time>) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let slot = &mut live.timers[timer as usize];
        if let Some(old) = slot.take() {
            self.timers.remove(&(old, task, timer));
        }
        if let Some(at) = at.filter(|at| *at < Time::FAR) {
            *slot = Some(at);
            self.timers.insert((at, task, timer));
        }
    }

    // ---- agents ------------------------------------------------------------------------------------------------

    /// The lock that this delegation's turns need, if any.
    pub(crate) fn lock_key(&self, task: TaskId) -> Option<ContextKey> {
        let row = &self.live.get(&task)?.row;
        match self.agents.get(&row.agent)?.settings.serialize {
            Serialize::None => None,
            Serialize::Context => Some(context_key(&row.principal, &row.agent, &row.context)),
            Serialize::Agent => self.agent_lock(&row.agent),
        }
    }

    /// The lock on all of an agent's work, if it does one thing at a time.
    pub(crate) fn agent_lock(&self, id: &AgentId) -> Option<ContextKey> {
        let serialize = self.agents.get(id)?.settings.serialize;
        (serialize == Serialize::Agent).then(|| ContextKey::whole_agent(id))
    }

    /// Starts what may start at this agent now, and tells who has waited long enough.
    pub(crate) fn pump(&mut self, id: &AgentId) {
        let now = self.now;
        let expired = match self.agents.get_mut(id) {
            Some(agent) => {
                let expired = agent.bulkhead.expire(now);
                let tasks: Vec<TaskId> = expired.iter().filter_map(|ticket| agent.tickets.remove(ticket)).collect();
                tasks
            }
            None => return,
        };
        for task in expired {
            if let Some(live) = self.live.get_mut(&task) {
                live.place = Place::None;
                self.turn_refused(task, Reason::BulkheadFull, None);
            }
        }
        while !self.shutting_down && self.start_next(id) {}
        // What was just started may have been a trial, which nobody waits for.
        self.turn_away_line(id);
        self.rewake(id);
    }

    /// While traffic is kept away, nobody waits in the short line.
    fn turn_away_line(&mut self, id: &AgentId) {
        let now = self.now;
        let Some(agent) = self.agents.get_mut(id) else { return };
        if agent.tickets.is_empty() {
            return;
        }
        let (reason, again) = match agent.closed_until(now) {
            None if self.shutting_down => (Reason::ShuttingDown, None),
            None => return,
            Some(Closed::Breaker(until)) => (Reason::BreakerOpen, until),
            Some(Closed::Pacing(until)) => (Reason::AgentPacing, Some(until)),
            Some(Closed::Draining(until)) => (Reason::AgentDraining, Some(until)),
            Some(Closed::Asleep(_) | Closed::NoWorker) => return self.line_to_queue(id),
        };
        let tickets = std::mem::take(&mut agent.tickets);
        for ticket in tickets.keys() {
            agent.bulkhead.abandon(*ticket);
        }
        for task in tickets.into_values() {
            if let Some(live) = self.live.get_mut(&task) {
                live.place = Place::None;
                self.turn_refused(task, reason, again);
            }
        }
    }

    /// Gives one free slot to the next in line or queue, in turns. False if there is none to give or to take.
    fn start_next(&mut self, id: &AgentId) -> bool {
        let now = self.now;
        let Some(agent) = self.agents.get_mut(id) else { return false };
        if agent.closed_until(now).is_some() {
            return false;
        }
        let from_queue = agent.queue_next || agent.tickets.is_empty();
        let free = agent.bulkhead.in_flight() < agent.bulkhead.params().max_in_flight;
        let queued = if from_queue && free { self.next_queued(id) } else { None };
        let Some(agent) = self.agents.get_mut(id) else { return false };
        let task = match queued {
            Some(task) if agent.bulkhead.try_acquire() => Some(task),
            Some(_) => None,
            None => agent.bulkhead.grant(now).and_then(|ticket| agent.tickets.remove(&ticket)),
        };
        let Some(task) = task else { return false };
        agent.queue_next = queued.is_none();
        if let Some(live) = self.live.get_mut(&task) {
            live.place = Place::None;
            live.slot = true;
            self.dispatch(task);
        }
        true
    }

    /// Puts the agent's next wake-up into the index.
    pub(crate) fn rewake(&mut self, id: &AgentId) {
        let now = self.now;
        let Some(agent) = self.agents.get_mut(id) else { return };
        let next = agent.next_wake(now);
        if next == agent.wake {
            return;
        }
        if let Some(old) = std::mem::replace(&mut agent.wake, next) {
            self.agent_wakes.remove(&(old, id.clone()));
        }
        if let Some(at) = next {
            self.agent_wakes.insert((at, id.clone()));
        }
    }

    fn rewake_all(&mut self) {
        let ids: Vec<AgentId> = self.agents.keys().cloned().collect();
        for id in ids {
            self.rewake(&id);
        }
    }

    /// Tells the breaker how an attempt ended. An ejection turns the short line away at once; a trial that told nothing,
    /// or went well, lets the next one start.
    pub(crate) fn sample(&mut self, task: TaskId, sample: Sample) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        let (probe, begun, id) = (live.probe.take(), live.dispatched, live.row.agent.clone());
        let caller = caller_number(&live.row.principal);
        let Some(agent) = self.agents.get_mut(&id) else { return };
        // What fails while it is drained says nothing of how it will be when it is back.
        let sample = if agent.settings.drain.is_some() { Sample::Neutral } else { sample };
        agent.breaker.record_begun(now, begun.unwrap_or(now), caller, sample, probe);
        self.pump(&id);
    }

    fn configured(&mut self, settings: Arc<Settings>) {
        for (id, agent) in &mut self.agents {
            agent.removed = !settings.agents.contains_key(id);
            // Nobody would resume it any more.
            agent.settings.drain = agent.settings.drain.filter(|_| !agent.removed);
        }
        for (id, agent) in &settings.agents {
            match self.agents.get_mut(id) {
                Some(known) => known.configure(agent.clone()),
                None => {
                    self.agents.insert(id.clone(), Agent::new(agent.clone()));
                }
            }
        }
        self.rates.set_params(settings.rate);
        self.settings = settings;
        let ids: Vec<AgentId> = self.agents.keys().cloned().collect();
        for id in ids {
            self.send_workers_home(&id);
            self.watch_suspended(&id);
            self.pump(&id);
        }
    }

    /// Nothing new starts; who waits for a slot is told; what runs goes on until the process ends.
    fn shut_down(&mut self) {
        self.shutting_down = true;
        let ids: Vec<AgentId> = self.agents.keys().cloned().collect();
        for id in ids {
            self.turn_away_line(&id);
        }
        let unaccepted: Vec<TaskId> =
            self.live.iter().filter(|(_, live)| !live.accepted).map(|(task, _)| *task).collect();
        for task in unaccepted {
            self.turn_refused(task, Reason::ShuttingDown, None);
        }
        let waited_for: Vec<TaskId> =
            self.live.iter().filter(|(_, live)| !live.behind.is_empty()).map(|(task, _)| *task).collect();
        for task in waited_for {
            self.refuse_behind(task, Reason::ShuttingDown);
        }
    }

    // ---- memory ------------------------------------------------------------------------------------------------

    /// Starts the time after which a terminal delegation leaves memory.
    ///
    /// One that is kept in memory alone goes at once, unless somebody may want to follow it: whoever looks it up asks in the
    /// same turn in which it leaves, so nothing falls in between.
    pub(crate) fn linger(&mut self, task: TaskId) {
        if self.live.get(&task).is_some_and(|live| live.is_volatile() && !live.lingers) {
            return self.leaving.push(task);
        }
        let at = self.now + LINGER;
        self.set_timer(task, Timer::Linger, Some(at));
    }

    /// The end of the step: those go for which nothing is owed.
    pub(crate) fn leave(&mut self) -> Vec<TaskId> {
        let over = std::mem::take(&mut self.leaving);
        let (stay, go): (Vec<_>, Vec<_>) =
            over.into_iter().partition(|task| self.live.get(task).is_none_or(|live| live.is_owed()));
        for task in stay {
            let at = self.now + LINGER;
            self.set_timer(task, Timer::Linger, Some(at));
        }
        go
    }

    /// A terminal delegation for which nothing is owed leaves memory; the store answers for it from now on.
    fn let_go(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        if live.is_owed() || !self.is_durable(task) || !live.row.state.is_terminal() {
            let at = self.now + LINGER;
            return self.set_timer(task, Timer::Linger, Some(at));
        }
        self.emit(task, Output::Forget { task });
        self.remove(task);
    }

    /// Drops everything that points to a delegation.
    pub(crate) fn remove(&mut self, task: TaskId) {
        for timer in Timer::ALL {
            self.set_timer(task, timer, None);
        }
        self.leave_parent(task);
        let Some(live) = self.live.remove(&task) else { return };
        self.note_work(task);
        let key = context_key(&live.row.principal, &live.row.agent, &live.row.context);
        self.context_unref(&key);
        self.dirty.remove(&task);
        self.passing.remove(&task);
        for key in live.keys {
            if self.keys.at(key).is_some_and(|used| used.task == task) {
                self.keys.remove(key);
            }
        }
    }

    pub(crate) fn context_unref(&mut self, key: &ContextKey) {
        if let Some(context) = self.contexts.get_mut(key) {
            context.refs = context.refs.saturating_sub(1);
        }
        self.forget_unused(key);
    }

    /// A context in which nobody works, and nobody waits, is forgotten.
    pub(crate) fn forget_unused(&mut self, key: &ContextKey) {
        let hash = self.contexts.hash(key);
        if self.contexts.at(hash).is_some_and(Context::is_unused) {
            self.contexts.remove(hash);
        }
    }

    /// Why a waiting turn waits, for people.
    pub(crate) fn waits_on(&mut self, task: TaskId, reason: Reason) {
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.row.turn.waiting_on != Some(reason) {
            live.row.turn.waiting_on = Some(reason);
            if live.accepted && live.row.turn.phase == Phase::Waiting {
                self.save(task);
            }
        }
    }
}

pub(crate) fn context_key(principal: &Principal, agent: &AgentId, context: &Arc<str>) -> ContextKey {
    ContextKey { principal: principal.clone(), agent: agent.clone(), context: context.clone() }
}

/// A stable number for a caller, for the breaker's share per caller.
fn caller_number(principal: &Principal) -> u64 {
    rng::fnv1a(principal.tenant.bytes().chain([0]).chain(principal.caller.bytes()))
}

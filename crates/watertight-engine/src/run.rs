//! A turn runs: dispatched after its commit, watched, and ended by the agent's word, by a fault, or by us. The verdict
//! is saved first; what has to be told to the agent is owed from the same commit on.

use watertight_policy::acceptance::{Verdict, judge};
use watertight_policy::breaker::{Gate, Sample};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::engine::{Engine, context_key};
use crate::ids::{Attempt, RemoteId, TaskId};
use crate::input::{Fault, Outcome, Progress, Reply};
use crate::live::{Class, Timer};
use crate::output::{Answer, Dispatch, Output};
use crate::record::{Cancel, Delivery, Outbox, Phase, Save, TaskState};
use crate::tree::ends_its_children;

impl Engine {
    /// The turn has a slot: its row says `dispatching` from the commit on that the send stands on.
    pub(crate) fn dispatch(&mut self, task: TaskId) {
        let now = self.now;
        self.accept(task);
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.row.remote_context.is_none() {
            // Learnt meanwhile, by another message of the context.
            let key = context_key(&live.row.principal, &live.row.agent, &live.row.context);
            live.row.remote_context = self.contexts.get(&key).and_then(|context| context.remote.clone());
        }
        let fetches = self.agents.get(&live.row.agent).is_some_and(|agent| agent.settings.fetches);
        let turn = &mut live.row.turn;
        live.floated = turn.runs_for;
        // What nobody has begun with may go back to waiting, also after a crash.
        turn.runs_for = live.floated.filter(|_| fetches);
        if let Some(runs_for) = live.floated {
            turn.budget.deadline = now + runs_for;
        }
        let untried = turn.times.sent.is_none();
        turn.phase = Phase::Dispatching;
        turn.waiting_on = fetches.then_some(Reason::NoWorker);
        turn.attempts += 1;
        turn.times.sent = Some(now);
        if turn.attempts == 1 && untried {
            // What is known of the delivery is known of this turn.
            live.row.delivery = Delivery::NotSent;
        }
        live.row.attempt = Attempt(live.row.attempt.0 + 1);
        live.waited = live.wants.take().map_or(Span::ZERO, |since| now.since(since));
        live.dispatched = Some(now);
        live.heard = false;
        live.attempting = true;
        let deadline = turn.budget.deadline;
        let id = live.row.agent.clone();
        if let Some(agent) = self.agents.get_mut(&id) {
            if live.row.turn.attempts == 1 {
                agent.retries.deposit(now);
            }
            if agent.breaker.gate(now) == Gate::Probe {
                live.probe = Some(agent.breaker.begin_probe(now));
            }
        }
        self.save(task);
        self.set_timer(task, Timer::Retry, None);
        self.set_timer(task, Timer::Deadline, Some(deadline));
        if let Some(dispatch) = self.dispatch_of(task) {
            self.emit(task, Output::Send(dispatch));
        }
        self.give(task);
        self.note_work(task);
        self.rewake(&id);
    }

    /// What goes out for the current turn.
    pub(crate) fn dispatch_of(&self, task: TaskId) -> Option<Dispatch> {
        let row = &self.live.get(&task)?.row;
        Some(Dispatch {
            task,
            turn: row.turn.no,
            attempt: row.attempt,
            agent: row.agent.clone(),
            remote_task: row.remote_task.clone(),
            remote_context: row.remote_context.clone(),
            root: row.root,
            budget: row.turn.budget,
            deadline: row.turn.budget.deadline,
        })
    }

    /// The attempt learnt the agent's ids, or saw its state change.
    pub(crate) fn progressed(&mut self, task: TaskId, attempt: Attempt, progress: &Progress) {
        self.learn(task, attempt, progress.remote_task.as_ref(), progress.remote_context.as_ref());
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.row.attempt != attempt || !live.attempting {
            return;
        }
        live.heard = true;
        if live.row.state.is_terminal() {
            // Cut already. Its id may just have become known, and with it whom to cancel.
            return self.cancel_if_owed(task);
        }
        live.begun();
        live.row.turn.phase = Phase::Running;
        live.row.turn.times.heard(now);
        live.row.delivery = Delivery::Delivered;
        if let Some(state) = progress.state.filter(|state| !state.is_terminal() && !state.is_interrupted()) {
            // An agent that says "submitted" after "working" does not unsay it.
            live.row.state = state.max(live.row.state.min(TaskState::Working));
        }
        live.row.changed = now;
        let state = live.row.state;
        self.is_awake(task);
        self.save_record(task);
        self.emit(task, Output::Publish { task, seq: progress.seq, state });
        self.cancel_if_owed(task);
    }

    /// Keeps the agent's ids: from the first one on a restart can ask how the task stands.
    fn learn(&mut self, task: TaskId, attempt: Attempt, id: Option<&RemoteId>, context: Option<&RemoteId>) {
        let Some(live) = self.live.get_mut(&task).filter(|live| live.accepted && live.attempting) else { return };
        if live.row.attempt != attempt {
            return;
        }
        if let Some(id) = id.filter(|id| live.row.remote_task.as_ref() != Some(*id)) {
            live.row.remote_task = Some(id.clone());
            self.save(task);
        }
        let Some(live) = self.live.get_mut(&task) else { return };
        if let Some(remote) = context.filter(|context| live.row.remote_context.as_ref() != Some(*context)) {
            live.row.remote_context = Some(remote.clone());
            let key = context_key(&live.row.principal, &live.row.agent, &live.row.context);
            if let Some(context) = self.contexts.get_mut(&key) {
                context.remote = Some(remote.clone());
            }
            self.save(task);
            self.save_beside(task, Save::Context { key, remote: remote.clone() });
        }
        self.note_work(task);
    }

    /// The attempt is over.
    pub(crate) fn ended(&mut self, task: TaskId, attempt: Attempt, outcome: &Outcome) {
        if let Outcome::Replied(reply) = outcome {
            self.learn(task, attempt, reply.remote_task.as_ref(), reply.remote_context.as_ref());
        }
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.row.attempt != attempt || !live.attempting {
            return;
        }
        live.attempting = false;
        match (live.row.state.is_terminal(), outcome) {
            (false, Outcome::Replied(reply)) => self.replied(task, reply),
            (false, Outcome::Failed(fault)) => self.failed(task, *fault),
            (false, Outcome::Withheld) => self.withheld(task),
            (true, Outcome::Replied(reply)) => self.replied_late(task, reply.state),
            (true, Outcome::Failed(_) | Outcome::Withheld) => self.quiet_if_done(task),
        }
    }

    fn replied(&mut self, task: TaskId, reply: &Reply) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        live.heard = true;
        live.begun();
        live.row.turn.times.heard(now);
        live.row.delivery = Delivery::Delivered;
        live.row.reply = reply.kind;
        live.row.turn.result = reply.digest;
        let took = live.dispatched.map_or(Span::ZERO, |at| now.since(at));
        if live.row.cancel == Cancel::Owed && reply.state.is_terminal() {
            live.row.cancel = if reply.state == TaskState::Canceled { Cancel::Confirmed } else { Cancel::Refused };
        }
        let acceptance = self.agents.get(&live.row.agent).map(|agent| agent.settings.acceptance).unwrap_or_default();
        let (state, reason) = match judge(&acceptance, &reply.measure) {
            Verdict::Accept | Verdict::NotAResult => (reply.state, None),
            Verdict::Reject(reason) => (TaskState::Failed, Some(reason)),
        };
        self.is_awake(task);
        // How long it took says how healthy the agent is, whatever its answer was worth.
        self.sample(task, Sample::Success { took });
        self.settle(task, state, reason);
        self.release(task);
        // It asks back while its caller wants it to stop.
        self.cancel_if_owed(task);
    }

    fn failed(&mut self, task: TaskId, fault: Fault) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.is_offered() && fault.reason == Reason::NoWorker {
            self.sample(task, Sample::Neutral);
            return self.put_back(task, Time::ZERO);
        }
        let id = live.row.agent.clone();
        live.row.delivery = live.row.delivery.max(fault.delivery);
        let took = live.dispatched.map_or(Span::ZERO, |at| now.since(at));
        let (canceled, asking) = (live.row.cancel == Cancel::Owed, live.canceling);
        if let (Some(wait), Some(agent)) = (fault.retry_after, self.agents.get_mut(&id)) {
            agent.pacing.hint(now, wait);
        }
        let asleep = !canceled && self.falls_asleep(task, fault);
        if fault.busy || !asleep && fault.delivery != Delivery::NotSent {
            self.is_awake(task);
        }
        let neutral = asleep || fault.busy;
        self.sample(task, if neutral { Sample::Neutral } else { sample_of(fault.reason, took) });
        if fault.reason == Reason::Forbidden {
            self.not_tried(task);
        }
        if canceled {
            // The caller wanted no result, and there will be none. If the agent is still being asked to stop, its
            // answer is waited for.
            if let (false, Some(live)) = (asking, self.live.get_mut(&task)) {
                live.row.cancel = Cancel::Unknown;
            }
            self.settle(task, TaskState::Canceled, Some(Reason::Canceled));
            if !asking {
                self.set_timer(task, Timer::CancelGiveUp, None);
                self.release_unsure(task);
            }
            return;
        } else if asleep || self.is_unknown_and_repeatable(task, fault) {
            return self.put_back(task, Time::ZERO);
        } else if self.still_busy(task, fault) || self.dropped(task, fault) {
            return;
        } else if !self.retry(task, fault) {
            // Whoever may not call the agent any more cannot answer it either: what it asks is over with the task.
            if fault.reason != Reason::Forbidden && self.asks_again(task, fault.reason) {
                return;
            }
            let known = self.live.get(&task).is_some_and(|live| live.row.remote_task.is_some());
            if known && may_go_on(fault.reason) {
                return self.cut(task, TaskState::Failed, fault.reason);
            }
            self.settle(task, TaskState::Failed, Some(fault.reason));
            return self.release_unsure(task);
        }
        self.release(task);
    }

    /// Nothing was sent, since nobody can say whether it may be. Unless its caller wants it no more, that is asked again.
    fn withheld(&mut self, task: TaskId) {
        let canceled = self.live.get(&task).is_some_and(|live| live.row.cancel == Cancel::Owed);
        if canceled {
            let none = Fault { reason: Reason::Canceled, delivery: Delivery::NotSent, retry_after: None, busy: false };
            return self.failed(task, none);
        }
        self.sample(task, Sample::Neutral);
        self.not_tried(task);
        self.put_back(task, self.now + WITHHELD);
    }

    /// The agent was not asked: how long that took says nothing of it.
    fn not_tried(&mut self, task: TaskId) {
        if let Some(live) = self.live.get_mut(&task) {
            live.dispatched = None;
        }
    }

    /// It was asked what came of the message, and nobody knows; to this agent it may as well be sent again.
    fn is_unknown_and_repeatable(&self, task: TaskId, fault: Fault) -> bool {
        let Some(live) = self.live.get(&task) else { return false };
        let idempotent = self.agents.get(&live.row.agent).is_some_and(|agent| agent.settings.idempotent);
        idempotent && fault.reason == Reason::OutcomeUnknown && live.row.remote_task.is_none()
    }

    /// Sends the turn back to wait for another try; false if there is none to be had.
    fn retry(&mut self, task: TaskId, fault: Fault) -> bool {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return false };
        let Some(agent) = self.agents.get_mut(&live.row.agent) else { return false };
        let safe = live.row.delivery == Delivery::NotSent
            || agent.settings.idempotent && live.row.delivery == Delivery::MaybeDelivered;
        let allowed = live.row.turn.attempts < agent.settings.attempts && is_transient(fault.reason);
        if !safe || !allowed || self.shutting_down {
            return false;
        }
        let delay = agent.settings.backoff.delay(live.row.turn.attempts, &mut self.rng);
        let not_before = (now + delay).max(agent.pacing.until(now).unwrap_or(Time::ZERO));
        if not_before >= live.row.turn.budget.deadline || !agent.retries.try_withdraw(now) {
            return false;
        }
        live.row.turn.phase = Phase::Waiting;
        live.row.turn.not_before = not_before;
        live.class = Class::Queue;
        let (expires, id) = (live.row.turn.budget.deadline, live.row.agent.clone());
        self.save(task);
        self.note_work(task);
        self.set_timer(task, Timer::Deadline, Some(expires));
        self.release_slot(task);
        self.release_agent_lock(task);
        self.advance(task);
        self.pump(&id);
        true
    }

    /// The turn's end is known: saved, told to its callers, shown to its readers.
    pub(crate) fn settle(&mut self, task: TaskId, state: TaskState, reason: Option<Reason>) {
        let now = self.now;
        self.leave_place(task);
        let Some(live) = self.live.get_mut(&task) else { return };
        live.row.state = state;
        live.row.asked = None;
        live.row.reason = reason;
        live.row.changed = now;
        live.row.turn.phase = Phase::Ended;
        live.row.turn.waiting_on = None;
        live.row.turn.not_before = Time::ZERO;
        let (took, waited) = (live.dispatched.map(|at| now.since(at)), live.waited);
        live.wants = None;
        if let Some(agent) = self.agents.get_mut(&live.row.agent) {
            agent.suspended.remove(&task);
        }
        let lines = std::mem::take(&mut live.lines);
        // While a cancel is out for a task that asks, its callers wait for what comes of it.
        let stops = state.is_interrupted() && live.row.cancel == Cancel::Owed;
        let cancel_lines = if stops { Vec::new() } else { std::mem::take(&mut live.cancel_lines) };
        let is_probe = live.probe.is_some();
        let ends_children = ends_its_children(&live.row);
        let receipt = (live.row.outbox != Outbox::None).then_some(live.row.turn.no);
        self.note_work(task);
        self.note_former(task);
        self.save_record(task);
        self.notify(task, lines.len());
        self.emit(task, Output::Settled { task, state, reason, took, waited });
        for line in lines {
            self.lines.remove(&line.id);
            let answer = Answer::Task { task, replay: line.replay, receipt };
            self.emit(task, Output::Answer { line: line.id, answer });
        }
        for line in cancel_lines {
            self.lines.remove(&line);
            let answer = match state {
                TaskState::Completed | TaskState::Failed | TaskState::Rejected => Answer::NotCancelable,
                TaskState::Canceled
                | TaskState::Submitted
                | TaskState::Working
                | TaskState::InputRequired
                | TaskState::AuthRequired => Answer::Task { task, replay: false, receipt: None },
            };
            self.emit(task, Output::Answer { line, answer });
        }
        for timer in [Timer::Deadline, Timer::Retry] {
            self.set_timer(task, timer, None);
        }
        if !stops {
            self.set_timer(task, Timer::CancelWait, None);
        }
        if state.is_terminal() {
            self.accepted = self.accepted.saturating_sub(1);
            self.set_timer(task, Timer::Interrupted, None);
            self.end_behind(task);
            self.leave_parent(task);
            if ends_children {
                self.take_along(task);
            }
            self.linger(task);
        } else {
            self.await_caller(task);
        }
        self.set_wait_timer(task);
        if is_probe {
            // Whatever ended it, nothing was learnt of the agent's health: the next one is the trial.
            self.sample(task, Sample::Neutral);
        }
        if let Some(live) = self.live.get_mut(&task) {
            // They are this turn's: the next one may end without having begun.
            (live.dispatched, live.waited) = (None, Span::ZERO);
        }
    }

    /// The task asks its caller for something, for as long as that may take from its last change on.
    pub(crate) fn await_caller(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        let limit = self.agents.get(&live.row.agent).map_or(Span::ZERO, |agent| agent.settings.interrupted_max);
        let at = live.row.changed + limit;
        self.set_timer(task, Timer::Interrupted, Some(at));
    }

    /// Gives back what the turn held, and lets the next one go on.
    pub(crate) fn release(&mut self, task: TaskId) {
        let waits = self.live.get(&task).is_some_and(|live| live.row.turn.phase == Phase::Waiting);
        if waits {
            return;
        }
        self.release_slot(task);
        self.release_lock(task);
        self.next_behind(task);
        if let Some(id) = self.live.get(&task).map(|live| live.row.agent.clone()) {
            self.pump(&id);
        }
    }

    /// Likewise, when nobody knows whether the agent is still at it. A session that is one alone is not given the next
    /// thing meanwhile.
    pub(crate) fn release_unsure(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        let settings = self.agents.get(&live.row.agent).map(|agent| &agent.settings).filter(|s| s.native_session);
        let grace = settings.map(|settings| settings.context_grace);
        let holds =
            live.row.delivery != Delivery::NotSent && live.lock.is_some() && live.row.turn.phase == Phase::Ended;
        match grace.filter(|_| holds) {
            Some(grace) => {
                self.release_slot(task);
                self.hold_until(task, self.now + grace);
            }
            None => self.release(task),
        }
    }

    /// Its lock is given back then. A session that is one alone is also kept by the next engine.
    pub(crate) fn hold_until(&mut self, task: TaskId, at: Time) {
        self.set_timer(task, Timer::LockGrace, Some(at));
        let Some(live) = self.live.get_mut(&task) else { return };
        let native = self.agents.get(&live.row.agent).is_some_and(|agent| agent.settings.native_session);
        if native && live.row.state.is_terminal() && live.row.turn.not_before != at {
            live.row.turn.not_before = at;
            self.save(task);
        }
    }

    /// It has been held for long enough.
    pub(crate) fn hold_ended(&mut self, task: TaskId) {
        if let Some(live) = self.live.get_mut(&task).filter(|live| live.row.holds_until().is_some()) {
            live.row.turn.not_before = Time::ZERO;
            self.save(task);
        }
        self.release_lock(task);
    }

    pub(crate) fn release_slot(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let held = std::mem::take(&mut live.slot);
        if let (true, Some(agent)) = (held, self.agents.get_mut(&live.row.agent)) {
            agent.bulkhead.release();
        }
    }

    // ---- our own verdicts --------------------------------------------------------------------------------------

    /// The turn's budget is spent, or it waited too long for its start.
    pub(crate) fn deadline_passed(&mut self, task: TaskId) {
        let now = self.now;
        self.withdraw_offer(task);
        let Some(live) = self.live.get_mut(&task) else { return };
        match live.row.turn.phase {
            Phase::Waiting if !live.accepted => self.turn_refused(task, Reason::BudgetExhausted, None),
            Phase::Waiting => {
                let untried = live.row.turn.is_untried();
                let reason = if untried { Reason::Expired } else { Reason::DeadlineExceeded };
                if !self.asks_again(task, reason) {
                    self.end_waiting(task, TaskState::Failed, reason);
                }
            }
            Phase::Dispatching | Phase::Running => {
                let waited = live.dispatched.map_or(Span::ZERO, |at| now.since(at));
                let reason = match live.heard || live.row.delivery == Delivery::Delivered {
                    true => Reason::DeadlineExceeded,
                    false => Reason::AgentNoAnswer,
                };
                live.row.delivery = live.row.delivery.max(Delivery::MaybeDelivered);
                self.sample(task, Sample::Cut { waited });
                self.cut(task, TaskState::Failed, reason);
            }
            Phase::Ended => {}
        }
    }

    /// Ends a task whose turn waits and will not start. An agent that has the task from before is told.
    pub(crate) fn end_waiting(&mut self, task: TaskId, state: TaskState, reason: Reason) {
        if self.live.get(&task).is_some_and(|live| live.row.remote_task.is_some()) {
            return self.cut(task, state, reason);
        }
        self.settle(task, state, Some(reason));
        self.release(task);
    }

    /// Ends the turn for its callers while the agent may still be at it: the cancel is owed from this commit on, and
    /// the slot is held until the agent is known to be quiet, or has had its time to say so.
    pub(crate) fn cut(&mut self, task: TaskId, state: TaskState, reason: Reason) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        live.row.cancel = Cancel::Owed;
        let grace = self.agents.get(&live.row.agent).map_or(Span::ZERO, |agent| agent.settings.cancel_grace);
        self.settle(task, state, Some(reason));
        let running = self.live.get(&task).and_then(|live| live.timers[Timer::CancelGiveUp as usize]);
        self.set_timer(task, Timer::CancelGiveUp, Some(running.unwrap_or(now + grace)));
        self.cancel_if_owed(task);
        self.quiet_if_done(task);
    }

    /// The caller did not answer the agent's question in time.
    pub(crate) fn interrupted_too_long(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        if !live.row.state.is_interrupted() || live.row.turn.phase != Phase::Ended {
            return;
        }
        self.cut(task, TaskState::Failed, Reason::Expired);
    }

    /// A result came after the verdict: kept beside it. The agent is quiet now.
    fn replied_late(&mut self, task: TaskId, state: TaskState) {
        let Some(live) = self.live.get_mut(&task) else { return };
        if !state.is_terminal() {
            // It asks back, or wants a credential: it is not at work, but not done either.
            self.cancel_if_owed(task);
            return self.quiet_if_done(task);
        }
        live.row.late = live.row.late.or(Some(state));
        if live.row.cancel == Cancel::Owed {
            live.row.cancel = if state == TaskState::Canceled { Cancel::Confirmed } else { Cancel::Refused };
        }
        self.save(task);
        self.quiet(task, true);
    }
}

/// Until it is asked again whether a message may be sent.
const WITHHELD: Span = Span::from_secs(1);

/// We did not hear from the agent, or did not understand it.
pub(crate) const LOST: [Reason; 10] = [
    Reason::AgentConnectRefused,
    Reason::AgentConnectTimeout,
    Reason::AgentDnsFailure,
    Reason::AgentTlsFailure,
    Reason::AgentReset,
    Reason::AgentNoAnswer,
    Reason::AgentHttpError,
    Reason::AgentTruncated,
    Reason::AgentMalformed,
    Reason::AgentUnreachable,
];

/// What a fault says about the agent's health.
fn sample_of(reason: Reason, took: Span) -> Sample {
    let answered = [Reason::AgentError, Reason::AgentUnauthorized, Reason::AgentRejectedRequest];
    if answered.contains(&reason) {
        // What it said is about the request; the agent is well.
        Sample::Success { took }
    } else if LOST.contains(&reason) {
        Sample::Failure
    } else {
        Sample::Neutral
    }
}

/// An agent that has the task may still be at it, or wait for an answer that will not come. It is told.
fn may_go_on(reason: Reason) -> bool {
    LOST.contains(&reason) || matches!(reason, Reason::ResultTooLarge | Reason::Forbidden)
}

/// Another try may go better: a wrong certificate, a wrong answer and a dead agent stay what they are.
fn is_transient(reason: Reason) -> bool {
    let lasting = [Reason::AgentTlsFailure, Reason::AgentMalformed, Reason::AgentUnreachable];
    LOST.contains(&reason) && !lasting.contains(&reason) || reason == Reason::AgentRateLimited
}

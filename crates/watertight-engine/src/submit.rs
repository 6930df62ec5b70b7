//! A message arrives: dedupe, then the task that it names ([`crate::follow`]) or a new one, then the budget, then the
//! walls. Nothing is kept of what is refused: no attempt, no dedupe key, no row, and the parent gets its fan-out back.

use watertight_policy::budget::Budget;
use watertight_policy::bulkhead::Admission;
use watertight_policy::queue::HIGHEST;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::agent::Closed;
use crate::engine::{Engine, KeyUse, context_key};
use crate::ids::{Key, LineId, TaskId};
use crate::input::{Submission, Want};
use crate::live::{Class, Line, Live, Place, Timer};
use crate::output::{Answer, Output};
use crate::record::{NORMAL_PRIORITY, Phase, Row, Save, TaskState, Turn};

/// Keys of this many turns of one delegation are kept in memory.
const KEYS_IN_MEMORY: usize = 4;

/// A line takes no more twins than this: their answers are all the same, but each is memory.
const MAX_LINES: usize = 1_024;

impl Engine {
    pub(crate) fn submitted(&mut self, submission: &Submission) {
        let s = submission;
        self.wake_for(s, &key_of(s));
        if self.joins_earlier(s) {
            return;
        }
        if let Some(reason) = self.closed_to(s) {
            return self.refuse_line(s.line, &s.agent, reason, None);
        }
        match s.names {
            Some(named) => self.follow_up(s, named),
            None => self.new_delegation(s),
        }
    }

    /// The caller of a line is gone: what was accepted goes on; what nobody waits for any more does not start.
    pub(crate) fn line_closed(&mut self, line: LineId) {
        let Some(task) = self.lines.remove(&line) else { return self.worker_left(line) };
        let Some(live) = self.live.get_mut(&task) else { return };
        live.lines.retain(|l| l.id != line);
        live.cancel_lines.retain(|l| *l != line);
        live.behind.retain(|behind| behind.submission.line != line);
        if live.lines.is_empty() && !live.accepted {
            self.turn_refused(task, Reason::Canceled, None);
        } else {
            self.set_wait_timer(task);
        }
    }

    // ---- dedupe ------------------------------------------------------------------------------------------------

    /// True if the messageId was used before: the caller joins that turn, or is told of the conflict.
    fn joins_earlier(&mut self, s: &Submission) -> bool {
        let used = self.keys.get(&key_of(s)).copied();
        let (first, fingerprint) = match (used, s.known) {
            // What the store said of it may be older. Its own task it joins in any case: it was asked for again.
            (Some(used), _) if used.task != s.task && self.was_never_sent(used) => return false,
            (Some(used), _) => (used.task, used.fingerprint),
            (None, Some(known)) if !known.never_sent || known.task == s.task => (known.task, known.fingerprint),
            (None, _) => return false,
        };
        if fingerprint != s.fingerprint {
            self.answer(s.line, Answer::Conflict { first });
            return true;
        }
        let Some(live) = self.live.get_mut(&first) else {
            // Only the store knows it any more, so it is terminal, or its turn is long over.
            self.answer(s.line, Answer::Task { task: first, replay: true, receipt: None });
            return true;
        };
        let current = used.is_some_and(|used| used.turn == live.row.turn.no);
        let waits = current && live.row.turn.phase != Phase::Ended;
        let until = s.want.until();
        live.lingers |= s.want.may_follow();
        if waits && live.lines.len() >= MAX_LINES {
            self.refuse_line(s.line, &s.agent, Reason::CellOverloaded, None);
        } else if waits && (until.is_some() || !live.accepted) {
            live.lines.push(Line { id: s.line, until, replay: true });
            self.lines.insert(s.line, first);
            self.set_wait_timer(first);
        } else {
            self.emit(
                first,
                Output::Answer { line: s.line, answer: Answer::Task { task: first, replay: true, receipt: None } },
            );
        }
        true
    }

    fn was_never_sent(&self, used: KeyUse) -> bool {
        self.live.get(&used.task).is_some_and(|live| live.row.never_sent(used.turn))
    }

    /// Why nothing new is taken at all.
    fn closed_to(&self, s: &Submission) -> Option<Reason> {
        if self.shutting_down {
            return Some(Reason::ShuttingDown);
        }
        match self.agents.get(&s.agent) {
            None => Some(Reason::AgentUnknown),
            Some(agent) if agent.removed => Some(Reason::AgentDraining),
            // Answers to what tasks ask are taken all the same: they bring those to an end.
            Some(_) if s.names.is_none() && self.accepted >= self.settings.max_delegations => {
                Some(Reason::CellOverloaded)
            }
            Some(_) => None,
        }
    }

    // ---- a new delegation --------------------------------------------------------------------------------------

    fn new_delegation(&mut self, s: &Submission) {
        let above = match self.above(s) {
            Ok(above) => above,
            Err(refusal) => return self.decline(s.line, refusal),
        };
        self.charge(s, &above);
        let class = self.class_of(s);
        let key = context_key(&s.principal, &s.agent, &s.context);
        let context = self.contexts.of(&key);
        context.refs += 1;
        if context.remote.is_none() {
            context.remote = s.remote_context.clone();
        }
        let turn = self.turn(s, 1, class, above.budget, above.parent);
        let row = Row {
            durability: self.agents.get(&s.agent).map(|agent| agent.settings.durability).unwrap_or_default(),
            root: above.root.unwrap_or(s.task),
            parent: above.parent,
            depth: above.depth,
            chain: above.chain,
            redrives: s.redrives,
            outbox: s.outbox.clone(),
            ..Row::new(s.task, s.principal.clone(), s.agent.clone(), s.context.clone(), self.now, turn)
        };
        self.live.insert(s.task, Box::new(Live { lingers: false, ..Live::new(row, class) }));
        self.begin_turn(s, s.task);
    }

    /// A caller's clock is not ahead of the cell's.
    pub(crate) fn arrived(&self, s: &Submission) -> Time {
        s.arrived.min(self.now)
    }

    pub(crate) fn class_of(&self, s: &Submission) -> Class {
        let queues = self.agents.get(&s.agent).is_some_and(|agent| agent.settings.queue_overflow);
        match s.want {
            Want::Accepted | Want::Result { .. } => Class::Queue,
            Want::Reply { .. } | Want::Stream if queues => Class::Queue,
            Want::Reply { .. } | Want::Stream => Class::Line,
        }
    }

    /// A new turn. Whose caller set no deadline, and has no parent with one, gets its full time when it starts.
    pub(crate) fn turn(&self, s: &Submission, no: u32, class: Class, budget: Budget, parent: Option<TaskId>) -> Turn {
        let ttl = self.agents.get(&s.agent).map_or(Span::ZERO, |agent| {
            let settings = &agent.settings;
            s.queue.ttl.map_or(settings.queue_ttl, |ttl| ttl.min(settings.queue_ttl_max))
        });
        let floats = class == Class::Queue && s.budget.remaining_s.is_none() && parent.is_none();
        Turn {
            expires: if floats { self.now + ttl } else { budget.deadline.min(self.now + ttl) },
            runs_for: floats.then(|| budget.remaining(self.arrived(s))),
            priority: s.queue.priority.map_or(NORMAL_PRIORITY, |priority| priority.min(HIGHEST)),
            request: s.digest,
            ..Turn::new(no, s.message_id.clone(), s.fingerprint, budget)
        }
    }

    // ---- starting a turn ---------------------------------------------------------------------------------------

    /// The message's turn has its place in the task: it goes as far as it gets.
    pub(crate) fn begin_turn(&mut self, s: &Submission, task: TaskId) {
        let key = self.keys.hash(&key_of(s));
        let Some(live) = self.live.get_mut(&task) else { return };
        live.lines.push(Line { id: s.line, until: s.want.until(), replay: false });
        live.lingers |= s.want.may_follow();
        if live.keys.is_empty() {
            live.keys.reserve_exact(1);
        }
        live.keys.push(key);
        let class = live.class;
        let turn = live.row.turn.no;
        let old = (live.keys.len() > KEYS_IN_MEMORY).then(|| live.keys.remove(0));
        if let Some(old) = old {
            self.keys.remove(old);
        }
        self.lines.insert(s.line, task);
        self.keys.insert(key, KeyUse { task, turn, fingerprint: s.fingerprint });
        if class == Class::Queue {
            match self.queue_is_full(task) {
                Some(full) => return self.turn_full(task, full),
                None => self.accept(task),
            }
        }
        let expires = self.live.get(&task).map(|live| live.row.turn.expires);
        self.set_timer(task, Timer::Deadline, expires);
        self.set_wait_timer(task);
        self.advance(task);
    }

    /// The turn is taken on: its row, key and message go to the store, and who only asked for that is answered.
    pub(crate) fn accept(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.accepted {
            return;
        }
        live.accepted = true;
        live.previous = None;
        let first = live.row.turn.no == 1;
        if live.row.state.is_interrupted() {
            // What it asked for is here.
            live.row.asked = Some(live.row.state);
            live.row.state = TaskState::Submitted;
            live.row.reason = None;
            live.row.changed = self.now;
        }
        let (turn, fingerprint) = (live.row.turn.no, live.row.turn.fingerprint);
        let (principal, agent) = (live.row.principal.clone(), live.row.agent.clone());
        let key = Key { principal, agent, message_id: live.row.turn.message_id.clone() };
        let told: Vec<Line> = live.lines.iter().filter(|line| line.until.is_none()).copied().collect();
        live.lines.retain(|line| line.until.is_some());
        let context = context_key(&live.row.principal, &live.row.agent, &live.row.context);
        if first {
            self.accepted += 1;
        }
        self.save_record(task);
        self.save_message(task);
        self.save_beside(task, Save::Key { key, fingerprint, task, turn });
        // A context that the caller named gets its name toward the agent for good with the first message in it.
        if let (true, Some(remote)) = (first, self.contexts.get(&context).and_then(|c| c.remote.clone())) {
            let known = self.live.get(&task).and_then(|live| live.row.remote_context.clone());
            if known.as_ref() != Some(&remote) {
                if let Some(live) = self.live.get_mut(&task) {
                    live.row.remote_context = Some(remote.clone());
                }
                self.save_beside(task, Save::Context { key: context, remote });
            }
        }
        for line in told {
            self.lines.remove(&line.id);
            let answer = Answer::Task { task, replay: line.replay, receipt: None };
            self.emit(task, Output::Answer { line: line.id, answer });
        }
    }

    /// Moves a waiting turn on as far as it gets: lock, not-before, gate, slot.
    pub(crate) fn advance(&mut self, task: TaskId) {
        let now = self.now;
        let Some(live) = self.live.get(&task) else { return };
        if live.row.turn.phase != Phase::Waiting || live.place != Place::None && live.place != Place::Backoff {
            return;
        }
        if live.is_overdue(now) {
            return self.deadline_passed(task);
        }
        if self.shutting_down && !live.accepted {
            return self.turn_refused(task, Reason::ShuttingDown, None);
        }
        // What is queued at an agent that does one thing at a time takes that lock when its turn comes, not before.
        let later = live.class == Class::Queue && self.lock_key(task).is_some_and(|key| key.is_whole_agent());
        if !later && !self.take_lock(task) {
            return;
        }
        let Some(live) = self.live.get_mut(&task) else { return };
        if live.row.turn.not_before > now {
            live.place = Place::Backoff;
            let at = live.row.turn.not_before;
            self.waits_on(task, Reason::Backoff);
            return self.set_timer(task, Timer::Retry, Some(at));
        }
        live.place = Place::None;
        live.wants = live.wants.or(Some(now));
        let (class, id, deadline) = (live.class, live.row.agent.clone(), live.row.turn.budget.deadline);
        let Some(agent) = self.agents.get(&id) else { return };
        let closed = agent.closed_until(now);
        let class = match (class, closed) {
            // Its caller waits on its line until somebody is there, or its wait ends.
            (Class::Line, Some(Closed::Asleep(_) | Closed::NoWorker)) => {
                if let Some(full) = self.queue_is_full(task) {
                    return self.turn_full(task, full);
                }
                self.accept(task);
                if let Some(live) = self.live.get_mut(&task) {
                    live.class = Class::Queue;
                }
                self.release_agent_lock(task);
                Class::Queue
            }
            (class, _) => class,
        };
        let (Some(live), Some(agent)) = (self.live.get_mut(&task), self.agents.get_mut(&id)) else { return };
        live.class = class;
        match (class, closed) {
            (Class::Line, Some(Closed::Breaker(until))) => self.turn_refused(task, Reason::BreakerOpen, until),
            (Class::Line, Some(Closed::Pacing(until))) => self.turn_refused(task, Reason::AgentPacing, Some(until)),
            (Class::Line, Some(Closed::Draining(until))) => self.turn_refused(task, Reason::AgentDraining, Some(until)),
            (Class::Line, Some(Closed::Asleep(_) | Closed::NoWorker) | None) => {
                match agent.bulkhead.admit(now, Some(deadline)) {
                    Admission::Granted => {
                        live.slot = true;
                        self.dispatch(task);
                    }
                    Admission::Waiting { ticket, until: _ } => {
                        live.place = Place::Line(ticket);
                        agent.tickets.insert(ticket, task);
                        self.waits_on(task, Reason::BulkheadFull);
                    }
                    Admission::Refused { again } => self.turn_refused(task, Reason::BulkheadFull, again),
                }
            }
            (Class::Queue, _) => {
                let full = agent.bulkhead.in_flight() >= agent.bulkhead.params().max_in_flight;
                let reason = match closed {
                    Some(Closed::Breaker(_)) => Reason::BreakerOpen,
                    Some(Closed::Pacing(_)) => Reason::AgentPacing,
                    Some(Closed::Draining(_)) => Reason::AgentDraining,
                    Some(Closed::Asleep(_)) => Reason::AgentAsleep,
                    Some(Closed::NoWorker) => Reason::NoWorker,
                    None if !full && self.is_locked(&id) => Reason::ContextBusy,
                    None => Reason::BulkheadFull,
                };
                self.enqueue(task);
                self.pump(&id);
                self.waits_on_if_queued(task, reason);
            }
        }
        self.rewake(&id);
    }

    fn waits_on_if_queued(&mut self, task: TaskId, reason: Reason) {
        let queued = self.live.get(&task).is_some_and(|live| matches!(live.place, Place::Queue(_)));
        if queued {
            self.waits_on(task, reason);
        }
    }

    /// Takes the lock that the turn needs; false if it has to wait for it. A follow-up never waits behind its
    /// context, only behind a lock on the whole agent.
    pub(crate) fn take_lock(&mut self, task: TaskId) -> bool {
        let Some(key) = self.lock_key(task) else { return true };
        let max_behind = self.settings.max_behind;
        let Some(live) = self.live.get_mut(&task) else { return false };
        if live.lock.is_some() {
            // Even if what is to be locked was configured anew meanwhile: one is held, and given back.
            return true;
        }
        let follows_up = live.row.turn.no > 1 && !key.is_whole_agent();
        let context = self.contexts.of(&key);
        match context.holder {
            None => {
                context.holder = Some(task);
                live.lock = Some(key);
                true
            }
            Some(_) if follows_up => true,
            Some(_) if live.place == Place::Lock => false,
            Some(_) if !live.accepted && context.waiting.len() >= max_behind => {
                self.turn_refused(task, Reason::ContextQueueFull, None);
                false
            }
            Some(_) => {
                context.waiting.push_back(task);
                live.place = Place::Lock;
                self.waits_on(task, Reason::ContextBusy);
                false
            }
        }
    }

    /// Waits for its lock no longer.
    pub(crate) fn leave_lock(&mut self, task: TaskId) {
        let key = self.lock_key(task);
        if let Some(context) = key.and_then(|key| self.contexts.get_mut(&key))
            && let Some(at) = context.waiting.iter().position(|other| *other == task)
        {
            context.waiting.remove(at);
            return;
        }
        // What is to be locked was configured anew meanwhile.
        for context in self.contexts.values_mut() {
            context.waiting.retain(|other| *other != task);
        }
    }

    /// Gives the lock to the next that waits for it.
    pub(crate) fn release_lock(&mut self, task: TaskId) {
        self.set_timer(task, Timer::LockGrace, None);
        let Some(key) = self.live.get_mut(&task).and_then(|live| live.lock.take()) else { return };
        let Some(context) = self.contexts.get_mut(&key) else { return };
        context.holder = None;
        if key.is_whole_agent() && self.queue_goes_first(&key) {
            return;
        }
        let Some(context) = self.contexts.get_mut(&key) else { return };
        let mut waiting = std::mem::take(&mut context.waiting);
        while let Some(next) = waiting.pop_front() {
            let waits = self.live.get(&next).is_some_and(|live| live.place == Place::Lock);
            if !waits {
                continue;
            }
            if let Some(context) = self.contexts.get_mut(&key) {
                context.holder = Some(next);
                context.waiting = waiting;
            }
            if let Some(live) = self.live.get_mut(&next) {
                live.lock = Some(key);
                live.place = Place::None;
            }
            return self.advance(next);
        }
        self.forget_unused(&key);
    }
}

pub(crate) fn key_of(s: &Submission) -> Key {
    Key { principal: s.principal.clone(), agent: s.agent.clone(), message_id: s.message_id.clone() }
}

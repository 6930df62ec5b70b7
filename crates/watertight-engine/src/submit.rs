//! A message arrives: dedupe, then the task that it names or a new one, then the budget, then the walls. Nothing is
//! kept of what is refused: no attempt, no dedupe key, no row, and the parent gets its fan-out back.

use std::collections::VecDeque;

use watertight_policy::budget::{Budget, Exhausted};
use watertight_policy::bulkhead::Admission;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::agent::Closed;
use crate::engine::{Engine, KeyUse, context_key};
use crate::ids::{Key, TaskId};
use crate::input::{Submission, Want};
use crate::live::{Class, Line, Live, Place, Timer};
use crate::output::{Answer, Output};
use crate::record::{Cancel, Delivery, Phase, ReplyKind, Row, Save, TaskState, Turn};

/// Keys of this many turns of one delegation are kept in memory.
const KEYS_IN_MEMORY: usize = 4;

/// The turn number of a message that still waits behind another turn of its task.
const BEHIND: u32 = u32::MAX;

/// A line takes no more twins than this: their answers are all the same, but each is memory.
const MAX_LINES: usize = 1_024;

impl Engine {
    pub(crate) fn submitted(&mut self, submission: &Submission) {
        let s = submission;
        if self.joins_earlier(s) {
            return self.discard(s.task);
        }
        if let Some(reason) = self.closed_to(s) {
            self.refuse_line(s.line, &s.agent, reason, None);
            return self.discard(s.task);
        }
        match s.names {
            Some(named) => self.follow_up(s, named.task, named.terminal),
            None => self.new_delegation(s),
        }
    }

    /// The caller of a line is gone: what was accepted goes on; what nobody waits for any more does not start.
    pub(crate) fn line_closed(&mut self, line: crate::ids::LineId) {
        let Some(task) = self.lines.remove(&line) else { return };
        let Some(live) = self.live.get_mut(&task) else { return };
        live.lines.retain(|l| l.id != line);
        live.cancel_lines.retain(|l| *l != line);
        let gone: Vec<Key> = live.behind.iter().filter(|behind| behind.line == line).map(|s| key_of(s)).collect();
        live.behind.retain(|behind| behind.line != line);
        let unwanted = live.lines.is_empty() && !live.accepted;
        for key in gone {
            self.keys.remove(&key);
        }
        if unwanted {
            self.turn_refused(task, Reason::Canceled, None);
        } else {
            self.set_wait_timer(task);
        }
    }

    // ---- dedupe ------------------------------------------------------------------------------------------------

    /// True if the messageId was used before: the caller joins that turn, or is told of the conflict.
    fn joins_earlier(&mut self, s: &Submission) -> bool {
        let used = self.keys.get(&key_of(s)).copied();
        let used = used.filter(|used| self.live.get(&used.task).is_none_or(|live| !never_sent(live)));
        let (first, fingerprint) = match (used, s.known) {
            (Some(used), _) => (used.task, used.fingerprint),
            (None, Some(known)) if !known.never_sent => (known.task, known.fingerprint),
            (None, _) => return false,
        };
        if fingerprint != s.fingerprint {
            self.answer(s.line, Answer::Conflict { first });
            return true;
        }
        let Some(live) = self.live.get_mut(&first) else {
            // Only the store knows it any more, so it is terminal, or its turn is long over.
            self.answer(s.line, Answer::Task { task: first, replay: true });
            return true;
        };
        let current = used.is_some_and(|used| used.turn == live.row.turn.no);
        let waits = current && live.row.turn.phase != Phase::Ended && live.lines.len() < MAX_LINES;
        let until = match s.want {
            Want::Reply { until } => Some(until),
            Want::Stream | Want::Accepted => None,
        };
        if waits && (until.is_some() || !live.accepted) {
            live.lines.push(Line { id: s.line, until, replay: true });
            self.lines.insert(s.line, first);
            self.set_wait_timer(first);
        } else {
            self.emit(first, Output::Answer { line: s.line, answer: Answer::Task { task: first, replay: true } });
        }
        true
    }

    fn discard(&mut self, task: TaskId) {
        if !self.live.contains_key(&task) {
            self.out.push((None, Output::Discard { task }));
        }
    }

    /// Why nothing new is taken at all.
    fn closed_to(&self, s: &Submission) -> Option<Reason> {
        if self.shutting_down {
            return Some(Reason::ShuttingDown);
        }
        match self.agents.get(&s.agent) {
            None => Some(Reason::AgentUnknown),
            Some(agent) if agent.removed => Some(Reason::AgentDraining),
            Some(_) if self.accepted >= self.settings.max_delegations => Some(Reason::CellOverloaded),
            Some(_) => None,
        }
    }

    // ---- a new delegation --------------------------------------------------------------------------------------

    fn new_delegation(&mut self, s: &Submission) {
        let (budget, parent) = match self.child_budget(s) {
            Ok(granted) => granted,
            Err(exhausted) => {
                self.refuse_line(s.line, &s.agent, exhausted_reason(exhausted), None);
                return self.discard(s.task);
            }
        };
        let (root, depth) = match parent.and_then(|parent| self.live.get(&parent)) {
            Some(parent) => (parent.row.root, parent.row.depth + 1),
            None => (s.task, 0),
        };
        let class = self.class_of(s);
        let key = context_key(&s.principal, &s.agent, &s.context);
        let context = self.contexts.entry(key).or_default();
        context.refs += 1;
        if context.remote.is_none() {
            context.remote = s.remote_context.clone();
        }
        let row = Row {
            task: s.task,
            version: 0,
            principal: s.principal.clone(),
            agent: s.agent.clone(),
            context: s.context.clone(),
            remote_task: None,
            remote_context: None,
            root,
            parent,
            depth,
            state: TaskState::Submitted,
            reason: None,
            delivery: Delivery::NotSent,
            cancel: Cancel::None,
            reply: ReplyKind::Task,
            late: None,
            created: self.now,
            changed: self.now,
            attempt: crate::ids::Attempt(0),
            turn: self.turn(s, 1, class, budget),
        };
        self.live.insert(s.task, Live::new(row, class));
        self.begin_turn(s);
    }

    /// The budget of the new child: the strictest of what the caller says it has and what its parent, if we know it,
    /// still has. The parent pays one fan-out.
    fn child_budget(&mut self, s: &Submission) -> Result<(Budget, Option<TaskId>), Exhausted> {
        let Some(agent) = self.agents.get(&s.agent) else { return Err(Exhausted::Time) };
        let params = agent.settings.budget;
        let mut node = params.arrive(self.now, s.budget.remaining_s, s.budget.depth, s.budget.fanout);
        let parent = s.parent.filter(|parent| {
            self.live.get(parent).is_some_and(|live| {
                live.row.principal.tenant == s.principal.tenant && live.accepted && !live.row.state.is_terminal()
            })
        });
        let spent = parent.and_then(|parent| self.live.get_mut(&parent));
        let Some(spent) = spent else { return node.child(self.now, &params).map(|child| (child, None)) };
        let has = &mut spent.row.turn.budget;
        node.deadline = node.deadline.min(has.deadline);
        node.depth = node.depth.min(has.depth);
        node.fanout = node.fanout.min(has.fanout);
        let child = node.child(self.now, &params)?;
        has.fanout = has.fanout.saturating_sub(1);
        if let Some(parent) = parent {
            self.save(parent);
        }
        Ok((child, parent))
    }

    fn class_of(&self, s: &Submission) -> Class {
        let queues = self.agents.get(&s.agent).is_some_and(|agent| agent.settings.queue_overflow);
        match s.want {
            Want::Accepted => Class::Queue,
            Want::Reply { .. } | Want::Stream if queues => Class::Queue,
            Want::Reply { .. } | Want::Stream => Class::Line,
        }
    }

    fn turn(&self, s: &Submission, no: u32, class: Class, budget: Budget) -> Turn {
        let ttl = self.agents.get(&s.agent).map_or(Span::ZERO, |agent| agent.settings.queue_ttl);
        let floats = class == Class::Queue && s.budget.remaining_s.is_none();
        Turn {
            no,
            message_id: s.message_id.clone(),
            fingerprint: s.fingerprint,
            phase: Phase::Waiting,
            waiting_on: None,
            not_before: Time::ZERO,
            expires: if floats { self.now + ttl } else { budget.deadline.min(self.now + ttl) },
            budget,
            runs_for: floats.then(|| budget.remaining(self.now)),
            attempts: 0,
        }
    }

    // ---- a message to a task -----------------------------------------------------------------------------------

    fn follow_up(&mut self, s: &Submission, task: TaskId, terminal_in_store: bool) {
        let max_behind = self.settings.max_behind;
        let verdict = match self.live.get_mut(&task) {
            Some(live) if live.row.principal != s.principal || live.row.agent != s.agent => Some(Answer::NotFound),
            Some(live) if !live.accepted && live.row.version == 0 => Some(Answer::NotFound),
            Some(live) if s.context_named && live.row.context != s.context => Some(Answer::ContextMismatch),
            Some(live) if live.row.state.is_terminal() => Some(Answer::TaskTerminal),
            Some(live) if live.row.turn.phase != Phase::Ended => {
                if live.behind.len() < max_behind {
                    live.behind.push_back(Box::new(s.clone()));
                    self.lines.insert(s.line, task);
                    self.keys.insert(key_of(s), KeyUse { task, turn: BEHIND, fingerprint: s.fingerprint });
                    return self.discard(s.task);
                }
                self.refuse_line(s.line, &s.agent, Reason::TaskBusy, None);
                return self.discard(s.task);
            }
            Some(_) => None,
            None if terminal_in_store => Some(Answer::TaskTerminal),
            None => Some(Answer::NotFound),
        };
        match verdict {
            // It stands on the commit that made it so.
            Some(Answer::TaskTerminal) => self.terminal(s, task),
            Some(answer) => self.answer(s.line, answer),
            None => self.next_turn(s, task),
        }
        self.discard(s.task);
    }

    /// Puts the message in the place of the ended turn. Until it is accepted, the old one can come back.
    fn next_turn(&mut self, s: &Submission, task: TaskId) {
        let budget = match self.child_budget(s) {
            Ok((budget, _)) => budget,
            Err(exhausted) => return self.refuse_line(s.line, &s.agent, exhausted_reason(exhausted), None),
        };
        let class = self.class_of(s);
        let Some(no) = self.live.get(&task).map(|live| live.row.turn.no + 1) else { return };
        let turn = self.turn(s, no, class, budget);
        let Some(live) = self.live.get_mut(&task) else { return };
        live.previous = Some(std::mem::replace(&mut live.row.turn, turn));
        live.accepted = false;
        live.class = class;
        self.begin_turn_of(s, task);
    }

    /// A turn of a task has ended without ending the task: the next message that waited behind it goes on.
    pub(crate) fn next_behind(&mut self, task: TaskId) {
        while let Some(live) = self.live.get_mut(&task) {
            if live.row.turn.phase != Phase::Ended {
                return;
            }
            let Some(s) = live.behind.pop_front() else { return };
            match live.row.state.is_terminal() {
                true => {
                    self.keys.remove(&key_of(&s));
                    self.terminal(&s, task);
                }
                false => self.next_turn(&s, task),
            }
        }
    }

    fn terminal(&mut self, s: &Submission, task: TaskId) {
        self.lines.remove(&s.line);
        self.emit(task, Output::Answer { line: s.line, answer: Answer::TaskTerminal });
    }

    // ---- starting a turn ---------------------------------------------------------------------------------------

    fn begin_turn(&mut self, s: &Submission) {
        self.begin_turn_of(s, s.task);
    }

    fn begin_turn_of(&mut self, s: &Submission, task: TaskId) {
        let key = key_of(s);
        let Some(live) = self.live.get_mut(&task) else { return };
        let until = match s.want {
            Want::Reply { until } => Some(until),
            Want::Stream | Want::Accepted => None,
        };
        live.lines.push(Line { id: s.line, until, replay: false });
        live.keys.push_back(key.clone());
        let turn = live.row.turn.no;
        let old = (live.keys.len() > KEYS_IN_MEMORY).then(|| live.keys.pop_front()).flatten();
        if let Some(old) = old {
            self.keys.remove(&old);
        }
        self.lines.insert(s.line, task);
        self.keys.insert(key, KeyUse { task, turn, fingerprint: s.fingerprint });
        if live_class(self, task) == Some(Class::Queue) && !self.accept_queued(task) {
            return;
        }
        let expires = self.live.get(&task).map(|live| live.row.turn.expires);
        self.set_timer(task, Timer::Deadline, expires);
        self.set_wait_timer(task);
        self.advance(task);
    }

    /// A turn for the queue is accepted before it has a slot; false if the queue is full.
    fn accept_queued(&mut self, task: TaskId) -> bool {
        let Some(id) = self.live.get(&task).map(|live| live.row.agent.clone()) else { return false };
        let full = self.agents.get(&id).is_none_or(|agent| agent.queue.len() >= agent.settings.max_queued);
        if full {
            self.turn_refused(task, Reason::QueueFull, None);
            return false;
        }
        self.accept(task);
        true
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
        let (turn, fingerprint) = (live.row.turn.no, live.row.turn.fingerprint);
        let key = live.keys.back().cloned();
        let told: Vec<Line> = live.lines.iter().filter(|line| line.until.is_none()).copied().collect();
        live.lines.retain(|line| line.until.is_some());
        let context = context_key(&live.row.principal, &live.row.agent, &live.row.context);
        if first {
            self.accepted += 1;
        }
        self.save_record(task);
        self.save_message(task);
        if let Some(key) = key {
            self.extra.push(Save::Key { key, fingerprint, task, turn });
        }
        // A context that the caller named gets its name toward the agent for good with the first message in it.
        if let (true, Some(remote)) = (first, self.contexts.get(&context).and_then(|c| c.remote.clone())) {
            let known = self.live.get(&task).and_then(|live| live.row.remote_context.clone());
            if known.as_ref() != Some(&remote) {
                if let Some(live) = self.live.get_mut(&task) {
                    live.row.remote_context = Some(remote.clone());
                }
                self.extra.push(Save::Context { key: context, remote });
            }
        }
        for line in told {
            self.lines.remove(&line.id);
            let answer = Answer::Task { task, replay: line.replay };
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
        if !self.take_lock(task) {
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
        let (class, id, deadline) = (live.class, live.row.agent.clone(), live.row.turn.budget.deadline);
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let closed = agent.closed_until(now);
        match (class, closed) {
            (Class::Line, Some(Closed::Breaker(until))) => self.turn_refused(task, Reason::BreakerOpen, until),
            (Class::Line, Some(Closed::Pacing(until))) => self.turn_refused(task, Reason::AgentPacing, Some(until)),
            (Class::Line, None) => match agent.bulkhead.admit(now, Some(deadline)) {
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
            },
            (Class::Queue, _) => {
                live.place = Place::Queue(agent.enqueue(task));
                let reason = match closed {
                    Some(Closed::Breaker(_)) => Reason::BreakerOpen,
                    Some(Closed::Pacing(_)) => Reason::AgentPacing,
                    None => Reason::BulkheadFull,
                };
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
    fn take_lock(&mut self, task: TaskId) -> bool {
        let Some(key) = self.lock_key(task) else { return true };
        let max_behind = self.settings.max_behind;
        let Some(live) = self.live.get_mut(&task) else { return false };
        if live.lock.as_ref() == Some(&key) {
            return true;
        }
        let whole_agent = key.context.is_empty();
        let follows_up = live.row.turn.no > 1 && !whole_agent;
        let context = self.contexts.entry(key.clone()).or_default();
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

    /// Gives the lock to the next that waits for it.
    pub(crate) fn release_lock(&mut self, task: TaskId) {
        self.set_timer(task, Timer::LockGrace, None);
        let Some(key) = self.live.get_mut(&task).and_then(|live| live.lock.take()) else { return };
        let Some(context) = self.contexts.get_mut(&key) else { return };
        context.holder = None;
        let waiting = std::mem::take(&mut context.waiting);
        let mut waiting: VecDeque<TaskId> = waiting;
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
        let unused = self.contexts.get(&key).is_some_and(|c| c.refs == 0 && c.holder.is_none() && c.waiting.is_empty());
        if unused {
            self.contexts.remove(&key);
        }
    }
}

fn live_class(engine: &Engine, task: TaskId) -> Option<Class> {
    engine.live.get(&task).map(|live| live.class)
}

/// It failed before any byte was sent, so that its messageId may try again.
fn never_sent(live: &Live) -> bool {
    live.row.state == TaskState::Failed && live.row.delivery == Delivery::NotSent && live.row.turn.no == 1
}

pub(crate) fn key_of(s: &Submission) -> Key {
    Key { principal: s.principal.clone(), agent: s.agent.clone(), message_id: s.message_id.clone() }
}

fn exhausted_reason(exhausted: Exhausted) -> Reason {
    match exhausted {
        Exhausted::Depth => Reason::DepthExhausted,
        Exhausted::Fanout => Reason::FanoutExhausted,
        Exhausted::Time => Reason::BudgetExhausted,
    }
}

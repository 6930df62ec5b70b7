//! What waits for an agent's slots: its queue, its bounds, and when a place in it comes free. The order is
//! [`watertight_policy::queue`]'s.
//!
//! There is one row for each delegation and no second record of what waits: an item is a task's id, and where it stands
//! follows from its row. So an engine that is restored has the same queue, but for whose turn it was.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use watertight_policy::queue::Spot;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::agent::Closed;
use crate::engine::Engine;
use crate::ids::{AgentId, ContextKey, LineId, Principal, TaskId};
use crate::input::Fault;
use crate::live::Place;
use crate::output::{Answer, Bound, Output};
use crate::record::{Delivery, Phase, TaskState};

/// How far ahead a place in the order is looked for; who stands further back is told how many wait at most.
const MAX_AHEAD: usize = 10_000;

/// When a place comes free is judged by so many that came free before.
const PACE: usize = 16;

/// Who is told to come again for a place is told at least this, and at most that.
const AGAIN: (Span, Span) = (Span::from_millis(100), Span::from_secs(60));

/// An agent that is busy, and does not say for how long, is not asked sooner.
const BUSY_LEAST: Span = Span::from_millis(50);

/// Without anything to judge by.
const AGAIN_UNKNOWN: Span = Span::from_secs(5);

/// Who has something waiting, in small numbers, and how much of each tenant's waits.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    numbers: BTreeMap<Principal, u32>,
    known: BTreeMap<u32, (Principal, usize)>,
    tenants: BTreeMap<Arc<str>, usize>,
}

impl Senders {
    pub(crate) fn number(&self, principal: &Principal) -> Option<u32> {
        self.numbers.get(principal).copied()
    }

    pub(crate) fn principal(&self, number: u32) -> Option<&Principal> {
        self.known.get(&number).map(|(principal, _)| principal)
    }

    pub(crate) fn of_tenant(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).copied().unwrap_or(0)
    }

    /// One more of this sender's waits.
    fn add(&mut self, principal: &Principal) -> u32 {
        *self.tenants.entry(principal.tenant.clone()).or_default() += 1;
        if let Some(number) = self.numbers.get(principal).copied() {
            self.known.entry(number).and_modify(|(_, waiting)| *waiting += 1);
            return number;
        }
        // The lowest that is free above all that are used, or below them once there is none above.
        let after = self.known.last_key_value().map_or(Some(0), |(last, _)| last.checked_add(1));
        let number = after.or_else(|| (0..u32::MAX).find(|number| !self.known.contains_key(number))).unwrap_or(0);
        self.numbers.insert(principal.clone(), number);
        self.known.insert(number, (principal.clone(), 1));
        number
    }

    /// One fewer.
    fn drop(&mut self, number: u32) {
        let Some((principal, waiting)) = self.known.get_mut(&number) else { return };
        *waiting = waiting.saturating_sub(1);
        if let Some(of_tenant) = self.tenants.get_mut(&principal.tenant) {
            *of_tenant = of_tenant.saturating_sub(1);
            if *of_tenant == 0 {
                self.tenants.remove(&principal.tenant);
            }
        }
        if *waiting == 0 {
            self.numbers.remove(principal);
            self.known.remove(&number);
        }
    }

    /// What does not add up, in words.
    pub(crate) fn audit(&self, waiting: usize) -> Option<String> {
        let known: usize = self.known.values().map(|(_, waiting)| waiting).sum();
        let of_tenants: usize = self.tenants.values().sum();
        (known != waiting || of_tenants != waiting || self.numbers.len() != self.known.len())
            .then(|| format!("{waiting} wait in queues, {known} of senders and {of_tenants} of tenants are counted"))
    }
}

/// When places in a queue came free lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    freed: VecDeque<Time>,
}

impl Pace {
    fn freed(&mut self, now: Time) {
        if self.freed.len() == PACE {
            self.freed.pop_front();
        }
        self.freed.push_back(now);
    }

    /// When the next place may come free.
    fn again(&self, now: Time) -> Time {
        let each = match self.freed.front() {
            Some(first) => now.since(*first).div(u32::try_from(self.freed.len()).unwrap_or(u32::MAX)),
            None => AGAIN_UNKNOWN,
        };
        now + each.clamp(AGAIN.0, AGAIN.1)
    }
}

/// A refusal for want of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) reason: Reason,
    pub(crate) again: Option<Time>,
    pub(crate) bound: Option<Bound>,
}

impl Engine {
    /// Why no more can be accepted before it has a slot: a queue is full, or the line before its lock.
    pub(crate) fn queue_is_full(&self, task: TaskId) -> Option<Full> {
        let row = &self.live.get(&task)?.row;
        let agent = self.agents.get(&row.agent)?;
        let tenant = self.senders.of_tenant(&row.principal.tenant);
        let caller = self.senders.number(&row.principal).map_or(0, |number| agent.queue.len_of(number));
        let settings = &agent.settings;
        let bounds = [
            (agent.queue.len(), Bound::Agent(settings.max_queued)),
            (caller, Bound::Caller(settings.max_queued_per_caller)),
            (tenant, Bound::Tenant(self.settings.max_queued_per_tenant)),
        ];
        if let Some((_, bound)) = bounds.into_iter().find(|(waiting, bound)| *waiting >= bound.limit()) {
            let closed = match agent.closed_until(self.now) {
                Some(Closed::Breaker(until)) => until,
                Some(Closed::Pacing(until) | Closed::Draining(until) | Closed::Asleep(until)) => Some(until),
                Some(Closed::NoWorker) | None => None,
            };
            let again = agent.pace.again(self.now).max(closed.unwrap_or(Time::ZERO));
            let again = again.min(self.now + AGAIN.1);
            return Some(Full { reason: Reason::QueueFull, again: Some(again), bound: Some(bound) });
        }
        let key = self.lock_key(task).filter(|key| !key.is_whole_agent() && row.turn.no == 1)?;
        let context = self.contexts.get(&key).filter(|context| context.holder.is_some())?;
        let full = context.waiting.len() >= self.settings.max_behind;
        full.then_some(Full { reason: Reason::ContextQueueFull, again: None, bound: None })
    }

    /// Puts an accepted turn into its agent's queue.
    pub(crate) fn enqueue(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let Some(agent) = self.agents.get_mut(&live.row.agent) else { return };
        live.stood = u32::try_from(agent.queue.position_at(live.row.turn.priority, self.now)).unwrap_or(u32::MAX);
        let weight = self.settings.weights.get(&live.row.principal).copied().unwrap_or(1);
        let sender = self.senders.add(&live.row.principal);
        let spot = Spot { since: live.row.waits_since(), sender, priority: live.row.turn.priority };
        live.place = Place::Queue(spot);
        self.drowsy.push_back(task);
        agent.queue.push(task, spot, weight);
    }

    /// Takes a turn out of it, wherever it stands.
    pub(crate) fn dequeue(&mut self, id: &AgentId, task: TaskId, spot: Spot) {
        let now = self.now;
        if let Some(agent) = self.agents.get_mut(id)
            && agent.queue.remove(task, spot)
        {
            agent.pace.freed(now);
            self.senders.drop(spot.sender);
        }
    }

    /// The next of the queue that can start now, if the agent can take one. Whose time is over is let go: its own timer
    /// ends it. Who finds its lock taken waits for that from now on.
    pub(crate) fn next_queued(&mut self, id: &AgentId) -> Option<TaskId> {
        loop {
            if self.is_locked(id) {
                return None;
            }
            let agent = self.agents.get_mut(id)?;
            let task = agent.queue.pop(self.now)?;
            agent.pace.freed(self.now);
            self.wake(task);
            let Some(live) = self.live.get_mut(&task) else { continue };
            if let Place::Queue(spot) = std::mem::replace(&mut live.place, Place::None) {
                self.senders.drop(spot.sender);
            }
            if !live.is_overdue(self.now) && self.take_lock(task) {
                return Some(task);
            }
        }
    }

    /// The agent does one thing at a time, and does it.
    pub(crate) fn is_locked(&self, id: &AgentId) -> bool {
        self.agent_lock(id).and_then(|key| self.contexts.get(&key)).is_some_and(|context| context.holder.is_some())
    }

    /// A turn that goes back to waiting takes the lock on the whole agent again when its turn comes.
    pub(crate) fn release_agent_lock(&mut self, task: TaskId) {
        let whole = |lock: &ContextKey| lock.is_whole_agent();
        if self.live.get(&task).is_some_and(|live| live.lock.as_ref().is_some_and(whole)) {
            self.release_lock(task);
        }
    }

    /// The agent said itself that it is busy and did not take the message: what may wait goes back to where it waited, as
    /// old as it is, and its attempt does not count. Whoever holds the line for an answer now is told.
    pub(crate) fn still_busy(&mut self, task: TaskId, fault: Fault) -> bool {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return false };
        let took_it = live.heard || live.row.turn.phase != Phase::Dispatching;
        if !fault.busy || !live.queues || took_it || self.shutting_down {
            return false;
        }
        let Some(agent) = self.agents.get_mut(&live.row.agent) else { return false };
        live.busied = live.busied.saturating_add(1);
        let delay = match fault.retry_after {
            Some(wait) => wait,
            None => agent.settings.backoff.delay(live.busied, &mut self.rng).max(BUSY_LEAST),
        };
        // Nobody else is sent there meanwhile: it would be told the same, and what is older goes first.
        agent.pacing.hint(now, delay);
        live.attempting = false;
        if live.row.turn.attempts == 1 {
            // All that is known of it is this attempt, and the agent did not take it.
            live.row.delivery = Delivery::NotSent;
        }
        self.put_back(task, Time::ZERO);
        true
    }

    /// An operator took it out. What runs is canceled, not dropped.
    pub(crate) fn drop_asked(&mut self, line: LineId, task: TaskId) {
        let Some(live) = self.live.get(&task).filter(|live| !live.is_proposed()) else {
            return self.answer(line, Answer::NotFound);
        };
        if live.row.reason == Some(Reason::Dropped) {
            return self
                .emit(task, Output::Answer { line, answer: Answer::Task { task, replay: true, receipt: None } });
        }
        if live.row.turn.phase != Phase::Waiting || !live.accepted || live.row.state.is_terminal() {
            return self.emit(task, Output::Answer { line, answer: Answer::NotCancelable });
        }
        self.end_waiting(task, TaskState::Failed, Reason::Dropped);
        self.emit(task, Output::Answer { line, answer: Answer::Task { task, replay: false, receipt: None } });
    }

    /// The lock on the whole agent is free, and it is the queue's turn to have it rather than a waiting caller's. True if
    /// it was taken.
    pub(crate) fn queue_goes_first(&mut self, key: &ContextKey) -> bool {
        let Some(agent) = self.agents.get_mut(&key.agent) else { return false };
        let line = self.contexts.get(key).is_some_and(|context| !context.waiting.is_empty());
        if line && !std::mem::replace(&mut agent.queue_next, true) {
            return false;
        }
        self.pump(&key.agent);
        self.is_locked(&key.agent)
    }

    /// The place of the current turn among those that wait for its agent: exactly so as it stands, or, far behind, not
    /// later than that. `None`: it does not wait there.
    pub(crate) fn position(&mut self, task: TaskId) -> Option<usize> {
        self.wake(task);
        let live = self.live.get(&task)?;
        let Place::Queue(spot) = live.place else { return None };
        let agent = self.agents.get_mut(&live.row.agent)?;
        agent.queue.age(self.now);
        let ahead = agent.queue.in_order().take(MAX_AHEAD).position(|other| other == task);
        Some(ahead.map_or_else(|| agent.queue.position_at(spot.priority, self.now) - 1, |ahead| ahead + 1))
    }

    /// See [`crate::cell::Cell::queue`].
    pub(crate) fn queue_of(&mut self, id: &AgentId, skip: usize, limit: usize) -> Vec<TaskId> {
        let Some(agent) = self.agents.get_mut(id) else { return Vec::new() };
        agent.queue.age(self.now);
        agent.queue.in_order().skip(skip).take(limit).collect()
    }
}

//! One agent's walls inside a cell, and the turns that wait before them.

use std::collections::{BTreeMap, BTreeSet};

use watertight_policy::backoff::Pacing;
use watertight_policy::breaker::{Breaker, Gate};
use watertight_policy::bulkhead::{Bulkhead, Ticket};
use watertight_policy::queue::Queue;
use watertight_policy::retry_budget::RetryBudget;
use watertight_policy::time::{Span, Time};

use crate::ids::{LineId, TaskId};
use crate::queue::Pace;
use crate::settings::AgentSettings;
use crate::wake::Asleep;

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) settings: AgentSettings,
    /// No longer configured: what was accepted goes on, nothing new is taken.
    pub(crate) removed: bool,
    pub(crate) bulkhead: Bulkhead,
    pub(crate) breaker: Breaker,
    pub(crate) pacing: Pacing,
    pub(crate) retries: RetryBudget,
    /// Who holds which place in the bulkhead's line.
    pub(crate) tickets: BTreeMap<Ticket, TaskId>,
    /// Accepted turns that wait for a slot.
    pub(crate) queue: Queue<TaskId>,
    /// When places in it came free.
    pub(crate) pace: Pace,
    /// Turns that the agent dropped while it was drained: it has them, and they are watched again when it is back.
    pub(crate) suspended: BTreeSet<TaskId>,
    /// Workers of an agent that fetches its work, which wait for some. Lines are numbered in the order in which they came.
    pub(crate) workers: BTreeSet<LineId>,
    /// Nobody answered lately.
    pub(crate) asleep: Option<Asleep>,
    /// When its wake hook was last called.
    pub(crate) called: Option<Time>,
    /// When another agent last called it.
    pub(crate) called_by_agent: Option<Time>,
    /// The next free slot goes to the queue: the line and the queue take turns, so that neither starves the other.
    pub(crate) queue_next: bool,
    /// When this agent has to be looked at next, as it stands in the engine's index.
    pub(crate) wake: Option<Time>,
}

impl Agent {
    pub(crate) fn new(settings: AgentSettings) -> Agent {
        Agent {
            removed: false,
            bulkhead: Bulkhead::new(settings.bulkhead),
            breaker: Breaker::new(settings.breaker),
            pacing: Pacing::new(),
            retries: RetryBudget::new(settings.retry_budget),
            tickets: BTreeMap::new(),
            queue: Queue::new(settings.queue),
            pace: Pace::default(),
            suspended: BTreeSet::new(),
            workers: BTreeSet::new(),
            asleep: None,
            called: None,
            called_by_agent: None,
            queue_next: false,
            wake: None,
            settings,
        }
    }

    /// One that is known only by what it still has.
    pub(crate) fn removed(settings: AgentSettings) -> Agent {
        Agent { removed: true, ..Agent::new(settings) }
    }

    pub(crate) fn configure(&mut self, settings: AgentSettings) {
        self.removed = false;
        self.bulkhead.set_params(settings.bulkhead);
        self.breaker.set_params(settings.breaker);
        self.retries.set_params(settings.retry_budget);
        self.queue.set_params(settings.queue);
        self.settings = settings;
    }

    /// Nothing may start before this, if anything keeps traffic away; `Time::FAR` if nobody knows until when.
    pub(crate) fn closed_until(&self, now: Time) -> Option<Closed> {
        if let Some(until) = self.settings.drain {
            return Some(Closed::Draining(until));
        }
        if let Some(asleep) = self.asleep.filter(|asleep| asleep.until > now) {
            return Some(Closed::Asleep(asleep.until));
        }
        match self.breaker.gate(now) {
            Gate::Open | Gate::Probe => match self.pacing.until(now) {
                Some(until) => Some(Closed::Pacing(until)),
                None => (self.settings.fetches && self.workers.is_empty()).then_some(Closed::NoWorker),
            },
            Gate::Closed { until } => Some(Closed::Breaker(until)),
        }
    }

    /// When something here changes by itself.
    pub(crate) fn next_wake(&self, now: Time) -> Option<Time> {
        let line = self.bulkhead.next_wake();
        let gate = (!self.queue.is_empty())
            .then(|| match self.closed_until(now) {
                Some(Closed::Breaker(until)) => until.or_else(|| self.breaker.wake_after(now)),
                Some(Closed::Pacing(until) | Closed::Asleep(until)) => Some(until),
                Some(Closed::Draining(_) | Closed::NoWorker) | None => None,
            })
            .flatten();
        // A wait that has ended already is looked at in the next step, never in the past.
        [line, gate].into_iter().flatten().min().map(|at| at.max(now + Span::from_micros(1)))
    }
}

/// What keeps traffic from an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// The breaker, until a trial may begin; `None` while one is under way.
    Breaker(Option<Time>),
    /// The agent's own wish.
    Pacing(Time),
    /// Nobody answered, and it is not tried before.
    Asleep(Time),
    /// It is drained for its restart; what runs was given until then, and nobody knows when it is back.
    Draining(Time),
    /// It fetches its work, and nobody asks for any.
    NoWorker,
}

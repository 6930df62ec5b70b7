//! How the agents are, for people and machines: their walls as the cell last published them, and what was asked of them.

use watertight_engine::cell::AgentView;
use watertight_engine::ids::AgentId;
use watertight_engine::record::Durability;
use watertight_policy::breaker;
use watertight_policy::load::Seen;
use watertight_policy::sizing::Advice;
use watertight_policy::time::Span;

use super::Handle;
use crate::clock::Clock;
use crate::metrics;
use crate::wake::Woken;

/// One agent's walls at a moment, for people and machines.
#[derive(Clone, Debug)]
pub struct AgentStats {
    /// Its name.
    pub agent: AgentId,
    /// Slots taken.
    pub in_flight: u32,
    /// Slots there are.
    pub max_in_flight: u32,
    /// Callers waiting for a slot.
    pub waiting: u32,
    /// Accepted turns waiting.
    pub queued: u32,
    /// How long the oldest of them has waited.
    pub oldest: Option<Span>,
    /// The breaker.
    pub breaker: breaker::Snapshot,
    /// The agent asked to be left alone for this long.
    pub pacing: Option<Span>,
    /// Open streams.
    pub streams: u32,
    /// It is no longer configured; what runs goes on.
    pub removed: bool,
    /// It is drained for its restart: for so long what runs was given, and is.
    pub drain: Option<Span>,
    /// Turns that it dropped meanwhile.
    pub suspended: u32,
    /// Nobody answered there lately, and its wake hook is called.
    pub asleep: bool,
    /// It fetches its work: so many of its workers wait for some.
    pub workers: Option<u32>,
    /// How its wake hook went the last time.
    pub woken: Option<Woken>,
    /// What was asked of it in the last minutes.
    pub seen: Seen,
    /// What is kept in memory alone of its ended delegations, and their bytes; `None` where they are on disk.
    pub in_memory: Option<(usize, usize)>,
    /// What that says about its slots; `None` while its breaker keeps traffic away.
    pub advice: Option<Advice>,
}

impl AgentStats {
    /// Slots that were not needed in the last minutes.
    pub fn stranded(&self) -> u32 {
        self.advice.unwrap_or(Advice::Unwell).stranded(&self.seen, self.max_in_flight)
    }
}

impl Handle {
    /// The agents' walls, at most a quarter of a second old.
    pub fn agents(&self) -> Vec<AgentStats> {
        self.shared.walls().iter().map(|view| self.stats(view)).collect()
    }

    /// The text for `/metrics`.
    pub fn metrics(&self) -> String {
        let waiting: Vec<_> = self.shared.outboxes.all().into_iter().filter(|outbox| outbox.waiting > 0).collect();
        let oldest = waiting.iter().filter_map(|outbox| outbox.oldest).min();
        let now = metrics::Now {
            outboxes: waiting.len(),
            results: waiting.iter().map(|outbox| outbox.waiting).sum(),
            results_age: oldest.map_or(Span::ZERO, |oldest| self.shared.clock.now().since(oldest)),
            hooks: self.shared.pushes.count(),
            backlog: self.shared.store.backlog(),
            delegations: self.shared.held(),
            evictions: self.shared.hub.evictions(),
        };
        self.shared.metrics.encode(&self.agents(), &now)
    }

    /// Shows cell time.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }

    fn in_memory(&self, agent: &AgentId) -> Option<(usize, usize)> {
        let known = self.shared.known(agent)?;
        (known.spec.engine.durability == Durability::Memory).then(|| self.shared.shelf.held(agent))
    }

    fn stats(&self, view: &AgentView) -> AgentStats {
        let now = self.shared.clock.now();
        let seen = self.shared.figures.seen(now, &view.agent);
        let breaker = self.shared.known(&view.agent).map_or_else(breaker::Params::default, |k| k.spec.engine.breaker);
        // Who set no limit to slowness says that this agent is never too slow.
        let slow = if breaker.slow_rate_bp == 0 { Span::MAX } else { breaker.slow_call };
        let admits = view.breaker.state == breaker::State::Admitting;
        AgentStats {
            agent: view.agent.clone(),
            in_flight: view.in_flight,
            max_in_flight: view.max_in_flight,
            waiting: view.waiting,
            queued: view.queued,
            oldest: view.oldest.map(|since| now.since(since)),
            breaker: view.breaker,
            pacing: view.pacing_until.map(|until| until.since(now)),
            streams: self.shared.hub.streams(&view.agent),
            removed: view.removed,
            drain: self.shared.drains.of(&view.agent).map(|until| until.since(now)),
            suspended: view.suspended,
            asleep: view.asleep,
            workers: view.workers,
            woken: self.shared.wakes.last(&view.agent),
            in_memory: self.in_memory(&view.agent),
            advice: admits.then(|| Advice::of(&seen, view.max_in_flight, slow)),
            seen,
        }
    }
}

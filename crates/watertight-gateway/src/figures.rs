//! What each agent was asked for lately, for people who size it: latencies, waits, rate, peak, and advice.
//!
//! Assumes that only the cell's thread feeds it, so that its lock is free but for who reads. Holds as much as there are
//! agents, whatever callers send. Leaves out what is counted for ever: [`crate::metrics`].

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use watertight_engine::cell::AgentView;
use watertight_engine::ids::AgentId;
use watertight_policy::load::{End, Load, Seen};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

/// Of all agents.
#[derive(Default)]
pub(crate) struct Figures {
    agents: Mutex<BTreeMap<AgentId, Load>>,
}

impl Figures {
    /// A turn ended; without a reason of ours, by the agent's word.
    pub(crate) fn ended(&self, now: Time, agent: &AgentId, reason: Option<Reason>, took: Option<Span>, waited: Span) {
        let Some(took) = took else { return };
        let end = if reason.is_none() { End::Answered } else { End::Unanswered };
        self.with(agent, |load| load.ended(now, end, took, waited));
    }

    /// A call was refused. Only those count that would have needed a slot more.
    pub(crate) fn refused(&self, now: Time, agent: &AgentId, reason: Reason) {
        if matches!(reason, Reason::BulkheadFull | Reason::QueueFull) {
            self.with(agent, |load| load.turned_away(now));
        }
    }

    /// The walls as they are. Agents that are not among them are forgotten.
    pub(crate) fn look(&self, now: Time, walls: &[AgentView]) {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if agents.len() > walls.len() {
            agents.retain(|agent, _| walls.iter().any(|wall| wall.agent == *agent));
        }
        for wall in walls {
            match agents.get_mut(&wall.agent) {
                Some(load) => load.in_flight(now, wall.peak),
                None => {
                    let mut load = Load::new(now);
                    load.in_flight(now, wall.peak);
                    agents.insert(wall.agent.clone(), load);
                }
            }
        }
    }

    /// What was seen of an agent.
    pub(crate) fn seen(&self, now: Time, agent: &AgentId) -> Seen {
        let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        agents.get(agent).map_or_else(|| Load::new(now).seen(now), |load| load.seen(now))
    }

    fn with(&self, agent: &AgentId, feed: impl FnOnce(&mut Load)) {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(load) = agents.get_mut(agent) {
            feed(load);
        }
    }
}

//! An agent that is not always there. When nobody answers at its address and it has a wake hook, the hook is called, and
//! what was to be delivered waits with `agent_asleep` until somebody answers or its own time ends: no attempt is spent,
//! and the breaker hears nothing of it, since an agent that sleeps is not sick.
//!
//! The hook is owed as long as a turn waits for it. Nothing has to be kept for that: after a restart the turn is tried
//! again, finds nobody, and the hook is called.

use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::engine::Engine;
use crate::ids::{AgentId, TaskId};
use crate::input::Fault;
use crate::live::Place;
use crate::output::Output;
use crate::record::Delivery;

/// Between the first two looks whether it is awake; it doubles.
const FIRST_PAUSE: Span = Span::from_millis(500);

/// The longest.
const LONGEST_PAUSE: Span = Span::from_secs(30);

/// Nobody is there: no byte was sent, and it is not that somebody turned it away.
const NOBODY: [Reason; 3] = [Reason::AgentConnectRefused, Reason::AgentConnectTimeout, Reason::AgentDnsFailure];

/// Nobody answered lately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asleep {
    tries: u32,
    /// It is not tried before.
    pub(crate) until: Time,
}

impl Engine {
    /// Whether the attempt found an agent asleep; then it is called, and not tried for a while.
    pub(crate) fn falls_asleep(&mut self, task: TaskId, fault: Fault) -> bool {
        let now = self.now;
        let Some(live) = self.live.get(&task) else { return false };
        if live.row.delivery != Delivery::NotSent || !NOBODY.contains(&fault.reason) {
            return false;
        }
        let id = live.row.agent.clone();
        let Some(agent) = self.agents.get_mut(&id).filter(|agent| agent.settings.drain.is_none()) else { return false };
        let Some(cooldown) = agent.settings.wake else { return false };
        let tries = agent.asleep.map_or(0, |asleep| asleep.tries);
        // Those that were sent together find nobody together, which is one try.
        if agent.asleep.is_none_or(|asleep| asleep.until <= now) {
            let pause = Span::from_micros(FIRST_PAUSE.as_micros() << tries.min(16)).min(LONGEST_PAUSE);
            agent.asleep = Some(Asleep { tries: tries + 1, until: now + pause });
        }
        if agent.called.is_none_or(|at| at + cooldown <= now) {
            agent.called = Some(now);
            let waiting = u32::try_from(agent.queue.len()).unwrap_or(u32::MAX).saturating_add(1);
            self.emit(task, Output::Wake { agent: id, waiting });
        }
        true
    }

    /// Somebody answered.
    pub(crate) fn is_awake(&mut self, task: TaskId) {
        let Some(id) = self.live.get(&task).map(|live| live.row.agent.clone()) else { return };
        let slept = self.agents.get_mut(&id).and_then(|agent| agent.asleep.take());
        if slept.is_some() {
            self.pump(&id);
        }
    }

    /// Who waits in the short line of an agent that sleeps waits as long as the others.
    pub(crate) fn line_to_queue(&mut self, id: &AgentId) {
        let Some(agent) = self.agents.get_mut(id) else { return };
        let tickets = std::mem::take(&mut agent.tickets);
        for ticket in tickets.keys() {
            agent.bulkhead.abandon(*ticket);
        }
        for task in tickets.into_values() {
            if let Some(live) = self.live.get_mut(&task) {
                live.place = Place::None;
                self.advance(task);
            }
        }
    }
}

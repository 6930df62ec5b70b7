//! Watches the run from outside: the gateway's gauges, or the agents' own counts where there is no gateway.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::metrics::{self, Gauges};
use super::model::{Agent, POOL};
use super::orchestrator::Orchestrator;

const EVERY: Duration = Duration::from_millis(50);

/// What has been seen so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// In the order of `Agent::ALL`.
    pub(super) gauges: [Gauges; 3],
    pub(super) fault_from: Option<Duration>,
    pub(super) fault_to: Option<Duration>,
    /// When all of hotels' slots were first seen in use during the fault.
    pub(super) slots_full: Option<Duration>,
    /// When all of the shared pool was first seen in use during the fault.
    pub(super) pool_full: Option<Duration>,
}

pub(super) struct Watcher {
    gateway: Option<Client>,
    agents: [Client; 3],
    seen: Mutex<Seen>,
}

impl Watcher {
    pub(super) fn new(gateway: Option<&str>, agents: [&str; 3]) -> Watcher {
        Watcher { gateway: gateway.map(Client::new), agents: agents.map(Client::new), seen: Mutex::default() }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn run(&self, orchestrator: &Orchestrator) -> Infallible {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let gauges = self.sample().await;
            self.note(gauges, orchestrator.clock.now(), orchestrator.pool_in_use());
        }
    }

    async fn sample(&self) -> Option<[Gauges; 3]> {
        let Some(gateway) = &self.gateway else {
            return Some([self.running(0).await, self.running(1).await, self.running(2).await]);
        };
        // A page that does not come is a sample missed, not an end: the calls tell what is wrong.
        let page = tokio::time::timeout(Duration::from_secs(1), gateway.get("/metrics")).await.ok()?.ok()?;
        let all = metrics::parse(&String::from_utf8_lossy(&page));
        Some(Agent::ALL.map(|agent| all.get(&agent).copied().unwrap_or_default()))
    }

    async fn running(&self, agent: usize) -> Gauges {
        let stats = self.agents[agent].get("/demo/stats").await.unwrap_or_default();
        let stats: Value = serde_json::from_slice(&stats).unwrap_or_default();
        Gauges { in_flight: stats["running"].as_u64().unwrap_or(0), ..Gauges::default() }
    }

    fn note(&self, gauges: Option<[Gauges; 3]>, now: Duration, pool: Option<usize>) {
        let mut seen = self.seen();
        let in_fault = seen.fault_from.is_some() && seen.fault_to.is_none();
        if let Some(gauges) = gauges {
            let full = gauges[Agent::Hotels as usize].in_flight >= Agent::Hotels.bulkhead().max_in_flight;
            if in_fault && full {
                seen.slots_full.get_or_insert(now);
            }
            seen.gauges = gauges;
        }
        if in_fault && pool == Some(POOL) {
            seen.pool_full.get_or_insert(now);
        }
    }
}

//! What the driver of a cell and the handles to it share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use watertight_engine::cell::AgentView;
use watertight_engine::ids::AgentId;
use watertight_engine::settings::{AgentSettings, Settings};
use watertight_policy::time::Time;
use watertight_store::Store;

use super::drains::Drains;
use super::inbox::Inbox;
use super::lines::Lines;
use super::seat::Seat;
use super::shelf::Shelf;
use crate::access::{Grants, Rules};
use crate::agents::Agent;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::config::InstanceKey;
use crate::fetch::Fetching;
use crate::figures::Figures;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::outbox::Outboxes;
use crate::push::Pushes;
use crate::reminder::Reminders;
use crate::wake::Wakes;
use crate::{AgentSpec, CellLimits, Kept};

/// How the cell is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// What the store holds is being picked up.
    Loading,
    Well,
    /// The store cannot be written: nothing new is taken.
    NoStore,
    /// It finishes what it can until then.
    Draining {
        until: Time,
    },
    Gone,
}

/// A configured agent and the way to it.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) spec: AgentSpec,
    pub(crate) agent: Arc<Agent>,
    /// No longer configured: what runs goes on and can be canceled, nothing new is taken.
    pub(crate) removed: bool,
}

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    /// What is kept in memory alone.
    pub(crate) shelf: Shelf,
    pub(crate) hub: Arc<Hub>,
    pub(crate) inbox: Inbox,
    /// Where the driver is to be found.
    pub(crate) seat: Seat,
    /// For what belongs to no caller's connection.
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) lines: Lines,
    pub(crate) drains: Drains,
    pub(crate) wakes: Wakes,
    pub(crate) fetching: Fetching,
    pub(crate) outboxes: Outboxes,
    pub(crate) reminders: Reminders,
    pub(crate) pushes: Pushes,
    pub(crate) metrics: Metrics,
    pub(crate) figures: Figures,
    /// Signs for whom agents work.
    pub(crate) chain: Chain,
    /// Limits of the cell; the agents in it are those of `known`.
    limits: Mutex<CellLimits>,
    /// How long the store keeps what has ended.
    pub(crate) kept: watch::Sender<Kept>,
    known: RwLock<BTreeMap<AgentId, Arc<Known>>>,
    /// Who may call at all; it counts from the next agents on.
    grants: Mutex<Grants>,
    /// Who may call whom.
    rules: RwLock<Arc<Rules>>,
    walls: Mutex<Arc<Vec<AgentView>>>,
    held: AtomicUsize,
    health: watch::Sender<Health>,
    /// Look-ups in the store that wait or run.
    pub(crate) lookups: AtomicUsize,
    drain_until: AtomicU64,
    /// For drills: so many steps from now, one panics. Zero: none does.
    #[cfg(test)]
    pub(crate) panic_in: AtomicUsize,
    /// Likewise, while something is carried out.
    #[cfg(test)]
    pub(crate) act_panic_in: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        store: Store,
        hub: Arc<Hub>,
        limits: CellLimits,
        kept: Kept,
        drains: Drains,
        key: InstanceKey,
    ) -> Shared {
        let grants = Grants::this_machine();
        Shared {
            rules: RwLock::new(Arc::new(grants.over(BTreeMap::new()))),
            grants: Mutex::new(grants),
            clock,
            store,
            shelf: Shelf::new(kept),
            hub,
            inbox: Inbox::default(),
            seat: Seat::default(),
            runtime: tokio::runtime::Handle::current(),
            lines: Lines::default(),
            drains,
            wakes: Wakes::default(),
            fetching: Fetching::default(),
            outboxes: Outboxes::default(),
            reminders: Reminders::default(),
            pushes: Pushes::new(key.clone()),
            metrics: Metrics::new(),
            figures: Figures::default(),
            chain: Chain::new(key),
            limits: Mutex::new(limits),
            kept: watch::Sender::new(kept),
            known: RwLock::default(),
            walls: Mutex::default(),
            held: AtomicUsize::new(0),
            health: watch::Sender::new(Health::Loading),
            lookups: AtomicUsize::new(0),
            drain_until: AtomicU64::new(u64::MAX),
            #[cfg(test)]
            panic_in: AtomicUsize::new(0),
            #[cfg(test)]
            act_panic_in: AtomicUsize::new(0),
        }
    }

    pub(crate) fn known(&self, agent: &AgentId) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(agent).cloned()
    }

    pub(crate) fn all_known(&self) -> BTreeMap<AgentId, Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Agents, and with them the rules: both as one configuration says.
    pub(crate) fn set_known(&self, known: BTreeMap<AgentId, Arc<Known>>) {
        let places = known.iter().map(|(name, known)| (name.clone(), known.spec.place.clone())).collect();
        let rules = self.grants.lock().unwrap_or_else(PoisonError::into_inner).over(places);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Who may call whom, as it is in force.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Others who may call, for the next agents.
    pub(crate) fn grant(&self, grants: Grants) {
        *self.grants.lock().unwrap_or_else(PoisonError::into_inner) = grants;
    }

    /// The cell's settings with the agents as they are configured now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        let (mut agents, mut removed) = (BTreeMap::new(), BTreeMap::new());
        for (name, known) in self.all_known() {
            let drain = if known.removed { None } else { self.drains.of(&name) };
            let to = if known.removed { &mut removed } else { &mut agents };
            to.insert(name, AgentSettings { drain, ..known.spec.engine.clone() });
        }
        Arc::new(self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone().settings(agents, removed))
    }

    /// Other limits for the next settings.
    pub(crate) fn limit(&self, limits: CellLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    pub(crate) fn walls(&self) -> Arc<Vec<AgentView>> {
        self.walls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_walls(&self, walls: Vec<AgentView>, held: usize) {
        *self.walls.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(walls);
        self.held.store(held, Ordering::Relaxed);
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn health(&self) -> Health {
        match (*self.health.borrow(), self.draining()) {
            (Health::Loading | Health::Well | Health::NoStore, Some(until)) => Health::Draining { until },
            (health, _) => health,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        *self.health.borrow() == Health::Gone
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.health.send_replace(health);
    }

    /// Whether what the store holds has been picked up; waits for it so long.
    pub(crate) async fn loaded(&self, limit: Duration) -> bool {
        let mut health = self.health.subscribe();
        matches!(timeout(limit, health.wait_for(|health| *health != Health::Loading)).await, Ok(Ok(_)))
    }

    /// Until the driver has ended.
    pub(crate) async fn gone(&self) {
        let mut health = self.health.subscribe();
        let _ = health.wait_for(|health| *health == Health::Gone).await;
    }

    /// The drain's end, once it has begun.
    pub(crate) fn draining(&self) -> Option<Time> {
        let until = self.drain_until.load(Ordering::Acquire);
        (until != u64::MAX).then(|| Time::from_micros(until))
    }

    /// `false`: it was begun before.
    pub(crate) fn begin_drain(&self, until: Time) -> bool {
        let micros = until.as_micros().min(u64::MAX - 1);
        self.drain_until.compare_exchange(u64::MAX, micros, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn panics_now(&self) -> bool {
        counted_down(&self.panic_in)
    }

    #[cfg(test)]
    pub(crate) fn act_panics_now(&self) -> bool {
        counted_down(&self.act_panic_in)
    }
}

#[cfg(test)]
fn counted_down(counter: &AtomicUsize) -> bool {
    let left = counter.load(Ordering::Relaxed);
    counter.store(left.saturating_sub(1), Ordering::Relaxed);
    left == 1
}

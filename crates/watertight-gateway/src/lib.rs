//! The A2A gateway: everything that waits, listens, connects or reads a clock.
//!
//! A face ([`http`]) turns a request into a call on the [`handle::Handle`]; the [`driver`] of the cell steps the engine
//! and carries out what it asks for; [`agents`] speak to the agents; the [`relay`] brings what they say into the
//! [`hub`], where readers find it once it is durable. Configuration is read whole ([`config`]), at
//! the start and at a reload ([`http::live`]), and means [`AgentSpec`]s from then on.

pub mod access;
pub mod agents;
mod chain;
pub mod clock;
pub mod config;
mod delegate;
pub mod driver;
pub mod error;
mod fetch;
mod figures;
pub mod handle;
pub mod http;
pub mod hub;
mod late;
pub mod metrics;
pub mod outbox;
pub mod push;
pub mod registry;
pub mod relay;
mod reminder;
mod replace;
mod states;
pub mod tokens;
mod tools;
pub mod wake;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use watertight_engine::ids::{AgentId, Principal};
use watertight_engine::input::Input;
use watertight_engine::record::Row;
use watertight_engine::settings::{AgentSettings, Settings};
use watertight_policy::access::Place;
use watertight_policy::rate;
use watertight_policy::time::Span;
use watertight_store::Store;

use driver::drains::Drains;

/// One agent, as configured.
#[derive(Clone)]
pub struct AgentSpec {
    /// Its name.
    pub name: AgentId,
    /// Its walls.
    pub engine: AgentSettings,
    /// How to speak to it.
    pub wire: Arc<agents::AgentConfig>,
    /// Who may call it, and whom it may call.
    pub place: Place<AgentId>,
    /// How long a blocking call is held when the caller does not say; `None`: as long as its budget.
    pub wait: Option<Span>,
    /// What is kept of its ended delegations, where they are kept in memory alone.
    pub memory: InMemory,
    /// How it is woken when nobody answers there.
    pub wake: Option<wake::Hook>,
    /// It fetches its work, and a worker that has some has to say something of it within this time.
    pub lease: Option<Duration>,
    /// It is told by a message that results wait for it, no more often than this.
    pub results: Option<Span>,
}

/// How much of what has ended is kept for an agent with `durability = "memory"`; the oldest goes first. What has not
/// ended is bounded by the cell's limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InMemory {
    /// Delegations.
    pub max_tasks: usize,
    /// Bytes of their records.
    pub max_bytes: usize,
}

impl Default for InMemory {
    /// Ten thousand, and 64 MiB.
    fn default() -> InMemory {
        InMemory { max_tasks: 10_000, max_bytes: 64 << 20 }
    }
}

/// What a gateway is started with.
pub struct Started {
    /// Where tasks are kept.
    pub store: StoreSpec,
    /// How long what has ended is kept there.
    pub kept: Kept,
    /// The agents.
    pub agents: Vec<AgentSpec>,
    /// Limits of the cell over all agents.
    pub cell: CellLimits,
    /// Limits of streams.
    pub streams: hub::Limits,
    /// Whether news of tasks is pushed.
    pub push: push::Settings,
    /// Signs what agents are given to show for whom they work.
    pub key: config::InstanceKey,
    /// Who may call at all: what waits in the store is judged by it too.
    pub grants: access::Grants,
}

/// What a cell may hold over all agents. See [`Settings`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CellLimits {
    /// Accepted delegations that are not over.
    pub max_delegations: usize,
    /// Turns that wait behind one context or task.
    pub max_behind: usize,
    /// Accepted turns of one tenant that may wait for slots.
    pub max_queued_per_tenant: usize,
    /// Notices that may wait in one outbox.
    pub max_outbox: usize,
    /// Callers whose waiting turns get more than one slot when it is their turn.
    pub weights: BTreeMap<Principal, u32>,
    /// How often one agent may send another messages in one conversation.
    pub rate: rate::Params,
}

impl Default for CellLimits {
    fn default() -> CellLimits {
        let Settings {
            max_delegations,
            max_behind,
            max_queued_per_tenant,
            max_outbox,
            weights,
            rate,
            agents: _,
            removed: _,
        } = Settings::default();
        CellLimits { max_delegations, max_behind, max_queued_per_tenant, max_outbox, weights, rate }
    }
}

impl CellLimits {
    fn settings(self, agents: BTreeMap<AgentId, AgentSettings>, removed: BTreeMap<AgentId, AgentSettings>) -> Settings {
        let CellLimits { max_delegations, max_behind, max_queued_per_tenant, max_outbox, weights, rate } = self;
        Settings { max_delegations, max_behind, max_queued_per_tenant, max_outbox, weights, rate, agents, removed }
    }
}

/// Where tasks are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreSpec {
    /// Below this directory.
    File(std::path::PathBuf),
    /// Nowhere: gone with the process.
    Memory,
}

/// How long the store keeps what has ended. What has not ended, or owes a cancel, is never removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// A task, from its terminal state on. After that it is unknown (`TaskNotFound`). Zero: until the next round.
    pub retention: Span,
    /// The messageIds of a task, from its terminal state on: a repetition within it gets the first one's task.
    pub dedupe_window: Span,
}

impl Default for Kept {
    /// A week, and a day.
    fn default() -> Kept {
        Kept { retention: Span::from_secs(7 * 86_400), dedupe_window: Span::from_secs(86_400) }
    }
}

impl Kept {
    /// Between two rounds of removing: a tenth of what is kept the shortest, of at least a second and at most a minute.
    fn round(&self) -> Duration {
        let tenth = self.retention.min(self.dedupe_window).div(10);
        Duration::from_micros(tenth.as_micros()).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store could not be opened.
    #[error("the store could not be opened: {0}")]
    Store(String),
    /// The cell's thread could not be started.
    #[error("the cell's thread could not be started: {0}")]
    Thread(String),
    /// An agent's client could not be built.
    #[error("agent {agent}: {why}")]
    Agent {
        /// Which.
        agent: AgentId,
        /// Why.
        why: String,
    },
    /// The cell takes no orders just now.
    #[error("the cell takes no orders just now; try again")]
    Busy,
}

/// A running gateway.
pub struct Gateway {
    /// The door to it.
    pub handle: handle::Handle,
}

impl Gateway {
    /// Opens the store, picks up what it holds, and starts to work. Must be called inside a tokio runtime.
    pub async fn start(started: Started) -> Result<Gateway, StartError> {
        let opening = tokio::task::spawn_blocking(move || open(started.store));
        let Opened { store, fence, clock, rows, outboxes, hooks, drains } =
            opening.await.map_err(|error| StartError::Store(error.to_string()))??;
        let hub = Arc::new(hub::Hub::new(started.streams));
        let key = started.key;
        let shared = driver::shared::Shared::new(clock.clone(), store, hub, started.cell, started.kept, drains, key);
        let shared = Arc::new(shared);
        shared.grant(started.grants);
        shared.pushes.set(started.push);
        shared.pushes.load(hooks);
        let handle = handle::Handle::new(shared.clone());
        handle.configure(started.agents).await?;
        let seed = clock::random().map(u64::from_be_bytes).unwrap_or(fence);
        tokio::spawn(prune(shared.clone()));
        // A thread of its own: however many attempts and readers keep the runtime's workers busy, the cell gets its
        // turn from the operating system, and refusals and timers with it.
        let (runtime, pushing) = (tokio::runtime::Handle::current(), shared.clone());
        std::thread::Builder::new()
            .name("cell-0".to_owned())
            .spawn(move || runtime.block_on(driver::Driver::start(shared, rows, outboxes, seed, fence)))
            .map_err(|error| StartError::Thread(error.to_string()))?;
        push::stir_all(&pushing);
        Ok(Gateway { handle })
    }
}

/// Removes what has been kept long enough, until the gateway ends.
async fn prune(shared: Arc<driver::shared::Shared>) {
    let mut told = shared.kept.subscribe();
    while !shared.is_gone() {
        let kept = *told.borrow_and_update();
        let (store, now) = (shared.store.clone(), shared.clock.now());
        shared.metrics.pruned(shared.shelf.prune(now, kept));
        // Refused only when thousands of orders wait: the next round comes.
        let _ = shared.order(Input::OutboxesAged { before: now - kept.retention });
        let pruned = tokio::task::spawn_blocking(move || store.prune(now, kept.retention, kept.dedupe_window)).await;
        match pruned {
            Ok(Ok(pruned)) if pruned.tasks + pruned.keys > 0 => {
                shared.metrics.pruned(pruned.tasks);
                tracing::info!(tasks = pruned.tasks, keys = pruned.keys, "removed what was kept long enough");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "nothing could be removed from the store; tried again"),
            Err(_) => return,
        }
        // Who shortens it wants the room now.
        let _either = tokio::time::timeout(kept.round(), told.changed()).await;
    }
}

/// What a start finds in the store.
struct Opened {
    store: Store,
    fence: u64,
    clock: clock::Clock,
    rows: Vec<Row>,
    outboxes: Vec<watertight_engine::outbox::Stored>,
    hooks: Vec<watertight_store::Hook>,
    drains: Drains,
}

/// The clock runs from the lease on, however long loading takes.
fn open(spec: StoreSpec) -> Result<Opened, StartError> {
    let (store, lease) = match &spec {
        StoreSpec::File(directory) => {
            Store::open(directory, 0).map_err(|error| StartError::Store(error.to_string()))?
        }
        StoreSpec::Memory => Store::memory(),
    };
    let clock = clock::Clock::anchored(lease.now);
    let rows = driver::reload::under_way(&store).map_err(|error| StartError::Store(error.to_string()))?;
    let outboxes = store.outboxes().map_err(|error| StartError::Store(error.to_string()))?;
    let hooks = store.hooks().map_err(|error| StartError::Store(error.to_string()))?;
    // After the store, whose lock says that nobody else is here.
    let drains = Drains::open(match &spec {
        StoreSpec::File(directory) => Some(directory),
        StoreSpec::Memory => None,
    });
    Ok(Opened { store, fence: lease.fence, clock, rows, outboxes, hooks, drains })
}

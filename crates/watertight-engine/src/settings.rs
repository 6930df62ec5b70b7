//! Limits, as inputs: a reload is one more input, and changes them without a restart.

use std::collections::BTreeMap;

use watertight_policy::time::{Span, Time};
use watertight_policy::{acceptance, backoff, breaker, budget, bulkhead, queue, rate, retry_budget};

use crate::ids::{AgentId, Principal};
use crate::record::Durability;

/// What a cell may hold, and its agents.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Accepted delegations that are not terminal, over all agents. One more is refused (`cell_overloaded`).
    pub max_delegations: usize,
    /// Turns that wait behind one context or one task. One more is refused (`context_queue_full`, `task_busy`).
    pub max_behind: usize,
    /// Accepted turns of one tenant that may wait for slots, over all agents. One more is refused (`queue_full`).
    pub max_queued_per_tenant: usize,
    /// Notices that may wait in one outbox. One more drops the oldest.
    pub max_outbox: usize,
    /// Whose waiting turns get more than one slot when it is their turn, among those of equal priority.
    pub weights: BTreeMap<Principal, u32>,
    /// How often one agent may send another messages in one conversation. One more is refused (`rate_limited`).
    pub rate: rate::Params,
    /// The agents by name. One that is missing is unknown to callers; its running work goes on.
    pub agents: BTreeMap<AgentId, AgentSettings>,
    /// Those that were configured once, and are not any more: what they still have keeps to their walls, also in a cell that is
    /// loaded again. Of one that is not here either, the usual ones hold.
    pub removed: BTreeMap<AgentId, AgentSettings>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_delegations: 100_000,
            max_behind: 64,
            max_queued_per_tenant: 100_000,
            max_outbox: 10_000,
            weights: BTreeMap::new(),
            rate: rate::Params::default(),
            agents: BTreeMap::new(),
            removed: BTreeMap::new(),
        }
    }
}

/// Which turns of one agent may not overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Serialize {
    /// Those of one context.
    #[default]
    Context,
    /// All.
    Agent,
    /// None.
    None,
}

/// One agent's walls.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// In flight, waiting, and for how long.
    pub bulkhead: bulkhead::Params,
    /// When traffic is kept away from it.
    pub breaker: breaker::Params,
    /// Between tries.
    pub backoff: backoff::Params,
    /// How many retries per request, over all.
    pub retry_budget: retry_budget::Params,
    /// Defaults and ceilings of a budget.
    pub budget: budget::Params,
    /// What counts as a result.
    pub acceptance: acceptance::Params,
    /// Where its new delegations are kept.
    pub durability: Durability,
    /// Tries per turn; 1 = no retry. A retry happens only if nothing was sent, or the agent is idempotent.
    pub attempts: u32,
    /// The agent runs a messageId at most once, however often it is sent.
    pub idempotent: bool,
    /// It can be asked which task a message began, so that what was sent before a crash is looked for.
    pub lookup: bool,
    /// See [`Serialize`].
    pub serialize: Serialize,
    /// It owns one session that goes on and on, and works on one thing at a time: nobody is refused because it is busy,
    /// and nothing is sent while what was sent may still run.
    pub native_session: bool,
    /// A blocking call that finds no slot is queued, not refused.
    pub queue_overflow: bool,
    /// Accepted turns that may wait for a slot. One more is refused (`queue_full`).
    pub max_queued: usize,
    /// Likewise of one caller.
    pub max_queued_per_caller: usize,
    /// How what waits is ordered.
    pub queue: queue::Params,
    /// How long an accepted turn may wait before it has expired, if its caller does not say.
    pub queue_ttl: Span,
    /// The longest that a caller may say.
    pub queue_ttl_max: Span,
    /// How long a caller's cancel waits for the agent before the task is canceled without its word.
    pub cancel_wait: Span,
    /// How long a cancel is tried, and a cut attempt's slot held for it.
    pub cancel_grace: Span,
    /// How much longer a context is held when nobody knows whether the agent's work in it ended.
    pub context_grace: Span,
    /// How long a task may wait for its caller's answer.
    pub interrupted_max: Span,
    /// It is not called: its workers ask for work, and what waits for it waits until one does.
    pub fetches: bool,
    /// It has a hook that wakes it when nobody answers there, which is called no more often than this.
    pub wake: Option<Span>,
    /// Somebody is about to restart it: nothing new is delivered, and what runs was given until then.
    pub drain: Option<Time>,
}

impl Default for AgentSettings {
    fn default() -> AgentSettings {
        AgentSettings {
            bulkhead: bulkhead::Params::default(),
            breaker: breaker::Params::default(),
            backoff: backoff::Params::default(),
            retry_budget: retry_budget::Params::default(),
            budget: budget::Params::default(),
            acceptance: acceptance::Params::default(),
            durability: Durability::Durable,
            attempts: 2,
            idempotent: false,
            lookup: false,
            serialize: Serialize::Context,
            native_session: false,
            queue_overflow: false,
            max_queued: 1_000,
            max_queued_per_caller: 1_000,
            queue: queue::Params::default(),
            queue_ttl: Span::from_secs(3_600),
            queue_ttl_max: Span::from_secs(86_400),
            cancel_wait: Span::from_millis(1_000),
            cancel_grace: Span::from_secs(10),
            context_grace: Span::from_secs(30),
            interrupted_max: Span::from_secs(86_400),
            fetches: false,
            wake: None,
            drain: None,
        }
    }
}

//! What was written: the shape of the file. Nothing here is judged; unknown keys are refused.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

pub(super) type Text = Spanned<String>;

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<Text>,
    pub(super) key: Option<Text>,
    pub(super) tokens: Option<Text>,
    #[serde(default)]
    pub(super) server: Server,
    #[serde(default)]
    pub(super) store: Store,
    #[serde(default)]
    pub(super) drain: Drain,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) push: Push,
    #[serde(default)]
    pub(super) callers: BTreeMap<Text, Caller>,
    #[serde(default)]
    pub(super) enrolment: BTreeMap<Text, Enrolment>,
    #[serde(default)]
    pub(super) agents: BTreeMap<Text, Agent>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) public_url: Option<Text>,
    pub(super) trusted_proxies: Option<Vec<Text>>,
    pub(super) max_connections: Option<Spanned<u32>>,
    pub(super) max_streams_per_connection: Option<Spanned<u32>>,
    pub(super) max_header_bytes: Option<Text>,
    pub(super) max_request_bytes: Option<Text>,
    pub(super) max_buffered_bytes: Option<Text>,
    pub(super) header_timeout: Option<Text>,
    pub(super) body_timeout: Option<Text>,
    pub(super) write_stall: Option<Text>,
    pub(super) max_outbound_events: Option<Spanned<u32>>,
    pub(super) max_outbound_bytes: Option<Text>,
    pub(super) max_delegations: Option<Spanned<u32>>,
    pub(super) max_behind: Option<Spanned<u32>>,
    pub(super) max_queued_per_tenant: Option<Spanned<u32>>,
    pub(super) max_outbox: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) outbox: bool,
    pub(super) access: Option<Text>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Store {
    pub(super) path: Option<Text>,
    pub(super) retention: Option<Text>,
    pub(super) dedupe_window: Option<Text>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    pub(super) limit: Option<Text>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub(super) agent_messages: Option<Spanned<u32>>,
    pub(super) agent_messages_window: Option<Text>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Push {
    pub(super) enabled: bool,
    pub(super) allow: Option<Vec<Text>>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Caller {
    pub(super) token: Option<Text>,
    pub(super) tenant: Option<Text>,
    pub(super) agent: Option<Text>,
    pub(super) agents: Option<Vec<Text>>,
    pub(super) weight: Option<Spanned<u32>>,
    pub(super) outbox: Option<bool>,
    #[serde(default)]
    pub(super) operator: bool,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Enrolment {
    pub(super) secret: Option<Text>,
    pub(super) tenant: Option<Text>,
    pub(super) parent: Option<Text>,
    pub(super) max_agents: Option<Spanned<u32>>,
    pub(super) allow: Option<Vec<Text>>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Agent {
    pub(super) url: Option<Text>,
    pub(super) tenant: Option<Text>,
    pub(super) parent: Option<Text>,
    pub(super) can_delegate: Option<bool>,
    pub(super) card: Option<Text>,
    pub(super) binding: Option<Text>,
    pub(super) mode: Option<Text>,
    #[serde(default)]
    pub(super) headers: BTreeMap<Text, Text>,
    pub(super) connect_timeout: Option<Text>,
    pub(super) idle_timeout: Option<Text>,
    pub(super) unreachable_after: Option<Text>,
    pub(super) max_in_flight: Option<Spanned<u32>>,
    pub(super) max_waiting: Option<Spanned<u32>>,
    pub(super) max_wait: Option<Text>,
    pub(super) budget: Option<Text>,
    pub(super) max_budget: Option<Text>,
    pub(super) reserve: Option<Text>,
    pub(super) depth: Option<Spanned<u32>>,
    pub(super) fanout: Option<Spanned<u32>>,
    pub(super) wait: Option<Text>,
    pub(super) overflow: Option<Text>,
    pub(super) max_queued: Option<Spanned<u32>>,
    pub(super) max_queued_per_caller: Option<Spanned<u32>>,
    pub(super) ageing: Option<Text>,
    pub(super) queue_ttl: Option<Text>,
    pub(super) queue_ttl_max: Option<Text>,
    pub(super) attempts: Option<Spanned<u32>>,
    pub(super) backoff_base: Option<Text>,
    pub(super) backoff_max: Option<Text>,
    pub(super) retry_budget: Option<Text>,
    #[serde(default)]
    pub(super) idempotent: bool,
    #[serde(default)]
    pub(super) lookup: bool,
    pub(super) serialize: Option<Text>,
    #[serde(default)]
    pub(super) native_session: bool,
    pub(super) durability: Option<Text>,
    pub(super) memory_max_tasks: Option<Spanned<u32>>,
    pub(super) memory_max_bytes: Option<Text>,
    pub(super) max_result_bytes: Option<Text>,
    pub(super) max_task_bytes: Option<Text>,
    pub(super) cancel_wait: Option<Text>,
    pub(super) cancel_grace: Option<Text>,
    pub(super) context_grace: Option<Text>,
    pub(super) interrupted_max: Option<Text>,
    #[serde(default)]
    pub(super) fetches: bool,
    pub(super) lease: Option<Text>,
    pub(super) results: Option<Text>,
    pub(super) results_cooldown: Option<Text>,
    #[serde(default)]
    pub(super) wake: Wake,
    #[serde(default)]
    pub(super) breaker: Breaker,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Wake {
    pub(super) url: Option<Text>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    pub(super) cooldown: Option<Text>,
    pub(super) timeout: Option<Text>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Breaker {
    pub(super) consecutive_failures: Option<Spanned<u32>>,
    pub(super) failure_rate: Option<Text>,
    pub(super) slow_call_rate: Option<Text>,
    pub(super) slow_call: Option<Text>,
    pub(super) window: Option<Text>,
    pub(super) min_calls: Option<Spanned<u32>>,
    pub(super) min_wait: Option<Text>,
    pub(super) caller_share: Option<Text>,
    pub(super) ejection_base: Option<Text>,
    pub(super) ejection_max: Option<Text>,
    pub(super) probe_timeout: Option<Text>,
}

//! What `/metrics` tells. Labels come from configuration and closed vocabularies only: no caller, peer or message can
//! make a new time series.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use watertight_engine::ids::AgentId;
use watertight_engine::record::TaskState;
use watertight_policy::breaker;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::handle::AgentStats;

/// Seconds, from a quick answer to a long task.
const BUCKETS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0];

/// The label of agents that are not configured: callers choose that name, and may not fill memory with it.
const UNKNOWN: &str = "(unknown)";

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfAgent {
    agent: Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfRefusal {
    agent: Arc<str>,
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfWake {
    agent: String,
    result: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfOutcome {
    agent: Arc<str>,
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfToken {
    outcome: &'static str,
}

/// All of them.
pub struct Metrics {
    registry: Registry,
    in_flight: Family<OfAgent, Gauge>,
    waiting: Family<OfAgent, Gauge>,
    queued: Family<OfAgent, Gauge>,
    queue_age: Family<OfAgent, Gauge<f64, AtomicU64>>,
    draining: Family<OfAgent, Gauge>,
    suspended: Family<OfAgent, Gauge>,
    slots: Family<OfAgent, Gauge>,
    breaker: Family<OfAgent, Gauge>,
    streams: Family<OfAgent, Gauge>,
    memory_tasks: Family<OfAgent, Gauge>,
    memory_bytes: Family<OfAgent, Gauge>,
    asleep: Family<OfAgent, Gauge>,
    wakes: Family<OfWake, Counter>,
    refusals: Family<OfRefusal, Counter>,
    outcomes: Family<OfOutcome, Counter>,
    seconds: Family<OfAgent, Histogram, fn() -> Histogram>,
    wait_seconds: Family<OfAgent, Histogram, fn() -> Histogram>,
    peak: Family<OfAgent, Gauge>,
    stranded: Family<OfAgent, Gauge>,
    commits: Counter,
    rows: Counter,
    backlog: Gauge,
    inputs: Counter,
    reloads: Counter,
    pruned: Counter,
    delegation_tokens: Family<OfToken, Counter>,
    delegations: Gauge<i64>,
    outboxes: Gauge,
    results: Gauge,
    results_age: Gauge<f64, AtomicU64>,
    hooks: Gauge,
    evictions: Counter<u64, AtomicU64>,
    unknown_events: Family<OfAgent, Counter>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("watertight"),
            in_flight: Family::default(),
            waiting: Family::default(),
            queued: Family::default(),
            queue_age: Family::default(),
            draining: Family::default(),
            suspended: Family::default(),
            slots: Family::default(),
            breaker: Family::default(),
            streams: Family::default(),
            memory_tasks: Family::default(),
            memory_bytes: Family::default(),
            asleep: Family::default(),
            wakes: Family::default(),
            refusals: Family::default(),
            outcomes: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            wait_seconds: Family::new_with_constructor(histogram),
            peak: Family::default(),
            stranded: Family::default(),
            commits: Counter::default(),
            rows: Counter::default(),
            backlog: Gauge::default(),
            inputs: Counter::default(),
            reloads: Counter::default(),
            pruned: Counter::default(),
            delegation_tokens: Family::default(),
            delegations: Gauge::default(),
            outboxes: Gauge::default(),
            results: Gauge::default(),
            results_age: Gauge::default(),
            hooks: Gauge::default(),
            evictions: Counter::default(),
            unknown_events: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("in_flight", "Slots of the agent that are taken", self.in_flight.clone());
        r.register("waiting", "Callers that wait a short while for a slot", self.waiting.clone());
        r.register("queued", "Accepted turns that wait for a slot", self.queued.clone());
        r.register("queue_age_seconds", "How long the oldest of them has waited", self.queue_age.clone());
        r.register("draining", "1 while the agent is drained for its restart", self.draining.clone());
        let help = "Turns that the agent dropped while it is drained, and that are watched again when it is back";
        r.register("suspended", help, self.suspended.clone());
        r.register("slots", "Slots of the agent", self.slots.clone());
        r.register("breaker_state", "0 admitting, 1 probing, 2 ejected", self.breaker.clone());
        r.register("streams", "Open streams toward callers", self.streams.clone());
        let help = "Ended tasks of an agent with durability = memory that are still kept";
        r.register("memory_tasks", help, self.memory_tasks.clone());
        r.register("memory_bytes", "Bytes of their records", self.memory_bytes.clone());
        r.register("asleep", "1 while nobody answers at an agent that can be woken", self.asleep.clone());
        r.register("wakes", "Calls of the agent's wake hook that ended", self.wakes.clone());
        r.register("refusals", "Calls turned away before a task existed", self.refusals.clone());
        r.register("outcomes", "Turns that ended", self.outcomes.clone());
        r.register("call_seconds", "From the last dispatch to the end of a turn", self.seconds.clone());
        r.register("slot_wait_seconds", "From asking for a slot to the last dispatch", self.wait_seconds.clone());
        r.register("slots_peak", "Slots taken at once at most, of the last five minutes", self.peak.clone());
        r.register("slots_stranded", "Slots that were not needed in the last five minutes", self.stranded.clone());
        r.register("commits", "Commits that are durable", self.commits.clone());
        r.register("commit_rows", "Rows in durable commits", self.rows.clone());
        r.register("store_backlog", "Commits handed to the store and not answered yet", self.backlog.clone());
        r.register("cell_inputs", "Inputs that the cell has taken", self.inputs.clone());
        r.register("tasks_removed", "Tasks that were removed after their retention", self.pruned.clone());
        let help = "Messages that came with an x-delegation: taken, foreign (or not whole), or not_the_holder's";
        r.register("delegation_tokens", help, self.delegation_tokens.clone());
        r.register("cell_reloads", "Times that the cell was loaded again from its store", self.reloads.clone());
        r.register("stream_evictions", "Streams closed because their reader stayed full", self.evictions.clone());
        let help = "Events of an unknown kind in the agent's streams, which were passed over";
        r.register("unknown_events", help, self.unknown_events.clone());
        r.register("delegations", "Delegations in memory", self.delegations.clone());
        r.register("outboxes_waiting", "Outboxes in which something waits", self.outboxes.clone());
        r.register("outbox_results", "Results that nobody has acknowledged yet", self.results.clone());
        r.register("outbox_age_seconds", "How long the oldest of them has waited", self.results_age.clone());
        r.register("push_hooks", "Push configurations whose end has not arrived yet", self.hooks.clone());
    }

    /// The text, with the agents as they are at the moment.
    pub(crate) fn encode(&self, agents: &[AgentStats], now: &Now) -> String {
        for view in agents {
            let of = OfAgent { agent: view.agent.0.clone() };
            self.in_flight.get_or_create(&of).set(i64::from(view.in_flight));
            self.waiting.get_or_create(&of).set(i64::from(view.waiting));
            self.queued.get_or_create(&of).set(i64::from(view.queued));
            self.queue_age.get_or_create(&of).set(view.oldest.map_or(0.0, Span::as_secs_f64));
            self.draining.get_or_create(&of).set(i64::from(view.drain.is_some()));
            self.asleep.get_or_create(&of).set(i64::from(view.asleep));
            self.suspended.get_or_create(&of).set(i64::from(view.suspended));
            self.slots.get_or_create(&of).set(i64::from(view.max_in_flight));
            self.breaker.get_or_create(&of).set(breaker_number(view.breaker.state));
            self.streams.get_or_create(&of).set(i64::from(view.streams));
            if let Some((tasks, bytes)) = view.in_memory {
                self.memory_tasks.get_or_create(&of).set(as_gauge(tasks));
                self.memory_bytes.get_or_create(&of).set(as_gauge(bytes));
            }
            self.peak.get_or_create(&of).set(i64::from(view.seen.peak));
            self.stranded.get_or_create(&of).set(i64::from(view.stranded()));
        }
        self.backlog.set(as_gauge(now.backlog));
        self.delegations.set(as_gauge(now.delegations));
        self.outboxes.set(as_gauge(now.outboxes));
        self.results.set(as_gauge(now.results));
        self.results_age.set(now.results_age.as_secs_f64());
        self.hooks.set(as_gauge(now.hooks));
        // The hub counts for itself; a counter can only be moved forward by the difference.
        let told = self.evictions.get();
        self.evictions.inc_by(now.evictions.saturating_sub(told));
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(std::fmt::Error) => String::new(),
        }
    }

    pub(crate) fn woken(&self, agent: &AgentId, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.wakes.get_or_create(&OfWake { agent: agent.to_string(), result }).inc();
    }

    /// A message came with an `x-delegation`.
    pub(crate) fn delegation_token(&self, outcome: &'static str) {
        self.delegation_tokens.get_or_create(&OfToken { outcome }).inc();
    }

    pub(crate) fn refused(&self, agent: &AgentId, known: bool, reason: Reason) {
        let agent = if known { agent.0.clone() } else { UNKNOWN.into() };
        self.refusals.get_or_create(&OfRefusal { agent, reason: reason.as_str() }).inc();
    }

    pub(crate) fn ended(
        &self,
        agent: &AgentId,
        state: TaskState,
        reason: Option<Reason>,
        took: Option<Span>,
        waited: Span,
    ) {
        let of = OfOutcome {
            agent: agent.0.clone(),
            outcome: outcome(state),
            reason: reason.map_or("none", |reason| reason.as_str()),
        };
        self.outcomes.get_or_create(&of).inc();
        if let Some(took) = took {
            let of = OfAgent { agent: agent.0.clone() };
            self.seconds.get_or_create(&of).observe(took.as_secs_f64());
            self.wait_seconds.get_or_create(&of).observe(waited.as_secs_f64());
        }
    }

    pub(crate) fn committed(&self, rows: usize) {
        self.commits.inc();
        self.rows.inc_by(rows as u64);
    }

    pub(crate) fn took_inputs(&self, inputs: usize) {
        self.inputs.inc_by(inputs as u64);
    }

    pub(crate) fn pruned(&self, tasks: u64) {
        self.pruned.inc_by(tasks);
    }

    pub(crate) fn reloaded(&self) {
        self.reloads.inc();
    }

    pub(crate) fn passed_over(&self, agent: &AgentId) {
        self.unknown_events.get_or_create(&OfAgent { agent: agent.0.clone() }).inc();
    }
}

/// Numbers that others keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) backlog: usize,
    pub(crate) delegations: usize,
    /// Outboxes in which something waits, how much in all of them, and for how long.
    pub(crate) outboxes: usize,
    pub(crate) results: usize,
    pub(crate) results_age: Span,
    pub(crate) hooks: usize,
    pub(crate) evictions: u64,
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn breaker_number(state: breaker::State) -> i64 {
    match state {
        breaker::State::Admitting => 0,
        breaker::State::Probing => 1,
        breaker::State::Ejected => 2,
    }
}

fn outcome(state: TaskState) -> &'static str {
    match state {
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::Rejected => "rejected",
        TaskState::InputRequired | TaskState::AuthRequired => "interrupted",
        TaskState::Submitted | TaskState::Working => "unfinished",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_documented() {
        let metrics = Metrics::new();
        let agent = AgentId::new("fx");
        metrics.refused(&agent, true, Reason::BulkheadFull);
        metrics.refused(&AgentId::new("made-up-by-a-caller"), false, Reason::AgentUnknown);
        metrics.ended(&agent, TaskState::Failed, Some(Reason::AgentNoAnswer), Some(Span::from_millis(30)), Span::ZERO);
        let now = Now {
            backlog: 3,
            delegations: 7,
            outboxes: 2,
            results: 5,
            results_age: Span::from_secs(4),
            hooks: 1,
            evictions: 2,
        };
        let text = metrics.encode(&[], &now);
        for line in [
            "watertight_refusals_total{agent=\"fx\",reason=\"bulkhead_full\"} 1",
            "watertight_refusals_total{agent=\"(unknown)\",reason=\"agent_unknown\"} 1",
            "watertight_outcomes_total{agent=\"fx\",outcome=\"failed\",reason=\"agent_no_answer\"} 1",
            "watertight_call_seconds_bucket{le=\"0.05\",agent=\"fx\"} 1",
            "watertight_slot_wait_seconds_bucket{le=\"0.005\",agent=\"fx\"} 1",
            "watertight_store_backlog 3",
            "watertight_outboxes_waiting 2",
            "watertight_outbox_results 5",
            "watertight_outbox_age_seconds 4.0",
            "watertight_push_hooks 1",
            "watertight_stream_evictions_total 2",
            "watertight_cell_reloads_total 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("made-up"));
    }
}

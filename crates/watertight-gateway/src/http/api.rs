//! The gateway's own API, as far as operating it needs: the agents and their walls.

use http::{Response, StatusCode};
use serde_json::{Value, json};
use watertight_engine::ids::AgentId;
use watertight_policy::breaker;
use watertight_policy::time::{Span, Time};

use super::body::Body;
use super::reply::{json_response, plain, unknown};
use super::router::Router;
use crate::handle::AgentStats;

/// `GET /v1/agents`
pub(super) fn agents(router: &Router) -> Response<Body> {
    let now = router.handle().now();
    let agents: Vec<Value> = router.handle().agents().iter().map(|stats| one(router, stats, now)).collect();
    json_response(StatusCode::OK, json!({ "agents": agents }).to_string())
}

/// `POST /v1/agents/{agent}/breaker/reset`
pub(super) async fn reset_breaker(router: &Router, agent: &AgentId) -> Response<Body> {
    if !router.handle().breaker_reset(agent).await {
        return plain(&unknown(agent));
    }
    tracing::info!(%agent, "breaker reset by an operator");
    json_response(StatusCode::OK, json!({"agent": agent.as_str(), "breaker": {"state": "admitting"}}).to_string())
}

fn one(router: &Router, stats: &AgentStats, now: Time) -> Value {
    let breaker = &stats.breaker;
    let mut out = json!({
        "agent": stats.agent.as_str(),
        "inFlight": stats.in_flight,
        "maxInFlight": stats.max_in_flight,
        "waiting": stats.waiting,
        "queued": stats.queued,
        "streams": stats.streams,
        "pacingMs": stats.pacing.map(millis),
        "breaker": {
            "state": state(breaker.state),
            "untilMs": breaker.until.map(|until| millis(until.since(now))),
            "ejections": breaker.ejections,
            "calls": breaker.calls,
            "failures": breaker.failures,
            "slow": breaker.slow,
            "consecutiveFailures": breaker.consecutive,
        },
    });
    let configured = router.agent(&stats.agent);
    if let (Some(out), Some(agent)) = (out.as_object_mut(), configured) {
        let (bulkhead, budget) = (&agent.settings.bulkhead, &agent.settings.budget);
        out.insert("url".to_owned(), json!(agent.wire.url.to_string()));
        let limits = json!({
            "maxWaiting": bulkhead.max_waiting,
            "maxWaitMs": millis(bulkhead.max_wait),
            "budgetMs": millis(budget.remaining),
            "waitMs": agent.wait.map(millis),
            "depth": budget.depth,
            "fanout": budget.fanout,
            "maxQueued": agent.settings.max_queued,
            "queueTtlMs": millis(agent.settings.queue_ttl),
            "attempts": agent.settings.attempts,
            "connectTimeoutMs": agent.wire.connect_timeout.as_millis(),
            "idleTimeoutMs": agent.wire.idle_timeout.as_millis(),
            "maxResultBytes": agent.settings.acceptance.max_result_bytes,
            "maxTaskBytes": agent.settings.acceptance.max_task_bytes,
        });
        out.insert("limits".to_owned(), limits);
    }
    out
}

fn state(state: breaker::State) -> &'static str {
    match state {
        breaker::State::Admitting => "admitting",
        breaker::State::Ejected => "ejected",
        breaker::State::Probing => "probing",
    }
}

fn millis(span: Span) -> u64 {
    span.as_millis()
}

//! `POST /v1/agents/{agent}/drain` and `/resume`: an agent is about to be restarted. For operators.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use watertight_a2a::error::Error;
use watertight_engine::ids::AgentId;
use watertight_policy::time::Span;

use super::body::Body;
use super::reply::{json_response, plain, unknown};
use super::router::Router;
use crate::error::Problem;

/// Where nobody says how long: about what a well-behaved server takes to stop.
const TIMEOUT_S: f64 = 20.0;

/// Longer is no restart.
const MAX_TIMEOUT_S: f64 = 86_400.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default = "usual")]
    timeout_s: f64,
}

fn usual() -> f64 {
    TIMEOUT_S
}

/// `POST /v1/agents/{agent}/drain`
pub(super) async fn drain(router: &Router, agent: &AgentId, body: &Bytes) -> Response<Body> {
    let timeout = match timeout(body) {
        Ok(timeout) => timeout,
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    let Some(drained) = router.handle().drain_agent(agent, timeout).await else { return plain(&unknown(agent)) };
    let (running, waiting, suspended) = counts(router, agent);
    tracing::info!(%agent, %timeout, running, waiting, "drained by an operator: nothing is delivered until it is resumed");
    let body = json!({
        "agent": agent.as_str(),
        "state": "draining",
        "timeoutMs": timeout.as_millis(),
        "running": running,
        "waiting": waiting,
        "suspended": suspended,
        "survivesRestart": drained.kept,
    });
    json_response(StatusCode::OK, body.to_string())
}

/// `POST /v1/agents/{agent}/resume`
pub(super) async fn resume(router: &Router, agent: &AgentId) -> Response<Body> {
    let (_, waiting, suspended) = counts(router, agent);
    let Some(kept) = router.handle().resume_agent(agent).await else { return plain(&unknown(agent)) };
    tracing::info!(%agent, waiting, suspended, "resumed by an operator");
    let body = json!({
        "agent": agent.as_str(),
        "state": "resumed",
        "waiting": waiting,
        "suspended": suspended,
        "survivesRestart": kept,
    });
    json_response(StatusCode::OK, body.to_string())
}

/// What runs, waits, and was dropped by the agent, at most a moment ago.
fn counts(router: &Router, agent: &AgentId) -> (u32, u32, u32) {
    let agents = router.handle().agents();
    let one = agents.iter().find(|stats| stats.agent == *agent);
    one.map_or((0, 0, 0), |stats| (stats.in_flight, stats.queued, stats.suspended))
}

fn timeout(body: &Bytes) -> Result<Span, Error> {
    let wrong = |what: &str| Error::invalid_params("timeout_s", what);
    if body.is_empty() {
        return Ok(Span::from_secs_f64(TIMEOUT_S));
    }
    let body: Value = serde_json::from_slice(body).map_err(|_| wrong("cannot be read: the body is no JSON"))?;
    let asked: Asked = serde_json::from_value(body).map_err(|e| wrong(&format!("cannot be read: {e}")))?;
    match asked.timeout_s {
        s if (0.0..=MAX_TIMEOUT_S).contains(&s) => Ok(Span::from_secs_f64(s)),
        _ => Err(wrong("is 0 to 86400 seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_is_said_in_seconds_or_not_at_all() {
        let of = |body: &'static str| timeout(&Bytes::from_static(body.as_bytes())).map(Span::as_millis);
        assert_eq!((of("").unwrap(), of("{}").unwrap(), of("{\"timeout_s\":2.5}").unwrap()), (20_000, 20_000, 2_500));
        for wrong in ["[", "{\"timeout_s\":-1}", "{\"timeout_s\":86401}", "{\"timeout\":1}", "{\"timeout_s\":\"1s\"}"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}

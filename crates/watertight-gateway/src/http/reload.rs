//! The configuration over HTTP: what is in force, and reading it again. For operators.

use http::{Response, StatusCode};
use serde_json::json;
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_policy::reason::Reason;

use super::auth::Who;
use super::body::Body;
use super::reply::{json_response, plain};
use super::router::Router;
use crate::error::Problem;

/// `GET /v1/config`
pub(super) fn shown(router: &Router) -> Response<Body> {
    match router.live() {
        Some(live) => json_response(StatusCode::OK, live.shown().to_string()),
        None => plain(&ending()),
    }
}

/// `POST /v1/config/reload`
pub(super) async fn reload(router: &Router, who: &Who) -> Response<Body> {
    let Some(live) = router.live() else { return plain(&ending()) };
    let by = format!("caller {}", who.principal.caller);
    match live.reload(&by).await {
        Ok(done) => {
            let body = json!({
                "generation": done.generation,
                "changed": done.changed,
                "agents": {"added": done.added, "removed": done.removed},
                "pendingRestart": done.pending_restart,
            });
            json_response(StatusCode::OK, body.to_string())
        }
        Err(why) => {
            let text = format!("the configuration was not taken, and the one before stays in force:\n{why}");
            plain(&Problem::http(StatusCode::BAD_REQUEST, Error::new(INVALID_REQUEST, text)))
        }
    }
}

fn ending() -> Problem {
    Problem::refusal(Reason::ShuttingDown, "the gateway is stopping")
}

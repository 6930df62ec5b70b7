//! `/v1/agents/{agent}/queue` and `/v1/delegations/{task}/drop`: what waits, in its order, and taking one of it out. For
//! operators, who see what is their tenant's: what others have waiting counts in the places, and is not shown.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_a2a::rest::query;
use watertight_a2a::text;
use watertight_engine::ids::{AgentId, TaskId};
use watertight_policy::reason::Reason;

use super::auth::Who;
use super::body::Body;
use super::delegations::{not_found, one, seen_by};
use super::reply::{json_response, plain, unknown};
use super::router::Router;
use crate::error::Problem;
use crate::handle::Declined;

/// A page where nobody says how long.
const LIMIT: usize = 20;

/// The longest page, and the furthest place: all before it is walked over.
const MAX_LIMIT: usize = 100;
const MAX_SKIP: usize = 10_000;

/// What an operator may say about a drop.
const MAX_REASON_BYTES: usize = 400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    reason: String,
}

/// `GET /v1/agents/{agent}/queue`
pub(super) async fn list(router: &Router, who: &Who, agent: &AgentId, query: &str) -> Response<Body> {
    let (skip, limit) = match page(query) {
        Ok(page) => page,
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    if router.agent(agent).is_none() {
        return plain(&unknown(agent));
    }
    match router.handle().queue(seen_by(who), agent, skip, limit).await {
        Ok(queued) => {
            let now = router.handle().now();
            let rows = queued.rows.iter().map(|(place, row)| {
                let mut shown = one(router, row, now);
                shown["position"] = json!(place);
                shown
            });
            let rows: Vec<Value> = rows.collect();
            let seen = skip + limit;
            let next = (seen < queued.total && seen <= MAX_SKIP).then_some(seen);
            let body = json!({"agent": agent.as_str(), "queued": rows, "next": next, "total": queued.total});
            json_response(StatusCode::OK, body.to_string())
        }
        Err(reason) => plain(&Problem::of(reason, "the queue cannot be read at the moment")),
    }
}

/// `POST /v1/delegations/{task}/drop`
pub(super) async fn drop(router: &Router, who: &Who, task: &str, body: &Bytes) -> Response<Body> {
    let asked: Result<Asked, _> = serde_json::from_slice(body);
    let said = match asked {
        Ok(asked) if !asked.reason.trim().is_empty() => text::clean(asked.reason.trim(), MAX_REASON_BYTES),
        Ok(_) | Err(_) => {
            let error = Error::invalid_params("reason", "is required, as {\"reason\": \"why\"}: its caller is told");
            return plain(&Problem::http(StatusCode::BAD_REQUEST, error));
        }
    };
    let Some(id) = TaskId::parse(task) else { return not_found() };
    match router.handle().drop_queued(seen_by(who), id, &said).await {
        Ok(view) => {
            tracing::info!(task, agent = %view.agent, by = %who.principal.caller, why = said, "dropped from the queue");
            let body = json!({
                "task": task, "agent": view.agent.as_str(), "state": view.state.as_str(), "reason": view.reason.map(Reason::as_str),
            });
            json_response(StatusCode::OK, body.to_string())
        }
        Err(Declined::NotCancelable) => {
            let text = "the task does not wait: it has begun, or is over; watertight tasks cancel ends what runs";
            plain(&Problem::http(StatusCode::CONFLICT, Error::new(INVALID_REQUEST, text)))
        }
        Err(Declined::Refused { reason, .. }) => plain(&Problem::of(reason, crate::error::first_sentence(reason))),
        Err(_) => not_found(),
    }
}

fn page(query: &str) -> Result<(usize, usize), Error> {
    if let Some(unknown) = query::unknown(query, &["limit", "skip"]) {
        return Err(Error::new(INVALID_REQUEST, format!("no `{unknown}` in this query: there are limit, skip")));
    }
    let number = |name: &'static str, least: usize, most: usize| match query::value(query, name)? {
        None => Ok(None),
        Some(text) => match text.parse::<usize>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            Ok(_) | Err(_) => Err(Error::invalid_params(name, format!("is no whole number from {least} to {most}"))),
        },
    };
    Ok((number("skip", 0, MAX_SKIP)?.unwrap_or(0), number("limit", 1, MAX_LIMIT)?.unwrap_or(LIMIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded() {
        assert_eq!((page("").unwrap(), page("skip=20&limit=5").unwrap()), ((0, LIMIT), (20, 5)));
        for wrong in ["limit=0", "limit=101", "skip=10001", "skip=-1", "cursor=1", "limit=5&limit=5"] {
            assert!(page(wrong).is_err(), "{wrong}");
        }
    }
}

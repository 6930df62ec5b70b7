//! `/v1/audit`: one record of each delegation of the tenant's that is over, in the order in which they ended, for whoever keeps
//! such records elsewhere. For operators.
//!
//! The record is the delegation's row, which is written in the commit that ends it: what is not recorded has not ended, and
//! nobody is told that it has. It holds sizes and hashes, and none of what was said. What ended in the last seconds comes a
//! little later, since of two ends the later one may be written first; so whoever goes on from where a page ended misses
//! nothing and reads nothing twice. What is kept in memory alone has no row, and is not here.

use http::{Response, StatusCode};
use serde_json::{Value, json};
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_a2a::rest::query;
use watertight_a2a::time;
use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::record::{Digest, Row};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};
use watertight_store::OverQuery;

use super::auth::Who;
use super::body::Body;
use super::delegations::unavailable;
use super::reply::{json_response, plain};
use super::router::Router;
use crate::error::Problem;
use crate::handle::{place_of, token_of};
use crate::hub::view::millis;

const NARROWED_BY: [&str; 4] = ["after", "since", "until", "limit"];

/// A page where nobody says how long, and the longest.
const LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// A store that has not written for so long is taken for lost, and what it had not written with it.
const IN_ORDER_AFTER: Span = Span::from_secs(3);

/// `GET /v1/audit`
pub(super) async fn list(router: &Router, who: &Who, query: &str) -> Response<Body> {
    let asked = match asked(query) {
        Ok(asked) => asked,
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    let now = router.handle().now();
    let known = Time::from_micros(now.as_micros().saturating_sub(IN_ORDER_AFTER.as_micros()));
    let (until, limit) = (asked.until.unwrap_or(Time::FAR).min(known), asked.limit);
    let query = OverQuery { tenant: who.principal.tenant.clone(), after: asked.after, until, limit };
    match router.handle().over(query).await {
        Ok(rows) => {
            let last = rows.last().map(|row| (row.changed, row.task)).or(asked.after);
            let records: Vec<Value> = rows.iter().map(record).collect();
            let (more, next) = (rows.len() == limit, last.map(|(at, task)| token_of(at, task)));
            json_response(StatusCode::OK, json!({"records": records, "more": more, "next": next}).to_string())
        }
        Err(reason) => unavailable(reason),
    }
}

struct Asked {
    after: Option<(Time, TaskId)>,
    until: Option<Time>,
    limit: usize,
}

fn asked(query: &str) -> Result<Asked, Error> {
    if let Some(unknown) = query::unknown(query, &NARROWED_BY) {
        let names = NARROWED_BY.join(", ");
        return Err(Error::new(INVALID_REQUEST, format!("no `{unknown}` in this query: there are {names}")));
    }
    let moment = |name: &'static str| match query::value(query, name)? {
        None => Ok(None),
        Some(text) => time::parse(&text)
            .and_then(|at| u64::try_from(at).ok())
            .map(|at| Some(Time::from_millis(at)))
            .ok_or_else(|| Error::invalid_params(name, "is no RFC 3339 time, such as 2026-01-02T03:04:05Z")),
    };
    let place = match query::value(query, "after")? {
        None => None,
        Some(token) => {
            let wrong = || Error::invalid_params("after", "is not the `next` of a page");
            Some(place_of(&token).ok_or_else(wrong)?)
        }
    };
    // What ended at this very time is in.
    let since =
        moment("since")?.map(|since| (Time::from_micros(since.as_micros().saturating_sub(1)), TaskId(u128::MAX)));
    let limit = match query::value(query, "limit")?.map(|limit| limit.parse()) {
        None => LIMIT,
        Some(Ok(limit @ 1..=MAX_LIMIT)) => limit,
        Some(Ok(_) | Err(_)) => {
            return Err(Error::invalid_params("limit", format!("is no whole number from 1 to {MAX_LIMIT}")));
        }
    };
    Ok(Asked { after: place.max(since), until: moment("until")?, limit })
}

fn record(row: &Row) -> Value {
    let at = |time: Option<Time>| time.map(|time| time::write(millis(time)));
    let (turn, times) = (&row.turn, &row.turn.times);
    json!({
        "task": row.task.to_string(),
        "tenant": &*row.principal.tenant,
        "caller": &*row.principal.caller,
        "from": row.chain.last().map(AgentId::as_str),
        "agent": row.agent.as_str(),
        "context": &*row.context,
        "root": row.root.to_string(),
        "parent": row.parent.map(|parent| parent.to_string()),
        "redrives": row.redrives.map(|first| first.to_string()),
        "state": row.state.as_str(),
        "reason": row.reason.map(Reason::as_str),
        "delivery": row.delivery.as_str(),
        "cancel": row.cancel.as_str(),
        "turn": turn.no,
        "attempts": turn.attempts,
        "created": time::write(millis(row.created)),
        "sent": at(times.sent),
        "answered": at(times.answered),
        "ended": time::write(millis(row.changed)),
        "request": digest(turn.request),
        "result": digest(turn.result),
    })
}

/// The size in bytes, and the hash in hex digits.
pub(super) fn digest(digest: Option<Digest>) -> Value {
    let Some(digest) = digest else { return Value::Null };
    let hash: String = digest.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"bytes": digest.bytes, "sha256": hash})
}

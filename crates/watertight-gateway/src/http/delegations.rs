//! `/v1/delegations`: what is under way and what became of it, as rows. A caller sees its own, an operator all of its
//! tenant; whatever else there is does not exist.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use watertight_a2a::error::{A2a, Error, INVALID_REQUEST};
use watertight_a2a::rest::query;
use watertight_a2a::time;
use watertight_engine::ids::{AgentId, Key, TaskId};
use watertight_engine::record::{Phase, Row, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;
use watertight_store::Late;

use super::audit;
use super::auth::Who;
use super::body::Body;
use super::reply::{json_response, plain};
use super::router::Router;
use crate::error::Problem;
use crate::handle::{Filter, NoPage, Rows, Whose, idempotency_key};
use crate::hub::view::millis;
use crate::tokens::Scope;

/// What a list may be narrowed by.
const NARROWED_BY: [&str; 9] =
    ["agent", "state", "context", "parent", "since", "messageId", "idempotencyKey", "limit", "cursor"];

/// A page where nobody says how long.
const LIMIT: usize = 20;

/// `GET /v1/delegations`
pub(super) async fn list(router: &Router, who: &Who, query: &str) -> Response<Body> {
    let (filter, parent) = match narrowed(query) {
        Ok(narrowed) => narrowed,
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    let known_by = match (query::value(query, "messageId"), query::value(query, "idempotencyKey")) {
        (Err(error), _) | (_, Err(error)) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
        (Ok(Some(message)), _) => Some(Arc::from(message)),
        (_, Ok(key)) => key.map(|key| idempotency_key(&key)),
    };
    if let Some(known_by) = known_by {
        return of_message(router, who, filter.agent, known_by).await;
    }
    match router.handle().delegations(seen_by(who), filter, parent).await {
        Ok(Rows { rows, next, total }) => {
            let now = router.handle().now();
            let all: Vec<Value> = rows.iter().map(|row| one(router, row, now)).collect();
            json_response(StatusCode::OK, json!({"delegations": all, "next": next, "total": total}).to_string())
        }
        Err(NoPage::BadToken) => {
            let error = Error::invalid_params("cursor", "is not the `next` of a page");
            plain(&Problem::http(StatusCode::BAD_REQUEST, error))
        }
        Err(NoPage::StoreUnavailable) => unavailable(Reason::StoreUnavailable),
    }
}

/// `GET /v1/delegations/{task}`
pub(super) async fn show(router: &Router, who: &Who, task: &str) -> Response<Body> {
    let Some(id) = TaskId::parse(task) else { return not_found() };
    match router.handle().delegation(seen_by(who), id).await {
        Ok(Some(row)) => {
            let mut shown = one(router, &row, router.handle().now());
            if row.turn.waiting_on.is_some() {
                shown["position"] = json!(router.handle().position(id).await);
            }
            if row.state.is_terminal() && row.reason.is_some() {
                match router.handle().late(id).await {
                    Ok(late) => shown["late"] = json!(late.as_ref().map(said_late)),
                    Err(reason) => return unavailable(reason),
                }
            }
            match router.handle().redriven_by(&row.principal, &row.agent, id).await {
                Ok(by) => shown["redrivenBy"] = json!(by.map(|by| by.to_string())),
                Err(reason) => return unavailable(reason),
            }
            json_response(StatusCode::OK, shown.to_string())
        }
        Ok(None) => not_found(),
        Err(reason) => unavailable(reason),
    }
}

/// `GET /v1/delegations/{task}/tree`
pub(super) async fn tree(router: &Router, who: &Who, task: &str) -> Response<Body> {
    let Some(id) = TaskId::parse(task) else { return not_found() };
    match router.handle().tree(seen_by(who), id).await {
        Ok(Some(tree)) => {
            let now = router.handle().now();
            let nodes = tree.rows.iter().map(|(level, row)| {
                let mut node = one(router, row, now);
                node["level"] = json!(level);
                node
            });
            let nodes: Vec<Value> = nodes.collect();
            json_response(StatusCode::OK, json!({"task": task, "nodes": nodes, "whole": tree.whole}).to_string())
        }
        Ok(None) => not_found(),
        Err(reason) => unavailable(reason),
    }
}

/// What became of a message of the caller's own: for who sent it, and has no answer yet.
async fn of_message(router: &Router, who: &Who, agent: Option<AgentId>, message_id: Arc<str>) -> Response<Body> {
    let Some(agent) = agent else {
        let error = Error::invalid_params("agent", "has to be named with a messageId or a key");
        return plain(&Problem::http(StatusCode::BAD_REQUEST, error));
    };
    let key = Key { principal: who.principal.clone(), agent, message_id };
    match router.handle().delegation_of(key).await {
        Ok(row) => {
            let all: Vec<Value> = row.iter().map(|row| one(router, row, router.handle().now())).collect();
            let total = all.len();
            json_response(StatusCode::OK, json!({"delegations": all, "next": null, "total": total}).to_string())
        }
        Err(reason) => unavailable(reason),
    }
}

pub(super) fn seen_by(who: &Who) -> Whose {
    match who.is(Scope::Operator) {
        true => Whose::Tenant(who.principal.tenant.clone()),
        false => Whose::Own(who.principal.clone()),
    }
}

fn narrowed(query: &str) -> Result<(Filter, Option<TaskId>), Error> {
    if let Some(unknown) = query::unknown(query, &NARROWED_BY) {
        let names = NARROWED_BY.join(", ");
        return Err(Error::new(INVALID_REQUEST, format!("no `{unknown}` in this query: there are {names}")));
    }
    let text = |name: &'static str| query::value(query, name);
    let wrong = |name: &'static str, what: &str| Error::invalid_params(name, what);
    let state = text("state")?.map(|state| {
        let named = TaskState::ALL.into_iter().find(|known| known.as_str() == state);
        named.ok_or_else(|| wrong("state", "is no task state, such as TASK_STATE_WORKING"))
    });
    let since = text("since")?.map(|since| {
        let at = time::parse(&since).and_then(|at| u64::try_from(at).ok());
        at.map(Time::from_millis).ok_or_else(|| wrong("since", "is no RFC 3339 time, such as 2026-01-02T03:04:05Z"))
    });
    let limit = text("limit")?.map(|limit| match limit.parse() {
        Ok(limit @ 1..=100) => Ok(limit),
        Ok(_) | Err(_) => Err(wrong("limit", "is no whole number from 1 to 100")),
    });
    let parent = text("parent")?.map(|id| TaskId::parse(&id).ok_or_else(|| wrong("parent", "is no task's id")));
    let filter = Filter {
        agent: text("agent")?.as_deref().map(AgentId::new),
        context: text("context")?,
        state: state.transpose()?,
        changed_since: since.transpose()?,
        limit: limit.transpose()?.unwrap_or(LIMIT),
        after: text("cursor")?,
    };
    Ok((filter, parent.transpose()?))
}

pub(super) fn one(router: &Router, row: &Row, now: Time) -> Value {
    let ended = row.state.is_terminal();
    let until = if ended { row.changed } else { now };
    let waits = row.turn.phase == Phase::Waiting && !ended;
    let at_work = matches!(row.turn.phase, Phase::Dispatching | Phase::Running) && !ended;
    let at = |time: Option<Time>| time.map(|time| time::write(millis(time)));
    let times = &row.turn.times;
    let left = (!ended).then(|| row.turn.budget.remaining(now).as_millis());
    json!({
        "task": row.task.to_string(),
        "agent": row.agent.as_str(),
        "tenant": &*row.principal.tenant,
        "caller": &*row.principal.caller,
        "context": &*row.context,
        "state": row.state.as_str(),
        "reason": row.reason.map(Reason::as_str),
        "waitingOn": router.handle().waits_on(&row.agent, row.turn.waiting_on).map(Reason::as_str),
        "priority": row.turn.priority,
        "waitingMs": waits.then(|| now.since(row.waits_since()).as_millis()),
        "expires": at(waits.then_some(if row.turn.attempts == 0 { row.turn.expires } else { row.turn.budget.deadline })),
        "sent": at(times.sent),
        "answered": at(times.answered),
        "advanced": at(times.advanced),
        "silentMs": times.advanced.or(times.sent).filter(|_| at_work).map(|last| now.since(last).as_millis()),
        "delivery": row.delivery.as_str(),
        "cancel": row.cancel.as_str(),
        "redrives": row.redrives.map(|first| first.to_string()),
        "parent": row.parent.map(|parent| parent.to_string()),
        "root": row.root.to_string(),
        "depth": row.depth,
        "chain": row.chain.iter().map(AgentId::as_str).collect::<Vec<_>>(),
        "children": row.children,
        "request": audit::digest(row.turn.request),
        "result": audit::digest(row.turn.result),
        "turn": row.turn.no,
        "attempts": row.turn.attempts,
        "created": time::write(millis(row.created)),
        "changed": time::write(millis(row.changed)),
        "elapsedMs": until.since(row.created).as_millis(),
        "budget": {"remainingMs": left, "depth": row.turn.budget.depth, "fanout": row.turn.budget.fanout},
    })
}

/// What the agent said after the verdict.
fn said_late(late: &Late) -> Value {
    json!({
        "state": late.state.as_str(),
        "at": time::write(millis(late.at)),
        "bytes": late.bytes,
        "text": late.text,
    })
}

pub(super) fn not_found() -> Response<Body> {
    plain(&Problem::http(StatusCode::NOT_FOUND, Error::a2a(A2a::TaskNotFound)))
}

pub(super) fn unavailable(reason: Reason) -> Response<Body> {
    plain(&Problem::of(reason, format!("the delegations cannot be read: {}", crate::error::first_sentence(reason))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_understood_or_told_what_is_wrong() {
        let (filter, parent) =
            narrowed("agent=fx&state=TASK_STATE_WORKING&limit=5&since=2026-01-02T03:04:05Z").unwrap();
        assert_eq!((filter.agent, filter.limit, parent), (Some(AgentId::new("fx")), 5, None));
        assert_eq!((filter.state, filter.context), (Some(TaskState::Working), None));
        assert!(narrowed("").unwrap().0.limit == LIMIT);
        for (query, said) in [
            ("agnet=fx", "no `agnet` in this query: there are agent, state"),
            ("state=BUSY", "TASK_STATE_WORKING"),
            ("limit=0", "1 to 100"),
            ("limit=101", "1 to 100"),
            ("since=yesterday", "RFC 3339"),
            ("parent=1", "no task's id"),
            ("agent=a&agent=b", "occurs twice"),
        ] {
            let error = narrowed(query).unwrap_err();
            assert!(error.message.contains(said), "{query}: {}", error.message);
        }
    }
}

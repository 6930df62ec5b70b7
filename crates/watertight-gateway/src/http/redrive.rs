//! `POST /v1/delegations/{task}/redrive`: what failed is run again, at the wish of its caller or of an operator.

use http::{Response, StatusCode};
use serde_json::json;
use watertight_a2a::error::{A2a, Error};
use watertight_engine::ids::TaskId;

use super::auth::Who;
use super::body::Body;
use super::delegations::{not_found, seen_by, unavailable};
use super::reply::{json_response, plain};
use super::router::Router;
use crate::error::Problem;
use crate::handle::{NotRedriven, Redriven};

/// Where a task is run again, for people and machines that read an answer.
pub(super) fn path(task: TaskId) -> String {
    format!("POST /v1/delegations/{task}/redrive")
}

pub(super) async fn redrive(router: &Router, who: &Who, task: &str) -> Response<Body> {
    let Some(id) = TaskId::parse(task) else { return not_found() };
    match router.handle().redrive(seen_by(who), who, id).await {
        Ok(Redriven { task: new, first, state, replay }) => {
            tracing::info!(task = %new, redrives = %first, by = %who.principal.caller, replay, "run again");
            let body = json!({
                "task": new.to_string(),
                "redrives": first.to_string(),
                "state": state.as_str(),
                "replay": replay,
            });
            json_response(StatusCode::OK, body.to_string())
        }
        Err(NotRedriven::NotFound) => not_found(),
        Err(NotRedriven::GoesOn) => conflict(id, "it is not over: cancel it first, or wait for its end".to_owned()),
        Err(NotRedriven::Completed(done)) if done == id => {
            conflict(id, "it completed, and only what did not is run again; send a new message".to_owned())
        }
        Err(NotRedriven::Completed(done)) => conflict(id, format!("it was run again already, and {done} completed")),
        Err(NotRedriven::NoMessage) => {
            conflict(id, "its message is not kept any more, or never was; send it as a new one".to_owned())
        }
        Err(NotRedriven::Declined(agent, declined)) => {
            let walls = router.agent(&agent).map(|agent| &agent.settings);
            plain(&Problem::declined(declined, &agent, None, walls))
        }
        Err(NotRedriven::Unreadable(reason)) => unavailable(reason),
    }
}

fn conflict(task: TaskId, why: String) -> Response<Body> {
    let text = format!("task {task} is not run again: {why}");
    let error = Error::a2a(A2a::UnsupportedOperation).message(text).task_id(&task.to_string());
    plain(&Problem::http(StatusCode::CONFLICT, error))
}

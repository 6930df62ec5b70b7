//! `/v1/inbox`: what waits for an agent that fetches its work, for its workers, and what they say of it.
//!
//! A worker claims, starts, and finishes; what it claimed and did not start goes to another. It names what it has by the
//! task's id and the fence that it was given with it. What the message says is for programs, as an agent that is called gets
//! it; for a model there is the tool `check_inbox`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_a2a::rest::query;
use watertight_engine::ids::{AgentId, Attempt, TaskId};
use watertight_engine::record::TaskState;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::auth::Who;
use super::body::Body;
use super::reply::{json_response, plain};
use super::router::Router;
use crate::error::{Problem, first_sentence};
use crate::fetch::{Parts, Said, Work};
use crate::handle::{Handle, NotHeard};

/// The longest wait: shorter than what proxies allow a request.
pub(super) const MAX_WAIT_S: f64 = 50.0;

/// What a worker says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    fence: u32,
    text: Option<String>,
    parts: Option<Box<RawValue>>,
    /// Of progress: a piece of the answer.
    #[serde(default)]
    partial: bool,
    /// Of the end.
    state: Option<String>,
}

/// The agent whose worker this caller is.
pub(super) fn agent(handle: &Handle, who: &Who) -> Result<AgentId, Problem> {
    who.agent.clone().filter(|agent| handle.fetches(agent)).ok_or_else(|| {
        let text = "this caller has no inbox: callers with `agent` (or tokens made with `--agent`) have one, if the agent has \
                    `fetches = true`";
        Problem::http(StatusCode::NOT_FOUND, Error::new(INVALID_REQUEST, text))
    })
}

/// `GET /v1/inbox`
pub(super) fn show(router: &Router, agent: &AgentId) -> Response<Body> {
    let stats = router.handle().agents().into_iter().find(|stats| stats.agent == *agent);
    let body = json!({
        "agent": agent.as_str(),
        "pending": stats.as_ref().map_or(0, |stats| stats.queued),
        "inFlight": stats.as_ref().map_or(0, |stats| stats.in_flight),
        "workers": stats.and_then(|stats| stats.workers).unwrap_or(0),
    });
    json_response(StatusCode::OK, body.to_string())
}

/// `POST /v1/inbox/claim`
pub(super) async fn claim(router: &Router, agent: &AgentId, query: &str) -> Response<Body> {
    let until = match wait(query) {
        Ok(wait) => wait.map(|wait| Instant::now() + wait),
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    match router.handle().fetch_work(agent, until, &router.draining()).await {
        Ok(work) => json_response(StatusCode::OK, written(work.as_ref())),
        Err(declined) => plain(&Problem::declined(declined, agent, None, None)),
    }
}

fn wait(asked: &str) -> Result<Option<Duration>, Error> {
    if let Some(unknown) = query::unknown(asked, &["wait"]) {
        return Err(Error::new(INVALID_REQUEST, format!("no `{unknown}` in this query: there is wait")));
    }
    match query::value(asked, "wait")?.map(|text| text.parse::<f64>()) {
        None => Ok(None),
        Some(Ok(0.0)) => Ok(None),
        Some(Ok(seconds)) if seconds > 0.0 => Ok(Some(Duration::from_secs_f64(seconds.min(MAX_WAIT_S)))),
        Some(Ok(_) | Err(_)) => Err(Error::invalid_params("wait", "is no number of seconds")),
    }
}

#[derive(Serialize)]
struct Claimed<'a> {
    work: Option<Given<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Given<'a> {
    task_id: String,
    context_id: &'a str,
    turn: u32,
    fence: u32,
    lease_ms: u64,
    /// As the caller wrote it, number by number.
    params: Box<RawValue>,
    headers: BTreeMap<&'static str, &'a str>,
}

fn written(work: Option<&Work>) -> Vec<u8> {
    let given = |work: &'_ Work| {
        let params = String::from_utf8(work.params.as_bytes().to_vec()).ok()?;
        RawValue::from_string(params).ok()
    };
    let work = work.and_then(|work| {
        Some(Given {
            task_id: work.task.to_string(),
            context_id: &work.context,
            turn: work.turn,
            fence: work.fence.0,
            lease_ms: u64::try_from(work.lease.as_millis()).unwrap_or(u64::MAX),
            params: given(work)?,
            headers: work.headers.iter().map(|(name, value)| (*name, value.as_str())).collect(),
        })
    });
    // What is written here is written to memory, and has no maps with odd keys.
    serde_json::to_vec(&Claimed { work }).unwrap_or_default()
}

/// `POST /v1/inbox/{task}/{verb}`
pub(super) async fn say(router: &Router, agent: &AgentId, task: &str, verb: &str, body: &Bytes) -> Response<Body> {
    let (fence, said) = match said(verb, body) {
        Ok(said) => said,
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    let Some(id) = TaskId::parse(task) else { return unheard(NotHeard::NotFound, task) };
    match router.handle().hear(agent, id, fence, said).await {
        Ok(heard) => {
            let body = json!({"taskId": task, "state": heard.state.map(TaskState::as_str), "cancel": heard.cancel});
            json_response(StatusCode::OK, body.to_string())
        }
        Err(why) => unheard(why, task),
    }
}

fn said(verb: &str, body: &Bytes) -> Result<(Attempt, Said), Error> {
    let word: Word = serde_json::from_slice(body).map_err(|error| {
        let text = format!("this takes {{\"fence\": N}}, and what is said as `text` or `parts`: {error}");
        Error::new(INVALID_REQUEST, text)
    })?;
    let parts = match (word.text, word.parts) {
        (Some(_), Some(_)) => return Err(Error::invalid_params("parts", "and text: one of the two")),
        (Some(text), None) => Parts::text(&text),
        (None, Some(parts)) => {
            Some(Parts::of(parts).ok_or_else(|| Error::invalid_params("parts", "has to be an array"))?)
        }
        (None, None) => None,
    };
    let must = |parts: Option<Parts>| parts.ok_or_else(|| Error::invalid_params("text", "or `parts` has to be there"));
    let said = match verb {
        "start" => Said::Start,
        "extend" => Said::Extend,
        "progress" if word.partial => Said::Partial(must(parts)?),
        "progress" => Said::Progress(must(parts)?),
        "ask" => Said::Ask(must(parts)?),
        _ => Said::Finish(ended(word.state.as_deref())?, parts),
    };
    Ok((Attempt(word.fence), said))
}

fn ended(state: Option<&str>) -> Result<TaskState, Error> {
    Ok(match state {
        None | Some("completed") => TaskState::Completed,
        Some("failed") => TaskState::Failed,
        Some("canceled") => TaskState::Canceled,
        Some("rejected") => TaskState::Rejected,
        Some(_) => return Err(Error::invalid_params("state", "is one of completed, failed, canceled, rejected")),
    })
}

fn unheard(why: NotHeard, task: &str) -> Response<Body> {
    let problem = |status, text: String| plain(&Problem::http(status, Error::new(INVALID_REQUEST, text)));
    match why {
        NotHeard::NotFound => problem(StatusCode::NOT_FOUND, "there is no such work of this agent".to_owned()),
        NotHeard::Gone(state) => {
            let state = state.map_or("not known any more", TaskState::as_str);
            let text = format!(
                "this work is not under this fence any more: its lease or its time has ended, it was taken back, or it is \
                 over. Stop it. Task {task} is {state}"
            );
            problem(StatusCode::CONFLICT, text)
        }
        NotHeard::NotBegun => problem(StatusCode::CONFLICT, "this work was not started: start it first".to_owned()),
        NotHeard::Malformed => {
            problem(StatusCode::BAD_REQUEST, "what was said is no message: see that `parts` are A2A parts".to_owned())
        }
        NotHeard::Unsure(reason) => {
            let text = format!("this may not be kept, say it again: {}", first_sentence(reason));
            plain(&Problem::of(Reason::StoreUnavailable, text).again(Some(Span::from_secs(1))))
        }
    }
}

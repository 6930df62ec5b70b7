//! `/workspaces/{agent}`: the doors of callers that know agents as workspaces, and delegate texts.
//!
//! `/a2a` is the agent's own door ([`super::rpc`], [`super::rest`]) under another name; a body without a JSON-RPC envelope is
//! understood there too, since tools send none. `/delegate` hands work to another agent in the name of the one in the path,
//! and `/delegations` is what that one has to do with. Those two are for the agent itself: its credential says who it is, and
//! where nobody has one, nobody is taken at his word. Errors here have three parts: what happened, our word for it, and what to
//! do instead.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use watertight_a2a::call::QueueWire;
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_a2a::json::{Json, Limits, Value as Raw};
use watertight_a2a::rest::query;
use watertight_a2a::said::{Content, File, Place, Said};
use watertight_a2a::text::clean;
use watertight_a2a::time;
use watertight_engine::ids::{AgentId, Key, TaskId};
use watertight_engine::record::{Delivery, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::auth::Who;
use super::body::Body;
use super::line::{Line, trace};
use super::reply::{decorate, json_response, unknown};
use super::router::Router;
use crate::delegate::{Wish, Wrong, call, message_id};
use crate::error::{Problem, first_sentence};
use crate::handle::{Dealings, Declined, NoPage, NotRedriven, Want, Whose, idempotency_key};
use crate::hub::TaskView;
use crate::hub::view::millis;

/// Bytes of a task, and of a result, that a list shows.
const SUMMARY_BYTES: usize = 200;
const PREVIEW_BYTES: usize = 300;

/// A page where nobody says how long, and the longest.
const LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// What to do where nothing else is known.
const SEND_ANOTHER: &str = "Correct the request; as it is, it will be refused again.";

// ---- /a2a --------------------------------------------------------------------------------------------------------------

/// A body at the A2A door.
pub(super) enum Opened {
    /// JSON-RPC, as it came or put into its envelope.
    Rpc(Bytes),
    /// A tool's envelope, as a message that carries it: the id for the answer, and the params.
    Tool(String, Json),
}

/// Understands a body without a JSON-RPC envelope, where it cannot be anything else: a tool's `{"task", …}`, or the `params` or
/// the `message` of a SendMessage alone. Whatever else there is, is JSON-RPC's to judge.
pub(super) fn open(body: Bytes, limits: &Limits) -> Result<Opened, String> {
    let Ok(raw) = Json::parse(body.clone(), limits) else { return Ok(Opened::Rpc(body)) };
    let has = |name: &str| raw.value().members().any(|member| member.is(name));
    if ["jsonrpc", "method", "id", "result", "error"].into_iter().any(has) {
        return Ok(Opened::Rpc(body));
    }
    let [task, params, message] = ["task", "params", "message"].map(|name| raw.value().get(name));
    let object = |value: Option<_>| value.filter(Raw::is_object);
    match (task.and_then(|task| task.as_exact_str()), object(params), object(message)) {
        (Some(task), None, None) => {
            let given = raw.value().get("delegation_id").and_then(|id| id.as_exact_str()).filter(|id| !id.is_empty());
            let id = given.map_or_else(message_id, |given| Ok(given.into_owned()))?;
            // The envelope as it is, number by number, beside its text.
            let [text, message_id] = [&*task, &*id].map(|text| json!(text).to_string());
            let envelope = String::from_utf8_lossy(raw.as_bytes());
            let params = format!(
                "{{\"message\":{{\"messageId\":{message_id},\"role\":\"ROLE_USER\",\"parts\":[{{\"text\":{text}}},{{\"data\":{envelope}}}]}}}}"
            );
            Ok(Opened::Tool(id, Json::assume(params)))
        }
        (None, Some(params), None) => Ok(enveloped(params.raw())),
        (None, None, Some(_)) => Ok(enveloped(raw.as_bytes())),
        (Some(_), _, _) | (None, Some(_), Some(_)) | (None, None, None) => Ok(Opened::Rpc(body)),
    }
}

fn enveloped(params: &[u8]) -> Opened {
    let head = br#"{"jsonrpc":"2.0","id":null,"method":"SendMessage","params":"#;
    Opened::Rpc([head, params, b"}"].concat().into())
}

// ---- /delegate ---------------------------------------------------------------------------------------------------------

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(alias = "target")]
    target_id: String,
    task: String,
    data: Option<Map<String, Value>>,
    context_id: Option<String>,
    answers: Option<String>,
    idempotency_key: Option<String>,
    delegation: Option<String>,
    priority: Option<u8>,
    ttl_seconds: Option<Value>,
}

/// `POST /workspaces/{agent}/delegate`. The line leads to nobody yet: its agent is the one that delegates.
pub(super) async fn delegate(line: Line<'_>, body: Bytes) -> Response<Body> {
    match delegated(line, &body).await {
        Ok(response) => response,
        Err(refused) => refused.response(),
    }
}

async fn delegated(line: Line<'_>, body: &[u8]) -> Result<Response<Body>, Refused> {
    let source = line.agent.clone();
    is_itself(&line.who, &source)?;
    let asked: Asked = serde_json::from_slice(body).map_err(|error| {
        let takes = "It takes target_id (or target) and task, and may have idempotency_key, ttl_seconds, priority, data, \
                     context_id, answers and delegation.";
        Refused::bad(format!("the request is not what this takes: {}", clean(&error.to_string(), 200)), takes)
    })?;
    let target = AgentId::new(&asked.target_id);
    let ttl_s = asked.ttl_seconds.as_ref().map(ttl).transpose()?;
    let line = Line { agent: target.clone(), ..line };
    let wish = Wish {
        task: asked.task,
        data: asked.data,
        context_id: asked.context_id,
        answers: asked.answers,
        key: asked.idempotency_key,
        delegation: asked.delegation,
        queue: line.queue(QueueWire { priority: asked.priority, ttl_s })?,
    };
    let call = call(&line.who, &target, &wish, Want::Accepted, None, trace(&line.head.headers)).map_err(|wrong| {
        let text = wrong.text(&target);
        match wrong {
            Wrong::Itself => Refused::of(
                StatusCode::BAD_REQUEST,
                Reason::DelegationCycle.as_str(),
                format!("the target is {target} itself, and it would wait for itself. Nothing was stored."),
                "Trying again cannot help. Do the work yourself in this turn, or name another agent.",
            ),
            Wrong::Empty => {
                Refused::bad(text, "task has to hold more than white space; its limit is max_request_bytes.")
            }
            Wrong::Malformed(_) => Refused::bad(text, SEND_ANOTHER),
        }
    })?;
    line.reaches()?;
    if let Some(again) = earlier(&line, &wish, call.peek.fingerprint.0).await? {
        return Ok(again);
    }
    let accepted = line.router.handle().submit(call).await.map_err(|declined| match declined {
        Declined::Conflict { first } => conflict(first),
        declined @ (Declined::Refused { .. } | Declined::Forbidden { .. } | Declined::NotFound)
        | declined @ (Declined::TaskTerminal | Declined::ContextMismatch | Declined::NotCancelable) => {
            line.declined(declined, None).into()
        }
    })?;
    let view = &accepted.view;
    Ok(match accepted.replay {
        true => hit(view.task, view.state, &target),
        false => taken(view.task, &target, None, view.position),
    })
}

/// What came of the same key before: it is told of, run again if it failed, or the reason why it is refused.
async fn earlier(line: &Line<'_>, wish: &Wish, print: [u8; 16]) -> Result<Option<Response<Body>>, Refused> {
    let Some(key) = wish.key.as_deref() else { return Ok(None) };
    let (principal, agent) = (line.who.principal.clone(), line.agent.clone());
    let key = Key { principal: principal.clone(), agent: agent.clone(), message_id: idempotency_key(key) };
    let handle = line.router.handle();
    let known = handle.known(key).await.map_err(unreadable)?;
    let Some((known, row)) = known else { return Ok(None) };
    if known.fingerprint != u128::from_be_bytes(print) {
        // The cell would say the same, but of a failed one that was never sent it forgets the key.
        return Err(conflict(row.task));
    }
    if !matches!(row.state, TaskState::Failed | TaskState::Rejected) {
        return Ok(None);
    }
    match handle.redrive(Whose::Own(principal), &line.who, row.task).await {
        Ok(again) if again.replay => Ok(Some(hit(again.task, again.state, &agent))),
        Ok(again) => Ok(Some(taken(again.task, &agent, Some(again.first), None))),
        Err(NotRedriven::Completed(done)) => Ok(Some(hit(done, TaskState::Completed, &agent))),
        Err(NotRedriven::Declined(_, declined)) => Err(line.declined(declined, None).into()),
        Err(NotRedriven::Unreadable(reason)) => Err(unreadable(reason)),
        // It is sent as it came: the cell says what the key stands for.
        Err(NotRedriven::NotFound | NotRedriven::GoesOn | NotRedriven::NoMessage) => Ok(None),
    }
}

fn conflict(first: TaskId) -> Refused {
    let text = format!("this idempotency_key was used before with another content, for delegation {first}");
    let hint = "The same key means the same work: send what you sent then, or use a new key for new work.";
    let mut refused = Refused::of(StatusCode::CONFLICT, Reason::MessageIdConflict.as_str(), text, hint);
    refused.more.insert("delegation_id".to_owned(), json!(first.to_string()));
    refused
}

fn taken(task: TaskId, target: &AgentId, redrives: Option<TaskId>, position: Option<u32>) -> Response<Body> {
    let mut body = json!({"delegation_id": task.to_string(), "status": "delegated", "target_id": target.as_str()});
    if let Some(first) = redrives {
        body["redrives"] = json!(first.to_string());
    }
    if let Some(position) = position {
        body["position"] = json!(position);
    }
    json_response(StatusCode::ACCEPTED, body.to_string())
}

fn hit(task: TaskId, state: TaskState, target: &AgentId) -> Response<Body> {
    let (id, status) = (task.to_string(), word(state));
    let body = json!({"delegation_id": id, "status": status, "target_id": target.as_str(), "idempotent_hit": true});
    json_response(StatusCode::OK, body.to_string())
}

/// A whole number of seconds. The longest is the target's affair.
fn ttl(given: &Value) -> Result<u64, Refused> {
    given.as_u64().filter(|seconds| *seconds >= 1).ok_or_else(|| {
        let text = format!(
            "ttl_seconds is {}, and must be a whole number of seconds, at least 1",
            clean(&given.to_string(), 64)
        );
        Refused::bad(text, "Leave it out for the agent's own queue_ttl.")
    })
}

// ---- /delegations ------------------------------------------------------------------------------------------------------

/// `GET /workspaces/{agent}/delegations`
pub(super) async fn list(router: &Router, who: &Who, agent: &AgentId, query: &str) -> Response<Body> {
    match listed(router, who, agent, query).await {
        Ok(response) => response,
        Err(refused) => refused.response(),
    }
}

async fn listed(router: &Router, who: &Who, agent: &AgentId, query: &str) -> Result<Response<Body>, Refused> {
    const NARROWED_BY: [&str; 3] = ["direction", "limit", "page_token"];
    is_itself(who, agent)?;
    if let Some(unknown) = query::unknown(query, &NARROWED_BY) {
        return Err(Refused::bad(
            format!("no `{unknown}` in this query"),
            "There are direction, limit and page_token.",
        ));
    }
    let text =
        |name: &'static str| query::value(query, name).map_err(|error| Refused::bad(error.message, SEND_ANOTHER));
    let limit = match text("limit")?.map(|limit| limit.parse()) {
        None => LIMIT,
        Some(Ok(limit @ 1..=MAX_LIMIT)) => limit,
        Some(Ok(_) | Err(_)) => {
            return Err(Refused::bad(format!("limit is no whole number from 1 to {MAX_LIMIT}"), SEND_ANOTHER));
        }
    };
    let (sent, received) = match text("direction")?.as_deref() {
        None => (true, true),
        Some("sent") => (true, false),
        Some("received") => (false, true),
        Some(_) => return Err(Refused::bad("direction is neither sent nor received".to_owned(), SEND_ANOTHER)),
    };
    let of = Dealings { principal: who.principal.clone(), agent: agent.clone(), sent, received };
    let page = router.handle().dealings(of, limit, text("page_token")?.as_deref()).await.map_err(|no| match no {
        NoPage::BadToken => Refused::bad("page_token is not the next_page_token of a page".to_owned(), SEND_ANOTHER),
        NoPage::StoreUnavailable => unreadable(Reason::StoreUnavailable),
    })?;
    let items: Vec<Value> = page.tasks.iter().map(|view| item(who, agent, view)).collect();
    let body = json!({"delegations": items, "next_page_token": page.next, "total": page.total});
    Ok(json_response(StatusCode::OK, body.to_string()))
}

/// `GET /workspaces/{agent}/delegations/{delegation}`
pub(super) async fn show(router: &Router, who: &Who, agent: &AgentId, task: &str) -> Response<Body> {
    match shown(router, who, agent, task).await {
        Ok(response) => response,
        Err(refused) => refused.response(),
    }
}

async fn shown(router: &Router, who: &Who, agent: &AgentId, task: &str) -> Result<Response<Body>, Refused> {
    is_itself(who, agent)?;
    let id = TaskId::parse(task).ok_or_else(not_found)?;
    let of = Dealings { principal: who.principal.clone(), agent: agent.clone(), sent: true, received: true };
    let view = router.handle().dealing(&of, id).await.map_err(unreadable)?.ok_or_else(not_found)?;
    let mut out = head(who, agent, &view);
    if reached(who, &view) {
        out.insert("task".to_owned(), json!(view.record.asked().text()));
    }
    let (name, content) = outcome(&view);
    if let Some(name) = name {
        let text = words(&view, &content);
        out.insert(format!("{name}_bytes"), json!(text.len()));
        out.insert(name.to_owned(), json!(text));
        if !view.withheld {
            out.insert("files".to_owned(), files(&content));
        }
    }
    let mut body = Value::Object(out).to_string();
    // Data as the agent wrote it, number by number.
    let data: Vec<String> = match view.withheld {
        true => Vec::new(),
        false => content.data().map(|data| String::from_utf8_lossy(data.raw()).into_owned()).collect(),
    };
    if !data.is_empty() {
        body.truncate(body.len() - 1);
        body.push_str(&format!(",\"data\":[{}]}}", data.join(",")));
    }
    Ok(json_response(StatusCode::OK, body))
}

/// What is told of every delegation.
fn head(who: &Who, agent: &AgentId, view: &TaskView) -> Map<String, Value> {
    let sent = view.principal == who.principal;
    let source = match (sent, &view.from) {
        (true, _) => agent.as_str(),
        (false, Some(from)) => from.as_str(),
        (false, None) => &view.principal.caller,
    };
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| out.insert(name.to_owned(), value);
    put("delegation_id", json!(view.task.to_string()));
    put("source_id", json!(source));
    put("target_id", json!(view.agent.as_str()));
    put("direction", json!(if sent { "sent" } else { "received" }));
    put("status", json!(word(view.state)));
    put("reason", json!(view.reason.or(view.waiting_on).map(Reason::as_str)));
    // Its caller's own name for it; the agent knows the conversation by another.
    put("context_id", json!(sent.then_some(&*view.context)));
    put("redrives", json!(view.redrives.map(|first| first.to_string())));
    put("created_at", json!(time::write(millis(view.created))));
    put("updated_at", json!(time::write(millis(view.changed))));
    out
}

/// Whether what was asked has been shown to the agent, or whoever looks has asked it.
fn reached(who: &Who, view: &TaskView) -> bool {
    view.principal == who.principal || view.delivery != Delivery::NotSent || view.turn > 1
}

/// One in a list: the beginnings of its texts, and how long they are.
fn item(who: &Who, agent: &AgentId, view: &TaskView) -> Value {
    let mut out = head(who, agent, view);
    if reached(who, view) {
        preview(&mut out, "summary", &view.record.asked().text(), SUMMARY_BYTES);
    }
    let (name, content) = outcome(view);
    let name = match name {
        Some("result") => "response_preview",
        Some(other) => other,
        None => return Value::Object(out),
    };
    preview(&mut out, name, &words(view, &content), PREVIEW_BYTES);
    Value::Object(out)
}

fn preview(out: &mut Map<String, Value>, name: &str, text: &str, most: usize) {
    let shown = &text[..text.floor_char_boundary(most)];
    out.insert(name.to_owned(), json!(shown));
    out.insert(format!("{name}_bytes"), json!(text.len()));
    out.insert(format!("{name}_truncated"), json!(shown.len() < text.len()));
}

/// What came of it, and what that is. What was said on the way is neither.
fn outcome(view: &TaskView) -> (Option<&'static str>, Content<'_>) {
    match view.said() {
        Said::Answer(content) => (Some("result"), content),
        Said::Asks(content) => (Some("question"), content),
        Said::Failed(content) => (Some("error"), content),
        Said::Accepted(_) | Said::Nothing => (None, Content::default()),
    }
}

/// The agent's, or our own where those are withheld.
fn words(view: &TaskView, content: &Content<'_>) -> String {
    match view.reason.filter(|_| view.withheld) {
        Some(reason) => first_sentence(reason).to_owned(),
        None => content.text(),
    }
}

fn files(content: &Content<'_>) -> Value {
    let file = |file: &File<'_>| {
        let (name, value) = match &file.place {
            Place::Here(base64) => ("raw", base64),
            Place::At(url) => ("url", url),
        };
        json!({"filename": file.name, "mediaType": file.media_type, name: value})
    };
    content.files().map(file).collect()
}

/// A state in the words of these doors.
fn word(state: TaskState) -> &'static str {
    match state {
        TaskState::Submitted => "queued",
        TaskState::Working => "in_progress",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::Rejected => "rejected",
        TaskState::InputRequired => "input_required",
        TaskState::AuthRequired => "auth_required",
    }
}

// ---- refusals ----------------------------------------------------------------------------------------------------------

/// Why not, in three parts.
#[derive(Debug)]
struct Refused {
    problem: Box<Problem>,
    status: StatusCode,
    reason: String,
    hint: String,
    more: Map<String, Value>,
}

impl Refused {
    fn of(status: StatusCode, reason: &str, error: String, hint: &str) -> Refused {
        let problem = Problem::http(status, Error::new(INVALID_REQUEST, error));
        Refused { problem: problem.into(), status, reason: reason.to_owned(), hint: hint.to_owned(), more: Map::new() }
    }

    fn bad(error: String, hint: &str) -> Refused {
        Refused::of(StatusCode::BAD_REQUEST, "invalid_arguments", error, hint)
    }

    fn response(self) -> Response<Body> {
        let mut body = self.more;
        body.insert("error".to_owned(), json!(self.problem.error.message));
        body.insert("reason".to_owned(), json!(self.reason));
        body.insert("hint".to_owned(), json!(self.hint));
        if let Some(after) = self.problem.retry_after {
            body.insert("retry_after_ms".to_owned(), json!(after.as_millis()));
        }
        let mut response = json_response(self.status, Value::Object(body).to_string());
        decorate(&mut response, &self.problem);
        response
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Refused {
        let known = Reason::from_word(problem.reason());
        let reason = known.map_or("invalid_arguments", Reason::as_str).to_owned();
        let advice = known.and_then(|reason| reason.explain().split_once(". ")).map(|(_, advice)| advice);
        let hint = advice.unwrap_or(SEND_ANOTHER).to_owned();
        Refused { status: problem.http_status(), problem: problem.into(), reason, hint, more: Map::new() }
    }
}

/// A request that did not come whole, or from nobody known, in the shape of these doors.
pub(super) fn refuse(problem: Problem) -> Response<Body> {
    Refused::from(problem).response()
}

/// Only the agent itself speaks here for it.
fn is_itself(who: &Who, agent: &AgentId) -> Result<(), Refused> {
    match who.agent.as_ref() == Some(agent) {
        true => Ok(()),
        false => Err(Refused::of(
            StatusCode::FORBIDDEN,
            Reason::Forbidden.as_str(),
            format!("the credential is not that of agent {}", clean(agent.as_str(), 64)),
            "Send the bearer token of a caller whose `agent` this is (`callers.NAME.agent`, or `watertight token new --agent`).",
        )),
    }
}

fn not_found() -> Refused {
    let text = "there is no such delegation".to_owned();
    Refused::of(StatusCode::NOT_FOUND, "task_not_found", text, "The list of delegations says which there are.")
}

fn unreadable(reason: Reason) -> Refused {
    let soon = Span::from_secs(1);
    Problem::of(reason, format!("the delegations cannot be read: {}", first_sentence(reason))).again(Some(soon)).into()
}

impl Line<'_> {
    /// Whether there is the agent for this caller, and still.
    fn reaches(&self) -> Result<(), Refused> {
        if !self.knows_agent() {
            return Err(unknown(&self.agent).into());
        }
        match self.router.is_leaving(&self.agent) {
            false => Ok(()),
            true => Err(Refused::of(
                StatusCode::GONE,
                Reason::AgentUnknown.as_str(),
                format!("agent {} was removed from the configuration. Nothing was stored.", self.agent),
                "Name another agent: list_peers and GET /v1/agents say which there are.",
            )),
        }
    }
}

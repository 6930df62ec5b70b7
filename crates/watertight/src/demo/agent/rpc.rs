//! The agent's JSON-RPC face: A2A 1.0 method names, shapes and error codes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Either;
use http_body_util::channel::{Channel, Sender};
use hyper::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::book::{Book, State, Status, Task, render_status};
use super::{Body, reply};

/// A comment goes out this often on a stream that has nothing to say.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// An error of JSON-RPC or of A2A; the latter carry their name as the reason.
struct Fault {
    code: i64,
    message: String,
    reason: Option<&'static str>,
}

impl Fault {
    fn rpc(code: i64, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into(), reason: None }
    }

    fn invalid(message: impl Into<String>) -> Fault {
        Fault::rpc(-32602, message)
    }

    fn a2a(code: i64, reason: &'static str, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into(), reason: Some(reason) }
    }

    fn not_found(id: &str) -> Fault {
        Fault::a2a(-32001, "TASK_NOT_FOUND", format!("no task {id:?}"))
    }

    fn render(&self, id: &Value) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(reason) = self.reason {
            error["data"] = json!([{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": reason,
                "domain": "a2a-protocol.org",
            }]);
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

pub(super) async fn answer(book: &Arc<Book>, version: Option<&str>, body: &[u8]) -> Response<Body> {
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return reply(StatusCode::OK, &Fault::rpc(-32700, "not JSON").render(&Value::Null));
    };
    let id = request.get("id").cloned().unwrap_or(Value::Null);
    match dispatch(book, version, &request, &id).await {
        Ok(Answer::Result(result)) => reply(StatusCode::OK, &json!({"jsonrpc": "2.0", "id": id, "result": result})),
        Ok(Answer::Stream(body)) => {
            let mut response = Response::new(Either::Right(body));
            let kind = header::HeaderValue::from_static("text/event-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
            response
        }
        Err(fault) => reply(StatusCode::OK, &fault.render(&id)),
    }
}

enum Answer {
    Result(Value),
    Stream(Channel<Bytes>),
}

async fn dispatch(book: &Arc<Book>, version: Option<&str>, request: &Value, id: &Value) -> Result<Answer, Fault> {
    let id_is_plain = id.is_string() || id.is_number() || id.is_null();
    let method = request.get("method").and_then(Value::as_str);
    let (Some("2.0"), Some(method), true) = (request.get("jsonrpc").and_then(Value::as_str), method, id_is_plain)
    else {
        return Err(Fault::rpc(-32600, "not a JSON-RPC 2.0 request"));
    };
    if version.is_some_and(|v| v != "1.0" && !v.starts_with("1.0.")) {
        return Err(Fault::a2a(-32009, "VERSION_NOT_SUPPORTED", "this agent speaks A2A 1.0"));
    }
    let params = request.get("params").unwrap_or(&Value::Null);
    match method {
        "SendMessage" => send(book, params).await,
        "SendStreamingMessage" => {
            let task = admit(book, params)?;
            Ok(Answer::Stream(stream(book, task, id.clone())))
        }
        "SubscribeToTask" => {
            let task = find(book, params)?;
            if task.status().state.is_terminal() {
                return Err(Fault::a2a(-32004, "UNSUPPORTED_OPERATION", "the task has ended"));
            }
            Ok(Answer::Stream(stream(book, task, id.clone())))
        }
        "GetTask" => {
            let task = find(book, params)?;
            Ok(Answer::Result(book.render(&task, true, wants_history(params)?)))
        }
        "ListTasks" => list(book, params),
        "CancelTask" => cancel(book, params).await,
        "CreateTaskPushNotificationConfig"
        | "GetTaskPushNotificationConfig"
        | "ListTaskPushNotificationConfigs"
        | "DeleteTaskPushNotificationConfig" => {
            Err(Fault::a2a(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", "this agent sends no push notifications"))
        }
        "GetExtendedAgentCard" => Err(Fault::a2a(-32004, "UNSUPPORTED_OPERATION", "there is no extended card")),
        other => Err(Fault::rpc(-32601, format!("no method {other:?}"))),
    }
}

async fn send(book: &Arc<Book>, params: &Value) -> Result<Answer, Fault> {
    let configuration = params.get("configuration").unwrap_or(&Value::Null);
    let history = wants_history(configuration)?;
    let task = admit(book, params)?;
    if configuration.get("returnImmediately").and_then(Value::as_bool) != Some(true) {
        task.ended().await;
    }
    Ok(Answer::Result(json!({"task": book.render(&task, true, history)})))
}

/// Checks a message and starts its work.
fn admit(book: &Arc<Book>, params: &Value) -> Result<Arc<Task>, Fault> {
    let Some(message) = params.get("message").filter(|m| m.is_object()) else {
        return Err(Fault::invalid("params.message is missing"));
    };
    if text(message, "messageId").is_none() {
        return Err(Fault::invalid("message.messageId is missing"));
    }
    if text(message, "role") != Some("ROLE_USER") {
        return Err(Fault::invalid("message.role must be ROLE_USER"));
    }
    if message.get("parts").and_then(Value::as_array).is_none_or(|parts| parts.is_empty()) {
        return Err(Fault::invalid("message.parts must hold at least one part"));
    }
    if let Some(id) = text(message, "taskId") {
        let task = book.get(id).ok_or_else(|| Fault::not_found(id))?;
        let what = if task.status().state.is_terminal() { "has ended" } else { "takes no further messages" };
        return Err(Fault::a2a(-32004, "UNSUPPORTED_OPERATION", format!("task {id:?} {what}")));
    }
    Ok(book.start(text(message, "contextId").map(str::to_owned), message.clone()))
}

async fn cancel(book: &Arc<Book>, params: &Value) -> Result<Answer, Fault> {
    let task = find(book, params)?;
    if !task.status().state.is_terminal() {
        task.cancel();
    }
    match task.ended().await.state {
        State::Canceled => Ok(Answer::Result(book.render(&task, true, false))),
        State::Completed | State::Submitted | State::Working => {
            Err(Fault::a2a(-32002, "TASK_NOT_CANCELABLE", "the task has ended"))
        }
    }
}

fn list(book: &Book, params: &Value) -> Result<Answer, Fault> {
    let size = match params.get("pageSize") {
        None | Some(Value::Null) => 50,
        Some(size) => match size.as_u64() {
            Some(size @ 1..=100) => size as usize,
            _ => return Err(Fault::invalid("pageSize must be between 1 and 100")),
        },
    };
    let from = match text(params, "pageToken").unwrap_or_default() {
        "" => 0,
        token => token.parse::<usize>().map_err(|_| Fault::invalid("pageToken is not one of ours"))?,
    };
    let history = wants_history(params)?;
    let artifacts = params.get("includeArtifacts").and_then(Value::as_bool) == Some(true);
    let (context, state) = (text(params, "contextId"), text(params, "status"));
    let wanted = |task: &Arc<Task>| {
        context.is_none_or(|c| c == task.context_id) && state.is_none_or(|s| s == task.status().state.name())
    };
    let matching: Vec<_> = book.all().into_iter().filter(wanted).collect();
    let page: Vec<_> = matching.iter().skip(from).take(size).collect();
    let next = from.saturating_add(page.len());
    Ok(Answer::Result(json!({
        "tasks": page.iter().map(|task| book.render(task, artifacts, history)).collect::<Vec<_>>(),
        "nextPageToken": if next < matching.len() { next.to_string() } else { String::new() },
        "pageSize": size,
        "totalSize": matching.len(),
    })))
}

/// The task first, then each change, and the artifact before the completion.
fn stream(book: &Arc<Book>, task: Arc<Task>, id: Value) -> Channel<Bytes> {
    let (mut sender, body) = Channel::new(16);
    let book = Arc::clone(book);
    let mut watch = task.watch();
    let mut seen = *watch.borrow_and_update();
    let first = json!({"task": book.render(&task, true, true)});
    tokio::spawn(async move {
        let mut alive = event(&mut sender, &id, first).await;
        while alive && !seen.state.is_terminal() {
            let changed = tokio::time::timeout(KEEP_ALIVE, watch.changed()).await;
            alive = match changed {
                Err(_quiet) => sender.send_data(Bytes::from_static(b": keep-alive\n\n")).await.is_ok(),
                Ok(Err(_gone)) => false,
                Ok(Ok(())) => {
                    seen = *watch.borrow_and_update();
                    change(&mut sender, &id, &book, &task, seen).await
                }
            };
        }
    });
    body
}

async fn change(sender: &mut Sender<Bytes>, id: &Value, book: &Book, task: &Task, status: Status) -> bool {
    let about = |mut event: Value| {
        event["taskId"] = json!(task.id);
        event["contextId"] = json!(task.context_id);
        event
    };
    if status.state == State::Completed {
        let update = about(json!({"artifact": book.artifact(task), "lastChunk": true}));
        if !event(sender, id, json!({"artifactUpdate": update})).await {
            return false;
        }
    }
    event(sender, id, json!({"statusUpdate": about(json!({"status": render_status(status)}))})).await
}

/// One server-sent event; false once the reader has gone.
async fn event(sender: &mut Sender<Bytes>, id: &Value, result: Value) -> bool {
    let data = json!({"jsonrpc": "2.0", "id": id, "result": result});
    sender.send_data(Bytes::from(format!("data: {data}\n\n"))).await.is_ok()
}

fn find(book: &Book, params: &Value) -> Result<Arc<Task>, Fault> {
    let id = text(params, "id").ok_or_else(|| Fault::invalid("params.id is missing"))?;
    book.get(id).ok_or_else(|| Fault::not_found(id))
}

fn wants_history(params: &Value) -> Result<bool, Fault> {
    match params.get("historyLength") {
        None | Some(Value::Null) => Ok(true),
        Some(n) => n.as_u64().map(|n| n > 0).ok_or_else(|| Fault::invalid("historyLength must be 0 or more")),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str).filter(|s| !s.is_empty())
}

//! A blocking A2A 1.0 client over JSON-RPC, and as far as it differs over HTTP+JSON: one connection a call, every header and every event visible, times measured.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::clock::{eventually, now};
use crate::http::{Body, Head, read_head};

/// How long a call may take before the client gives up on the gateway itself.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    addr: SocketAddr,
}

/// An HTTP answer, whole.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) took: Duration,
}

/// A JSON-RPC error, with what the gateway said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: i64,
    pub(crate) message: String,
    /// The gateway's own reason, or that of the protocol where there is no own one.
    pub(crate) reason: String,
    pub(crate) agent: String,
    pub(crate) delivery: String,
    pub(crate) task: String,
}

/// A result, or the error that came in its place.
pub(crate) type Outcome = Result<Value, Box<Fault>>;

impl Client {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self { addr }
    }

    /// One HTTP exchange on a connection of its own.
    pub(crate) fn http(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Answer> {
        let start = now();
        let (head, mut rest) = self.open(method, path, headers, body)?;
        // The answer to a HEAD says how long the body would be.
        let body = if method == "HEAD" { Vec::new() } else { rest.all()? };
        Ok(Answer { status: head.status(), head, body, took: start.elapsed() })
    }

    /// The head of an answer, and its body as it comes.
    pub(crate) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<(Head, Body)> {
        let mut socket = TcpStream::connect_timeout(&self.addr, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.addr);
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !headers.iter().any(|(name, _)| *name == "transfer-encoding") {
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        socket.write_all(request.as_bytes())?;
        // A server may answer before it has read everything, and close: its answer is still to be read.
        socket.write_all(body).ok();
        let mut from = BufReader::new(socket);
        let head = read_head(&mut from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let body = Body::new(from, &head);
        Ok((head, body))
    }

    /// Any JSON-RPC call, as an HTTP answer.
    pub(crate) fn call(&self, agent: &str, method: &str, params: &Value, extra: &[(&str, &str)]) -> io::Result<Answer> {
        let body = json!({"jsonrpc": "2.0", "id": fresh("call"), "method": method, "params": params}).to_string();
        let mut headers = vec![("content-type", "application/json"), ("a2a-version", "1.0")];
        headers.extend_from_slice(extra);
        self.http("POST", &format!("/agents/{agent}"), &headers, body.as_bytes())
    }

    /// Any JSON-RPC call, as its result.
    pub(crate) fn rpc(&self, agent: &str, method: &str, params: &Value) -> Outcome {
        self.call(agent, method, params, &[]).unwrap_or_else(|e| panic!("{method} to {agent}: {e}")).outcome()
    }

    /// A blocking send of a text; the task, or the message, that comes back.
    pub(crate) fn send(&self, agent: &str, text: &str) -> Outcome {
        self.rpc(agent, "SendMessage", &json!({"message": message(text)})).map(unwrapped)
    }

    /// A send that wants no more than the task's id.
    pub(crate) fn submit(&self, agent: &str, text: &str) -> Outcome {
        let params = json!({"message": message(text), "configuration": {"returnImmediately": true}});
        self.rpc(agent, "SendMessage", &params).map(unwrapped)
    }

    pub(crate) fn get(&self, agent: &str, task: &str) -> Outcome {
        self.rpc(agent, "GetTask", &json!({"id": task}))
    }

    pub(crate) fn cancel(&self, agent: &str, task: &str) -> Outcome {
        self.rpc(agent, "CancelTask", &json!({"id": task}))
    }

    pub(crate) fn list(&self, agent: &str) -> Vec<Value> {
        let page = self.rpc(agent, "ListTasks", &json!({"pageSize": 100})).expect("a list of tasks");
        page["tasks"].as_array().expect("an array of tasks").clone()
    }

    pub(crate) fn stream(&self, agent: &str, text: &str) -> Events {
        self.events(agent, "SendStreamingMessage", &json!({"message": message(text)}))
    }

    pub(crate) fn subscribe(&self, agent: &str, task: &str) -> Events {
        self.events(agent, "SubscribeToTask", &json!({"id": task}))
    }

    pub(crate) fn events(&self, agent: &str, method: &str, params: &Value) -> Events {
        let body = json!({"jsonrpc": "2.0", "id": fresh("stream"), "method": method, "params": params}).to_string();
        let headers = [("content-type", "application/json"), ("a2a-version", "1.0"), ("accept", "text/event-stream")];
        let opened = self.open("POST", &format!("/agents/{agent}"), &headers, body.as_bytes());
        let (head, body) = opened.unwrap_or_else(|e| panic!("{method} to {agent}: {e}"));
        Events { head, body, buffer: Vec::new(), end: None, bare: false }
    }

    /// A request of the HTTP+JSON binding; `line` is its method and its path below the agent, query included.
    pub(crate) fn rest(&self, agent: &str, line: &str, body: &str, extra: &[(&str, &str)]) -> Answer {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let headers = Self::rest_headers(body, extra);
        let answer = self.http(method, &format!("/agents/{agent}{path}"), &headers, body.as_bytes());
        answer.unwrap_or_else(|e| panic!("{line} of {agent}: {e}"))
    }

    /// The same, answered by events.
    pub(crate) fn rest_events(&self, agent: &str, line: &str, body: &str, extra: &[(&str, &str)]) -> Events {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let headers = Self::rest_headers(body, extra);
        let opened = self.open(method, &format!("/agents/{agent}{path}"), &headers, body.as_bytes());
        let (head, body) = opened.unwrap_or_else(|e| panic!("{line} of {agent}: {e}"));
        Events { head, body, buffer: Vec::new(), end: None, bare: true }
    }

    /// The version, unless the test brings one, and a content type where there is content.
    fn rest_headers<'a>(body: &str, extra: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut headers = extra.to_vec();
        let said = |headers: &[(&str, &str)], name| headers.iter().any(|(said, _)| *said == name);
        if !said(&headers, "a2a-version") {
            headers.push(("a2a-version", "1.0"));
        }
        if !body.is_empty() && !said(&headers, "content-type") {
            headers.push(("content-type", "application/json"));
        }
        headers
    }

    /// Asks until the task has ended, and gives it.
    #[track_caller]
    pub(crate) fn ended(&self, agent: &str, task: &str, limit: Duration) -> Value {
        eventually(limit, &format!("task {task} of {agent} has ended"), || {
            let task = self.get(agent, task).expect("the task is known");
            is_terminal(state(&task)).then_some(task)
        })
    }
}

impl Answer {
    /// The JSON-RPC result or error. Anything else fails the test: the gateway's own answers are always well-formed.
    pub(crate) fn outcome(&self) -> Outcome {
        let text = String::from_utf8_lossy(&self.body);
        let body: Value =
            serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{} {e}: {text:.500}", self.head.line));
        assert_eq!(body["jsonrpc"], "2.0", "{text:.500}");
        match (body.get("result"), body.get("error")) {
            (Some(result), None) => Ok(result.clone()),
            (None, Some(error)) => Err(Box::new(Fault::read(error))),
            _ => panic!("neither a result nor an error: {text:.500}"),
        }
    }
}

impl Answer {
    /// The bare result of HTTP+JSON, or its error. What an error's body says must be what the status says.
    pub(crate) fn bare(&self) -> Outcome {
        let text = String::from_utf8_lossy(&self.body);
        let body: Value =
            serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{} {e}: {text:.500}", self.head.line));
        match body.get("error") {
            None => {
                assert_eq!(self.status, 200, "{text:.500}");
                Ok(body)
            }
            Some(error) => {
                let mut error = error.clone();
                assert!(self.status == 0 || error["code"] == self.status, "{} {text:.500}", self.head.line);
                assert!(error["status"].is_string() && error["details"].is_array(), "{text:.500}");
                error["data"] = error["details"].take();
                Err(Box::new(Fault::read(&error)))
            }
        }
    }
}

impl Fault {
    fn read(error: &Value) -> Self {
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("an error without a code: {error}"));
        let infos: Vec<&Value> =
            error["data"].as_array().into_iter().flatten().filter(|d| d["reason"].is_string()).collect();
        let ours = infos.iter().find(|d| d["domain"] == "watertight").or(infos.first());
        let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
        let info = ours.map_or(&Value::Null, |info| *info);
        Self {
            code,
            message: text(&error["message"]),
            reason: text(&info["reason"]),
            agent: text(&info["metadata"]["agent"]),
            delivery: text(&info["metadata"]["delivery"]),
            task: text(&info["metadata"]["taskId"]),
        }
    }
}

/// How an event stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As HTTP says that a body ends.
    Clean,
    /// Cut off.
    Broken,
}

/// What an event stream brings: events, one by one, and how it ended.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) head: Head,
    body: Body,
    buffer: Vec<u8>,
    end: Option<End>,
    /// The events are those of HTTP+JSON.
    bare: bool,
}

impl Events {
    /// Whether this is an event stream at all, and not a refusal.
    pub(crate) fn is_stream(&self) -> bool {
        self.head.get("content-type").is_some_and(|v| v.starts_with("text/event-stream"))
    }

    /// The refusal that came in place of a stream.
    pub(crate) fn refusal(mut self) -> Outcome {
        let body = self.body.all().unwrap();
        let answer = Answer { status: self.head.status(), head: self.head, body, took: Duration::ZERO };
        if self.bare { answer.bare() } else { answer.outcome() }
    }

    /// The next event's result or error, or `None` at the stream's end. Comments are passed over.
    pub(crate) fn next(&mut self) -> Option<Outcome> {
        assert!(self.is_stream(), "not a stream: {}", self.head.line);
        loop {
            if let Some(at) = self.buffer.windows(2).position(|w| w == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..at + 2).collect();
                let block = String::from_utf8(block).expect("events are UTF-8");
                let data: Vec<&str> = block
                    .lines()
                    .filter_map(|l| l.strip_prefix("data:"))
                    .map(|l| l.strip_prefix(' ').unwrap_or(l))
                    .collect();
                if data.is_empty() {
                    continue;
                }
                let body = data.join("\n").into_bytes();
                let status = if self.bare && block.lines().any(|line| line == "event: error") { 0 } else { 200 };
                let answer = Answer { status, head: Head::default(), body, took: Duration::ZERO };
                return Some(if self.bare { answer.bare() } else { answer.outcome() });
            }
            match self.body.some() {
                Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                Ok(None) => {
                    self.end = Some(End::Clean);
                    return None;
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("nothing on the stream for {PATIENCE:?}, not even a heartbeat")
                }
                Err(_) => {
                    self.end = Some(End::Broken);
                    return None;
                }
            }
        }
    }

    /// Everything up to the end.
    pub(crate) fn rest(mut self) -> Ended {
        let mut events = Vec::new();
        while let Some(event) = self.next() {
            events.push(event);
        }
        Ended { events, end: self.end.expect("the stream ended"), at: now() }
    }

    /// Leaves without a word.
    pub(crate) fn leave(self) {
        self.body.socket().shutdown(std::net::Shutdown::Both).ok();
    }
}

/// A stream that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) events: Vec<Outcome>,
    pub(crate) end: End,
    pub(crate) at: Instant,
}

impl Ended {
    /// The states that were said, in order.
    pub(crate) fn states(&self) -> Vec<String> {
        let said = self.events.iter().flatten().filter_map(|e| {
            let status = e.get("task").or(e.get("statusUpdate"))?;
            Some(state(status).to_owned())
        });
        said.collect()
    }

    /// The last state that was said.
    pub(crate) fn last_state(&self) -> String {
        self.states().pop().unwrap_or_default()
    }

    /// The artifact's text as a client builds it: snapshots replace, appended pieces add.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for event in self.events.iter().flatten() {
            if let Some(task) = event.get("task") {
                text = answer_text(task);
            } else if let Some(update) = event.get("artifactUpdate") {
                if update["append"] != true {
                    text.clear();
                }
                text.push_str(&parts_text(&update["artifact"]));
            }
        }
        text
    }

    /// The texts of the artifact pieces, one by one.
    pub(crate) fn pieces(&self) -> Vec<String> {
        self.events
            .iter()
            .flatten()
            .filter_map(|e| e.get("artifactUpdate"))
            .map(|u| parts_text(&u["artifact"]))
            .collect()
    }

    /// The error that the stream ended with.
    pub(crate) fn error(&self) -> Option<&Fault> {
        self.events.last().and_then(|e| e.as_ref().err()).map(AsRef::as_ref)
    }
}

/// A user's message with an id of its own.
pub(crate) fn message(text: &str) -> Value {
    json!({"messageId": fresh("message"), "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// An id that was never used before, in this run or another.
pub(crate) fn fresh(kind: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    #[expect(clippy::disallowed_methods, reason = "only to be different from other runs")]
    let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    format!("{kind}-{run:x}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A task's or update's state without its prefix.
pub(crate) fn state(of: &Value) -> &str {
    let state = of["status"]["state"].as_str().unwrap_or("");
    state.strip_prefix("TASK_STATE_").unwrap_or(state)
}

pub(crate) fn is_terminal(state: &str) -> bool {
    matches!(state, "COMPLETED" | "FAILED" | "CANCELED" | "REJECTED")
}

pub(crate) fn id(task: &Value) -> &str {
    task["id"].as_str().unwrap_or_else(|| panic!("a task without an id: {task}"))
}

/// The text of all artifacts, or of a message.
pub(crate) fn answer_text(of: &Value) -> String {
    if of.get("parts").is_some() {
        return parts_text(of);
    }
    of["artifacts"].as_array().into_iter().flatten().map(parts_text).collect()
}

fn parts_text(of: &Value) -> String {
    of["parts"].as_array().into_iter().flatten().filter_map(|p| p["text"].as_str()).collect()
}

fn unwrapped(result: Value) -> Value {
    result
        .get("task")
        .or(result.get("message"))
        .unwrap_or_else(|| panic!("neither a task nor a message: {result}"))
        .clone()
}

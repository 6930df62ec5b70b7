//! Agents as raw sockets that do exactly what a test says, and a relay that only keeps what it is given.

mod cancel;
mod cards;
mod connections;
mod faults;
mod polls;
mod rest;
mod streams;

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use watertight_a2a::event::{Body, Event};
use watertight_a2a::json::Json;
use watertight_engine::ids::{AgentId, Attempt, RemoteId, TaskId};
use watertight_engine::input::Fault;
use watertight_engine::output::Dispatch;
use watertight_engine::record::Delivery;
use watertight_policy::budget::Budget;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use super::{Agent, AgentConfig, End, Job, Mode, Named, News, Relay};
use crate::clock::Clock;

/// What a peer does with a request.
pub(super) enum Act {
    Write(Vec<u8>),
    Sleep(u64),
    /// FIN.
    Close,
    /// RST.
    Reset,
    /// Keeps the connection open and says nothing.
    Hold,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// Which connection it came on.
    pub(super) connection: usize,
}

impl Seen {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(super) fn method(&self) -> String {
        match self.json().get("method") {
            Some(method) => method.as_str().unwrap().to_owned(),
            None => self.head.split(' ').next().unwrap().to_owned(),
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    pub(super) fn id(&self) -> Value {
        self.json()["id"].clone()
    }
}

/// A scripted agent on a port of its own.
pub(super) struct Peer {
    pub(super) port: u16,
    pub(super) seen: Arc<Mutex<Vec<Seen>>>,
    accepting: tokio::task::AbortHandle,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Peer {
    /// `script` is asked for each call; without an end of its own the connection is kept for the next one. No card.
    pub(super) async fn start(script: impl Fn(&Seen, usize) -> Vec<Act> + Send + Sync + 'static) -> Peer {
        let cardless = |request: &Seen| request.method() == "GET";
        let none = || http("404 Not Found", "text/plain", "");
        Peer::closing_after(move |request, n| if cardless(request) { none() } else { script(request, n) }, None).await
    }

    /// The same, and the script is asked for the card too.
    pub(super) async fn with_card(script: impl Fn(&Seen, usize) -> Vec<Act> + Send + Sync + 'static) -> Peer {
        Peer::closing_after(script, None).await
    }

    /// The same, and an unused connection is closed after `keep`.
    pub(super) async fn closing_after(
        script: impl Fn(&Seen, usize) -> Vec<Act> + Send + Sync + 'static,
        keep: Option<Duration>,
    ) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (log, script) = (seen.clone(), Arc::new(script));
        let accepting = tokio::spawn(async move {
            for connection in 0.. {
                let Ok((socket, _)) = listener.accept().await else { return };
                let (log, script) = (log.clone(), script.clone());
                tokio::spawn(async move {
                    let _ = serve(socket, connection, &log, &*script, keep).await;
                });
            }
        });
        Peer { port, seen, accepting: accepting.abort_handle() }
    }

    pub(super) fn url(&self) -> http::Uri {
        format!("http://127.0.0.1:{}/rpc", self.port).parse().unwrap()
    }

    /// The requests other than for cards.
    pub(super) fn calls(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.head.starts_with("POST")).cloned().collect()
    }

    pub(super) fn methods(&self) -> Vec<String> {
        self.calls().iter().map(Seen::method).collect()
    }

    pub(super) fn agent(&self, change: impl FnOnce(&mut AgentConfig)) -> Arc<Agent> {
        agent(self.url(), change)
    }
}

async fn serve(
    mut socket: TcpStream,
    connection: usize,
    log: &Mutex<Vec<Seen>>,
    script: &(dyn Fn(&Seen, usize) -> Vec<Act> + Send + Sync),
    keep: Option<Duration>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let request = read_request(&mut socket, &mut buffer, connection);
        let request = match keep {
            None => request.await?,
            Some(keep) => match tokio::time::timeout(keep, request).await {
                Ok(request) => request?,
                Err(_) => return Ok(()),
            },
        };
        let Some(request) = request else { return Ok(()) };
        let number = {
            let mut log = log.lock().unwrap();
            log.push(request.clone());
            log.iter().filter(|seen| seen.head.starts_with("POST")).count()
        };
        for act in script(&request, number) {
            match act {
                Act::Write(bytes) => socket.write_all(&bytes).await?,
                Act::Sleep(millis) => sleep(Duration::from_millis(millis)).await,
                Act::Close => return socket.shutdown().await,
                Act::Reset => {
                    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
                    return Ok(());
                }
                Act::Hold => {
                    let mut rest = [0; 64];
                    while socket.read(&mut rest).await? > 0 {}
                    return Ok(());
                }
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>, connection: usize) -> io::Result<Option<Seen>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
            let length: usize = length.unwrap_or(0);
            if buffer.len() >= end + 4 + length {
                let body = buffer[end + 4..end + 4 + length].to_vec();
                buffer.drain(..end + 4 + length);
                return Ok(Some(Seen { head, body, connection }));
            }
        }
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// An agent with waits short enough for a test.
pub(super) fn agent(url: http::Uri, change: impl FnOnce(&mut AgentConfig)) -> Arc<Agent> {
    let mut config = AgentConfig::new("peer", url);
    config.idle_timeout = Duration::from_millis(500);
    config.connect_timeout = Duration::from_millis(500);
    config.unreachable_after = Duration::from_millis(600);
    config.poll = (Duration::from_millis(10), Duration::from_millis(50));
    config.mode = Mode::Poll;
    change(&mut config);
    Agent::new(Arc::new(config), Clock::anchored(Time::from_millis(1_000_000))).unwrap()
}

/// An HTTP answer.
pub(super) fn http(status: &str, content_type: &str, body: impl AsRef<[u8]>) -> Vec<Act> {
    http_with(status, &format!("Content-Type: {content_type}\r\n"), body)
}

pub(super) fn http_with(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<Act> {
    let body = body.as_ref();
    let mut out = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    vec![Act::Write(out)]
}

pub(super) fn ok(request: &Seen, result: &Value) -> Vec<Act> {
    let body = json!({"jsonrpc": "2.0", "id": request.id(), "result": result});
    http("200 OK", "application/json", body.to_string())
}

pub(super) fn error(request: &Seen, code: i64) -> Vec<Act> {
    let body = json!({"jsonrpc": "2.0", "id": request.id(), "error": {"code": code, "message": "no"}});
    http("200 OK", "application/json", body.to_string())
}

pub(super) fn task(state: &str) -> Value {
    json!({"id": "t-1", "contextId": "c-1", "status": {"state": format!("TASK_STATE_{state}")}})
}

pub(super) fn status(state: &str) -> Value {
    json!({"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": format!("TASK_STATE_{state}")}}})
}

pub(super) fn chunk(text: &str) -> Value {
    let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
    json!({"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "append": true, "artifact": artifact}})
}

/// The head of a stream that ends with its connection.
pub(super) fn stream_head() -> Act {
    Act::Write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n".to_vec())
}

/// One event, as bytes.
pub(super) fn event(request: &Seen, result: &Value) -> Vec<u8> {
    format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": request.id(), "result": result})).into_bytes()
}

/// A stream of these events, in one write.
pub(super) fn stream(request: &Seen, results: &[Value]) -> Vec<Act> {
    vec![stream_head(), Act::Write(results.iter().flat_map(|result| event(request, result)).collect())]
}

pub(super) fn then(mut acts: Vec<Act>, last: Act) -> Vec<Act> {
    acts.push(last);
    acts
}

pub(super) fn job() -> Job {
    let message =
        json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}], "contextId": "ours"}});
    Job {
        dispatch: Dispatch {
            task: TaskId(7),
            turn: 1,
            attempt: Attempt(1),
            agent: AgentId::new("peer"),
            remote_task: None,
            remote_context: None,
            root: TaskId(7),
            budget: Budget { deadline: Time::from_millis(1_000_000) + Span::from_secs(30), depth: 2, fanout: 4 },
            deadline: Time::from_millis(1_000_000) + Span::from_secs(30),
        },
        delegation: "wd1.of-the-task".to_owned(),
        message: Json::assume(message.to_string()),
        references: Vec::new(),
        tenant: None,
        traceparent: None,
        tracestate: None,
        extensions: None,
    }
}

pub(super) fn follow_up() -> Job {
    let mut job = job();
    job.dispatch.turn = 2;
    job.dispatch.remote_task = Some(RemoteId::from("t-1"));
    job
}

/// Keeps what it is given.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) events: Vec<Event>,
    pub(super) news: Vec<News>,
    pub(super) refuse: Option<Fault>,
}

impl Relay for Kept {
    fn event(&mut self, event: Event) -> ControlFlow<Fault> {
        self.events.push(event);
        self.refuse.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    fn learnt(&mut self, news: News) {
        self.news.push(news);
    }
}

impl Kept {
    /// What came, short: states, `"text"` of chunks, `message`.
    pub(super) fn said(&self) -> Vec<String> {
        let short = |event: &Event| match &event.body {
            Body::Task(task) => format!("task {}", &task.status.state.name()[11..]),
            Body::Status(update) => update.status.state.name()[11..].to_owned(),
            Body::Message(_) => "message".to_owned(),
            Body::Artifact(update) => {
                let parts: Value = serde_json::from_slice(update.artifact.parts.as_bytes()).unwrap();
                parts[0]["text"].as_str().unwrap_or_default().to_owned()
            }
        };
        self.events.iter().map(short).collect()
    }
}

/// Sends from a task of its own, as the driver does, within five seconds.
pub(super) async fn send(agent: &Arc<Agent>, job: Job) -> (End, Kept) {
    run(agent, job, true).await
}

pub(super) async fn watch(agent: &Arc<Agent>, job: Job) -> (End, Kept) {
    run(agent, job, false).await
}

async fn run(agent: &Arc<Agent>, job: Job, send: bool) -> (End, Kept) {
    let agent = agent.clone();
    let running = tokio::spawn(async move {
        let mut relay = Kept::default();
        let end = if send { agent.send(&job, &mut relay).await } else { agent.watch(&job, &mut relay).await };
        (end, relay)
    });
    tokio::time::timeout(Duration::from_secs(5), running).await.expect("it hangs").unwrap()
}

pub(super) fn why(end: &End) -> (Reason, Delivery) {
    let fault = end.ended.expect_err("it should have failed");
    (fault.reason, fault.delivery)
}

pub(super) fn what(end: &End) -> &str {
    &end.detail.as_ref().unwrap().what
}

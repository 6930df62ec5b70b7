//! An agent that misbehaves as scripted: a listener on 127.0.0.1, a thread per connection, and a script that owns the wire once a request was read.
//!
//! What it was sent is counted and kept before the script sees it, so that "executed exactly once" is a fact and not a guess.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clock::{ms, now};
use crate::http::{Body, Head, read_head};

/// One request as the peer received it, whole.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: Head,
    /// The body, as it came.
    pub(crate) body: String,
    /// The JSON-RPC request, or null where the body is none; what HTTP+JSON says by verb and path stands here as well.
    pub(crate) rpc: Value,
    /// It came in HTTP+JSON.
    pub(crate) rest: bool,
    pub(crate) at: Instant,
}

impl Received {
    pub(crate) fn method(&self) -> &str {
        self.rpc["method"].as_str().unwrap_or("")
    }

    pub(crate) fn params(&self) -> &Value {
        &self.rpc["params"]
    }

    /// Without its query.
    pub(crate) fn path(&self) -> &str {
        let target = self.head.line.split(' ').nth(1).unwrap_or("");
        target.split('?').next().unwrap_or("")
    }

    /// Whether this request asks the agent to do work.
    pub(crate) fn executes(&self) -> bool {
        matches!(self.method(), "SendMessage" | "SendStreamingMessage")
    }

    /// The text of the message's first part.
    pub(crate) fn text(&self) -> &str {
        self.params()["message"]["parts"][0]["text"].as_str().unwrap_or("")
    }
}

/// What a script says about the connection when it is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The answer was whole: the next request may come on this connection.
    KeepOpen,
    /// Close it politely, whatever was promised.
    Close,
    /// Reset it.
    Reset,
}

/// What the peer's card says, which decides how it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// There is none: 404.
    Missing,
    /// It is asked for in vain.
    Silent,
    Plain,
    Streaming,
    /// These interfaces, as (binding, path), and whether it streams. Nothing is answered anywhere else.
    Interfaces(&'static [(&'static str, &'static str)], bool),
    /// A streaming agent's, with these members in place of the usual ones; `ADDR` in them is the agent's address.
    With(&'static str),
}

impl Card {
    /// Whether an interface is there. `path` is a request's, so that HTTP+JSON stands below its interface's.
    fn serves(self, rest: bool, path: &str) -> bool {
        match self {
            Card::Interfaces(list, _) => list.iter().any(|(binding, base)| match (rest, *binding) {
                (true, "HTTP+JSON") => path.starts_with(&format!("{}/", base.trim_end_matches('/'))),
                (false, "JSONRPC") => path == *base,
                _ => false,
            }),
            Card::Missing | Card::Silent | Card::Plain | Card::Streaming | Card::With(_) => true,
        }
    }
}

#[derive(Default)]
struct Log {
    received: Mutex<Vec<Received>>,
    cards: Mutex<Vec<Received>>,
    working: AtomicUsize,
    most: AtomicUsize,
}

/// A running peer. Dropping it closes its port and every connection.
pub(crate) struct Peer {
    addr: SocketAddr,
    log: Arc<Log>,
    stop: Arc<AtomicBool>,
    open: Open,
    accepting: Option<JoinHandle<()>>,
}

/// The connections that are being served, so that dropping the peer ends them.
type Open = Arc<Mutex<BTreeMap<usize, TcpStream>>>;

impl Peer {
    /// Starts a peer whose every call is answered by the script.
    pub(crate) fn start<S>(card: Card, script: S) -> Self
    where
        S: Fn(&Received, &mut Wire) -> After + Send + Sync + 'static,
    {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), card, script)
    }

    /// Likewise at an address where nobody has listened so far.
    pub(crate) fn start_at<S>(addr: SocketAddr, card: Card, script: S) -> Self
    where
        S: Fn(&Received, &mut Wire) -> After + Send + Sync + 'static,
    {
        let served = move |request: &Received, wire: &mut Wire| match card.serves(request.rest, request.path()) {
            true => script(request, wire),
            false => wire.answer(404, "text/plain", b"nothing here"),
        };
        Self::at(addr, move |request, wire| answer_get(request, card, wire), served)
    }

    /// The same with a script for its cards, too.
    pub(crate) fn with_cards<C, S>(cards: C, script: S) -> Self
    where
        C: Fn(&Received, &mut Wire) -> After + Send + Sync + 'static,
        S: Fn(&Received, &mut Wire) -> After + Send + Sync + 'static,
    {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), cards, script)
    }

    fn at<C, S>(addr: SocketAddr, cards: C, script: S) -> Self
    where
        C: Fn(&Received, &mut Wire) -> After + Send + Sync + 'static,
        S: Fn(&Received, &mut Wire) -> After + Send + Sync + 'static,
    {
        let listener = TcpListener::bind(addr).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut peer = Self { addr, log: Arc::default(), stop: Arc::default(), open: Arc::default(), accepting: None };
        let (log, stop, open) = (peer.log.clone(), peer.stop.clone(), peer.open.clone());
        let (cards, script) = (Arc::new(cards), Arc::new(script));
        peer.accepting = Some(thread::spawn(move || {
            for (n, socket) in listener.incoming().enumerate() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(socket) = socket else { continue };
                socket.set_nodelay(true).ok();
                let Ok(copy) = socket.try_clone() else { continue };
                open.lock().unwrap().insert(n, copy);
                let (log, open, cards, script) = (log.clone(), open.clone(), cards.clone(), script.clone());
                thread::spawn(move || {
                    let reset = serve(socket, &log, &*cards, &*script);
                    // A reset is sent when the last copy of a socket that must not linger is closed: this one.
                    let last = open.lock().unwrap().remove(&n);
                    if let (true, Some(last)) = (reset, last) {
                        socket2::SockRef::from(&last).set_linger(Some(Duration::ZERO)).ok();
                    }
                });
            }
        }));
        peer
    }

    /// A peer that accepts, reads everything, and never says a word.
    pub(crate) fn hole() -> Self {
        Self::start(Card::Missing, |_, wire| {
            wire.hold(Duration::from_secs(600));
            After::Close
        })
    }

    /// The address where nothing listens: of a listener that was closed again.
    pub(crate) fn closed_port() -> String {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        format!("http://{addr}/")
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// Every request for a card.
    pub(crate) fn cards(&self) -> Vec<Received> {
        self.log.cards.lock().unwrap().clone()
    }

    /// Every call that was received, in the order of arrival.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.log.received.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.received().iter().filter(|r| r.method() == method).count()
    }

    /// How often the agent was asked to do work.
    pub(crate) fn executions(&self) -> usize {
        self.received().iter().filter(|r| r.executes()).count()
    }

    /// The most requests for work that were being answered at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.log.most.load(Ordering::SeqCst)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        TcpStream::connect_timeout(&self.addr, ms(200)).ok();
        if let Some(accepting) = self.accepting.take() {
            accepting.join().ok();
        }
        for socket in self.open.lock().unwrap().values() {
            socket.shutdown(Shutdown::Both).ok();
        }
    }
}

/// Serves one connection; true where it is to be reset.
fn serve<C, S>(socket: TcpStream, log: &Log, cards: &C, script: &S) -> bool
where
    C: Fn(&Received, &mut Wire) -> After + Send + Sync,
    S: Fn(&Received, &mut Wire) -> After + Send + Sync,
{
    let mut from = BufReader::new(socket);
    while let Ok(Some(head)) = read_head(&mut from) {
        let mut body = Body::new(from, &head);
        let Ok(bytes) = body.all() else { return false };
        from = body.into_inner();
        let Ok(socket) = from.get_ref().try_clone() else { return false };
        let said = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let by_path = of_path(&head.line, &said);
        let (rpc, rest) = by_path.map_or((said, false), |rpc| (rpc, true));
        let body = String::from_utf8_lossy(&bytes).into_owned();
        let received = Received { head, body, rpc, rest, at: now() };
        let mut wire = Wire { id: received.rpc["id"].clone(), rest, socket, kept: None };
        let after = if rest || received.head.line.starts_with("POST ") {
            log.received.lock().unwrap().push(received.clone());
            if received.executes() {
                let working = log.working.fetch_add(1, Ordering::SeqCst) + 1;
                log.most.fetch_max(working, Ordering::SeqCst);
            }
            let after = script(&received, &mut wire);
            if received.executes() {
                log.working.fetch_sub(1, Ordering::SeqCst);
            }
            after
        } else {
            log.cards.lock().unwrap().push(received.clone());
            cards(&received, &mut wire)
        };
        match after {
            After::KeepOpen => {}
            After::Close => {
                wire.socket.shutdown(Shutdown::Both).ok();
                return false;
            }
            After::Reset => return true,
        }
    }
    false
}

/// What an HTTP+JSON request asks, as JSON-RPC would say it; `None` where the path is no operation's.
fn of_path(line: &str, body: &Value) -> Option<Value> {
    let mut words = line.split(' ');
    let (verb, target) = (words.next()?, words.next()?);
    let path = target.split('?').next()?;
    let (method, params) = if path.ends_with("/message:send") && verb == "POST" {
        ("SendMessage", body.clone())
    } else if path.ends_with("/message:stream") && verb == "POST" {
        ("SendStreamingMessage", body.clone())
    } else {
        let (_, task) = path.split_once("/tasks/")?;
        let (id, action) = task.split_once(':').unwrap_or((task, ""));
        let method = match (verb, action) {
            ("GET", "") => "GetTask",
            ("POST", "cancel") => "CancelTask",
            ("POST" | "GET", "subscribe") => "SubscribeToTask",
            _ => return None,
        };
        (method, json!({"id": id}))
    };
    Some(json!({"method": method, "params": params}))
}

/// A card with these interfaces, as (binding, path at the host).
pub(crate) fn card_of(host: &str, interfaces: &[(&str, &str)], streaming: bool) -> Value {
    let interface = |(binding, path): &(&str, &str)| json!({"url": format!("http://{host}{path}"), "protocolBinding": binding, "protocolVersion": "1.0"});
    json!({
        "name": "scripted", "description": "An agent that does what a test says.", "version": "1.0.0",
        "supportedInterfaces": interfaces.iter().map(interface).collect::<Vec<_>>(),
        "capabilities": {"streaming": streaming, "pushNotifications": false},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "script", "name": "script", "description": "Plays its script.", "tags": ["test"]}],
    })
}

fn answer_get(request: &Received, card: Card, wire: &mut Wire) -> After {
    let wanted = request.path().ends_with("/.well-known/agent-card.json");
    let (interfaces, streaming): (&[(&str, &str)], bool) = match card {
        Card::Silent => {
            wire.hold(Duration::from_secs(600));
            return After::Close;
        }
        Card::Missing => return wire.answer(404, "text/plain", b"nothing here"),
        Card::Plain => (&[("JSONRPC", "/")], false),
        Card::Streaming => (&[("JSONRPC", "/")], true),
        Card::With(_) => (&[("JSONRPC", "/")], true),
        Card::Interfaces(list, streaming) => (list, streaming),
    };
    if !wanted {
        return wire.answer(404, "text/plain", b"nothing here");
    }
    let host = request.head.get("host").unwrap_or("");
    let mut published = card_of(host, interfaces, streaming);
    if let Card::With(members) = card {
        let members: Value = serde_json::from_str(&members.replace("ADDR", host)).unwrap();
        published.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    }
    wire.answer(200, "application/json", published.to_string().as_bytes())
}

/// The connection a request came on, for the script to use or abuse. Writing to a caller that left is no error here.
pub(crate) struct Wire {
    id: Value,
    /// Answers in HTTP+JSON.
    rest: bool,
    socket: TcpStream,
    kept: Option<Vec<u8>>,
}

impl Wire {
    /// Keeps what is written from now on, or writes what was kept, in one go.
    pub(crate) fn gather(&mut self, keep: bool) {
        if let Some(kept) = self.kept.take() {
            self.raw(&kept);
        }
        self.kept = keep.then(Vec::new);
    }

    /// Exactly these bytes. False where the caller is gone.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> bool {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
            return true;
        }
        self.socket.write_all(bytes).and_then(|()| self.socket.flush()).is_ok()
    }

    /// A whole HTTP answer.
    pub(crate) fn answer(&mut self, status: u16, content_type: &str, body: &[u8]) -> After {
        self.answer_with(status, &[("content-type", content_type)], body)
    }

    pub(crate) fn answer_with(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> After {
        let mut bytes = format!("HTTP/1.1 {status} X\r\n");
        for (name, value) in headers {
            bytes.push_str(&format!("{name}: {value}\r\n"));
        }
        if status != 204 {
            bytes.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        bytes.push_str("\r\n");
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(body);
        if self.raw(&bytes) { After::KeepOpen } else { After::Close }
    }

    /// A result.
    pub(crate) fn ok(&mut self, result: &Value) -> After {
        let body = if self.rest { result.clone() } else { json!({"jsonrpc": "2.0", "id": self.id, "result": result}) };
        self.answer(200, "application/json", body.to_string().as_bytes())
    }

    /// An error, by its JSON-RPC code.
    pub(crate) fn error(&mut self, code: i64, message: &str) -> After {
        if !self.rest {
            let body = json!({"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": message}});
            return self.answer(200, "application/json", body.to_string().as_bytes());
        }
        let (http, status, reason) = match code {
            -32001 => (404, "NOT_FOUND", "TASK_NOT_FOUND"),
            -32002 => (400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
            -32004 => (400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
            -32005 => (400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
            -32601 => (404, "NOT_FOUND", "METHOD_NOT_FOUND"),
            _ => (500, "INTERNAL", "INTERNAL_ERROR"),
        };
        let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"});
        let body = json!({"error": {"code": http, "status": status, "message": message, "details": [info]}});
        self.answer(http, "application/json", body.to_string().as_bytes())
    }

    /// Begins an event stream that lasts until the connection ends.
    pub(crate) fn events(&mut self) -> bool {
        self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\nconnection: close\r\n\r\n")
    }

    /// One event: `task`, `message`, `statusUpdate` or `artifactUpdate`.
    pub(crate) fn event(&mut self, result: &Value) -> bool {
        let body = if self.rest { result.clone() } else { json!({"jsonrpc": "2.0", "id": self.id, "result": result}) };
        self.raw(format!("data: {body}\n\n").as_bytes())
    }

    /// One event, byte for byte.
    pub(crate) fn event_raw(&mut self, result: &str) -> bool {
        let id = &self.id;
        let body =
            if self.rest { result.to_owned() } else { format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#) };
        self.raw(format!("data: {body}\n\n").as_bytes())
    }

    /// After the answer, closes the connection if nothing comes for this long.
    pub(crate) fn close_when_idle(&mut self, time: Duration) {
        self.socket.set_read_timeout(Some(time)).ok();
    }

    /// Waits until the time is over or the caller has closed the connection, whichever comes first. False in the second case.
    pub(crate) fn hold(&mut self, time: Duration) -> bool {
        let start = now();
        self.socket.set_read_timeout(Some(ms(20))).ok();
        let mut byte = [0];
        let stayed = loop {
            match self.socket.peek(&mut byte) {
                Ok(0) => break false,
                Err(e) if !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    break false;
                }
                _ if start.elapsed() >= time => break true,
                Ok(_) => thread::sleep(ms(20)),
                Err(_) => {}
            }
        };
        self.socket.set_read_timeout(None).ok();
        stayed
    }
}

//! The agent behind every path: one thread, as cheap as an agent can be, so that the path is what is measured.
//!
//! It answers a SendMessage with a completed task, as agents do: an id and a context of its own, and the message's text
//! as artifact. What is sent below `/hang` is never answered. It reads JSON by looking for the members that the load
//! generator is known to send; anything else gets an answer that nobody should count.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::Failure;
use crate::call::{Whole, find, whole};

const DOOR: Token = Token(usize::MAX);
const END: Token = Token(usize::MAX - 1);
/// More than any request here has.
const MOST: usize = 64 * 1024;

/// Says where it listens, and serves until stdin closes.
pub(crate) fn run() -> Result<(), Failure> {
    let mut poll = Poll::new()?;
    let mut door = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let addr = door.local_addr()?;
    poll.registry().register(&mut door, DOOR, Interest::READABLE)?;
    let end = Arc::new(Waker::new(poll.registry(), END)?);
    thread::Builder::new().name("stdin".into()).spawn(move || {
        let _closed = io::copy(&mut io::stdin(), &mut io::sink());
        let _ending = end.wake();
    })?;
    let mut out = io::stdout();
    writeln!(out, "listening on http://{addr}")?;
    out.flush()?;

    let mut agent = Agent { addr, tasks: 0, out: Vec::new() };
    let (mut callers, mut events) = (Vec::<Option<Caller>>::new(), Events::with_capacity(256));
    loop {
        if let Err(e) = poll.poll(&mut events, None) {
            if e.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(e.into());
        }
        for event in &events {
            match event.token() {
                END => return Ok(()),
                DOOR => {
                    while let Ok((mut stream, _)) = door.accept() {
                        stream.set_nodelay(true)?;
                        let free = callers.iter().position(Option::is_none).unwrap_or(callers.len());
                        poll.registry().register(&mut stream, Token(free), Interest::READABLE)?;
                        let caller = Some(Caller { stream, bytes: vec![0; MOST], filled: 0 });
                        if free == callers.len() { callers.push(caller) } else { callers[free] = caller }
                    }
                }
                Token(at) => {
                    let Some(slot) = callers.get_mut(at) else { continue };
                    if slot.as_mut().is_some_and(|caller| agent.serve(caller).is_err()) {
                        *slot = None;
                    }
                }
            }
        }
    }
}

struct Caller {
    stream: TcpStream,
    bytes: Vec<u8>,
    filled: usize,
}

struct Agent {
    addr: SocketAddr,
    /// Tasks so far: their ids.
    tasks: u64,
    /// The answer in the making.
    out: Vec<u8>,
}

impl Agent {
    /// Answers what has come. An error: this connection is over.
    fn serve(&mut self, caller: &mut Caller) -> io::Result<()> {
        loop {
            let room = &mut caller.bytes[caller.filled..];
            let size = room.len();
            let n = match caller.stream.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            caller.filled += n;
            while let Some(request) = whole(&caller.bytes[..caller.filled])? {
                let length = request.length;
                if self.answer(&request) {
                    // An answer is far smaller than what a socket buffers; a caller that has not read the one before
                    // is none of ours.
                    if caller.stream.write(&self.out)? < self.out.len() {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                }
                caller.bytes.copy_within(length..caller.filled, 0);
                caller.filled -= length;
            }
            if n < size {
                return Ok(());
            }
        }
    }

    /// Whether there is one.
    fn answer(&mut self, request: &Whole<'_>) -> bool {
        let body = if request.head.starts_with(b"GET ") {
            self.card(if request.head.starts_with(b"GET /hang") { "hang" } else { "" })
        } else if request.head.starts_with(b"POST /hang") {
            return false;
        } else {
            self.task(request.body)
        };
        self.out.clear();
        let _to_memory = write!(
            self.out,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.out.extend_from_slice(&body);
        true
    }

    fn task(&mut self, body: &[u8]) -> Vec<u8> {
        self.tasks += 1;
        let n = self.tasks;
        let id = find(body, br#""id":"#).map_or(&b"null"[..], |at| {
            let rest = &body[at + 5..];
            &rest[..rest.iter().position(|b| matches!(b, b',' | b'}')).unwrap_or(0)]
        });
        let text = find(body, br#""text":""#).map_or(&b""[..], |at| {
            let rest = &body[at + 8..];
            &rest[..rest.iter().position(|&b| b == b'"').unwrap_or(0)]
        });
        let mut out = Vec::with_capacity(text.len() + 384);
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id);
        let _to_memory = write!(
            out,
            r#","result":{{"task":{{"id":"task-{n:012}","contextId":"context-{n:012}","status":{{"state":"TASK_STATE_COMPLETED","timestamp":"2026-01-01T00:00:00.000Z"}},"artifacts":[{{"artifactId":"answer","parts":[{{"text":""#
        );
        out.extend_from_slice(text);
        out.extend_from_slice(br#""}]}]}}}"#);
        out
    }

    /// Who follows it comes back to the same path.
    fn card(&self, path: &str) -> Vec<u8> {
        let addr = self.addr;
        format!(
            r#"{{"name":"echo","description":"answers with what it is sent","version":"1.0.0","supportedInterfaces":[{{"url":"http://{addr}/{path}","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],"capabilities":{{"streaming":false,"pushNotifications":false}},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{{"id":"echo","name":"echo","description":"answers with what it is sent","tags":["echo"]}}]}}"#
        )
        .into_bytes()
    }
}

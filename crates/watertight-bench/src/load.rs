//! The load generator: so many connections, each with one call at a time, on one thread.
//!
//! Every answer is read whole and checked: status, JSON-RPC id, a completed task. What is not that is an error, counted.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::Failure;
use crate::call::{Request, whole};
use crate::clock::{now, seconds};
use crate::figures::Waits;
use crate::stop;

/// More than any answer here has.
const MOST: usize = 64 * 1024;
/// After these there is something wrong with the path, and no figure worth having.
const MOST_ERRORS: u64 = 1_000;
/// A path that answers nothing for so long does not work.
const SILENCE: Duration = Duration::from_secs(10);

pub(crate) struct Load {
    addr: SocketAddr,
    request: Request,
    poll: Poll,
    lines: Vec<Line>,
    /// The next call's number.
    next: u64,
}

/// What came of some seconds of it.
pub(crate) struct Tally {
    pub(crate) waits: Waits,
    pub(crate) errors: u64,
    /// The first answer that was wrong.
    pub(crate) wrong: Option<String>,
    pub(crate) took: Duration,
}

struct Line {
    stream: TcpStream,
    bytes: Vec<u8>,
    filled: usize,
    call: u64,
    sent: Instant,
}

impl Load {
    /// Connects, and sends a first call on each connection. Calls are numbered from `first`.
    pub(crate) fn start(addr: SocketAddr, path: &str, conns: usize, first: u64) -> Result<Load, Failure> {
        let mut load =
            Load { addr, request: Request::new(addr, path), poll: Poll::new()?, lines: Vec::new(), next: first };
        for at in 0..conns {
            let line = load.connect(at).map_err(|e| format!("connection {at} to {addr}: {e}"))?;
            load.lines.push(line);
        }
        for at in 0..conns {
            load.send(at)?;
        }
        Ok(load)
    }

    /// Goes on for so long, and counts the calls that ended meanwhile.
    pub(crate) fn run(&mut self, time: Duration) -> Result<Tally, Failure> {
        let (began, mut last) = (now(), now());
        let mut tally = Tally { waits: Waits::default(), errors: 0, wrong: None, took: Duration::ZERO };
        let mut events = Events::with_capacity(256);
        while began.elapsed() < time {
            stop::check()?;
            if let Err(e) = self.poll.poll(&mut events, Some(Duration::from_millis(100)))
                && e.kind() != io::ErrorKind::Interrupted
            {
                return Err(e.into());
            }
            for event in &events {
                let Token(at) = event.token();
                match self.lines[at].read() {
                    Ok(None) => continue,
                    Ok(Some(Ok(wait))) => tally.waits.add(wait),
                    Ok(Some(Err(answer))) => tally.error(answer),
                    Err(e) => {
                        tally.error(e.to_string());
                        self.lines[at] = self.connect(at)?;
                    }
                }
                last = now();
                self.send(at)?;
            }
            if tally.errors > MOST_ERRORS {
                let wrong = tally.wrong.unwrap_or_default();
                return Err(format!("{}: more than {MOST_ERRORS} errors; the first: {wrong}", self.addr).into());
            }
            if last.elapsed() > SILENCE {
                return Err(format!("{}: no answer within {SILENCE:?}", self.addr).into());
            }
        }
        tally.took = began.elapsed();
        Ok(tally)
    }

    fn connect(&self, at: usize) -> io::Result<Line> {
        let stream = std::net::TcpStream::connect(self.addr)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        self.poll.registry().register(&mut stream, Token(at), Interest::READABLE)?;
        Ok(Line { stream, bytes: vec![0; MOST], filled: 0, call: 0, sent: now() })
    }

    /// The next call, on a line that waits for nothing.
    fn send(&mut self, at: usize) -> Result<(), Failure> {
        let line = &mut self.lines[at];
        line.call = self.next;
        self.next += 1;
        line.sent = now();
        let bytes = self.request.number(line.call);
        // The line is empty: what a request has fits into its buffer. A broken one is met by the read that follows.
        match line.stream.write(bytes) {
            Ok(n) if n < bytes.len() => Err(format!("{}: took {n} bytes of a request", self.addr).into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl Line {
    /// How long the answer took, or what was wrong about it; `None` while it is not all there.
    fn read(&mut self) -> io::Result<Option<Result<Duration, String>>> {
        loop {
            let room = &mut self.bytes[self.filled..];
            let size = room.len();
            let n = match self.stream.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            };
            self.filled += n;
            if let Some(answer) = whole(&self.bytes[..self.filled])? {
                let wait = self.sent.elapsed();
                let fine = Request::is_answered_by(self.call, answer.status(), answer.body);
                let text = || format!("{}: {}", answer.status(), String::from_utf8_lossy(answer.body).escape_debug());
                let verdict = if fine { Ok(wait) } else { Err(text().chars().take(400).collect()) };
                self.filled = 0;
                return Ok(Some(verdict));
            }
            if n < size {
                return Ok(None);
            }
        }
    }
}

impl Tally {
    fn error(&mut self, what: String) {
        self.errors += 1;
        self.wrong.get_or_insert(what);
    }

    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        self.waits.len() as f64 / self.took.as_secs_f64()
    }
}

/// Some seconds of load on a URL, in a line for people.
pub(crate) fn alone(url: &str, conns: usize, time: f64) -> Result<String, Failure> {
    let rest = url.strip_prefix("http://").ok_or("an http:// URL is needed")?;
    let (host, path) = rest.split_once('/').map_or((rest, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
    let addr: SocketAddr = host.parse().map_err(|_| format!("{host} is no address like 127.0.0.1:7420"))?;
    // Other numbers than an earlier load's: its messageIds are known to the gateway.
    let first = std::process::id() as u64 * 1_000_000 % 900_000_000_000;
    let mut tally = Load::start(addr, &path, conns, first)?.run(seconds(time))?;
    let (p50, p99) = (tally.waits.quantile(0.5), tally.waits.quantile(0.99));
    let wrong = tally.wrong.as_deref().map(|wrong| format!("; {wrong}")).unwrap_or_default();
    Ok(format!("{:.0} calls/s, p50 {:.3} ms, p99 {:.3} ms, {} errors{wrong}", tally.rate(), p50, p99, tally.errors))
}

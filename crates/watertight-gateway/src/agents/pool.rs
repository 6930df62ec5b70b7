//! Connections kept for the next request, and requests of which it is known how much left.
//!
//! A connection belongs to the worker that opened it, which is the first to take it again; others do so only rather than
//! open one more. HTTP/1.1, one request at a time on a connection, so what the socket counts between taking a connection and losing it
//! is that request's. There is no limit on connections here: the engine's bulkhead is the limit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::connect::{self, Origin, Socket};
use crate::worker;

/// Unused connections kept at most.
const MAX_IDLE: usize = 256;
/// Places to keep them; workers beyond these share one.
const SHELVES: usize = 16;
/// How long a connection may take to become ready again after its last answer was read to the end.
const SETTLE: Duration = Duration::from_millis(50);

/// One class of requests to one origin.
#[derive(Debug)]
pub(super) struct Pool {
    origin: Origin,
    connect_timeout: Duration,
    keep: Duration,
    names: Arc<Semaphore>,
    kept: Arc<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Unused connections, by the worker that opened them.
    idle: [Mutex<Vec<Idle>>; SHELVES],
    /// How many there are in all.
    count: AtomicUsize,
    /// A task is at work that closes what is not used in time.
    swept: AtomicBool,
}

#[derive(Debug)]
struct Idle {
    link: Link,
    since: Instant,
}

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    socket: Arc<Socket>,
    driver: AbortHandle,
    /// Where it is kept.
    shelf: usize,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Error {
    /// There was no connection.
    Connect(connect::Error),
    /// The connection ended first.
    Lost {
        /// Bytes of the request that the kernel took.
        written: u64,
        /// Bytes of an answer that came.
        read: u64,
        /// What was seen.
        cause: hyper::Error,
    },
}

/// A connection with an answer under way on it.
#[derive(Debug)]
pub(super) struct Exchange {
    link: Link,
    kept: Arc<Kept>,
    keep: Duration,
}

impl Pool {
    pub(super) fn new(origin: Origin, connect_timeout: Duration, keep: Duration, names: &Arc<Semaphore>) -> Pool {
        Pool { origin, connect_timeout, keep, names: names.clone(), kept: Arc::default() }
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Sends a request and waits for the head of its answer, however long it takes. A kept connection that turns out
    /// dead before any byte left is replaced; nothing else is ever sent again.
    pub(super) async fn send(
        &self,
        request: impl Fn() -> Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Exchange), Error> {
        loop {
            let kept = self.take().await;
            let reused = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => self.open().await.map_err(Error::Connect)?,
            };
            let (written, read) = (link.socket.written(), link.socket.read());
            match link.sender.try_send_request(request()).await {
                Ok(response) => return Ok((response, Exchange { link, kept: self.kept.clone(), keep: self.keep })),
                Err(mut lost) => {
                    let never_started = lost.take_message().is_some();
                    let (written, read) = (link.socket.written() - written, link.socket.read() - read);
                    if reused && (never_started || written == 0) {
                        continue;
                    }
                    return Err(Error::Lost { written, read, cause: lost.into_error() });
                }
            }
        }
    }

    async fn open(&self) -> Result<Link, connect::Error> {
        let (io, socket) = connect::connect(&self.origin, self.connect_timeout, &self.names).await?;
        let (sender, driver) =
            Builder::new().handshake(io).await.map_err(|error| connect::Error::Local(std::io::Error::other(error)))?;
        let driver = tokio::spawn(async move {
            // How it ended is told to whoever waits for an answer on it.
            let _ = driver.await;
        });
        Ok(Link { sender, socket, driver: driver.abort_handle(), shelf: here() })
    }

    async fn take(&self) -> Option<Link> {
        loop {
            let Idle { mut link, since } = self.kept.pop()?;
            if since.elapsed() >= self.keep || !link.socket.is_quiet() {
                continue;
            }
            // Most are ready by now, and need no timer.
            if link.sender.is_ready() || matches!(timeout(SETTLE, link.sender.ready()).await, Ok(Ok(()))) {
                return Some(link);
            }
        }
    }
}

impl Exchange {
    /// The answer was read to its end: the connection may be used again.
    pub(super) fn done(self) {
        let Exchange { link, kept, keep } = self;
        if link.sender.is_closed() {
            return;
        }
        if kept.count.fetch_add(1, Ordering::Relaxed) >= MAX_IDLE {
            kept.count.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        lock(&kept.idle[link.shelf]).push(Idle { link, since: Instant::now() });
        if !kept.swept.swap(true, Ordering::AcqRel) {
            tokio::spawn(sweep(Arc::downgrade(&kept), keep));
        }
    }
}

impl Kept {
    /// The last one that was used here; one of another worker's, if there is none.
    fn pop(&self) -> Option<Idle> {
        let here = here();
        let mut shelves = (here..SHELVES).chain(0..here);
        let idle = shelves.find_map(|shelf| lock(&self.idle[shelf]).pop())?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(idle)
    }

    /// Closes what was not used in time; whether anything is left.
    fn sweep(&self, keep: Duration) -> bool {
        let mut left = 0;
        for shelf in &self.idle {
            let mut idle = lock(shelf);
            let before = idle.len();
            idle.retain(|one| one.since.elapsed() < keep && !one.link.sender.is_closed());
            left += idle.len();
            self.count.fetch_sub(before - idle.len(), Ordering::Relaxed);
        }
        left > 0
    }
}

fn here() -> usize {
    worker::number() % SHELVES
}

/// Closes what was not used in time, until nothing is kept.
async fn sweep(kept: Weak<Kept>, keep: Duration) {
    loop {
        tokio::time::sleep(keep).await;
        let Some(kept) = kept.upgrade() else { return };
        if !kept.sweep(keep) {
            kept.swept.store(false, Ordering::Release);
            // One that came in between has seen the mark still set.
            if kept.count.load(Ordering::Acquire) == 0 || kept.swept.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

fn lock(idle: &Mutex<Vec<Idle>>) -> MutexGuard<'_, Vec<Idle>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

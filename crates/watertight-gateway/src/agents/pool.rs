//! Connections kept for the next request, and requests of which it is known how much left.
//!
//! HTTP/1.1, one request at a time on a connection, so what the socket counts between taking a connection and losing it
//! is that request's. There is no limit on connections here: the engine's bulkhead is the limit.

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

/// Unused connections kept at most.
const MAX_IDLE: usize = 32;
/// How long a connection may take to become ready again after its last answer was read to the end.
const SETTLE: Duration = Duration::from_millis(50);

/// One class of requests to one origin.
#[derive(Debug)]
pub(super) struct Pool {
    origin: Origin,
    connect_timeout: Duration,
    keep: Duration,
    names: Arc<Semaphore>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    idle: Vec<Idle>,
    /// A task is at work that closes what is not used in time.
    swept: bool,
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
    kept: Arc<Mutex<Kept>>,
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
    pub(super) async fn send(&self, request: &Request<Full<Bytes>>) -> Result<(Response<Incoming>, Exchange), Error> {
        loop {
            let kept = self.take().await;
            let reused = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => self.open().await.map_err(Error::Connect)?,
            };
            let (written, read) = (link.socket.written(), link.socket.read());
            match link.sender.try_send_request(request.clone()).await {
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
        Ok(Link { sender, socket, driver: driver.abort_handle() })
    }

    async fn take(&self) -> Option<Link> {
        loop {
            let Idle { mut link, since } = lock(&self.kept).idle.pop()?;
            let fresh = since.elapsed() < self.keep && link.socket.is_quiet();
            if fresh && matches!(timeout(SETTLE, link.sender.ready()).await, Ok(Ok(()))) {
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
        let mut inside = lock(&kept);
        if inside.idle.len() < MAX_IDLE {
            inside.idle.push(Idle { link, since: Instant::now() });
        }
        if !std::mem::replace(&mut inside.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&kept), keep));
        }
    }
}

/// Closes what was not used in time, until nothing is kept.
async fn sweep(kept: Weak<Mutex<Kept>>, keep: Duration) {
    loop {
        tokio::time::sleep(keep).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut inside = lock(&kept);
        inside.idle.retain(|one| one.since.elapsed() < keep && !one.link.sender.is_closed());
        if inside.idle.is_empty() {
            inside.swept = false;
            return;
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

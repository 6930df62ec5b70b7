//! The accept loop: connections in, bounded, and out again when the gateway drains.
//!
//! One task per connection, HTTP/1.1 or HTTP/2 without TLS by what the client speaks first. A connection has a place
//! (or is told that there is none), a limited time for its headers, a limited header size, a small write buffer, and
//! is given up on when a write makes no progress. A panic in a request is that request's 500, and nobody else's.
//! Leaves out what requests mean, and TLS.

mod guard;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::body::Body;
use super::workers::{Place, Workers};
use crate::config::Server;
use guard::Guarded;

/// A connection counts as new for so long: a stop does not close it before its first request is read.
const FRESH: Duration = Duration::from_millis(250);

/// How much may wait in the kernel and in the HTTP layer for a slow reader: what a bounded queue of ours means nothing
/// without.
const UNSENT: u32 = 16 << 10;
/// How long new connections are still taken once we are ending.
const LINGER: Duration = Duration::from_millis(1_000);
/// Connections that are being told that there is no place. More are closed without a word.
const REFUSALS: usize = 64;

/// Answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers one. `peer`: who is at the other end of the connection, a proxy perhaps.
    fn call(&self, request: Request<Incoming>, peer: IpAddr) -> impl Future<Output = Response<Body>> + Send;
    /// What is answered to a request whose handling panicked.
    fn panicked(&self, uri: &Uri) -> Response<Body>;
}

/// Serves until `stop` and a moment longer, then lets what is open come to its end, all within `grace`, and cuts the rest.
pub async fn serve(
    listener: TcpListener,
    limits: Server,
    service: Arc<impl Service>,
    workers: Workers,
    stop: CancellationToken,
    grace: Duration,
) {
    let mut connections = JoinSet::new();
    accept(&listener, &limits, &service, &workers, &stop, &mut connections).await;
    let deadline = tokio::time::Instant::now() + grace;
    // Who looks whether we are ready usually connects anew, and is to hear no rather than nothing. Work is refused.
    let over = CancellationToken::new();
    let late = accept(&listener, &limits, &service, &workers, &over, &mut connections);
    let _always_over = timeout(LINGER.min(grace / 4), late).await;
    over.cancel();
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout_at(deadline, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "drain limit reached: cutting what is left");
        connections.shutdown().await;
    }
}

async fn accept<S: Service>(
    listener: &TcpListener,
    limits: &Server,
    service: &Arc<S>,
    workers: &Workers,
    stop: &CancellationToken,
    connections: &mut JoinSet<()>,
) {
    let (places, refusals) = (Arc::new(Semaphore::new(limits.max_connections)), Arc::new(Semaphore::new(REFUSALS)));
    let mut pause = Duration::ZERO;
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            // The set would grow with every connection that ever was.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) if is_of_one_connection(&e) => continue,
            Err(e) => {
                // Out of descriptors or memory: trying again at once would spin, and closing connections takes a while.
                pause = (pause * 2).clamp(Duration::from_millis(10), Duration::from_secs(1));
                tracing::warn!(error = %e, pause_ms = pause.as_millis(), "cannot accept connections");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(pause) => continue,
                }
            }
        };
        pause = Duration::ZERO;
        match places.clone().try_acquire_owned() {
            Ok(place) => {
                tune(&socket);
                let Some((worker, with)) = workers.place() else { continue };
                // The socket belongs to the runtime that it is registered with.
                let Ok(socket) = socket.into_std() else { continue };
                let limits = limits.clone();
                connections
                    .spawn_on(converse(socket, peer, limits, service.clone(), stop.clone(), (place, with)), worker);
            }
            Err(_) => {
                if let Ok(permit) = refusals.clone().try_acquire_owned() {
                    connections.spawn(turn_away(socket, permit));
                }
            }
        }
    }
}

fn is_of_one_connection(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

fn tune(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    // Each only makes things better: a kernel that lacks it still serves.
    let _slower = socket.set_tcp_nodelay(true);
    #[cfg(target_os = "linux")]
    let _less_bounded = socket.set_tcp_notsent_lowat(UNSENT);
}

/// The refusal of a connection that has no place. It has read nothing, so it knows nothing of the request.
async fn turn_away(mut socket: TcpStream, _permit: OwnedSemaphorePermit) {
    const BODY: &str = r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"the gateway has as many connections as it may; try again shortly","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"cell_overloaded","domain":"watertight","metadata":{"retryAfterMs":"1000"}}]}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let told = async {
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await?;
        // Closing with the request unread would reset the connection, and the answer could be lost with it.
        let mut scrap = [0; 4096];
        while socket.read(&mut scrap).await? > 0 {}
        io::Result::Ok(())
    };
    let _gone_already = timeout(Duration::from_secs(1), told).await;
}

async fn converse<S: Service>(
    socket: std::net::TcpStream,
    peer: SocketAddr,
    limits: Server,
    service: Arc<S>,
    stop: CancellationToken,
    _places: (OwnedSemaphorePermit, Place),
) {
    let Ok(socket) = TcpStream::from_std(socket) else { return };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.max_header_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_streams_per_connection)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(UNSENT as usize)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(limits.write_stall);
    let answer = service_fn(|request: Request<Incoming>| {
        let service = service.clone();
        async move {
            let uri = request.uri().clone();
            let answered = AssertUnwindSafe(service.call(request, peer.ip())).catch_unwind().await;
            io::Result::Ok(answered.unwrap_or_else(|_| {
                tracing::error!(reason = "internal", "a request panicked");
                service.panicked(&uri)
            }))
        }
    });
    // Its first request may be on its way: it is answered, where an idle connection is closed.
    let fresh = Instant::now() + FRESH;
    let io = Guarded::new(socket, limits.header_timeout, limits.write_stall);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), answer));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { stop.cancelled().await; sleep_until(fresh).await } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(%peer, error = %e, "connection ended");
    }
}

#[cfg(test)]
mod tests;

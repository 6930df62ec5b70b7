//! The accept loop over real sockets.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Answers by path.
#[derive(Default)]
struct Paths {
    calls: AtomicUsize,
}

impl Service for Paths {
    async fn call(&self, request: Request<Incoming>, _peer: IpAddr) -> Response<Body> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match request.uri().path() {
            "/panic" => panic!("on purpose"),
            "/slow" => sleep(Duration::from_millis(300)).await,
            "/never" => sleep(Duration::from_secs(600)).await,
            _ => {}
        }
        Response::new(Body::Full(bytes::Bytes::from_static(b"well")))
    }

    fn panicked(&self, _uri: &Uri) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    }
}

async fn started(limits: Server, grace: Duration) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let workers = Workers::start(2).unwrap();
    let task = tokio::spawn(serve(listener, limits, Arc::new(Paths::default()), workers, stop.clone(), grace));
    (addr, stop, task)
}

async fn ask(addr: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_panic_is_one_request_s_500() {
    let (addr, _stop, _task) = started(Server::default(), Duration::from_secs(1)).await;
    assert!(ask(addr, "/panic").await.starts_with("HTTP/1.1 500 "));
    assert!(ask(addr, "/").await.ends_with("well"));
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let limits = Server { max_connections: 1, ..Server::default() };
    let (addr, _stop, _task) = started(limits, Duration::from_secs(1)).await;
    let first = TcpStream::connect(addr).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    let refused = ask(addr, "/").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("cell_overloaded"), "{refused}");
    assert!(refused.contains("retry-after: 1"), "{refused}");
    drop(first);
    sleep(Duration::from_millis(50)).await;
    assert!(ask(addr, "/").await.ends_with("well"), "the place is free again");
}

#[tokio::test]
async fn what_is_under_way_is_answered_before_the_end() {
    let (addr, stop, task) = started(Server::default(), Duration::from_secs(5)).await;
    let slow = tokio::spawn(async move { ask(addr, "/slow").await });
    let idle = TcpStream::connect(addr).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    stop.cancel();
    assert!(slow.await.unwrap().ends_with("well"));
    drop(idle);
    timeout(Duration::from_secs(2), task).await.unwrap().unwrap();
    assert!(TcpStream::connect(addr).await.is_err(), "nothing listens any more");
}

#[tokio::test]
async fn the_drain_has_a_limit() {
    let (addr, stop, task) = started(Server::default(), Duration::from_millis(200)).await;
    let never = tokio::spawn(async move { ask(addr, "/never").await });
    sleep(Duration::from_millis(100)).await;
    stop.cancel();
    timeout(Duration::from_secs(2), task).await.unwrap().unwrap();
    assert_eq!(never.await.unwrap(), "", "cut");
}

#[tokio::test]
async fn a_client_that_says_nothing_loses_its_place() {
    let limits = Server { header_timeout: Duration::from_millis(200), ..Server::default() };
    let (addr, _stop, _task) = started(limits, Duration::from_secs(1)).await;
    for said in [&b""[..], b"PRI *", b"GET / HTTP/1.1\r\nhost: local"] {
        let mut socket = TcpStream::connect(addr).await.unwrap();
        socket.write_all(said).await.unwrap();
        let mut rest = Vec::new();
        timeout(Duration::from_secs(2), socket.read_to_end(&mut rest)).await.expect("closed").ok();
    }
}

#[tokio::test]
async fn headers_are_bounded() {
    let (addr, _stop, _task) = started(Server::default(), Duration::from_secs(1)).await;
    let answer = ask(addr, &format!("/{}", "x".repeat(40_000))).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{:.80}", answer);
}

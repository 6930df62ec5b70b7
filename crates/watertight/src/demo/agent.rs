//! A demo agent: a real A2A 1.0 server (JSON-RPC) for flights, hotels or exchange rates, in a process of its own.
//!
//! It answers after its latency, which can be changed while it runs, and it really stops a task that is cancelled.
//! It takes any number of calls at once: the walls are the gateway's business, not the agent's.
//!
//! Besides A2A it serves `POST /demo/latency {"ms":30000}`, `GET /demo/stats` and `GET /demo/log` for the demo itself.

mod book;
mod rpc;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::model::Agent;
use super::output;
use book::Book;

/// The largest request an agent reads.
const MAX_BODY: usize = 1024 * 1024;

pub(super) type Body = Either<Full<Bytes>, Channel<Bytes>>;

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) name: Agent,
    /// 0 takes any free port.
    pub(crate) port: u16,
    pub(crate) latency: Duration,
    /// End when stdin closes, which is how a child notices that its parent is gone.
    pub(crate) exit_with_stdin: bool,
}

/// Serves until SIGINT, SIGTERM or, if asked for, the end of stdin.
pub(crate) async fn run(options: Options) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    output::out(&format!("listening on {url}\n"));
    let book = Arc::new(Book::new(options.name, url, options.latency));
    serve(listener, book, stopped(options.exit_with_stdin)).await;
    Ok(())
}

async fn stopped(with_stdin: bool) {
    tokio::select! {
        () = super::stop_signal() => {}
        () = super::stdin_closed(), if with_stdin => {}
    }
}

async fn serve(listener: TcpListener, book: Arc<Book>, stop: impl Future<Output = ()>) {
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return,
        };
        let Ok((socket, _)) = accepted else {
            // Out of file descriptors, most likely: let some connections end first.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let _slower_without = socket.set_nodelay(true);
        let book = Arc::clone(&book);
        tokio::spawn(async move {
            let service = service_fn(move |request| route(Arc::clone(&book), request));
            let _peer_gone =
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn route(book: Arc<Book>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    if head.method == Method::GET {
        return Ok(match head.uri.path() {
            "/" | "/.well-known/agent-card.json" => card(&book),
            "/demo/stats" => reply(StatusCode::OK, &book.stats()),
            "/demo/log" => reply(StatusCode::OK, &book.log()),
            _ => reply(StatusCode::NOT_FOUND, &json!({"error": "not found"})),
        });
    }
    if head.method != Method::POST {
        return Ok(reply(StatusCode::METHOD_NOT_ALLOWED, &json!({"error": "method not allowed"})));
    }
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return Ok(reply(
            StatusCode::PAYLOAD_TOO_LARGE,
            &json!({"error": "the request did not arrive, or is over 1 MiB"}),
        ));
    };
    let body = body.to_bytes();
    if head.uri.path() == "/demo/latency" {
        return Ok(set_latency(&book, &body));
    }
    let version = head.headers.get("a2a-version").and_then(|v| v.to_str().ok());
    Ok(rpc::answer(&book, version, &body).await)
}

fn set_latency(book: &Book, body: &[u8]) -> Response<Body> {
    let ms = serde_json::from_slice::<Value>(body).ok().and_then(|v| v.get("ms").and_then(Value::as_u64));
    match ms {
        Some(ms) => {
            book.set_latency(Duration::from_millis(ms));
            reply(StatusCode::OK, &json!({"ms": ms}))
        }
        None => reply(StatusCode::BAD_REQUEST, &json!({"error": "expected {\"ms\": <milliseconds>}"})),
    }
}

fn card(book: &Book) -> Response<Body> {
    let agent = book.agent();
    let what = agent.what();
    let card = json!({
        "name": format!("{agent} (demo)"),
        "description": format!("Offers {what} for the travel demo."),
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [{"url": book.url(), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": false},
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["application/json"],
        "skills": [{
            "id": format!("{agent}.search"),
            "name": format!("Find {what}"),
            "description": format!("Finds {what}: a list of offers with id, price and currency."),
            "tags": ["travel", "demo"],
        }],
    });
    reply(StatusCode::OK, &card)
}

pub(super) fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;

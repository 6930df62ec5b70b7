//! An agent for tests: a socket, HTTP/1.1 with keep-alive, and an answer per method.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// What it does with a request.
#[derive(Clone)]
pub(super) enum Does {
    /// This is the result.
    Result(Value),
    /// This is the error.
    Error(i64, &'static str),
    /// These are the events; the stream is held open after them until somebody lets it go.
    Events(Vec<Value>, Option<Arc<Semaphore>>),
    /// Nothing, ever.
    Hang,
}

type Script = dyn Fn(&str, &Value) -> Does + Send + Sync;

pub(super) struct FakeAgent {
    pub(super) url: http::Uri,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeAgent {
    pub(super) async fn start(script: impl Fn(&str, &Value) -> Does + Send + Sync + 'static) -> FakeAgent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a2a", listener.local_addr().unwrap()).parse().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (script, log): (Arc<Script>, _) = (Arc::new(script), asked.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, script.clone(), log.clone()));
            }
        });
        FakeAgent { url, asked }
    }

    /// How often this method was called.
    pub(super) fn asked(&self, method: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == method).count()
    }
}

async fn serve(mut socket: TcpStream, script: Arc<Script>, log: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if socket.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let length: usize = length.unwrap_or(0);
        while buffer.len() < head + length {
            if socket.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        }
        let body: Vec<u8> = buffer.drain(..head + length).skip(head).collect();
        let Ok(request) = serde_json::from_slice::<Value>(&body) else {
            socket.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await.ok()?;
            continue;
        };
        let method = request["method"].as_str()?.to_owned();
        log.lock().unwrap().push(method.clone());
        let wrap = |result: Value| json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
        let whole = match script(&method, &request["params"]) {
            Does::Result(result) => wrap(result),
            Does::Error(code, message) => {
                json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": message } })
                    .to_string()
            }
            Does::Events(events, held) => {
                let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                socket.write_all(head).await.ok()?;
                for event in events {
                    socket.write_all(format!("data: {}\n\n", wrap(event)).as_bytes()).await.ok()?;
                }
                if let Some(held) = held {
                    held.acquire().await.ok()?.forget();
                }
                return None;
            }
            Does::Hang => std::future::pending().await,
        };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", whole.len());
        socket.write_all(head.as_bytes()).await.ok()?;
        socket.write_all(whole.as_bytes()).await.ok()?;
    }
}

/// A task as an agent has it.
pub(super) fn task(id: &str, state: &str) -> Value {
    json!({ "id": id, "contextId": "remote-ctx", "status": { "state": format!("TASK_STATE_{state}") } })
}

/// A completed task with this text as its result.
pub(super) fn done(id: &str, text: &str) -> Value {
    let mut task = task(id, "COMPLETED");
    task["artifacts"] = json!([{ "artifactId": "a", "parts": [{ "text": text }] }]);
    task
}

pub(super) fn status(id: &str, state: &str) -> Value {
    json!({ "statusUpdate": {
        "taskId": id, "contextId": "remote-ctx", "status": { "state": format!("TASK_STATE_{state}") },
    } })
}

pub(super) fn chunk(id: &str, text: &str) -> Value {
    json!({ "artifactUpdate": {
        "taskId": id, "contextId": "remote-ctx", "append": true,
        "artifact": { "artifactId": "a", "parts": [{ "text": text }] },
    } })
}

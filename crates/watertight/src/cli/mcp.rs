//! `watertight mcp`: the gateway's tools over standard input and output, for clients of the Model Context Protocol that
//! start their servers themselves.
//!
//! A pipe, and nothing more: each line is a request to the gateway's `/mcp`, each answer a line. Requests run beside each
//! other; one that is canceled is dropped, and what it began goes on. Nothing but the protocol is written to standard
//! output.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use watertight_a2a::json::{Json, Limits};
use watertight_a2a::said::{self, Said};

use super::args::McpArgs;
use super::client::Client;
use super::exit::{Code, Failure};

/// Requests that are worked on at the same time. One more is refused: who waited for room here could not be asked
/// whether it lives, nor told that something is canceled.
const MAX_AT_ONCE: usize = 1_024;

/// The longest line.
const MAX_LINE: usize = 16 << 20;

/// Where a message says the version that it is in by itself.
const VERSION_IN_META: &str = "io.modelcontextprotocol/protocolVersion";

pub(super) async fn run(args: McpArgs) -> Result<Code, Failure> {
    let pipe =
        Arc::new(Pipe { client: Client::new(&args.gateway)?, version: Mutex::default(), running: Mutex::default() });
    let (answers, mut written) = mpsc::channel::<Vec<u8>>(MAX_AT_ONCE);
    let writer = tokio::spawn(async move {
        let mut out = tokio::io::stdout();
        while let Some(mut line) = written.recv().await {
            line.push(b'\n');
            if out.write_all(&line).await.is_err() || out.flush().await.is_err() {
                return;
            }
        }
    });
    let (mut lines, room) = (BufReader::new(tokio::io::stdin()), Arc::new(Semaphore::new(MAX_AT_ONCE)));
    while let Some(line) = next(&mut lines).await? {
        let message: Value = match serde_json::from_slice(&line) {
            Ok(message) => message,
            Err(error) => {
                let told =
                    answers.send(error_line(&Value::Null, -32700, &format!("this line is no JSON: {error}"))).await;
                if told.is_err() {
                    break;
                }
                continue;
            }
        };
        if message["method"] == "notifications/cancelled" {
            pipe.cancel(&message["params"]["requestId"]);
            continue;
        }
        // The first one tells the version that the others are in.
        let alone = message["method"] == "initialize";
        let Ok(permit) = room.clone().try_acquire_owned() else {
            let text = format!("{MAX_AT_ONCE} requests are being worked on already");
            if message.get("id").is_some() && answers.send(error_line(&message["id"], -32000, &text)).await.is_err() {
                break;
            }
            continue;
        };
        let (inside, answers) = (pipe.clone(), answers.clone());
        let id = message["id"].to_string();
        let key = id.clone();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _ = gone.await;
            if let Some(answer) = inside.ask(&message, line).await {
                let _ = answers.send(answer).await;
            }
            inside.over(&key);
            drop(permit);
        });
        pipe.begun(id, task.abort_handle());
        let _ = go.send(());
        if alone {
            let _ = task.await;
        }
    }
    drop(answers);
    let _ = writer.await;
    Ok(Code::Ok)
}

/// The next line that is not empty; `None` at the end.
async fn next(lines: &mut BufReader<tokio::io::Stdin>) -> Result<Option<Vec<u8>>, Failure> {
    loop {
        let mut line = Vec::new();
        let mut limited = tokio::io::AsyncReadExt::take(&mut *lines, MAX_LINE as u64);
        let read = limited.read_until(b'\n', &mut line).await;
        match read.map_err(|error| Failure::new(Code::Failed, format!("standard input: {error}")))? {
            0 => return Ok(None),
            MAX_LINE => return Err(Failure::new(Code::Failed, format!("a line is longer than {MAX_LINE} bytes"))),
            _ if line.trim_ascii().is_empty() => {}
            _ => return Ok(Some(line)),
        }
    }
}

struct Pipe {
    client: Client,
    /// As it was agreed on.
    version: Mutex<Option<String>>,
    running: Mutex<BTreeMap<String, AbortHandle>>,
}

impl Pipe {
    fn begun(&self, id: String, task: AbortHandle) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, task);
    }

    fn over(&self, id: &str) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn cancel(&self, id: &Value) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.to_string());
        if let Some(task) = running {
            task.abort();
        }
    }

    /// What is to be written; nothing, where nothing was asked.
    async fn ask(&self, message: &Value, line: Vec<u8>) -> Option<Vec<u8>> {
        let method = message["method"].as_str().unwrap_or("");
        let own = message["params"]["_meta"][VERSION_IN_META].as_str().map(str::to_owned);
        let version = own.or_else(|| self.version.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let name = message["params"]["name"].as_str();
        let headers = [("mcp-protocol-version", version.as_deref()), ("mcp-method", Some(method)), ("mcp-name", name)];
        let is_asked = message.get("id").is_some() && message.get("method").is_some();
        match self.client.pipe("/mcp", &headers, line).await {
            Ok((_, body)) if body.trim_ascii().is_empty() => None,
            Ok((_, body)) if serde_json::from_slice::<Value>(&body).is_ok_and(|answer| answer["jsonrpc"] == "2.0") => {
                // A message is one line here, however it was laid out on its way.
                let one_line = |byte: u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte };
                let body: Vec<u8> = body.into_iter().map(one_line).collect();
                if method == "initialize" {
                    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let agreed = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
                    *self.version.lock().unwrap_or_else(PoisonError::into_inner) = agreed;
                }
                Some(body)
            }
            Ok((status, body)) if is_asked => {
                let said = refusal(&body).unwrap_or_else(|| watertight_a2a::text::excerpt(&body, 200));
                Some(error_line(&message["id"], -32000, &format!("the gateway answers HTTP {status}: {said}")))
            }
            Err(failure) if is_asked => Some(error_line(&message["id"], -32000, &failure.text)),
            Ok(_) | Err(_) => None,
        }
    }
}

/// What an HTTP answer says of why it is none.
fn refusal(body: &[u8]) -> Option<String> {
    let json = Json::parse(body.to_vec(), &Limits::default()).ok()?;
    match said::reply(json.value()) {
        Said::Failed(why) => Some(why.text()),
        Said::Answer(_) | Said::Asks(_) | Said::Accepted(_) | Said::Nothing => None,
    }
}

fn error_line(id: &Value, code: i32, text: &str) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}).to_string().into_bytes()
}

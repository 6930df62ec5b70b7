//! A small A2A client, for the commands that talk to a running gateway.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, header};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use watertight_a2a::sse::{Item, Limits, Reader};
use watertight_policy::reason::{Kind, Reason};

use super::args::Gateway;
use super::exit::{Code, Failure};
use super::output::safe_line;

/// The longest answer that is read.
const MAX_ANSWER: usize = 128 << 20;

pub(super) struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
    base: String,
    token: Option<String>,
}

/// No stream of the gateway is silent for so long.
const SILENCE: Duration = Duration::from_secs(30);

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamEnd {
    /// As the gateway wanted, or as its reader did.
    Whole,
    /// The connection broke, or fell silent.
    Broken,
}

/// A JSON-RPC error, read.
#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: i64,
    message: String,
    reason: String,
    pub(super) task: Option<String>,
    /// How many milliseconds to leave it alone.
    again: Option<u64>,
    raw: Value,
}

impl RpcError {
    fn read(error: &Value) -> RpcError {
        let infos: Vec<&Value> = error["data"].as_array().into_iter().flatten().collect();
        let ours = infos.iter().find(|info| info["domain"] == "watertight");
        let info = ours.or(infos.first()).map_or(&Value::Null, |info| *info);
        let said = error["message"].as_str().unwrap_or("");
        // What an agent says itself does not say which one it is.
        let message = match info["metadata"]["agent"].as_str().map(|agent| format!("agent {agent}: ")) {
            Some(agent) if info["domain"] == "watertight" && !said.starts_with(&agent) => agent + said,
            Some(_) | None => said.to_owned(),
        };
        RpcError {
            code: error["code"].as_i64().unwrap_or(0),
            message,
            reason: info["reason"].as_str().unwrap_or("").to_owned(),
            task: info["metadata"]["taskId"].as_str().map(str::to_owned),
            again: info["metadata"]["retryAfterMs"].as_str().and_then(|ms| ms.parse().ok()),
            raw: error.clone(),
        }
    }

    /// As a command ends with it. A task that failed is something else than a refusal, and a line that was cut is
    /// neither: the task goes on.
    pub(super) fn failure(&self) -> Failure {
        let code = match Reason::from_word(&self.reason) {
            Some(Reason::ShuttingDown | Reason::ReaderLagged | Reason::StoreUnavailable) if self.task.is_some() => {
                Code::Unfinished
            }
            Some(reason) if reason.kind() == Kind::Failure => Code::Failed,
            Some(_) | None => Code::Refused,
        };
        let mut text = safe_line(&self.message);
        match (code, self.task.as_deref(), self.again) {
            (Code::Unfinished, Some(task), _) => text += &format!("; see watertight tasks show {}", safe_line(task)),
            (_, _, Some(ms)) => text += &format!(" Try again in {} s.", ms.div_ceil(1_000)),
            _ => {}
        }
        if self.reason == Reason::Unauthenticated.as_str() {
            text += "; --token-file names the file that holds it";
        }
        let reason = if self.reason.is_empty() { String::new() } else { format!(" [{}]", safe_line(&self.reason)) };
        Failure::new(code, format!("{text}{reason} ({})", self.code))
    }

    /// The line was cut, and the task goes on: join again.
    pub(super) fn is_resumable(&self) -> bool {
        self.failure().code == Code::Unfinished
    }

    pub(super) fn raw(&self) -> &Value {
        &self.raw
    }
}

/// What came of a call.
pub(super) type Outcome = Result<Value, RpcError>;

impl Client {
    pub(super) fn new(gateway: &Gateway) -> Result<Client, Failure> {
        Client::with_token(gateway, gateway.token_file.as_deref())
    }

    /// The same with what another file holds.
    pub(super) fn with_token(gateway: &Gateway, file: Option<&Path>) -> Result<Client, Failure> {
        let base = gateway.url.clone().or_else(url_from_environment);
        let base = base.unwrap_or_else(|| "http://127.0.0.1:7420".to_owned()).trim_end_matches('/').to_owned();
        if !base.starts_with("http://") {
            let text = match base.split_once("://") {
                Some(("https", _)) => "TLS is not spoken by this command: name the gateway's own address, with http://",
                Some(_) => "the gateway's URL begins with http://",
                None => return Err(Failure::usage(format!("{base}: a URL is meant, such as http://{base}"))),
            };
            return Err(Failure::usage(format!("{base}: {text}")));
        }
        let token = file.map(read_token).transpose()?;
        Ok(Client { http: Http::builder(TokioExecutor::new()).build_http(), base, token })
    }

    /// One JSON-RPC call.
    pub(super) async fn call(&self, agent: &str, method: &str, params: &Value) -> Result<Outcome, Failure> {
        let response = self.post(agent, method, params, "application/json", None).await?;
        outcome(&self.json(response).await?)
    }

    /// One JSON-RPC call whose answer is a stream: each event is given to `each`, with its id, until it says that it
    /// has enough. `after`: the id of the last event that was seen before. The gateway gives a sign of life every few
    /// seconds; one that is silent for long is gone, whatever the network says.
    pub(super) async fn stream(
        &self,
        agent: &str,
        method: &str,
        params: &Value,
        after: Option<&str>,
        mut each: impl FnMut(Option<&str>, Outcome) -> bool,
    ) -> Result<StreamEnd, Failure> {
        let response = self.post(agent, method, params, "text/event-stream", after).await?;
        let is_stream = response.headers().get(header::CONTENT_TYPE);
        if !is_stream.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream")) {
            each(None, outcome(&self.json(response).await?)?);
            return Ok(StreamEnd::Whole);
        }
        let (mut body, mut reader) = (response.into_body(), Reader::new(Limits::default()));
        loop {
            let frame = match tokio::time::timeout(SILENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(StreamEnd::Whole),
                Ok(Some(Err(_))) | Err(_) => return Ok(StreamEnd::Broken),
            };
            let mut items = Vec::new();
            let fed = reader.feed(frame.data_ref().map_or(&[][..], |data| data), &mut items);
            for item in items {
                let Item::Event(event) = item else { continue };
                let value: Value = serde_json::from_slice(&event.data).map_err(|e| self.nonsense(&e))?;
                if !each(event.id.as_deref(), outcome(&value)?) {
                    return Ok(StreamEnd::Whole);
                }
            }
            fed.map_err(|e| self.nonsense(&e))?;
        }
    }

    /// The names of all agents.
    pub(super) async fn agents(&self) -> Result<Vec<String>, Failure> {
        let body = self.api(Method::GET, "/v1/agents").await?;
        let agents = body["agents"].as_array().into_iter().flatten();
        Ok(agents.filter_map(|agent| agent["agent"].as_str().map(str::to_owned)).collect())
    }

    /// One call of the gateway's own API.
    pub(super) async fn api(&self, method: Method, path: &str) -> Result<Value, Failure> {
        let body = (method != Method::GET).then(String::new);
        self.api_with(method, path, body).await
    }

    /// The same with a body.
    pub(super) async fn api_with(&self, method: Method, path: &str, body: Option<String>) -> Result<Value, Failure> {
        let request = self.request(method, path, body, "application/json")?;
        let response = self.http.request(request).await.map_err(|e| self.unreachable(&e))?;
        let status = response.status();
        let body = self.json(response).await?;
        if status.is_success() {
            return Ok(body);
        }
        let error = &body["error"];
        let message = safe_line(error["message"].as_str().unwrap_or(status.as_str()));
        let reason = error["details"][0]["reason"].as_str().unwrap_or("");
        let help =
            if reason == Reason::Unauthenticated.as_str() { "; --token-file names the file that holds it" } else { "" };
        let reason = if reason.is_empty() { String::new() } else { format!(" [{}]", safe_line(reason)) };
        Err(Failure::new(Code::Refused, format!("{message}{help}{reason} (HTTP {})", status.as_u16())))
    }

    /// A body as it is, and what comes back for it.
    pub(super) async fn pipe(
        &self,
        path: &str,
        headers: &[(&'static str, Option<&str>)],
        body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), Failure> {
        let mut request =
            self.request(Method::POST, path, Some(String::new()), "application/json, text/event-stream")?;
        for (name, value) in headers {
            let value = value.and_then(|value| HeaderValue::from_str(value).ok());
            request.headers_mut().extend(value.map(|value| (header::HeaderName::from_static(name), value)));
        }
        *request.body_mut() = Full::new(Bytes::from(body));
        let response = self.http.request(request).await.map_err(|e| self.unreachable(&e))?;
        let status = response.status().as_u16();
        let body = http_body_util::Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        Ok((status, body.map_err(|e| self.unreachable(&*e))?.to_bytes().to_vec()))
    }

    async fn post(
        &self,
        agent: &str,
        method: &str,
        params: &Value,
        accept: &str,
        after: Option<&str>,
    ) -> Result<Response<Incoming>, Failure> {
        is_name(agent)?;
        let body = json!({"jsonrpc": "2.0", "id": "watertight", "method": method, "params": params}).to_string();
        let mut request = self.request(Method::POST, &format!("/agents/{agent}"), Some(body), accept)?;
        if let Some(after) = after.and_then(|id| HeaderValue::from_str(id).ok()) {
            request.headers_mut().insert("last-event-id", after);
        }
        self.http.request(request).await.map_err(|e| self.unreachable(&e))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        accept: &str,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("a2a-version", "1.0")
            .header(header::ACCEPT, accept);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        request.body(body).map_err(|e| Failure::usage(format!("{}: {e}", safe_line(&self.base))))
    }

    async fn json(&self, response: Response<Incoming>) -> Result<Value, Failure> {
        let status = response.status();
        let body = http_body_util::Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|e| self.unreachable(&*e))?.to_bytes();
        serde_json::from_slice(&body).map_err(|e| {
            let said = watertight_a2a::text::excerpt(&body, 200);
            Failure::new(Code::Unreachable, format!("{} is no gateway: HTTP {status}, {e}: {said}", self.base))
        })
    }

    /// The cause is the last of a chain, and the only one that says something to a person.
    fn unreachable(&self, e: &(dyn std::error::Error + 'static)) -> Failure {
        let mut cause = e;
        while let Some(e) = cause.source() {
            cause = e;
        }
        let refused = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let help = match refused {
            Some(std::io::ErrorKind::ConnectionRefused) => {
                "; start it with watertight serve, or say with --url where it is"
            }
            Some(_) | None => "",
        };
        let text = format!("the gateway cannot be reached at {}: {}{help}", self.base, safe_line(&cause.to_string()));
        Failure::new(Code::Unreachable, text)
    }

    fn nonsense(&self, e: &dyn std::error::Error) -> Failure {
        Failure::new(Code::Unreachable, format!("{} answers with what is no A2A: {e}", self.base))
    }
}

/// A value in a query.
pub(super) fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// What may stand in a path as it is.
pub(super) fn is_name(agent: &str) -> Result<(), Failure> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if agent.is_empty() || !agent.bytes().all(plain) {
        return Err(Failure::usage(format!("`{}` is no agent's name", safe_line(agent))));
    }
    Ok(())
}

fn outcome(body: &Value) -> Result<Outcome, Failure> {
    match (body.get("result"), body.get("error")) {
        (Some(result), _) => Ok(Ok(result.clone())),
        (None, Some(error)) => Ok(Err(RpcError::read(error))),
        (None, None) => Err(Failure::new(Code::Unreachable, "the answer is no JSON-RPC response")),
    }
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let wrong = |what: &str| Failure::usage(format!("the file {}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|e| wrong(&e.to_string()))?;
    match text.trim() {
        "" => Err(wrong("it is empty")),
        token if token.bytes().any(|b| !b.is_ascii_graphic()) => Err(wrong("it holds more than one token")),
        token => Ok(token.to_owned()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
fn url_from_environment() -> Option<String> {
    std::env::var("WATERTIGHT_URL").ok().filter(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: &str, extra: &Value) -> Failure {
        let mut metadata = json!({"agent": "fx"});
        for (name, value) in extra.as_object().into_iter().flatten() {
            metadata[name] = value.clone();
        }
        let info = json!({"domain": "watertight", "reason": reason, "metadata": metadata});
        RpcError::read(&json!({"code": -32000, "message": "agent fx: so.", "data": [info]})).failure()
    }

    #[test]
    fn a_refusal_a_failure_and_a_cut_line_end_differently() {
        let full = failure("bulkhead_full", &json!({"retryAfterMs": "1500"}));
        assert_eq!(
            (full.code, full.text.as_str()),
            (Code::Refused, "agent fx: so. Try again in 2 s. [bulkhead_full] (-32000)")
        );
        assert_eq!(failure("agent_reset", &json!({"taskId": "1"})).code, Code::Failed);
        for cut in ["shutting_down", "reader_lagged", "store_unavailable"] {
            let cut = failure(cut, &json!({"taskId": "17"}));
            assert!(cut.code == Code::Unfinished && cut.text.contains("watertight tasks show 17"), "{cut:?}");
        }
        assert_eq!(failure("shutting_down", &json!({})).code, Code::Refused);
        assert_eq!(failure("message_id_conflict", &json!({"taskId": "1"})).code, Code::Refused);
        let ended =
            RpcError::read(&json!({"code": -32004, "message": "over", "data": [{"reason": "UNSUPPORTED_OPERATION",
            "domain": "a2a-protocol.org", "metadata": {"taskId": "1"}}]}));
        assert_eq!(ended.failure().code, Code::Refused);
        assert!(failure("unauthenticated", &json!({})).text.contains("--token-file"));
        let its_own = json!({"code": -32603, "message": "no such room", "data": [{"domain": "watertight",
            "reason": "agent_error", "metadata": {"agent": "fx"}}]});
        assert_eq!(RpcError::read(&its_own).failure().text, "agent fx: no such room [agent_error] (-32603)");
    }
}

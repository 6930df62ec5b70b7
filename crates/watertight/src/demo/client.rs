//! The demo's HTTP client: one of these per agent, so that no two agents share connections.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, header};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// The largest answer that is read.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Client {
    inner: legacy::Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Client {
    pub(super) fn new(url: impl Into<String>) -> Client {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(2)));
        Client { inner: legacy::Client::builder(TokioExecutor::new()).build(connector), url: url.into() }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Bytes, String> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Posts JSON and reads the answer as JSON, whatever its status: an error body says more than the number.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let answer = self.ask(Method::POST, path, Bytes::from(body.to_string())).await?;
        serde_json::from_slice(&answer).map_err(|_| "the answer is not JSON".to_owned())
    }

    #[cfg(test)]
    pub(super) async fn post_text(&self, path: &str, body: &Value) -> Result<String, String> {
        let answer = self.ask(Method::POST, path, Bytes::from(body.to_string())).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, String> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header(header::CONTENT_TYPE, "application/json")
            .header("a2a-version", "1.0")
            .body(Full::new(body))
            .map_err(|e| e.to_string())?;
        let response = self.inner.request(request).await.map_err(|e| chain(&e))?;
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|e| chain(&*e))?;
        Ok(body.to_bytes())
    }
}

/// An error with its causes: hyper's own text only says in which step it happened.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

//! Waiting for a blocking answer: what becomes of it meanwhile, and what to do after Ctrl-C.
//!
//! The answer comes at the end, and says the task's id only then. Until then the gateway is asked by the message's id,
//! which reads and never sends: nothing can be done twice by it.

use std::future::Future;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;

use super::goes_on;
use crate::cli::client::{Client, encoded};
use crate::cli::exit::Failure;
use crate::cli::output::{self, safe_line};
use crate::cli::table::duration;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whose answer is waited for.
pub(super) struct Waiting<'a> {
    pub(super) client: &'a Client,
    pub(super) agent: &'a str,
    pub(super) message_id: &'a str,
    /// A line that says how it stands, on a terminal.
    pub(super) shows: bool,
}

impl Waiting<'_> {
    /// The answer; `None` after Ctrl-C.
    pub(super) async fn until<T>(
        &self,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Option<T>, Failure> {
        let mut answer = std::pin::pin!(answer);
        let watch = async {
            match self.shows {
                true => self.show().await,
                false => std::future::pending().await,
            }
        };
        let mut watch = std::pin::pin!(watch);
        tokio::select! {
            answer = &mut answer => {
                self.clear();
                return answer.map(Some);
            }
            () = &mut watch => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        self.clear();
        // Who wants to stop does not want to wait.
        let row = tokio::time::timeout(LOOK_EVERY, self.look()).await.ok().flatten();
        goes_on(row.as_ref().and_then(|row| row["task"].as_str()));
        Ok(None)
    }

    async fn show(&self) {
        let begun = now();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let row = self.look().await.unwrap_or(Value::Null);
            let state = row["state"].as_str().unwrap_or("");
            let state = safe_line(state.strip_prefix("TASK_STATE_").unwrap_or(state));
            let said = match row["task"].as_str() {
                Some(task) => format!("task {} {state}", safe_line(task)),
                None => "not accepted yet".to_owned(),
            };
            let waits = row["waitingOn"].as_str().map(|why| format!(", waits: {}", safe_line(why))).unwrap_or_default();
            let elapsed = duration(begun.elapsed().as_millis() as f64);
            output::progress(&format!("{said}{waits}, {elapsed}"));
        }
    }

    async fn look(&self) -> Option<Value> {
        let path = format!("/v1/delegations?agent={}&messageId={}", encoded(self.agent), encoded(self.message_id));
        let page = self.client.api(Method::GET, &path).await.ok()?;
        page["delegations"].get(0).cloned()
    }

    fn clear(&self) {
        if self.shows {
            output::progress("");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long somebody has been waiting at this terminal")]
fn now() -> Instant {
    Instant::now()
}

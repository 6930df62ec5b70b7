//! The wake hook of an agent that is not always there: a URL that is posted to, or a command that is run, when a message
//! waits and nobody answers.
//!
//! One at a time per agent, each with a limit of time and of what is kept of its words. What it says is told to people;
//! whether the agent is awake is only ever found out by trying. A command is run as it is written, without a shell, with an
//! environment of its own, and killed with its group when its time is over.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;
use watertight_a2a::text::excerpt;
use watertight_engine::ids::AgentId;
use watertight_policy::time::{Span, Time};

use crate::agents;
use crate::driver::shared::Shared;

/// Bytes that are kept of what a command says on stderr.
const MAX_SAID: usize = 1_024;

/// Where a command looks for others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How an agent is woken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Posted to.
    pub url: Option<Uri>,
    /// Run; the first one is the program. Empty: none is.
    pub command: Vec<String>,
    /// How long each may take.
    pub timeout: Duration,
    /// Between two calls, at least.
    pub cooldown: Span,
}

impl Default for Hook {
    /// None; ten seconds, and half a minute.
    fn default() -> Hook {
        Hook { url: None, command: Vec::new(), timeout: Duration::from_secs(10), cooldown: Span::from_secs(30) }
    }
}

impl Hook {
    /// There is something to call.
    pub fn is_some(&self) -> bool {
        self.url.is_some() || !self.command.is_empty()
    }
}

/// How it went the last time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Woken {
    /// When it ended.
    pub at: Time,
    /// Every part of the hook said yes.
    pub ok: bool,
    /// What there is to say about it.
    pub said: String,
}

#[derive(Default)]
pub(crate) struct Wakes(Mutex<BTreeMap<AgentId, One>>);

#[derive(Default)]
struct One {
    running: bool,
    last: Option<Woken>,
}

impl Wakes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, One>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn last(&self, agent: &AgentId) -> Option<Woken> {
        self.lock().get(agent)?.last.clone()
    }
}

/// Calls an agent's hook, unless that is under way.
pub(crate) fn call(shared: &Arc<Shared>, agent: AgentId, waiting: u32) {
    let Some(hook) = shared.known(&agent).and_then(|known| known.spec.wake.clone()) else { return };
    if std::mem::replace(&mut shared.wakes.lock().entry(agent.clone()).or_default().running, true) {
        return;
    }
    let running = Running { shared: shared.clone(), agent };
    shared.runtime.spawn(async move {
        let agent = &running.agent;
        let done = carry_out(&hook, agent, waiting).await;
        let (ok, said) = match done {
            Ok(said) => (true, said),
            Err(why) => (false, why),
        };
        match ok {
            true => tracing::info!(%agent, waiting, said, "nobody answered there; its wake hook was called"),
            false => tracing::warn!(%agent, waiting, why = said, "nobody answered there, and its wake hook failed"),
        }
        running.shared.metrics.woken(agent, ok);
        let last = Some(Woken { at: running.shared.clock.now(), ok, said });
        running.shared.wakes.lock().entry(agent.clone()).or_default().last = last;
    });
}

/// However it ends, the next one may begin.
struct Running {
    shared: Arc<Shared>,
    agent: AgentId,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(one) = self.shared.wakes.lock().get_mut(&self.agent) {
            one.running = false;
        }
    }
}

async fn carry_out(hook: &Hook, agent: &AgentId, waiting: u32) -> Result<String, String> {
    let mut said = Vec::new();
    if let Some(url) = &hook.url {
        let body = json!({"agent": agent.as_str(), "waiting": waiting}).to_string();
        let status = agents::post(url, body, hook.timeout).await.map_err(|why| format!("its URL: {why}"))?;
        match status {
            200..=299 => said.push(format!("its URL answered {status}")),
            _ => return Err(format!("its URL answered {status}")),
        }
    }
    if let Some((program, arguments)) = hook.command.split_first() {
        let done = run(program, arguments, agent, waiting, hook.timeout).await;
        said.push(done.map_err(|why| format!("its command: {why}"))?);
    }
    Ok(said.join("; "))
}

async fn run(
    program: &str,
    arguments: &[String],
    agent: &AgentId,
    waiting: u32,
    limit: Duration,
) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH);
    command.env("WATERTIGHT_AGENT", agent.as_str()).env("WATERTIGHT_WAITING", waiting.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.kill_on_drop(true).spawn().map_err(|e| e.to_string())?;
    let (id, mut stderr, mut said) = (child.id(), child.stderr.take(), Vec::new());
    // What is above the limit is read and dropped, so that it does not stand still over it.
    let listen = async {
        let mut buffer = [0; 1_024];
        while let Some(from) = &mut stderr {
            match from.read(&mut buffer).await {
                Ok(n @ 1..) => said.extend(buffer.iter().take(n.min(MAX_SAID - said.len()))),
                Ok(0) | Err(_) => break,
            }
        }
        // Whoever it left behind may still hold the other end: its own end is what counts.
        std::future::pending::<()>().await;
    };
    let ended = timeout(limit, async {
        tokio::select! {
            ended = child.wait() => Some(ended),
            () = listen => None,
        }
    })
    .await;
    let text = |said: &[u8]| match said {
        [] => String::new(),
        said => format!(": {}", excerpt(said, 200)),
    };
    match ended {
        Ok(Some(Ok(status))) if status.success() => Ok("its command ended well".to_owned()),
        Ok(Some(Ok(status))) => Err(format!("{status}{}", text(&said))),
        Ok(Some(Err(e))) => Err(e.to_string()),
        Ok(None) | Err(_) => {
            kill_group(id);
            let _ = child.wait().await;
            Err(format!("it took longer than {} s and was killed{}", limit.as_secs_f64(), text(&said)))
        }
    }
}

/// Everything that the command started, and has not let go.
#[cfg(unix)]
fn kill_group(id: Option<u32>) {
    let group = id.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill_group(_id: Option<u32>) {}

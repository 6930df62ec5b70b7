//! The demo's child processes: started, watched, and always ended, by their own ids.
//!
//! A child dies in one of four ways: `end` asks with SIGTERM and then insists; dropping the runtime (a panic, an error)
//! kills; and if this process vanishes, the child's stdin closes, which it was told to take as the end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::Error;

/// How long a child may take to say where it listens.
const START: Duration = Duration::from_secs(20);
/// How long a child may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

pub(super) struct Children {
    exe: PathBuf,
    /// Where each child's stderr goes.
    logs: PathBuf,
    keepers: JoinSet<()>,
    stop: watch::Sender<bool>,
    died: (mpsc::Sender<Error>, mpsc::Receiver<Error>),
}

impl Children {
    pub(super) fn new(exe: PathBuf, logs: &Path) -> Children {
        let (stop, _) = watch::channel(false);
        Children { exe, logs: logs.to_owned(), keepers: JoinSet::new(), stop, died: mpsc::channel(8) }
    }

    /// Starts this program with other arguments and returns the URL that it says it listens on.
    pub(super) async fn start(&mut self, name: &str, arguments: &[&str]) -> Result<String, Error> {
        let log = self.logs.join(format!("{name}.log"));
        let cannot = |why: String| Error::Start { child: name.to_owned(), why };
        let stderr = File::create(&log).map_err(|e| cannot(e.to_string()))?;
        let mut child = Command::new(&self.exe)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0) // Ctrl-C is for the demo, which then ends its children in order.
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| cannot(e.to_string()))?;
        let url = tokio::time::timeout(START, first_url(&mut child)).await;
        let Ok(Some(url)) = url else {
            let why = if url.is_ok() { "it ended at once" } else { "it did not say where it listens" };
            return Err(cannot(format!("{why}{}", tail(&log))));
        };
        self.keepers.spawn(keep(name.to_owned(), child, log, self.stop.subscribe(), self.died.0.clone()));
        Ok(url)
    }

    /// Resolves when a child has ended that nobody asked to end.
    pub(super) async fn died(&mut self) -> Error {
        match self.died.1.recv().await {
            Some(error) => error,
            // Unreachable while `self` holds a sender; waiting is the harmless answer.
            None => std::future::pending().await,
        }
    }

    /// Ends all children and waits for it: a few seconds at most.
    pub(super) async fn end(mut self) {
        self.stop.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
    }
}

async fn first_url(child: &mut Child) -> Option<String> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some((_, url)) = line.split_once("listening on ") {
            let url = url.split_whitespace().next()?.trim_end_matches('/').to_owned();
            // Whatever else the child prints must not fill the pipe.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Some(url);
        }
    }
    None
}

async fn keep(
    name: String,
    mut child: Child,
    log: PathBuf,
    mut stop: watch::Receiver<bool>,
    died: mpsc::Sender<Error>,
) {
    // Held here, because waiting for a child closes the stdin that it still has.
    let lifeline = child.stdin.take();
    let ended = tokio::select! {
        biased;
        () = asked(&mut stop) => None,
        status = child.wait() => Some(status),
    };
    if let Some(status) = ended {
        let status = status.map_or_else(|e| e.to_string(), |s| s.to_string());
        let _demo_over = died.send(Error::Died { child: name, why: format!("{status}{}", tail(&log)) }).await;
        return;
    }
    terminate(&child);
    drop(lifeline);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _already_gone = child.kill().await;
    }
}

async fn asked(stop: &mut watch::Receiver<bool>) {
    let _asked_or_gone = stop.wait_for(|stop| *stop).await;
}

/// SIGTERM to this child alone. Its id cannot belong to another process: it has not been waited for.
fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _already_gone = kill_process(pid, Signal::TERM);
    }
}

/// The last lines of a child's stderr, for an error message.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].iter().fold(String::new(), |all, line| format!("{all}\n  {line}"))
}

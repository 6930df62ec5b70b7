//! The official Python SDK on both sides of the gateway: a client made with it, talking to an agent made with it.
//!
//! The two are in `tests/sdk`; each check prints one line of JSON, so that a failure says which promise to a stranger was broken.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::gateway::Config;

/// Everything that the client checks. A check that is missing from its output has not run.
const CHECKS: &[&str] = &[
    "card",
    "send",
    "message",
    "stream",
    "get",
    "list",
    "return_immediately",
    "cancel",
    "subscribe",
    "input_required",
    "failed",
    "data_part",
    "unknown_task",
    "terminal_task",
];

#[test]
fn the_official_python_sdk_works_through_the_gateway() {
    let mut agent = Agent::start();
    let gateway = Config::new().agent("python", &agent.url, &[]).start();
    let verdicts = client(&format!("http://{}/agents/python", gateway.addr()));
    agent.assert_alive();
    judge(&verdicts);
}

/// The pair without a gateway between them, so that a failure above is the gateway's.
#[test]
fn the_official_python_sdk_works_with_itself() {
    let agent = Agent::start();
    judge(&client(&agent.url));
}

#[track_caller]
fn judge(verdicts: &[Value]) {
    let failed: Vec<String> = verdicts.iter().filter(|v| v["ok"] != true).map(Value::to_string).collect();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    let ran: Vec<&str> = verdicts.iter().filter_map(|v| v["check"].as_str()).collect();
    assert_eq!(ran, CHECKS);
}

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk")
}

fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv/bin/python");
    assert!(python.exists(), "the Python environment of this test is missing: run `make venv` (`make test` does)");
    python
}

struct Agent {
    child: Child,
    url: String,
}

impl Agent {
    fn start() -> Self {
        let mut child = Command::new(python())
            .arg(sdk().join("agent.py"))
            .args(["--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url =
            line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("the agent said {line:?}")).to_owned();
        Self { child, url }
    }

    fn assert_alive(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "the agent has ended");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn client(url: &str) -> Vec<Value> {
    let output = Command::new(python()).arg(sdk().join("client.py")).arg(url).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let verdicts: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    verdicts.unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

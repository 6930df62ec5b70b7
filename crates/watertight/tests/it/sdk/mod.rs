//! The official SDKs on both sides of the gateway: clients made with them, over each binding, talking to agents made with them.
//!
//! The programs are in `tests/sdk`; each check prints one line of JSON, so that a failure says which promise to a stranger was broken.
//! One file for each SDK that agents are made with. Each of its tests is one cell: a client, the binding it speaks, and the binding that
//! the gateway speaks to the agent, or no gateway in between. That last one is the control: what fails there is not the gateway's.

mod gone;
mod js_agent;
mod lead;
mod patience;
mod python_agent;
mod rust_agent;
mod tenant;
mod tools;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::gateway::Config;

/// Everything that a client checks. A check that is missing from its output has not run.
const CHECKS: &[&str] = &[
    "big_artifact",
    "cancel",
    "card",
    "data_part",
    "extensions",
    "failed",
    "file_part",
    "follow_up_in_context",
    "get",
    "ids",
    "input_required",
    "input_required_stream",
    "list",
    "message",
    "push_config",
    "return_immediately",
    "send",
    "stream",
    "subscribe",
    "subscribe_input_required",
    "terminal_task",
    "unknown_task",
];

/// A check that an SDK is known not to pass with itself, and what it says then.
type Deviation = (&'static str, &'static str);

/// A language with an official SDK.
#[derive(Clone, Copy, Debug)]
enum Sdk {
    Python,
    Js,
    Rust,
}

/// A binding of the protocol.
#[derive(Clone, Copy, Debug)]
enum Binding {
    JsonRpc,
    Rest,
}

impl Binding {
    fn name(self) -> &'static str {
        match self {
            Binding::JsonRpc => "jsonrpc",
            Binding::Rest => "rest",
        }
    }

    /// As the protocol calls it.
    fn in_full(self) -> &'static str {
        match self {
            Binding::JsonRpc => "JSONRPC",
            Binding::Rest => "HTTP+JSON",
        }
    }

    /// Both, this one first.
    fn first(self) -> [Binding; 2] {
        match self {
            Binding::JsonRpc => [Binding::JsonRpc, Binding::Rest],
            Binding::Rest => [Binding::Rest, Binding::JsonRpc],
        }
    }
}

/// The tests of one cell, or of several that differ in what the client is made with and speaks.
macro_rules! cells {
    ($($name:ident: $client:ident over $binding:ident,)*) => { $(
        mod $name {
            use super::super::{Binding, Sdk, without, through};
            use super::{AGENT, DEVIATIONS};

            #[test]
            fn without_a_gateway() {
                without(Sdk::$client, Binding::$binding, AGENT, DEVIATIONS);
            }

            #[test]
            fn to_jsonrpc() {
                through(Sdk::$client, Binding::$binding, AGENT, Binding::JsonRpc);
            }

            #[test]
            fn to_rest() {
                through(Sdk::$client, Binding::$binding, AGENT, Binding::Rest);
            }
        }
    )* };
}
use cells;

/// The client's whole list through a gateway that speaks this binding to the agent, as the order on its card wants it.
#[track_caller]
fn through(client: Sdk, spoken: Binding, agent: Sdk, to_agent: Binding) {
    let mut agent = Agent::start(agent, &to_agent.first());
    let settings = ["max_in_flight = 64", "max_result_bytes = \"4MiB\""];
    let gateway = Config::new().agent("clerk", &agent.url, &settings).start();
    let verdicts = run(client, spoken, &format!("http://{}/agents/clerk/", gateway.addr()), &[]);
    agent.assert_alive();
    judge(&verdicts, &[]);
    let agents = gateway.client().http("GET", "/v1/agents", &[], b"").unwrap();
    let agents: Value = serde_json::from_slice(&agents.body).unwrap();
    assert_eq!(agents["agents"][0]["interface"]["binding"], to_agent.in_full(), "{agents}");
}

/// The client's whole list without a gateway. Every deviation is expected, so that one which is gone is noticed.
#[track_caller]
fn without(client: Sdk, spoken: Binding, agent: Sdk, deviations: &[Deviation]) {
    let agent = Agent::start(agent, &Binding::JsonRpc.first());
    judge(&run(client, spoken, &agent.url, &[]), deviations);
}

#[track_caller]
fn judge(verdicts: &[Value], deviations: &[Deviation]) {
    judged(verdicts, deviations, CHECKS);
}

/// Everything in this list was checked, and is as it should be.
#[track_caller]
fn judged(verdicts: &[Value], deviations: &[Deviation], checks: &[&str]) {
    let expected = |verdict: &Value| {
        let says = verdict["why"].as_str().unwrap_or_default();
        deviations.iter().find(|(check, _)| verdict["check"] == *check).map(|(_, why)| says.contains(why))
    };
    let wrong = |verdict: &&Value| !expected(verdict).unwrap_or(verdict["ok"] == true);
    let wrong: Vec<String> = verdicts.iter().filter(wrong).map(Value::to_string).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let mut ran: Vec<&str> = verdicts.iter().filter_map(|v| v["check"].as_str()).collect();
    ran.sort_unstable();
    assert_eq!(ran, checks);
}

/// Runs a client's checks, all of them where none is named.
fn run(client: Sdk, spoken: Binding, url: &str, checks: &[&str]) -> Vec<Value> {
    let mut command = match client {
        Sdk::Python => program(&python(), &["python/client.py"]),
        Sdk::Js => program(&node(), &["js/client.mjs"]),
        Sdk::Rust => panic!("there are no checks written with the Rust SDK"),
    };
    verdicts(command.arg(spoken.name()).arg(url).args(checks))
}

fn verdicts(command: &mut Command) -> Vec<Value> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let verdicts: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}\n{said}", output.status);
    verdicts.unwrap_or_else(|e| panic!("{e}: {text}\n{said}"))
}

/// An agent as a process of its own. It ends with the test, even with one that is killed: its standard input does.
struct Agent {
    child: Child,
    url: String,
}

impl Agent {
    /// Its card names these bindings, in this order.
    fn start(sdk: Sdk, bindings: &[Binding]) -> Self {
        Self::start_with(sdk, bindings, &[])
    }

    fn start_with(sdk: Sdk, bindings: &[Binding], more: &[&str]) -> Self {
        let mut command = match sdk {
            Sdk::Python => program(&python(), &["python/agent.py"]),
            Sdk::Js => program(&node(), &["js/agent.mjs"]),
            Sdk::Rust => program(&rust(), &[]),
        };
        let bindings = bindings.iter().map(|binding| binding.name());
        started(command.args(bindings).args(more))
    }

    fn assert_alive(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "the agent has ended");
    }
}

/// A program that is an agent, as soon as it listens.
fn started(command: &mut Command) -> Agent {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("the agent said {line:?}")).to_owned();
    Agent { child, url }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn program(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.current_dir(root().join("tests/sdk")).args(arguments);
    command
}

fn python() -> PathBuf {
    made(root().join("target/venv/bin/python"))
}

fn node() -> PathBuf {
    made(root().join("tests/sdk/js/node_modules/.ready"));
    "node".into()
}

fn rust() -> PathBuf {
    made(root().join("target/sdk-rust/debug/watertight-sdk-agent"))
}

fn made(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is missing: run `make sdks` (`make test` does)", path.display());
    path
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

//! The tools for models, used with the official MCP SDK: over HTTP and over standard input and output, with the handshake of
//! older versions of the protocol and without.

use super::{Agent, Binding, Sdk, judged, program, python, verdicts};
use crate::gateway::Config;

const CHECKS: &[&str] = &[
    "accepted",
    "async",
    "cancel",
    "delegate",
    "failure",
    "list_peers",
    "markers",
    "question",
    "refusals",
    "results",
    "tools",
];

fn uses(way: &str, mode: &str) {
    let mut agent = Agent::start(Sdk::Python, &Binding::JsonRpc.first());
    let gateway = Config::new().top("server.outbox = true").agent("clerk", &agent.url, &["max_in_flight = 64"]).start();
    let mut command = program(&python(), &["python/tools.py"]);
    command.args([way, mode]).arg(format!("http://{}", gateway.addr())).arg(env!("CARGO_BIN_EXE_watertight"));
    let verdicts = verdicts(&mut command);
    agent.assert_alive();
    judged(&verdicts, &[], CHECKS);
}

#[test]
fn over_http() {
    uses("http", "auto");
}

#[test]
fn over_http_with_a_handshake() {
    uses("http", "legacy");
}

#[test]
fn over_standard_input_and_output() {
    uses("stdio", "auto");
}

#[test]
fn over_standard_input_and_output_with_a_handshake() {
    uses("stdio", "legacy");
}

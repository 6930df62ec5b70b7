//! The tools for models, used with the official MCP SDK: over HTTP and over standard input and output, with the handshake of
//! older versions of the protocol and without.

use std::thread;

use serde_json::{Value, json};

use super::{Agent, Binding, Sdk, judged, program, python, verdicts};
use crate::client::{answer_text, message, state};
use crate::clock::{eventually, ms};
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

#[test]
fn a_worker_that_is_a_model() {
    let caller = |name: &str, more: &str| format!("[callers.{name}]\ntoken = \"file:{name}\"\n{more}\n");
    let tables = format!(
        "[agents.crew]\nfetches = true\n{}{}",
        caller("boss", "operator = true"),
        caller("worker", "agent = \"crew\"")
    );
    let config =
        Config::new().tables(&tables).with_file("boss", "token-of-boss").with_file("worker", "token-of-worker");
    let gateway = config.start();
    let mut command = program(&python(), &["python/worker.py"]);
    command.arg(format!("http://{}", gateway.addr())).arg("token-of-worker");
    let model = thread::spawn(move || verdicts(&mut command));
    let client = gateway.client();
    let call = |method: &str, params: &Value| {
        let headers = [("authorization", "Bearer token-of-boss")];
        client.call("crew", method, params, &headers).unwrap().outcome().unwrap()
    };
    let at_once = json!({"returnImmediately": true});
    let submit =
        |message: Value| call("SendMessage", &json!({"message": message, "configuration": at_once}))["task"].clone();
    let comes_to = |task: &Value, wanted: &str| {
        eventually(ms(20_000), &format!("it is {wanted}"), || {
            Some(call("GetTask", &json!({"id": task["id"]}))).filter(|task| state(task) == wanted)
        })
    };
    let (booked, hello) = (submit(message("book")), submit(message("hello")));
    comes_to(&booked, "INPUT_REQUIRED");
    let mut answer = message("Monday");
    answer["taskId"] = booked["id"].clone();
    submit(answer);
    assert_eq!(answer_text(&comes_to(&booked, "COMPLETED")), "done: Monday");
    assert_eq!(answer_text(&comes_to(&hello, "COMPLETED")), "done: hello");
    judged(&model.join().unwrap(), &[], &["rounds"]);
}

//! An agent that dies in the middle of a task, and what a stranger's client is told: the end of the stream with the task's state, the same again
//! when it asks, and an error with the reason for the next message.

use super::{Agent, Binding, Sdk, run};
use crate::gateway::Config;

#[test]
fn python_over_jsonrpc() {
    told(Sdk::Python, Binding::JsonRpc);
}

#[test]
fn python_over_rest() {
    told(Sdk::Python, Binding::Rest);
}

#[test]
fn js_over_jsonrpc() {
    told(Sdk::Js, Binding::JsonRpc);
}

#[test]
fn js_over_rest() {
    told(Sdk::Js, Binding::Rest);
}

#[track_caller]
fn told(client: Sdk, spoken: Binding) {
    let agent = Agent::start(Sdk::Js, &spoken.first());
    // How long a task is asked for at an agent that does not answer any more.
    let gateway = Config::new().agent("clerk", &agent.url, &["unreachable_after = \"2s\""]).start();
    let verdicts = run(client, spoken, &format!("http://{}/agents/clerk/", gateway.addr()), &["gone"]);
    assert_eq!(verdicts.len(), 1);
    assert_eq!(verdicts[0]["ok"], true, "{}", verdicts[0]);
}

//! An agent that says nothing for seven seconds, and a client with the timeouts that its SDK comes with: five seconds without a byte.

use std::thread;

use super::{Agent, Binding, Sdk, run};
use crate::gateway::Config;

#[test]
fn a_silent_agent_does_not_fail_the_default_python_client() {
    let agent = Agent::start(Sdk::Python, &Binding::Rest.first());
    let gateway = Config::new().agent("clerk", &agent.url, &[]).start();
    let through = format!("http://{}/agents/clerk", gateway.addr());
    let patient = |spoken, url: &str| run(Sdk::Python, spoken, url, &["patience"]).remove(0);
    thread::scope(|scope| {
        let jsonrpc = scope.spawn(|| patient(Binding::JsonRpc, &through));
        let rest = scope.spawn(|| patient(Binding::Rest, &through));
        let control = scope.spawn(|| patient(Binding::JsonRpc, &agent.url));
        for verdict in [jsonrpc.join().unwrap(), rest.join().unwrap()] {
            assert_eq!(verdict["ok"], true, "{verdict}");
        }
        let control = control.join().unwrap();
        assert!(control["why"].as_str().is_some_and(|why| why.starts_with("A2AClientTimeoutError")), "{control}");
    });
}

//! An agent whose card names a tenant: whoever speaks to it echoes that, and a caller of the gateway need not know.

use super::{Agent, Binding, Sdk, run};
use crate::gateway::Config;

#[test]
fn is_echoed_over_jsonrpc() {
    echoed(Sdk::Python, Binding::JsonRpc);
}

#[test]
fn is_echoed_over_rest() {
    echoed(Sdk::Js, Binding::Rest);
}

#[track_caller]
fn echoed(client: Sdk, spoken: Binding) {
    let agent = Agent::start_with(Sdk::Js, &spoken.first(), &["TENANT=acme"]);
    let gateway = Config::new().agent("clerk", &agent.url, &[]).start();
    for url in [agent.url.clone(), format!("http://{}/agents/clerk/", gateway.addr())] {
        let verdict = run(client, spoken, &url, &["tenant"]).remove(0);
        assert_eq!(verdict["ok"], true, "{url}: {verdict}");
    }
}

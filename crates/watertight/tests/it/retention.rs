//! What is over is kept for its time, and no longer; what is not over stays.

use crate::agent::{Agent, slow};
use crate::client::{id, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::Card;

#[test]
fn a_task_is_removed_after_its_retention_and_running_work_is_not() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, if text == "long" { ms(30_000) } else { ms(0) }));
    let settings = "retention = \"300ms\"\ndedupe_window = \"300ms\"";
    let gateway = Config::new().store(settings).agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    let long = client.submit("any", "long").expect("a task");
    let short = client.send("any", "short").expect("an answer");
    assert_eq!(state(&short), "COMPLETED");
    let gone = eventually(ms(12_000), "the short one is removed", || client.get("any", id(&short)).err());
    assert_eq!(gone.code, -32001, "{gone:?}");
    assert_eq!(state(&client.get("any", id(&long)).expect("it runs")), "WORKING");
    assert_eq!(client.list("any").len(), 1);
    client.cancel("any", id(&long)).expect("cancelled");
}

#[test]
fn a_shorter_retention_makes_room_at_once() {
    let agent = Agent::echo();
    let settings = "retention = \"7d\"\ndedupe_window = \"7d\"";
    let gateway = Config::new().store(settings).agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    let task = client.send("any", "short").expect("an answer");
    gateway.rewrite("\"7d\"", "\"1s\"");
    assert_eq!(client.http("POST", "/v1/config/reload", &[], b"").unwrap().status, 200);
    let gone = eventually(ms(12_000), "it is removed", || client.get("any", id(&task)).err());
    assert_eq!(gone.code, -32001, "{gone:?}");
}

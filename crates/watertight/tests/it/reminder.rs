//! An agent that sleeps between turns is told by a message that results wait for it, until it has acknowledged them.

use std::time::Duration;

use serde_json::json;

use crate::agent::Agent;
use crate::clock::{eventually, ms, now};
use crate::gateway::{Config, Gateway};
use crate::outbox::As;
use crate::peer::{After, Card, Peer};

/// Two leads, each with a caller that is it, and a worker.
fn start(one: &str, two: &str, worker: &Agent) -> Gateway {
    let caller = |name: &str, agent: &str| {
        format!("[callers.{name}]\ntoken = \"file:{name}\"\ntenant = \"t\"\nagent = \"{agent}\"\nagents = [\"work\"]\n")
    };
    let told = ["results = \"wake\"", "results_cooldown = \"300ms\"", "serialize = \"agent\""];
    Config::new()
        .agent("one", one, &told)
        .agent("two", two, &told)
        .agent("work", &worker.url(), &[])
        .tables(&(caller("first", "one") + &caller("second", "two")))
        .with_file("first", "token-of-first")
        .with_file("second", "token-of-second")
        .start()
}

#[test]
fn who_sleeps_is_told_until_it_has_read() {
    let (lead, other, worker) = (Agent::echo(), Agent::echo(), Agent::echo());
    let mut gateway = start(&lead.url(), &other.url(), &worker);
    let first = As::new(&gateway, "first");
    first.delegate("find a room");
    eventually(ms(5_000), "the lead is told", || (lead.peer.executions() >= 1).then_some(()));
    let told = lead.peer.received().into_iter().find(|request| request.executes()).unwrap();
    assert!(told.text().starts_with("1 result waits for you"), "{}", told.text());
    assert_eq!(told.params()["message"]["metadata"]["x-results"], json!({"pending": 1, "newest": 1}));
    assert!(!told.body.contains("echo: find a room"), "what an agent said is read by another door");
    eventually(ms(5_000), "it is told again", || (lead.peer.executions() >= 2).then_some(()));

    // The one that follows is the same notice, also after a crash.
    gateway.kill();
    let before = lead.peer.executions();
    gateway.start();
    let first = As::new(&gateway, "first");
    eventually(ms(10_000), "it is told again", || (lead.peer.executions() > before).then_some(()));
    assert_eq!(first.read("")["last"], 1, "its own answers are no results");
    assert_eq!(first.ack(1).0, 200);
    std::thread::sleep(ms(400));
    let after = lead.peer.executions();
    std::thread::sleep(ms(900));
    assert_eq!(lead.peer.executions(), after, "nothing waits any more");
    assert_eq!(other.peer.executions(), 0, "nobody else is told");
    first.delegate("another");
    eventually(ms(5_000), "what is new is told", || (lead.peer.executions() > after).then_some(()));
}

#[test]
fn an_endpoint_that_is_dead_delays_nobody_and_hears_of_it_when_it_is_back() {
    let (url, lead, worker) = (Peer::closed_port(), Agent::echo(), Agent::echo());
    let gateway = start(&url, &lead.url(), &worker);
    let (first, second) = (As::new(&gateway, "first"), As::new(&gateway, "second"));
    first.delegate("for the dead");
    first.waits(1);
    std::thread::sleep(ms(600));
    let started = now();
    second.delegate("for the living");
    eventually(ms(5_000), "the living is told", || (lead.peer.executions() >= 1).then_some(()));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(first.pending(), 1);
    let addr = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let back = Peer::start_at(addr, Card::Missing, |request, wire| -> After {
        match request.executes() {
            true => wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "ok"}]}})),
            false => wire.error(-32001, "no such task"),
        }
    });
    eventually(ms(20_000), "it is told when it is back", || (back.executions() >= 1).then_some(()));
}

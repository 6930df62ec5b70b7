//! Agents that come and go: drained for a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Client, answer_text, id, message, state};
use crate::clock::{eventually, ms};
use crate::command::watertight;
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer};

/// An agent that keeps its tasks over a restart. While it is down it breaks every connection, those that are open too;
/// what it was working on is done when it is back.
fn restartable(down: &Arc<AtomicBool>) -> Peer {
    let (down, restarted) = (down.clone(), AtomicBool::new(false));
    Peer::start(Card::Streaming, move |request, wire| {
        if down.load(Ordering::SeqCst) {
            restarted.store(true, Ordering::SeqCst);
            return After::Reset;
        }
        let task = |id: &str, state: &str| {
            json!({"id": id, "contextId": "c", "status": {"state": format!("TASK_STATE_{state}")},
                "artifacts": [{"artifactId": "a", "parts": [{"text": format!("done: {id}")}]}]})
        };
        match request.method() {
            "SendStreamingMessage" => {
                let text = request.text().to_owned();
                wire.events();
                wire.event(&json!({"task": task(&text, "WORKING")}));
                if text == "long" {
                    while !down.load(Ordering::SeqCst) && wire.hold(ms(20)) {}
                    restarted.store(down.load(Ordering::SeqCst), Ordering::SeqCst);
                    return After::Reset;
                }
                wire.event(&json!({"task": task(&text, "COMPLETED")}));
                After::Close
            }
            "GetTask" => {
                let state = if restarted.load(Ordering::SeqCst) { "COMPLETED" } else { "WORKING" };
                wire.ok(&task(request.params()["id"].as_str().unwrap_or(""), state))
            }
            _ => wire.error(-32601, "no such method"),
        }
    })
}

fn agent(gateway: &Gateway, name: &str) -> Value {
    watertight(gateway, &["agents", name, "--json"]).only_json()["agents"][0].clone()
}

fn waiting_on(client: &Client, agent: &str, task: &Value) -> String {
    let task = client.get(agent, id(task)).unwrap();
    task["metadata"]["watertight"]["waitingOn"].as_str().unwrap_or("").to_owned()
}

#[test]
fn a_drained_agent_is_restarted_and_nothing_is_lost_or_done_twice() {
    let down = Arc::new(AtomicBool::new(false));
    let peer = restartable(&down);
    let mut gateway = Config::new().agent("desk", &peer.url(), &["unreachable_after = \"600ms\""]).start();
    let client = gateway.client();
    let long = client.submit("desk", "long").unwrap();
    eventually(ms(5000), "it works", || (state(&client.get("desk", id(&long)).unwrap()) == "WORKING").then_some(()));

    let drained = watertight(&gateway, &["agents", "drain", "desk", "--timeout", "30s", "--json"]).only_json();
    assert_eq!((&drained["running"], &drained["survivesRestart"]), (&json!(1), &json!(true)), "{drained}");
    let queued = client.submit("desk", "queued").unwrap();
    assert_eq!((state(&queued), waiting_on(&client, "desk", &queued)), ("SUBMITTED", "agent_draining".into()));
    let answer = client.call("desk", "SendMessage", &json!({"message": message("now")}), &[]).unwrap();
    assert_eq!((answer.status, answer.outcome().unwrap_err().reason.as_str()), (503, "agent_draining"));
    assert!(answer.head.get("retry-after").is_some(), "{:?}", answer.head);
    eventually(ms(5_000), "it is shown", || (agent(&gateway, "desk")["state"] == "draining").then_some(()));
    gateway.counts("draining", "desk", 1.0);

    down.store(true, Ordering::SeqCst);
    let wait = watertight(&gateway, &["agents", "drain", "desk", "--timeout", "20s", "--wait"]);
    assert_eq!(wait.code, 0, "{wait:?}");
    assert!(wait.out.contains("desk: nothing runs; 1 waiting, 1 dropped"), "{}", wait.out);
    assert_eq!(state(&client.get("desk", id(&long)).unwrap()), "WORKING");
    gateway.counts("suspended", "desk", 1.0);

    // The gateway may be restarted meanwhile as well.
    gateway.kill();
    gateway.start();
    let client = gateway.client();
    eventually(ms(5_000), "it is still drained", || (agent(&gateway, "desk")["state"] == "draining").then_some(()));
    gateway.counts("suspended", "desk", 1.0);
    down.store(false, Ordering::SeqCst);
    std::thread::sleep(ms(300));
    assert_eq!((peer.executions(), waiting_on(&client, "desk", &long)), (1, "agent_draining".into()));

    assert_eq!(watertight(&gateway, &["agents", "resume", "desk"]).code, 0);
    for task in [&long, &queued] {
        let ended = client.ended("desk", id(task), ms(10_000));
        assert_eq!(state(&ended), "COMPLETED", "{ended}");
    }
    assert_eq!(peer.executions(), 2, "each once");
    let breaker = &agent(&gateway, "desk")["breaker"];
    assert_eq!((&breaker["failures"], &breaker["ejections"]), (&json!(0), &json!(0)), "{breaker}");
}

#[test]
fn a_drain_waits_no_longer_than_asked_and_says_who_still_runs() {
    let work = Agent::start(Card::Streaming, |text| slow(text, Duration::from_secs(30)));
    let gateway = Config::new().agent("slow", &work.url(), &[]).start();
    let client = gateway.client();
    let task = client.submit("slow", "long work").unwrap();
    eventually(ms(5000), "it works", || (work.running() == 1).then_some(()));
    let drained = watertight(&gateway, &["agents", "drain", "slow", "--timeout", "500ms", "--wait"]);
    assert_eq!(drained.code, 5, "{drained:?}");
    assert!(drained.out.contains("1 still running after the time given"), "{}", drained.out);
    // Nothing is cut for that: a budget ends work, and nothing else.
    assert_eq!(state(&client.get("slow", id(&task)).unwrap()), "WORKING");
    assert_eq!(client.http("POST", "/v1/agents/nobody/drain", &[], b"").unwrap().status, 404);
    assert_eq!(client.http("POST", "/v1/agents/slow/drain", &[], b"{\"timeout_s\":-1}").unwrap().status, 400);
    assert_eq!(client.http("GET", "/v1/agents/slow/drain", &[], b"").unwrap().status, 405);
}

#[test]
fn an_idempotent_agent_gets_again_what_it_dropped() {
    let down = Arc::new(AtomicBool::new(false));
    let broken = down.clone();
    let peer = Peer::start(Card::Missing, move |request, wire| {
        if !request.executes() {
            return wire.error(-32001, "no such task");
        }
        if request.text() == "held" && !broken.load(Ordering::SeqCst) {
            while !broken.load(Ordering::SeqCst) && wire.hold(ms(20)) {}
            return After::Reset;
        }
        wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "done"}]}}))
    });
    let gateway = Config::new()
        .agent("same", &peer.url(), &["idempotent = true", "attempts = 1"])
        .agent("once", &peer.url(), &["attempts = 1"])
        .start();
    let client = gateway.client();
    let tasks = ["same", "once"].map(|name| client.submit(name, "held").unwrap());
    eventually(ms(5000), "both were sent", || (peer.executions() == 2).then_some(()));
    for name in ["same", "once"] {
        assert_eq!(watertight(&gateway, &["agents", "drain", name]).code, 0);
    }
    down.store(true, Ordering::SeqCst);
    let unknown = client.ended("once", id(&tasks[1]), ms(5000));
    assert_eq!((state(&unknown), &unknown["metadata"]["watertight"]["reason"]), ("FAILED", &json!("outcome_unknown")));
    eventually(ms(5000), "the other waits", || {
        (waiting_on(&client, "same", &tasks[0]) == "agent_draining").then_some(())
    });
    assert_eq!(watertight(&gateway, &["agents", "resume", "same"]).code, 0);
    let ended = client.ended("same", id(&tasks[0]), ms(5000));
    assert_eq!((state(&ended), peer.executions()), ("COMPLETED", 3));
}

#[test]
fn a_native_session_gets_one_thing_at_a_time_and_refuses_nobody() {
    let work = Agent::start(Card::Streaming, |text| slow(text, if text == "boot" { ms(1500) } else { ms(20) }));
    // Whatever else is set: one slot, one at a time, nobody turned away.
    let settings = ["native_session = true", "max_in_flight = 8", "max_waiting = 0", "wait = \"800ms\""];
    let gateway = Config::new().agent("own", &work.url(), &settings).start();
    let client = gateway.client();
    let boot = client.submit("own", "boot").unwrap();
    eventually(ms(5000), "it boots", || (work.running() == 1).then_some(()));
    let tasks: Vec<Value> = (0..12).map(|n| client.submit("own", &format!("m{n}")).unwrap()).collect();
    // One that holds the line waits like the others, and gets its task when its wait is over.
    let held = client.send("own", "held").unwrap();
    assert_eq!(state(&held), "SUBMITTED");
    for (n, task) in tasks.iter().enumerate() {
        let ended = client.ended("own", id(task), ms(10_000));
        assert_eq!((state(&ended), answer_text(&ended)), ("COMPLETED", format!("done: m{n}")));
    }
    assert_eq!(answer_text(&client.ended("own", id(&held), ms(5000))), "done: held");
    assert_eq!(answer_text(&client.ended("own", id(&boot), ms(5000))), "done: boot");
    assert_eq!((work.most_running(), work.peer.executions()), (1, 14));
    let sent: Vec<String> = work.peer.received().iter().filter(|r| r.executes()).map(|r| r.text().to_owned()).collect();
    let expected: Vec<String> = (0..12).map(|n| format!("m{n}")).collect();
    assert_eq!((sent[0].as_str(), &sent[1..13], sent[13].as_str()), ("boot", &expected[..], "held"));
    let checked = watertight(&gateway, &["check", "--offline", "--config", gateway.config().to_str().unwrap()]);
    assert!(checked.out.contains("with native_session there is one slot"), "{checked:?}");
}

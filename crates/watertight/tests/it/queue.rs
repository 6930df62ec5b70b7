//! The queue before an agent, as callers and operators see it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::agent::{Agent, length, slow};
use crate::client::{Client, Fault, id, message, state};
use crate::clock::{eventually, ms};
use crate::command::watertight;
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer};

/// An agent whose turns take as long as their text says: `slow 300`.
fn desk() -> Agent {
    Agent::start(Card::Streaming, |text| slow(text, length(text)))
}

fn wanted(text: &str, queue: &Value) -> Value {
    let mut message = message(text);
    message["metadata"] = json!({ "x-queue": queue });
    json!({"message": message, "configuration": {"returnImmediately": true}})
}

fn submit(client: &Client, text: &str, queue: &Value) -> Result<Value, Box<Fault>> {
    client.rpc("desk", "SendMessage", &wanted(text, queue)).map(|answer| answer["task"].clone())
}

fn row(gateway: &Gateway, task: &str) -> Value {
    let answer = gateway.client().http("GET", &format!("/v1/delegations/{task}"), &[], b"").unwrap();
    serde_json::from_slice(&answer.body).unwrap()
}

fn places(gateway: &Gateway) -> Vec<(u64, String)> {
    let shown = watertight(gateway, &["queue", "desk", "--json"]).only_json();
    let queued = shown["queues"][0]["queued"].as_array().unwrap().clone();
    queued.iter().map(|row| (row["position"].as_u64().unwrap(), id_of(row))).collect()
}

fn id_of(row: &Value) -> String {
    row["task"].as_str().unwrap().to_owned()
}

#[test]
fn without_a_slot_it_waits_with_a_place_and_starts_the_moment_one_is_free() {
    let agent = desk();
    let gateway = Config::new().agent("desk", &agent.url(), &["max_in_flight = 1"]).start();
    let client = gateway.client();
    let first = client.submit("desk", "slow 700").unwrap();
    eventually(ms(5000), "it runs", || (agent.running() == 1).then_some(()));
    let second = client.submit("desk", "slow 1").unwrap();
    let third = submit(&client, "slow 2", &json!({"priority": 90, "ttl_s": 60})).unwrap();
    for (task, place) in [(&second, 1), (&third, 1)] {
        let ours = &task["metadata"]["watertight"];
        assert_eq!((state(task), ours["waitingOn"].as_str()), ("SUBMITTED", Some("bulkhead_full")), "{task}");
        assert_eq!(ours["position"], place, "{task}");
    }
    assert_eq!(agent.peer.executions(), 1, "the agent has not heard of it");
    assert_eq!(places(&gateway), [(1, id(&third).to_owned()), (2, id(&second).to_owned())]);
    let shown = row(&gateway, id(&third));
    assert_eq!((&shown["position"], &shown["priority"]), (&json!(1), &json!(90)), "{shown}");
    assert!(shown["expires"].is_string() && shown["waitingMs"].is_u64() && shown["sent"].is_null(), "{shown}");
    let text = watertight(&gateway, &["tasks", "show", id(&second)]).out;
    for part in ["bulkhead_full", "position   2", "priority   50", "waited", "expires"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let walls = watertight(&gateway, &["agents", "desk", "--json"]).only_json();
    assert!(walls["agents"][0]["oldestQueuedMs"].is_u64(), "{walls}");
    gateway.counts("queued", "desk", 2.0);
    assert!(gateway.metric("queue_age_seconds", "desk").unwrap() > 0.0);

    let done = [&first, &third, &second].map(|task| client.ended("desk", id(task), ms(10_000)));
    assert!(done.iter().all(|task| state(task) == "COMPLETED"), "{done:?}");
    assert_eq!(agent.most_running(), 1);
    let sent = agent.peer.received();
    let told = sent.iter().filter(|request| request.executes()).map(|request| &request.params()["message"]["metadata"]);
    assert!(told.clone().all(|metadata| metadata["x-budget"].is_object() && metadata["x-queue"].is_null()), "{sent:?}");
    let order: Vec<String> = agent.peer.received().iter().filter(|r| r.executes()).map(|r| r.text().into()).collect();
    assert_eq!(order, ["slow 700", "slow 2", "slow 1"]);
    let shown = row(&gateway, id(&second));
    assert!(shown["sent"].is_string() && shown["answered"].is_string() && shown["advanced"].is_string(), "{shown}");
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_name_and_nothing_is_stored() {
    let agent = desk();
    let gateway = Config::new().agent("desk", &agent.url(), &["queue_ttl_max = \"2h\""]).start();
    let client = gateway.client();
    for (queue, field) in [
        (json!({"ttl_s": 0}), "ttl_s"),
        (json!({"ttl_s": -1}), "ttl_s"),
        (json!({"ttl_s": 1.5}), "ttl_s"),
        (json!({"ttl_s": "10"}), "ttl_s"),
        (json!({"ttl_s": 7201}), "ttl_s"),
        (json!({"priority": 101}), "priority"),
        (json!({"priority": -1}), "priority"),
        (json!({"priority": "high"}), "priority"),
    ] {
        let error = submit(&client, "never", &queue).unwrap_err();
        assert_eq!(error.code, -32602, "{queue}: {error:?}");
        assert!(error.message.contains(&format!("x-queue.{field}")), "{queue}: {error:?}");
        let answer = client.rest("desk", "POST /message:send", &wanted("never", &queue).to_string(), &[]);
        assert_eq!(answer.status, 400, "{queue}");
        assert!(answer.bare().unwrap_err().message.contains(&format!("x-queue.{field}")), "{queue}");
    }
    let above = submit(&client, "never", &json!({"ttl_s": 7201})).unwrap_err();
    assert!(above.message.contains("7200"), "{above:?}");
    assert_eq!((client.list("desk").len(), agent.peer.executions()), (0, 0));
}

#[test]
fn a_queue_of_five_takes_five_of_twenty_and_tells_the_others_when_to_come_again() {
    let agent = desk();
    let gateway = Config::new().agent("desk", &agent.url(), &["max_in_flight = 1", "max_queued = 5"]).start();
    let client = gateway.client();
    let first = client.submit("desk", "slow 1000").unwrap();
    eventually(ms(5000), "it runs", || (agent.running() == 1).then_some(()));
    let (mut taken, mut refused) = (vec![first], 0);
    for n in 0..20 {
        let params = json!({"message": message(&format!("slow 1 {n}")), "configuration": {"returnImmediately": true}});
        let answer = client.call("desk", "SendMessage", &params, &[]).unwrap();
        match answer.outcome() {
            Ok(result) => taken.push(result["task"].clone()),
            Err(error) => {
                assert_eq!((answer.status, error.reason.as_str()), (503, "queue_full"), "{error:?}");
                assert!(error.message.contains("5 wait for it already: max_queued"), "{error:?}");
                let again: u64 = answer.head.get("retry-after").unwrap().parse().unwrap();
                assert!((1..=60).contains(&again), "{again}");
                refused += 1;
            }
        }
    }
    assert_eq!((taken.len(), refused), (6, 15));
    for task in &taken {
        assert_eq!(state(&client.ended("desk", id(task), ms(10_000))), "COMPLETED");
    }
    assert_eq!(agent.peer.executions(), 6);
}

#[test]
fn what_expires_in_the_queue_is_told_once_and_never_starts() {
    let agent = desk();
    let gateway = Config::new().agent("desk", &agent.url(), &["max_in_flight = 1"]).start();
    let client = gateway.client();
    let first = client.submit("desk", "slow 1500").unwrap();
    eventually(ms(5000), "it runs", || (agent.running() == 1).then_some(()));
    let second = submit(&client, "never", &json!({"ttl_s": 1})).unwrap();
    let told = client.subscribe("desk", id(&second)).rest();
    assert_eq!(told.states().iter().filter(|state| *state == "FAILED").count(), 1, "{told:?}");
    let task = client.get("desk", id(&second)).unwrap();
    assert_eq!(task["metadata"]["watertight"]["reason"], "expired", "{task}");
    gateway.counts("queued", "desk", 0.0);
    assert_eq!(state(&client.ended("desk", id(&first), ms(10_000))), "COMPLETED");
    assert_eq!(state(&client.send("desk", "slow 1").unwrap()), "COMPLETED");
    assert!(agent.peer.received().iter().all(|request| !request.executes() || request.text() != "never"));
}

/// Says so often that it is busy, in turn by each of these answers; then it works.
fn busy(times: usize, answers: Vec<(u16, &'static str, &'static str)>) -> (Peer, Arc<AtomicUsize>) {
    let (asked, left) = (Arc::new(AtomicUsize::new(0)), Mutex::new(answers.into_iter().cycle().take(times)));
    let count = asked.clone();
    let peer = Peer::start(Card::Missing, move |request, wire| match request.method() {
        "SendMessage" => {
            count.fetch_add(1, Ordering::SeqCst);
            match left.lock().unwrap().next() {
                Some((status, after, body)) => {
                    let headers = [("content-type", "application/json"), ("retry-after", after)];
                    wire.answer_with(
                        status,
                        if after.is_empty() { &headers[..1] } else { &headers[..] },
                        body.as_bytes(),
                    )
                }
                None => wire
                    .ok(&json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
                    "artifacts": [{"artifactId": "a", "parts": [{"text": "done"}]}]}})),
            }
        }
        _ => After::Close,
    });
    (peer, asked)
}

#[test]
fn an_agent_that_is_still_busy_gets_the_same_task_later_and_no_attempt_is_spent() {
    let (peer, asked) =
        busy(4, vec![(429, "", "{}"), (503, "0", "try later"), (503, "", "{\"busy\": true}"), (429, "0", "no")]);
    let settings = ["attempts = 1", "mode = \"blocking\"", "backoff_base = \"1ms\"", "backoff_max = \"20ms\""];
    let gateway = Config::new().agent("desk", &peer.url(), &settings).start();
    let client = gateway.client();
    let task = client.submit("desk", "patience").unwrap();
    let done = client.ended("desk", id(&task), ms(10_000));
    assert_eq!((state(&done), asked.load(Ordering::SeqCst)), ("COMPLETED", 5), "{done}");
    let shown = row(&gateway, id(&task));
    assert_eq!((&shown["attempts"], &shown["task"]), (&json!(1), &task["id"]), "{shown}");
    assert_eq!(client.list("desk").len(), 1);
}

#[test]
fn whoever_holds_the_line_is_told_that_the_agent_is_busy() {
    let (peer, asked) = busy(1, vec![(429, "", "{}")]);
    let gateway = Config::new().agent("desk", &peer.url(), &["mode = \"blocking\""]).start();
    let error = gateway.client().send("desk", "now").unwrap_err();
    assert_eq!((error.reason.as_str(), asked.load(Ordering::SeqCst)), ("agent_rate_limited", 1));
}

#[test]
fn an_agent_that_stays_busy_does_not_keep_a_task_for_ever() {
    let (peer, _) = busy(usize::MAX, vec![(429, "", "{}")]);
    let settings = ["mode = \"blocking\"", "backoff_base = \"100ms\""];
    let gateway = Config::new().agent("desk", &peer.url(), &settings).start();
    let client = gateway.client();
    let task = submit(&client, "patience", &json!({"ttl_s": 1})).unwrap();
    let done = client.ended("desk", id(&task), ms(10_000));
    assert_eq!(done["metadata"]["watertight"]["reason"], "expired", "{done}");
}

#[test]
fn five_tries_that_fail_end_with_the_last_reason() {
    let settings = ["attempts = 5", "retry_budget = \"100%\"", "backoff_base = \"1ms\"", "backoff_max = \"5ms\""];
    let gateway = Config::new().agent("desk", &Peer::closed_port(), &settings).start();
    let client = gateway.client();
    // The budget of retries is a share of first tries.
    let first: Vec<Value> = (0..8).map(|n| client.submit("desk", &format!("m{n}")).unwrap()).collect();
    let ended: Vec<Value> = first.iter().map(|task| client.ended("desk", id(task), ms(10_000))).collect();
    assert!(ended.iter().all(|task| task["metadata"]["watertight"]["reason"] == "agent_connect_refused"), "{ended:?}");
    let attempts = first.iter().map(|task| row(&gateway, id(task))["attempts"].as_u64().unwrap()).max();
    assert!(attempts.is_some_and(|most| (2..=5).contains(&most)), "{attempts:?}");
}

#[test]
fn an_operator_drops_what_waits_and_its_caller_is_told_why() {
    let agent = desk();
    let gateway = Config::new().agent("desk", &agent.url(), &["max_in_flight = 1"]).start();
    let client = gateway.client();
    let first = client.submit("desk", "slow 1500").unwrap();
    eventually(ms(5000), "it runs", || (agent.running() == 1).then_some(()));
    let second = client.submit("desk", "never").unwrap();
    let why = "sent twice by mistake";
    let done = watertight(&gateway, &["queue", "drop", id(&second), "--reason", why]);
    assert_eq!((done.code, done.out.contains("is dropped")), (0, true), "{done:?}");
    let task = client.get("desk", id(&second)).unwrap();
    assert_eq!((state(&task), &task["metadata"]["watertight"]["reason"]), ("FAILED", &json!("dropped")), "{task}");
    assert!(task["status"]["message"].to_string().contains(why), "{task}");
    assert_eq!(places(&gateway), []);
    let runs = watertight(&gateway, &["queue", "drop", id(&first), "--reason", why]);
    assert_eq!((runs.code, runs.err.contains("does not wait")), (3, true), "{runs:?}");
    let nothing = watertight(&gateway, &["queue", "drop", &"0".repeat(32), "--reason", why]);
    assert_eq!(nothing.code, 3, "{nothing:?}");
    assert_eq!(state(&client.ended("desk", id(&first), ms(10_000))), "COMPLETED");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn one_agents_long_turn_delays_nobody_else_and_no_agent_gets_more_than_its_slots() {
    let (long, quick) = (desk(), desk());
    let gateway = Config::new()
        .agent("long", &long.url(), &["max_in_flight = 1"])
        .agent("desk", &quick.url(), &["max_in_flight = 3"])
        .start();
    let client = gateway.client();
    client.submit("long", "slow 60000").unwrap();
    (0..20).for_each(|n| drop(client.submit("long", &format!("slow 1 {n}")).unwrap()));
    let tasks: Vec<Value> = (0..30).map(|n| client.submit("desk", &format!("slow 20 {n}")).unwrap()).collect();
    for task in &tasks {
        assert_eq!(state(&client.ended("desk", id(task), ms(10_000))), "COMPLETED");
    }
    assert_eq!((quick.most_running(), long.most_running()), (3, 1));
}

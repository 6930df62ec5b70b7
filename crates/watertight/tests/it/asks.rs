//! A task that asks, and an answer that surely never reached its agent: only the answer fails, and the question stands.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, Outcome, id, message, state};
use crate::clock::{eventually, ms};
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer, Received, Wire};

const ATTEMPTS: &str = "attempts = 1";

/// Asks who is at its first message, and is done at its second. `hold`: it works until it is canceled.
fn shy(request: &Received, wire: &mut Wire) -> After {
    let task = |id: &str, state: &str, says: &str| {
        let said = json!({"messageId": format!("said-{says}"), "role": "ROLE_AGENT", "parts": [{"text": says}]});
        json!({"id": id, "contextId": "c", "status": {"state": format!("TASK_STATE_{state}"), "message": said}})
    };
    let params = request.params();
    match (request.method(), params["message"]["taskId"].as_str()) {
        ("SendMessage", Some(id)) => wire.ok(&json!({"task": task(id, "COMPLETED", "hello")})),
        ("SendMessage", None) if request.text() == "hold" => wire.ok(&json!({"task": task("held", "WORKING", "busy")})),
        ("SendMessage", None) => wire.ok(&json!({"task": task("asking", "INPUT_REQUIRED", "who is there?")})),
        ("CancelTask", _) => wire.ok(&task(params["id"].as_str().unwrap(), "CANCELED", "bye")),
        ("GetTask", _) if params["id"] == "held" => wire.ok(&task("held", "WORKING", "busy")),
        _ => wire.error(-32001, "no such task"),
    }
}

fn answer(task: &Value, text: &str, at_once: bool) -> Value {
    let mut said = message(text);
    said["taskId"] = task["id"].clone();
    json!({"message": said, "configuration": {"returnImmediately": at_once}})
}

/// The task asks what it asked in the beginning, and says why the last answer did not help.
#[track_caller]
fn asks_again(client: &Client, task: &Value, reason: &str) {
    let kept = eventually(ms(5_000), "it asks again", || {
        let kept = client.get("shy", id(task)).unwrap();
        (state(&kept) == "INPUT_REQUIRED").then_some(kept)
    });
    assert_eq!(kept["status"]["message"]["parts"][0]["text"], "who is there?", "{kept}");
    assert_eq!(kept["status"]["message"]["messageId"], task["status"]["message"]["messageId"], "{kept}");
    let ours = &kept["metadata"]["watertight"];
    assert_eq!((ours["reason"].as_str(), ours["delivery"].as_str()), (Some(reason), Some("not_sent")), "{kept}");
}

fn send(gateway: &Gateway, params: &Value) -> Outcome {
    gateway.client().rpc("shy", "SendMessage", params).map(|answer| answer["task"].clone())
}

#[test]
fn an_answer_to_an_agent_that_is_away_leaves_the_question() {
    let agent = Peer::start(Card::Missing, shy);
    let addr = agent.addr();
    let mut gateway = Config::new().agent("shy", &agent.url(), &[ATTEMPTS]).start();
    let client = gateway.client();
    let task = client.send("shy", "knock").unwrap();
    assert_eq!(state(&task), "INPUT_REQUIRED");
    drop(agent);

    let first = answer(&task, "me", false);
    for _ in 0..2 {
        // The same message may be tried again: it was never sent.
        let fault = send(&gateway, &first).unwrap_err();
        assert_eq!(
            (fault.reason.as_str(), fault.delivery.as_str()),
            ("agent_connect_refused", "not_sent"),
            "{fault:?}"
        );
        assert_eq!(fault.task, id(&task), "{fault:?}");
        asks_again(&client, &task, "agent_connect_refused");
    }
    send(&gateway, &answer(&task, "me, at some time", true)).unwrap();
    asks_again(&client, &task, "agent_connect_refused");

    let events = client.events("shy", "SendStreamingMessage", &answer(&task, "me, in a stream", false)).rest();
    let last = events.events.last().unwrap().as_ref().unwrap()["statusUpdate"].clone();
    assert_eq!((state(&last), events.last_state().as_str()), ("INPUT_REQUIRED", "INPUT_REQUIRED"), "{events:?}");
    assert_eq!(last["metadata"]["watertight"]["reason"], "agent_connect_refused", "{last}");
    assert_eq!(last["status"]["message"]["parts"][0]["text"], "who is there?", "{last}");

    gateway.kill();
    gateway.start();
    asks_again(&gateway.client(), &task, "agent_connect_refused");
    let agent = Peer::start_at(addr, Card::Missing, shy);
    let done = send(&gateway, &answer(&task, "me again", false)).unwrap();
    assert_eq!((state(&done), done["metadata"].is_null()), ("COMPLETED", true), "{done}");
    assert_eq!((agent.executions(), agent.count("CancelTask")), (1, 0));
}

#[test]
fn an_answer_that_waits_at_a_kill_and_then_too_long_leaves_the_question() {
    let agent = Peer::start(Card::Missing, shy);
    let settings = [ATTEMPTS, "max_in_flight = 1", "queue_ttl = \"2s\"", "serialize = \"none\""];
    let mut gateway = Config::new().agent("shy", &agent.url(), &settings).start();
    let client = gateway.client();
    let task = client.send("shy", "knock").unwrap();
    client.submit("shy", "hold").unwrap();
    eventually(ms(5_000), "the slot is taken", || (agent.executions() == 2).then_some(()));
    let waits = send(&gateway, &answer(&task, "me", true)).unwrap();
    assert_eq!((state(&waits), &waits["metadata"]["watertight"]["waitingOn"]), ("SUBMITTED", &json!("bulkhead_full")));
    gateway.kill();
    gateway.start();
    let client = gateway.client();
    assert_eq!(state(&client.get("shy", id(&task)).unwrap()), "SUBMITTED", "it still waits");
    asks_again(&client, &task, "expired");
    assert_eq!((agent.executions(), agent.count("CancelTask")), (2, 0), "the agent never heard of it");
    let held = client.list("shy").into_iter().find(|other| other["id"] != task["id"]).unwrap();
    client.cancel("shy", id(&held)).unwrap();
    let limit = Duration::from_secs(10);
    let done = eventually(limit, "the slot is free", || send(&gateway, &answer(&task, "me again", false)).ok());
    assert_eq!(state(&done), "COMPLETED");
}

//! What is sent again, and what is run again: keys in the place of messageIds, and re-drives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Client, answer_text, fresh, id, message, state};
use crate::clock::ms;
use crate::command::watertight;
use crate::gateway::Config;
use crate::peer::{After, Card, Peer};

/// Answers as told: with an error of its own, or well.
fn moody(well: &Arc<AtomicBool>) -> Peer {
    let well = well.clone();
    Peer::start(Card::Missing, move |request, wire| match (request.executes(), well.load(Ordering::SeqCst)) {
        (false, _) => wire.error(-32001, "no such task"),
        (true, false) => wire.error(-32050, "not today"),
        (true, true) => {
            let artifacts = json!([{"artifactId": "a", "parts": [{"text": format!("done: {}", request.text())}]}]);
            let status = json!({"state": "TASK_STATE_COMPLETED"});
            wire.ok(&json!({"task": {"id": fresh("r"), "contextId": "c", "status": status, "artifacts": artifacts}}))
        }
    })
}

fn redrive(client: &Client, task: &str) -> (u16, Value) {
    let answer = client.http("POST", &format!("/v1/delegations/{task}/redrive"), &[], b"").unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

fn row(client: &Client, task: &str) -> Value {
    serde_json::from_slice(&client.http("GET", &format!("/v1/delegations/{task}"), &[], b"").unwrap().body).unwrap()
}

#[test]
fn what_failed_is_run_again_as_a_new_task_linked_to_the_first() {
    let well = Arc::new(AtomicBool::new(false));
    let peer = moody(&well);
    let mut gateway = Config::new().agent("moody", &peer.url(), &[]).start();
    let client = gateway.client();
    let mut first = message("book it");
    first["messageId"] = json!("once");
    first["metadata"] = json!({"x-budget": {"remaining_s": 30, "depth": 1, "fanout": 1}, "mine": 1});
    let failed = client.rpc("moody", "SendMessage", &json!({"message": first})).unwrap_err();
    assert_eq!((failed.reason.as_str(), peer.executions()), ("agent_error", 1));

    // Sent again, it is the same failure, and the answer says what else there is.
    let again = client.call("moody", "SendMessage", &json!({"message": first}), &[]).unwrap();
    let info = serde_json::from_slice::<Value>(&again.body).unwrap()["error"]["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|info| info["domain"] == "watertight")
        .unwrap()["metadata"]
        .clone();
    assert_eq!(info["redrive"], format!("POST /v1/delegations/{}/redrive", failed.task), "{info}");
    assert_eq!((&info["replay"], peer.executions()), (&json!("true"), 1));

    // A restart keeps the message. The first repetition fails as well; asking for it twice at once is asking once.
    gateway.kill();
    gateway.start();
    let client = gateway.client();
    let asked: Vec<(u16, Value)> = thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| redrive(&client, &failed.task))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let second = asked[0].1["task"].as_str().unwrap().to_owned();
    client.ended("moody", &second, ms(5000));
    assert!(asked.iter().all(|(status, _)| *status == 200), "{asked:?}");
    assert_eq!(row(&client, &failed.task)["redrivenBy"], json!(second));

    // Asked again after that, it is run once more, and the link is still to the very first.
    well.store(true, Ordering::SeqCst);
    let third = watertight(&gateway, &["tasks", "redrive", &failed.task, "--json"]).only_json();
    let third_id = third["task"].as_str().unwrap().to_owned();
    let ended = client.ended("moody", &third_id, ms(5000));
    assert_eq!((state(&ended), answer_text(&ended)), ("COMPLETED", "done: book it".into()));
    assert_eq!(ended["metadata"]["watertight"]["redrives"], json!(failed.task), "{ended}");
    let old = client.get("moody", &failed.task).unwrap();
    assert_eq!((state(&old), &old["metadata"]["watertight"]["redrivenBy"]), ("FAILED", &json!(second)), "{old}");
    assert_eq!(row(&client, &third_id)["redrives"], json!(failed.task));
    assert_eq!(row(&client, &third_id)["budget"]["depth"], 3, "the defaults, not what the first one had left");

    // The agent was sent the same message under other ids, so that it takes them for other messages.
    let sent: Vec<Value> =
        peer.received().iter().filter(|r| r.executes()).map(|r| r.params()["message"].clone()).collect();
    let ids: std::collections::BTreeSet<&str> = sent.iter().filter_map(|m| m["messageId"].as_str()).collect();
    assert!(sent.iter().all(|m| m["parts"] == first["parts"] && m["metadata"]["mine"] == 1), "{sent:?}");
    assert_eq!(ids.len(), sent.len(), "{ids:?}");

    let (status, done) = redrive(&client, &failed.task);
    assert!(status == 409 && done.to_string().contains("run again already"), "{done}");
    let (status, done) = redrive(&client, &third_id);
    assert!(status == 409 && done.to_string().contains("it completed"), "{done}");
    assert_eq!(redrive(&client, &"0".repeat(32)).0, 404);
}

#[test]
fn only_its_caller_and_operators_run_a_task_again_and_not_while_it_runs() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(60_000)));
    let callers = "[callers.alice]\ntoken = \"file:alice\"\n[callers.bob]\ntoken = \"file:bob\"\n\
                   [callers.ops]\ntoken = \"file:ops\"\ntenant = \"alice\"\noperator = true\n";
    let gateway = ["alice", "bob", "ops"]
        .iter()
        .fold(Config::new(), |config, name| config.with_file(name, &format!("secret-of-{name}")))
        .agent("slow", &agent.url(), &[])
        .tables(callers)
        .start();
    let client = gateway.client();
    let by = |name: &str| format!("Bearer secret-of-{name}");
    let params = json!({"message": message("long"), "configuration": {"returnImmediately": true}});
    let task =
        client.call("slow", "SendMessage", &params, &[("authorization", &by("alice"))]).unwrap().outcome().unwrap();
    let task = id(&task["task"]).to_owned();
    let redrive = |name: &str| {
        client.http("POST", &format!("/v1/delegations/{task}/redrive"), &[("authorization", &by(name))], b"").unwrap()
    };
    assert_eq!((redrive("bob").status, redrive("alice").status), (404, 409));
    client
        .call("slow", "CancelTask", &json!({"id": task}), &[("authorization", &by("alice"))])
        .unwrap()
        .outcome()
        .unwrap();
    let answer = redrive("ops");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    // It is still alice's.
    let new = serde_json::from_slice::<Value>(&answer.body).unwrap()["task"].as_str().unwrap().to_owned();
    let seen = client.call("slow", "GetTask", &json!({"id": new}), &[("authorization", &by("alice"))]).unwrap();
    assert_eq!(seen.outcome().unwrap()["id"], json!(new));
}

#[test]
fn a_given_key_stands_in_the_place_of_the_message_id() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(300)));
    let other = Agent::echo();
    let gateway = Config::new().agent("slow", &agent.url(), &[]).agent("echo", &other.url(), &[]).start();
    let client = gateway.client();
    let send = |agent: &str, text: &str, extra: &[(&str, &str)]| {
        client.call(agent, "SendMessage", &json!({"message": message(text)}), extra).unwrap()
    };
    let key = [("idempotency-key", "order 17")];
    // Fifty twins, each with an id of its own, join one task.
    let ids: std::collections::BTreeSet<String> = thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|_| scope.spawn(|| send("slow", "buy", &key).outcome().unwrap())).collect();
        all.into_iter().map(|one| id(&one.join().unwrap()["task"]).to_owned()).collect()
    });
    assert_eq!((ids.len(), agent.peer.executions()), (1, 1));
    let task = ids.first().unwrap();
    let replay = send("slow", "buy", &key).outcome().unwrap();
    assert_eq!(
        (id(&replay["task"]), &replay["task"]["metadata"]["watertight"]["replay"]),
        (task.as_str(), &json!(true))
    );

    // The same in the message itself. Of the two there is one.
    let mut inside = message("buy");
    inside["metadata"] = json!({"x-idempotency-key": "order 17"});
    let joined = client.rpc("slow", "SendMessage", &json!({"message": inside})).unwrap();
    assert_eq!(id(&joined["task"]), task);
    let both =
        client.call("slow", "SendMessage", &json!({"message": inside}), &[("idempotency-key", "other")]).unwrap();
    assert_eq!(both.outcome().unwrap_err().code, -32602);
    let listed = client.http("GET", "/v1/delegations?agent=slow&idempotencyKey=order%2017", &[], b"").unwrap();
    let listed: Value = serde_json::from_slice(&listed.body).unwrap();
    assert_eq!(listed["delegations"][0]["task"], json!(task));

    // Another content is a conflict that names the first; another agent, or an id that reads like the key, is not.
    let conflict = send("slow", "sell", &key).outcome().unwrap_err();
    assert_eq!((conflict.reason.as_str(), &conflict.task), ("message_id_conflict", task));
    assert_eq!(answer_text(&send("echo", "buy", &key).outcome().unwrap()["task"]), "echo: buy");
    let mut named = message("sell");
    named["messageId"] = json!("order 17");
    client.rpc("slow", "SendMessage", &json!({"message": named})).unwrap();
    assert_eq!(agent.peer.executions(), 2);

    for wrong in ["", &"x".repeat(201), "caf\u{e9}", " padded"] {
        let mut bad = message("buy");
        bad["metadata"] = json!({"x-idempotency-key": wrong});
        assert_eq!(client.rpc("slow", "SendMessage", &json!({"message": bad})).unwrap_err().code, -32602, "{wrong}");
    }
}

#[test]
fn two_callers_with_one_key_never_meet() {
    let agent = Agent::echo();
    let callers = "[callers.alice]\ntoken = \"file:alice\"\n[callers.bob]\ntoken = \"file:bob\"\n";
    let gateway = Config::new()
        .with_file("alice", "secret-of-alice")
        .with_file("bob", "secret-of-bob")
        .agent("echo", &agent.url(), &[])
        .tables(callers)
        .start();
    let client = gateway.client();
    let send = |name: &str, text: &str| {
        let token = format!("Bearer secret-of-{name}");
        let headers = [("authorization", token.as_str()), ("idempotency-key", "k")];
        client.call("echo", "SendMessage", &json!({"message": message(text)}), &headers).unwrap().outcome().unwrap()
    };
    let (a, b) = (send("alice", "one"), send("bob", "two"));
    assert_eq!((answer_text(&a["task"]), answer_text(&b["task"])), ("echo: one".into(), "echo: two".into()));
}

#[test]
fn a_message_that_is_not_kept_is_not_run_again() {
    let peer = Peer::start(Card::Missing, |request, wire| match request.executes() {
        true => wire.error(-32050, "not today"),
        false => After::Close,
    });
    let gateway = Config::new().agent("quick", &peer.url(), &["durability = \"memory\""]).start();
    let failed = gateway.client().send("quick", "hello").unwrap_err();
    let refused = watertight(&gateway, &["tasks", "redrive", &failed.task]);
    assert!(refused.code == 3 && refused.err.contains("not kept"), "{refused:?}");
}

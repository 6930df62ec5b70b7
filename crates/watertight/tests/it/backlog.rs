//! More waits than is held in memory: what only the store has is shown, followed, ended and begun like everything else.

use std::thread;

use serde_json::{Value, json};

use crate::agent::{Agent, Step};
use crate::client::{Client, answer_text, id, message, state};
use crate::clock::{eventually, ms};
use crate::command::watertight;
use crate::gateway::{Config, Gateway};
use crate::peer::Card;

/// Some more than are held whole.
const MANY: usize = 1_200;

fn accepted(client: &Client, messages: &[Value]) -> Vec<Value> {
    thread::scope(|scope| {
        let some = messages.chunks(messages.len().div_ceil(8)).map(|some| {
            scope.spawn(move || {
                let accepted = some.iter().map(|message| {
                    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
                    client.rpc("desk", "SendMessage", &params).unwrap()["task"].clone()
                });
                accepted.collect::<Vec<_>>()
            })
        });
        let some: Vec<_> = some.collect();
        some.into_iter().flat_map(|accepted| accepted.join().unwrap()).collect()
    })
}

/// What its caller said: one message, which is the first.
fn said(task: &Value) -> &str {
    let history = task["history"].as_array().unwrap();
    assert_eq!(history.iter().filter(|message| message["role"] == "ROLE_USER").count(), 1, "{task}");
    history[0]["parts"][0]["text"].as_str().unwrap()
}

fn drained(gateway: &Gateway, verb: &str) {
    assert_eq!(watertight(gateway, &["agents", verb, "desk"]).code, 0);
}

#[test]
fn what_only_the_store_has_is_like_everything_else() {
    let agent = Agent::start(Card::Streaming, |text| {
        vec![Step::Work("on it"), Step::Chunk(format!("echo: {text}")), Step::End("COMPLETED")]
    });
    let settings = ["max_in_flight = 16", "max_queued = 5000"];
    let mut gateway = Config::new().agent("desk", &agent.url(), &settings).start();
    let client = gateway.client();
    drained(&gateway, "drain");
    let messages: Vec<Value> = (0..MANY).map(|n| message(&format!("number {n}"))).collect();
    let mut tasks = accepted(&client, &messages[..MANY - 6]);
    // One after the other, so that these are the last.
    for last in &messages[MANY - 6..] {
        tasks.extend(accepted(&client, std::slice::from_ref(last)));
    }
    let [shown, followed, canceled, dropped, repeated, restarted] = &tasks[MANY - 6..] else { panic!() };
    let text = |n: usize| format!("number {}", MANY - 6 + n);

    assert_eq!(shown["metadata"]["watertight"]["position"], MANY - 5);
    let task = client.get("desk", id(shown)).unwrap();
    assert_eq!((state(&task), said(&task)), ("SUBMITTED", text(0).as_str()));
    assert_eq!(task["metadata"]["watertight"]["waitingOn"], "agent_draining");
    assert!(client.list("desk").iter().any(|task| id(task) == id(shown) && state(task) == "SUBMITTED"));

    let mut stream = client.subscribe("desk", id(followed));
    let snapshot = stream.next().unwrap().unwrap();
    assert_eq!((state(&snapshot["task"]), said(&snapshot["task"])), ("SUBMITTED", text(1).as_str()));

    assert_eq!(state(&client.cancel("desk", id(canceled)).unwrap()), "CANCELED");
    let task = client.get("desk", id(canceled)).unwrap();
    assert_eq!((state(&task), said(&task)), ("CANCELED", text(2).as_str()));
    assert_eq!(client.cancel("desk", id(canceled)).map(|task| state(&task).to_owned()).unwrap(), "CANCELED");

    let done = watertight(&gateway, &["queue", "drop", id(dropped), "--reason", "not today"]);
    assert_eq!(done.code, 0, "{done:?}");
    let task = client.get("desk", id(dropped)).unwrap();
    assert_eq!((state(&task), said(&task)), ("FAILED", text(3).as_str()));
    let why = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(why.contains("an operator said: not today"), "{why}");

    // The same message again is the same task, which is followed to its end.
    let again = json!({"message": messages[MANY - 2]});
    let mut repeat = client.events("desk", "SendStreamingMessage", &again);
    let first = repeat.next().unwrap().unwrap();
    assert_eq!((id(&first["task"]), said(&first["task"])), (id(repeated), text(4).as_str()));

    assert_eq!(agent.peer.executions(), 0);
    stream.leave();
    repeat.leave();
    gateway.kill();
    gateway.start();
    let client = gateway.client();
    let task = client.get("desk", id(dropped)).unwrap();
    assert_eq!((state(&task), said(&task)), ("FAILED", text(3).as_str()));
    let mut stream = client.subscribe("desk", id(restarted));
    let snapshot = stream.next().unwrap().unwrap();
    assert_eq!((state(&snapshot["task"]), said(&snapshot["task"])), ("SUBMITTED", text(5).as_str()));

    drained(&gateway, "resume");
    let rest = stream.rest();
    assert_eq!((rest.last_state().as_str(), rest.text()), ("COMPLETED", format!("echo: {}", text(5))));
    eventually(ms(60_000), "all are done", || (agent.peer.executions() == MANY - 2).then_some(()));
    for (n, task) in tasks.iter().enumerate().filter(|(n, _)| n % 97 == 0 || *n == MANY - 2) {
        let task = client.ended("desk", id(task), ms(10_000));
        let text = messages[n]["parts"][0]["text"].as_str().unwrap();
        assert_eq!((state(&task), said(&task), answer_text(&task)), ("COMPLETED", text, format!("echo: {text}")));
    }
}

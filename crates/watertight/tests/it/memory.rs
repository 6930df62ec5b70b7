//! An agent whose delegations are kept in memory alone: the same answers as ever while the process lives, within bounds, and nothing after it.

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::client::{answer_text, id, message, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::Card;

const MEMORY: &str = "durability = \"memory\"";

#[test]
fn what_is_kept_in_memory_is_there_until_the_process_ends() {
    let agent = Agent::echo();
    let mut gateway = Config::new().agent("brief", &agent.url(), &[MEMORY]).agent("safe", &agent.url(), &[]).start();
    let client = gateway.client();
    let params = json!({"message": message("remember me")});
    let brief = client.rpc("brief", "SendMessage", &params).expect("an answer")["task"].clone();
    let safe = client.send("safe", "remember me too").expect("an answer");

    // It can be asked for, listed, and joined by its messageId; nobody can follow what is over.
    let known = client.get("brief", id(&brief)).expect("the task is known");
    assert_eq!((state(&known), answer_text(&known)), ("COMPLETED", "echo: remember me".into()));
    assert_eq!(client.list("brief").len(), 1);
    assert_eq!(client.rpc("brief", "SendMessage", &params).expect("the first one's answer")["task"]["id"], brief["id"]);
    let mut other = params.clone();
    other["message"]["parts"][0]["text"] = json!("something else");
    let conflict = client.rpc("brief", "SendMessage", &other).expect_err("another message under the same id");
    assert_eq!(conflict.reason, "message_id_conflict", "{conflict:?}");
    assert_eq!(client.cancel("brief", id(&brief)).expect_err("it is over").code, -32002);
    assert_eq!(client.subscribe("brief", id(&brief)).refusal().expect_err("it is over").code, -32004);
    assert_eq!(client.get("safe", id(&brief)).expect_err("not through another door").code, -32001);
    assert_eq!(agent.peer.executions(), 2);

    // It is said, in the log and to operators.
    assert!(gateway.log().contains("is not written to disk"), "{}", gateway.log());
    let agents = client.http("GET", "/v1/agents", &[], b"").unwrap().body;
    let agents: Value = serde_json::from_slice(&agents).unwrap();
    let said = |name: &str| agents["agents"].as_array().unwrap().iter().find(|a| a["agent"] == name).unwrap().clone();
    assert_eq!((&said("brief")["durability"], &said("brief")["memory"]["tasks"]), (&json!("memory"), &json!(1)));
    assert_eq!((&said("safe")["durability"], &said("safe")["memory"]), (&json!("durable"), &Value::Null));
    gateway.counts("memory_tasks", "brief", 1.0);

    gateway.kill();
    gateway.start();
    let client = gateway.client();
    assert_eq!(client.get("brief", id(&brief)).expect_err("it is gone").code, -32001);
    assert_eq!(client.list("brief").len(), 0);
    assert_eq!(state(&client.get("safe", id(&safe)).expect("it was kept")), "COMPLETED");
    client.rpc("brief", "SendMessage", &params).expect("an answer");
    assert_eq!(agent.peer.executions(), 3, "its messageId is forgotten with it");
}

#[test]
fn the_oldest_that_ended_makes_room() {
    let agent = Agent::echo();
    let settings = [MEMORY, "memory_max_tasks = 2"];
    let gateway = Config::new().agent("brief", &agent.url(), &settings).start();
    let client = gateway.client();
    let messages: Vec<Value> = (0..3).map(|n| json!({"message": message(&format!("number {n}"))})).collect();
    let send = |params: &Value| client.rpc("brief", "SendMessage", params).expect("an answer")["task"].clone();
    let tasks: Vec<Value> = messages.iter().map(send).collect();
    assert_eq!(client.get("brief", id(&tasks[0])).expect_err("it made room").code, -32001);
    let left: Vec<Value> = client.list("brief").iter().map(|task| task["id"].clone()).collect();
    assert_eq!(left, [tasks[2]["id"].clone(), tasks[1]["id"].clone()], "newest first");
    assert_eq!(send(&messages[2])["id"], tasks[2]["id"]);
    assert_eq!(agent.peer.executions(), 3);
    assert_ne!(send(&messages[0])["id"], tasks[0]["id"]);
    assert_eq!(agent.peer.executions(), 4, "its messageId went with it");
}

#[test]
fn it_runs_is_watched_asks_and_is_canceled_like_any_other() {
    let agent = Agent::start(Card::Streaming, |text| match text {
        "book" => vec![Step::Ask("which day?")],
        "forever" => slow(text, ms(60_000)),
        day => vec![Step::Work("looking"), Step::Chunk(format!("booked for {day}")), Step::End("COMPLETED")],
    });
    let settings = [MEMORY, "max_in_flight = 1", "max_waiting = 0"];
    let gateway = Config::new().agent("brief", &agent.url(), &settings).start();
    let client = gateway.client();
    let asked = client.send("brief", "book").expect("a task");
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    let mut reply = message("Monday");
    reply["taskId"] = asked["id"].clone();
    let done = client.rpc("brief", "SendMessage", &json!({"message": reply})).expect("the task goes on");
    assert_eq!((state(&done["task"]), answer_text(&done["task"])), ("COMPLETED", "booked for Monday".into()));
    reply["messageId"] = json!("one too many");
    let over = client.rpc("brief", "SendMessage", &json!({"message": reply})).expect_err("it is over");
    assert_eq!(over.code, -32004, "{over:?}");

    let stream = client.stream("brief", "Tuesday").rest();
    assert_eq!((stream.text(), stream.last_state()), ("booked for Tuesday".into(), "COMPLETED".into()));

    let first = client.submit("brief", "forever").expect("a task");
    eventually(ms(5_000), "the agent works", || (agent.running() == 1).then_some(()));
    let refused = client.send("brief", "Wednesday").expect_err("there is no slot");
    assert_eq!((refused.reason.as_str(), refused.delivery.as_str()), ("bulkhead_full", "not_sent"), "{refused:?}");
    let canceled = client.cancel("brief", id(&first)).expect("canceled");
    assert_eq!(state(&canceled), "CANCELED");
    eventually(ms(5_000), "the agent stops", || (agent.running() == 0).then_some(()));
    gateway.assert_drains("brief", ms(5_000));
}

#[test]
fn what_was_durable_before_is_still_done_once() {
    let agent = Agent::echo();
    let mut gateway = Config::new().agent("quick", &agent.url(), &["durability = \"durable\""]).start();
    let params = json!({"message": message("pay 10")});
    let first = gateway.client().rpc("quick", "SendMessage", &params).expect("an answer");
    gateway.kill();
    gateway.rewrite("durability = \"durable\"", "durability = \"memory\"");
    gateway.start();
    let again = gateway.client().rpc("quick", "SendMessage", &params).expect("the same answer");
    assert_eq!((id(&again["task"]), agent.peer.executions()), (id(&first["task"]), 1));
}

//! One message is one execution, however often and however clumsily it is sent.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use serde_json::json;

use crate::agent::{Agent, slow};
use crate::client::{answer_text, id, message};
use crate::clock::ms;
use crate::gateway::Config;
use crate::peer::{After, Card, Peer};

#[test]
fn fifty_copies_of_a_message_are_one_execution() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(300)));
    let gateway = Config::new().agent("once", &agent.url(), &[]).start();
    let client = gateway.client();
    let params = json!({"message": message("pay 10")});
    let tasks = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let result = client.rpc("once", "SendMessage", &params).expect("an answer for every copy");
                assert_eq!(answer_text(&result["task"]), "done: pay 10");
                tasks.lock().unwrap().insert(id(&result["task"]).to_owned());
            });
        }
    });
    assert_eq!(agent.peer.executions(), 1);
    assert_eq!(tasks.into_inner().unwrap().len(), 1, "one task for all copies");

    // A copy that comes after the end gets the same answer from the record.
    let late = client.rpc("once", "SendMessage", &params).expect("an answer");
    assert_eq!(answer_text(&late["task"]), "done: pay 10");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn a_message_id_that_is_used_for_something_else_is_a_conflict() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("once", &agent.url(), &[]).start();
    let client = gateway.client();
    let first = message("refund 10");
    client.rpc("once", "SendMessage", &json!({"message": first})).expect("an answer");
    let mut second = first.clone();
    second["parts"][0]["text"] = json!("refund 100");
    let fault =
        client.rpc("once", "SendMessage", &json!({"message": second})).expect_err("another message under the same id");
    assert_eq!((fault.code, fault.reason.as_str()), (-32602, "message_id_conflict"), "{fault:?}");
    assert_eq!(agent.peer.executions(), 1);

    // The same message, written differently: its members in another order and with other spaces.
    let same = format!(
        r#"{{"jsonrpc":"2.0","id":"x","method":"SendMessage","params":{{ "message" : {{"parts": [ {{"text":"refund\u002010"}} ], "role":"ROLE_USER","messageId":{} }} }}}}"#,
        first["messageId"]
    );
    let headers = [("content-type", "application/json"), ("a2a-version", "1.0")];
    let answer =
        client.http("POST", "/agents/once", &headers, same.as_bytes()).unwrap().outcome().expect("the same message");
    assert_eq!(answer_text(&answer["task"]), "echo: refund 10");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn a_repeat_for_another_tenant_of_the_agent_is_a_conflict() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("once", &agent.url(), &[]).start();
    let client = gateway.client();
    let said = message("refund 10");
    let first = client.rpc("once", "SendMessage", &json!({"message": said, "tenant": "acme"})).expect("an answer");
    for other in [json!({"message": said, "tenant": "globex"}), json!({"message": said})] {
        let fault = client.rpc("once", "SendMessage", &other).expect_err("somebody else's refund");
        assert_eq!((fault.code, fault.reason.as_str()), (-32602, "message_id_conflict"), "{fault:?}");
    }
    // The same, said in the path.
    let body = json!({"message": said}).to_string();
    let again = client.http("POST", "/agents/once/acme/message:send", &[("a2a-version", "1.0")], body.as_bytes());
    assert_eq!(id(&again.unwrap().bare().expect("the first one's task")["task"]), id(&first["task"]));
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn the_same_id_toward_another_agent_is_another_message() {
    let (one, two) = (Agent::echo(), Agent::echo());
    let gateway = Config::new().agent("one", &one.url(), &[]).agent("two", &two.url(), &[]).start();
    let client = gateway.client();
    let params = json!({"message": message("hello")});
    client.rpc("one", "SendMessage", &params).expect("an answer");
    client.rpc("two", "SendMessage", &params).expect("an answer");
    assert_eq!((one.peer.executions(), two.peer.executions()), (1, 1));
    let sent = &params["message"]["messageId"];
    assert_eq!(&one.peer.received()[0].params()["message"]["messageId"], sent, "the id is the caller's, all the way");
}

#[test]
fn a_request_that_broke_off_after_it_was_read_is_not_sent_again() {
    let agent = Peer::start(Card::Plain, |request, wire| match request.method() {
        "SendMessage" | "SendStreamingMessage" => After::Reset,
        _ => wire.error(-32001, "no such task"),
    });
    let gateway = Config::new().agent("fragile", &agent.url(), &["attempts = 3"]).start();
    let fault = gateway.client().send("fragile", "transfer 100").expect_err("the agent broke off");
    assert_eq!(fault.delivery, "maybe_delivered", "{fault:?}");
    assert!(["agent_reset", "outcome_unknown"].contains(&fault.reason.as_str()), "{fault:?}");
    assert!(!fault.task.is_empty(), "there is a task to look up: {fault:?}");
    thread::sleep(ms(1000));
    assert_eq!(agent.executions(), 1);
}

#[test]
fn an_agent_that_is_declared_idempotent_may_be_asked_again() {
    let seen = Mutex::new(BTreeSet::new());
    let agent = Peer::start(Card::Plain, move |request, wire| match request.method() {
        "SendMessage" | "SendStreamingMessage" => {
            let message = request.params()["message"]["messageId"].to_string();
            if seen.lock().unwrap().insert(message) {
                return After::Reset;
            }
            wire.ok(
                &json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "second time lucky"}]}}),
            )
        }
        _ => wire.error(-32001, "no such task"),
    });
    let gateway = Config::new().agent("safe", &agent.url(), &["attempts = 2", "idempotent = true"]).start();
    let client = gateway.client();
    assert_eq!(answer_text(&client.send("safe", "look it up").expect("the second attempt works")), "second time lucky");
    assert_eq!(agent.executions(), 2);
}

#[test]
fn a_kept_connection_that_went_stale_costs_nothing() {
    // The agent closes idle connections after 300 ms; the next call finds a connection that looks open and is not.
    let agent = Peer::start(Card::Plain, |request, wire| {
        if !request.executes() {
            return wire.error(-32001, "no such task");
        }
        let after = wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "fine"}]}}));
        wire.close_when_idle(ms(300));
        after
    });
    let gateway = Config::new().agent("impatient", &agent.url(), &[]).start();
    let client = gateway.client();
    for n in 0..6 {
        client.send("impatient", "hello").unwrap_or_else(|fault| panic!("call {n}: {fault:?}"));
        thread::sleep(ms(400));
    }
    assert_eq!(agent.executions(), 6);
}

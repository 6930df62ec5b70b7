//! The two bindings toward agents: every operation over HTTP+JSON, and which of an agent's interfaces a call goes to.

use serde_json::{Value, json};

use crate::agent::{Agent, Step, length, slow};
use crate::client::{End, answer_text, id, message, state};
use crate::clock::{eventually, ms};
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer};

const REST: Card = Card::Interfaces(&[("HTTP+JSON", "/a2a")], true);
const BOTH: Card = Card::Interfaces(&[("HTTP+JSON", "/a2a"), ("JSONRPC", "/rpc")], true);
const NEITHER_STREAMS: Card = Card::Interfaces(&[("HTTP+JSON", "/a2a"), ("JSONRPC", "/rpc")], false);

/// Starts a gateway with one agent `a`, and waits until it has the agent's card.
fn start(url: &str, settings: &[&str]) -> Gateway {
    let gateway = Config::new().agent("a", url, settings).start();
    eventually(ms(10_000), "the agent's card is there", || (!shown(&gateway)["card"].is_null()).then_some(()));
    gateway
}

/// The agent as the API shows it, once it does.
fn shown(gateway: &Gateway) -> Value {
    let page = gateway.client().http("GET", "/v1/agents", &[], b"").unwrap();
    let page: Value = serde_json::from_slice(&page.body).unwrap();
    page["agents"][0].clone()
}

/// What the agent was asked, in order, and that it was all in HTTP+JSON.
#[track_caller]
fn methods(peer: &Peer) -> Vec<String> {
    let received = peer.received();
    assert!(received.iter().all(|one| one.rest && one.path().starts_with("/a2a/")), "{received:?}");
    received.iter().map(|one| one.method().to_owned()).collect()
}

fn script(text: &str) -> Vec<Step> {
    match text {
        "book" => vec![Step::Ask("which day?")],
        text if text.starts_with("slow") => slow(text, length(text)),
        text => {
            vec![Step::Work("on it"), Step::Chunk("echo: ".into()), Step::Chunk(text.into()), Step::End("COMPLETED")]
        }
    }
}

#[test]
fn every_way_of_asking_works_over_http_json() {
    for (mode, first) in [
        ("mode = \"auto\"", "SendStreamingMessage"),
        ("mode = \"poll\"", "SendMessage"),
        ("mode = \"blocking\"", "SendMessage"),
    ] {
        let agent = Agent::start(REST, script);
        let gateway = start(&agent.url(), &[mode]);
        let client = gateway.client();
        let task = client.send("a", "hello").unwrap();
        assert_eq!((state(&task), answer_text(&task)), ("COMPLETED", "echo: hello".into()), "{mode}");
        let streamed = client.stream("a", "again").rest();
        assert_eq!(
            (streamed.last_state(), streamed.text(), streamed.end),
            ("COMPLETED".into(), "echo: again".into(), End::Clean)
        );
        let task = client.submit("a", "later").unwrap();
        assert_eq!(answer_text(&client.ended("a", id(&task), ms(5000))), "echo: later");
        let methods = methods(&agent.peer);
        assert_eq!((methods[0].as_str(), agent.peer.executions()), (first, 3), "{mode}");
        assert!(methods.iter().all(|method| method == first || method == "GetTask"), "{methods:?}");
        assert_eq!(shown(&gateway)["interface"], json!({"binding": "HTTP+JSON", "path": "/a2a"}));
        let seen = agent.peer.received();
        assert!(
            seen.iter().all(|one| one.head.get("a2a-version") == Some("1.0") && one.head.get("traceparent").is_some())
        );
    }
}

#[test]
fn a_question_is_answered_and_a_long_task_canceled() {
    let agent = Agent::start(REST, script);
    let gateway = start(&agent.url(), &[]);
    let client = gateway.client();
    let asked = client.send("a", "book").unwrap();
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    let mut reply = message("Monday");
    reply["taskId"] = asked["id"].clone();
    let done = client.rpc("a", "SendMessage", &json!({"message": reply})).unwrap()["task"].clone();
    assert_eq!((id(&done), state(&done), answer_text(&done)), (id(&asked), "COMPLETED", "echo: Monday".into()));
    let follow_up = agent.peer.received()[1].params()["message"].clone();
    assert!(follow_up["taskId"].as_str().unwrap().starts_with("remote-"), "{follow_up}");

    let task = client.submit("a", "slow 60000").unwrap();
    eventually(ms(5000), "the agent works", || (agent.running() == 1).then_some(()));
    eventually(ms(5000), "the gateway knows", || {
        (state(&client.get("a", id(&task)).unwrap()) == "WORKING").then_some(())
    });
    assert_eq!(state(&client.cancel("a", id(&task)).unwrap()), "CANCELED");
    eventually(ms(5000), "the agent has stopped", || (agent.running() == 0).then_some(()));
    assert_eq!((agent.peer.count("CancelTask"), agent.in_state("CANCELED")), (1, 1));
    methods(&agent.peer);
    gateway.assert_drains("a", ms(2000));
}

#[test]
fn a_stream_that_is_cut_is_joined_again_and_executed_once() {
    let task = |state: &str| json!({"id": "t", "contextId": "c", "status": {"state": state}});
    let chunk = |text: &str| json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": true, "artifact": {"artifactId": "o", "parts": [{"text": text}]}}});
    let peer = Peer::start(REST, move |request, wire| match request.method() {
        "SendStreamingMessage" => {
            wire.events();
            wire.event(&json!({"task": task("TASK_STATE_WORKING")}));
            After::Reset
        }
        "SubscribeToTask" if request.head.line.starts_with("POST") => wire.answer(405, "text/plain", b"GET it"),
        "SubscribeToTask" => {
            wire.events();
            wire.event(&json!({"task": task("TASK_STATE_WORKING")}));
            wire.event(&chunk("the rest"));
            wire.event(&json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}));
            After::Close
        }
        "GetTask" => wire.ok(&task("TASK_STATE_WORKING")),
        _ => wire.error(-32601, "no such method"),
    });
    let gateway = start(&peer.url(), &[]);
    let done = gateway.client().send("a", "hello").unwrap();
    assert_eq!((state(&done), answer_text(&done)), ("COMPLETED", "the rest".into()));
    assert_eq!(methods(&peer), ["SendStreamingMessage", "GetTask", "SubscribeToTask", "SubscribeToTask"]);
}

#[test]
fn a_restart_finds_the_task_again() {
    let agent = Agent::start(REST, script);
    let mut gateway = start(&agent.url(), &["mode = \"poll\""]);
    let task = gateway.client().submit("a", "slow 3000").unwrap();
    eventually(ms(5000), "the gateway knows the agent's task", || {
        (state(&gateway.client().get("a", id(&task)).unwrap()) == "WORKING").then_some(())
    });
    gateway.kill();
    gateway.start();
    let done = gateway.client().ended("a", id(&task), ms(15_000));
    assert_eq!((state(&done), answer_text(&done)), ("COMPLETED", "done: slow 3000".into()));
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn errors_keep_their_meaning_between_the_bindings() {
    let peer = Peer::start(REST, |request, wire| match request.text() {
        "type" => wire.error(-32005, "no pictures"),
        "internal" => wire.error(-32603, "it broke"),
        "busy" => {
            wire.answer(503, "application/json", br#"{"error":{"code":503,"status":"UNAVAILABLE","message":"later"}}"#)
        }
        "page" => wire.answer(200, "text/html", b"<html>"),
        "both" => wire.answer(200, "application/json", br#"{"task":{"id":"t"},"error":{"code":500,"message":"m"}}"#),
        "cut" => {
            wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"task\":");
            After::Close
        }
        "taken" => wire.answer(202, "application/json", br#"{"status":"queued"}"#),
        _ => wire.answer(401, "text/plain", b"who?"),
    });
    let gateway = start(&peer.url(), &["mode = \"blocking\""]);
    let told = |text: &str| {
        let fault = gateway.client().send("a", text).unwrap_err();
        (fault.code, fault.reason.clone(), fault.delivery.clone())
    };
    assert_eq!(told("type"), (-32005, "agent_error".into(), "delivered".into()));
    assert_eq!(told("internal"), (-32603, "agent_error".into(), "delivered".into()));
    assert_eq!(told("page"), (-32006, "agent_malformed".into(), "maybe_delivered".into()));
    assert_eq!(told("both"), (-32006, "agent_malformed".into(), "maybe_delivered".into()));
    assert_eq!(told("cut"), (-32000, "agent_truncated".into(), "maybe_delivered".into()));
    assert_eq!(told("taken"), (-32000, "outcome_unknown".into(), "delivered".into()));
    assert_eq!(told("who"), (-32000, "agent_unauthorized".into(), "maybe_delivered".into()));
    assert_eq!(told("busy"), (-32000, "agent_http_error".into(), "maybe_delivered".into()));
    assert_eq!(peer.executions(), 8, "nothing was sent twice");
}

#[test]
fn where_surely_nobody_was_the_other_interface_is_used_and_remembered() {
    let peer = Peer::start(NEITHER_STREAMS, |request, wire| match request.rest {
        true => wire.answer(404, "text/html", b"<html>"),
        false => wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}})),
    });
    let gateway = start(&peer.url(), &[]);
    for _ in 0..3 {
        assert_eq!(answer_text(&gateway.client().send("a", "hello").unwrap()), "hi");
    }
    let paths: Vec<String> = peer.received().iter().map(|one| one.path().to_owned()).collect();
    assert_eq!(paths, ["/a2a/message:send", "/rpc", "/rpc", "/rpc"]);
    assert_eq!(shown(&gateway)["interface"], json!({"binding": "JSONRPC", "path": "/rpc"}));
}

#[test]
fn what_may_have_begun_is_not_tried_at_the_other_interface() {
    let peer = Peer::start(BOTH, |request, wire| match (request.rest, request.text()) {
        (true, "reset") => After::Reset,
        (true, "close") => After::Close,
        (true, _) => wire.answer(500, "text/html", b"<html>"),
        (false, _) => {
            wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "twice!"}]}}))
        }
    });
    let gateway = start(&peer.url(), &[]);
    for (n, text) in ["reset", "close", "broken"].iter().enumerate() {
        let fault = gateway.client().send("a", text).unwrap_err();
        assert_eq!(fault.delivery, "maybe_delivered", "{text}: {fault:?}");
        assert_eq!(peer.executions(), n + 1, "{text}: executed once");
    }
    methods(&peer);
}

#[test]
fn the_operator_may_choose_the_binding() {
    for (binding, path) in [("jsonrpc", "/rpc"), ("http+json", "/a2a/message:send")] {
        let agent = Agent::start(NEITHER_STREAMS, script);
        let gateway = start(&agent.url(), &[&format!("binding = \"{binding}\"")]);
        assert_eq!(state(&gateway.client().send("a", "hello").unwrap()), "COMPLETED");
        assert_eq!(agent.peer.received()[0].path(), path);
    }
    let agent = Agent::start(Card::Missing, script);
    let url = format!("{}base/", agent.url());
    let gateway = Config::new().agent("a", &url, &["binding = \"http+json\""]).start();
    assert_eq!(state(&gateway.client().send("a", "hello").unwrap()), "COMPLETED");
    assert_eq!(agent.peer.received()[0].path(), "/base/message:send", "without a card, at the configured address");
}

#[test]
fn a_callers_tenant_goes_along() {
    let agent = Agent::start(REST, script);
    let gateway = start(&agent.url(), &["mode = \"poll\""]);
    let client = gateway.client();
    let params =
        json!({"message": message("slow 30000"), "tenant": "t 1", "configuration": {"returnImmediately": true}});
    let task = client.rpc("a", "SendMessage", &params).unwrap()["task"].clone();
    eventually(ms(5000), "the agent is polled", || (agent.peer.count("GetTask") > 0).then_some(()));
    assert_eq!(state(&client.cancel("a", id(&task)).unwrap()), "CANCELED");
    for one in agent.peer.received() {
        let named = match one.executes() {
            true => one.params()["tenant"] == "t 1",
            false => one.head.line.contains("?tenant=t%201 "),
        };
        assert!(named, "{}", one.head.line);
    }
}

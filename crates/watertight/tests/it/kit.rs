//! The kit against itself, without a gateway: its client and its agents must be right before they may judge anything.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::agent::{Agent, OnCancel, Step, slow};
use crate::client::{Client, End, answer_text, id, message, state};
use crate::clock::{eventually, ms, now};
use crate::peer::{After, Card, Peer};

#[test]
fn the_agent_answers_polls_streams_and_cancels() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(200)));
    let client = Client::new(agent.peer.addr());
    let task = client.send("any", "hello").unwrap();
    assert_eq!((state(&task), answer_text(&task)), ("COMPLETED", "done: hello".into()));

    let task = client.submit("any", "later").unwrap();
    assert!(["SUBMITTED", "WORKING"].contains(&state(&task)));
    let subscribed = client.subscribe("any", id(&task)).rest();
    assert_eq!((subscribed.last_state(), subscribed.text()), ("COMPLETED".into(), "done: later".into()));
    assert_eq!(client.subscribe("any", id(&task)).refusal().unwrap_err().code, -32004);
    assert_eq!(state(&client.get("any", id(&task)).unwrap()), "COMPLETED");
    assert_eq!(client.cancel("any", id(&task)).unwrap_err().code, -32002);

    let streamed = client.stream("any", "now").rest();
    assert_eq!(
        (streamed.last_state(), streamed.text(), streamed.end),
        ("COMPLETED".into(), "done: now".into(), End::Clean)
    );
    assert_eq!((agent.peer.executions(), agent.most_running(), agent.running()), (3, 1, 0));
    assert_eq!(agent.peer.received()[0].text(), "hello");
}

#[test]
fn the_agent_stops_when_told_and_asks_when_it_must() {
    let agent = Agent::start(Card::Plain, |text| match text {
        "long" => slow(text, Duration::from_secs(30)),
        "book" => vec![Step::Ask("which day?")],
        day => vec![Step::Chunk(day.into()), Step::End("COMPLETED")],
    });
    let client = Client::new(agent.peer.addr());
    let task = client.submit("any", "long").unwrap();
    agent.on_cancel(OnCancel::Ignore);
    assert_ne!(state(&client.cancel("any", id(&task)).unwrap()), "CANCELED");
    agent.on_cancel(OnCancel::Stop);
    assert_eq!(state(&client.cancel("any", id(&task)).unwrap()), "CANCELED");
    eventually(ms(1000), "the turn is over", || (agent.running() == 0).then_some(()));
    assert_eq!(agent.in_state("CANCELED"), 1);

    let asked = client.send("any", "book").unwrap();
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    let mut reply = message("Monday");
    reply["taskId"] = asked["id"].clone();
    let done = client.rpc("any", "SendMessage", &json!({"message": reply})).unwrap();
    assert_eq!((id(&done["task"]), answer_text(&done["task"])), (id(&asked), "Monday".into()));
}

#[test]
fn the_peer_resets_closes_cuts_and_stays_silent() {
    let peer = Peer::start(Card::Missing, |request, wire| match request.text() {
        "reset" => After::Reset,
        "close" => After::Close,
        "cut" => {
            wire.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{");
            After::Close
        }
        _ => {
            wire.hold(ms(300));
            wire.error(-32603, "late")
        }
    });
    let client = Client::new(peer.addr());
    let kind =
        |text: &str| client.call("any", "SendMessage", &json!({"message": message(text)}), &[]).unwrap_err().kind();
    assert_eq!(kind("reset"), std::io::ErrorKind::ConnectionReset);
    assert_eq!(kind("close"), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(kind("cut"), std::io::ErrorKind::UnexpectedEof);
    let start = now();
    assert_eq!(client.send("any", "late").unwrap_err().code, -32603);
    assert!(start.elapsed() >= ms(300));
    assert_eq!((peer.executions(), peer.most_at_once()), (4, 1));
}

#[test]
fn the_peers_streams_break_as_scripted() {
    let peer = Peer::start(Card::Streaming, |request, wire| {
        wire.events();
        wire.event(&json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}));
        wire.hold(ms(100));
        if request.text() == "reset" { After::Reset } else { After::Close }
    });
    let client = Client::new(peer.addr());
    for (kind, end) in [("reset", End::Broken), ("close", End::Clean)] {
        let ended = client.stream("any", kind).rest();
        assert_eq!((ended.states(), ended.end), (vec!["WORKING".to_owned()], end));
    }
    let mut events = client.stream("any", "left");
    events.next().unwrap().unwrap();
    events.leave();
}

#[test]
fn a_peer_that_is_gone_is_gone() {
    let peer = Peer::hole();
    let client = Client::new(peer.addr());
    let waiting = client.clone();
    let call = thread::spawn(move || waiting.http("POST", "/", &[], b"{}"));
    eventually(ms(2000), "the peer was called", || (!peer.received().is_empty()).then_some(()));
    drop(peer);
    assert!(call.join().unwrap().is_err(), "its connections end with it");
    assert!(client.http("POST", "/", &[], b"{}").is_err(), "nothing listens any more");
}

//! Agents' cards behind all kinds of trouble: missing, elsewhere, slow, huge, broken. A card is a help, and never what a call
//! depends on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{answer_text, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Peer, Received, Wire, card_of};

const INTERFACES: &[(&str, &str)] = &[("JSONRPC", "/")];

/// An agent that streams `hi`, or refuses the credential of whoever sends `refuse`.
fn answer(request: &Received, wire: &mut Wire) -> After {
    let task = |state: &str| json!({"id": format!("t-{}", request.rpc["id"]), "contextId": "c", "status": {"state": state}, "artifacts": [{"artifactId": "o", "parts": [{"text": "hi"}]}]});
    match (request.method(), request.text()) {
        (_, "refuse") => wire.answer(401, "text/plain", b"who?"),
        ("SendStreamingMessage", _) => {
            wire.events();
            wire.event(&json!({"task": task("TASK_STATE_COMPLETED")}));
            After::Close
        }
        _ => wire.ok(&json!({"task": task("TASK_STATE_COMPLETED")})),
    }
}

fn good(request: &Received, wire: &mut Wire) -> After {
    let card = card_of(request.head.get("host").unwrap(), INTERFACES, true);
    wire.answer_with(
        200,
        &[("content-type", "application/json"), ("etag", "\"one\""), ("cache-control", "max-age=3600")],
        card.to_string().as_bytes(),
    )
}

fn card(gateway: &Gateway) -> Value {
    let page = gateway.client().http("GET", "/v1/agents", &[], b"").unwrap();
    let page: Value = serde_json::from_slice(&page.body).unwrap();
    page["agents"][0]["card"].clone()
}

fn has_card(gateway: &Gateway) -> Value {
    eventually(ms(10_000), "the agent's card is there", || Some(card(gateway)).filter(|card| !card.is_null()))
}

#[track_caller]
fn works(gateway: &Gateway) {
    let task = gateway.client().send("a", "hello").unwrap();
    assert_eq!((state(&task), answer_text(&task)), ("COMPLETED", "hi".into()));
}

#[test]
fn an_agent_needs_no_card() {
    let peer = Peer::with_cards(|_, wire| wire.answer(404, "text/plain", b"no card"), answer);
    let gateway = Config::new().agent("a", &format!("{}rpc/here?k=v", peer.url()), &[]).start();
    works(&gateway);
    assert_eq!((card(&gateway), peer.received()[0].head.line.as_str()), (Value::Null, "POST /rpc/here?k=v HTTP/1.1"));
    let asked: Vec<String> = peer.cards().iter().map(|one| one.head.line.clone()).collect();
    let place = |path: &str| format!("GET {path}/.well-known/agent-card.json?k=v HTTP/1.1");
    assert_eq!(asked[..2], [place("/rpc/here"), place("")], "the query is kept");
}

#[test]
fn a_card_is_found_below_a_prefix_and_where_it_is_configured() {
    let below = |wanted: &'static str| {
        move |request: &Received, wire: &mut Wire| match request.head.line.contains(wanted) {
            true => good(request, wire),
            false => wire.answer(404, "text/plain", b"not here"),
        }
    };
    let peer = Peer::with_cards(below(" /v2/a/.well-known/agent-card.json "), answer);
    let gateway = Config::new().agent("a", &format!("{}v2/a", peer.url()), &[]).start();
    let seen = has_card(&gateway);
    assert_eq!(
        (&seen["source"], &seen["stale"]),
        (&json!(format!("{}v2/a/.well-known/agent-card.json", peer.url())), &json!(false))
    );
    works(&gateway);
    assert_eq!(peer.received()[0].method(), "SendStreamingMessage", "the card was followed");

    let peer = Peer::with_cards(below(" /cards/x.json?who=a&v=2 "), answer);
    let source = format!("{}cards/x.json?who=a&v=2", peer.url());
    let gateway = Config::new().agent("a", &peer.url(), &[&format!("card = \"{source}\"")]).start();
    assert_eq!(has_card(&gateway)["source"], json!(source));
    works(&gateway);
    assert_eq!(peer.cards().len(), 1, "the query was kept, and nowhere else was looked");
}

#[test]
fn a_card_at_the_root_of_the_host_is_not_taken_for_another_agents() {
    let root = |interfaces: &'static [(&'static str, &'static str)]| {
        move |request: &Received, wire: &mut Wire| match request.head.line.contains(" /.well-known/agent-card.json ") {
            true => wire.answer(
                200,
                "application/json",
                card_of(request.head.get("host").unwrap(), interfaces, true).to_string().as_bytes(),
            ),
            false => wire.answer(404, "text/plain", b"not here"),
        }
    };
    for (interfaces, is_its) in [
        (&[("JSONRPC", "/b/x/rpc")][..], true),
        (&[("JSONRPC", "/other"), ("JSONRPC", "/b/x")], true),
        (&[("JSONRPC", "/other")], false),
        (&[("JSONRPC", "/b/xy")], false),
        (&[("JSONRPC", "/")], false),
    ] {
        let peer = Peer::with_cards(root(interfaces), answer);
        let gateway = Config::new().agent("a", &format!("{}b/x/", peer.url()), &[]).start();
        eventually(ms(10_000), "both places were looked at", || (peer.cards().len() >= 2).then_some(()));
        works(&gateway);
        let line = peer.received()[0].head.line.clone();
        assert_eq!(line != "POST /b/x/ HTTP/1.1", is_its, "{interfaces:?}: {line}");
        assert_eq!(!card(&gateway).is_null(), is_its, "{interfaces:?}");
    }
}

#[test]
fn a_hundred_first_uses_fetch_one_card_and_go_on_without_its_server() {
    let trouble = Arc::new(AtomicUsize::new(0));
    let kind = trouble.clone();
    let peer = Peer::with_cards(
        move |request, wire| match kind.load(Ordering::SeqCst) {
            0 => good(request, wire),
            1 => wire.answer(500, "text/plain", b"down"),
            2 => wire.answer(200, "text/html", b"<html>maintenance</html>"),
            3 => After::Reset,
            4 => wire.answer(200, "application/json", &vec![b' '; 50 << 20]),
            5 => drip(wire),
            _ if request.head.get("if-none-match") == Some("\"one\"") => wire.answer(304, "text/plain", b""),
            _ => wire.answer(500, "text/plain", b"unconditional"),
        },
        answer,
    );
    let gateway = Config::new().agent("a", &peer.url(), &["max_in_flight = 100", "max_waiting = 100"]).start();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let client = gateway.client();
            thread::spawn(move || client.send("a", "hello").map(|task| state(&task).to_owned()))
        })
        .collect();
    for call in calls {
        assert_eq!(call.join().unwrap().unwrap(), "COMPLETED");
    }
    assert_eq!(peer.cards().len(), 1);
    assert_eq!(has_card(&gateway)["stale"], false);

    // A refused credential casts doubt on the card, which is asked for again: in vain, and calls go on.
    for trouble_no in 1..=4 {
        trouble.store(trouble_no, Ordering::SeqCst);
        let before = peer.cards().len();
        let fault = gateway.client().send("a", "refuse").unwrap_err();
        assert_eq!(fault.reason, "agent_unauthorized");
        eventually(ms(15_000), "the card was asked for again", || {
            // Doubt is not for ever: more of it may be needed while failed fetches are spaced.
            gateway.client().send("a", "refuse").unwrap_err();
            (peer.cards().len() > before).then_some(())
        });
        eventually(ms(5000), "the card is marked stale", || (card(&gateway)["stale"] == true).then_some(()));
        works(&gateway);
    }
    let last = peer.received().pop().unwrap();
    assert_eq!(last.method(), "SendStreamingMessage", "by the last good card");
    trouble.store(6, Ordering::SeqCst);
    eventually(ms(30_000), "the card is fresh again", || {
        works(&gateway);
        (card(&gateway)["stale"] == false).then_some(())
    });
    assert!(card(&gateway)["fetchedAgoMs"].as_u64().unwrap() < 20_000);

    // A card that comes byte by byte is waited for by nobody.
    trouble.store(5, Ordering::SeqCst);
    let before = peer.cards().len();
    eventually(ms(15_000), "the card was asked for again", || {
        gateway.client().send("a", "refuse").unwrap_err();
        (peer.cards().len() > before).then_some(())
    });
    let start = now();
    works(&gateway);
    assert!(start.elapsed() < ms(5000), "{:?}", start.elapsed());
}

/// A card that never comes to its end: a byte a second.
fn drip(wire: &mut Wire) -> After {
    wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n");
    while wire.raw(b" ") && wire.hold(Duration::from_secs(1)) {}
    After::Close
}

#[test]
fn a_card_that_drips_or_is_huge_delays_nobody_for_long() {
    let huge = |_: &Received, wire: &mut Wire| {
        wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"name\":\"");
        let block = vec![b'x'; 1 << 20];
        while wire.raw(&block) {}
        After::Close
    };
    let drip = Peer::with_cards(|_, wire| drip(wire), answer);
    let huge = Peer::with_cards(huge, answer);
    for peer in [&drip, &huge] {
        let gateway = Config::new().agent("a", &peer.url(), &[]).start();
        let before = gateway.resident();
        let start = now();
        works(&gateway);
        works(&gateway);
        assert!(start.elapsed() < ms(5000), "{:?}", start.elapsed());
        assert_eq!((card(&gateway), peer.received()[0].method()), (Value::Null, "SendMessage"));
        assert!(gateway.resident() < before + (40 << 10), "{} KiB, then {} KiB", before, gateway.resident());
    }
}

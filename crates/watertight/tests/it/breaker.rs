//! Breakers: what counts against an agent and what does not, refusals that cost nothing, a single probe, and no storm of attempts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::clock::{eventually, ms, now, percentile};
use crate::gateway::Config;
use crate::peer::{After, Card, Peer, Wire};

const FIVE: &[&str] =
    &["breaker.consecutive_failures = 5", "breaker.ejection_base = \"1s\"", "breaker.ejection_max = \"2s\""];

fn fine(wire: &mut Wire) -> After {
    wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "fine"}]}}))
}

#[test]
fn a_callers_faults_do_not_open_it() {
    let turn = AtomicUsize::new(0);
    let agent = Peer::start(Card::Missing, move |request, wire| match turn.fetch_add(1, Ordering::SeqCst) % 4 {
        _ if !request.executes() => wire.error(-32001, "no such task"),
        0 => wire.answer(401, "text/plain", b"who are you?"),
        1 => wire.error(-32602, "what is this?"),
        2 => wire.answer(404, "text/plain", b"nothing here"),
        _ => wire.ok(&json!({"task": {
            "id": crate::client::fresh("t"), "contextId": "c", "status": {"state": "TASK_STATE_FAILED"},
        }})),
    });
    let gateway = Config::new().agent("strict", &agent.url(), FIVE).start();
    let client = gateway.client();
    for n in 0..20 {
        let outcome = client.send("strict", "let me in");
        assert!(outcome.as_ref().err().is_none_or(|fault| fault.reason != "breaker_open"), "call {n}: {outcome:?}");
    }
    assert_eq!(agent.executions(), 20);
}

#[test]
fn an_agents_faults_open_it_and_then_refusals_are_fast() {
    for (kind, fault) in [
        ("reset", (|_: &mut Wire| After::Reset) as fn(&mut Wire) -> After),
        ("error page", |wire| wire.answer(502, "text/html", b"<html>")),
        ("garbage", |wire| wire.answer(200, "application/json", b"[]")),
        ("an error that is none", |wire| {
            wire.answer(200, "application/json", br#"{"jsonrpc":"2.0","error":"model overloaded"}"#)
        }),
        ("cut", |wire| {
            wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{");
            After::Close
        }),
    ] {
        let agent = Peer::start(
            Card::Missing,
            move |request, wire| if request.executes() { fault(wire) } else { wire.error(-32001, "no") },
        );
        let settings =
            ["breaker.consecutive_failures = 5", "breaker.ejection_base = \"30s\"", "breaker.ejection_max = \"60s\""];
        let gateway = Config::new().agent("broken", &agent.url(), &settings).start();
        let client = gateway.client();
        for n in 0..5 {
            let fault = client.send("broken", "hello").expect_err("it is broken");
            assert_ne!(fault.reason, "breaker_open", "{kind}, call {n}: {fault:?}");
        }
        let reached = agent.executions();
        let mut times = Vec::new();
        for _ in 0..20 {
            let start = now();
            let fault = client.send("broken", "hello").expect_err("it is ejected");
            times.push(start.elapsed());
            assert_eq!(
                (fault.code, fault.reason.as_str(), fault.delivery.as_str()),
                (-32000, "breaker_open", "not_sent"),
                "{kind}: {fault:?}"
            );
            assert_eq!(fault.agent, "broken");
        }
        assert_eq!(agent.executions(), reached, "{kind}: a refused call must not reach the agent");
        // The promise is 5 ms; half of the refusals must keep it with room for a busy machine.
        assert!(percentile(times.clone(), 0.5) < ms(50), "{kind}: {:?}", percentile(times, 0.5));
    }
}

#[test]
fn a_single_probe_readmits() {
    let sick = Arc::new(AtomicBool::new(true));
    let state = sick.clone();
    let agent = Peer::start(Card::Missing, move |request, wire| {
        if !request.executes() {
            return wire.error(-32001, "no such task");
        }
        if state.load(Ordering::SeqCst) {
            return After::Reset;
        }
        wire.hold(ms(900));
        fine(wire)
    });
    let gateway = Config::new().agent("moody", &agent.url(), FIVE).start();
    let client = gateway.client();
    for _ in 0..5 {
        client.send("moody", "hello").expect_err("it is sick");
    }
    assert_eq!(client.send("moody", "hello").expect_err("it is ejected").reason, "breaker_open");
    let before = agent.executions();
    sick.store(false, Ordering::SeqCst);
    thread::sleep(ms(1400));

    // Fifty callers at the moment of the trial: one of them is let through, and while it is out, nobody else.
    let (good, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| match client.send("moody", "well again?") {
                Ok(_) => good.fetch_add(1, Ordering::SeqCst),
                Err(fault) if fault.reason == "breaker_open" => refused.fetch_add(1, Ordering::SeqCst),
                Err(fault) => panic!("{fault:?}"),
            });
        }
    });
    assert_eq!((good.into_inner(), refused.into_inner()), (1, 49));
    assert_eq!(agent.executions() - before, 1, "one probe");
    client.send("moody", "hello again").expect("it is admitted again");
}

#[test]
fn a_probe_that_hangs_expires() {
    let turn = Arc::new(AtomicUsize::new(0));
    let count = turn.clone();
    let agent = Peer::start(Card::Missing, move |request, wire| {
        if !request.executes() {
            return wire.error(-32001, "no such task");
        }
        match count.fetch_add(1, Ordering::SeqCst) {
            0..5 => After::Reset,
            5 => {
                wire.hold(Duration::from_secs(60));
                After::Close
            }
            _ => fine(wire),
        }
    });
    let settings = [
        "budget = \"1s\"",
        "breaker.consecutive_failures = 5",
        "breaker.ejection_base = \"300ms\"",
        "breaker.ejection_max = \"500ms\"",
    ];
    let gateway = Config::new().agent("hung", &agent.url(), &settings).start();
    let client = gateway.client();
    for _ in 0..5 {
        client.send("hung", "hello").expect_err("it is broken");
    }
    // Whatever the first probe does, there is another trial, and it succeeds.
    eventually(ms(15_000), "the agent is admitted again", || client.send("hung", "hello").ok());
    assert!(turn.load(Ordering::SeqCst) >= 7);
}

#[test]
fn an_agent_that_asks_for_a_pause_gets_it() {
    let asked = Arc::new(AtomicBool::new(false));
    let once = asked.clone();
    let agent = Peer::start(Card::Missing, move |request, wire| {
        if !request.executes() {
            return wire.error(-32001, "no such task");
        }
        if once.swap(true, Ordering::SeqCst) {
            return fine(wire);
        }
        wire.answer_with(429, &[("content-type", "text/plain"), ("retry-after", "2")], b"slower, please")
    });
    let gateway = Config::new().agent("tired", &agent.url(), &[]).start();
    let client = gateway.client();
    client.send("tired", "hello").expect_err("it asked for a pause");
    // Several callers share the pause: whether they wait or are refused, none reaches the agent before it is over.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| eventually(ms(10_000), "the agent is called again", || client.send("tired", "hello").ok()));
        }
    });
    let times: Vec<_> = agent.received().iter().filter(|r| r.executes()).map(|r| r.at).collect();
    assert!(times[1] - times[0] >= ms(1900), "called again after {:?}", times[1] - times[0]);
    assert!(times[1] - times[0] < ms(8000), "called again only after {:?}", times[1] - times[0]);
}

#[test]
fn a_pause_that_makes_no_sense_is_ignored() {
    let junk = Arc::new(Mutex::new(Some("\u{b2}")));
    let next = junk.clone();
    let agent = Peer::start(Card::Missing, move |request, wire| {
        if !request.executes() {
            return wire.error(-32001, "no such task");
        }
        match next.lock().unwrap().take() {
            Some(value) => wire.answer_with(503, &[("content-type", "text/plain"), ("retry-after", value)], b"later"),
            None => fine(wire),
        }
    });
    let gateway = Config::new().agent("odd", &agent.url(), &[]).start();
    let client = gateway.client();
    for value in ["\u{b2}", "-5", "soon", "", "1e9"] {
        *junk.lock().unwrap() = Some(value);
        client.send("odd", "hello").expect_err("it is busy");
        eventually(ms(5000), &format!("after a pause of {value:?} the agent is called again"), || {
            client.send("odd", "hello").ok()
        });
    }
}

#[test]
fn attempts_do_not_multiply_an_outage() {
    let agent = Peer::start(Card::Missing, |request, wire| match request.executes() {
        true => wire.answer(503, "text/plain", b"busy"),
        false => wire.error(-32001, "no such task"),
    });
    // Even where the agent may be asked again: attempts are a share of the traffic, not a multiple of it.
    let gateway =
        Config::new().agent("down", &agent.url(), &["attempts = 3", "idempotent = true", "max_in_flight = 16"]).start();
    let client = gateway.client();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    client.send("down", "hello").expect_err("it is down");
                    thread::sleep(ms(5));
                }
            });
        }
    });
    let sent = agent.executions();
    assert!(sent <= 250, "200 calls became {sent} requests");
}

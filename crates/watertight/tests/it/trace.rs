//! Traces that go through, and logs that cannot be forged.

use crate::agent::{Agent, slow};
use crate::client::{answer_text, id, message, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::{Card, Peer};

use serde_json::json;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// The trace and span ids of a well-formed header.
fn parts(header: &str) -> (String, String) {
    let parts: Vec<&str> = header.split('-').collect();
    let hex = |s: &str, n| s.len() == n && s.chars().all(|c| c.is_ascii_hexdigit()) && s.chars().any(|c| c != '0');
    assert!(parts.len() == 4 && parts[0] == "00" && hex(parts[1], 32) && hex(parts[2], 16), "{header:?}");
    (parts[1].to_owned(), parts[2].to_owned())
}

#[test]
fn a_trace_goes_through_with_a_span_of_its_own() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("echo", &agent.url(), &[]).start();
    let header = format!("00-{TRACE}-{SPAN}-01");
    let headers = [("traceparent", header.as_str()), ("tracestate", "vendor=1")];
    let answer = gateway.client().call("echo", "SendMessage", &json!({"message": message("hello")}), &headers).unwrap();
    assert_eq!(answer_text(&answer.outcome().expect("an answer")["task"]), "echo: hello");
    let sent = &agent.peer.received()[0];
    let (trace, span) = parts(sent.head.get("traceparent").expect("a traceparent"));
    assert_eq!(trace, TRACE);
    assert_ne!(span, SPAN, "a span of its own");
    assert_eq!(sent.head.get("tracestate"), Some("vendor=1"));
    assert_eq!(sent.head.get("a2a-version"), Some("1.0"));
}

#[test]
fn a_trace_survives_a_restart() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(2500)));
    let mut gateway = Config::new().agent("slow", &agent.url(), &[]).start();
    let header = format!("00-{TRACE}-{SPAN}-01");
    let params = json!({"message": message("work"), "configuration": {"returnImmediately": true}});
    let answer = gateway.client().call("slow", "SendMessage", &params, &[("traceparent", &header)]).unwrap();
    let task = answer.outcome().expect("a task")["task"].clone();
    // Not only the agent has it: the gateway knows how the task is called there.
    let client = gateway.client();
    let works = || (state(&client.get("slow", id(&task)).unwrap()) == "WORKING").then_some(());
    eventually(ms(3000), "the agent is known to work", works);
    gateway.kill();
    let before = agent.peer.received().len();
    gateway.start();
    gateway.client().ended("slow", id(&task), ms(15_000));
    let after = agent.peer.received().split_off(before);
    assert!(!after.is_empty(), "the agent was asked again");
    for asked in after {
        let (trace, _) =
            parts(asked.head.get("traceparent").unwrap_or_else(|| panic!("{} without a trace", asked.method())));
        assert_eq!(trace, TRACE, "{}", asked.method());
    }
}

#[test]
fn a_broken_trace_breaks_nothing() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("echo", &agent.url(), &[]).start();
    let client = gateway.client();
    let zeros = format!("00-{}-{SPAN}-01", "0".repeat(32));
    for broken in ["garbage", "", "00-xyz-00-01", zeros.as_str(), &"a".repeat(3000)] {
        let params = json!({"message": message("hello")});
        let answer = client.call("echo", "SendMessage", &params, &[("traceparent", broken)]).unwrap();
        answer.outcome().unwrap_or_else(|fault| panic!("{broken:.40?}: {fault:?}"));
        let received = agent.peer.received().pop().unwrap();
        if let Some(header) = received.head.get("traceparent") {
            let (trace, _) = parts(header);
            assert_ne!(trace, "0".repeat(32));
        }
    }
}

#[test]
fn what_an_agent_says_cannot_forge_a_log_line() {
    let agent = Peer::start(Card::Missing, |request, wire| {
        if request.text() == "error" {
            wire.error(-32603, "x\u{1b}[2J\u{7}\nlevel=error forged=1\r\nINFO forged two\u{202e}")
        } else {
            wire.answer(502, "text/\u{7f}plain", "\u{1b}[31mx\nINFO forged three".as_bytes())
        }
    });
    let gateway = Config::new().agent("forger", &agent.url(), &[]).start();
    let client = gateway.client();
    for text in ["error", "page"] {
        let fault = client.send("forger", text).expect_err("an error");
        assert!(!fault.message.chars().any(|c| c == '\u{1b}' || c == '\n'), "{fault:?}");
    }
    // An id from a caller is as foreign as a text from an agent.
    let _any = client.get("forger", "x\u{1b}[2J\nINFO forged four");
    let log = gateway.log();
    assert!(!log.contains('\u{1b}'), "an escape character in the log: {log:?}");
    for line in log.lines() {
        let start = line.trim_start();
        assert!(!start.starts_with("level=error forged") && !start.starts_with("INFO forged"), "{line:?}");
    }
}

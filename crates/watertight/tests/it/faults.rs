//! Agents that are not there, that break off, or that answer with something that is no answer: each in its own words, soon, and without a trace.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::{Client, Outcome, answer_text, fresh, is_terminal, state};
use crate::clock::{ms, now};
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer};

/// The promise is 2 s; a busy machine gets more.
const SOON: std::time::Duration = ms(10_000);

#[test]
fn five_ways_of_being_absent_have_five_reasons() {
    let reset = Peer::start(Card::Missing, |_, _| After::Reset);
    let silent = Peer::hole();
    let busy = Peer::start(Card::Missing, |_, wire| wire.answer(503, "text/plain", b"come back later"));
    let gateway = Config::new()
        .agent("closed", &Peer::closed_port(), &[])
        .agent("reset", &reset.url(), &[])
        .agent("unknown", "http://no-such-host.invalid/", &[])
        .agent("silent", &silent.url(), &["budget = \"1s\""])
        .agent("busy", &busy.url(), &[])
        .start();
    let client = gateway.client();
    let expected = [
        ("closed", &["agent_connect_refused"][..], "not_sent"),
        ("unknown", &["agent_dns_failure"], "not_sent"),
        ("reset", &["agent_reset"], "maybe_delivered"),
        ("silent", &["agent_no_answer", "deadline_exceeded"], "maybe_delivered"),
        ("busy", &["agent_http_error"], "maybe_delivered"),
    ];
    for (agent, reasons, delivery) in expected {
        let start = now();
        let fault = client.send(agent, "hello").expect_err("there is no answer to be had");
        assert!(start.elapsed() < SOON, "{agent}: {:?}", start.elapsed());
        assert_eq!((fault.code, fault.agent.as_str()), (-32000, agent), "{fault:?}");
        assert!(reasons.contains(&fault.reason.as_str()), "{agent}: {fault:?}");
        assert_eq!(fault.delivery, delivery, "{fault:?}");
        assert!(fault.message.contains(agent), "the message names the agent: {fault:?}");
    }
    assert_eq!((reset.executions(), busy.executions()), (1, 1), "what may have been delivered is never sent again");
    assert_eq!(silent.executions(), 1);
}

#[test]
fn what_was_never_sent_may_be_tried_again() {
    // The port is closed at first; the agent comes up between two calls, not between two attempts, so that this is deterministic.
    let url = Peer::closed_port();
    let gateway = Config::new().agent("late", &url, &["attempts = 2"]).start();
    let client = gateway.client();
    for _ in 0..3 {
        let fault = client.send("late", "hello").expect_err("nothing listens");
        assert_eq!(
            (fault.reason.as_str(), fault.delivery.as_str()),
            ("agent_connect_refused", "not_sent"),
            "{fault:?}"
        );
    }
}

/// What a strange answer may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The meaning is plain, so it is taken.
    Taken,
    /// It is refused as no answer.
    Malformed,
    /// It is reported as the failure that it is.
    Failure,
    /// Either refused, or kept as a task that has not ended: never taken for a result.
    NoResult,
}

/// A strange answer, made from the request's id.
type Answer = fn(&Value) -> (u16, &'static str, Vec<u8>);

fn result(id: &Value, result: &Value) -> (u16, &'static str, Vec<u8>) {
    envelope(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn envelope(body: &Value) -> (u16, &'static str, Vec<u8>) {
    (200, "application/json", body.to_string().into_bytes())
}

/// A result under an id of its own: an id that was seen before would itself be strange.
fn done() -> Value {
    json!({
        "id": fresh("t"), "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "strange but fine"}]}],
    })
}

fn said() -> Value {
    json!({"messageId": fresh("m"), "role": "ROLE_AGENT", "parts": [{"text": "strange but fine"}]})
}

const STRANGE: &[(&str, Verdict, Answer)] = &[
    ("a task without its wrapper", Verdict::Taken, |id| result(id, &done())),
    ("a message without its wrapper", Verdict::Taken, |id| result(id, &said())),
    ("members nobody knows", Verdict::Taken, |id| {
        let mut task = done();
        task["x-vendor"] = json!({"n": 1});
        result(id, &json!({"task": task}))
    }),
    ("both a task and a message", Verdict::Malformed, |id| result(id, &json!({"task": done(), "message": said()}))),
    ("a null result", Verdict::Malformed, |id| result(id, &Value::Null)),
    ("an empty result", Verdict::Malformed, |id| result(id, &json!({}))),
    ("a result that is a string", Verdict::Malformed, |id| result(id, &json!("done"))),
    ("a wrapper with a wrong name", Verdict::Malformed, |id| result(id, &json!({"Task": done()}))),
    ("a result and an error", Verdict::NoResult, |id| {
        envelope(
            &json!({"jsonrpc": "2.0", "id": id, "result": {"task": done()}, "error": {"code": -32603, "message": "no"}}),
        )
    }),
    ("an error that is a string", Verdict::Malformed, |id| {
        envelope(&json!({"jsonrpc": "2.0", "id": id, "error": "model overloaded"}))
    }),
    ("an error without a code", Verdict::Malformed, |id| {
        envelope(&json!({"jsonrpc": "2.0", "id": id, "error": {"message": "no"}}))
    }),
    ("an empty object", Verdict::Malformed, |_| envelope(&json!({}))),
    ("an array", Verdict::Malformed, |_| envelope(&json!([]))),
    ("a login page", Verdict::Malformed, |_| (200, "text/html", b"<html><h1>Please log in</h1></html>".to_vec())),
    ("a proxy's error page", Verdict::Failure, |_| (502, "text/html", b"<html><h1>Bad Gateway</h1></html>".to_vec())),
    ("another request's id", Verdict::Malformed, |_| result(&json!("somebody-elses"), &json!({"task": done()}))),
    ("no id at all", Verdict::Taken, |_| envelope(&json!({"jsonrpc": "2.0", "result": {"task": done()}}))),
    ("a task without a status", Verdict::Malformed, |id| {
        result(id, &json!({"task": {"id": "t-2", "contextId": "c-2"}}))
    }),
    ("a task without an id", Verdict::Malformed, |id| {
        result(id, &json!({"task": {"status": {"state": "TASK_STATE_COMPLETED"}}}))
    }),
    ("a task with an empty id", Verdict::Malformed, |id| {
        result(id, &json!({"task": {"id": "", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}))
    }),
    ("a message without parts", Verdict::Malformed, |id| {
        result(id, &json!({"message": {"messageId": "m", "role": "ROLE_AGENT"}}))
    }),
    ("JSON that stops in the middle", Verdict::Malformed, |_| {
        (200, "application/json", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"resu".to_vec())
    }),
    ("bytes that are no text", Verdict::Malformed, |_| (200, "application/json", vec![0xff, 0xfe, 0x00, 0x80])),
    ("a state nobody knows", Verdict::NoResult, |id| {
        result(id, &json!({"task": {"id": "t-3", "contextId": "c-3", "status": {"state": "TASK_STATE_PAUSED"}}}))
    }),
    ("no content", Verdict::NoResult, |_| (204, "application/json", Vec::new())),
    ("an empty body", Verdict::Malformed, |_| (200, "application/json", Vec::new())),
    ("a refusal to let us in", Verdict::Failure, |_| (401, "text/plain", b"hello".to_vec())),
    ("a redirect", Verdict::Failure, |_| (307, "text/plain", Vec::new())),
    ("JSON of a hundred thousand levels", Verdict::Malformed, |_| (200, "application/json", vec![b'['; 100_000])),
];

#[test]
fn strange_answers_end_soon_and_leave_no_trace() {
    let strange: Arc<Mutex<Option<Answer>>> = Arc::default();
    let next = strange.clone();
    let agent = Peer::start(Card::Plain, move |request, wire| {
        let answer = *next.lock().unwrap();
        match answer {
            Some(answer) => {
                let (status, content_type, body) = answer(&request.rpc["id"]);
                wire.answer(status, content_type, &body)
            }
            None if request.executes() => wire.ok(&json!({"message": said()})),
            None => wire.error(-32001, "no such task"),
        }
    });
    let mut gateway = Config::new().agent("odd", &agent.url(), &["wait = \"1s\"", "budget = \"2s\""]).start();
    let client = gateway.client();

    let mut wrong = Vec::new();
    for (name, verdict, answer) in STRANGE {
        *strange.lock().unwrap() = Some(*answer);
        let start = now();
        let outcome = client.send("odd", name);
        let took = start.elapsed();
        if took > SOON {
            wrong.push(format!("{name}: took {took:?}"));
        }
        if let Err(complaint) = judge(*verdict, &outcome) {
            wrong.push(format!("{name}: {complaint}: {outcome:?}"));
        }
        *strange.lock().unwrap() = None;
        match client.send("odd", "and now?") {
            Ok(fine) if answer_text(&fine) == "strange but fine" => {}
            other => wrong.push(format!("{name}: the next call got {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    healthy(&mut gateway);
}

fn judge(verdict: Verdict, outcome: &Outcome) -> Result<(), String> {
    let fault = match (verdict, outcome) {
        (Verdict::Taken, Ok(it)) if answer_text(it) == "strange but fine" => return Ok(()),
        (Verdict::NoResult, Ok(task)) if task.get("status").is_some() && !is_terminal(state(task)) => return Ok(()),
        (Verdict::Taken, _) => return Err("the meaning was plain".into()),
        (_, Ok(_)) => return Err("taken for an answer".into()),
        (_, Err(fault)) => fault,
    };
    // An error that is the agent's own keeps its words; every other one is told in ours, and names the agent there too.
    if fault.agent != "odd" || fault.reason != "agent_error" && !fault.message.contains("odd") {
        return Err("the agent is not named".into());
    }
    if fault.message.chars().any(char::is_control) || fault.message.len() > 1000 {
        return Err("the agent's own text got through as it is".into());
    }
    if fault.code >= 0 {
        return Err("no code that a caller could know".into());
    }
    let failures =
        ["agent_error", "agent_http_error", "agent_malformed", "agent_unauthorized", "agent_rejected_request"];
    match verdict {
        Verdict::Malformed if fault.code != -32006 || fault.reason != "agent_malformed" => {
            Err("wrong code or reason".into())
        }
        Verdict::Failure if !failures.contains(&fault.reason.as_str()) => Err("wrong reason".into()),
        Verdict::Taken | Verdict::Malformed | Verdict::Failure | Verdict::NoResult => Ok(()),
    }
}

#[test]
fn answers_that_stop_are_not_short_answers() {
    let whole = json!({"jsonrpc": "2.0", "id": 1, "result": {"task": done()}}).to_string();
    let agent = Peer::start(Card::Plain, move |request, wire| match request.text() {
        // A length is promised, and less is sent.
        "cut" => {
            wire.raw(
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{whole}",
                    whole.len() + 9
                )
                .as_bytes(),
            );
            After::Close
        }
        // A chunked body without its last chunk.
        "chunks" => {
            wire.raw(format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{whole}\r\n", whole.len()).as_bytes());
            After::Close
        }
        "reset" => {
            wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{");
            wire.hold(ms(50));
            After::Reset
        }
        "nothing" => After::Close,
        "no http" => {
            wire.raw(b"SSH-2.0-OpenSSH_9.2p1\r\n");
            After::Close
        }
        // The right answer, a byte at a time, slower than anyone waits.
        "drip" => {
            wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n");
            while wire.raw(b" ") && wire.hold(ms(50)) {}
            After::Close
        }
        _ => wire.ok(&json!({"message": said()})),
    });
    let mut gateway = Config::new().agent("short", &agent.url(), &["budget = \"1500ms\""]).start();
    let client = gateway.client();
    let any = ["agent_truncated", "agent_reset", "agent_malformed", "agent_no_answer", "deadline_exceeded"];
    for kind in ["cut", "chunks", "reset", "nothing", "no http", "drip"] {
        let before = agent.executions();
        let start = now();
        let fault = client.send("short", kind).expect_err("the answer never came whole");
        assert!(start.elapsed() < SOON, "{kind}: {:?}", start.elapsed());
        assert_eq!(fault.agent, "short", "{kind}: {fault:?}");
        assert!(any.contains(&fault.reason.as_str()), "{kind}: {fault:?}");
        assert_ne!(fault.delivery, "not_sent", "{kind}: {fault:?}");
        assert_eq!(agent.executions(), before + 1, "{kind}: sent once");
        assert_eq!(answer_text(&client.send("short", "and now?").expect("the next call works")), "strange but fine");
    }
    healthy(&mut gateway);
}

#[test]
fn an_agents_own_error_is_passed_on_as_its_own() {
    let agent = Peer::start(Card::Plain, |_, wire| wire.error(-32005, "only text, please"));
    let gateway = Config::new().agent("picky", &agent.url(), &[]).start();
    let fault = gateway.client().send("picky", "a picture").expect_err("the agent refused");
    assert_eq!(fault.code, -32005, "{fault:?}");
}

#[test]
fn an_unknown_agent_is_said_to_be_unknown() {
    let gateway = Config::new().agent("known", &Peer::closed_port(), &[]).start();
    let answer = gateway.client().call("unknown", "SendMessage", &json!({"message": said()}), &[]).unwrap();
    assert!(answer.status == 404 || answer.outcome().is_err(), "{}", answer.head.line);
    assert!(answer.took < ms(1000));
}

/// Whether the gateway is alive, has lost no slot and did not panic on the way.
fn healthy(gateway: &mut Gateway) {
    assert!(gateway.is_alive());
    let client: Client = gateway.client();
    assert_eq!(client.http("GET", "/healthz", &[], b"").unwrap().status, 200);
    assert!(!gateway.log().contains("panicked at"), "{}", gateway.log());
}

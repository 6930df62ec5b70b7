//! The tools for models, as their callers are told apart: who is there for whom, and what is refused. What each tool says
//! is in `sdk::tools`, with the protocol's own client.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::clock::{eventually, ms};
use crate::gateway::Gateway;
use crate::outbox::{config, worker};

/// What one call of a tool gives a caller: whether it failed, its text, its fields.
pub(crate) fn uses(gateway: &Gateway, token: &str, tool: &str, arguments: &Value) -> (bool, String, Value) {
    let answer = post(gateway, token, "tools/call", &json!({"name": tool, "arguments": arguments}));
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    (result["isError"] == true, text.to_owned(), result["structuredContent"].clone())
}

pub(crate) fn post(gateway: &Gateway, token: &str, method: &str, params: &Value) -> Value {
    let bearer = format!("Bearer token-of-{token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let answer = gateway.client().http("POST", "/mcp", &headers, body.as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn an_agent_is_not_its_own_peer_and_cannot_ask_itself() {
    let worker = worker();
    let gateway = config(&worker).start();
    let names = |token: &str| {
        let (_, text, told) = uses(&gateway, token, "list_peers", &json!({}));
        let names: Vec<String> =
            told["peers"].as_array().unwrap().iter().map(|peer| peer["agent"].as_str().unwrap().to_owned()).collect();
        assert!(names.iter().all(|name| text.contains(name.as_str())), "{text}");
        names
    };
    assert_eq!((names("lead-1"), names("plain")), (vec!["work".to_owned()], vec!["lead".into(), "work".into()]));
    for tool in ["delegate_task", "delegate_task_async"] {
        let (failed, text, told) = uses(&gateway, "lead-1", tool, &json!({"agent": "lead", "task": "x"}));
        assert!(failed && text.contains("you are agent lead yourself"), "{text}");
        assert_eq!((&told["kind"], &told["reason"]), (&json!("refused"), &json!("delegation_cycle")));
        assert!(told["next"].as_str().is_some_and(|next| !next.is_empty()), "{told}");
    }
    assert_eq!(worker.peer.executions(), 0);
}

#[test]
fn nobody_sees_anothers_tasks_or_results() {
    let worker = worker();
    let gateway = config(&worker).start();
    let (_, _, told) = uses(&gateway, "lead-1", "delegate_task", &json!({"agent": "work", "task": "a secret"}));
    assert_eq!((&told["kind"], &told["state"]), (&json!("answer"), &json!("COMPLETED")), "{told}");
    let id = json!({"task_id": told["taskId"]});
    for tool in ["check_task_status", "cancel_task"] {
        let (failed, text, theirs) = uses(&gateway, "script", tool, &id);
        let (_, _, nothing) = uses(&gateway, "script", tool, &json!({"task_id": "0".repeat(32)}));
        assert!(failed && !text.contains("secret"), "{text}");
        assert_eq!(theirs, nothing, "like one that does not exist");
    }
    // Its answer was read on the line; what it did not wait for comes to its outbox, whichever of its tokens asks.
    let empty = eventually(ms(5_000), "the answer counts as read", || {
        let (_, _, told) = uses(&gateway, "lead-1", "read_delegation_results", &json!({}));
        (told["pending"] == 0).then_some(told)
    });
    assert_eq!(empty["results"], json!([]));
    let (_, _, later) = uses(&gateway, "lead-1", "delegate_task_async", &json!({"agent": "work", "task": "for later"}));
    let read = eventually(ms(5_000), "the result is there", || {
        let (_, _, told) = uses(&gateway, "lead-2", "read_delegation_results", &json!({}));
        told["results"].as_array().filter(|results| !results.is_empty()).cloned()
    });
    assert_eq!(read[0]["taskId"], later["taskId"], "{read:?}");
    let (_, _, others) = uses(&gateway, "script", "read_delegation_results", &json!({}));
    assert_eq!(others["results"], json!([]));
    let (failed, text, told) = uses(&gateway, "plain", "read_delegation_results", &json!({}));
    assert!(failed && text.contains("no outbox"), "{text}");
    assert_eq!(told["kind"], "refused");
}

/// What a caller that hung up asked for goes on, and holds nobody up; and nothing of it is logged by whom it passes through.
#[test]
fn who_hung_up_holds_up_nobody_and_nothing_is_logged() {
    let worker = worker();
    let mut gateway = config(&worker).last("[drain]\nlimit = \"40s\"").start();
    let arguments = json!({"agent": "work", "task": "endless", "wait_s": 60});
    let call = json!({"name": "delegate_task", "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).to_string();
    let mut socket = TcpStream::connect(gateway.addr()).unwrap();
    let head = "POST /mcp HTTP/1.1\r\nhost: x\r\nauthorization: Bearer token-of-plain\r\ncontent-type: application/json\r\n\
                accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\n";
    write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    eventually(ms(10_000), "the worker is at it", || (worker.peer.executions() == 1).then_some(()));
    drop(socket);
    gateway.terminate();
    let (status, _) = gateway.ended(ms(20_000));
    assert!(status.success());
    // What the protocol's library would log is what agents said, and who asked.
    assert!(!gateway.log().contains("rmcp"));
}

/// However much is waited for, the pipe still hears its client.
#[test]
fn a_pipe_full_of_work_still_answers() {
    let worker = worker();
    let gateway = config(&worker).start();
    let mut pipe = Command::new(env!("CARGO_BIN_EXE_watertight"))
        .args(["mcp", "--url", &format!("http://{}", gateway.addr()), "--token-file"])
        .arg(gateway.file("script"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, from) = (pipe.stdin.take().unwrap(), BufReader::new(pipe.stdout.take().unwrap()));
    let mut says = |message: Value| writeln!(to, "{message}").unwrap();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2025-11-25"});
    for id in 1..=100 {
        let arguments = json!({"agent": "work", "task": "endless", "wait_s": 600});
        let params = json!({"name": "delegate_task", "arguments": arguments, "_meta": meta});
        says(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    says(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 100}}));
    says(json!({"jsonrpc": "2.0", "id": "alive", "method": "ping", "params": {"_meta": meta}}));
    let first = from.lines().next().unwrap().unwrap();
    let answer: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&answer["id"], &answer["result"]), (&json!("alive"), &json!({})), "{first}");
    pipe.kill().unwrap();
    pipe.wait().unwrap();
}

#[test]
fn a_stranger_gets_nothing_at_all() {
    let gateway = config(&worker()).start();
    for headers in [&[][..], &[("authorization", "Bearer token-of-nobody")]] {
        let answer = gateway.client().http("POST", "/mcp", headers, b"{}").unwrap();
        assert_eq!(answer.status, 401, "{}", String::from_utf8_lossy(&answer.body));
    }
    assert_eq!(gateway.client().http("GET", "/mcp", &[], b"").unwrap().status, 405);
}

//! Limits: every size, depth and id that a caller chooses has one, and passing it is an answer, not an accident.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::client::{answer_text, message};
use crate::clock::{ms, now};
use crate::gateway::{Config, Gateway};

const JSON: [(&str, &str); 2] = [("content-type", "application/json"), ("a2a-version", "1.0")];

fn echoing() -> (Agent, Gateway) {
    let agent = Agent::echo();
    let gateway = Config::new().agent("echo", &agent.url(), &[]).start();
    (agent, gateway)
}

fn still_well(gateway: &mut Gateway) {
    assert!(gateway.is_alive());
    assert!(!gateway.log().contains("panicked at"), "{}", gateway.log());
    assert_eq!(answer_text(&gateway.client().send("echo", "still there?").expect("an answer")), "echo: still there?");
}

#[test]
fn what_is_no_request_is_told_so_in_the_right_words() {
    let (agent, mut gateway) = echoing();
    let client = gateway.client();
    let cases: [(&[u8], i64); 10] = [
        (br#"{"jsonrpc":"2.0","id":1,"method":"#, -32700),
        (b"", -32700),
        (b"hello", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"42", -32600),
        (br#"{"id":1,"method":"GetTask"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1,"method":"Nope"}"#, -32601),
        (br#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}"#, -32602),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"role":"ROLE_USER","parts":[]}}}"#,
            -32602,
        ),
    ];
    for (body, code) in cases {
        let answer = client.http("POST", "/agents/echo", &JSON, body).unwrap();
        let fault = answer.outcome().expect_err("no request");
        assert_eq!(fault.code, code, "{}: {fault:?}", String::from_utf8_lossy(body));
    }
    let answer = client.http(
        "POST",
        "/agents/echo",
        &[JSON[0], ("a2a-version", "99.0")],
        br#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#,
    );
    assert_eq!(answer.unwrap().outcome().expect_err("a version of the future").code, -32009);
    assert_eq!(agent.peer.executions(), 0);
    still_well(&mut gateway);
}

#[test]
fn ids_come_back_as_they_came() {
    let (_agent, gateway) = echoing();
    let client = gateway.client();
    for id in [json!("text"), json!(7), json!(-1), json!(9_007_199_254_740_993_i64), json!("")] {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": "nope"}}).to_string();
        let answer = client.http("POST", "/agents/echo/", &JSON, body.as_bytes()).unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["id"], id);
        assert_eq!(body["error"]["code"], -32001);
        assert_eq!(body["error"]["data"][0]["reason"], "TASK_NOT_FOUND");
    }
}

#[test]
fn depth_is_bounded() {
    let (agent, mut gateway) = echoing();
    let client = gateway.client();
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let wrapped = |inner: &str| {
        let mut message = message("deep");
        message["metadata"] = json!({"deep": "HERE"});
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).to_string();
        body.replace("\"HERE\"", inner)
    };
    for body in ["[".repeat(100_000), deep(100_000), wrapped(&deep(5000)), "{\"a\":".repeat(50_000)] {
        let start = now();
        let answer = client.http("POST", "/agents/echo", &JSON, body.as_bytes()).unwrap();
        let fault = answer.outcome().expect_err("too deep");
        assert!([-32700, -32600, -32602].contains(&fault.code), "{fault:?}");
        assert!(start.elapsed() < ms(2000), "{:?}", start.elapsed());
    }
    assert_eq!(agent.peer.executions(), 0);
    let answer = client.http("POST", "/agents/echo", &JSON, wrapped(&deep(20)).as_bytes()).unwrap();
    answer.outcome().expect("as deep as honest data gets");
    still_well(&mut gateway);
}

#[test]
fn size_is_bounded_before_it_is_held() {
    let agent = Agent::echo();
    let mut gateway = Config::new().agent("echo", &agent.url(), &["max_result_bytes = \"4MiB\""]).start();
    let client = gateway.client();
    let text = "x".repeat(1 << 20);
    assert_eq!(answer_text(&client.send("echo", &text).expect("a megabyte is fine")).len(), text.len() + 6);
    let before = gateway.resident();

    // Announced: refused without waiting for it.
    let mut socket = TcpStream::connect(gateway.addr()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    write!(socket, "POST /agents/echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\na2a-version: 1.0\r\ncontent-length: 4000000000\r\n\r\n{{").unwrap();
    let mut from = std::io::BufReader::new(socket);
    let head = crate::http::read_head(&mut from).expect("an answer, at once").expect("an answer");
    assert!(head.status() == 413 || head.status() == 200, "{}", head.line);

    // Not announced: refused on the way, and what came is not kept.
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "y".repeat(1 << 20));
    let mut socket = TcpStream::connect(gateway.addr()).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    write!(socket, "POST /agents/echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\na2a-version: 1.0\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    let sent = (0..256).take_while(|_| socket.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(sent < 256, "256 MiB were taken without a word");
    let grown = gateway.resident().saturating_sub(before) / 1024;
    assert!(grown < 200, "the gateway grew by {grown} MiB");
    assert_eq!(agent.peer.executions(), 1);
    still_well(&mut gateway);
}

#[test]
fn ids_are_only_ids() {
    let (agent, mut gateway) = echoing();
    let client = gateway.client();
    let long = "c".repeat(1 << 20);
    for context in [long.as_str(), "../../etc/passwd", "a\u{0}b", "'; drop table tasks; --", "a\nb", "\u{202e}abc"] {
        let mut message = message("hello");
        message["contextId"] = json!(context);
        let start = now();
        let outcome = client.rpc("echo", "SendMessage", &json!({"message": message}));
        assert!(start.elapsed() < ms(3000));
        match outcome {
            Ok(result) => assert_eq!(result["task"]["contextId"], json!(context), "taken as it is, or not at all"),
            Err(fault) => assert_eq!(fault.code, -32602, "{fault:?}"),
        }
    }
    let mut named = message("hello");
    named["contextId"] = json!(long);
    let fault = client.rpc("echo", "SendMessage", &json!({"message": named})).expect_err("a megabyte is no id");
    assert_eq!(fault.code, -32602, "{fault:?}");
    let mut named = message("hello");
    named["messageId"] = json!(long);
    assert_eq!(client.rpc("echo", "SendMessage", &json!({"message": named})).expect_err("no id either").code, -32602);
    for task in ["", " ", "../../etc/passwd", "a\u{0}b", "'; drop table tasks; --", long.as_str()] {
        let fault = client.get("echo", task).expect_err("no such task");
        assert!([-32001, -32602].contains(&fault.code), "{fault:?}");
    }
    // An empty task id is no task id.
    let mut fresh = message("a new one");
    fresh["taskId"] = json!("");
    assert!(client.rpc("echo", "SendMessage", &json!({"message": fresh})).is_ok());
    assert!(agent.peer.received().iter().all(|r| r.head.headers.iter().map(|(_, v)| v.len()).sum::<usize>() < 8192));
    still_well(&mut gateway);
}

#[test]
fn conversations_never_meet_at_the_agent() {
    // Toward the agent a context is an id of the gateway's own, the same for the same conversation.
    let (agent, gateway) = echoing();
    let client = gateway.client();
    let say = |context: &str| {
        let mut message = message("hello");
        message["contextId"] = json!(context);
        client.rpc("echo", "SendMessage", &json!({"message": message})).expect("an answer")["task"]["contextId"].clone()
    };
    assert_eq!((say("one"), say("two"), say("one")), (json!("one"), json!("two"), json!("one")));
    let seen: Vec<Value> = agent
        .peer
        .received()
        .iter()
        .filter(|r| r.executes())
        .map(|r| r.params()["message"]["contextId"].clone())
        .collect();
    assert!(seen[0] != json!("one") && seen[0] != seen[1], "{seen:?}");
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn pages_of_tasks_are_bounded_and_scoped() {
    let (_agent, gateway) = echoing();
    let client = gateway.client();
    for n in 0..5 {
        client.send("echo", &format!("number {n}")).expect("an answer");
    }
    let page = client.rpc("echo", "ListTasks", &json!({"pageSize": 2})).expect("a page");
    assert_eq!(
        (page["tasks"].as_array().unwrap().len(), &page["totalSize"], &page["pageSize"]),
        (2, &json!(5), &json!(2)),
        "{page}"
    );
    let mut token = page["nextPageToken"].as_str().unwrap().to_owned();
    let mut seen = 2;
    while !token.is_empty() {
        let page = client.rpc("echo", "ListTasks", &json!({"pageSize": 2, "pageToken": token})).expect("a page");
        seen += page["tasks"].as_array().unwrap().len();
        page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
    }
    assert_eq!(seen, 5);
    for (wrong, value) in
        [("pageSize", json!(0)), ("pageSize", json!(101)), ("status", json!("NOPE")), ("historyLength", json!(-1))]
    {
        let fault = client.rpc("echo", "ListTasks", &json!({wrong: value})).expect_err("out of range");
        assert_eq!(fault.code, -32602, "{wrong}: {fault:?}");
    }
}

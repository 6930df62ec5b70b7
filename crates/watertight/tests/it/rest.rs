//! HTTP+JSON toward callers: every operation, the shapes of what goes wrong, and one task whichever binding it is called by.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::client::{End, answer_text, fresh, id, message, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::{After, Card, Peer};

fn sending(text: &str) -> String {
    json!({"message": message(text)}).to_string()
}

#[test]
fn every_operation_over_http_json() {
    let agent = Agent::start(Card::Streaming, |text| match text {
        "long" => slow(text, ms(30_000)),
        "soon" => slow(text, ms(600)),
        _ => vec![Step::Work("on it"), Step::Chunk("one ".into()), Step::Chunk("two".into()), Step::End("COMPLETED")],
    });
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    for slash in ["", "/"] {
        let sent = client.rest("any", &format!("POST /message:send{slash}"), &sending("now"), &[]);
        assert_eq!(sent.head.get("content-type"), Some("application/json"));
        let task = sent.bare().expect("a task")["task"].clone();
        assert_eq!((state(&task), answer_text(&task).as_str()), ("COMPLETED", "one two"));

        let streamed = client.rest_events("any", &format!("POST /message:stream{slash}"), &sending("now"), &[]);
        assert_eq!(streamed.head.get("content-type"), Some("text/event-stream"));
        let streamed = streamed.rest();
        assert_eq!((streamed.last_state().as_str(), streamed.text().as_str()), ("COMPLETED", "one two"));
        assert!(streamed.events[0].as_ref().is_ok_and(|first| first.get("task").is_some()), "{streamed:?}");
        assert_eq!(streamed.end, End::Clean);

        let got = client.rest("any", &format!("GET /tasks/{}{slash}", id(&task)), "", &[]).bare().unwrap();
        assert_eq!((id(&got), answer_text(&got).as_str()), (id(&task), "one two"));
        let page = client.rest("any", &format!("GET /tasks{slash}?pageSize=1"), "", &[]).bare().unwrap();
        assert_eq!((page["tasks"].as_array().unwrap().len(), &page["pageSize"]), (1, &json!(1)), "{page}");
        assert!(page["nextPageToken"].as_str().is_some_and(|token| !token.is_empty()), "{page}");

        // Neither a cancel nor a subscription needs a body; or a content type.
        let submitted = |text: &str| {
            let body = json!({"message": message(text), "configuration": {"return_immediately": true}}).to_string();
            client.rest("any", "POST /message:send", &body, &[]).bare().expect("a task")["task"].clone()
        };
        for (verb, text) in [("GET", "soon"), ("POST", "soon")] {
            let task = submitted(text);
            let path = format!("{verb} /tasks/{}:subscribe{slash}", id(&task));
            let events = client.rest_events("any", &path, "", &[]).rest();
            assert_eq!((events.last_state().as_str(), events.text().as_str()), ("COMPLETED", "done: soon"), "{path}");
            let over = client.rest_events("any", &path, "", &[]).refusal().expect_err("it has ended");
            assert_eq!((over.code, over.reason.as_str()), (400, "UNSUPPORTED_OPERATION"), "{path}");
        }
        for (extra, body) in [(&[][..], ""), (&[("content-type", "application/json")], ""), (&[], r#"{"metadata":{}}"#)]
        {
            let task = submitted("long");
            let path = format!("POST /tasks/{}:cancel{slash}", id(&task));
            let canceled = client.rest("any", &path, body, extra).bare().expect("canceled");
            assert_eq!((id(&canceled), state(&canceled)), (id(&task), "CANCELED"));
        }
        let over = client.rest("any", &format!("POST /tasks/{}:cancel{slash}", id(&task)), "", &[]).bare();
        assert_eq!(over.unwrap_err().reason, "TASK_NOT_CANCELABLE");
        let card = client.rest("any", &format!("GET /extendedAgentCard{slash}"), "", &[]).bare().unwrap_err();
        assert_eq!((card.code, card.reason.as_str()), (400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"));
        let configs = format!("/tasks/{}/pushNotificationConfigs", id(&task));
        for line in [
            format!("POST {configs}{slash}"),
            format!("GET {configs}{slash}"),
            format!("GET {configs}/p{slash}"),
            format!("DELETE {configs}/p{slash}"),
        ] {
            let body = if line.starts_with("POST") { r#"{"url":"http://127.0.0.1:1/"}"# } else { "" };
            let fault = client.rest("any", &line, body, &[]).bare().unwrap_err();
            assert_eq!((fault.code, fault.reason.as_str()), (400, "PUSH_NOTIFICATION_NOT_SUPPORTED"), "{line}");
        }
    }
    let head = client.rest("any", "HEAD /tasks", "", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn an_empty_page_says_so_in_full() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let page = gateway.client().rest("any", "GET /tasks?contextId=never%2Fused", "", &[]);
    assert_eq!(page.body, br#"{"tasks":[],"nextPageToken":"","pageSize":50,"totalSize":0}"#);
}

#[test]
fn a_task_is_one_whichever_binding_it_is_called_by() {
    let agent = Agent::start(Card::Streaming, |text| match text {
        "book" => vec![Step::Ask("which day?")],
        "wait" => slow(text, ms(800)),
        text => vec![Step::Chunk(format!("echo: {text}")), Step::End("COMPLETED")],
    });
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    let by_rpc = client.send("any", "one").unwrap();
    let by_rest = client.rest("any", "POST /message:send", &sending("two"), &[]).bare().unwrap()["task"].clone();
    for task in [&by_rpc, &by_rest] {
        let one = client.get("any", id(task)).unwrap();
        let other = client.rest("any", &format!("GET /tasks/{}", id(task)), "", &[]).bare().unwrap();
        assert_eq!(one, other);
        assert_eq!(&one, task);
    }
    assert_eq!(
        client.rpc("any", "ListTasks", &json!({"includeArtifacts": true})).unwrap(),
        client.rest("any", "GET /tasks?includeArtifacts=true", "", &[]).bare().unwrap()
    );

    // The same message over both bindings is one execution.
    let said = json!({"message": message("wait")});
    let first = client.rpc("any", "SendMessage", &said).unwrap()["task"].clone();
    let again = client.rest("any", "POST /message:send", &said.to_string(), &[]).bare().unwrap()["task"].clone();
    let streamed = client.rest_events("any", "POST /message:stream", &said.to_string(), &[]).rest();
    assert_eq!((id(&again), streamed.last_state().as_str()), (id(&first), "COMPLETED"));
    assert_eq!(agent.peer.received().iter().filter(|r| r.executes() && r.text() == "wait").count(), 1);
    let mut other = said;
    other["message"]["parts"][0]["text"] = "another".into();
    let conflict = client.rest("any", "POST /message:send", &other.to_string(), &[]).bare().unwrap_err();
    assert_eq!(
        (conflict.code, conflict.reason.as_str(), conflict.task.as_str()),
        (409, "message_id_conflict", id(&first))
    );

    // A question that one binding asked, the other may answer; naming the task alone is enough.
    for rest_first in [true, false] {
        let ask = |text: &str, task: Option<&Value>, rest: bool| {
            let mut message = message(text);
            if let Some(task) = task {
                message["taskId"] = task["id"].clone();
            }
            let params = json!({"message": message});
            let answer = if rest {
                client.rest("any", "POST /message:send", &params.to_string(), &[]).bare()
            } else {
                client.rpc("any", "SendMessage", &params)
            };
            answer.expect("a task")["task"].clone()
        };
        let asked = ask("book", None, rest_first);
        assert_eq!(state(&asked), "INPUT_REQUIRED");
        let done = ask("Monday", Some(&asked), !rest_first);
        assert_eq!((id(&done), &done["contextId"], state(&done)), (id(&asked), &asked["contextId"], "COMPLETED"));
        let received: Vec<_> = agent.peer.received().into_iter().filter(|r| r.executes()).collect();
        let (question, answer) = (&received[received.len() - 2], &received[received.len() - 1]);
        assert_eq!(question.text(), "book");
        let sent = &answer.params()["message"];
        assert!(sent["taskId"].as_str().is_some_and(|task| task.starts_with("remote-")), "{sent}");
        assert_eq!(sent["contextId"], format!("context-of-{}", sent["taskId"].as_str().unwrap()), "{sent}");
    }
}

#[test]
fn queries_and_bodies_may_be_written_as_protobuf_writes_them() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    let context = "reise/2026 é 👩‍🚀";
    let body = json!({"message": {
        "message_id": fresh("m"), "context_id": context, "role": 1, "parts": [{"text": "schön"}]
    }});
    let task = client.rest("any", "POST /message:send", &body.to_string(), &[]).bare().unwrap()["task"].clone();
    assert_eq!((answer_text(&task).as_str(), &task["contextId"]), ("echo: schön", &json!(context)));
    client.send("any", "in another context").unwrap();
    let encoded: String = context.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for query in [
        format!("contextId={encoded}&status=TASK_STATE_COMPLETED&includeArtifacts=true&historyLength=5"),
        format!("context_id={encoded}&status=3&include_artifacts=true&page_size=7&unknown=x&also"),
        format!("contextId={encoded}&statusTimestampAfter=2026-01-01T00:00:00Z&includeArtifacts=true"),
        format!(
            "contextId={encoded}&status_timestamp_after=2026-01-01T02%3A00%3A00.000%2B02%3A00&includeArtifacts=true"
        ),
    ] {
        let page = client.rest("any", &format!("GET /tasks?{query}"), "", &[]).bare().unwrap();
        let tasks = page["tasks"].as_array().unwrap();
        assert_eq!((tasks.len(), &tasks[0]["id"]), (1, &task["id"]), "{query}: {page}");
        assert_eq!(answer_text(&tasks[0]), "echo: schön", "{query}");
    }
    let none = format!("GET /tasks?contextId={encoded}&status=TASK_STATE_FAILED");
    assert_eq!(client.rest("any", &none, "", &[]).bare().unwrap()["totalSize"], 0);
    let short = client.rest("any", &format!("GET /tasks/{}?history_length=0", id(&task)), "", &[]).bare().unwrap();
    assert_eq!(short.get("history"), None, "{short}");
    for id in ["a%2Fb", "%F0%9F%91%A9", "..", "a%3Fb", "x"] {
        let fault = client.rest("any", &format!("GET /tasks/{id}"), "", &[]).bare().unwrap_err();
        assert_eq!((fault.code, fault.reason.as_str()), (404, "TASK_NOT_FOUND"), "{id}");
    }
}

#[test]
fn a_failure_has_a_status_too() {
    let errors = Peer::start(Card::Plain, |request, wire| match request.text() {
        "own" => wire.error(-32050, "out of rooms"),
        code => wire.error(code.parse().unwrap(), "no"),
    });
    let nobody = Peer::closed_port();
    let gateway = Config::new().agent("errors", &errors.url(), &[]).agent("gone", &nobody, &["attempts = 1"]).start();
    let client = gateway.client();
    let send =
        |agent: &str, text: &str| client.rest(agent, "POST /message:send", &sending(text), &[]).bare().unwrap_err();
    let gone = send("gone", "hello");
    assert_eq!((gone.code, gone.reason.as_str(), gone.delivery.as_str()), (502, "agent_connect_refused", "not_sent"));
    assert!(!gone.task.is_empty(), "{gone:?}");
    let failed = client.rest("gone", &format!("GET /tasks/{}", gone.task), "", &[]).bare().unwrap();
    assert_eq!(
        (state(&failed), &failed["metadata"]["watertight"]["reason"]),
        ("FAILED", &json!("agent_connect_refused"))
    );
    for (text, status, name) in
        [("-32005", 400, "CONTENT_TYPE_NOT_SUPPORTED"), ("-32602", 400, ""), ("-32603", 500, ""), ("own", 502, "")]
    {
        let answer = client.rest("errors", "POST /message:send", &sending(text), &[]);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let reasons: Vec<&str> =
            body["error"]["details"].as_array().unwrap().iter().filter_map(|d| d["reason"].as_str()).collect();
        assert_eq!(answer.status, status, "{text}: {body}");
        assert!(name.is_empty() || reasons.first() == Some(&name), "{text}: {body}");
        assert_eq!(reasons.last(), Some(&"agent_error"), "{text}: {body}");
    }
}

#[test]
fn an_error_in_a_stream_is_an_event() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(20_000)));
    let mut gateway = Config::new().top("drain.limit = \"1s\"").agent("slow", &agent.url(), &[]).start();
    let mut events = gateway.client().rest_events("slow", "POST /message:stream", &sending("go"), &[]);
    let first = events.next().expect("an event").expect("a task");
    gateway.terminate();
    let ended = events.rest();
    let fault = ended.error().unwrap_or_else(|| panic!("no error: {ended:?}"));
    assert_eq!((fault.code, fault.reason.as_str(), fault.task.as_str()), (503, "shutting_down", id(&first["task"])));
    assert_eq!(ended.end, End::Clean);
    gateway.ended(ms(10_000));
}

/// A card with two extensions, one of which every caller must ask for.
const EXTENDED: &str = r#"{"capabilities":{"streaming":true,"extensions":[
    {"uri":"urn:example:must","required":true},{"uri":"urn:example:may"}]}}"#;

#[test]
fn extensions_are_asked_for_and_told() {
    let agent = Agent::start(Card::With(EXTENDED), |text| vec![Step::Chunk(text.into()), Step::End("COMPLETED")]);
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    eventually(ms(2_000), "the card is known", || {
        let card = client.http("GET", "/agents/any/.well-known/agent-card.json", &[], b"").unwrap();
        String::from_utf8_lossy(&card.body).contains("urn:example:must").then_some(())
    });
    let both = |line: &str, extra: &[(&str, &str)]| {
        let params = json!({"message": message("hi")});
        let method = if line.ends_with("send") { "SendMessage" } else { "SendStreamingMessage" };
        [client.call("any", method, &params, extra).unwrap(), client.rest("any", line, &params.to_string(), extra)]
    };
    for line in ["POST /message:send", "POST /message:stream"] {
        for extra in [&[][..], &[("a2a-extensions", "urn:example:may, urn:example:mus")]] {
            let [rpc, rest] = both(line, extra);
            let rpc = rpc.outcome().expect_err("a required extension is missing");
            assert_eq!((rpc.code, rpc.reason.as_str()), (-32008, "EXTENSION_SUPPORT_REQUIRED"));
            assert!(rpc.message.contains("urn:example:must"), "{rpc:?}");
            let rest = rest.bare().expect_err("likewise");
            assert_eq!((rest.code, rest.reason.as_str()), (400, "EXTENSION_SUPPORT_REQUIRED"));
        }
        // More than is carried is not cut: the agent would do without what was left out.
        let [rpc, rest] = both(line, &[("a2a-extensions", &format!("urn:example:must, urn:{}", "x".repeat(4_096)))]);
        assert_eq!(rpc.outcome().expect_err("too many").code, -32602);
        assert_eq!(rest.bare().expect_err("too many").code, 400);
        assert_eq!(agent.peer.executions(), 0, "nothing was begun");
        assert_eq!(client.list("any").len(), 0, "and nothing kept");
    }
    for (asked, told) in [
        ("urn:example:must", "urn:example:must"),
        ("urn:example:other, urn:example:may ,urn:example:must,urn:example:may", "urn:example:may, urn:example:must"),
    ] {
        for line in ["POST /message:send", "POST /message:stream"] {
            for answer in both(line, &[("a2a-extensions", asked)]) {
                assert_eq!((answer.status, answer.head.get("a2a-extensions")), (200, Some(told)), "{line}");
            }
        }
        let sent = agent.peer.received().pop().unwrap();
        assert_eq!(sent.head.get("a2a-extensions"), Some(asked));
    }
    // A question about a task needs none.
    assert_eq!(client.rest("any", "GET /tasks", "", &[]).head.get("a2a-extensions"), None);
    let listed = client.rest("any", "GET /tasks", "", &[("a2a-extensions", "urn:example:may")]);
    assert_eq!((listed.status, listed.head.get("a2a-extensions")), (200, Some("urn:example:may")));
}

#[test]
fn only_version_1_0_is_spoken() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    // Lines of a header, and of one line what proxies make of several.
    let lines = |version: Option<&'static str>| -> Vec<(&str, &str)> {
        version.into_iter().flat_map(|all| all.split('|')).map(|one| ("a2a-version", one)).collect()
    };
    let rpc = |query: &str, version: Option<&'static str>| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).to_string();
        let headers = lines(version);
        client.http("POST", &format!("/agents/any{query}"), &headers, body.as_bytes()).unwrap().outcome()
    };
    let rest = |query: &str, version: Option<&'static str>| {
        let headers = lines(version);
        client.http("GET", &format!("/agents/any/tasks{query}"), &headers, b"").unwrap().bare()
    };
    for (query, version) in [
        ("", Some("1.0")),
        ("", Some("1")),
        ("", Some("1.0.3")),
        ("?A2A-Version=1.0", None),
        ("?a2a-version=1.0.1&x=y", None),
        ("?A2A-Version=1.0", Some("1.0")),
        ("", Some("1.0|1.0")),
        ("", Some("1.0, 1")),
        ("?a2a-version=1&A2A-Version=1.0", Some("1.0|1.0.2|")),
    ] {
        assert!(rpc(query, version).is_ok() && rest(query, version).is_ok(), "{query} {version:?}");
    }
    for (query, version, words) in [
        ("", None, "no A2A version is named, which means 0.3"),
        ("", Some(""), "no A2A version is named"),
        ("", Some("0.3"), "A2A version 0.3 is not spoken here"),
        ("", Some("0.3.0"), "A2A version 0.3 is not spoken here"),
        ("?A2A-Version=0.3", None, "A2A version 0.3 is not spoken here"),
        ("", Some("99.0"), "A2A version 99.0 is not spoken here"),
        ("", Some("1.7"), "A2A version 1.7 is not spoken here"),
        ("", Some("0.3|0.3"), "A2A version 0.3 is not spoken here"),
        ("?A2A-Version=0.3", Some("1.0"), "the request names differing A2A versions, 1.0 and 0.3;"),
        ("?A2A-Version=1.0&a2a-version=0.3", None, "the request names differing A2A versions, 1.0 and 0.3;"),
        ("", Some("1.0|1.7"), "the request names differing A2A versions, 1.0 and 1.7;"),
        ("", Some("1.0,2.0, 1.0"), "the request names differing A2A versions, 1.0 and 2.0;"),
    ] {
        let (rpc, rest) = (rpc(query, version).unwrap_err(), rest(query, version).unwrap_err());
        assert_eq!((rpc.code, rpc.reason.as_str()), (-32009, "VERSION_NOT_SUPPORTED"), "{query} {version:?}");
        assert_eq!((rest.code, rest.reason.as_str()), (400, "VERSION_NOT_SUPPORTED"), "{query} {version:?}");
        for fault in [rpc, rest] {
            assert!(fault.message.starts_with(words) && fault.message.ends_with("`A2A-Version: 1.0`"), "{fault:?}");
        }
    }
}

#[test]
fn what_is_refused_unread_can_be_sent_to_its_end() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let large = vec![b'x'; 15 << 20];
    for (line, version, status) in
        [("POST /message:send", "99.0", 400), ("POST /nothing", "1.0", 404), ("PUT /tasks", "1.0", 405)]
    {
        let (method, path) = line.split_once(' ').unwrap();
        let mut socket = TcpStream::connect(gateway.addr()).unwrap();
        socket.set_read_timeout(Some(ms(10_000))).unwrap();
        let head = format!(
            "{method} /agents/any{path} HTTP/1.1\r\nhost: localhost\r\na2a-version: {version}\r\ncontent-length: {}\r\n\r\n",
            large.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&large).unwrap_or_else(|e| panic!("{line}: cut off while sending: {e}"));
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"), "{line}");
    }
}

#[test]
fn the_tenant_reaches_the_agent_wherever_it_was_said() {
    let agent = Agent::start(
        Card::With(
            r#"{"supportedInterfaces":[{"url":"http://ADDR/","protocolBinding":"JSONRPC",
        "protocolVersion":"1.0","tenant":"of-the-card"}]}"#,
        ),
        |text| match text {
            "book" => vec![Step::Ask("which day?")],
            text => vec![Step::Chunk(text.into()), Step::End("COMPLETED")],
        },
    );
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    eventually(ms(2_000), "the card is known", || {
        let card = client.http("GET", "/agents/any/.well-known/agent-card.json", &[], b"").unwrap();
        String::from_utf8_lossy(&card.body).contains("scripted").then_some(())
    });
    let with = |tenant: Option<&str>| {
        let mut params = json!({"message": message("hi")});
        if let Some(tenant) = tenant {
            params["tenant"] = tenant.into();
        }
        params.to_string()
    };
    let sent = || agent.peer.received().iter().rfind(|r| r.executes()).unwrap().params()["tenant"].clone();
    for (line, body, tenant) in [
        ("POST /acme/message:send", with(None), "acme"),
        ("POST /acme/message:stream/", with(None), "acme"),
        ("POST /message:send?tenant=a%20b", with(None), "a b"),
        ("POST /message:send", with(Some("acme")), "acme"),
        ("POST /acme/message:send?tenant=acme", with(Some("acme")), "acme"),
        ("POST /message:send", with(None), "of-the-card"),
        ("POST /message:send", with(Some("")), "of-the-card"),
    ] {
        let answer = client.rest("any", line, &body, &[]);
        assert_eq!((answer.status, sent()), (200, json!(tenant)), "{line}: {}", String::from_utf8_lossy(&answer.body));
    }
    client.rpc("any", "SendMessage", &serde_json::from_str(&with(Some("by-rpc"))).unwrap()).unwrap();
    assert_eq!(sent(), "by-rpc");
    let before = agent.peer.executions();
    for (line, body, one, two) in [
        ("POST /acme/message:send", with(Some("other")), "acme", "other"),
        ("POST /acme/message:stream?tenant=other", with(None), "acme", "other"),
        ("POST /message:send?tenant=third", with(Some("other")), "third", "other"),
        ("GET /acme/tasks?tenant=other", String::new(), "acme", "other"),
        ("POST /acme/tasks/x:cancel", r#"{"tenant":"other"}"#.to_owned(), "acme", "other"),
    ] {
        let fault = client.rest("any", line, &body, &[]).bare().expect_err(line);
        let named = fault.message.contains(&format!("`{one}`")) && fault.message.contains(&format!("`{two}`"));
        assert!(fault.code == 400 && named, "{line}: {fault:?}");
    }
    assert_eq!(agent.peer.executions(), before, "nothing of it was sent");

    // A task is answered from the record, whatever tenant is named; and cancels go where the task went.
    let asked = client.rest("any", "POST /acme/message:send", &json!({"message": message("book")}).to_string(), &[]);
    let task = asked.bare().unwrap()["task"].clone();
    for line in ["GET /tasks/ID", "GET /acme/tasks/ID", "GET /other/tasks/ID/", "GET /tasks/ID?tenant=other"] {
        let got = client.rest("any", &line.replace("ID", id(&task)), "", &[]).bare().unwrap();
        assert_eq!((id(&got), state(&got)), (id(&task), "INPUT_REQUIRED"), "{line}");
    }
    assert_eq!(
        state(&client.rest("any", &format!("POST /acme/tasks/{}:cancel", id(&task)), "", &[]).bare().unwrap()),
        "CANCELED"
    );
}

#[test]
fn what_was_written_arrives_as_it_was_written() {
    /// Parts that a typed reader would change: a number too large for it, one with a point, `null` as content.
    const PARTS: &str =
        r#""parts":[{"data":null},{"data":{"b":12345678901234567890123,"a":1.0,"e":1e30}},{"text":"\u00e9","new":[]}]"#;
    let agent = Peer::start(Card::Streaming, |request, wire| match request.method() {
        "SendStreamingMessage" => {
            wire.events();
            let (task, status) = (fresh("t"), |state: &str| format!(r#""status":{{"state":"{state}","since":7.50}}"#));
            let artifact = format!(r#"{{"artifactId":"a",{PARTS},"z":1,"y":{{"n":2e5}}}}"#);
            wire.event_raw(&format!(
                r#"{{"task":{{"id":"{task}","contextId":"c",{},"generation":9007199254740993}}}}"#,
                status("TASK_STATE_WORKING")
            ));
            wire.event_raw(&format!(
                r#"{{"statusUpdate":{{"taskId":"{task}","contextId":"c",{},"more":null}}}}"#,
                status("TASK_STATE_PONDERING")
            ));
            wire.event_raw(&format!(
                r#"{{"artifactUpdate":{{"taskId":"{task}","contextId":"c","artifact":{artifact},"index":3}}}}"#
            ));
            wire.event_raw(&format!(
                r#"{{"statusUpdate":{{"taskId":"{task}","contextId":"c",{}}}}}"#,
                status("TASK_STATE_COMPLETED")
            ));
            After::Close
        }
        _ => wire.error(-32001, "no such task"),
    });
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    let params = |message: &str| {
        format!(
            r#"{{"z":0.10,"message":{{"role":"ROLE_USER","messageId":"{message}",{PARTS},"x":{{"n":1.0}}}},"new":18446744073709551616}}"#
        )
    };
    let rpc = |method: &str, params: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let answer = client.http("POST", "/agents/any", &[("a2a-version", "1.0")], body.as_bytes()).unwrap();
        String::from_utf8(answer.body).unwrap()
    };
    let rest = |line: &str, body: &str| String::from_utf8(client.rest("any", line, body, &[]).body).unwrap();
    for (n, rest_first) in [true, false].into_iter().enumerate() {
        let streamed = match rest_first {
            true => rest("POST /message:stream", &params(&format!("m-{n}"))),
            false => rpc("SendStreamingMessage", &params(&format!("m-{n}"))),
        };
        for kept in [
            PARTS,
            r#""z":1,"y":{"n":2e5}"#,
            r#""since":7.50"#,
            "TASK_STATE_PONDERING",
            r#""more":null"#,
            r#""index":3"#,
            r#""generation":9007199254740993"#,
        ] {
            assert!(streamed.contains(kept), "{kept} is missing in {streamed}");
        }
        let received = agent.received().into_iter().rfind(|r| r.executes()).unwrap().body;
        for kept in [PARTS, r#""z":0.10"#, r#""x":{"n":1.0}"#, r#""new":18446744073709551616"#] {
            assert!(received.contains(kept), "{kept} is missing in {received}");
        }
        let listed: Value = serde_json::from_str(&rest("GET /tasks?pageSize=1", "")).unwrap();
        let task = listed["tasks"][0]["id"].as_str().unwrap().to_owned();
        for (what, body) in [
            ("GetTask", rpc("GetTask", &format!(r#"{{"id":"{task}"}}"#))),
            ("GET", rest(&format!("GET /tasks/{task}"), "")),
            ("ListTasks", rpc("ListTasks", r#"{"includeArtifacts":true,"historyLength":9}"#)),
            ("GET", rest("GET /tasks?includeArtifacts=true&historyLength=9", "")),
            ("SendMessage", rest("POST /message:send", &params(&format!("m-{n}")))),
        ] {
            for kept in [PARTS, r#""z":1,"y":{"n":2e5}"#, r#""since":7.50"#, r#""generation":9007199254740993"#] {
                assert!(body.contains(kept), "{what}: {kept} is missing in {body}");
            }
        }
    }
    assert_eq!(agent.executions(), 2);
}

#[test]
fn what_is_wrong_is_said_in_the_binding_s_shape() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("any", &agent.url(), &[]).top("server.max_request_bytes = \"16KiB\"").start();
    let client = gateway.client();
    let large = json!({"message": message(&"x".repeat(20 << 10))}).to_string();
    for (agent, line, body, code, words) in [
        ("any", "GET /nothing", "", 404, "there is nothing at /agents/any/nothing"),
        ("any", "GET /tasks/a/b", "", 404, "there is nothing at"),
        ("any", "POST /message:sent", "{}", 404, "there is nothing at"),
        ("nobody", "GET /tasks", "", 404, "there is no such agent"),
        ("nobody", "GET /nothing", "", 404, "there is no such agent"),
        ("any", "GET /message:send", "", 405, "this takes POST"),
        ("any", "DELETE /tasks", "", 405, "this takes GET, HEAD"),
        ("any", "POST /tasks/x", "{}", 405, "this takes GET, HEAD"),
        ("any", "POST /message:send", "", 400, "body: is required"),
        ("any", "POST /message:send", "{\"message\"", 400, "Parse error"),
        ("any", "POST /message:send", "[]", 400, "body: must be an object"),
        (
            "any",
            "POST /message:send",
            r#"{"message":{"role":1,"parts":[{"text":"x"}]}}"#,
            400,
            "message.messageId: is required",
        ),
        ("any", "GET /tasks?pageSize=0", "", 400, "pageSize: must be a whole number from 1 to 100"),
        ("any", "GET /tasks?pageSize=1&page_size=1", "", 400, "pageSize: occurs twice"),
        ("any", "GET /tasks?pageToken=x", "", 400, "pageToken: is no token"),
        ("any", "GET /tasks?status=DONE", "", 400, "status: must be the name of a task state"),
        ("any", "POST /message:send", &large, 413, "max_request_bytes"),
    ] {
        let answer = client.rest(agent, line, body, &[]);
        let fault = answer.bare().expect_err(line);
        assert!(fault.code == code && fault.message.contains(words), "{line}: {fault:?}");
        assert_eq!(answer.head.get("content-type"), Some("application/json"), "{line}");
        let allow = answer.head.get("allow");
        assert_eq!(allow.is_some(), code == 405, "{line}");
        assert!(allow.is_none_or(|allow| words.ends_with(allow)), "{line}: {allow:?}");
    }
    // The binding's own media type is for those who speak of it.
    for (name, value) in [("accept", "application/a2a+json"), ("content-type", "application/a2a+json")] {
        for (line, status) in [("GET /tasks", 200), ("GET /nothing", 404), ("PUT /tasks", 405), ("GET /tasks/x", 404)] {
            let answer = client.rest("any", line, "", &[(name, value)]);
            assert_eq!(
                (answer.status, answer.head.get("content-type")),
                (status, Some("application/a2a+json")),
                "{line}"
            );
        }
    }
    assert_eq!(agent.peer.executions(), 0);
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1_500)));
    let limits = ["max_in_flight = 1", "max_waiting = 0", "max_wait = \"50ms\""];
    let gateway = Config::new().agent("busy", &agent.url(), &limits).start();
    let client = gateway.client();
    let other = client.clone();
    let first = std::thread::spawn(move || other.rest("busy", "POST /message:send", &sending("first"), &[]));
    eventually(ms(2_000), "the slot is taken", || (agent.running() == 1).then_some(()));
    for path in ["/message:send", "/message:stream"] {
        let refused = client.rest("busy", &format!("POST {path}"), &sending("second"), &[]);
        let fault = refused.bare().expect_err("no slot");
        assert_eq!(
            (fault.code, fault.reason.as_str(), fault.delivery.as_str(), fault.agent.as_str()),
            (503, "bulkhead_full", "not_sent", "busy")
        );
        assert!(refused.head.get("retry-after").is_some_and(|after| after.parse::<u32>().is_ok_and(|s| s >= 1)));
        let body: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(body["error"]["status"], "UNAVAILABLE", "{body}");
        assert!(body["error"]["details"].as_array().unwrap().iter().any(|d| d["retryDelay"].is_string()), "{body}");
    }
    assert_eq!(first.join().unwrap().status, 200);
    assert_eq!(agent.peer.executions(), 1);
}

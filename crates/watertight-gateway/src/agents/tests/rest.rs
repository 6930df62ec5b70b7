//! HTTP+JSON toward an agent, and which of its interfaces is used.

use watertight_engine::input::CancelAnswer;
use watertight_engine::record::TaskState;

use super::*;
use crate::agents::Binding;

fn bare(value: &Value) -> Vec<Act> {
    http("200 OK", "application/a2a+json", value.to_string())
}

fn status(code: u16, name: &str, reason: &str) -> Vec<Act> {
    let info =
        json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"});
    let body = json!({"error": {"code": code, "status": name, "message": "no", "details": [info]}});
    http(&format!("{code} X"), "application/json", body.to_string())
}

fn nothing_here() -> Vec<Act> {
    http("404 Not Found", "text/html", "<html>")
}

fn events(values: &[Value]) -> Vec<Act> {
    let data: String = values.iter().map(|value| format!("data: {value}\n\n")).collect();
    vec![stream_head(), Act::Write(data.into_bytes()), Act::Close]
}

/// Verb and path of every request but those for cards.
fn lines(peer: &Peer) -> Vec<String> {
    let seen = peer.seen.lock().unwrap();
    let lines = seen.iter().map(|seen| seen.head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned());
    lines.filter(|line| !line.contains("/.well-known/")).collect()
}

/// A peer whose card names these interfaces, as (binding, path, tenant), and that is asked for everything else.
async fn peer_with(
    interfaces: &'static [(&'static str, &'static str, Option<&'static str>)],
    streaming: bool,
    script: impl Fn(&Seen, &str) -> Vec<Act> + Send + Sync + 'static,
) -> Peer {
    Peer::with_card(move |request, _| {
        let path = request.head.split(' ').nth(1).unwrap();
        if !path.contains("/.well-known/") {
            return script(request, path);
        }
        let host = request.header("host").unwrap();
        let list: Vec<Value> = interfaces
            .iter()
            .map(|(binding, path, tenant)| {
                json!({"url": format!("http://{host}{path}"), "protocolBinding": binding, "protocolVersion": "1.0", "tenant": tenant})
            })
            .collect();
        let card = json!({"name": "p", "supportedInterfaces": list, "capabilities": {"streaming": streaming}});
        http("200 OK", "application/json", card.to_string())
    })
    .await
}

const REST: (&str, &str, Option<&str>) = ("HTTP+JSON", "/rest", None);
const RPC: (&str, &str, Option<&str>) = ("JSONRPC", "/rpc", None);

fn auto(config: &mut AgentConfig) {
    (config.mode, config.card_wait) = (Mode::Auto, Duration::from_secs(4));
}

#[tokio::test]
async fn a_message_is_sent_polled_and_canceled() {
    let peer = peer_with(&[REST], false, |request, path| match path {
        "/rest/message:send" => bare(&json!({"task": task("WORKING")})),
        "/rest/tasks/t-1" => bare(&task("COMPLETED")),
        "/rest/tasks/t-1:cancel" => bare(&task("CANCELED")),
        _ => panic!("{}", request.head),
    })
    .await;
    let agent = peer.agent(auto);
    let mut job = job();
    job.extensions = Some(http::HeaderValue::from_static("urn:e"));
    job.traceparent = Some(http::HeaderValue::from_static("00-11-22-01"));
    let (end, kept) = send(&agent, job).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task WORKING", "task COMPLETED"]);
    let until = Time::from_millis(1_000_000) + Span::from_secs(1);
    let answer = agent.cancel(&RemoteId::from("t-1"), &Named::default(), until).await;
    assert_eq!(answer, CancelAnswer::Ended(TaskState::Canceled));
    assert_eq!(lines(&peer), ["POST /rest/message:send", "GET /rest/tasks/t-1", "POST /rest/tasks/t-1:cancel"]);
    let seen = peer.seen.lock().unwrap().clone();
    let sent = seen.iter().find(|seen| seen.head.starts_with("POST /rest/message:send")).unwrap();
    assert_eq!(sent.json()["configuration"]["returnImmediately"], json!(true));
    assert_eq!(sent.json()["message"]["metadata"]["x-budget"]["depth"], json!(2));
    for seen in seen.iter().filter(|seen| seen.head.contains("/rest/") && !seen.head.contains("cancel")) {
        assert_eq!(seen.header("a2a-version").as_deref(), Some("1.0"));
        assert_eq!(seen.header("a2a-extensions").as_deref(), Some("urn:e"));
        assert_eq!(seen.header("traceparent").as_deref(), Some("00-11-22-01"));
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_asked_about_and_joined_again() {
    for post in [true, false] {
        let peer = peer_with(&[REST], true, move |request, path| match path {
            "/rest/message:stream" => events(&[json!({"task": task("WORKING")}), chunk("one ")]),
            "/rest/tasks/t-1:subscribe" if request.head.starts_with("POST") && !post => {
                http("405 Method Not Allowed", "text/plain", "")
            }
            "/rest/tasks/t-1:subscribe" => {
                events(&[json!({"task": task("WORKING")}), chunk("two"), super::status("COMPLETED")])
            }
            _ => bare(&task("WORKING")),
        })
        .await;
        let agent = peer.agent(auto);
        for _ in 0..2 {
            let (end, kept) = send(&agent, job()).await;
            assert!(end.ended.is_ok(), "{end:?}");
            let said = ["task WORKING", "one ", "task WORKING", "task WORKING", "two", "COMPLETED"];
            assert_eq!(kept.said(), said);
        }
        let verbs = |verb: &str| {
            lines(&peer).iter().filter(|line| **line == format!("{verb} /rest/tasks/t-1:subscribe")).count()
        };
        assert_eq!((verbs("POST"), verbs("GET")), if post { (2, 0) } else { (1, 2) }, "the verb is remembered");
    }
}

#[tokio::test]
async fn errors_are_the_agents_if_they_say_so_and_the_servers_if_not() {
    let cases: [(Vec<Act>, Reason, Delivery, Option<i64>); 8] = [
        (status(404, "NOT_FOUND", "TASK_NOT_FOUND"), Reason::AgentError, Delivery::Delivered, Some(-32001)),
        (
            status(400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
            Reason::AgentError,
            Delivery::Delivered,
            Some(-32009),
        ),
        (status(500, "INTERNAL", "INTERNAL_ERROR"), Reason::AgentError, Delivery::Delivered, Some(-32603)),
        (
            http("503 Busy", "application/json", r#"{"error":{"code":503,"message":"m"}}"#),
            Reason::AgentHttpError,
            Delivery::MaybeDelivered,
            None,
        ),
        (http("200 OK", "text/html", "<html>"), Reason::AgentMalformed, Delivery::MaybeDelivered, None),
        (http("200 OK", "application/json", "{}"), Reason::AgentMalformed, Delivery::MaybeDelivered, None),
        (http("401 No", "text/plain", "no"), Reason::AgentUnauthorized, Delivery::MaybeDelivered, None),
        (
            vec![Act::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec()), Act::Close],
            Reason::AgentTruncated,
            Delivery::MaybeDelivered,
            None,
        ),
    ];
    for (answer, reason, delivery, code) in cases {
        let answer = Mutex::new(Some(answer));
        let peer =
            peer_with(&[REST], false, move |_, _| answer.lock().unwrap().take().unwrap_or_else(nothing_here)).await;
        let (end, _) = send(&peer.agent(auto), job()).await;
        assert_eq!(why(&end), (reason, delivery), "{end:?}");
        assert_eq!(end.detail.unwrap().agent_error.map(|error| error.code), code);
        assert_eq!(lines(&peer), ["POST /rest/message:send"]);
    }
}

#[tokio::test]
async fn where_surely_nobody_was_the_next_interface_is_tried_and_remembered() {
    let peer = peer_with(&[REST, RPC], true, |request, path| match path {
        "/rpc" => then(stream(request, &[json!({"task": task("COMPLETED")})]), Act::Close),
        _ => nothing_here(),
    })
    .await;
    let agent = peer.agent(auto);
    for _ in 0..2 {
        let (end, kept) = send(&agent, job()).await;
        assert!(end.ended.is_ok(), "{end:?}");
        assert_eq!(kept.said(), ["task COMPLETED"]);
    }
    assert_eq!(lines(&peer), ["POST /rest/message:stream", "POST /rest/message:send", "POST /rpc", "POST /rpc"]);

    let peer = peer_with(&[RPC, REST], false, |request, path| match path {
        "/rpc" => error(request, -32601),
        _ => bare(&json!({"task": task("COMPLETED")})),
    })
    .await;
    let agent = peer.agent(auto);
    assert!(send(&agent, job()).await.0.ended.is_ok());
    assert!(send(&agent, job()).await.0.ended.is_ok());
    assert_eq!(lines(&peer), ["POST /rpc", "POST /rest/message:send", "POST /rest/message:send"]);
}

#[tokio::test]
async fn what_may_have_begun_is_never_tried_elsewhere() {
    let answers: [fn() -> Vec<Act>; 7] = [
        || vec![Act::Reset],
        || vec![Act::Close],
        || http("500 Oops", "text/html", "<html>"),
        || http("502 Bad", "text/html", "<html>"),
        || http("200 OK", "text/html", "<html>"),
        || http("429 Slow", "text/plain", "slow"),
        || status(400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    ];
    for answer in answers {
        let peer = peer_with(&[REST, RPC], false, move |request, path| match path {
            "/rpc" => ok(request, &json!({"task": task("COMPLETED")})),
            _ => answer(),
        })
        .await;
        let (end, kept) = send(&peer.agent(auto), job()).await;
        assert!(end.ended.is_err());
        assert_eq!((lines(&peer), kept.events.len()), (vec!["POST /rest/message:send".to_owned()], 0));
    }
}

#[tokio::test]
async fn a_tenant_goes_along_with_everything_about_its_task() {
    let script = |_: &Seen, path: &str| match path {
        path if path.contains("message:send") => bare(&json!({"task": task("WORKING")})),
        path if path.contains("cancel") => bare(&task("CANCELED")),
        _ => bare(&task("COMPLETED")),
    };
    for (tenants, named, expected) in [
        (Some("t"), None, ["POST /rest/t/message:send", "GET /rest/t/tasks/t-1", "POST /rest/t/tasks/t-1:cancel"]),
        (Some("t"), Some("u"), ["POST /rest/u/message:send", "GET /rest/u/tasks/t-1", "POST /rest/u/tasks/t-1:cancel"]),
        (
            None,
            Some("u"),
            ["POST /rest/message:send", "GET /rest/tasks/t-1?tenant=u", "POST /rest/tasks/t-1:cancel?tenant=u"],
        ),
    ] {
        let with: &'static [_] = if tenants.is_some() { &[("HTTP+JSON", "/rest", Some("t"))] } else { &[REST] };
        let peer = peer_with(with, false, script).await;
        let agent = peer.agent(auto);
        let mut job = job();
        job.tenant = named.map(Arc::from);
        let extensions = Some(http::HeaderValue::from_static("urn:e"));
        let own = Named { tenant: job.tenant.clone(), extensions, said: Some(Json::assume(r#"{"why":1}"#)) };
        assert!(send(&agent, job).await.0.ended.is_ok());
        let until = Time::from_millis(1_000_000) + Span::from_secs(1);
        agent.cancel(&RemoteId::from("t-1"), &own, until).await;
        assert_eq!(lines(&peer), expected);
        let calls = peer.calls();
        assert_eq!(calls[0].json()["tenant"].as_str(), named.or(tenants));
        let cancel = calls.last().unwrap();
        assert_eq!(cancel.json()["tenant"].as_str(), named.or(tenants));
        assert_eq!(cancel.header("a2a-extensions").as_deref(), Some("urn:e"));
        assert_eq!(cancel.json()["metadata"], json!({"why": 1}));
    }
}

#[tokio::test]
async fn a_binding_can_be_chosen() {
    let script = |request: &Seen, path: &str| match path {
        "/rpc" => ok(request, &json!({"task": task("COMPLETED")})),
        _ => bare(&json!({"task": task("COMPLETED")})),
    };
    for (binding, line) in [
        (Binding::Auto, "POST /rest/message:send"),
        (Binding::HttpJson, "POST /rest/message:send"),
        (Binding::JsonRpc, "POST /rpc"),
    ] {
        let peer = peer_with(&[REST, RPC], false, script).await;
        let agent = peer.agent(|config| (config.binding, config.card_wait) = (binding, Duration::from_secs(4)));
        assert!(send(&agent, job()).await.0.ended.is_ok());
        assert_eq!(lines(&peer), [line], "{binding:?}");
    }
    // Without a card, the configured address is spoken to as configured.
    for (binding, line) in [(Binding::Auto, "POST /rpc"), (Binding::HttpJson, "POST /rpc/message:send")] {
        let peer = Peer::start(move |request, _| script(request, request.head.split(' ').nth(1).unwrap())).await;
        let agent = peer.agent(|config| config.binding = binding);
        assert!(send(&agent, job()).await.0.ended.is_ok());
        assert_eq!(peer.calls()[0].head.split(" HTTP").next(), Some(line), "{binding:?}");
    }
}

#[tokio::test]
async fn a_task_that_was_taken_without_a_name_is_found_in_its_context() {
    let peer = peer_with(&[REST], false, |_, path| match path {
        "/rest/message:send" => http("202 Accepted", "application/json", r#"{"status":"queued"}"#),
        path if path.starts_with("/rest/tasks?") => {
            let mut task = task("WORKING");
            task["history"] = json!([{"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}]);
            bare(&json!({"tasks": [task], "nextPageToken": ""}))
        }
        _ => bare(&task("COMPLETED")),
    })
    .await;
    let mut job = job();
    job.dispatch.remote_context = Some(RemoteId::from("c-1"));
    let (end, kept) = send(&peer.agent(auto), job).await;
    assert!(end.ended.is_ok(), "{end:?}");
    assert_eq!(kept.said(), ["task COMPLETED"]);
    let listed = "GET /rest/tasks?contextId=c-1&pageSize=50&historyLength=100&includeArtifacts=false";
    assert_eq!(lines(&peer), ["POST /rest/message:send", listed, "GET /rest/tasks/t-1"]);
}

//! Polls: what goes out, when the turn is over, and when an agent is given up on.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[tokio::test]
async fn a_send_returns_at_once_and_is_polled_to_its_end() {
    let peer = Peer::start(|request, n| match request.method().as_str() {
        "SendMessage" => ok(request, &json!({"task": task("SUBMITTED")})),
        "GetTask" if n < 5 => ok(request, &task("WORKING")),
        "GetTask" => ok(request, &task("COMPLETED")),
        _ => vec![Act::Close],
    })
    .await;
    let (end, kept) = send(&peer.agent(|_| {}), job()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task SUBMITTED", "task WORKING", "task COMPLETED"], "the same answer is no event");
    let calls = peer.calls();
    assert_eq!(calls[0].json()["params"]["configuration"]["returnImmediately"], json!(true));
    assert_eq!(calls[1].json()["params"], json!({"id": "t-1"}));
}

#[tokio::test]
async fn the_callers_params_go_out_with_what_is_ours() {
    let peer = Peer::start(|request, _| ok(request, &json!({"task": task("COMPLETED")}))).await;
    let mut job = follow_up();
    job.dispatch.remote_context = Some(RemoteId::from("c-1"));
    let message = json!({
        "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"data": null}, {"data": 1.0}], "taskId": "ours", "contextId": "ours",
            "referenceTaskIds": ["ours-2", "other"], "metadata": {"x": 1, "x-budget": {"remaining_s": 9999}}, "future": {"n": 1.0}},
        "configuration": {"taskPushNotificationConfig": {"url": "http://hook"}, "historyLength": 3},
        "tenant": "mine"
    });
    job.message = Json::assume(message.to_string());
    job.references = vec![("ours-2".to_owned(), RemoteId::from("t-0"))];
    job.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap());
    job.extensions = Some("urn:x".parse().unwrap());
    let secret = (http::header::AUTHORIZATION, http::HeaderValue::from_static("Bearer s3cret"));
    let agent = peer.agent(|config| (config.mode, config.headers) = (Mode::Blocking, vec![secret]));
    assert!(send(&agent, job).await.0.ended.is_ok());
    assert!(!format!("{agent:?}").contains("s3cret"));

    let call = peer.calls()[0].clone();
    let body = call.json();
    let message = &body["params"]["message"];
    assert_eq!(
        (&message["messageId"], &message["taskId"], &message["contextId"]),
        (&json!("m-1"), &json!("t-1"), &json!("c-1"))
    );
    assert_eq!(message["referenceTaskIds"], json!(["t-0", "other"]));
    assert_eq!(message["metadata"]["x"], json!(1));
    let budget = &message["metadata"]["x-budget"];
    let left = budget["remaining_s"].as_f64().unwrap();
    assert!((29.0..=30.0).contains(&left), "{budget}");
    assert_eq!(
        (&budget["depth"], &budget["fanout"], &budget["task"]),
        (&json!(2), &json!(4), &json!(TaskId(7).to_string()))
    );
    assert_eq!(body["params"]["configuration"], json!({"historyLength": 3, "returnImmediately": false}));
    assert_eq!(body["params"].get("tenant"), None);
    assert!(String::from_utf8(call.body.clone()).unwrap().contains(r#""parts":[{"data":null},{"data":1.0}]"#));
    assert_eq!(call.header("authorization").as_deref(), Some("Bearer s3cret"));
    assert_eq!(call.header("a2a-version").as_deref(), Some("1.0"));
    assert_eq!(call.header("a2a-extensions").as_deref(), Some("urn:x"));
    assert!(call.header("traceparent").unwrap().starts_with("00-4bf9"));
    assert_eq!(call.header("accept-encoding"), None);
    assert_eq!(call.header("host"), Some(format!("127.0.0.1:{}", peer.port)));
    assert!(call.head.starts_with("POST /rpc HTTP/1.1"));
}

/// Polls an agent that answers so, from a send on.
async fn polled(script: impl Fn(&Seen, usize) -> Vec<Act> + Send + Sync + 'static) -> (End, Kept, usize, Duration) {
    let polls = AtomicUsize::new(0);
    let peer = Peer::start(move |request, _| match request.method().as_str() {
        "SendMessage" => ok(request, &json!({"task": task("WORKING")})),
        "GetTask" => script(request, polls.fetch_add(1, Ordering::SeqCst) + 1),
        _ => vec![Act::Close],
    })
    .await;
    let begun = tokio::time::Instant::now();
    let (end, kept) = send(&peer.agent(|_| {}), job()).await;
    (end, kept, peer.calls().len() - 1, begun.elapsed())
}

#[tokio::test]
async fn a_dead_and_a_frozen_agent_are_given_up_on_equally_fast() {
    for act in ["reset", "502 Bad Gateway", "503 Busy", "504 Late", "hold"] {
        let (end, kept, polls, took) = polled(move |_, _| match act {
            "reset" => vec![Act::Reset],
            "hold" => vec![Act::Hold],
            status => http(status, "text/html", "<html>"),
        })
        .await;
        assert_eq!(why(&end), (Reason::AgentUnreachable, Delivery::Delivered), "{act}");
        assert!(polls >= 3, "{act}: {polls}");
        assert!((Duration::from_millis(600)..Duration::from_millis(1_200)).contains(&took), "{act}: {took:?}");
        assert!(matches!(kept.news.last(), Some(News::Silent { polls, .. }) if *polls >= 3));
        assert!(what(&end).contains("no answer for"), "{}", what(&end));
    }
}

#[tokio::test]
async fn a_blip_is_ridden_out() {
    let begun = std::sync::OnceLock::new();
    let (end, _, _, took) = polled(move |request, _| {
        let begun: &tokio::time::Instant = begun.get_or_init(tokio::time::Instant::now);
        if begun.elapsed() < Duration::from_millis(400) { vec![Act::Reset] } else { ok(request, &task("COMPLETED")) }
    })
    .await;
    assert!(end.ended.is_ok(), "{}", what(&end));
    assert!(took > Duration::from_millis(400));
}

#[tokio::test]
async fn an_agent_that_answers_anything_lives() {
    for answer in ["500 Oops", "-32603", "408 Slow", "429 Later"] {
        let begun = std::sync::OnceLock::new();
        let (end, _, _, took) = polled(move |request, _| {
            let begun: &tokio::time::Instant = begun.get_or_init(tokio::time::Instant::now);
            if begun.elapsed() > Duration::from_millis(1_200) {
                ok(request, &task("COMPLETED"))
            } else if answer == "-32603" {
                error(request, -32603)
            } else {
                http(answer, "text/plain", "oops")
            }
        })
        .await;
        assert!(end.ended.is_ok(), "{answer}: {}", what(&end));
        assert!(took > Duration::from_millis(1_200));
    }
}

#[tokio::test]
async fn the_same_no_three_times_is_an_answer() {
    for (answer, reason) in [
        (-32001, Reason::OutcomeUnknown),
        (-32601, Reason::OutcomeUnknown),
        (401, Reason::AgentUnauthorized),
        (404, Reason::AgentRejectedRequest),
        (0, Reason::AgentMalformed),
    ] {
        let (end, _, polls, _) = polled(move |request, _| match answer {
            0 => http("200 OK", "application/json", "null"),
            1.. => http(&format!("{answer} No"), "text/plain", ""),
            code => error(request, code),
        })
        .await;
        assert_eq!(why(&end), (reason, Delivery::Delivered), "{answer}");
        // One that a busy machine let go unanswered is asked again.
        assert!((3..6).contains(&polls), "{answer}: {polls}");
    }
}

#[tokio::test]
async fn watching_resumes_and_never_sends() {
    let peer = Peer::start(|request, n| match (request.method().as_str(), n) {
        ("GetTask", 1) => ok(request, &task("WORKING")),
        ("GetTask", _) => ok(request, &task("INPUT_REQUIRED")),
        _ => vec![Act::Close],
    })
    .await;
    let agent = peer.agent(|_| {});
    let (end, kept) = watch(&agent, follow_up()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task WORKING", "task INPUT_REQUIRED"]);
    let (end, _) = watch(&agent, job()).await;
    assert_eq!(why(&end), (Reason::OutcomeUnknown, Delivery::MaybeDelivered));
    assert!(peer.methods().iter().all(|method| method != "SendMessage"));
}

#[tokio::test]
async fn watching_a_stream_joins_it() {
    let peer = Peer::start(|request, _| match request.method().as_str() {
        "GetTask" => ok(request, &task("WORKING")),
        "SubscribeToTask" => {
            then(stream(request, &[json!({"task": task("WORKING")}), chunk("x"), status("COMPLETED")]), Act::Hold)
        }
        _ => vec![Act::Close],
    })
    .await;
    let mut job = job();
    job.dispatch.remote_task = Some(RemoteId::from("t-1"));
    let (end, kept) = watch(&peer.agent(|config| config.mode = Mode::Stream), job).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said().last().unwrap(), "COMPLETED");
}

#[tokio::test]
async fn a_task_without_a_known_id_is_looked_up_in_its_own_context() {
    let in_context = |context: &str, message: &str, state: &str| {
        let history = json!([{"messageId": message, "role": "ROLE_USER", "parts": [{"text": "hi"}]}]);
        json!({"id": "t-1", "contextId": context, "status": {"state": format!("TASK_STATE_{state}")}, "history": history})
    };
    for (context, message, found) in [("c-1", "m-1", true), ("c-2", "m-1", false), ("c-1", "m-2", false)] {
        let listed = json!({"tasks": [in_context(context, message, "WORKING")], "nextPageToken": ""});
        let peer = Peer::start(move |request, _| match request.method().as_str() {
            "ListTasks" => ok(request, &listed),
            "SendMessage" => http("202 Accepted", "application/json", r#"{"status":"queued"}"#),
            _ => ok(request, &task("COMPLETED")),
        })
        .await;
        let mut job = job();
        job.dispatch.remote_context = Some(RemoteId::from("c-1"));
        let agent = peer.agent(|_| {});
        for (end, kept) in [watch(&agent, job.clone()).await, send(&agent, job).await] {
            if found {
                assert!(end.ended.is_ok(), "{}", what(&end));
                assert_eq!(kept.said(), ["task COMPLETED"]);
            } else {
                assert_eq!(why(&end).0, Reason::OutcomeUnknown);
            }
        }
        assert_eq!(peer.calls()[0].json()["params"]["contextId"], json!("c-1"));
    }
}

#[tokio::test]
async fn a_message_about_a_task_leaves_its_end_to_the_task() {
    let message = json!({"message": {"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}});
    let peer = Peer::start(move |request, _| match request.method().as_str() {
        "SendMessage" => ok(request, &message),
        _ => ok(request, &task("COMPLETED")),
    })
    .await;
    let agent = peer.agent(|_| {});
    let (end, kept) = send(&agent, follow_up()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["message", "task COMPLETED"]);
    let (end, kept) = send(&agent, job()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["message"]);
}

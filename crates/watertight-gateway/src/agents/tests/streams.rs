//! Streams: in order, to the end, and what is done when they end before the turn.

use super::*;

fn streaming(peer: &Peer) -> Arc<Agent> {
    peer.agent(|config| config.mode = Mode::Stream)
}

/// Plays a stream, and answers GetTask with these, the last one for ever.
async fn lost(
    first: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
    later: Vec<fn(&Seen) -> Vec<Act>>,
) -> (End, Kept, Vec<String>) {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let peer = Peer::start(move |request, _| match request.method().as_str() {
        "SendStreamingMessage" => first(request),
        "GetTask" => {
            let n = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            later[n.min(later.len() - 1)](request)
        }
        "SubscribeToTask" => error(request, -32004),
        _ => vec![Act::Close],
    })
    .await;
    let (end, kept) = send(&streaming(&peer), job()).await;
    (end, kept, peer.methods())
}

#[tokio::test]
async fn a_stream_is_handed_over_in_order_and_left_when_the_task_is_over() {
    let peer = Peer::start(|request, _| {
        let said =
            [json!({"task": task("SUBMITTED")}), status("WORKING"), chunk("Hel"), chunk("lo"), status("COMPLETED")];
        then(stream(request, &said), Act::Hold)
    })
    .await;
    let begun = tokio::time::Instant::now();
    let (end, kept) = send(&streaming(&peer), job()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task SUBMITTED", "WORKING", "Hel", "lo", "COMPLETED"]);
    assert!(begun.elapsed() < Duration::from_millis(400), "it waited for the end of the stream");
    assert_eq!(kept.news[0], News::Streaming);
    assert_eq!(peer.methods(), ["SendStreamingMessage"]);
}

#[tokio::test]
async fn a_burst_before_the_end_is_complete() {
    for _ in 0..10 {
        let peer = Peer::start(|request, _| {
            let mut said = vec![json!({"task": task("WORKING")})];
            said.extend((0..500).map(|n| chunk(&n.to_string())));
            said.push(status("COMPLETED"));
            then(stream(request, &said), Act::Close)
        })
        .await;
        let (end, kept) = send(&streaming(&peer), job()).await;
        assert!(end.ended.is_ok());
        assert_eq!(kept.events.len(), 502);
        assert_eq!(kept.said()[500], "499");
    }
}

#[tokio::test]
async fn bytes_may_come_one_by_one() {
    let peer = Peer::start(|request, _| {
        let data = json!({"jsonrpc": "2.0", "id": request.id(), "result": chunk("👩‍🚀 é")}).to_string();
        let (head, tail) = data.split_at(data.find(':').unwrap() + 1);
        let over = json!({"jsonrpc": "2.0", "id": request.id(), "result": status("COMPLETED")});
        let text = format!("\u{feff}: hello\r\ndata:{head}\r\ndata: {tail}\r\n\r\ndata:{over}\r\r");
        then(vec![stream_head()], Act::Sleep(1))
            .into_iter()
            .chain(text.bytes().map(|byte| Act::Write(vec![byte])))
            .collect()
    })
    .await;
    let (end, kept) = send(&streaming(&peer), job()).await;
    assert!(end.ended.is_ok(), "{}", what(&end));
    assert_eq!(kept.said(), ["👩‍🚀 é", "COMPLETED"]);
}

#[tokio::test]
async fn interrupted_states_and_lone_messages_end_a_turn() {
    for state in ["INPUT_REQUIRED", "AUTH_REQUIRED", "REJECTED", "FAILED", "CANCELED"] {
        let peer = Peer::start(move |request, _| {
            then(stream(request, &[json!({"task": task("WORKING")}), status(state)]), Act::Hold)
        })
        .await;
        let (end, kept) = send(&streaming(&peer), job()).await;
        assert!(end.ended.is_ok());
        assert_eq!(kept.said()[1], state);
    }
    let message = json!({"message": {"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}});
    let peer = Peer::start(move |request, _| then(stream(request, std::slice::from_ref(&message)), Act::Hold)).await;
    let (end, kept) = send(&streaming(&peer), job()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["message"]);
}

#[tokio::test]
async fn an_unknown_state_is_not_the_end() {
    let peer = Peer::start(|request, _| {
        then(stream(request, &[json!({"task": task("PAUSED")}), status("COMPLETED")]), Act::Close)
    })
    .await;
    let (end, kept) = send(&streaming(&peer), job()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task PAUSED", "COMPLETED"]);
}

#[tokio::test]
async fn a_clean_end_before_the_tasks_is_a_question() {
    let half = |request: &Seen| then(stream(request, &[json!({"task": task("WORKING")}), chunk("half ")]), Act::Close);
    let (end, kept, methods) = lost(half, vec![|request| ok(request, &task("COMPLETED"))]).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task WORKING", "half ", "task COMPLETED"]);
    assert!(kept.news.contains(&News::Lost));
    assert_eq!(methods, ["SendStreamingMessage", "GetTask"]);

    let (end, kept, methods) = lost(half, vec![|request| error(request, -32001)]).await;
    assert_eq!(why(&end), (Reason::AgentTruncated, Delivery::Delivered));
    assert_eq!(end.detail.unwrap().agent_error.unwrap().code, -32001);
    assert_eq!(kept.said(), ["task WORKING", "half "]);
    assert_eq!(methods.len(), 2);

    let (end, _, methods) = lost(half, vec![|request| error(request, -32603)]).await;
    assert_eq!(why(&end), (Reason::AgentTruncated, Delivery::Delivered));
    assert_eq!(methods.len(), 4);
}

#[tokio::test]
async fn a_reset_and_a_silence_are_questions_too() {
    let reset = |request: &Seen| {
        let mut acts = stream(request, &[json!({"task": task("WORKING")}), chunk("1"), chunk("2")]);
        acts.extend([Act::Sleep(50), Act::Reset]);
        acts
    };
    let (end, kept, _) = lost(reset, vec![|request| ok(request, &task("COMPLETED"))]).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task WORKING", "1", "2", "task COMPLETED"]);
    let silent = |request: &Seen| then(stream(request, &[json!({"task": task("WORKING")})]), Act::Hold);
    let (end, kept, _) = lost(silent, vec![|request| ok(request, &task("FAILED"))]).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task WORKING", "task FAILED"]);
}

#[tokio::test]
async fn comments_are_life() {
    let peer = Peer::start(|request, _| {
        let mut acts = stream(request, &[json!({"task": task("WORKING")})]);
        acts.extend((0..20).flat_map(|_| [Act::Sleep(60), Act::Write(b": still here\n\n".to_vec())]));
        acts.push(Act::Write(event(request, &status("COMPLETED"))));
        acts
    })
    .await;
    let (end, kept) = send(&streaming(&peer), job()).await;
    assert!(end.ended.is_ok());
    assert!(kept.news.iter().filter(|news| **news == News::Heartbeat).count() >= 7);
    assert_eq!(peer.methods().len(), 1);
}

#[tokio::test]
async fn an_active_task_is_joined_again_and_then_polled() {
    let peer = Peer::start(|request, _| match request.method().as_str() {
        "SendStreamingMessage" => then(stream(request, &[json!({"task": task("WORKING")})]), Act::Close),
        "GetTask" => ok(request, &task("WORKING")),
        "SubscribeToTask" => {
            then(stream(request, &[json!({"task": task("WORKING")}), chunk("more"), status("COMPLETED")]), Act::Close)
        }
        _ => vec![Act::Close],
    })
    .await;
    let (end, kept) = send(&streaming(&peer), job()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said().last().unwrap(), "COMPLETED");
    assert_eq!(peer.methods(), ["SendStreamingMessage", "GetTask", "SubscribeToTask"]);

    let half = |request: &Seen| then(stream(request, &[json!({"task": task("WORKING")})]), Act::Close);
    let (end, kept, methods) =
        lost(half, vec![|r| ok(r, &task("WORKING")), |r| ok(r, &task("WORKING")), |r| ok(r, &task("COMPLETED"))]).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said().last().unwrap(), "task COMPLETED");
    assert_eq!(methods.iter().filter(|method| *method == "SubscribeToTask").count(), 1, "a no is not asked for again");
}

#[tokio::test]
async fn joining_is_bounded() {
    for answer in ["401 Who", "200 OK"] {
        let polls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let peer = Peer::start(move |request, _| match request.method().as_str() {
            "SendStreamingMessage" => then(stream(request, &[json!({"task": task("WORKING")})]), Act::Close),
            "SubscribeToTask" if answer == "401 Who" => http(answer, "text/plain", ""),
            "SubscribeToTask" => then(stream(request, &[json!({"task": task("WORKING")})]), Act::Close),
            "GetTask" if polls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 6 => ok(request, &task("COMPLETED")),
            "GetTask" => ok(request, &task("WORKING")),
            _ => vec![Act::Close],
        })
        .await;
        let (end, _) = send(&streaming(&peer), job()).await;
        assert!(end.ended.is_ok(), "{}", what(&end));
        let joins = peer.methods().iter().filter(|method| *method == "SubscribeToTask").count();
        assert_eq!(joins, if answer == "200 OK" { 3 } else { 1 });
    }
}

#[tokio::test]
async fn other_forms_than_a_stream_are_taken() {
    let over = |request: &Seen| json!({"jsonrpc": "2.0", "id": request.id(), "result": {"task": task("COMPLETED")}});
    let working = |request: &Seen| json!({"jsonrpc": "2.0", "id": request.id(), "result": {"task": task("WORKING")}});
    let peer = Peer::start(move |request, n| match n {
        1 => http("200 OK", "application/json", over(request).to_string()),
        2 => http("200 OK", "text/event-stream", over(request).to_string()),
        3 => http("200 OK", "application/x-ndjson", format!("{}\n{}\n", working(request), over(request))),
        4 => http("200 OK", "application/x-ndjson", format!("{}\n\n{}", working(request), over(request))),
        5 => http(
            "200 OK",
            "application/json",
            format!("data: {}\n\ndata: {}\n\ndata: [DONE]\n\n", working(request), over(request)),
        ),
        // The blank line after the last event is missing.
        6 => http("200 OK", "text/event-stream", format!("data: {}\n\ndata: {}", working(request), over(request))),
        _ => http("200 OK", "text/event-stream; charset=utf-8", ""),
    })
    .await;
    let agent = streaming(&peer);
    for n in 1..=6 {
        let (end, kept) = send(&agent, job()).await;
        assert!(end.ended.is_ok(), "{n}: {}", what(&end));
        assert_eq!(kept.said().last().unwrap(), "task COMPLETED", "{n}");
        assert_eq!(kept.events.len(), if n < 3 { 1 } else { 2 }, "{n}");
    }
    let (end, _) = send(&agent, job()).await;
    assert_eq!(why(&end), (Reason::AgentMalformed, Delivery::MaybeDelivered));
}

#[tokio::test]
async fn a_stream_without_a_task_is_cut_or_says_no() {
    let peer = Peer::start(|request, n| match n {
        1 => vec![stream_head(), Act::Write(b": hello\n\n".to_vec()), Act::Close],
        2 => vec![stream_head(), Act::Write(b": hello\n\n".to_vec()), Act::Sleep(20), Act::Reset],
        3 => vec![stream_head(), Act::Hold],
        4 => error(request, -32602),
        _ => vec![stream_head(), Act::Write(b"data: {\"jsonrpc\":\n\n".to_vec()), Act::Close],
    })
    .await;
    let agent = streaming(&peer);
    for reason in [Reason::AgentTruncated, Reason::AgentTruncated, Reason::AgentNoAnswer] {
        assert_eq!(why(&send(&agent, job()).await.0), (reason, Delivery::MaybeDelivered));
    }
    assert_eq!(why(&send(&agent, job()).await.0), (Reason::AgentError, Delivery::Delivered));
    assert_eq!(why(&send(&agent, job()).await.0), (Reason::AgentMalformed, Delivery::MaybeDelivered));
    assert_eq!(peer.calls().len(), 5, "nothing is sent twice");
}

#[tokio::test]
async fn events_are_bounded() {
    let peer = Peer::start(|request, n| {
        let text = "x".repeat(if n == 1 { 9_000 } else { 11_000 });
        then(stream(request, &[json!({"task": task("WORKING")}), chunk(&text), status("COMPLETED")]), Act::Close)
    })
    .await;
    let agent = peer.agent(|config| (config.mode, config.max_event_bytes) = (Mode::Stream, 10_000));
    assert!(send(&agent, job()).await.0.ended.is_ok());
    let (end, kept) = send(&agent, job()).await;
    assert_eq!(why(&end), (Reason::ResultTooLarge, Delivery::Delivered));
    assert!(what(&end).contains("10000"));
    assert_eq!(kept.said(), ["task WORKING"]);
}

#[tokio::test]
async fn an_agent_that_does_not_stream_is_asked_otherwise_and_remembered() {
    let peer = Peer::with_card(|request, _| match request.method().as_str() {
        "SendStreamingMessage" => error(request, -32004),
        "SendMessage" => ok(request, &json!({"task": task("COMPLETED")})),
        _ => http("200 OK", "application/json", json!({"name": "p", "capabilities": {"streaming": true}}).to_string()),
    })
    .await;
    let agent = peer.agent(|config| config.mode = Mode::Auto);
    assert!(send(&agent, job()).await.0.ended.is_ok());
    assert!(send(&agent, job()).await.0.ended.is_ok());
    assert_eq!(peer.methods(), ["SendStreamingMessage", "SendMessage", "SendMessage"]);
}

#[tokio::test]
async fn a_follow_up_may_begin_with_the_task_as_it_was() {
    let said = [json!({"task": task("INPUT_REQUIRED")}), status("WORKING"), status("COMPLETED")];
    let peer = Peer::start(move |request, _| then(stream(request, &said), Act::Hold)).await;
    let (end, kept) = send(&streaming(&peer), follow_up()).await;
    assert!(end.ended.is_ok());
    assert_eq!(kept.said(), ["task INPUT_REQUIRED", "WORKING", "COMPLETED"]);
}

#[tokio::test]
async fn a_follow_up_that_was_lost_is_not_answered_by_the_old_question() {
    let (end, kept) = {
        let peer = Peer::start(|request, _| match request.method().as_str() {
            "GetTask" => ok(request, &task("INPUT_REQUIRED")),
            _ => vec![Act::Reset],
        })
        .await;
        send(&streaming(&peer), follow_up()).await
    };
    assert_eq!(why(&end), (Reason::AgentReset, Delivery::MaybeDelivered));
    assert!(kept.events.is_empty());
}

#[tokio::test]
async fn another_task_than_asked_about_is_malformed() {
    let peer = Peer::start(|request, _| {
        let other = json!({"statusUpdate": {"taskId": "t-2", "status": {"state": "TASK_STATE_COMPLETED"}}});
        then(stream(request, &[json!({"task": task("WORKING")}), other]), Act::Close)
    })
    .await;
    let (end, kept) = send(&streaming(&peer), job()).await;
    assert_eq!(why(&end), (Reason::AgentMalformed, Delivery::Delivered));
    assert_eq!(kept.said(), ["task WORKING"]);
}

//! Every way not to answer: its reason, its delivery, and that the next good call works.

use super::*;

/// The end of one send to a peer that answers so.
async fn ends(script: impl Fn(&Seen, usize) -> Vec<Act> + Send + Sync + 'static) -> End {
    let peer = Peer::start(script).await;
    let (end, kept) = send(&peer.agent(|config| config.max_task_bytes = 100_000), job()).await;
    assert!(kept.events.is_empty());
    assert_eq!(peer.methods(), ["SendMessage"]);
    end
}

#[tokio::test]
async fn no_connection_is_told_apart_and_never_sent() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let at = |url: &str| agent(url.parse().unwrap(), |config| config.connect_timeout = Duration::from_millis(300));
    let refused = send(&at(&format!("http://127.0.0.1:{port}/")), job()).await.0;
    assert_eq!(why(&refused), (Reason::AgentConnectRefused, Delivery::NotSent));
    let unknown = send(
        &agent(format!("http://{}.test/", "x".repeat(64)).parse().unwrap(), |config| {
            config.connect_timeout = Duration::from_secs(4)
        }),
        job(),
    )
    .await
    .0;
    assert_eq!(why(&unknown), (Reason::AgentDnsFailure, Delivery::NotSent), "{}", what(&unknown));
    let plain = Peer::start(|_, _| vec![Act::Close]).await;
    let talks = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = format!("https://localhost:{}/", talks.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = talks.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let insecure = send(&at(&tls), job()).await.0;
    assert_eq!(why(&insecure), (Reason::AgentTlsFailure, Delivery::NotSent), "{}", what(&insecure));
    drop(plain);
}

#[tokio::test]
async fn a_full_backlog_is_a_connect_timeout() {
    // A listener that nobody accepts from, with its queue full: the kernel drops what comes.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(one)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        held.push(one);
    }
    let silent = agent(format!("http://{address}/").parse().unwrap(), |config| {
        config.connect_timeout = Duration::from_millis(200)
    });
    assert_eq!(why(&send(&silent, job()).await.0), (Reason::AgentConnectTimeout, Delivery::NotSent));
}

#[tokio::test]
async fn a_broken_connection_may_have_delivered() {
    let end = ends(|_, _| vec![Act::Reset]).await;
    assert_eq!(why(&end), (Reason::AgentReset, Delivery::MaybeDelivered));
    let end = ends(|_, _| vec![Act::Close]).await;
    assert_eq!(why(&end), (Reason::AgentReset, Delivery::MaybeDelivered));
    let end = ends(|_, _| vec![Act::Write(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()), Act::Close]).await;
    assert_eq!(why(&end), (Reason::AgentTruncated, Delivery::MaybeDelivered), "{}", what(&end));
    let end =
        ends(|_, _| vec![Act::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"json".to_vec()), Act::Close])
            .await;
    assert_eq!(why(&end), (Reason::AgentTruncated, Delivery::MaybeDelivered), "{}", what(&end));
    let end =
        ends(|_, _| vec![Act::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"json".to_vec()), Act::Hold])
            .await;
    assert_eq!(why(&end), (Reason::AgentNoAnswer, Delivery::MaybeDelivered), "{}", what(&end));
    let end = ends(|_, _| vec![Act::Write(b"SMTP ready\r\n\r\n".to_vec()), Act::Close]).await;
    assert_eq!(why(&end), (Reason::AgentMalformed, Delivery::MaybeDelivered), "{}", what(&end));
}

#[tokio::test]
async fn statuses_have_reasons() {
    for (status, reason) in [
        ("500 Oops", Reason::AgentHttpError),
        ("502 Bad Gateway", Reason::AgentHttpError),
        ("504 Late", Reason::AgentHttpError),
        ("401 Who", Reason::AgentUnauthorized),
        ("403 No", Reason::AgentUnauthorized),
        ("404 Gone", Reason::AgentRejectedRequest),
        ("413 Big", Reason::AgentRejectedRequest),
        ("302 Found", Reason::AgentRejectedRequest),
        ("307 Temporary", Reason::AgentRejectedRequest),
    ] {
        let end = ends(move |_, _| {
            http_with(status, "Content-Type: text/html\r\nLocation: http://127.0.0.1:1/\r\n", "<html>\x1b[31mhello")
        })
        .await;
        assert_eq!(why(&end), (reason, Delivery::MaybeDelivered), "{status}");
        let detail = end.detail.unwrap();
        assert_eq!(detail.status, Some(status[..3].parse().unwrap()));
        assert_eq!(detail.content_type.as_deref(), Some("text/html"));
        assert_eq!(detail.excerpt.as_deref(), Some("<html>\u{fffd}[31mhello"), "{status}");
    }
}

#[tokio::test]
async fn a_wish_to_wait_is_kept() {
    for (status, reason) in [("503 Busy", Reason::AgentHttpError), ("429 Slow", Reason::AgentRateLimited)] {
        for (wish, kept) in [
            ("2", Some(Span::from_secs(2))),
            ("²", None),
            ("-5", None),
            ("1e9", None),
            ("99999999", Some(Span::from_secs(3_600))),
        ] {
            let end = ends(move |_, _| http_with(status, &format!("Retry-After: {wish}\r\n"), "")).await;
            assert_eq!(why(&end).0, reason);
            assert_eq!(end.ended.unwrap_err().retry_after, kept, "{status} {wish}");
        }
    }
}

#[tokio::test]
async fn an_error_in_json_rpc_is_the_agents_whatever_its_status() {
    for status in ["200 OK", "400 Bad", "404 Not Found", "500 Oops"] {
        let end = ends(move |request, _| {
            let error = json!({"code": -32005, "message": "no\u{1b}[2J", "data": [{"@type": "t", "n": 1.0}]});
            http(status, "application/json", json!({"jsonrpc": "2.0", "id": request.id(), "error": error}).to_string())
        })
        .await;
        assert_eq!(why(&end), (Reason::AgentError, Delivery::Delivered), "{status}");
        let said = end.detail.unwrap().agent_error.unwrap();
        assert_eq!((said.code, said.message.as_str()), (-32005, "no\u{fffd}[2J"));
        assert_eq!(said.data.unwrap().as_bytes(), br#"[{"@type":"t","n":1.0}]"#);
    }
    let end = ends(|request, _| {
        http(
            "200 OK",
            "application/json",
            json!({"jsonrpc": "2.0", "id": request.id(), "error": "model overloaded"}).to_string(),
        )
    })
    .await;
    // What is no error of JSON-RPC's is the agent's fault, and counts as one.
    assert_eq!(why(&end), (Reason::AgentMalformed, Delivery::Delivered));
    let end = ends(|_, _| {
        http("503 Busy", "application/json", r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#)
    })
    .await;
    assert_eq!(why(&end), (Reason::AgentHttpError, Delivery::MaybeDelivered));
    let end = ends(|_, _| {
        http_with(
            "401 Who",
            "WWW-Authenticate: Bearer realm=\"x\"\r\n",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"token"}}"#,
        )
    })
    .await;
    assert_eq!(why(&end).0, Reason::AgentUnauthorized);
    assert_eq!(end.detail.unwrap().challenge.as_deref(), Some("Bearer realm=\"x\""));
}

#[tokio::test]
async fn malformed_replies_end_at_once_and_the_next_call_works() {
    let bodies: Vec<String> = vec![
        String::new(),
        "{}".into(),
        "[]".into(),
        "null".into(),
        "<html>login</html>".into(),
        r#"{"jsonrpc":"2.0","id":"ID","result":null}"#.into(),
        r#"{"jsonrpc":"2.0","id":"ID","result":{}}"#.into(),
        r#"{"jsonrpc":"2.0","id":"ID","result":{"task":{"id":"t"}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":"ID","result":{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}},"message":{"messageId":"m","parts":[{"text":""}]}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":"other","result":{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":"ID","result":{"task":{"id":"t","sta"#.into(),
        format!("{}{}", "[".repeat(90_000), "]".repeat(9)),
        "\u{0}\u{1}\u{2}".into(),
    ];
    for body in bodies {
        let shown: String = body.chars().take(80).collect();
        let peer = Peer::start(move |request, n| match (request.method().as_str(), n) {
            (_, 1) => http("200 OK", "application/json", body.replace("\"ID\"", &request.id().to_string())),
            _ => ok(request, &json!({"task": task("COMPLETED")})),
        })
        .await;
        let agent = peer.agent(|_| {});
        let (end, _) = send(&agent, job()).await;
        assert_eq!(why(&end), (Reason::AgentMalformed, Delivery::MaybeDelivered), "{shown}: {}", what(&end));
        let (end, kept) = send(&agent, job()).await;
        assert!(end.ended.is_ok(), "{shown}");
        assert_eq!(kept.said(), ["task COMPLETED"]);
    }
    let end = ends(|_, _| vec![Act::Write(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())]).await;
    assert_eq!(why(&end).0, Reason::AgentMalformed);
}

#[tokio::test]
async fn loose_replies_with_one_meaning_are_taken() {
    for body in [
        task("COMPLETED").to_string(),
        json!({"task": task("COMPLETED")}).to_string(),
        json!({"result": task("COMPLETED")}).to_string(),
        format!("\u{feff}{}", json!({"jsonrpc": "2.0", "result": {"task": task("COMPLETED")}})),
        json!({"jsonrpc": "2.0", "id": null, "result": {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}}).to_string(),
    ] {
        let peer = Peer::start(move |_, _| http("200 OK", "text/plain", &body)).await;
        let (end, kept) = send(&peer.agent(|_| {}), job()).await;
        assert!(end.ended.is_ok(), "{}", what(&end));
        assert_eq!(kept.events.len(), 1);
    }
}

#[tokio::test]
async fn too_much_is_refused_before_it_is_all_here() {
    let end = ends(|_, _| {
        vec![
            Act::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n".to_vec()),
            Act::Write(vec![b'{'; 10]),
            Act::Hold,
        ]
    })
    .await;
    assert_eq!(why(&end), (Reason::ResultTooLarge, Delivery::MaybeDelivered), "{}", what(&end));
    let end = ends(|_, _| {
        let mut acts = vec![Act::Write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec())];
        acts.extend((0..30).map(|_| Act::Write([b"2710\r\n".as_slice(), &[b' '; 9_999], b"{\r\n"].concat())));
        then(acts, Act::Hold)
    })
    .await;
    assert_eq!(why(&end), (Reason::ResultTooLarge, Delivery::MaybeDelivered), "{}", what(&end));
}

#[tokio::test]
async fn a_compressed_reply_is_malformed() {
    let end = ends(|_, _| http_with("200 OK", "Content-Encoding: gzip\r\n", b"\x1f\x8b\x08")).await;
    assert_eq!(why(&end).0, Reason::AgentMalformed);
    assert!(what(&end).contains("gzip"));
}

#[tokio::test]
async fn queued_and_unnamed_is_taken_and_unknown() {
    for body in [r#"{"status":"queued","queue_depth":3}"#, ""] {
        let end = ends(move |_, _| http("202 Accepted", "application/json", body)).await;
        assert_eq!(why(&end), (Reason::OutcomeUnknown, Delivery::Delivered), "{body}");
    }
}

#[tokio::test]
async fn what_the_relay_refuses_ends_the_attempt() {
    let peer = Peer::start(|request, _| ok(request, &json!({"task": task("WORKING")}))).await;
    let fault = Fault { reason: Reason::AgentMalformed, delivery: Delivery::Delivered, retry_after: None, busy: false };
    let mut relay = Kept { refuse: Some(fault), ..Kept::default() };
    let end = peer.agent(|_| {}).send(&job(), &mut relay).await;
    assert_eq!(end.ended.unwrap_err(), fault);
    assert_eq!(peer.methods(), ["SendMessage"]);
}

#[tokio::test]
async fn a_peer_that_never_answers_is_left_by_dropping_the_future() {
    let peer = Peer::start(|_, _| vec![Act::Hold]).await;
    let mut relay = Kept::default();
    let agent = peer.agent(|_| {});
    let job = job();
    let waiting = agent.send(&job, &mut relay);
    assert!(tokio::time::timeout(Duration::from_millis(800), waiting).await.is_err());
}

#[tokio::test]
async fn the_limit_is_exact() {
    for chunked in [false, true] {
        let peer = Peer::start(move |request, n| {
            let mut body =
                json!({"jsonrpc": "2.0", "id": request.id(), "result": {"task": task("COMPLETED")}}).to_string();
            body.push_str(&" ".repeat(998 + n - body.len()));
            if chunked {
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                vec![Act::Write(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes())]
            } else {
                http("200 OK", "application/json", body)
            }
        })
        .await;
        let agent = peer.agent(|config| config.max_task_bytes = 1_000);
        for size in [999, 1_000] {
            assert!(send(&agent, job()).await.0.ended.is_ok(), "{size}");
        }
        assert_eq!(why(&send(&agent, job()).await.0), (Reason::ResultTooLarge, Delivery::MaybeDelivered));
    }
}

//! Cards: fetched once, kept, believed as far as they may be.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn card(url: &str, streaming: bool, tenant: Option<&str>) -> String {
    let mut interface = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    if let Some(tenant) = tenant {
        interface["tenant"] = json!(tenant);
    }
    json!({"name": "p", "supportedInterfaces": [interface], "capabilities": {"streaming": streaming}}).to_string()
}

fn gets(peer: &Peer) -> Vec<Seen> {
    peer.seen.lock().unwrap().iter().filter(|seen| seen.head.starts_with("GET")).cloned().collect()
}

/// A peer whose card is this, with `PORT` replaced by its port.
async fn with_this(card: String) -> Peer {
    Peer::with_card(move |request, _| {
        let port = request.header("host").unwrap().rsplit(':').next().unwrap().to_owned();
        match request.method().as_str() {
            "GET" if request.head.contains("/rpc/") => http("404 Not Found", "text/plain", ""),
            "GET" => http_with("200 OK", "ETag: \"1\"\r\n", card.replace("PORT", &port)),
            "SendStreamingMessage" => then(stream(request, &[json!({"task": task("COMPLETED")})]), Act::Close),
            _ => ok(request, &json!({"task": task("COMPLETED")})),
        }
    })
    .await
}

#[tokio::test]
async fn many_first_uses_fetch_one_card_and_follow_it() {
    let peer = with_this(card("http://127.0.0.1:PORT/deep/a2a?x=1", true, Some("t/1"))).await;
    let agent = peer.agent(|config| config.mode = Mode::Auto);
    let sends: Vec<_> = (0..100)
        .map(|_| {
            let agent = agent.clone();
            tokio::spawn(async move { agent.send(&job(), &mut Kept::default()).await.ended })
        })
        .collect();
    for send in sends {
        assert!(send.await.unwrap().is_ok());
    }
    assert_eq!(gets(&peer).len(), 2, "below the URL, then at the root");
    let call = &peer.calls()[0];
    assert!(call.head.starts_with("POST /deep/a2a?x=1 "));
    assert_eq!((call.method().as_str(), &call.json()["params"]["tenant"]), ("SendStreamingMessage", &json!("t/1")));
    let seen = agent.card().unwrap();
    assert!((!seen.stale, !seen.elsewhere, seen.view.streaming) == (true, true, true));
}

#[tokio::test]
async fn credentials_stay_with_the_configured_host() {
    let other = Peer::with_card(|request, _| match request.method().as_str() {
        "GET" => http("200 OK", "application/json", card("http://127.0.0.1:1/evil", false, None)),
        _ => http("500 Oops", "text/plain", ""),
    })
    .await;
    let peer = Peer::with_card(|request, _| ok(request, &json!({"task": task("COMPLETED")}))).await;
    let place: http::Uri = format!("http://127.0.0.1:{}/card.json", other.port).parse().unwrap();
    let agent = peer.agent(|config| {
        (config.mode, config.card) = (Mode::Auto, Some(place));
        config.headers = vec![(http::header::AUTHORIZATION, http::HeaderValue::from_static("Bearer s3cret"))];
    });
    assert!(send(&agent, job()).await.0.ended.is_ok());
    assert!(agent.card().unwrap().elsewhere);
    assert!(peer.calls()[0].head.starts_with("POST /rpc "));
    assert_eq!(peer.calls()[0].header("authorization").as_deref(), Some("Bearer s3cret"));
    assert_eq!(gets(&other)[0].header("authorization"), None);
    assert_eq!(gets(&other)[0].header("host"), Some(format!("127.0.0.1:{}", other.port)));
}

#[tokio::test]
async fn a_first_send_does_not_wait_long_for_a_card() {
    let peer = Peer::with_card(|request, _| match request.method().as_str() {
        "GET" => vec![Act::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{".to_vec()), Act::Hold],
        _ => ok(request, &json!({"task": task("COMPLETED")})),
    })
    .await;
    let agent = peer.agent(|config| (config.mode, config.card_wait) = (Mode::Auto, Duration::from_millis(200)));
    let begun = tokio::time::Instant::now();
    assert!(send(&agent, job()).await.0.ended.is_ok());
    let took = begun.elapsed();
    assert!((Duration::from_millis(150)..Duration::from_millis(900)).contains(&took), "{took:?}");
    assert_eq!(peer.methods(), ["SendMessage"], "without a card it is polled");
}

#[tokio::test]
async fn the_last_good_card_is_kept_and_marked() {
    let broken = Arc::new(AtomicBool::new(false));
    let down = broken.clone();
    let peer = Peer::with_card(move |request, _| match request.method().as_str() {
        "GET" if down.load(Ordering::SeqCst) => http("500 Oops", "text/plain", ""),
        "GET" if request.header("if-none-match").as_deref() == Some("\"1\"") => {
            vec![Act::Write(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec())]
        }
        "GET" => {
            http_with("200 OK", "ETag: \"1\"\r\nCache-Control: max-age=60\r\n", card("http://127.0.0.1/", false, None))
        }
        _ => ok(request, &json!({"task": task("COMPLETED")})),
    })
    .await;
    let agent = peer.agent(|_| {});
    assert!(send(&agent, job()).await.0.ended.is_ok());
    assert!(!agent.card().unwrap().stale);
    let look = async || {
        let before = gets(&peer).len();
        agent.cards.doubt();
        while gets(&peer).len() == before {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_millis(50)).await;
        agent.card().unwrap().stale
    };
    broken.store(true, Ordering::SeqCst);
    assert!(look().await);
    assert!(send(&agent, job()).await.0.ended.is_ok());
    broken.store(false, Ordering::SeqCst);
    assert!(!look().await);
    assert_eq!(gets(&peer).last().unwrap().header("if-none-match").as_deref(), Some("\"1\""));
}

#[tokio::test]
async fn no_card_too_large_a_card_and_no_json_are_lived_with() {
    for answer in ["404", "huge", "junk", "none"] {
        let peer = Peer::with_card(move |request, _| match (request.method().as_str(), answer) {
            ("GET", "404") => http("404 Not Found", "text/plain", ""),
            ("GET", "huge") => http("200 OK", "application/json", vec![b' '; 2 << 20]),
            ("GET", "junk") => http("200 OK", "application/json", "[]"),
            ("GET", _) => vec![Act::Reset],
            _ => ok(request, &json!({"task": task("COMPLETED")})),
        })
        .await;
        let agent = peer.agent(|config| config.mode = Mode::Auto);
        assert!(send(&agent, job()).await.0.ended.is_ok(), "{answer}");
        assert!(agent.card().is_none(), "{answer}");
        assert_eq!(peer.methods(), ["SendMessage"]);
    }
}

//! Cards: fetched once, kept, believed as far as they may be.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::agents::inspect;

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
    let peer = with_this(card("http://127.0.0.1:PORT/rpc/deep/a2a?x=1", true, Some("t/1"))).await;
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
    assert!(call.head.starts_with("POST /rpc/deep/a2a?x=1 "));
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

#[tokio::test]
async fn a_card_is_fetched_and_judged_once_for_people() {
    let card = |port: u16| {
        let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
        json!({
            "name": "Ho\u{1b}tels", "version": "2", "signatures": [{}],
            "supportedInterfaces": [
                {"url": "grpc.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": at("/old"), "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
                {"url": "https://other.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": at("/rest"), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "t"},
                {"url": at("/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            ],
            "capabilities": {"streaming": true, "extensions": [{"uri": "urn:r", "required": true}, {"uri": "urn:o"}]},
        })
        .to_string()
    };
    let peer = Peer::with_card(move |request, _| {
        let port = request.header("host").unwrap().rsplit(':').next().unwrap().parse().unwrap();
        if request.head.contains("/rpc/") {
            http("404 Not Found", "text/plain", "")
        } else {
            http("200 OK", "application/json", card(port))
        }
    })
    .await;
    let report = inspect(&AgentConfig::new("a", peer.url())).await.unwrap();
    assert_eq!(
        report.places.iter().map(|place| (place.reachable, place.status)).collect::<Vec<_>>(),
        [(true, Some(404)), (true, None)]
    );
    assert!(report.places.iter().all(|place| place.problem.is_none()) && !report.elsewhere);
    let facts = report.card.unwrap();
    assert_eq!(
        (facts.name.as_str(), facts.streaming, facts.signed, facts.only_v03),
        ("Ho\u{fffd}tels", true, true, false)
    );
    assert_eq!(facts.required_extensions, ["urn:r"]);
    let why: Vec<&str> = facts.interfaces.iter().map(|one| one.unusable.as_deref().unwrap_or("")).collect();
    let begins = ["the gateway speaks JSON-RPC", "the gateway speaks A2A 1.x", "it is at another scheme", "", ""];
    assert!(
        why.iter().zip(begins).all(|(why, begin)| why.starts_with(begin) && why.is_empty() == begin.is_empty()),
        "{why:?}"
    );
    let uses: Vec<_> = report.uses.iter().map(|one| (one.binding, one.path.as_str(), one.tenant.as_deref())).collect();
    assert_eq!(uses, [("HTTP+JSON", "/rest", Some("t")), ("JSONRPC", "/rpc", None)]);
    assert_eq!(peer.calls().len(), 0, "no message is sent");
}

#[tokio::test]
async fn what_is_wrong_with_a_card_is_said() {
    let of = async |script: fn(&Seen) -> Vec<Act>| {
        let peer = Peer::with_card(move |request, _| script(request)).await;
        let url = format!("http://127.0.0.1:{}/", peer.port).parse().unwrap();
        let report = inspect(&AgentConfig::new("a", url)).await.unwrap();
        assert_eq!((report.places.len(), report.card.is_none(), report.uses[0].binding), (1, true, "JSONRPC"));
        let place = report.places[0].clone();
        (place.reachable, place.status, place.problem.map(|(reason, _)| reason))
    };
    let refused = async |url: &str| {
        let report = inspect(&AgentConfig::new("a", url.parse().unwrap())).await.unwrap();
        let place = report.places[0].clone();
        (place.reachable, place.status, place.problem.map(|(reason, _)| reason))
    };
    assert_eq!(of(|_| http("404 X", "text/plain", "")).await, (true, Some(404), None));
    assert_eq!(of(|_| http("500 X", "text/plain", "")).await, (true, Some(500), Some(Reason::AgentHttpError)));
    assert_eq!(of(|_| http("200 X", "text/html", "<html>")).await, (true, Some(200), Some(Reason::AgentMalformed)));
    let huge =
        of(|_| vec![Act::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n{".to_vec()), Act::Hold]).await;
    assert_eq!(huge, (true, Some(200), Some(Reason::ResultTooLarge)));
    assert_eq!(refused("http://127.0.0.1:1/").await, (false, None, Some(Reason::AgentConnectRefused)));
}

#[tokio::test]
async fn a_card_that_moves_does_not_lose_the_tasks_that_run() {
    let moved = Arc::new(AtomicBool::new(false));
    let now = moved.clone();
    let peer = Peer::with_card(move |request, _| {
        let after = now.load(Ordering::SeqCst);
        let path = request.head.split(' ').nth(1).unwrap();
        let host = request.header("host").unwrap();
        match (path, request.method().as_str()) {
            (path, "GET") if path.starts_with("/.well-known") => http(
                "200 OK",
                "application/json",
                card(&format!("http://{host}/{}", if after { "rpc/v2" } else { "rpc/v1" }), false, None),
            ),
            ("/rpc/v1", _) if after => http("404 Not Found", "text/plain", "moved"),
            (_, "SendMessage") => ok(request, &json!({"task": task("WORKING")})),
            ("/rpc/v2", "GetTask") => ok(request, &task("COMPLETED")),
            ("/rpc/v1", "GetTask") => {
                now.store(true, Ordering::SeqCst);
                ok(request, &task("WORKING"))
            }
            _ => http("404 Not Found", "text/plain", ""),
        }
    })
    .await;
    let agent = peer.agent(|config| (config.mode, config.card_wait) = (Mode::Auto, Duration::from_secs(4)));
    let (end, kept) = send(&agent, job()).await;
    assert!(end.ended.is_ok(), "{end:?}");
    assert_eq!(kept.said().last().map(String::as_str), Some("task COMPLETED"));
    assert_eq!(peer.methods().iter().filter(|method| *method == "SendMessage").count(), 1);
}

#[tokio::test]
async fn a_cancel_finds_the_task_where_the_agent_was_before() {
    let moved = Arc::new(AtomicBool::new(false));
    let now = moved.clone();
    let peer = Peer::with_card(move |request, _| {
        let path = request.head.split(' ').nth(1).unwrap();
        let host = request.header("host").unwrap();
        let place = if now.load(Ordering::SeqCst) { "rpc/v2" } else { "rpc/v1" };
        match (path, request.method().as_str()) {
            (path, "GET") if path.starts_with("/.well-known") => {
                http("200 OK", "application/json", card(&format!("http://{host}/{place}"), false, None))
            }
            (_, "GET") => http("404 Not Found", "text/plain", ""),
            ("/rpc/v1", "CancelTask") => ok(request, &task("CANCELED")),
            _ => error(request, -32001),
        }
    })
    .await;
    let agent = peer.agent(|config| (config.mode, config.card_wait) = (Mode::Auto, Duration::from_secs(4)));
    assert!(send(&agent, job()).await.0.ended.is_err());
    moved.store(true, Ordering::SeqCst);
    agent.cards.doubt();
    let before = agent.card().unwrap().raw.clone();
    for _ in 0..500 {
        if agent.card().unwrap().raw != before {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let until = Time::from_millis(1_000_000) + Span::from_secs(2);
    let answer = agent.cancel(&RemoteId::from("t-1"), &Named::default(), until).await;
    assert_eq!(answer, watertight_engine::input::CancelAnswer::Ended(watertight_engine::record::TaskState::Canceled));
}

#[tokio::test]
async fn a_send_follows_a_card_that_came_late_or_moved() {
    let place = Arc::new(Mutex::new("/rpc/v1"));
    let now = place.clone();
    let peer = Peer::with_card(move |request, _| {
        let place = *now.lock().unwrap();
        let path = request.head.split(' ').nth(1).unwrap();
        match (path, request.method().as_str()) {
            (path, "GET") if path.starts_with("/.well-known") => {
                let url = format!("http://{}{place}", request.header("host").unwrap());
                let slowly = Act::Sleep(if place == "/rpc/v1" { 300 } else { 0 });
                [vec![slowly], http("200 OK", "application/json", card(&url, false, None))]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            (path, "SendMessage") if path == place => ok(request, &json!({"task": task("COMPLETED")})),
            _ => http("404 Not Found", "text/plain", ""),
        }
    })
    .await;
    let agent = peer.agent(|config| config.card_wait = Duration::from_millis(1));
    assert!(send(&agent, job()).await.0.ended.is_ok(), "the first card came late");
    sleep(Duration::from_millis(1_100)).await;
    *place.lock().unwrap() = "/rpc/v2";
    assert!(send(&agent, job()).await.0.ended.is_ok(), "and then another");
    let lines: Vec<String> = peer.calls().iter().map(|call| call.head.lines().next().unwrap().to_owned()).collect();
    assert_eq!(
        lines,
        ["POST /rpc HTTP/1.1", "POST /rpc/v1 HTTP/1.1", "POST /rpc/v1 HTTP/1.1", "POST /rpc/v2 HTTP/1.1"]
    );
}

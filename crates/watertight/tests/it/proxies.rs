//! Behind a proxy: what callers are told of the way in, whoever is believed, and paths with a slash too many.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::client::{Client, answer_text, message};
use crate::clock::{eventually, ms};
use crate::gateway::{Config, Gateway};
use crate::peer::Card;

const CARD: &str = "/agents/hotels/.well-known/agent-card.json";

/// Tells of another address of its own, and of its own address in its description.
const TALKATIVE: &str = r#"{"description":"I am at http://ADDR/ and at http://10.9.8.7:50051/x",
    "documentationUrl":"http://inner.local:9/docs","url":"http://ADDR/",
    "supportedInterfaces":[{"url":"http://ADDR/","protocolBinding":"JSONRPC","protocolVersion":"1.0"},
        {"url":"10.9.8.7:50051","protocolBinding":"GRPC","protocolVersion":"1.0"},
        {"url":"http://inner.local:9/a2a","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}"#;

fn started(agent: &Agent, top: &[&str]) -> Gateway {
    let config = top.iter().fold(Config::new(), |config, line| config.top(line));
    let gateway = config.agent("hotels", &agent.url(), &[]).start();
    let client = gateway.client();
    eventually(ms(2_000), "the card is known", || {
        let card = client.http("GET", CARD, &[], b"").unwrap();
        String::from_utf8_lossy(&card.body).contains("I am at").then_some(())
    });
    gateway
}

/// The interfaces of a card, all of which are at one URL, and the card.
fn interfaces(client: &Client, path: &str, headers: &[(&str, &str)]) -> (String, String) {
    let answer = client.http("GET", path, headers, b"").unwrap();
    assert_eq!(answer.status, 200, "{path}");
    let text = String::from_utf8(answer.body).unwrap();
    let card: Value = serde_json::from_str(&text).unwrap();
    let list = card["supportedInterfaces"].as_array().unwrap();
    let url = list[0]["url"].as_str().unwrap().to_owned();
    let expected =
        ["JSONRPC", "HTTP+JSON"].map(|b| json!({"url": url, "protocolBinding": b, "protocolVersion": "1.0"}));
    assert_eq!(list[..], expected, "{text}");
    assert_eq!(card["capabilities"]["pushNotifications"], false, "{text}");
    (url, text)
}

fn sends(client: &Client, base: &str) {
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("hi")}});
    let rest = json!({"message": message("hi")});
    for (path, body) in [
        (base.to_owned(), &rpc),
        (format!("{base}/"), &rpc),
        (format!("{base}/message:send"), &rest),
        (format!("{base}/message:send/"), &rest),
    ] {
        let answer = client.http("POST", &path, &[("a2a-version", "1.0")], body.to_string().as_bytes()).unwrap();
        assert_eq!((answer.status, answer.head.get("location")), (200, None), "{path}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer_text(body.get("result").unwrap_or(&body).get("task").unwrap()), "echo: hi", "{path}");
    }
}

#[test]
fn a_configured_url_is_what_callers_are_told() {
    let agent = Agent::start(Card::With(TALKATIVE), |text| {
        vec![crate::agent::Step::Chunk(format!("echo: {text}")), crate::agent::Step::End("COMPLETED")]
    });
    let gateway = started(&agent, &["server.public_url = \"https://agents.example/team-a/\""]);
    let client = gateway.client();
    let lies = [("x-forwarded-host", "evil.example"), ("x-forwarded-prefix", "/evil"), ("x-forwarded-proto", "http")];
    for path in [CARD.to_owned(), format!("/team-a{CARD}")] {
        let (url, card) = interfaces(&client, &path, &lies);
        assert_eq!(url, "https://agents.example/team-a/agents/hotels");
        for inner in [&agent.peer.addr().to_string(), "10.9.8.7", "inner.local", "evil", &gateway.addr().to_string()] {
            assert!(!card.contains(inner), "{inner}: {card}");
        }
    }
    sends(&client, "/agents/hotels");
    sends(&client, "/team-a/agents/hotels");
    assert_eq!(client.http("GET", "/team-a/healthz", &[], b"").unwrap().status, 200);
    for path in ["/team-a/team-a/healthz", "/team-b/healthz"] {
        assert_eq!(client.http("GET", path, &[], b"").unwrap().status, 404, "{path}");
    }
}

#[test]
fn a_trusted_proxy_is_believed_and_nobody_else() {
    let agent = Agent::start(Card::With(TALKATIVE), |text| {
        vec![crate::agent::Step::Chunk(format!("echo: {text}")), crate::agent::Step::End("COMPLETED")]
    });
    let said =
        [("x-forwarded-proto", "https"), ("x-forwarded-host", "agents.example"), ("x-forwarded-prefix", "/team-a/")];
    let standard = [("forwarded", "for=192.0.2.1;host=agents.example;proto=https")];
    let near = started(&agent, &["server.trusted_proxies = [\"10.0.0.0/8\", \"127.0.0.1\"]"]);
    let far = started(&agent, &["server.trusted_proxies = [\"10.0.0.0/8\"]"]);
    let none = started(&agent, &[]);

    let client = near.client();
    for path in [CARD.to_owned(), format!("/team-a{CARD}")] {
        let (url, card) = interfaces(&client, &path, &said);
        assert_eq!(url, "https://agents.example/team-a/agents/hotels");
        assert!(!card.contains(&near.addr().to_string()) && !card.contains("inner.local"), "{card}");
    }
    assert_eq!(interfaces(&client, CARD, &standard).0, "https://agents.example/agents/hotels");
    let vary = client.http("GET", CARD, &said, b"").unwrap().head.get("vary").unwrap_or("").to_owned();
    for name in ["host", "forwarded", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix"] {
        assert!(vary.split(',').any(|said| said.trim() == name), "{vary}");
    }
    for (name, garbage) in [
        ("x-forwarded-proto", "javascript"),
        ("x-forwarded-host", "a b\"<script>"),
        ("x-forwarded-host", "user@evil.example"),
        ("x-forwarded-prefix", "//evil.example"),
        ("x-forwarded-prefix", "/../x"),
        ("forwarded", "host=\"evil"),
    ] {
        let url = interfaces(&client, CARD, &[(name, garbage)]).0;
        assert_eq!(url, format!("http://{}/agents/hotels", near.addr()), "{name}: {garbage}");
    }
    for gateway in [&far, &none] {
        let client = gateway.client();
        for headers in [&said[..], &standard[..]] {
            assert_eq!(interfaces(&client, CARD, headers).0, format!("http://{}/agents/hotels", gateway.addr()));
        }
        assert_eq!(client.http("GET", "/team-a/healthz", &said, b"").unwrap().status, 404);
    }
    sends(&client, "/agents/hotels");
}

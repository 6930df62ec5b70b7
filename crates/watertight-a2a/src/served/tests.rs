//! The published card never leads around us.

use proptest::prelude::*;
use serde_json::{Value as Tree, json};

use super::*;

const SERVED: ServedAs<'static> = ServedAs {
    push: false,
    agent: "hotels",
    public_url: "https://gate.example/agents/hotels",
    bearer: true,
    upstream_authority: Some("10.0.0.5:8080"),
};

fn serve(card: &Tree, served: &ServedAs<'_>) -> Tree {
    serde_json::from_slice(&served_card(Some(card.to_string().as_bytes()), served)).unwrap()
}

fn interface() -> Tree {
    let url = "https://gate.example/agents/hotels";
    json!([
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ])
}

#[test]
fn without_a_card_a_minimal_one() {
    for upstream in [None, Some(&b"garbage"[..]), Some(b"[]"), Some(b"{}")] {
        let card: Tree = serde_json::from_slice(&served_card(upstream, &ServedAs { bearer: false, ..SERVED })).unwrap();
        assert_eq!(
            card,
            json!({"name": "hotels", "description": "", "version": "", "skills": [], "supportedInterfaces": interface(),
                "defaultInputModes": ["text/plain", "application/json"], "defaultOutputModes": ["text/plain", "application/json"],
                "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": false}})
        );
    }
}

#[test]
fn the_agents_words_stay_and_its_addresses_go() {
    let card = serve(
        &json!({
            "name": "Hotels", "description": "line\nbreak \u{0} \u{202e}", "version": "2", "x-vendor": {"n": 1},
            "url": "http://10.0.0.5:8080/", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0", "additionalInterfaces": [],
            "supportedInterfaces": [{"url": "http://10.0.0.5:8080/rpc"}], "signatures": [{"protected": "x"}],
            "supportsAuthenticatedExtendedCard": true, "security": [], "securitySchemes": {"k": {}}, "securityRequirements": [{}],
            "documentationUrl": "http://10.0.0.5:8080/docs", "iconUrl": "https://cdn.example/i.png",
            "provider": {"url": "http://10.0.0.5:8080", "organization": "Org"},
            "capabilities": {"streaming": false, "pushNotifications": true, "stateTransitionHistory": true,
                "extensions": [{"uri": "urn:x", "params": {"at": "HTTP://u@10.0.0.5:8080?x", "n": 1}}]},
            "defaultInputModes": "text", "defaultOutputModes": ["image/png"],
            "skills": [{"id": "s", "name": "S", "security": [], "securityRequirements": [{}], "examples": ["http://10.0.0.5:8080/a", "keep"]}],
        }),
        &SERVED,
    );
    assert_eq!(
        card,
        json!({
            "name": "Hotels", "description": "line\nbreak \u{fffd} \u{fffd}", "version": "2", "x-vendor": {"n": 1},
            "iconUrl": "https://cdn.example/i.png", "provider": {"url": "", "organization": "Org"},
            "supportedInterfaces": interface(),
            "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": false,
                "extensions": [{"uri": "urn:x", "params": {"n": 1}}]},
            "defaultInputModes": ["text/plain", "application/json"], "defaultOutputModes": ["image/png"],
            "skills": [{"id": "s", "name": "S", "examples": ["keep"]}],
            "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        })
    );
    assert!(!card.to_string().contains("10.0.0.5"));
}

#[test]
fn which_urls_are_hidden() {
    for (authority, url, hidden) in [
        ("a:8080", "http://a:8080/x", true),
        ("a:8080", "HTTPS://A.:8080", true),
        ("a:8080", "http://user:pw@a:8080/x", true),
        ("a:8080", "a:8080", true),
        ("a:8080", "//a:8080/x", true),
        ("a:8080", "http://a/x", false),
        ("a:8080", "http://a:80800/x", false),
        ("a:8080", "http://ab:8080/x", false),
        ("a:443", "https://a/x", true),
        ("a:80", "http://a", true),
        ("a", "https://a/x", true),
        ("a", "http://a:80/x", true),
        ("a", "http://a:8080/x", false),
        ("a", "a", false),
        ("a", "a/x", true),
        ("[::1]:80", "http://[::1]/x", true),
        ("a:8080", "see http://a:8080/x", false),
    ] {
        let card = serve(&json!({"iconUrl": url}), &ServedAs { upstream_authority: Some(authority), ..SERVED });
        assert_eq!(card.get("iconUrl").is_none(), hidden, "{authority} {url}");
    }
    let prose = "see [docs](http://a:8080/x), or a:8080. Not http://b:8080/";
    let card = serve(&json!({"description": prose}), &ServedAs { upstream_authority: Some("a:8080"), ..SERVED });
    assert_eq!(card["description"], "see [docs]([address removed]), or [address removed]. Not http://b:8080/");
    let all = serve(&json!({"iconUrl": "http://a/"}), &ServedAs { upstream_authority: None, ..SERVED });
    assert_eq!(all["iconUrl"], "http://a/");
}

#[test]
fn strings_are_bounded_and_members_come_once() {
    let long = "é".repeat(MAX_STRING_BYTES);
    let card = serve(&json!({"name": "n", "description": long, "k": {long.as_str(): 1}}), &SERVED);
    assert_eq!(card["description"].as_str().unwrap().len(), MAX_STRING_BYTES);
    assert_eq!(card["k"].as_object().unwrap().keys().next().unwrap().len(), MAX_STRING_BYTES);
    let twice = served_card(
        Some(br#"{"name":"a","n\u0061me":"b","url":"x","u\u0072l":"y","supported_interfaces":[1]}"#),
        &SERVED,
    );
    let text = String::from_utf8(twice).unwrap();
    assert_eq!(
        (text.matches("\"name\"").count(), text.contains("\"x\""), text.contains("supported_")),
        (1, false, false)
    );
}

proptest! {
    #[test]
    fn always_a_valid_card_with_one_interface(value in crate::json::tests::any_json()) {
        for card in [value.clone(), json!({"name": value, "skills": value, "provider": value, "capabilities": {"extensions": value}, "x": value})] {
            let served = serve(&card, &SERVED);
            prop_assert_eq!(&served["supportedInterfaces"], &interface());
            for (name, kind, _) in REQUIRED {
                prop_assert!(if kind == Kind::Array { served[name].is_array() } else { served[name].is_string() }, "{}", name);
            }
            prop_assert!(crate::card::CardView::read(served.to_string().as_bytes(), &CARD_LIMITS).is_ok());
        }
    }
}

#[test]
fn every_address_that_the_card_names_for_itself_is_left_out() {
    let upstream = br#"{"name":"H","url":"http://old.internal/","documentationUrl":"http://rest.internal:8080/docs",
        "description":"see http://rest.internal:8080/x, grpc.internal:50051 and https://public.example/y",
        "iconUrl":"http://old.internal/icon.png",
        "supportedInterfaces":[{"url":"http://rest.internal:8080/a","protocolBinding":"HTTP+JSON"},
            {"url":"grpc.internal:50051","protocolBinding":"GRPC"},{"url":7},{}],
        "additionalInterfaces":"none"}"#;
    let card = String::from_utf8(served_card(Some(upstream), &SERVED)).unwrap();
    assert!(!card.contains(".internal"), "{card}");
    assert!(card.contains("https://public.example/y"), "{card}");
}

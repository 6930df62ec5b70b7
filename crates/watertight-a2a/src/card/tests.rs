//! Cards as they are found.

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<CardView, CardError> {
    CardView::read(text.as_bytes(), &CARD_LIMITS)
}

#[test]
fn a_card_of_1_0() {
    let card = read(
        r#"{"name":"Hotels\u0000","description":"d","version":"2.1","supportedInterfaces":[
        {"url":"grpc.example:443","protocolBinding":"GRPC","protocolVersion":"1.0"},
        {"url":"https://a/rest","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},
        {"url":"https://a/old","protocolBinding":"JSONRPC","protocolVersion":"0.3"},
        {"protocolBinding":"JSONRPC","protocolVersion":"1.0"},
        {"url":"https://a/rpc","protocolBinding":"jsonrpc","protocolVersion":"1.0.1","tenant":"t"},
        {"url":"https://a/rpc2","protocolBinding":"JSONRPC","protocolVersion":"1.0"},
        {"url":"x","protocolBinding":"urn:odd"}],
        "capabilities":{"streaming":true,"pushNotifications":"yes","extendedAgentCard":true,
        "extensions":[{"uri":"urn:e","required":true},{"uri":"urn:f"}]},
        "skills":[{"id":"s","name":"Search"}],"signatures":[{}]}"#,
    )
    .unwrap();
    assert_eq!((card.name.as_str(), card.version.as_str(), card.interfaces.len()), ("Hotels\u{fffd}", "2.1", 6));
    assert_eq!(card.interfaces[0].binding, Binding::Grpc);
    assert_eq!(card.interfaces[1].binding, Binding::HttpJson);
    assert_eq!(card.interfaces[5].binding, Binding::Other("urn:odd".to_owned()));
    let usable: Vec<_> = card.json_v1().map(|one| (one.url.as_str(), &one.binding, one.tenant.as_deref())).collect();
    assert_eq!(
        usable,
        [
            ("https://a/rest", &Binding::HttpJson, None),
            ("https://a/rpc", &Binding::JsonRpc, Some("t")),
            ("https://a/rpc2", &Binding::JsonRpc, None)
        ]
    );
    assert_eq!((card.streaming, card.push_notifications, card.extended_card, card.signed), (true, false, true, true));
    assert_eq!(card.extensions, [("urn:e".to_owned(), true), ("urn:f".to_owned(), false)]);
    assert_eq!(card.skills, ["Search"]);
    assert!(!card.is_v03_only());
}

#[test]
fn a_card_of_0_3_is_noticed() {
    let card = read(
        r#"{"name":"old","url":"https://a/","protocolVersion":"0.3.0","additionalInterfaces":[{"url":"https://a/g","transport":"GRPC"}],
        "supportsAuthenticatedExtendedCard":true}"#,
    )
    .unwrap();
    let old = |url: &str, binding| Interface {
        url: url.to_owned(),
        binding,
        protocol_version: "0.3.0".to_owned(),
        tenant: None,
    };
    assert_eq!(card.v03_interfaces, [old("https://a/", Binding::JsonRpc), old("https://a/g", Binding::Grpc)]);
    assert!(card.is_v03_only() && card.extended_card && card.json_v1().next().is_none());
    let unversioned = read(r#"{"supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC"}]}"#).unwrap();
    assert!(unversioned.json_v1().next().is_some());
}

#[test]
fn what_is_no_card() {
    assert_eq!(read("{}"), Err(CardError::NotACard));
    assert_eq!(read("[]"), Err(CardError::NotAnObject));
    assert_eq!(read("<html>"), Err(CardError::Json(json::Error::Syntax { at: 0 })));
    let big = format!(r#"{{"name":"{}"}}"#, "x".repeat(MAX_CARD_BYTES));
    assert_eq!(read(&big), Err(CardError::Json(json::Error::TooLarge { limit: MAX_CARD_BYTES })));
    assert_eq!(keep(big).unwrap_err(), CardError::Json(json::Error::TooLarge { limit: MAX_CARD_BYTES }));
    let many = format!(r#"{{"supportedInterfaces":[{}{{}}]}}"#, r#"{"url":"u"},"#.repeat(1000));
    assert_eq!(read(&many).unwrap().interfaces.len(), MAX_ENTRIES);
}

#[test]
fn etags() {
    assert_eq!(etag(b""), "\"e3b0c44298fc1c149afbf4c8996fb924\"");
    assert_ne!(etag(b"a"), etag(b"b"));
}

proptest! {
    #[test]
    fn any_json_is_survived(value in crate::json::tests::any_json()) {
        for text in [value.to_string(), format!(r#"{{"name":{value},"supportedInterfaces":[{value}],"capabilities":{value},"url":{value}}}"#)] {
            let _ = read(&text);
        }
    }
}

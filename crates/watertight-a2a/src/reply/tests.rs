//! The zoo of wrong envelopes.

use proptest::prelude::*;

use super::*;
use crate::event::Event;

fn read(status: u16, kind: &str, body: &str) -> Result<RawResult, ReplyFault> {
    let head = Head { status, content_type: (!kind.is_empty()).then_some(kind) };
    read_reply(Bytes::copy_from_slice(body.as_bytes()), head, "7", &Limits::default())
}

fn what(status: u16, body: &str) -> What {
    match read(status, "application/json", body) {
        Err(ReplyFault::Malformed(malformed)) => {
            assert!(malformed.excerpt.len() <= MAX_EXCERPT_BYTES);
            assert_eq!(malformed.status, status);
            malformed.what
        }
        other => panic!("{body}: {other:?}"),
    }
}

const TASK: &str = r#"{"id":"t-1","status":{"state":"TASK_STATE_WORKING"}}"#;

#[test]
fn what_can_be_understood_is_accepted() {
    for (body, loose) in [
        (r#"{"jsonrpc":"2.0","id":"7","result":{"x":1}}"#, false),
        (r#"{"jsonrpc":"2.0","id":7,"result":{"x":1}}"#, false),
        ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"7\",\"result\":{\"x\":1},\"error\":null}", false),
        (r#"{"id":"7","result":{"x":1}}"#, true),
        (r#"{"jsonrpc":"2.0","result":{"x":1}}"#, true),
        (r#"{"jsonrpc":"2.0","id":null,"result":{"x":1}}"#, true),
    ] {
        let result = read(200, "application/json", body).unwrap();
        assert_eq!((result.result.as_bytes(), result.loose), (&br#"{"x":1}"#[..], loose), "{body}");
    }
    for bare in [TASK, r#"{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}"#, r#"{"task":{}}"#] {
        let result = read(200, "", bare).unwrap();
        assert_eq!((result.result.as_bytes(), result.loose), (bare.as_bytes(), true));
    }
}

#[test]
fn what_cannot_is_malformed() {
    for (status, body, expected) in [
        (200, "", What::Empty),
        (200, " \r\n", What::Empty),
        (204, "", What::Empty),
        (204, TASK, What::Empty),
        (200, "{}", What::NoEnvelope),
        (200, r#"{"Task":{"id":"t-1"}}"#, What::NoEnvelope),
        (200, r#"{"jsonrpc":"2.0","id":"7"}"#, What::NoResult),
        (200, r#"{"jsonrpc":"2.0","id":"7","result":null}"#, What::NoResult),
        (200, r#"{"result":null}"#, What::NoResult),
        (200, r#"{"jsonrpc":"2.0","id":"7","result":{},"error":{"code":1,"message":""}}"#, What::ResultAndError),
        (200, r#"{"jsonrpc":"2.0","id":"8","result":{}}"#, What::WrongId),
        (200, r#"{"jsonrpc":"2.0","id":8,"error":{"code":1,"message":""}}"#, What::WrongId),
        (200, r#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#, What::WrongId),
        (200, r#"{"jsonrpc":"2.0","id":["7"],"result":{}}"#, What::WrongId),
        (200, r#"{"result":1,"result":2}"#, What::Duplicate("result")),
        (200, "[]", What::NotAnObject),
        (200, "\"ok\"", What::NotAnObject),
        (200, r#"{"jsonrpc":"2.0","id":"7","result":{"id":"#, What::Cut),
        (200, "<!doctype html><title>Log in</title>", What::Html),
        (200, "upstream down", What::NotJson),
        (502, "<html><h1>Bad Gateway</h1>", What::HttpStatus),
        (500, "", What::HttpStatus),
        (500, r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, What::HttpStatus),
        (302, TASK, What::HttpStatus),
        (404, r#"{"title":"Not Found"}"#, What::HttpStatus),
    ] {
        let found = if body.starts_with('<') {
            match read(status, "text/html; charset=utf-8", body) {
                Err(ReplyFault::Malformed(malformed)) => {
                    assert_eq!(malformed.content_type.as_deref(), Some("text/html; charset=utf-8"));
                    malformed.what
                }
                other => panic!("{other:?}"),
            }
        } else {
            what(status, body)
        };
        assert_eq!(found, expected, "{status} {body}");
        assert!(!found.sentence().is_empty());
    }
    assert_eq!(what(200, &"[".repeat(100_000)), What::TooDeep);
    let tight = Limits { max_depth: 64, max_bytes: 3 };
    let fault = read_reply(Bytes::from_static(b"{\"a\":1}"), Head::EVENT, "7", &tight);
    assert!(matches!(fault, Err(ReplyFault::Malformed(Malformed { what: What::TooLarge, .. }))));
}

#[test]
fn an_error_is_a_failure_in_any_shape() {
    let error = |status: u16, body: &str| match read(status, "application/json", body) {
        Err(ReplyFault::AgentError(error)) => error,
        other => panic!("{body}: {other:?}"),
    };
    let proper =
        error(200, r#"{"jsonrpc":"2.0","id":"7","error":{"code":-32001,"message":"no\nsuch","data":[{"a":1}]}}"#);
    assert_eq!((proper.code, proper.message.as_str(), proper.well_formed), (-32001, "no such", true));
    assert_eq!(proper.data.as_ref().unwrap().as_bytes(), br#"[{"a":1}]"#);
    assert_eq!(proper.kind(), Some(A2a::TaskNotFound));
    let nobody = error(200, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#);
    assert_eq!(nobody.code, -32700);
    let text = error(200, r#"{"jsonrpc":"2.0","id":1.0,"error":"x"}"#.replace("1.0", "7").as_str());
    assert_eq!((text.code, text.message.as_str(), text.well_formed), (0, "x", false));
    let flag = error(429, r#"{"error":true}"#);
    assert_eq!((flag.message.as_str(), flag.well_formed, flag.status), ("true", false, 429));
    let rest = error(
        404,
        r#"{"error":{"code":404,"status":"NOT_FOUND","message":"m","details":[{"reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}"#,
    );
    assert_eq!((rest.code, rest.kind()), (404, Some(A2a::TaskNotFound)));
    let foreign =
        error(200, r#"{"error":{"code":-32603,"message":"m","data":[{"reason":"TASK_NOT_FOUND","domain":"x"}]}}"#);
    assert_eq!(foreign.kind(), None);
}

#[test]
fn accepted_but_unconfirmed_is_its_own_answer() {
    let queued = read(202, "application/json", r#"{"status":"queued"}"#);
    assert_eq!(queued, Err(ReplyFault::AcceptedUnconfirmed { excerpt: r#"{"status":"queued"}"#.to_owned() }));
    assert!(read(202, "application/json", TASK).is_ok());
    assert_eq!(what(202, ""), What::Empty);
    assert_eq!(what(200, r#"{"status":"queued"}"#), What::NoEnvelope);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        text in "(\\{|\\}|\"jsonrpc\":|\"2.0\"|\"id\":|\"7\"|\"result\":|\"error\":|\"task\":|\"status\":|\"state\":|null|1|,|\\[|\\]|<html>){0,16}",
        status in prop_oneof![Just(200u16), Just(202), Just(204), Just(502)],
    ) {
        for bytes in [bytes, text.into_bytes()] {
            let head = Head { status, content_type: None };
            if let Ok(raw) = read_reply(Bytes::from(bytes), head, "7", &Limits::default()) {
                prop_assert!(!raw.result.value().is_null());
                let _ = (Event::read_send_result(&raw.result), Event::read_task_result(&raw.result));
            }
        }
    }
}

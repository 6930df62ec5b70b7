//! Requests of every shape.

use proptest::prelude::*;

use super::*;

fn parse(body: &str) -> Result<Request, Box<Rejected>> {
    parse_request(Bytes::copy_from_slice(body.as_bytes()), &Limits::default())
}

#[test]
fn ids_are_echoed_byte_for_byte() {
    for id in ["1", "1.5", "123456789012345678901234567890", "-0", "1e3", "\"a\\u0062\"", "\"\"", "null"] {
        let request = parse(&format!(r#"{{"jsonrpc":"2.0","method":"GetTask","id":{id}}}"#)).unwrap();
        assert_eq!(request.id.as_bytes(), id.as_bytes());
        assert_eq!(
            write_result(&request.id, b"{}"),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).as_bytes()
        );
    }
}

#[test]
fn a_byte_order_mark_means_nothing() {
    let request = parse("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ListTasks\"}").unwrap();
    assert_eq!((request.method, request.id.as_bytes()), (Method::ListTasks, b"1".as_slice()));
    assert_eq!(parse("\u{feff}\u{feff}{}").unwrap_err().cause, Cause::Parse);
}

#[test]
fn refusals() {
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"GetTask"}}"#, "x".repeat(1100));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}"#, "[".repeat(100_000));
    for (body, id, code, cause) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"#, "null", -32700, Cause::Parse),
        ("", "null", -32700, Cause::Parse),
        ("garbage", "null", -32700, Cause::Parse),
        ("[]", "null", -32600, Cause::Shape),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#, "null", -32600, Cause::Shape),
        ("1", "null", -32600, Cause::Shape),
        ("{}", "null", -32600, Cause::Shape),
        (deep.as_str(), "null", -32600, Cause::Limit),
        (long.as_str(), "null", -32600, Cause::Shape),
        (r#"{"jsonrpc":"2.0","method":"GetTask"}"#, "null", -32600, Cause::Shape),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, "null", -32600, Cause::Shape),
        (r#"{"jsonrpc":"2.0","id":true,"method":"GetTask"}"#, "null", -32600, Cause::Shape),
        (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, "1", -32600, Cause::Shape),
        (r#"{"id":1,"method":"GetTask"}"#, "1", -32600, Cause::Shape),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "1", -32600, Cause::Shape),
        (r#"{"jsonrpc":"2.0","id":1}"#, "1", -32600, Cause::Shape),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","method":"CancelTask"}"#, "1", -32600, Cause::Shape),
        (r#"{"jsonrpc":"2.0","id":1,"method":"Nope"}"#, "1", -32601, Cause::UnknownMethod),
        (r#"{"jsonrpc":"2.0","id":1,"method":"vendor/thing"}"#, "1", -32601, Cause::UnknownMethod),
        (r#"{"jsonrpc":"2.0","id":"a","method":"message/send"}"#, "\"a\"", -32009, Cause::V03(Method::SendMessage)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}"#, "1", -32602, Cause::Params),
    ] {
        let rejected = parse(body).unwrap_err();
        let shown = body.get(..60).unwrap_or(body);
        assert_eq!((rejected.error.code, rejected.cause), (code, cause), "{shown}");
        assert_eq!(rejected.id.as_bytes(), id.as_bytes(), "{shown}");
        assert!(serde_json::from_slice::<serde_json::Value>(&rejected.to_jsonrpc()).is_ok());
    }
    let old = parse(r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get"}"#).unwrap_err();
    assert!(old.error.message.contains("A2A-Version: 1.0"));
    let small = Limits { max_depth: 64, max_bytes: 10 };
    let rejected = parse_request(Bytes::from_static(b"{\"jsonrpc\":\"2.0\"}"), &small).unwrap_err();
    assert_eq!((rejected.cause, rejected.error.message.contains("10 bytes")), (Cause::Limit, true));
}

#[test]
fn every_method_is_read_under_its_name() {
    for method in Method::ALL {
        let body = write_request("our-1", method, br#"{"a":1}"#);
        let request = parse(std::str::from_utf8(&body).unwrap()).unwrap();
        assert_eq!((request.method, request.id.as_bytes()), (method, &b"\"our-1\""[..]));
        assert_eq!(request.params.unwrap().as_bytes(), br#"{"a":1}"#);
    }
    assert_eq!(
        write_request("1", Method::ListTasks, b""),
        br#"{"jsonrpc":"2.0","id":"1","method":"ListTasks","params":{}}"#
    );
    assert_eq!(task_params("t\"1", Some("x"), Some(0)), br#"{"tenant":"x","id":"t\"1","historyLength":0}"#);
    assert_eq!(parse(r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":null}"#).unwrap().params, None);
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..100), text in "[{}\\[\\]\":,a-z0-9./ ]{0,60}") {
        for bytes in [bytes, text.into_bytes()] {
            if let Err(rejected) = parse_request(Bytes::from(bytes), &Limits::default()) {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&rejected.to_jsonrpc()).is_ok());
            }
        }
    }
}

//! The bytes of requests, and the zoo of answers.

use super::*;

const TASK: &str = r#"{"id":"t-1","status":{"state":"TASK_STATE_WORKING"}}"#;

fn line(operation: Operation<'_>, base: &str, tenant: Tenant<'_>, by_get: bool) -> String {
    let Request { verb, target, body } = write(&operation, &Base::of(base), tenant, by_get);
    format!("{verb:?} {target} {}", String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn an_operation_is_a_verb_a_path_a_query_and_a_body() {
    let params = Json::assume(r#"{"message":{"messageId":"m"},"tenant":"t"}"#);
    let list = Operation::ListTasks { context: "c&d", page_size: 50, history_length: 100 };
    let sent = "{\"message\":{\"messageId\":\"m\"},\"tenant\":\"t\"}";
    for (operation, plain, get) in [
        (Operation::SendMessage(&params), format!("Post /a/message:send {sent}"), None),
        (Operation::SendStreamingMessage(&params), format!("Post /a/message:stream {sent}"), None),
        (Operation::GetTask("t-1"), "Get /a/tasks/t-1 ".to_owned(), None),
        (Operation::CancelTask("t-1", None), "Post /a/tasks/t-1:cancel {}".to_owned(), None),
        (
            Operation::SubscribeToTask("t-1"),
            "Post /a/tasks/t-1:subscribe {}".to_owned(),
            Some("Get /a/tasks/t-1:subscribe "),
        ),
        (list, "Get /a/tasks?contextId=c%26d&pageSize=50&historyLength=100&includeArtifacts=false ".to_owned(), None),
    ] {
        for base in ["/a", "/a/", "/a/?"] {
            assert_eq!(line(operation, base, Tenant::None, false), plain, "{base}");
        }
        assert_eq!(line(operation, "/a", Tenant::None, true), get.map_or(plain, str::to_owned));
    }
    assert_eq!(line(Operation::GetTask("t"), "/", Tenant::None, false), "Get /tasks/t ");
}

#[test]
fn ids_and_tenants_are_one_segment_each() {
    let id = "a/b?c:d%é ü";
    let encoded = "a%2Fb%3Fc%3Ad%25%C3%A9%20%C3%BC";
    assert_eq!(line(Operation::GetTask(id), "/", Tenant::None, false), format!("Get /tasks/{encoded} "));
    let tenant = Tenant::Path("t/1");
    assert_eq!(line(Operation::GetTask("t"), "/a?k=v", tenant, false), "Get /a/t%2F1/tasks/t?k=v ");
    let cancel = line(Operation::CancelTask("t", None), "/a", tenant, false);
    assert_eq!(cancel, "Post /a/t%2F1/tasks/t:cancel {\"tenant\":\"t/1\"}");
}

#[test]
fn a_tenant_that_the_card_does_not_name_goes_beside_the_path() {
    let tenant = Tenant::Beside("t&1");
    let params = Json::assume("{}");
    assert_eq!(line(Operation::SendMessage(&params), "/", tenant, false), "Post /message:send {}");
    assert_eq!(line(Operation::GetTask("t"), "/a?k=v", tenant, false), "Get /a/tasks/t?k=v&tenant=t%261 ");
    let cancel = line(Operation::CancelTask("t", None), "/a", tenant, false);
    assert_eq!(cancel, "Post /a/tasks/t:cancel?tenant=t%261 {\"tenant\":\"t&1\"}");
    assert_eq!(line(Operation::SubscribeToTask("t"), "/a", tenant, true), "Get /a/tasks/t:subscribe?tenant=t%261 ");
}

#[test]
fn the_same_operations_have_params() {
    let params = |operation: Operation<'_>| String::from_utf8(operation.params(Some("x")).to_vec()).unwrap();
    assert_eq!(params(Operation::GetTask("t")), r#"{"tenant":"x","id":"t"}"#);
    let list = Operation::ListTasks { context: "c", page_size: 1, history_length: 2 };
    let listed = r#"{"tenant":"x","contextId":"c","pageSize":1,"historyLength":2,"includeArtifacts":false}"#;
    assert_eq!(params(list), listed);
    assert_eq!(params(Operation::SendMessage(&Json::assume("{}"))), "{}");
}

fn read(status: u16, body: &str, names_task: bool) -> Result<Json, ReplyFault> {
    let head = Head { status, content_type: Some("application/a2a+json") };
    read_reply(&Bytes::copy_from_slice(body.as_bytes()), head, names_task, &Limits::default())
}

fn what(status: u16, body: &str) -> What {
    match read(status, body, false) {
        Err(ReplyFault::Malformed(malformed)) => malformed.what,
        other => panic!("{status} {body}: {other:?}"),
    }
}

fn error(status: u16, body: &str, names_task: bool) -> AgentError {
    match read(status, body, names_task) {
        Err(ReplyFault::AgentError(error)) => error,
        other => panic!("{status} {body}: {other:?}"),
    }
}

#[test]
fn results_are_bare() {
    for body in [TASK, r#"{"task":{}}"#, r#"{"statusUpdate":{}}"#, r#"{"tasks":[]}"#, r#"{"task":{},"error":null}"#] {
        assert_eq!(read(200, body, false).unwrap().as_bytes(), body.as_bytes());
    }
    assert_eq!(read(200, &format!("\u{feff}{TASK}"), false).unwrap().as_bytes(), TASK.as_bytes());
}

#[test]
fn garbage_is_refused() {
    for (status, body, expected) in [
        (200, "", What::Empty),
        (204, "", What::Empty),
        (204, TASK, What::Empty),
        (200, "{}", What::NoEnvelope),
        (200, r#"{"jsonrpc":"2.0","id":"1","result":{}}"#, What::NoEnvelope),
        (200, "[1]", What::NotAnObject),
        (200, "OK", What::NotJson),
        (200, "<html>", What::Html),
        (200, &TASK[..20], What::Cut),
        (200, r#"{"task":{},"error":{"code":500,"message":"m"}}"#, What::ResultAndError),
        (200, r#"{"error":{"code":500},"error":{"code":500}}"#, What::Duplicate("error")),
        (404, TASK, What::HttpStatus),
        (404, r#"{"detail":"Not Found"}"#, What::HttpStatus),
        (502, "<html>", What::HttpStatus),
        (404, "", What::HttpStatus),
    ] {
        assert_eq!(what(status, body), expected, "{status} {body}");
    }
    let limits = Limits { max_bytes: 10, ..Limits::default() };
    let head = Head { status: 200, content_type: None };
    let long = read_reply(&Bytes::from_static(TASK.as_bytes()), head, false, &limits);
    assert!(matches!(long, Err(ReplyFault::Malformed(Malformed { what: What::TooLarge, .. }))));
    assert!(matches!(read(202, r#"{"status":"queued"}"#, false), Err(ReplyFault::AcceptedUnconfirmed { .. })));
}

fn status_of(code: u16, name: &str, reason: &str) -> String {
    format!(
        r#"{{"error":{{"code":{code},"status":"{name}","message":"no","details":[{{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"{reason}","domain":"a2a-protocol.org","metadata":{{}}}}]}}}}"#
    )
}

#[test]
fn an_error_is_told_by_its_reason() {
    for row in error::TABLE {
        for http in [row.http, 500, 409] {
            let found = error(http, &status_of(http, row.status, row.reason), false);
            assert_eq!((found.code, found.kind(), found.well_formed), (row.code.into(), Some(row.error), true));
            assert_eq!((found.message.as_str(), found.status), ("no", http));
            assert!(found.data.unwrap().value().items().count() == 1);
        }
    }
    for (reason, code) in [("INVALID_PARAMS", -32602), ("METHOD_NOT_FOUND", -32601), ("INTERNAL_ERROR", -32603)] {
        assert_eq!(error(404, &status_of(404, "NOT_FOUND", reason), true).code, code);
    }
}

#[test]
fn without_a_reason_the_status_counts_where_it_can_mean_one_thing() {
    let bare = |code: u16, name: &str| format!(r#"{{"error":{{"code":{code},"status":"{name}","message":"no"}}}}"#);
    for (status, name, names_task, code) in [
        (404, "NOT_FOUND", true, -32001),
        (404, "NOT_FOUND", false, 404),
        (404, "UNKNOWN", true, 404),
        (400, "INVALID_ARGUMENT", false, -32602),
        (400, "FAILED_PRECONDITION", true, 400),
        (501, "UNIMPLEMENTED", false, -32601),
        (500, "INTERNAL", true, 500),
        (503, "UNAVAILABLE", true, 503),
    ] {
        assert_eq!(error(status, &bare(status, name), names_task).code, code, "{status} {name}");
    }
    let unknown = error(500, &status_of(500, "INTERNAL", "SOMETHING_ELSE"), false);
    assert_eq!((unknown.code, unknown.kind()), (500, None));
}

#[test]
fn errors_inside_a_stream_are_the_agents() {
    // Python and JavaScript write a Status, Rust the error object of JSON-RPC.
    let python = r#"{"error":{"code":500,"status":"INTERNAL","message":"unknown exception"}}"#;
    let rust = r#"{"code":-32001,"message":"gone","data":[]}"#;
    let envelope = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"fail"}}"#;
    for (body, code) in [(python, -32603), (rust, -32001), (envelope, -32603)] {
        let found = error(200, body, true);
        assert_eq!((found.code, found.well_formed), (code, true), "{body}");
    }
    assert_eq!(error(200, &status_of(404, "NOT_FOUND", "TASK_NOT_FOUND"), true).kind(), Some(A2a::TaskNotFound));
    for body in [r#"{"error":"it broke"}"#, r#"{"error":{"message":"it broke"}}"#] {
        assert!(!error(200, body, true).well_formed);
    }
}

#[test]
fn problems_are_understood() {
    let told = r#"{"type":"https://a2a-protocol.org/errors/task-not-found","title":"Task Not Found","status":404,"detail":"no t-1"}"#;
    let found = error(404, told, true);
    assert_eq!((found.kind(), found.message.as_str()), (Some(A2a::TaskNotFound), "no t-1"));
    let other = error(503, r#"{"type":"about:blank","title":"Busy","status":503}"#, true);
    assert_eq!((other.code, other.message.as_str()), (503, "Busy"));
    let foreign = error(404, r#"{"type":"https://example.org/errors/task-not-found","title":"x"}"#, true);
    assert_eq!(foreign.code, 404);
}

proptest::proptest! {
    #[test]
    fn nothing_panics(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), status in 100u16..600, names in proptest::prelude::any::<bool>()) {
        let _ = read_reply(&Bytes::from(body), Head { status, content_type: None }, names, &Limits::default());
    }
}

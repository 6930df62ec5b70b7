//! Requests as they come, and the calls that they are.

use proptest::prelude::*;

use super::*;
use crate::call::{Get, List, PushList, PushRef, Send, TaskRef};
use crate::event::TaskState;

/// `POST /path?query` and a body.
fn ask(line: &str, body: &str) -> Result<Call, Error> {
    let (verb, target) = line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let place = Place::of(path).unwrap_or_else(|| panic!("there is nothing at {path}"));
    let method = place.operation(verb).unwrap_or_else(|| panic!("{path} takes no {verb}"));
    place.call(method, query, body.to_owned().into(), &Limits::default())
}

fn sent(line: &str, body: &str) -> Send {
    let (Call::Send(send) | Call::Stream(send)) = ask(line, body).unwrap() else { panic!("{line} sends nothing") };
    send
}

fn message(error: Error) -> String {
    assert!(matches!(error.code, error::INVALID_PARAMS | error::PARSE | error::INVALID_REQUEST), "{error:?}");
    error.message
}

const HELLO: &str = r#"{"message":{"messageId":"m","role":1,"parts":[{"data":null},{"data":{"n":12345678901234567890,"x":42}}],"new":{}}}"#;

#[test]
fn every_operation_has_its_place() {
    let task = |id: &str| TaskRef { id: id.to_owned(), tenant: None, metadata: None };
    let get = |id: &str| Call::Get(Get { id: id.to_owned(), history_length: None, tenant: None });
    let push = || PushRef { task_id: "t".to_owned(), id: "p".to_owned(), tenant: None };
    for slash in ["", "/"] {
        assert!(matches!(ask(&format!("POST /message:send{slash}"), HELLO), Ok(Call::Send(_))));
        assert!(matches!(ask(&format!("POST /message:stream{slash}"), HELLO), Ok(Call::Stream(_))));
        assert_eq!(ask(&format!("GET /tasks/t{slash}"), ""), Ok(get("t")));
        assert_eq!(ask(&format!("HEAD /tasks/t{slash}"), ""), Ok(get("t")));
        assert!(matches!(ask(&format!("GET /tasks{slash}"), ""), Ok(Call::List(_))));
        assert_eq!(ask(&format!("POST /tasks/t:cancel{slash}"), ""), Ok(Call::Cancel(task("t"))));
        assert_eq!(ask(&format!("POST /tasks/t:subscribe{slash}"), ""), Ok(Call::Subscribe(task("t"))));
        assert_eq!(ask(&format!("GET /tasks/t:subscribe{slash}"), ""), Ok(Call::Subscribe(task("t"))));
        let configs = format!("/tasks/t/pushNotificationConfigs{slash}");
        assert!(matches!(ask(&format!("POST {configs}"), r#"{"url":"http://a"}"#), Ok(Call::CreatePush(_))));
        let list = PushList { task_id: "t".to_owned(), page_size: 7, page_token: None, tenant: None };
        assert_eq!(ask(&format!("GET {configs}?pageSize=7"), ""), Ok(Call::ListPush(list)));
        let config = format!("/tasks/t/pushNotificationConfigs/p{slash}");
        assert_eq!(ask(&format!("GET {config}"), ""), Ok(Call::GetPush(push())));
        assert_eq!(ask(&format!("DELETE {config}"), ""), Ok(Call::DeletePush(push())));
        let card = ask(&format!("GET /extendedAgentCard{slash}"), "");
        assert_eq!(card, Ok(Call::ExtendedCard { tenant: None }));
    }
    assert!(matches!(ask("POST /message%3Asend", HELLO), Ok(Call::Send(_))));
}

#[test]
fn elsewhere_there_is_nothing() {
    for path in [
        "",
        "/",
        "//",
        "x",
        "/message",
        "/message:sent",
        "/message:send/x/y",
        "//message:send",
        "/tasks//",
        "/tasks/t/x",
        "/tasks/t/pushNotificationConfigs/p/x",
        "/a/b/message:send",
        "/a/tasks/t/pushNotificationConfigs/p/x",
        "/a/tasks/t/pushNotificationConfigs/p/x/y",
        "/.well-known/agent-card.json",
    ] {
        // An id may be empty in the path; the call then says that it is missing.
        let found = Place::of(path).filter(|place| place.task != Some(""));
        assert_eq!(found, None, "{path}");
    }
    assert!(message(ask("GET /tasks//", "").unwrap_err()).contains("id: is required"));
    assert!(message(ask("POST /tasks/:cancel", "").unwrap_err()).contains("id: is required"));
}

#[test]
fn other_verbs_are_not_taken() {
    for path in ["/message:send", "/tasks", "/tasks/t", "/tasks/t:cancel", "/t/tasks/t:subscribe", "/extendedAgentCard"]
    {
        let place = Place::of(path).unwrap();
        for verb in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"] {
            assert_eq!(place.operation(verb).is_some(), place.verbs().contains(&verb), "{verb} {path}");
        }
    }
    assert_eq!(Place::of("/tasks/t/pushNotificationConfigs/p").unwrap().verbs(), ["GET", "HEAD", "DELETE"]);
}

#[test]
fn ids_are_single_segments() {
    let id = |line: &str| {
        let call = ask(line, "").unwrap();
        let (Call::Get(Get { id, .. }) | Call::Cancel(TaskRef { id, .. }) | Call::Subscribe(TaskRef { id, .. })) = call
        else {
            panic!("{line} names no task")
        };
        id
    };
    assert_eq!(id("GET /tasks/a%2Fb%3fc"), "a/b?c");
    assert_eq!(id("GET /tasks/%C3%A9+1"), "é+1", "a plus sign in a path is one");
    assert_eq!(id("POST /tasks/a:b:cancel"), "a:b");
    assert_eq!(id("GET /tasks/a%3Asubscribe"), "a", "some clients encode the colon too");
    assert_eq!(id("GET /tasks/tasks"), "tasks");
    for (wrong, why) in
        [("GET /tasks/%zz", "path"), ("GET /tasks/%ff", "path"), ("GET /tasks/%00", "control characters")]
    {
        assert!(message(ask(wrong, "").unwrap_err()).contains(why), "{wrong}");
    }
}

#[test]
fn a_query_is_read_as_json_would_be() {
    let list = |query: &str| {
        let Call::List(list) = ask(&format!("GET /tasks?{query}"), "").unwrap() else {
            panic!("{query} lists nothing")
        };
        list
    };
    let all = List {
        context_id: Some("c 1".to_owned()),
        status: Some(TaskState::Working),
        page_size: 10,
        page_token: Some("a+b=".to_owned()),
        history_length: Some(0),
        status_timestamp_after: Some(1_767_225_600_500),
        include_artifacts: true,
        tenant: Some("acme".to_owned()),
    };
    assert_eq!(
        list(
            "contextId=c+1&status=TASK_STATE_WORKING&pageSize=10&pageToken=a%2Bb%3D&historyLength=0\
             &statusTimestampAfter=2026-01-01T00%3A00%3A00.5Z&includeArtifacts=true&tenant=acme&unknown=%ff&unknown=1"
        ),
        all
    );
    assert_eq!(
        list(
            "context_id=c%201&status=2&page_size=10&page_token=a%2bb=&history_length=0\
             &status_timestamp_after=2026-01-01T02:00:00.500+02:00&include_artifacts=true&tenant=acme"
        ),
        all
    );
    let none = list("contextId=&status=&pageSize=&tenant=&includeArtifacts=false");
    assert_eq!((none.context_id, none.status, none.page_size, none.include_artifacts), (None, None, 50, false));
    for (wrong, why) in [
        ("pageSize=0", "pageSize: must be"),
        ("pageSize=101", "pageSize: must be"),
        ("pageSize=x", "pageSize: must be"),
        ("page_size=1&pageSize=1", "pageSize: occurs twice"),
        ("status=WORKING", "status: must be"),
        ("status=99", "status: must be"),
        ("includeArtifacts=yes", "includeArtifacts: must be true or false"),
        ("historyLength=-1", "historyLength: must be"),
        ("statusTimestampAfter=yesterday", "statusTimestampAfter: must be"),
        ("tenant=a&tenant=a", "tenant: occurs twice"),
        ("contextId=%e9", "contextId: is not percent-encoded"),
    ] {
        let said = message(ask(&format!("GET /tasks?{wrong}"), "").unwrap_err());
        assert!(said.contains(why), "{wrong}: {said}");
    }
}

#[test]
fn a_body_is_taken_as_it_came() {
    let send = sent("POST /message:send", HELLO);
    assert_eq!(send.params.as_bytes(), HELLO.as_bytes());
    assert_eq!((send.peek.message_id.as_str(), send.peek.parts), ("m", 2));
    let marked = sent("POST /message:send", &format!("\u{feff}{HELLO}"));
    assert_eq!(marked.params.as_bytes(), HELLO.as_bytes());
    let cancel = ask("POST /tasks/t:cancel", r#" {"id":"t","metadata":{"why":"enough","n":1e400}} "#).unwrap();
    let Call::Cancel(TaskRef { metadata: Some(metadata), .. }) = cancel else { panic!("{cancel:?}") };
    assert_eq!(metadata.as_bytes(), br#"{"why":"enough","n":1e400}"#);
    let create = ask("POST /tasks/t/pushNotificationConfigs", r#"{"id":"p","url":"http://a","z":1}"#).unwrap();
    let Call::CreatePush(config) = create else { panic!("{create:?}") };
    assert_eq!((config.task_id.as_deref(), config.id.as_deref()), (Some("t"), Some("p")));
    assert_eq!(config.raw.as_bytes(), br#"{"id":"p","url":"http://a","z":1,"taskId":"t"}"#);
    for (line, body, why) in [
        ("POST /message:send", "", "body: is required"),
        ("POST /message:send", " \r\n", "body: is required"),
        ("POST /message:send", "[]", "body: must be an object"),
        ("POST /message:send", "null", "body: must be an object"),
        ("POST /message:send", "{", "Parse error"),
        ("POST /message:send", "{}", "message: is required"),
        ("POST /tasks/t:cancel", "[", "Parse error"),
        ("POST /tasks/t:cancel", r#"{"id":"u"}"#, "id: is `t` in the path and `u` in the body"),
        ("POST /tasks/t:cancel?id=u", "", "id: is `t` in the path and `u` in the query"),
        ("POST /tasks/t/pushNotificationConfigs", r#"{"task_id":"u","url":"http://a"}"#, "taskId: is `t` in the path"),
        ("POST /tasks/t:cancel", r#"{"id":"t","id":"t"}"#, "id: occurs twice"),
    ] {
        let said = message(ask(line, body).unwrap_err());
        assert!(said.contains(why), "{line} {body}: {said}");
    }
}

#[test]
fn the_tenant_may_stand_in_three_places() {
    let with = |tenant: &str| HELLO.replacen('{', &format!(r#"{{"tenant":{tenant},"#), 1);
    let added = format!(r#"{},"tenant":"acme"}}"#, HELLO.strip_suffix('}').unwrap());
    for (line, body, params) in [
        ("POST /acme/message:send", HELLO.to_owned(), added.clone()),
        ("POST /message:stream?tenant=acme", HELLO.to_owned(), added),
        ("POST /message:send", with(r#""acme""#), with(r#""acme""#)),
        ("POST /acme/message:send/?tenant=acme", with(r#""acme""#), with(r#""acme""#)),
        ("POST /acme/message:stream", with("null"), with(r#""acme""#)),
        ("POST /acme/message:send", with(r#""""#), with(r#""acme""#)),
    ] {
        let send = sent(line, &body);
        assert_eq!(std::str::from_utf8(send.params.as_bytes()).unwrap(), params, "{line}");
        assert_eq!(send.peek.tenant.as_deref(), Some("acme"), "{line}");
    }
    for line in [
        "GET /acme/tasks/t",
        "GET /tasks/t?tenant=acme",
        "GET /acme/tasks",
        "POST /acme/tasks/t:cancel",
        "GET /acme/tasks/t:subscribe",
        "POST /acme/tasks/t:subscribe",
        "GET /acme/tasks/t/pushNotificationConfigs",
        "DELETE /acme/tasks/t/pushNotificationConfigs/p",
        "GET /acme/extendedAgentCard",
    ] {
        assert_eq!(ask(line, "").unwrap().tenant(), Some("acme"), "{line}");
    }
    assert_eq!(sent("POST /a%2Fb%20c/message:send", HELLO).peek.tenant.as_deref(), Some("a/b c"));
    assert_eq!(ask("GET /tasks/tasks/t", "").unwrap().tenant(), Some("tasks"), "it cannot mean anything else");
    for (line, body, why) in [
        ("POST /acme/message:send", with(r#""other""#), "tenant: is `acme` in the path and `other` in the body"),
        (
            "POST /acme/message:send?tenant=other",
            HELLO.to_owned(),
            "tenant: is `acme` in the path and `other` in the query",
        ),
        (
            "POST /message:send?tenant=acme",
            with(r#""other""#),
            "tenant: is `acme` in the query and `other` in the body",
        ),
        ("POST /acme/message:send", with(r#""acme","tenant":"acme""#), "tenant: occurs twice"),
        ("POST /%C3/message:send", HELLO.to_owned(), "tenant: is not percent-encoded"),
        ("POST /acme/message:send", with("1"), "tenant: must be a string"),
        // An agent that has tenants is told them in its path.
        ("POST /../message:send", HELLO.to_owned(), "tenant: must not hold a path segment"),
        ("POST /%2E/message:send", HELLO.to_owned(), "tenant: must not hold a path segment"),
        ("POST /a%2F..%2Fb/message:send", HELLO.to_owned(), "tenant: must not hold a path segment"),
        ("GET /tasks/t?tenant=..", String::new(), "tenant: must not hold a path segment"),
        ("POST /message:stream", with(r#""a\\..""#), "tenant: must not hold a path segment"),
    ] {
        let said = message(ask(line, &body).unwrap_err());
        assert!(said.contains(why), "{line}: {said}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(path in "/[a-z%:/]{0,24}", query in "[a-zA-Z_=&%+0-9]{0,40}", body in "[{}\":a-z,]{0,20}") {
        if let Some(place) = Place::of(&path) {
            for verb in place.verbs() {
                let _ = place.call(place.operation(verb).unwrap(), &query, body.clone().into(), &Limits::default());
            }
        }
    }

    #[test]
    fn what_was_encoded_comes_back(id in "\\PC{1,20}") {
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let get = |tenant| Call::Get(Get { id: id.clone(), history_length: None, tenant });
        prop_assert_eq!(ask(&format!("GET /tasks/{encoded}"), "").unwrap(), get(None));
        // An id is one encoded segment whatever it holds; a tenant may become a path toward an agent.
        let tenant = ask(&format!("GET /tasks/{encoded}?tenant={encoded}"), "");
        match id.split(['/', '\\']).any(|segment| segment == "." || segment == "..") {
            true => prop_assert!(tenant.is_err()),
            false => prop_assert_eq!(tenant.unwrap(), get(Some(id.clone()))),
        }
    }
}

//! Params of every operation, and what is wrong with the wrong ones.

use proptest::prelude::*;

use super::*;
use crate::json::Limits;
use crate::json::tests::any_json;

fn parse(method: Method, params: &str) -> Result<Call, Error> {
    Call::parse(method, Some(Json::parse(params.to_owned(), &Limits::default()).unwrap()))
}

fn send(params: &str) -> Result<SendPeek, Error> {
    let Call::Send(send) = parse(Method::SendMessage, params)? else { panic!("not a send") };
    assert_eq!(send.params.as_bytes(), params.as_bytes());
    Ok(send.peek)
}

/// The field that the refusal names.
fn field(error: &Error) -> &str {
    assert_eq!(error.code, crate::error::INVALID_PARAMS);
    match error.data.as_slice() {
        [crate::error::Detail::BadRequest(violations)] => &violations[0].0,
        other => panic!("{other:?}"),
    }
}

const PLAIN: &str = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;

#[test]
fn a_message_with_everything() {
    let peek = send(
        r#"{"tenant":"t","message":{"messageId":"m","taskId":"t-1","contextId":"c-1","referenceTaskIds":["r"],
        "role":1,"parts":[{"text":""},{"data":null},{"raw":"","text":null},{"url":"u"}],"x":{},
        "metadata":{"x-budget":{"remaining_s":5.75,"depth":2.0,"fanout":-1,"task":"p","more":1}}},
        "configuration":{"returnImmediately":true,"historyLength":0,"push_notification_config":{"url":"http://a"}},
        "metadata":{"x-budget":"ignored, since the message has one"}}"#,
    )
    .unwrap();
    assert_eq!(
        (peek.message_id.as_str(), peek.task_id.as_deref(), peek.context_id.as_deref()),
        ("m", Some("t-1"), Some("c-1"))
    );
    assert_eq!((peek.reference_task_ids.as_slice(), peek.parts), (&["r".to_owned()][..], 4));
    assert_eq!((peek.return_immediately, peek.history_length, peek.push_config), (true, Some(0), true));
    assert_eq!(peek.tenant.as_deref(), Some("t"));
    let budget = BudgetWire { remaining_s: Some(5.75), depth: Some(2), fanout: Some(0), task: Some("p".to_owned()) };
    assert_eq!(peek.budget, Some(budget));
}

#[test]
fn a_delegation_token_is_text_or_nothing() {
    let with = |token: &str| {
        let text = format!(r#""metadata":{{{token}}},"messageId""#);
        send(&PLAIN.replacen("\"messageId\"", &text, 1)).unwrap().delegation
    };
    assert_eq!(with(r#""x-delegation":"wd1.a.b""#).as_deref(), Some("wd1.a.b"));
    for none in [r#""x":1"#, r#""x-delegation":7"#, r#""x-delegation":{"a":1}"#, r#""x-delegation":null"#] {
        assert_eq!(with(none), None, "{none}");
    }
    assert_eq!(with(r#""x-delegation":"a","x-delegation":"b""#), None, "nobody knows which");
    let beside = send(&PLAIN.replacen("{", r#"{"metadata":{"x-delegation":"b"},"#, 1)).unwrap();
    assert_eq!(beside.delegation.as_deref(), Some("b"));
}

#[test]
fn the_least_a_message_needs() {
    let peek = send(PLAIN).unwrap();
    assert_eq!((peek.task_id, peek.context_id, peek.budget, peek.tenant), (None, None, None, None));
    assert_eq!((peek.return_immediately, peek.history_length, peek.push_config), (false, None, false));
    let same = r#"{"metadata":{"x-budget":{}},"message":{"message_id":"other","task_id":"","contextId":null,"referenceTaskIds":[],
        "parts":[{ "te\u0078t":"h\u0069" }],"role":"ROLE_USER","metadata":{"a":1}},"configuration":{}}"#;
    let same = send(same).unwrap();
    assert_eq!(same.fingerprint, peek.fingerprint, "nothing but role, parts and the ids count");
    assert_eq!(same.budget, Some(BudgetWire::default()));
    for other in [
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}],"taskId":"a"}}"#,
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}],"contextId":"a"}}"#,
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}],"referenceTaskIds":["a"]}}"#,
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi","mediaType":"text/plain"}]}}"#,
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"ho"}]}}"#,
    ] {
        assert_ne!(send(other).unwrap().fingerprint, peek.fingerprint, "{other}");
    }
}

#[test]
fn refused_messages_name_the_path() {
    let long = "x".repeat(257);
    let message = |inner: &str| {
        format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"a"}}],{inner}}}}}"#)
    };
    let part = |parts: &str| format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":{parts}}}}}"#);
    for (params, path) in [
        ("{}".to_owned(), "message"),
        (r#"{"message":[]}"#.to_owned(), "message"),
        (r#"{"message":{"role":"ROLE_USER","parts":[{"text":"a"}]}}"#.to_owned(), "message.messageId"),
        (r#"{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":"a"}]}}"#.to_owned(), "message.messageId"),
        (r#"{"message":{"messageId":7,"role":"ROLE_USER","parts":[{"text":"a"}]}}"#.to_owned(), "message.messageId"),
        (
            r#"{"message":{"messageId":"a\u0000","role":"ROLE_USER","parts":[{"text":"a"}]}}"#.to_owned(),
            "message.messageId",
        ),
        (
            r#"{"message":{"messageId":"a\ud800","role":"ROLE_USER","parts":[{"text":"a"}]}}"#.to_owned(),
            "message.messageId",
        ),
        (r#"{"message":{"messageId":"m","parts":[{"text":"a"}]}}"#.to_owned(), "message.role"),
        (r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"a"}]}}"#.to_owned(), "message.role"),
        (r#"{"message":{"messageId":"m","role":2,"parts":[{"text":"a"}]}}"#.to_owned(), "message.role"),
        (r#"{"message":{"messageId":"m","role":"ROLE_USER"}}"#.to_owned(), "message.parts"),
        (part("[]"), "message.parts"),
        (part("{}"), "message.parts"),
        (part("[1]"), "message.parts[0]"),
        (part(r#"[{"text":"a"},{}]"#), "message.parts[1]"),
        (part(r#"[{"text":null}]"#), "message.parts[0]"),
        (part(r#"[{"text":"a","url":"b"}]"#), "message.parts[0]"),
        (part(r#"[{"text":"a","data":null}]"#), "message.parts[0]"),
        (part(r#"[{"text":"a","text":"b"}]"#), "message.parts[0]"),
        (part(r#"[{"text":5}]"#), "message.parts[0].text"),
        (message(&format!(r#""taskId":"{long}""#)), "message.taskId"),
        (message(r#""taskId":"a","task_id":"b""#), "message.taskId"),
        (message(r#""contextId":"a\n""#), "message.contextId"),
        (message(r#""referenceTaskIds":"a""#), "message.referenceTaskIds"),
        (message(r#""referenceTaskIds":["a",""]"#), "message.referenceTaskIds[1]"),
        (message(&format!(r#""referenceTaskIds":[{}"a"]"#, "\"a\",".repeat(256))), "message.referenceTaskIds"),
        (message(r#""metadata":[]"#), "message.metadata"),
        (message(r#""metadata":{"x-budget":5}"#), "message.metadata.x-budget"),
        (message(r#""metadata":{"x-budget":{"depth":1.5}}"#), "message.metadata.x-budget.depth"),
        (message(r#""metadata":{"x-budget":{"fanout":"4"}}"#), "message.metadata.x-budget.fanout"),
        (message(r#""metadata":{"x-budget":{"remaining_s":"5"}}"#), "message.metadata.x-budget.remaining_s"),
        (message(r#""metadata":{"x-budget":{"remaining_s":1e999}}"#), "message.metadata.x-budget.remaining_s"),
        (message(r#""metadata":{"x-budget":{"remaining_s":0}}"#), "message.metadata.x-budget.remaining_s"),
        (message(r#""metadata":{"x-budget":{"remaining_s":-0.5}}"#), "message.metadata.x-budget.remaining_s"),
        (message(r#""metadata":{"x-budget":{"remaining_s":"NaN"}}"#), "message.metadata.x-budget.remaining_s"),
        (message(r#""metadata":{"x-budget":{"task":5}}"#), "message.metadata.x-budget.task"),
        (message(r#""metadata":{"x-budget":{},"x-budget":{}}"#), "message.metadata.x-budget"),
        (message(r#""metadata":{"x-queue":5}"#), "message.metadata.x-queue"),
        (message(r#""metadata":{"x-queue":{},"x-queue":{}}"#), "message.metadata.x-queue"),
        (message(r#""metadata":{"x-queue":{"priority":101}}"#), "message.metadata.x-queue.priority"),
        (message(r#""metadata":{"x-queue":{"priority":-1}}"#), "message.metadata.x-queue.priority"),
        (message(r#""metadata":{"x-queue":{"priority":5.5}}"#), "message.metadata.x-queue.priority"),
        (message(r#""metadata":{"x-queue":{"priority":"5"}}"#), "message.metadata.x-queue.priority"),
        (message(r#""metadata":{"x-queue":{"ttl_s":0}}"#), "message.metadata.x-queue.ttl_s"),
        (message(r#""metadata":{"x-queue":{"ttl_s":-5}}"#), "message.metadata.x-queue.ttl_s"),
        (message(r#""metadata":{"x-queue":{"ttl_s":0.5}}"#), "message.metadata.x-queue.ttl_s"),
        (message(r#""metadata":{"x-queue":{"ttl_s":"10"}}"#), "message.metadata.x-queue.ttl_s"),
        (message(r#""metadata":{"x-queue":{"ttl_s":1e999}}"#), "message.metadata.x-queue.ttl_s"),
    ] {
        let error = send(&params).unwrap_err();
        assert_eq!(field(&error), path, "{}", params.get(..100).unwrap_or(&params));
    }
    for (more, path) in [
        (r#""configuration":5"#, "configuration"),
        (r#""configuration":{"historyLength":-1}"#, "configuration.historyLength"),
        (r#""configuration":{"historyLength":2147483648}"#, "configuration.historyLength"),
        (r#""configuration":{"returnImmediately":"yes"}"#, "configuration.returnImmediately"),
        (r#""configuration":{"taskPushNotificationConfig":"x"}"#, "configuration.taskPushNotificationConfig"),
        (r#""metadata":{"x-budget":[]}"#, "metadata.x-budget"),
        (r#""message":{}"#, "message"),
        (r#""tenant":5"#, "tenant"),
    ] {
        let params = PLAIN.replacen('{', &format!("{{{more},"), 1);
        assert_eq!(field(&send(&params).unwrap_err()), path, "{params}");
    }
}

#[test]
fn what_is_wanted_of_the_queue_is_read_where_the_budget_is() {
    let of = |text: &str| send(text).unwrap().queue;
    let inside = r#""metadata":{"x-queue":{"priority":100,"ttl_s":10.0,"more":1}},"messageId""#;
    let both = PLAIN.replacen("\"messageId\"", inside, 1).replacen('{', r#"{"metadata":{"x-queue":5},"#, 1);
    assert_eq!(of(&both), QueueWire { priority: Some(100), ttl_s: Some(10) });
    let outside = PLAIN.replacen('{', r#"{"metadata":{"x-queue":{"priority":0}},"#, 1);
    assert_eq!(of(&outside), QueueWire { priority: Some(0), ttl_s: None });
    assert_eq!(of(PLAIN), QueueWire::default());
}

#[test]
fn budgets_are_written_as_they_are_read() {
    let budget =
        BudgetWire { remaining_s: Some(5.12345), depth: Some(1), fanout: Some(4), task: Some("t\"".to_owned()) };
    assert_eq!(budget.to_json().as_bytes(), br#"{"remaining_s":5.123,"depth":1,"fanout":4,"task":"t\""}"#);
    assert_eq!(BudgetWire { remaining_s: Some(f64::NAN), ..Default::default() }.to_json().as_bytes(), b"{}");
    let params = PLAIN.replacen(
        "\"messageId\"",
        "\"metadata\":{\"x-budget\":{\"depth\":99999999999,\"remaining_s\":0.001}},\"messageId\"",
        1,
    );
    let spent = send(&params).unwrap().budget.unwrap();
    assert_eq!((spent.depth, spent.remaining_s), (Some(u32::MAX), Some(0.001)));
}

#[test]
fn the_other_operations() {
    let tenant = || Some("x".to_owned());
    for (method, params, expected) in [
        (
            Method::GetTask,
            r#"{"id":"t","historyLength":"3","tenant":"x"}"#,
            Call::Get(Get { id: "t".to_owned(), history_length: Some(3), tenant: tenant() }),
        ),
        (
            Method::CancelTask,
            r#"{"id":"t","metadata":{"a":1}}"#,
            Call::Cancel(TaskRef { id: "t".to_owned(), tenant: None, metadata: Some(Json::assume(r#"{"a":1}"#)) }),
        ),
        (
            Method::SubscribeToTask,
            r#"{"id":"t","unknown":[]}"#,
            Call::Subscribe(TaskRef { id: "t".to_owned(), tenant: None, metadata: None }),
        ),
        (
            Method::ListTasks,
            r#"{"context_id":"c","status":"TASK_STATE_WORKING","page_size":100,"pageToken":"p","historyLength":0,
            "statusTimestampAfter":"1970-01-01T00:00:00.0005Z","includeArtifacts":true,"tenant":"x"}"#,
            Call::List(List {
                context_id: Some("c".to_owned()),
                status: Some(TaskState::Working),
                page_size: 100,
                page_token: Some("p".to_owned()),
                history_length: Some(0),
                status_timestamp_after: Some(1),
                include_artifacts: true,
                tenant: tenant(),
            }),
        ),
        (
            Method::ListTasks,
            r#"{"status":0}"#,
            Call::List(List {
                context_id: None,
                status: None,
                page_size: 50,
                page_token: None,
                history_length: None,
                status_timestamp_after: None,
                include_artifacts: false,
                tenant: None,
            }),
        ),
        (
            Method::GetTaskPushNotificationConfig,
            r#"{"taskId":"t","id":"c"}"#,
            Call::GetPush(PushRef { task_id: "t".to_owned(), id: "c".to_owned(), tenant: None }),
        ),
        (
            Method::DeleteTaskPushNotificationConfig,
            r#"{"taskId":"t","id":"c","tenant":"x"}"#,
            Call::DeletePush(PushRef { task_id: "t".to_owned(), id: "c".to_owned(), tenant: tenant() }),
        ),
        (
            Method::ListTaskPushNotificationConfigs,
            r#"{"taskId":"t"}"#,
            Call::ListPush(PushList { task_id: "t".to_owned(), page_size: 50, page_token: None, tenant: None }),
        ),
        (Method::GetExtendedAgentCard, r#"{"tenant":"x"}"#, Call::ExtendedCard { tenant: tenant() }),
    ] {
        assert_eq!(parse(method, params).unwrap(), expected, "{params}");
    }
    let push = r#"{"taskId":"t","url":"https://a","token":"s","authentication":{"scheme":"Bearer","credentials":"k"}}"#;
    let Call::CreatePush(config) = parse(Method::CreateTaskPushNotificationConfig, push).unwrap() else { panic!() };
    assert_eq!((config.url.as_str(), config.token.as_deref()), ("https://a", Some("s")));
    assert_eq!(config.authentication, Some(("Bearer".to_owned(), Some("k".to_owned()))));
    assert_eq!(config.raw.as_bytes(), push.as_bytes());
}

#[test]
fn refusals_of_the_other_operations() {
    for (method, params, path) in [
        (Method::GetTask, "{}", "id"),
        (Method::GetTask, r#"{"id":""}"#, "id"),
        (Method::GetTask, r#"{"id":"t","historyLength":-1}"#, "historyLength"),
        (Method::CancelTask, r#"{"id":"t","metadata":5}"#, "metadata"),
        (Method::SubscribeToTask, r#"{"id":5}"#, "id"),
        (Method::ListTasks, r#"{"pageSize":0}"#, "pageSize"),
        (Method::ListTasks, r#"{"pageSize":101}"#, "pageSize"),
        (Method::ListTasks, r#"{"status":"done"}"#, "status"),
        (Method::ListTasks, r#"{"status":true}"#, "status"),
        (Method::ListTasks, r#"{"historyLength":-1}"#, "historyLength"),
        (Method::ListTasks, r#"{"statusTimestampAfter":"soon"}"#, "statusTimestampAfter"),
        (Method::CreateTaskPushNotificationConfig, r#"{"url":"https://a"}"#, "taskId"),
        (Method::CreateTaskPushNotificationConfig, r#"{"taskId":"t"}"#, "url"),
        (
            Method::CreateTaskPushNotificationConfig,
            r#"{"taskId":"t","url":"u","authentication":{}}"#,
            "authentication.scheme",
        ),
        (Method::GetTaskPushNotificationConfig, r#"{"taskId":"t"}"#, "id"),
        (Method::ListTaskPushNotificationConfigs, r#"{"taskId":"t","pageSize":1000}"#, "pageSize"),
    ] {
        assert_eq!(field(&parse(method, params).unwrap_err()), path, "{params}");
    }
    for method in Method::ALL {
        let optional = matches!(method, Method::ListTasks | Method::GetExtendedAgentCard);
        assert_eq!(Call::parse(method, None).is_ok(), optional, "{method:?}");
    }
}

#[test]
fn the_push_configuration_that_came_along() {
    let params = PLAIN.replacen('{', r#"{"configuration":{"taskPushNotificationConfig":{"url":"https://a"}},"#, 1);
    let Call::Stream(send) = parse(Method::SendStreamingMessage, &params).unwrap() else { panic!() };
    assert_eq!(send.push_config().unwrap().unwrap().url, "https://a");
    assert_eq!(send.message().as_bytes(), br#"{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}"#);
    let without = Send { params: Json::assume(params.replace("url", "uri")), ..send };
    assert_eq!(field(&without.push_config().unwrap_err()), "configuration.taskPushNotificationConfig.url");
}

proptest! {
    #[test]
    fn any_params_are_answered(value in any_json(), text in "(\\{|\\}|\\[|\\]|,|\"message\":|\"parts\":|\"role\":|\"text\":|\"id\":|\"a\"|null|1){0,14}") {
        let mut docs = vec![value.to_string(), format!(r#"{{"message":{value},"id":{value},"configuration":{value}}}"#)];
        docs.push(format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{value}],"metadata":{{"x-budget":{value}}}}}}}"#));
        docs.push(text);
        for doc in docs {
            let Ok(params) = Json::parse(doc, &Limits::default()) else { continue };
            for method in Method::ALL {
                if let Err(error) = Call::parse(method, Some(params.clone())) {
                    prop_assert!(!field(&error).is_empty());
                }
            }
        }
    }
}

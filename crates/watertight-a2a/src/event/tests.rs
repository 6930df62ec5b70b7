//! Events of every shape.

use proptest::prelude::*;

use super::*;
use crate::json::Limits;

fn read(text: &str) -> Result<Event, What> {
    Event::read(&Json::parse(text.to_owned(), &Limits::default()).unwrap())
}

#[test]
fn states() {
    let of = |text: &'static str| TaskState::read(Json::assume(text).value());
    for (index, (state, name)) in STATES.iter().enumerate() {
        assert_eq!(TaskState::of_name(name), *state);
        assert_eq!(state.name(), *name);
        assert_eq!(TaskState::read(Json::assume(index.to_string()).value()).as_ref(), Some(state));
    }
    let terminal: Vec<&str> =
        STATES.iter().filter(|(state, _)| state.is_terminal()).map(|(_, name)| &name[11..]).collect();
    assert_eq!(terminal, ["COMPLETED", "FAILED", "CANCELED", "REJECTED"]);
    let interrupted: Vec<&str> =
        STATES.iter().filter(|(state, _)| state.is_interrupted()).map(|(_, name)| &name[11..]).collect();
    assert_eq!(interrupted, ["INPUT_REQUIRED", "AUTH_REQUIRED"]);
    let paused = of("\"TASK_STATE_PAUSED\"").unwrap();
    assert_eq!((paused.name(), paused.is_terminal(), paused.is_known()), ("TASK_STATE_PAUSED", false, false));
    assert_eq!(of("42"), Some(TaskState::Unknown("42".to_owned())));
    assert_eq!(of("-1"), Some(TaskState::Unknown("-1".to_owned())));
    assert_eq!((of("null"), of("{}"), of("true")), (None, None, None));
}

#[test]
fn what_is_understood() {
    for (text, kind, loose, state) in [
        (r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}"#, "task", false, Some("TASK_STATE_WORKING")),
        (r#"{"task":{"id":"t","status":{"state":3}},"message":null}"#, "task", false, Some("TASK_STATE_COMPLETED")),
        (r#"{"id":"t","status":{"state":"X"},"x-vendor":{"n":1}}"#, "task", true, Some("X")),
        (r#"{"message":{"messageId":"m","taskId":"t","parts":[{"text":""}]}}"#, "message", false, None),
        (r#"{"messageId":"m","taskId":"t","parts":[{"text":""}]}"#, "message", true, None),
        (
            r#"{"status_update":{"task_id":"t","status":{"state":6}}}"#,
            "statusUpdate",
            false,
            Some("TASK_STATE_INPUT_REQUIRED"),
        ),
        (r#"{"statusUpdate":{"id":"t","status":{"state":2}}}"#, "statusUpdate", true, Some("TASK_STATE_WORKING")),
        (r#"{"taskId":"t","status":{"state":2}}"#, "statusUpdate", true, Some("TASK_STATE_WORKING")),
        (
            r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}"#,
            "artifactUpdate",
            false,
            None,
        ),
        (r#"{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}"#, "artifactUpdate", true, None),
        (
            r#"{"artifactUpdate":{"taskId":"t","append":true,"lastChunk":true,"artifact":{"artifactId":"a"}}}"#,
            "artifactUpdate",
            false,
            None,
        ),
    ] {
        let event = read(text).unwrap();
        assert_eq!((event.wrapper(), event.loose), (kind, loose), "{text}");
        assert_eq!(event.task_id(), Some("t"), "{text}");
        assert_eq!(event.state().map(TaskState::name), state, "{text}");
        let again = Event::read(&Json::assume(event.to_stream_response())).unwrap();
        assert_eq!(again.raw, event.raw);
    }
}

#[test]
fn what_is_malformed_names_the_path() {
    let member = |path: &str| What::Member(path.to_owned());
    let long = "x".repeat(MAX_REMOTE_ID_BYTES + 1);
    for (text, what) in [
        ("{}", What::NoEnvelope),
        ("[]", What::NotAnObject),
        (r#"{"Task":{"id":"t"}}"#, What::NoEnvelope),
        (r#"{"task":null}"#, What::NoEnvelope),
        (r#"{"task":{},"message":{}}"#, member("one of task and message")),
        (r#"{"task":{},"task":{}}"#, What::Duplicate("task")),
        (r#"{"task":5}"#, member("task")),
        (r#"{"task":{"status":{"state":1}}}"#, member("task.id")),
        (r#"{"task":{"id":"","status":{"state":1}}}"#, member("task.id")),
        (r#"{"task":{"id":"a\u0000","status":{"state":1}}}"#, member("task.id")),
        (r#"{"task":{"id":"t","id":"u","status":{"state":1}}}"#, What::Duplicate("id")),
        (&format!(r#"{{"task":{{"id":"{long}","status":{{"state":1}}}}}}"#), member("task.id")),
        (r#"{"task":{"id":"t"}}"#, member("task.status")),
        (r#"{"id":"t"}"#, member("task.status")),
        (r#"{"task":{"id":"t","status":{}}}"#, member("task.status.state")),
        (r#"{"task":{"id":"t","status":{"state":null}}}"#, member("task.status.state")),
        (r#"{"task":{"id":"t","status":{"state":1},"artifacts":{}}}"#, member("task.artifacts")),
        (
            r#"{"task":{"id":"t","status":{"state":1},"artifacts":[{"parts":[{}]}]}}"#,
            member("task.artifacts.artifactId"),
        ),
        (
            r#"{"task":{"id":"t","status":{"state":1},"artifacts":[{"artifactId":"a"}]}}"#,
            member("task.artifacts.parts"),
        ),
        (r#"{"task":{"id":"t","status":{"state":1},"history":[5]}}"#, member("task.history")),
        (r#"{"message":{"messageId":"m"}}"#, member("message.parts")),
        (r#"{"message":{"messageId":"m","parts":[]}}"#, member("message.parts")),
        (r#"{"statusUpdate":{"status":{"state":1}}}"#, member("statusUpdate.taskId")),
        (r#"{"statusUpdate":{"taskId":"t"}}"#, member("statusUpdate.status")),
        (r#"{"artifactUpdate":{"taskId":"t"}}"#, member("artifactUpdate.artifact")),
        (
            r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[]}}}"#,
            member("artifactUpdate.artifact.parts"),
        ),
        (
            r#"{"artifactUpdate":{"taskId":"t","append":true,"artifact":{"artifactId":"a","parts":[]}}}"#,
            member("artifactUpdate.artifact.parts"),
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), what, "{}", text.get(..80).unwrap_or(text));
    }
}

#[test]
fn lists_are_bounded_by_count_too() {
    let task = |name: &str, count: usize| {
        let items = vec![r#"{"artifactId":"a","parts":[{}]}"#; count].join(",");
        read(&format!(r#"{{"task":{{"id":"t","status":{{"state":1}},"{name}":[{items}]}}}}"#))
    };
    for (name, path) in [("history", "task.history"), ("artifacts", "task.artifacts")] {
        assert!(task(name, MAX_ENTRIES).is_ok());
        assert_eq!(task(name, MAX_ENTRIES + 1), Err(What::TooMany(path, MAX_ENTRIES)));
    }
}

#[test]
fn the_results_of_unary_calls() {
    let doc = |text: &'static str| Json::assume(text);
    let bare = doc(r#"{"id":"t","status":{"state":1}}"#);
    let wrapped = doc(r#"{"task":{"id":"t","status":{"state":1}}}"#);
    let update = doc(r#"{"statusUpdate":{"taskId":"t","status":{"state":1}}}"#);
    assert!(!Event::read_task_result(&bare).unwrap().loose);
    assert!(Event::read_task_result(&wrapped).unwrap().loose);
    assert_eq!(Event::read_task_result(&update), Err(What::NoEnvelope));
    assert!(Event::read_send_result(&bare).unwrap().loose);
    assert!(!Event::read_send_result(&wrapped).unwrap().loose);
    assert_eq!(Event::read_send_result(&update), Err(What::NoEnvelope));
}

proptest! {
    #[test]
    fn any_json_is_survived(value in crate::json::tests::any_json()) {
        for text in [
            value.to_string(),
            format!(r#"{{"task":{value}}}"#),
            format!(r#"{{"task":{{"id":"t","status":{value},"history":[{value}],"artifacts":[{value}]}}}}"#),
            format!(r#"{{"artifactUpdate":{{"taskId":"t","artifact":{value}}}}}"#),
        ] {
            if let Ok(event) = read(&text) {
                let ours = event.with_ids(&Ids::new("T", "C")).unwrap();
                prop_assert!(ours.task_id().is_none_or(|id| id == "T"));
                prop_assert_eq!(ours.context_id(), Some("C"));
            }
        }
    }
}

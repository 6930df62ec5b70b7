//! Every shape that a reply, a request or an acknowledgement may have, and then anything at all.

use proptest::prelude::*;
use serde_json::{Value as Tree, json};

use super::*;
use crate::json::{Json, Limits};

/// What a reply is, in a word, and its text.
fn told(reply: &Tree) -> (&'static str, String) {
    let json = Json::assume(reply.to_string());
    match super::reply(json.value()) {
        Said::Answer(content) => ("answer", content.text()),
        Said::Asks(content) => ("asks", content.text()),
        Said::Accepted(content) => ("accepted", content.text()),
        Said::Failed(content) => ("failed", content.text()),
        Said::Nothing => ("nothing", String::new()),
    }
}

fn kept(json: &Tree) -> String {
    archive(Json::assume(json.to_string()).value()).text()
}

fn asked(json: &Tree) -> String {
    request(Json::assume(json.to_string()).value()).text()
}

fn answer(text: &str) -> (&'static str, String) {
    ("answer", text.to_owned())
}

fn message(text: &str) -> Tree {
    json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]})
}

fn task(state: &str, more: &Tree) -> Tree {
    let mut task = json!({"id": "t", "contextId": "c", "status": {"state": state}});
    for (name, value) in more.as_object().into_iter().flatten() {
        task[name] = value.clone();
    }
    task
}

#[test]
fn an_answer_is_found_wherever_it_stands() {
    let artifacts = json!({"artifacts": [{"artifactId": "a", "parts": [{"text": "There are "}, {"text": "14."}]}]});
    let status = json!({"status": {"state": "TASK_STATE_COMPLETED", "message": message("There are 14.")}, "id": "t"});
    let history = json!({"history": [
        {"role": "ROLE_USER", "parts": [{"text": "How many?"}]}, {"role": "ROLE_AGENT", "parts": [{"text": "There are 14."}]}]});
    let done = task("TASK_STATE_COMPLETED", &artifacts);
    let old = json!({"kind": "task", "id": "t", "status": {"state": "completed"}, "artifacts": [
        {"parts": [{"kind": "text", "text": "There are "}, {"root": {"kind": "text", "text": "14."}}]}]});
    for reply in [
        json!("There are 14."),
        message("There are 14."),
        json!({"message": message("There are 14.")}),
        json!({"kind": "message", "role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": "There are 14."}]}),
        json!({"role": "agent", "parts": [{"type": "text", "text": "There are 14."}]}),
        json!({"parts": [{"root": {"type": "text", "text": "There are 14."}}]}),
        json!({"message": {"message": message("There are 14.")}}),
        done.clone(),
        json!({ "task": done }),
        old.clone(),
        status.clone(),
        json!({ "task": status }),
        json!({ "statusUpdate": {"taskId": "t", "status": status["status"]} }),
        json!({ "status_update": {"taskId": "t", "status": status["status"]} }),
        json!({"kind": "status-update", "final": true, "status": {"state": "completed", "message": {"parts": [{"kind": "text", "text": "There are 14."}]}}}),
        task("TASK_STATE_COMPLETED", &history),
        json!({"artifacts": [{"parts": ["There are 14."]}]}),
        json!({"text": "There are 14.", "delegation_id": "d-7"}),
        json!({"parts": [{"data": {"text": "There are 14.", "delegation_id": "d-7"}}]}),
        json!({"delegation_id": "d-7", "status": "completed", "summary": "Count", "response_preview": "There are 14.", "error": ""}),
    ] {
        assert_eq!(told(&reply), answer("There are 14."), "{reply}");
        for outer in [
            json!({"jsonrpc": "2.0", "id": "r-1", "result": reply}),
            json!({"jsonrpc": "2.0", "id": "r-1", "result": reply, "error": null}),
            json!({ "result": {"result": reply} }),
        ] {
            assert_eq!(told(&outer), answer("There are 14."), "{outer}");
        }
        assert!(kept(&reply).contains("There are 14."), "{reply}");
    }
    assert_eq!(told(&json!({"id": "t", "status": {"state": 3, "message": message("14")}})), answer("14"));
}

#[test]
fn an_acknowledgement_is_no_answer() {
    for reply in [
        json!({"queued": true, "queue_id": "q-5", "queue_depth": 3, "message": "There are 14."}),
        json!({"status": "queued", "delivery_mode": "poll", "method": "message/send"}),
        json!({"status": "queued", "queued": true, "queue_id": "q-5", "queue_depth": 1, "method": "message/send"}),
        json!({"status": "queued", "delivery_mode": "push-async", "method": "message/send"}),
        json!({"delegation_id": "d", "status": "delegated", "target_id": "b"}),
        json!({"delegation_id": "d", "status": "pending", "target_id": "b", "idempotent_hit": true}),
        json!({"status": "in_progress", "response_preview": "so far"}),
        json!({"status": "whatever comes next", "text": "so far"}),
        json!({"task": {"id": "t"}}),
        json!({"kind": "task", "id": "t", "artifacts": [{"parts": [{"text": "so far"}]}]}),
        json!({"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "so far"}]}}}),
        json!({"kind": "artifact-update", "taskId": "t", "artifact": {"parts": [{"kind": "text", "text": "so far"}]}}),
    ] {
        assert_eq!(told(&reply).0, "accepted", "{reply}");
        assert_eq!(told(&json!({"jsonrpc": "2.0", "id": 1, "result": reply})).0, "accepted", "{reply}");
    }
    let parts = json!({"artifacts": [{"parts": [{"text": "half of it"}]}]});
    for state in
        ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "working", "submitted", "unknown", "TASK_STATE_NEW", "queued"]
    {
        let task = task(state, &parts);
        assert_eq!(told(&task), ("accepted", "half of it".to_owned()), "{state}");
        assert_eq!(told(&json!({ "task": task })).0, "accepted", "{state}");
    }
}

#[test]
fn a_question_is_one_and_a_failure_says_why() {
    let status = |state: &str, text: &str| json!({"id": "t", "status": {"state": state, "message": message(text)}, "artifacts": [{"parts": [{"text": "so far"}]}]});
    for state in ["TASK_STATE_INPUT_REQUIRED", "input-required", "TASK_STATE_AUTH_REQUIRED", "auth-required"] {
        assert_eq!(told(&status(state, "Which day?")), ("asks", "Which day?".to_owned()));
    }
    for state in ["TASK_STATE_FAILED", "failed", "TASK_STATE_CANCELED", "canceled", "cancelled", "rejected"] {
        assert_eq!(told(&status(state, "no such room")), ("failed", "no such room".to_owned()), "{state}");
    }
    for error in [
        json!({"error": "no such room"}),
        json!({"error": {"code": -32603, "message": "no such room", "data": {"a": 1}}}),
        json!({"jsonrpc": "2.0", "id": null, "error": {"message": "no such room"}, "result": {"text": "an answer"}}),
        json!({"error": "no such room", "reason": "agent_unknown", "hint": "list them"}),
        json!({"delegation_id": "d", "status": "failed", "summary": "Count", "error": "no such room", "response_preview": ""}),
        json!({"status": "failed", "text": "no such room"}),
        json!({"busy": true, "error": "no such room", "retry_after": 30}),
    ] {
        assert_eq!(told(&error), ("failed", "no such room".to_owned()), "{error}");
    }
    for (error, text) in [
        (json!({"error": 5}), "5"),
        (json!({"error": ["x"]}), "[\"x\"]"),
        (json!({"error": {"code": 7}}), "{\"code\":7}"),
        (json!({"error": {"message": {"a": 1}}}), "{\"a\":1}"),
        (json!({"error": true}), "true"),
    ] {
        assert_eq!(told(&error), ("failed", text.to_owned()), "{error}");
    }
    assert_eq!(kept(&json!({"error": "e", "reason": "r", "hint": "h"})), "e\nh\nr");
}

#[test]
fn a_request_is_no_answer_to_itself() {
    let sent = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params":
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Count."}]}}});
    for request in [
        sent.clone(),
        sent["params"].clone(),
        sent["params"]["message"].clone(),
        json!({"task": "Count.", "delegation_id": "d-7"}),
        json!({"role": "user", "parts": [{"kind": "text", "text": "Count."}]}),
        json!({"role": 1, "parts": [{"text": "Count."}]}),
        json!({"message": {"role": "ROLE_USER", "parts": [{"data": {"task": "Count.", "delegation_id": "d-7"}}]}}),
    ] {
        assert_eq!(told(&request), ("nothing", String::new()), "{request}");
        assert_eq!(asked(&request), "Count.", "{request}");
        assert!(request.to_string().contains("delegation_id") || kept(&request) == "Count.", "{request}");
    }
    assert_eq!(asked(&json!("Count.")), "Count.");
    assert_eq!(asked(&json!({"parts": [{"text": "Count"}, {"data": {"task": "no"}}]})), "Count");
}

#[test]
fn what_is_no_reply_says_nothing() {
    for odd in [
        json!(null),
        json!(5),
        json!(true),
        json!([]),
        json!(["x"]),
        json!({}),
        json!(""),
        json!(" \n"),
        json!({"a": 1}),
        json!({"result": null}),
        json!({"result": 5}),
        json!({"message": "Not Found"}),
        json!({"parts": []}),
        json!({"text": 5}),
        json!({"status": 404, "message": "x"}),
        json!({"error": null}),
        json!({"error": ""}),
        json!({"text": " "}),
    ] {
        assert_eq!(told(&odd), ("nothing", String::new()), "{odd}");
    }
}

#[test]
fn files_and_data_in_every_spelling() {
    let json = Json::assume(
        json!({"parts": [
            {"kind": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}},
            {"type": "file", "file": {"uri": "https://x/b", "name": "b"}},
            {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"},
            {"url": "https://x/b", "filename": "b"},
            {"root": {"kind": "data", "data": {"n": 1.0}}},
            {"data": null, "mediaType": "application/json"},
            {"kind": "text", "text": "hi"}, {"text": " there"},
            {"kind": "text", "text": 5}, {}, 7, {"root": 5}, {"file": 5}, {"kind": "file", "text": "not this"},
        ]})
        .to_string(),
    );
    let Said::Answer(content) = reply(json.value()) else { panic!() };
    let files: Vec<_> =
        content.files().map(|file| (file.name.as_deref(), file.media_type.as_deref(), &file.place)).collect();
    assert_eq!(files[0], (Some("a.txt"), Some("text/plain"), &Place::Here("aGk=".into())));
    assert_eq!(files[1], (Some("b"), None, &Place::At("https://x/b".into())));
    assert_eq!((files[0], files[1], files.len()), (files[2], files[3], 4));
    assert_eq!(
        content.data().map(|data| data.raw().to_vec()).collect::<Vec<_>>(),
        [b"{\"n\":1.0}".to_vec(), b"null".to_vec()]
    );
    assert_eq!(content.text(), "hi there");
    assert_eq!(content.shown(), "[file a.txt]https://x/b[file a.txt]https://x/b{\"n\":1.0}nullhi there");
}

#[test]
fn what_has_no_words_is_followed_by_what_has() {
    let reply = json!({"id": "t", "status": {"state": "completed", "message": message("see the data")},
        "artifacts": [{"parts": [{"data": {"n": 1}}]}]});
    let json = Json::assume(reply.to_string());
    let content = super::reply(json.value()).into_content();
    assert_eq!((content.text().as_str(), content.data().count()), ("see the data", 1));
}

#[test]
fn a_preview_is_known_for_one() {
    let whole = Json::assume(json!({"text": "all", "response_preview": "a"}).to_string());
    let cut = Json::assume(json!({"response_preview": "a"}).to_string());
    let is_preview = |json: &Json| super::reply(json.value()).into_content().is_preview();
    assert_eq!((is_preview(&whole), is_preview(&cut)), (false, true));
}

#[test]
fn envelopes_are_opened_so_far_and_no_further() {
    let mut reply = json!("found");
    for _ in 0..MAX_DEPTH {
        reply = json!({ "result": reply });
    }
    assert_eq!(told(&reply), answer("found"));
    assert_eq!(told(&json!({ "result": reply })).0, "nothing");
    for name in ["result", "task", "message", "root", "parts", "artifact", "params", "data"] {
        let deep = format!("{{\"{name}\":").repeat(60) + "1" + &"}".repeat(60);
        let json = Json::parse(deep, &Limits::default()).unwrap();
        assert!(super::reply(json.value()).into_content().is_empty());
        let _ = (archive(json.value()), request(json.value()));
    }
}

/// What was said, as the parts of a 1.0 message.
fn as_parts(content: &Content<'_>) -> String {
    let parts: Vec<String> = content
        .pieces()
        .map(|piece| match piece {
            Piece::Text(text) => json!({ "text": text }).to_string(),
            Piece::Data(data) => format!("{{\"data\":{}}}", String::from_utf8_lossy(data.raw())),
            Piece::File(file) => match &file.place {
                Place::Here(base64) => {
                    json!({"raw": base64, "filename": file.name, "mediaType": file.media_type}).to_string()
                }
                Place::At(url) => json!({"url": url, "filename": file.name, "mediaType": file.media_type}).to_string(),
            },
        })
        .collect();
    format!("[{}]", parts.join(","))
}

/// JSON that is nearly what agents say.
fn nearly() -> impl Strategy<Value = Tree> {
    let names = prop::sample::select(vec![
        "error",
        "result",
        "params",
        "queued",
        "status",
        "task",
        "message",
        "statusUpdate",
        "artifactUpdate",
        "artifacts",
        "artifact",
        "parts",
        "text",
        "response_preview",
        "role",
        "kind",
        "history",
        "state",
        "root",
        "file",
        "uri",
        "bytes",
        "raw",
        "url",
        "data",
        "delegation_id",
    ]);
    let words = prop::sample::select(vec![
        "",
        " ",
        "é",
        "TASK_STATE_COMPLETED",
        "working",
        "queued",
        "text",
        "file",
        "data",
        "task",
        "user",
        "ROLE_AGENT",
        "hello",
    ]);
    let leaf = prop_oneof![Just(json!(null)), Just(json!(true)), Just(json!(3)), words.prop_map(|word| json!(word))];
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::from),
            prop::collection::vec((names.clone(), inner), 0..6)
                .prop_map(|all| Tree::Object(all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())),
        ]
    })
}

fn is_bounded(text: &str, json: &Json) -> Result<(), TestCaseError> {
    for content in [super::reply(json.value()).into_content(), archive(json.value()), request(json.value())] {
        let bytes: usize = content
            .pieces()
            .map(|piece| match piece {
                Piece::Text(text) => text.len(),
                Piece::Data(data) => data.raw().len(),
                Piece::File(_) => 1,
            })
            .sum();
        prop_assert!(bytes <= text.len() + 3 && content.text().len() <= 2 * text.len() + 3, "{bytes} of {text}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_json_is_survived_and_gives_no_more_than_it_holds(value in crate::json::tests::any_json()) {
        let text = value.to_string();
        is_bounded(&text, &Json::assume(text.clone()))?;
    }

    #[test]
    fn so_is_what_nearly_is_a_reply(value in nearly()) {
        let text = value.to_string();
        is_bounded(&text, &Json::assume(text.clone()))?;
        let wrapped = json!({"jsonrpc": "2.0", "id": 1, "result": value});
        let bare = if value.is_null() { ("nothing", String::new()) } else { told(&value) };
        prop_assert_eq!(told(&wrapped), bare);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let json = Json::assume(bytes);
        let _ = (super::reply(json.value()), archive(json.value()).text(), request(json.value()).shown());
    }

    /// What was said, written as 1.0 parts, says the same again, through every envelope.
    #[test]
    fn what_was_said_reads_back(texts in prop::collection::vec("\\PC{0,20}", 1..5), data in crate::json::tests::any_json(), url in "[a-z]{1,9}") {
        let mut parts: Vec<Tree> = texts.iter().map(|text| json!({"kind": "text", "text": text})).collect();
        parts.push(json!({"kind": "data", "data": data}));
        parts.push(json!({"kind": "file", "file": {"uri": url, "name": "f"}}));
        let first = Json::assume(json!({"role": "agent", "parts": parts}).to_string());
        let content = super::reply(first.value()).into_content();
        let again = format!("{{\"task\":{{\"id\":\"t\",\"status\":{{\"state\":\"TASK_STATE_COMPLETED\"}},\"artifacts\":[{{\"parts\":{}}}]}}}}",
            as_parts(&content));
        let again = Json::parse(again, &Limits::default()).unwrap();
        let read = super::reply(again.value());
        prop_assert!(matches!(read, Said::Answer(_)));
        let read = read.into_content();
        prop_assert!(content.pieces().eq(read.pieces()));
        prop_assert_eq!(read.text().len() >= texts.concat().len(), true);
    }
}

//! The fold: streams, snapshots, follow-ups, and what comes of them.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const NOW: i64 = 1_796_048_833_500;

fn event(value: &serde_json::Value) -> Event {
    Event::read(&Json::assume(value.to_string())).unwrap()
}

fn record() -> Record {
    Record::new("t", "c", NOW)
}

fn task(record: &Record) -> serde_json::Value {
    let all = RenderOptions { include_artifacts: true, ..RenderOptions::default() };
    serde_json::from_slice(&record.render_task(&all)).unwrap()
}

fn status(state: &str, text: Option<(&str, &str)>) -> Event {
    let mut status = json!({"state": format!("TASK_STATE_{state}")});
    if let Some((id, text)) = text {
        status["message"] = json!({"messageId": id, "role": "ROLE_AGENT", "parts": [{"text": text}]});
    }
    event(&json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}))
}

fn chunk(id: &str, text: &str, append: bool, last: bool) -> Event {
    event(&json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": append, "lastChunk": last,
        "artifact": {"artifactId": id, "name": "n", "parts": [{"text": text}]}}}))
}

fn snapshot(state: &str, more: serde_json::Value) -> Event {
    let mut task = json!({"id": "t", "contextId": "c", "status": {"state": format!("TASK_STATE_{state}")}});
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event(&json!({ "task": task }))
}

fn fold(events: &[Event]) -> Record {
    let mut record = record();
    for event in events {
        record.apply(event, NOW);
    }
    check(&record);
    record
}

/// What must hold of any record.
fn check(record: &Record) {
    let parts = record.history.iter().map(|entry| entry.raw.as_bytes().len() + ENTRY_BYTES).sum::<usize>()
        + record.artifacts.iter().map(Joined::bytes).sum::<usize>()
        + record.status.as_bytes().len()
        + record.metadata.as_ref().map_or(0, |raw| raw.as_bytes().len())
        + extra_bytes(&record.extra);
    assert_eq!(record.bytes(), parts);
    assert_eq!(&Record::from_bytes(record.to_bytes()).unwrap(), record);
    let all = RenderOptions { include_artifacts: true, ..RenderOptions::default() };
    let again = Event::read_task_result(&Json::assume(record.render_task(&all))).unwrap();
    assert_eq!(again.state(), Some(record.state()));
}

#[test]
fn append_replace_and_unknown_artifacts() {
    let mut record = record();
    assert!(!record.apply(&chunk("a", "Hel", false, false), NOW).append_to_unknown);
    record.apply(&chunk("a", "lo", true, false), NOW);
    assert_eq!(record.said().into_content().text(), "Hello");
    record.apply(&chunk("b", "other", false, true), NOW);
    assert!(record.apply(&chunk("x", "late", true, false), NOW).append_to_unknown);
    record.apply(&chunk("a", "Hello", false, true), NOW);
    assert_eq!(record.said().into_content().text(), "Hello\nother\nlate");
    let shape: Vec<(&str, usize)> = record.artifacts().map(|(id, parts, _)| (id, parts)).collect();
    assert_eq!(shape, [("a", 1), ("b", 1), ("x", 1)], "order is kept");
    assert_eq!(task(&record)["artifacts"][0], json!({"artifactId": "a", "name": "n", "parts": [{"text": "Hello"}]}));
    check(&record);
    let update: serde_json::Value = serde_json::from_slice(&record.render_artifact_update(0).unwrap()).unwrap();
    assert_eq!(update["artifactUpdate"]["lastChunk"], true);
    assert_eq!(update["artifactUpdate"]["artifact"]["parts"][0]["text"], "Hello");
    assert_eq!(record.render_artifact_update(9), None);
}

#[test]
fn everything_the_agent_wrote_about_an_artifact_survives() {
    let raw = r#"{"artifactUpdate":{"taskId":"t","artifact":{"x":1.0,"parts" : [ {"data":null} , {"data":12345678901234567890} ] ,"artifactId":"a","metadata":{"k":[]}}}}"#;
    let mut record = record();
    record.apply(&Event::read(&Json::assume(raw)).unwrap(), NOW);
    record.apply(
        &Event::read(&Json::assume(
            r#"{"artifactUpdate":{"taskId":"t","append":true,"lastChunk":true,"artifact":{"artifactId":"a"}}}"#,
        ))
        .unwrap(),
        NOW,
    );
    let update = String::from_utf8(record.render_artifact_update(0).unwrap()).unwrap();
    let expected =
        r#"{"x":1.0,"parts" : [{"data":null} , {"data":12345678901234567890}] ,"artifactId":"a","metadata":{"k":[]}}"#;
    assert!(update.contains(expected), "{update}");
    check(&record);
}

#[test]
fn five_thousand_chunks_cost_what_their_text_costs() {
    let mut record = record();
    let mut text = 0;
    for index in 0..5000 {
        let event = chunk("a", &format!("chunk {index} "), index > 0, false);
        record.apply(&event, NOW);
        text += format!("{{\"text\":\"chunk {index} \"}},").len();
    }
    let (_, parts, bytes) = record.artifacts().next().unwrap();
    assert_eq!((parts, bytes), (5000, text - 1));
    assert!(record.bytes() < text + 300 + ENTRY_BYTES);
    record.apply(&status("COMPLETED", None), NOW);
    check(&record);
    assert_eq!(record.measure().parts, 5000);
}

#[test]
fn the_answer_is_found_wherever_it_is_and_comes_once() {
    let said = json!([{"messageId": "u", "role": "ROLE_USER", "parts": [{"text": "?"}]}, {"messageId": "h", "role": "ROLE_AGENT", "parts": [{"text": "42"}]}]);
    let artifacts = json!([{"artifactId": "a", "parts": [{"text": "42"}]}]);
    let message = json!({"messageId": "s", "role": "ROLE_AGENT", "parts": [{"text": "42"}]});
    let full = |history: bool, status: bool, artifact: bool| {
        let mut task = json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}});
        if history {
            task["history"] = said.clone();
        }
        if status {
            task["status"]["message"] = message.clone();
        }
        if artifact {
            task["artifacts"] = artifacts.clone();
        }
        fold(&[event(&json!({ "task": task }))])
    };
    for (record, source) in [
        (full(false, false, true), Source::Artifacts),
        (full(false, true, false), Source::StatusMessage),
        (full(true, false, false), Source::History),
        (full(true, true, true), Source::Artifacts),
    ] {
        assert_eq!((record.said().into_content().text().as_str(), record.measure().source), ("42", source));
    }
    let empty = full(false, false, false);
    assert_eq!(
        (empty.said().into_content().text().as_str(), empty.measure().empty, empty.measure().source),
        ("", true, Source::Nowhere)
    );
    let twice = json!([{"artifactId": "a", "parts": [{"text": "x"}]}, {"artifactId": "b", "parts": [{"text": "x"}]}]);
    assert_eq!(fold(&[snapshot("COMPLETED", json!({ "artifacts": twice }))]).said().into_content().text(), "x");
}

#[test]
fn interim_text_is_never_the_answer() {
    let record = fold(&[status("WORKING", Some(("1", "I'll get back to you"))), status("COMPLETED", None)]);
    assert_eq!((record.said().into_content().text().as_str(), record.measure().empty), ("", true));
    assert_eq!(record.history_len(), 1);
    let record = fold(&[
        status("WORKING", Some(("1", "I'll get back to you"))),
        chunk("a", "42", false, true),
        status("COMPLETED", None),
    ]);
    assert_eq!(record.said().into_content().text(), "42");
    assert_eq!(task(&record)["history"][0]["parts"][0]["text"], "I'll get back to you");
}

#[test]
fn measures() {
    let parts = json!([{"data": {"a": 1}}, {"text": " "}, {"data": null}, {"odd": 1}]);
    let record = fold(&[snapshot("COMPLETED", json!({"artifacts": [{"artifactId": "a", "parts": parts}]}))]);
    let measure = record.measure();
    assert_eq!((measure.parts, measure.data_parts, measure.malformed_parts, measure.empty), (4, 2, 1, false));
    assert_eq!(measure.bytes, r#"{"data":{"a":1}}{"text":" "}{"data":null}{"odd":1}"#.len());
    assert_eq!(record.data_values(), [Json::assume(r#"{"a":1}"#), Json::assume("null")]);
    let blank = fold(&[snapshot("COMPLETED", json!({"artifacts": [{"artifactId": "a", "parts": [{"text": " \n"}]}]}))]);
    assert!(blank.measure().empty);
}

#[test]
fn snapshots_replace_artifacts_and_merge_history() {
    let client = Json::assume(r#"{"messageId":"u1","role":"ROLE_USER","parts":[{"text":"as the caller wrote it"}]}"#);
    let mut record = record();
    record.add_client_message(&client);
    record.apply(&chunk("a", "one", false, false), NOW);
    record.apply(&status("WORKING", Some(("s1", "step"))), NOW);
    let history = json!([
        {"messageId": "u1", "role": "ROLE_USER", "parts": [{"text": "as the agent saw it"}]},
        {"messageId": "s1", "role": "ROLE_AGENT", "parts": [{"text": "step"}]},
        {"role": "ROLE_AGENT", "parts": [{"text": "no id"}]},
    ]);
    let more = json!({"history": history, "artifacts": [{"artifactId": "b", "parts": [{"text": "two"}]}], "metadata": {"k": 1}, "generation": 7});
    for _ in 0..3 {
        let applied = record.apply(&snapshot("WORKING", more.clone()), NOW);
        assert!(!applied.artifacts_kept && !applied.state_changed);
    }
    let kept = record.apply(&snapshot("INPUT_REQUIRED", json!({})), NOW);
    assert!(kept.artifacts_kept && kept.state_changed);
    let shown = task(&record);
    let texts: Vec<&str> =
        shown["history"].as_array().unwrap().iter().map(|entry| entry["parts"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["as the caller wrote it", "step", "no id"]);
    assert_eq!(shown["artifacts"], json!([{"artifactId": "b", "parts": [{"text": "two"}]}]));
    assert_eq!((&shown["metadata"], shown.get("generation")), (&json!({"k": 1}), None));
    record.apply(&snapshot("COMPLETED", json!({"artifacts": []})), NOW);
    assert_eq!(task(&record).get("artifacts"), None);
    check(&record);
}

#[test]
fn unknown_members_and_states_survive() {
    let mut record = record();
    let applied = record.apply(&snapshot("PAUSED", json!({"x-vendor": {"n": 1}})), NOW);
    assert!(applied.unknown_state && applied.state_changed && !record.state().is_terminal());
    assert_eq!(task(&record)["x-vendor"], json!({"n": 1}));
    assert_eq!(task(&record)["status"]["state"], "TASK_STATE_PAUSED");
    check(&record);
}

#[test]
fn a_terminal_state_holds_except_against_our_verdict() {
    let mut record = fold(&[chunk("a", "x", false, true), status("COMPLETED", Some(("1", "done")))]);
    let before = record.to_bytes();
    for late in [status("FAILED", None), chunk("a", "y", false, true), snapshot("WORKING", json!({}))] {
        assert_eq!(record.apply(&late, NOW), Applied { late: true, ..Applied::default() });
    }
    assert_eq!(record.to_bytes(), before);
    let why = agent_message("v", "t", "c", "rejected");
    record.set_status(TaskState::Failed, Some(&why), NOW + 1);
    assert_eq!((record.state(), record.status_millis()), (&TaskState::Failed, NOW + 1));
    assert_eq!(task(&record)["status"]["message"]["parts"][0]["text"], "rejected");
    assert_eq!(task(&record)["history"][0]["messageId"], "1");
    check(&record);
}

#[test]
fn a_lone_message_is_itself_and_a_completed_task() {
    let raw = json!({"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [{"text": "hi"}]});
    let record = fold(&[event(&json!({"message": raw}))]);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&record.render_message_event().unwrap()).unwrap(),
        json!({"message": raw})
    );
    let shown = task(&record);
    assert_eq!((&shown["status"]["state"], &shown["status"]["message"]), (&json!("TASK_STATE_COMPLETED"), &raw));
    assert_eq!((record.said().into_content().text().as_str(), record.measure().source), ("hi", Source::StatusMessage));
    let mut record = fold(&[status("WORKING", None)]);
    let applied = record.apply(&event(&json!({ "message": raw })), NOW);
    assert!(applied.message_in_task && !applied.state_changed);
    assert_eq!((record.render_message_event(), record.history_len()), (None, 1));
    check(&record);
}

#[test]
fn rendering() {
    let mut record = record();
    for index in 0..3 {
        record.add_client_message(&Json::assume(format!(r#"{{"messageId":"{index}","parts":[]}}"#)));
    }
    record.apply(
        &snapshot("WORKING", json!({"artifacts": [{"artifactId": "a", "parts": [{}]}], "metadata": {"k": 1}})),
        NOW,
    );
    let ours = Json::assume(r#"{"agent":"a"}"#);
    let render = |history_length, include_artifacts, watertight| {
        let text = record.render_task(&RenderOptions { history_length, include_artifacts, watertight, changed: None });
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()
    };
    assert_eq!(render(Some(0), true, None).get("history"), None);
    assert_eq!(render(Some(2), false, None)["history"].as_array().unwrap()[0]["messageId"], "1");
    assert_eq!(render(None, false, None)["history"].as_array().unwrap().len(), 3);
    assert_eq!(render(None, false, None).get("artifacts"), None);
    assert_eq!(render(None, true, Some(&ours))["metadata"], json!({"k": 1, "watertight": {"agent": "a"}}));
    assert_eq!(record.render_task_event(&RenderOptions::default()).get(..8), Some(&b"{\"task\":"[..]));
    let update: serde_json::Value = serde_json::from_slice(&record.render_status_update(Some(&ours))).unwrap();
    assert_eq!(
        update,
        json!({"statusUpdate": {"taskId": "t", "contextId": "c", "metadata": {"watertight": {"agent": "a"}},
            "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-11-30T14:27:13.500Z"}}})
    );
}

#[test]
fn timestamps_are_always_there_and_in_utc() {
    for (given, shown, millis) in [
        (None, "2026-11-30T14:27:13.500Z", NOW),
        (Some("soon"), "2026-11-30T14:27:13.500Z", NOW),
        (Some("1970-01-01T01:00:01+01:00"), "1970-01-01T00:00:01.000Z", 1000),
        (Some("1970-01-01T00:00:01.123456Z"), "1970-01-01T00:00:01.123456Z", 1123),
    ] {
        let mut status = json!({"state": "TASK_STATE_WORKING"});
        if let Some(text) = given {
            status["timestamp"] = text.into();
        }
        let record = fold(&[event(&json!({"statusUpdate": {"taskId": "t", "status": status}}))]);
        assert_eq!((task(&record)["status"]["timestamp"].as_str().unwrap(), record.status_millis()), (shown, millis));
    }
}

#[test]
fn foreign_bytes_are_no_record() {
    for bytes in ["", "{}", "[]", r#"{"v":2}"#, r#"{"v":1,"taskId":"t"}"#] {
        assert!(Record::from_bytes(bytes.as_bytes().to_vec()).is_err(), "{bytes}");
        assert!(record().apply_delta(bytes.as_bytes().to_vec()).is_err(), "{bytes}");
    }
}

/// A step of a random history.
fn any_step() -> impl Strategy<Value = Step> {
    let text = "[a-c]{1,3}";
    let states = vec!["WORKING", "INPUT_REQUIRED", "SUBMITTED"];
    let said = |said: &Option<(String, String)>, state: &str| {
        status(state, said.as_ref().map(|(id, text)| (id.as_str(), text.as_str())))
    };
    let artifact = |(id, text): (String, String)| json!({"artifactId": id, "parts": [{"text": text}]});
    let list = move |list: Option<Vec<(String, String)>>| {
        list.map_or(json!({}), |list| json!({"artifacts": list.into_iter().map(artifact).collect::<Vec<_>>()}))
    };
    let client = |(id, text): (String, String)| {
        Json::assume(json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}).to_string())
    };
    let agent = |event: Event| Step::Agent(Box::new(event));
    prop_oneof![
        4 => ("[abc]", text, any::<bool>()).prop_map(move |(id, text, append)| agent(chunk(&id, &text, append, false))),
        2 => (prop::sample::select(states), prop::option::of(("[1-4]", text)))
            .prop_map(move |(state, message)| agent(said(&message, state))),
        1 => ("[1-4]", text).prop_map(move |message| Step::Client(client(message))),
        1 => prop::option::of(prop::collection::vec(("[ab]", text), 0..3))
            .prop_map(move |artifacts| agent(snapshot("WORKING", list(artifacts)))),
        1 => Just(Step::Verdict),
    ]
}

/// Artifacts as a reader without any cleverness would keep them.
#[derive(Default)]
struct Naive(Vec<(String, Vec<String>)>);

impl Naive {
    fn read(artifact: &serde_json::Value) -> (String, Vec<String>) {
        let text = |part: &serde_json::Value| part["text"].as_str().unwrap().to_owned();
        let parts = artifact["parts"].as_array().unwrap().iter().map(text).collect();
        (artifact["artifactId"].as_str().unwrap().to_owned(), parts)
    }

    fn put(&mut self, artifact: &serde_json::Value, append: bool) {
        let (id, parts) = Naive::read(artifact);
        match self.0.iter_mut().find(|(known, _)| *known == id) {
            Some((_, old)) if append => old.extend(parts),
            Some((_, old)) => *old = parts,
            None => self.0.push((id, parts)),
        }
    }

    fn apply(&mut self, event: &Event) {
        let value: serde_json::Value = serde_json::from_slice(event.raw.as_bytes()).unwrap();
        match &event.body {
            Body::Artifact(update) => self.put(&value["artifact"], update.append),
            Body::Task(_) => {
                if let Some(artifacts) = value.get("artifacts").and_then(|list| list.as_array()) {
                    self.0.clear();
                    artifacts.iter().for_each(|artifact| self.put(artifact, false));
                }
            }
            Body::Status(_) | Body::Message(_) => {}
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Agent(Box<Event>),
    Client(Json),
    Verdict,
}

proptest! {
    #[test]
    fn equals_the_naive_fold_and_its_own_replay(steps in prop::collection::vec(any_step(), 0..30)) {
        let (mut record, mut replayed) = (record(), record());
        let mut naive = Naive::default();
        for (index, step) in steps.iter().enumerate() {
            let now = NOW + index as i64;
            let delta = match step {
                Step::Agent(event) => {
                    if !record.state().is_terminal() {
                        naive.apply(event);
                    }
                    record.apply_with_delta(event, now).1
                }
                Step::Client(message) => {
                    record.add_client_message(message);
                    Delta::Client(message).to_bytes(now)
                }
                Step::Verdict => {
                    record.set_status(TaskState::Failed, None, now);
                    Delta::Status(&TaskState::Failed, None).to_bytes(now)
                }
            };
            replayed.apply_delta(delta).unwrap();
        }
        check(&record);
        prop_assert_eq!(&replayed, &record);
        let shown = task(&record);
        let shown = shown.get("artifacts").and_then(|list| list.as_array());
        let shown: Vec<_> = shown.into_iter().flatten().map(Naive::read).collect();
        prop_assert_eq!(shown, naive.0);
    }

    #[test]
    fn any_task_is_survived(value in crate::json::tests::any_json(), state in 0..9i64) {
        let part = json!([value]);
        for doc in [
            json!({"task": {"id": "t", "status": {"state": state, "message": value}, "metadata": value, "x": value}}),
            json!({"task": {"id": "t", "status": {"state": state}, "artifacts": [{"artifactId": "a", "parts": part}], "history": [{"parts": part}]}}),
            json!({"message": {"parts": part, "messageId": "m"}}),
        ] {
            if let Ok(event) = Event::read(&Json::assume(doc.to_string())) {
                let record = fold(&[event]);
                let _ = (record.said().into_content().text(), record.measure(), record.data_values());
            }
        }
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = (Record::from_bytes(bytes.clone()), record().apply_delta(bytes));
    }
}

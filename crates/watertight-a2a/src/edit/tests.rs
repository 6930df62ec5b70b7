//! What is edited changes, and nothing else.

use proptest::prelude::*;

use super::*;
use crate::call::BudgetWire;
use crate::json::tests::any_json;

fn text(json: &Json) -> &str {
    std::str::from_utf8(json.as_bytes()).unwrap()
}

#[test]
fn members_are_set_replaced_and_removed_in_place() {
    for (doc, expected) in [
        ("{}", r#"{"b":9}"#),
        ("{ }", r#"{"b":9 }"#),
        (r#"{"a":1}"#, r#"{"b":9}"#),
        (r#"{ "a" : 1 , "c":3}"#, r#"{ "c":3,"b":9}"#),
        (r#"{"c":3 ,"a":1 }"#, r#"{"c":3,"b":9 }"#),
        (r#"{"c":3,"a":1,"d":4}"#, r#"{"c":3,"d":4,"b":9}"#),
        (r#"{"a":1,"a":2,"c":3,"a":4,"a":5,"d":6,"a":7}"#, r#"{"c":3,"d":6,"b":9}"#),
        (r#"{"a":{"b":1},"b" : [1,{"b":2}] ,"c":"b"}"#, r#"{"b" : 9 ,"c":"b"}"#),
        (r#"{"b":1,"\u0062":2,"b":3}"#, r#"{"b":9}"#),
        (r#"{"e":1,"z":2}"#, r#"{"e":5,"z":2,"b":9}"#),
        (r#"{"e":null}"#, r#"{"e":null,"b":9}"#),
        ("[1]", "[1]"),
        ("null", "null"),
    ] {
        let doc = Json::assume(doc);
        let mut splices = Splices::default();
        let ops = vec![Op::Remove("a"), Op::Set("b", b"9".to_vec()), Op::Replace("e", b"5".to_vec())];
        splices.object(doc.value(), ops);
        assert_eq!(text(&splices.apply(&doc)), expected, "{}", text(&doc));
    }
}

#[test]
fn params_toward_an_agent() {
    let params = Json::assume(
        r#"{"x":1.0, "message":{"messageId":"m","task_id":"ours","contextId":"c","referenceTaskIds":["a","b","c"],
 "parts":[{"data":null,"n":123456789012345678901}],"metadata":{"x-budget":{"depth":99},"k":1e2}},
 "configuration":{"pushNotificationConfig":{},"acceptedOutputModes":["t"],"taskPushNotificationConfig":{"url":"u"}},
 "metadata":{"x-budget":1,"keep":2},"tenant":"theirs"}"#,
    );
    let budget = BudgetWire { depth: Some(1), ..BudgetWire::default() }.to_json();
    let map = |id: &str| (id != "b").then(|| format!("remote-{id}"));
    let edited = send_params(
        &params,
        &SendEdit {
            task_id: Set::To("remote"),
            context_id: Set::Remove,
            references: Some(&map),
            message_id_suffix: Some("~2"),
            metadata: &[("x-budget", Some(budget)), ("x-delegation", None)],
            return_immediately: Some(true),
            drop_push_config: true,
            tenant: Set::To("agent"),
        },
    );
    assert_eq!(
        text(&edited),
        r#"{"x":1.0, "message":{"messageId":"m~2","task_id":"remote","referenceTaskIds":["remote-a","remote-c"],
 "parts":[{"data":null,"n":123456789012345678901}],"metadata":{"x-budget":{"depth":1},"k":1e2}},
 "configuration":{"acceptedOutputModes":["t"],"returnImmediately":true},
 "metadata":{"keep":2},"tenant":"agent"}"#
    );
    assert_eq!(send_params(&params, &SendEdit::default()), params);
}

#[test]
fn what_is_missing_is_added() {
    let params = Json::assume(r#"{"message":{"messageId":"m","metadata":null}}"#);
    let one = Json::assume("1");
    let edited = send_params(
        &params,
        &SendEdit {
            context_id: Set::To("c"),
            metadata: &[("x-budget", Some(one)), ("gone", None)],
            return_immediately: Some(false),
            drop_push_config: true,
            tenant: Set::Remove,
            ..SendEdit::default()
        },
    );
    assert_eq!(
        text(&edited),
        r#"{"message":{"messageId":"m","metadata":{"x-budget":1},"contextId":"c"},"configuration":{"returnImmediately":false}}"#
    );
    assert_eq!(
        text(&task_params(&Json::assume(r#"{"id":"a"}"#), Some("b"), Set::To("t"))),
        r#"{"id":"b","tenant":"t"}"#
    );
    let push = Json::assume(r#"{"taskId":"a","id":"config"}"#);
    assert_eq!(text(&task_params(&push, Some("b"), Set::Keep)), r#"{"taskId":"b","id":"config"}"#);
}

#[test]
fn answers_come_back_under_our_ids() {
    let map = |id: &str| (id == "r").then(|| "our-r".to_owned());
    let ids = Ids { references: Some(&map), message_id_suffix: Some("~2"), ..Ids::new("T", "C") };
    let from = Json::assume(
        r#"{"id":"t","generation":9007199254740993,"status":{"state":3,"message":{"messageId":"a","taskId":"t","context_id":"c","role":"ROLE_AGENT","parts":[{"text":"t c"}],"metadata":{"x-delegation":"forged"}},"u":null},
"history":[{"messageId":"m~2","taskId":"t","referenceTaskIds":["r","q"],"parts":[]},{"contextId":null},5],
"artifacts":[{"artifactId":"t","parts":[{"data":{"taskId":"t"}}],"metadata":{"watertight":"not even in an artifact","own":1}}],
"metadata":{"watertight":{"a":1},"k":0.10,"x-budget":{}}}"#,
    );
    assert_eq!(
        text(&task(&from, &ids)),
        r#"{"id":"T","generation":9007199254740993,"status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"a","taskId":"T","context_id":"C","role":"ROLE_AGENT","parts":[{"text":"t c"}],"metadata":{}},"u":null},
"history":[{"messageId":"m","taskId":"T","referenceTaskIds":["our-r"],"parts":[]},{"contextId":null},5],
"artifacts":[{"artifactId":"t","parts":[{"data":{"taskId":"t"}}],"metadata":{"own":1}}],
"metadata":{"k":0.10},"contextId":"C"}"#
    );
    let ids = Ids::new("T", "C");
    for (edit, from, to) in [
        (
            message as fn(&Json, &Ids<'_>) -> Json,
            r#"{"messageId":"m","taskId":"t","parts":[],"metadata":{"x-budget":1}}"#,
            r#"{"messageId":"m","taskId":"T","parts":[],"metadata":{},"contextId":"C"}"#,
        ),
        (message, r#"{"messageId":"m","contextId":"","parts":[]}"#, r#"{"messageId":"m","contextId":"C","parts":[]}"#),
        (
            status_update,
            r#"{"taskId":"t","contextId":"c","status":{"state":42,"message":{"taskId":"t"}},"metadata":{"watertight":1,"a":2}}"#,
            r#"{"taskId":"T","contextId":"C","status":{"state":42,"message":{"taskId":"T"}},"metadata":{"a":2}}"#,
        ),
        (
            artifact_update,
            r#"{"id":"t","artifact":{"artifactId":"t","parts":[{"text":"t"}]},"append":false}"#,
            r#"{"artifact":{"artifactId":"t","parts":[{"text":"t"}]},"append":false,"taskId":"T","contextId":"C"}"#,
        ),
    ] {
        assert_eq!(text(&edit(&Json::assume(from), &ids)), to, "{from}");
    }
}

fn value(json: &Json) -> serde_json::Value {
    serde_json::from_slice(json.as_bytes()).unwrap()
}

proptest! {
    #[test]
    fn every_other_member_survives(message_value in any_json(), root_value in any_json(), loud: bool) {
        let mut doc = serde_json::json!({"message": message_value, "root": root_value, "metadata": {"x-budget": 1, "k": 2}});
        let mut written = String::new();
        crate::json::tests::write_otherwise(&doc, loud, &mut written);
        let budget = Json::assume(r#"{"depth":1}"#);
        let edited = send_params(&Json::assume(written), &SendEdit {
            task_id: Set::To("T"),
            context_id: Set::Remove,
            metadata: &[("x-budget", Some(budget))],
            return_immediately: Some(true),
            tenant: Set::To("x"),
            ..SendEdit::default()
        });
        // The same edit on a tree.
        if let Some(message) = doc["message"].as_object_mut() {
            message.insert("taskId".to_owned(), "T".into());
            message.remove("contextId");
            let metadata = message.entry("metadata").or_insert_with(|| serde_json::json!({}));
            if !metadata.is_object() {
                *metadata = serde_json::json!({});
            }
            metadata["x-budget"] = serde_json::json!({"depth": 1});
        }
        doc["metadata"].as_object_mut().unwrap().remove("x-budget");
        doc["configuration"] = serde_json::json!({"returnImmediately": true});
        doc["tenant"] = "x".into();
        prop_assert_eq!(value(&edited), doc);
    }

    #[test]
    fn answers_stay_json_and_keep_their_members(inner in any_json(), extra in any_json()) {
        let doc = serde_json::json!({"id": "t", "status": {"state": "S", "message": inner}, "history": [inner, extra], "e": extra, "metadata": extra});
        let ids = Ids::new("T", "C");
        let edited = value(&task(&Json::assume(doc.to_string()), &ids));
        prop_assert_eq!(&edited["id"], "T");
        prop_assert_eq!(&edited["contextId"], "C");
        prop_assert_eq!(&edited["e"], &extra);
        prop_assert_eq!(edited["metadata"].as_object().is_some(), extra.is_object());
        for edit in [message, status_update, artifact_update, task] {
            let _ = value(&edit(&Json::assume(inner.to_string()), &ids));
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80), junk in "[{}\\[\\]\":,\\\\ a]{0,30}") {
        for bytes in [bytes, format!(r#"{{"message":{junk},"status":{{"message":{junk}"#).into_bytes()] {
            let doc = Json::assume(bytes);
            let ids = Ids::new("T", "C");
            for edit in [message, status_update, artifact_update, task] {
                let _ = edit(&doc, &ids);
            }
            let edit = SendEdit { task_id: Set::To("T"), drop_push_config: true, return_immediately: Some(true), ..SendEdit::default() };
            let _ = send_params(&doc, &edit);
        }
    }
}

#[test]
fn where_news_is_pushed_is_taken_out_and_nothing_else() {
    let params = Json::assume(
        r#"{"message":{"parts":[]},"configuration":{"taskPushNotificationConfig":{"token":"t"},"historyLength":1.0,"pushNotificationConfig":{}}}"#,
    );
    let left = without_push(&params);
    assert_eq!(left.as_bytes(), br#"{"message":{"parts":[]},"configuration":{"historyLength":1.0}}"#);
    assert_eq!(without_push(&left).as_bytes(), left.as_bytes());
}

//! One fingerprint for every way to write a value.

use proptest::prelude::*;

use super::*;
use crate::json::Json;
use crate::json::tests::{any_json, write_otherwise};

fn of(text: &str) -> String {
    String::from_utf8(canonical(Json::assume(text.to_owned()).value())).unwrap()
}

#[test]
fn golden() {
    for (text, expected) in [
        (r#" { "b" : 1 , "a" : [ true , null ] } "#, r#"{"a":[true,null],"b":1}"#),
        (r#""\u0041\/\n\u000A\ud83d\ude00\"""#, "\"A/\\u000a\\u000a😀\\\"\""),
        (r#""\uD800x""#, r#""\ud800x""#),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        (r#"{"a":{},"b":[]}"#, r#"{"a":{},"b":[]}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":2}"#),
        ("null", "null"),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
}

#[test]
fn what_differs_differs() {
    let print = |text: &str| Fingerprint::of(Json::assume(text.to_owned()).value());
    for (a, b) in [
        ("1", "1.0"),
        ("9007199254740993", "9007199254740992"),
        ("[1,2]", "[2,1]"),
        (r#"{"a":null}"#, "{}"),
        (r#"["a","b"]"#, r#"["a\",\"b"]"#),
        (r#""1""#, "1"),
        (r#""\ud800""#, r#""\ufffd""#),
    ] {
        assert_ne!(print(a), print(b), "{a} {b}");
    }
    assert_eq!(print("1").to_string().len(), 32);
}

proptest! {
    #[test]
    fn writing_plays_no_part(value in any_json(), loud: bool) {
        let mut otherwise = String::new();
        write_otherwise(&value, loud, &mut otherwise);
        let text = of(&value.to_string());
        prop_assert_eq!(&of(&otherwise), &text);
        // The canonical text is the value, and its own canonical text.
        prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&text).unwrap(), &value);
        prop_assert_eq!(&of(&text), &text);
    }
}

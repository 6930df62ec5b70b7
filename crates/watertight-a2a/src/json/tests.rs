//! The checker against serde_json, limits, and walks over anything.

use proptest::prelude::*;

use super::*;

fn verdict(text: &[u8]) -> Result<(), Error> {
    check(text, &Limits::default())
}

#[test]
fn what_is_json_and_what_is_not() {
    for good in [
        "{}",
        "[]",
        " [1, -0.5e+3 ,\"\\u00e9\\ud83d\\ude00\", {\"a\":{\"b\":[null,true,false]}}] ",
        "0",
        "\"\"",
        "\"\\ud800\"",
        "123456789012345678901234567890.5",
    ] {
        assert_eq!(verdict(good.as_bytes()), Ok(()), "{good}");
    }
    for cut in ["", " ", "{", "[1,", "{\"a\"", "{\"a\":", "\"abc", "\"\\u00", "tru", "-", "1.", "1e", "[[[["] {
        assert_eq!(verdict(cut.as_bytes()), Err(Error::Cut), "{cut}");
    }
    for (bad, at) in [
        ("{,}", 1),
        ("[1 2]", 3),
        ("{\"a\":1,}", 7),
        ("[1,]", 3),
        ("01", 1),
        ("+1", 0),
        ("nul ", 3),
        ("\"\n\"", 1),
        ("\"\\x\"", 2),
        ("{1:2}", 1),
        ("1 1", 2),
        ("[}", 1),
        ("<html>", 0),
        ("\u{feff}1", 0),
    ] {
        assert_eq!(verdict(bad.as_bytes()), Err(Error::Syntax { at }), "{bad}");
    }
    assert_eq!(verdict(b"\"\xff\""), Err(Error::NotUtf8 { at: 1 }));
    assert_eq!(verdict("\"é".as_bytes().get(..2).unwrap()), Err(Error::Cut));
}

#[test]
fn depth_and_size_have_their_own_errors_and_nothing_overflows() {
    let deep = "[".repeat(100_000);
    assert_eq!(verdict(deep.as_bytes()), Err(Error::TooDeep { limit: 64 }));
    let unlimited = Limits { max_depth: usize::MAX, max_bytes: usize::MAX };
    assert_eq!(check(deep.as_bytes(), &unlimited), Err(Error::Cut));
    let closed = deep + &"]".repeat(100_000);
    assert_eq!(check(closed.as_bytes(), &unlimited), Ok(()));
    assert_eq!(crate::canonical::canonical(Value::of(closed.as_bytes())).len(), 200_000);
    let at_limit = "[".repeat(64) + &"]".repeat(64);
    assert_eq!(verdict(at_limit.as_bytes()), Ok(()));
    let past_limit = format!("[{at_limit}]");
    assert_eq!(verdict(past_limit.as_bytes()), Err(Error::TooDeep { limit: 64 }));
    let tight = Limits { max_depth: 64, max_bytes: 4 };
    assert_eq!(check(b"1234", &tight), Ok(()));
    assert_eq!(check(b"12345", &tight), Err(Error::TooLarge { limit: 4 }));
}

#[test]
fn names_are_found_in_snake_case_and_behind_escapes() {
    let doc = Json::assume(r#"{"task_id":1,"t\u0061skId":2,"taskid":3}"#);
    assert_eq!(doc.value().members().filter(|member| member.is("taskId")).count(), 2);
    assert_eq!(fields(doc.value(), ["taskId"]).unwrap_err(), "taskId");
    let [found, missing] = fields(doc.value(), ["taskid", "other"]).unwrap();
    assert_eq!(found.unwrap().raw(), b"3");
    assert!(missing.is_none());
}

#[test]
fn strings_and_numbers() {
    let value = |text: &'static str| Json::assume(text);
    assert_eq!(value(r#""a\n\ud83d\ude00\/""#).value().as_str().unwrap(), "a\n😀/");
    assert_eq!(value(r#""\ud83dx""#).value().as_str().unwrap(), "\u{fffd}x");
    assert_eq!(value(r#""\ud83dx""#).value().as_exact_str(), None);
    assert_eq!(value("5.0").value().as_i64(), Some(5));
    assert_eq!(value("5.5").value().as_i64(), None);
    assert_eq!(value("9223372036854775807").value().as_i64(), Some(i64::MAX));
    assert_eq!(value("1e400").value().as_f64(), None);
}

/// Any JSON value, with keys that need escapes now and then.
pub(crate) fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        (-1000i32..1000).prop_map(|number| serde_json::json!(f64::from(number) / 8.0)),
        "[ -~é👩\n\"\\\\]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map("[a-e\"é]{0,3}", inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

/// The same value written differently: members reversed, spaces, every letter of a string escaped if `loud`.
pub(crate) fn write_otherwise(value: &serde_json::Value, loud: bool, out: &mut String) {
    let string = |text: &str, out: &mut String| {
        out.push('"');
        for unit in text.encode_utf16() {
            out.push_str(&format!("\\u{unit:04X}"));
        }
        out.push('"');
    };
    match value {
        serde_json::Value::Object(map) => {
            out.push_str("{ ");
            for (index, (key, value)) in map.iter().rev().enumerate() {
                out.push_str(if index > 0 { "\n, " } else { "" });
                string(key, out);
                out.push_str(" :\t");
                write_otherwise(value, loud, out);
            }
            out.push('}');
        }
        serde_json::Value::Array(items) => {
            out.push('[');
            for (index, value) in items.iter().enumerate() {
                out.push_str(if index > 0 { " ,\r" } else { " " });
                write_otherwise(value, loud, out);
            }
            out.push_str(" ]");
        }
        serde_json::Value::String(text) if loud => string(text, out),
        serde_json::Value::String(_) | serde_json::Value::Number(_) => out.push_str(&value.to_string()),
        serde_json::Value::Bool(_) | serde_json::Value::Null => out.push_str(&value.to_string()),
    }
}

proptest! {
    #[test]
    fn agrees_with_serde_json(text in "[\\[\\]{}:,\"a0-9eE.+\\-\\\\u ntrlfas]{0,24}") {
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(verdict(text.as_bytes()).is_ok(), theirs, "{}", text);
    }

    #[test]
    fn agrees_with_serde_json_on_any_value(value in any_json()) {
        let mut text = String::new();
        write_otherwise(&value, true, &mut text);
        prop_assert_eq!(verdict(text.as_bytes()), Ok(()));
        let doc = Json::assume(text);
        let again: serde_json::Value = serde_json::from_slice(doc.as_bytes()).unwrap();
        prop_assert_eq!(&again, &value);
        if let serde_json::Value::Object(map) = &value {
            prop_assert_eq!(doc.value().members().count(), map.len());
            for (key, member) in map {
                let found = doc.value().members().find(|found| found.key.as_str().unwrap() == key.as_str()).unwrap();
                prop_assert_eq!(&serde_json::from_slice::<serde_json::Value>(found.value.raw()).unwrap(), member);
            }
        }
    }

    #[test]
    fn walking_unchecked_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[\\[\\]{}:,\"\\\\u0d8]{0,40}") {
        for bytes in [bytes, text.into_bytes()] {
            let _ = verdict(&bytes);
            let doc = Json::assume(bytes);
            let value = doc.value();
            let _ = (value.as_str(), value.as_f64(), value.as_i64(), value.as_bool());
            for item in value.items().chain(value.members().map(|member| member.value)) {
                let _ = (item.as_str(), doc.part(item));
            }
            let _ = crate::canonical::canonical(value);
        }
    }
}

/// The jump over plain text stops exactly where one that looks at every byte does, for every byte at every place.
#[test]
fn strings_end_where_they_end() {
    let stops = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    for plain in [b'a', 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']', 0x20] {
        for place in 0..20 {
            for byte in 0..=255 {
                let mut text = [plain; 24];
                text[place] = byte;
                // Followed by one that a borrow could mark.
                text[place + 1] = byte.wrapping_add(1);
                let first = text.iter().position(stops).unwrap_or(24);
                let found = plain_run(&text);
                assert_eq!(found, first, "{plain} {byte} at {place}");
            }
        }
    }
    assert_eq!(skip_string(br#""a\"bcdefghijklmnop\\" rest"#, 0), 22);
    assert_eq!(skip_string(br#""never closed, and long enough"#, 0), 30);
    assert_eq!(skip_string(b"\"ends in a backslash\\", 0), 21);
}

#[test]
fn a_run_ends_at_the_first_byte_that_means_something() {
    for length in [1, 7, 8, 9, 31, 32, 39, 40, 41, 72, 100] {
        for plain in [b'a', b' ', 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']'] {
            let text = vec![plain; length];
            assert_eq!(plain_run(&text), length, "{plain}");
            for (at, special) in (0..length).flat_map(|at| [b'"', b'\\', 0, 0x1f].map(|special| (at, special))) {
                let mut text = text.clone();
                // What comes behind it does not count.
                text[length - 1] = b'"';
                text[at] = special;
                assert_eq!(plain_run(&text), at, "{special} at {at} of {length} times {plain}");
            }
        }
    }
}

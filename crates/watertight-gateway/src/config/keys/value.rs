//! A value of the configuration as it is in force, and how it is written.

use std::time::Duration;

use serde_json::json;
use watertight_policy::time::Span;

use super::super::units;

/// A value. Of a secret only that there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Nothing is set, and nothing stands in for it.
    None,
    /// A length of time.
    Span(Span),
    /// Bytes.
    Size(u64),
    /// Basis points.
    Share(u32),
    /// A number.
    Count(u64),
    /// Yes or no.
    Flag(bool),
    /// A word or a text.
    Text(String),
    /// Several.
    List(Vec<String>),
    /// There is a secret, and it is not told.
    Secret,
}

impl Value {
    /// A number of things in memory.
    pub(super) fn count(count: usize) -> Value {
        Value::Count(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Bytes in memory.
    pub(super) fn bytes(bytes: usize) -> Value {
        Value::Size(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// A length of time of the operating system's.
    pub(in super::super) fn time(time: Duration) -> Value {
        Value::Span(Span::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }

    /// A text, if there is one.
    pub(super) fn text(text: Option<impl ToString>) -> Value {
        text.map_or(Value::None, |text| Value::Text(text.to_string()))
    }

    /// Several, if there are any.
    pub(super) fn list(list: &[impl ToString]) -> Value {
        if list.is_empty() { Value::None } else { Value::List(list.iter().map(ToString::to_string).collect()) }
    }

    /// As it would be written in the file, without quotes; a secret is `(secret)`, nothing is `-`.
    pub fn shown(&self) -> String {
        match self {
            Value::None => "-".to_owned(),
            Value::Span(span) => units::write_span(*span),
            Value::Size(size) => units::write_size(*size),
            Value::Share(share) => units::write_share(*share),
            Value::Count(count) => count.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Text(text) => text.clone(),
            Value::List(list) => format!("[{}]", list.join(", ")),
            Value::Secret => "(secret)".to_owned(),
        }
    }

    /// As JSON: numbers and flags as such, all else as the text that the file would hold.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::None => serde_json::Value::Null,
            Value::Count(count) => json!(count),
            Value::Flag(flag) => json!(flag),
            Value::List(list) => json!(list),
            Value::Span(_) | Value::Size(_) | Value::Share(_) | Value::Text(_) | Value::Secret => json!(self.shown()),
        }
    }
}

//! What the agent answered, wherever it put it: artifacts, else the status message, else its last message. What of it is text
//! is read by [`crate::said`].

use crate::call::part_content;
use crate::canonical::{Digest, Digester};
use crate::event::TaskState;
use crate::json::{Items, Json, Value};
use crate::said::{Content, Said};

use super::Record;

/// Where the answer was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In artifacts.
    Artifacts,
    /// In the status message, which also holds a lone message.
    StatusMessage,
    /// In the agent's last message of the history.
    History,
    /// Nowhere.
    Nowhere,
}

/// The size and kind of a result, for decisions that never see its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// Where it is.
    pub source: Source,
    /// Bytes of JSON of its parts.
    pub bytes: usize,
    /// How many parts.
    pub parts: usize,
    /// How many of them are data.
    pub data_parts: usize,
    /// How many of them are none of text, raw, url, data, or several at once.
    pub malformed_parts: usize,
    /// There is no part with content: blank text is none.
    pub empty: bool,
}

impl Record {
    /// The parts that make up the result, and where they are. What a result is, only COMPLETED makes of it; before
    /// that they are progress, or a question.
    pub fn result_parts(&self) -> (Source, Vec<Json>) {
        let mut parts = Vec::new();
        let source = self.each_part(|part| parts.push(Json::assume(part.raw().to_vec())));
        (source, parts)
    }

    /// The result's size and kind.
    pub fn measure(&self) -> Measure {
        let mut measure =
            Measure { source: Source::Nowhere, bytes: 0, parts: 0, data_parts: 0, malformed_parts: 0, empty: true };
        measure.source = self.each_part(|part| {
            measure.parts += 1;
            measure.bytes += part.raw().len();
            match part_content(part) {
                Ok(("text", value)) => measure.empty &= is_blank(value),
                Ok(("data", _)) => {
                    measure.data_parts += 1;
                    measure.empty = false;
                }
                Ok(_) => measure.empty = false,
                Err(_) => measure.malformed_parts += 1,
            }
        });
        measure
    }

    /// The result's size and hash; `None` if there is none.
    pub fn digest(&self) -> Option<Digest> {
        let mut digest = Digester::default();
        self.each_part(|part| digest.add(part));
        digest.finish()
    }

    /// The values of the result's data parts, raw, in order.
    pub fn data_values(&self) -> Vec<Json> {
        let mut values = Vec::new();
        self.each_part(|part| {
            if let Ok(("data", value)) = part_content(part) {
                values.push(Json::assume(value.raw().to_vec()));
            }
        });
        values
    }

    /// What was asked for first.
    pub fn asked(&self) -> Content<'_> {
        let first = self.history.iter().find(|entry| entry.from_user);
        first.map(|entry| crate::said::request(entry.raw.value())).unwrap_or_default()
    }

    /// What was said, and what it is by the state.
    pub fn said(&self) -> Said<'_> {
        self.said_in(&self.state)
    }

    /// The same for who knows better which state the task is in: a question whose answer is under way is none any more.
    pub fn said_in(&self, state: &TaskState) -> Said<'_> {
        let mut artifacts = Content::default();
        for artifact in &self.artifacts {
            artifacts.push_parts(Items::inside(&artifact.parts));
        }
        Said::of_task(state, artifacts, content(self.status_parts()), content(self.history_parts()))
    }

    /// Shows each part of the result, from the first source that has any.
    fn each_part(&self, mut see: impl FnMut(Value<'_>)) -> Source {
        if self.artifacts.iter().any(|artifact| artifact.count > 0) {
            self.artifacts.iter().flat_map(|artifact| Items::inside(&artifact.parts)).for_each(see);
            return Source::Artifacts;
        }
        for (source, parts) in [(Source::StatusMessage, self.status_parts()), (Source::History, self.history_parts())] {
            if let Some(parts) = parts.filter(|parts| parts.items().next().is_some()) {
                parts.items().for_each(&mut see);
                return source;
            }
        }
        Source::Nowhere
    }

    fn status_parts(&self) -> Option<Value<'_>> {
        self.status.value().get("message")?.get("parts")
    }

    fn history_parts(&self) -> Option<Value<'_>> {
        let last = self.history.iter().rev().find(|entry| !entry.from_user && !entry.interim)?;
        last.raw.value().get("parts")
    }
}

fn content(parts: Option<Value<'_>>) -> Content<'_> {
    Content::of_parts(parts.iter().flat_map(Value::items))
}

/// Whether a text says nothing. Most say something in their first letter.
fn is_blank(text: Value<'_>) -> bool {
    let first = text.raw().get(1).copied().unwrap_or(b'"');
    !(first.is_ascii_graphic() && first != b'"' && first != b'\\')
        && text.as_str().is_none_or(|text| text.trim().is_empty())
}

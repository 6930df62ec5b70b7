//! What the agent answered, wherever it put it: artifacts, else the status message, else its last message.

use crate::call::part_content;
use crate::event::Part;
use crate::json::{Items, Json, Value};

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

    /// The answer as text: from artifacts, else the status message, else the agent's last message. Chunks of one
    /// artifact are joined by nothing, artifacts by a line break, and the same text comes once.
    pub fn answer_text(&self) -> String {
        let mut texts: Vec<String> = Vec::new();
        for artifact in &self.artifacts {
            let text = text_of(&artifact.array());
            if !text.is_empty() {
                texts.push(text);
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        if !texts.is_empty() {
            return texts.join("\n");
        }
        let messages = [self.status_parts(), self.history_parts()].into_iter().flatten();
        messages.map(|parts| text_of(&parts)).find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Shows each part of the result, from the first source that has any.
    fn each_part(&self, mut see: impl FnMut(Value<'_>)) -> Source {
        if self.artifacts.iter().any(|artifact| artifact.count > 0) {
            self.artifacts.iter().flat_map(|artifact| Items::inside(&artifact.parts)).for_each(see);
            return Source::Artifacts;
        }
        for (source, parts) in [(Source::StatusMessage, self.status_parts()), (Source::History, self.history_parts())] {
            if let Some(parts) = parts.filter(|parts| parts.value().items().next().is_some()) {
                parts.value().items().for_each(&mut see);
                return source;
            }
        }
        Source::Nowhere
    }

    fn status_parts(&self) -> Option<Json> {
        Some(self.status.part(self.status.value().get("message")?.get("parts")?))
    }

    fn history_parts(&self) -> Option<Json> {
        let last = self.history.iter().rev().find(|entry| !entry.from_user && !entry.interim)?;
        Some(last.raw.part(last.raw.value().get("parts")?))
    }
}

/// Whether a text says nothing. Most say something in their first letter.
fn is_blank(text: Value<'_>) -> bool {
    let first = text.raw().get(1).copied().unwrap_or(b'"');
    !(first.is_ascii_graphic() && first != b'"' && first != b'\\')
        && text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn text_of(parts: &Json) -> String {
    let mut text = String::new();
    for part in parts.value().items() {
        if let Part::Text(more) = Part::read(&parts.part(part)) {
            text.push_str(&more);
        }
    }
    text
}

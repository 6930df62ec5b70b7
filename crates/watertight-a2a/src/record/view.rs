//! What the agent answered, wherever it put it: artifacts, else the status message, else its last message.

use crate::event::Part;
use crate::json::Json;

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
    /// The parts that make up the result, and where they are.
    pub fn result_parts(&self) -> (Source, Vec<Json>) {
        let candidates = [Source::Artifacts, Source::StatusMessage, Source::History];
        let found = candidates.into_iter().map(|source| (source, self.parts_in(source)));
        found.into_iter().find(|(_, parts)| !parts.is_empty()).unwrap_or((Source::Nowhere, Vec::new()))
    }

    /// The result's size and kind.
    pub fn measure(&self) -> Measure {
        let (source, parts) = self.result_parts();
        let mut measure =
            Measure { source, bytes: 0, parts: parts.len(), data_parts: 0, malformed_parts: 0, empty: true };
        for raw in &parts {
            measure.bytes += raw.as_bytes().len();
            match Part::read(raw) {
                Part::Text(text) => measure.empty &= text.trim().is_empty(),
                Part::Data(_) => {
                    measure.data_parts += 1;
                    measure.empty = false;
                }
                Part::Raw(_) | Part::Url(_) => measure.empty = false,
                Part::Malformed => measure.malformed_parts += 1,
            }
        }
        measure
    }

    /// The values of the result's data parts, raw, in order.
    pub fn data_values(&self) -> Vec<Json> {
        let (_, parts) = self.result_parts();
        parts
            .iter()
            .filter_map(|raw| match Part::read(raw) {
                Part::Data(value) => Some(value),
                Part::Text(_) | Part::Raw(_) | Part::Url(_) | Part::Malformed => None,
            })
            .collect()
    }

    /// The answer as text: from artifacts, else the status message, else the agent's last message. Chunks of one
    /// artifact are joined by nothing, artifacts by a line break, and the same text comes once.
    pub fn answer_text(&self) -> String {
        let mut texts: Vec<String> = Vec::new();
        for artifact in &self.artifacts {
            let text = text_of(&Part::split(&artifact.array()));
            if !text.is_empty() {
                texts.push(text);
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        if !texts.is_empty() {
            return texts.join("\n");
        }
        let messages = [Source::StatusMessage, Source::History].map(|source| text_of(&self.parts_in(source)));
        messages.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }

    fn parts_in(&self, source: Source) -> Vec<Json> {
        match source {
            Source::Artifacts => self.artifacts.iter().flat_map(|artifact| Part::split(&artifact.array())).collect(),
            Source::StatusMessage => {
                let message = self.status.value().get("message").map(|message| self.status.part(message));
                message.map(|message| message_parts(&message)).unwrap_or_default()
            }
            Source::History => {
                let last = self.history.iter().rev().find(|entry| !entry.from_user && !entry.interim);
                last.map(|entry| message_parts(&entry.raw)).unwrap_or_default()
            }
            Source::Nowhere => Vec::new(),
        }
    }
}

fn message_parts(message: &Json) -> Vec<Json> {
    message.value().get("parts").map(|parts| Part::split(&message.part(parts))).unwrap_or_default()
}

fn text_of(parts: &[Json]) -> String {
    let mut text = String::new();
    for part in parts {
        if let Part::Text(more) = Part::read(part) {
            text.push_str(&more);
        }
    }
    text
}

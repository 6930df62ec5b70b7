//! One delegation as its caller sees it: the fold of everything the agent said, under our ids.
//!
//! [`Record::apply`] takes events whose ids are ours already ([`crate::event::Event::with_ids`]). Chunks are joined as
//! bytes, never parsed again, so 5,000 of them cost what their text costs. A terminal state holds: what an agent says
//! after it is reported as late and changes nothing. Only [`Record::set_status`], our own verdict, may overrule it.

use std::collections::BTreeMap;

use crate::canonical::Fingerprint;
use crate::edit;
use crate::event::{ArtifactUpdate, Body, Event, Message, Status, Task, TaskState};
use crate::json::Json;
use crate::text::ObjectWriter;
use crate::time;

mod persist;
mod render;
mod view;

pub use persist::{Delta, delta};
pub use render::RenderOptions;
pub use view::{Measure, Source};

/// What a message or an artifact costs beyond its text, roughly; part of [`Record::bytes`], so that a flood of tiny
/// ones meets the same limit as a large one.
pub const ENTRY_BYTES: usize = 256;

/// The reduced task of one delegation.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    task_id: String,
    context_id: String,
    /// The agent's whole answer was this message; the status carries it too.
    lone: Option<Json>,
    /// The agent has spoken of a task.
    seen_task: bool,
    status: Json,
    state: TaskState,
    millis: i64,
    history: Vec<Entry>,
    by_message: BTreeMap<String, usize>,
    artifacts: Vec<Joined>,
    by_artifact: BTreeMap<String, usize>,
    metadata: Option<Json>,
    /// Members of the task that this version does not know.
    extra: Vec<(String, Json)>,
    bytes: usize,
}

/// A message in the history.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    key: String,
    raw: Json,
    /// Added by us, as the caller wrote it: the agent's copy does not replace it.
    ours: bool,
    from_user: bool,
    /// Said with a state that was not the last word, so it is progress and never the answer.
    interim: bool,
}

/// An artifact whose parts are still growing: its text around the parts, and the parts joined by commas.
#[derive(Debug, Clone, PartialEq)]
struct Joined {
    id: String,
    before: Vec<u8>,
    parts: Vec<u8>,
    after: Vec<u8>,
    count: usize,
    last_chunk: bool,
}

/// What applying an event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// The state is another one than before.
    pub state_changed: bool,
    /// It came after a terminal state; nothing was changed.
    pub late: bool,
    /// Parts for an artifact that was never begun; they began it.
    pub append_to_unknown: bool,
    /// A task without `artifacts` left those known so far in place.
    pub artifacts_kept: bool,
    /// A bare message, though the agent had spoken of a task; it went to the history.
    pub message_in_task: bool,
    /// A state that this version does not know; it counts as not terminal.
    pub unknown_state: bool,
}

impl Record {
    /// A delegation that no agent has spoken about yet: SUBMITTED.
    pub fn new(task_id: &str, context_id: &str, now_ms: i64) -> Record {
        let status = status_json(&TaskState::Submitted, None, now_ms);
        Record {
            task_id: task_id.to_owned(),
            context_id: context_id.to_owned(),
            lone: None,
            seen_task: false,
            bytes: status.as_bytes().len(),
            status,
            state: TaskState::Submitted,
            millis: now_ms,
            history: Vec::new(),
            by_message: BTreeMap::new(),
            artifacts: Vec::new(),
            by_artifact: BTreeMap::new(),
            metadata: None,
            extra: Vec::new(),
        }
    }

    /// Our id for it.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// The caller's context.
    pub fn context_id(&self) -> &str {
        &self.context_id
    }

    /// The state now.
    pub fn state(&self) -> &TaskState {
        &self.state
    }

    /// When the state was entered, in milliseconds since 1970: the agent's word if legible, else ours.
    pub fn status_millis(&self) -> i64 {
        self.millis
    }

    /// The status, raw.
    pub fn status(&self) -> &Json {
        &self.status
    }

    /// The agent's whole answer, where it was a message and no task.
    pub fn lone_message(&self) -> Option<&Json> {
        self.lone.as_ref()
    }

    /// The task's metadata, as the agent gave it.
    pub fn metadata(&self) -> Option<&Json> {
        self.metadata.as_ref()
    }

    /// Bytes held: the JSON, and [`ENTRY_BYTES`] for each message, artifact and unknown member.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages in the history.
    pub fn history_len(&self) -> usize {
        self.history.len()
    }

    /// Artifacts in order: id, number of parts, bytes of parts.
    pub fn artifacts(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.artifacts.iter().map(|artifact| (artifact.id.as_str(), artifact.count, artifact.parts.len()))
    }

    /// Adds a caller's message to the history; one of the same messageId is replaced.
    pub fn add_client_message(&mut self, message: &Json) {
        let id = message.value().get("messageId").and_then(|id| id.as_str());
        let key = message_key(id.as_deref(), message);
        self.put_message(Entry { key, raw: message.detached(), ours: true, from_user: true, interim: false });
    }

    /// Writes our own verdict, whatever the agent has said. `message` is a Message with our ids.
    pub fn set_status(&mut self, state: TaskState, message: Option<&Json>, now_ms: i64) {
        let key = message.map(|raw| {
            let id = raw.value().get("messageId").and_then(|id| id.as_str());
            message_key(id.as_deref(), raw)
        });
        self.retire_status_message(key.as_deref());
        self.lone = None;
        self.put_status(status_json(&state, message, now_ms), state, now_ms);
    }

    /// Folds in one event of the agent's, under our ids.
    pub fn apply(&mut self, event: &Event, now_ms: i64) -> Applied {
        let mut applied = Applied::default();
        if self.state.is_terminal() {
            applied.late = true;
            return applied;
        }
        let before = self.state.clone();
        match &event.body {
            Body::Task(task) => {
                self.seen_task = true;
                self.apply_task(event, task, now_ms, &mut applied);
            }
            Body::Status(update) => {
                self.seen_task = true;
                self.apply_status(&update.status, now_ms);
            }
            Body::Artifact(update) => {
                self.seen_task = true;
                self.apply_artifact(update, &mut applied);
            }
            Body::Message(message) if self.seen_task => {
                applied.message_in_task = true;
                self.put_message(Entry::of(message, false));
            }
            Body::Message(message) => {
                let raw = message.raw.detached();
                self.put_status(status_json(&TaskState::Completed, Some(&raw), now_ms), TaskState::Completed, now_ms);
                self.lone = Some(raw);
            }
        }
        applied.state_changed = before != self.state;
        applied.unknown_state = !self.state.is_known();
        applied
    }

    fn apply_task(&mut self, event: &Event, task: &Task, now_ms: i64, applied: &mut Applied) {
        self.retire_status_message(task.status.message.as_ref().map(Message::key).as_deref());
        for message in &task.history {
            self.put_message(Entry::of(message, false));
        }
        match &task.artifacts {
            Some(artifacts) => {
                self.bytes -= self.artifacts.iter().map(Joined::bytes).sum::<usize>();
                self.artifacts.clear();
                self.by_artifact.clear();
                for artifact in artifacts {
                    self.put_artifact(Joined::of(&artifact.raw, &artifact.id, false));
                }
            }
            None => applied.artifacts_kept = !self.artifacts.is_empty(),
        }
        if let Some(metadata) = &task.metadata {
            self.bytes -= self.metadata.as_ref().map_or(0, |old| old.as_bytes().len());
            self.bytes += metadata.as_bytes().len();
            self.metadata = Some(metadata.detached());
        }
        self.bytes -= extra_bytes(&self.extra);
        self.extra = render::unknown_members(&event.raw);
        self.bytes += extra_bytes(&self.extra);
        self.apply_status(&task.status, now_ms);
    }

    fn apply_status(&mut self, status: &Status, now_ms: i64) {
        self.retire_status_message(status.message.as_ref().map(Message::key).as_deref());
        let text = status.raw.value().get("timestamp").and_then(|text| text.as_str());
        let millis = status.millis.unwrap_or(now_ms);
        // Readers sort and parse it, so it is always there, and in UTC.
        let legible = status.millis.is_some() && text.is_some_and(|text| text.ends_with('Z'));
        let raw = if legible {
            status.raw.detached()
        } else {
            edit::set_members(&status.raw, &[("timestamp", Some(Json::string(&time::write(millis))))])
        };
        self.put_status(raw, status.state.clone(), millis);
    }

    fn put_status(&mut self, raw: Json, state: TaskState, millis: i64) {
        self.bytes = self.bytes - self.status.as_bytes().len() + raw.as_bytes().len();
        self.status = raw;
        self.state = state;
        self.millis = millis;
    }

    /// Moves the status message into the history, unless the next status repeats it.
    fn retire_status_message(&mut self, next: Option<&str>) {
        let Some(message) = self.status.value().get("message").filter(|message| message.is_object()) else { return };
        let id = message.get("messageId").and_then(|id| id.as_str());
        let raw = self.status.part(message);
        let key = message_key(id.as_deref(), &raw);
        if next == Some(&key) || self.by_message.contains_key(&key) {
            return;
        }
        let interim = !self.state.is_terminal();
        self.put_message(Entry { key, raw: raw.detached(), ours: false, from_user: false, interim });
    }

    fn put_message(&mut self, entry: Entry) {
        let size = entry.raw.as_bytes().len();
        match self.by_message.get(&entry.key).and_then(|&index| self.history.get_mut(index)) {
            Some(old) if old.ours && !entry.ours => {}
            Some(old) => {
                self.bytes = self.bytes - old.raw.as_bytes().len() + size;
                let interim = old.interim;
                *old = entry;
                old.interim |= interim;
            }
            None => {
                self.bytes += size + ENTRY_BYTES;
                self.by_message.insert(entry.key.clone(), self.history.len());
                self.history.push(entry);
            }
        }
    }

    fn apply_artifact(&mut self, update: &ArtifactUpdate, applied: &mut Applied) {
        let known = self.by_artifact.get(&update.artifact.id).and_then(|&index| self.artifacts.get_mut(index));
        match known {
            Some(artifact) if update.append => {
                self.bytes += artifact.append(&update.artifact.parts);
                artifact.last_chunk |= update.last_chunk;
            }
            Some(_) | None => {
                applied.append_to_unknown = update.append;
                self.put_artifact(Joined::of(&update.artifact.raw, &update.artifact.id, update.last_chunk));
            }
        }
    }

    fn put_artifact(&mut self, artifact: Joined) {
        self.bytes += artifact.bytes();
        match self.by_artifact.get(&artifact.id).and_then(|&index| self.artifacts.get_mut(index)) {
            Some(old) => {
                self.bytes -= old.bytes();
                *old = artifact;
            }
            None => {
                self.by_artifact.insert(artifact.id.clone(), self.artifacts.len());
                self.artifacts.push(artifact);
            }
        }
    }
}

fn extra_bytes(extra: &[(String, Json)]) -> usize {
    extra.iter().map(|(name, raw)| name.len() + raw.as_bytes().len() + ENTRY_BYTES).sum()
}

impl Entry {
    fn of(message: &Message, interim: bool) -> Entry {
        Entry { key: message.key(), raw: message.raw.detached(), ours: false, from_user: message.from_user, interim }
    }
}

impl Message {
    fn key(&self) -> String {
        message_key(self.message_id.as_deref(), &self.raw)
    }
}

/// What makes two messages the same: their id, else their content.
fn message_key(id: Option<&str>, raw: &Json) -> String {
    match id.filter(|id| !id.is_empty()) {
        Some(id) => format!("id {id}"),
        None => format!("is {}", Fingerprint::of(raw.value())),
    }
}

impl Joined {
    fn of(raw: &Json, id: &str, last_chunk: bool) -> Joined {
        let with_parts;
        let raw = match raw.value().get("parts") {
            Some(parts) if !parts.is_null() => raw,
            Some(_) | None => {
                with_parts = edit::set_members(raw, &[("parts", Some(Json::assume("[]")))]);
                &with_parts
            }
        };
        let text = raw.as_bytes();
        let span = raw.value().get("parts").map_or(text.len()..text.len(), |parts| parts.span());
        let inside = span.start + 1..span.end.max(span.start + 2) - 1;
        let mut joined = Joined {
            id: id.to_owned(),
            before: text.get(..inside.start).unwrap_or_default().to_vec(),
            parts: Vec::new(),
            after: text.get(inside.end..).unwrap_or_default().to_vec(),
            count: 0,
            last_chunk,
        };
        if let Some(parts) = raw.value().get("parts") {
            joined.append(&raw.part(parts));
        }
        joined
    }

    /// Adds the elements of an array; the number of bytes it grew by.
    fn append(&mut self, parts: &Json) -> usize {
        let before = self.parts.len();
        let count = parts.value().items().count();
        if count > 0 {
            let text = parts.as_bytes();
            let inside = text.get(1..text.len().max(2) - 1).unwrap_or_default();
            if !self.parts.is_empty() {
                self.parts.push(b',');
            }
            self.parts.extend_from_slice(inside.trim_ascii());
            self.count += count;
        }
        self.parts.len() - before
    }

    fn bytes(&self) -> usize {
        self.before.len() + self.parts.len() + self.after.len() + ENTRY_BYTES
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before);
        out.extend_from_slice(&self.parts);
        out.extend_from_slice(&self.after);
    }
}

/// A TaskStatus of our own.
pub fn status_json(state: &TaskState, message: Option<&Json>, millis: i64) -> Json {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    object.string("state", state.name());
    if let Some(message) = message {
        object.raw("message", message.as_bytes());
    }
    object.string("timestamp", &time::write(millis));
    object.close();
    Json::assume(out)
}

/// A text message of our own, in the agent's role.
pub fn agent_message(message_id: &str, task_id: &str, context_id: &str, text: &str) -> Json {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    object.string("messageId", message_id);
    object.string("contextId", context_id);
    object.string("taskId", task_id);
    object.string("role", "ROLE_AGENT");
    let parts = object.member("parts");
    parts.push(b'[');
    let mut part = ObjectWriter::open(parts);
    part.string("text", text);
    part.close();
    parts.push(b']');
    object.close();
    Json::assume(out)
}

#[cfg(test)]
mod tests;

//! A record as bytes for a store: whole, or the steps since.
//!
//! The format is our own JSON. What it was written from had passed the depth limit, so reading it back allows a few
//! levels more.

use crate::event::{Event, TaskState};
use crate::json::{Json, Kind, Limits, Value};
use crate::reply::What;
use crate::text::{ObjectWriter, quote};

use super::{Applied, Entry, Joined, Record, message_key};

/// One step of a record, to be replayed in order.
#[derive(Debug, Clone, Copy)]
pub enum Delta<'a> {
    /// The agent said something, under our ids.
    Event(&'a Event),
    /// The caller said something.
    Client(&'a Json),
    /// We gave a verdict.
    Status(&'a TaskState, Option<&'a Json>),
}

impl Delta<'_> {
    /// The step as JSON; `now_ms` is the time it was taken.
    pub fn to_bytes(&self, now_ms: i64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = ObjectWriter::open(&mut out);
        object.raw("at", now_ms.to_string().as_bytes());
        match self {
            Delta::Event(event) => object.raw("event", &event.to_stream_response()),
            Delta::Client(message) => object.raw("client", message.as_bytes()),
            Delta::Status(state, message) => {
                object.string("state", state.name());
                if let Some(message) = message {
                    object.raw("message", message.as_bytes());
                }
            }
        }
        object.close();
        out
    }
}

/// [`Delta::Event`] of an event that is a StreamResponse already.
pub fn delta(now_ms: i64, event: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.len() + 48);
    let mut object = ObjectWriter::open(&mut out);
    object.raw("at", now_ms.to_string().as_bytes());
    object.raw("event", event);
    object.close();
    out
}

const STORED: Limits = Limits { max_depth: 1024, max_bytes: usize::MAX };

fn bad(member: &str) -> What {
    What::Member(format!("record.{member}"))
}

fn open(bytes: Vec<u8>) -> Result<Json, What> {
    Json::parse(bytes, &STORED).map_err(|_| What::NotJson)
}

impl Record {
    /// Takes a step, and gives its delta for the store.
    pub fn apply_with_delta(&mut self, event: &Event, now_ms: i64) -> (Applied, Vec<u8>) {
        (self.apply(event, now_ms), Delta::Event(event).to_bytes(now_ms))
    }

    /// Replays a step.
    pub fn apply_delta(&mut self, bytes: Vec<u8>) -> Result<Applied, What> {
        let doc = open(bytes)?;
        let root = doc.value();
        let at = root.get("at").and_then(|at| at.as_i64()).ok_or_else(|| bad("at"))?;
        if let Some(event) = root.get("event") {
            return Ok(self.apply(&Event::read(&doc.part(event))?, at));
        }
        if let Some(message) = root.get("client") {
            self.add_client_message(&doc.part(message));
            return Ok(Applied::default());
        }
        let state = root.get("state").and_then(TaskState::read).ok_or_else(|| bad("state"))?;
        let state_changed = state != self.state;
        let message = root.get("message").map(|message| doc.part(message));
        self.set_status(state, message.as_ref(), at);
        Ok(Applied { state_changed, ..Applied::default() })
    }

    /// The whole record as JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 256);
        let mut object = ObjectWriter::open(&mut out);
        object.raw("v", b"1");
        object.string("taskId", &self.task_id);
        object.string("contextId", &self.context_id);
        object.raw("lone", if self.lone.is_some() { b"true" } else { b"false" });
        object.raw("seenTask", if self.seen_task { b"true" } else { b"false" });
        object.raw("millis", self.millis.to_string().as_bytes());
        object.raw("status", self.status.as_bytes());
        let list = object.member("history");
        list.push(b'[');
        for (index, entry) in self.history.iter().enumerate() {
            list.extend_from_slice(if index == 0 { b"[" } else { b",[" });
            let flags = u8::from(entry.ours) | u8::from(entry.from_user) << 1 | u8::from(entry.interim) << 2;
            list.push(b'0' + flags);
            list.push(b',');
            list.extend_from_slice(entry.raw.as_bytes());
            list.push(b']');
        }
        list.push(b']');
        let list = object.member("artifacts");
        list.push(b'[');
        for (index, artifact) in self.artifacts.iter().enumerate() {
            list.extend_from_slice(if index == 0 { b"[" } else { b",[" });
            quote(&artifact.id, list);
            list.extend_from_slice(if artifact.last_chunk { b",true," } else { b",false," });
            artifact.write(list);
            list.push(b']');
        }
        list.push(b']');
        if let Some(metadata) = &self.metadata {
            object.raw("metadata", metadata.as_bytes());
        }
        let mut extra = ObjectWriter::open(object.member("extra"));
        for (name, raw) in &self.extra {
            extra.raw(name, raw.as_bytes());
        }
        extra.close();
        object.close();
        out
    }

    /// Reads what [`Record::to_bytes`] wrote.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Record, What> {
        let doc = open(bytes)?;
        let root = doc.value();
        let text = |name: &str| root.get(name).and_then(|text| text.as_str()).ok_or_else(|| bad(name));
        let flag = |name: &str| root.get(name).and_then(|flag| flag.as_bool()).ok_or_else(|| bad(name));
        if root.get("v").and_then(|version| version.as_i64()) != Some(1) {
            return Err(bad("v"));
        }
        let millis = root.get("millis").and_then(|millis| millis.as_i64()).ok_or_else(|| bad("millis"))?;
        let mut record = Record::new(&text("taskId")?, &text("contextId")?, millis);
        record.seen_task = flag("seenTask")?;
        let status = root.get("status").ok_or_else(|| bad("status"))?;
        let state = status.get("state").and_then(TaskState::read).ok_or_else(|| bad("status"))?;
        record.put_status(doc.part(status).detached(), state, millis);
        if flag("lone")? {
            let message = status.get("message").ok_or_else(|| bad("status"))?;
            record.lone = Some(doc.part(message).detached());
        }
        for item in items(root, "history")? {
            let [flags, raw] = exactly(item).ok_or_else(|| bad("history"))?;
            let flags = flags.as_i64().ok_or_else(|| bad("history"))?;
            let raw = doc.part(raw).detached();
            let id = raw.value().get("messageId").and_then(|id| id.as_str().map(|id| id.into_owned()));
            let key = message_key(id.as_deref(), &raw);
            let (ours, from_user, interim) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            record.put_message(Entry { key, raw, ours, from_user, interim });
        }
        for item in items(root, "artifacts")? {
            let [id, last, raw] = exactly(item).ok_or_else(|| bad("artifacts"))?;
            let id = id.as_str().ok_or_else(|| bad("artifacts"))?;
            record.put_artifact(Joined::of(&doc.part(raw), &id, last.as_bool() == Some(true)));
        }
        record.metadata = root.get("metadata").map(|metadata| doc.part(metadata).detached());
        let extra = root.get("extra").ok_or_else(|| bad("extra"))?;
        record.extra = extra
            .members()
            .filter_map(|member| Some((member.key.as_str()?.into_owned(), doc.part(member.value).detached())))
            .collect();
        record.bytes += record.metadata.as_ref().map_or(0, |metadata| metadata.as_bytes().len());
        record.bytes += super::extra_bytes(&record.extra);
        Ok(record)
    }
}

fn items<'a>(root: Value<'a>, name: &str) -> Result<crate::json::Items<'a>, What> {
    let list = root.get(name).filter(|list| list.kind() == Kind::Array);
    list.map(|list| list.items()).ok_or_else(|| bad(name))
}

fn exactly<const N: usize>(list: Value<'_>) -> Option<[Value<'_>; N]> {
    list.items().take(N + 1).collect::<Vec<_>>().try_into().ok()
}

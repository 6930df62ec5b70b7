//! A record as the caller reads it: tasks, updates, messages.

use crate::edit;
use crate::event::wrap;
use crate::json::Json;
use crate::text::ObjectWriter;
use crate::time;

use super::Record;

/// What of a task is wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct RenderOptions<'a> {
    /// At most this many of the latest messages; 0 leaves `history` out, `None` gives all.
    pub history_length: Option<u32>,
    /// Whether `artifacts` is there.
    pub include_artifacts: bool,
    /// When its status changed, in milliseconds since 1970, in place of what the agent says.
    pub changed: Option<i64>,
    /// Put into the task's metadata under `watertight`.
    pub watertight: Option<&'a Json>,
}

const KNOWN: [&str; 6] = ["id", "contextId", "status", "artifacts", "history", "metadata"];

/// The most unknown members of a task that are kept.
const MAX_UNKNOWN: usize = 256;

/// Members of a task that this version does not know, the first [`MAX_UNKNOWN`] of them.
pub(super) fn unknown_members(task: &Json) -> Vec<(String, Json)> {
    task.value()
        .members()
        .filter(|member| !KNOWN.iter().any(|name| member.is(name)))
        .filter_map(|member| Some((member.key.as_str()?.into_owned(), task.part(member.value).detached())))
        .take(MAX_UNKNOWN)
        .collect()
}

impl Record {
    /// The Task, bare, as GetTask answers it.
    pub fn render_task(&self, options: &RenderOptions<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 256);
        let mut object = ObjectWriter::open(&mut out);
        object.string("id", &self.task_id);
        object.string("contextId", &self.context_id);
        match options.changed.filter(|millis| *millis != self.millis) {
            Some(millis) => {
                let stamp = Json::string(&time::write(millis));
                object.raw("status", edit::set_members(&self.status, &[("timestamp", Some(stamp))]).as_bytes());
            }
            None => object.raw("status", self.status.as_bytes()),
        }
        if options.include_artifacts && !self.artifacts.is_empty() {
            let list = object.member("artifacts");
            for (index, artifact) in self.artifacts.iter().enumerate() {
                list.push(if index == 0 { b'[' } else { b',' });
                artifact.write(list);
            }
            list.push(b']');
        }
        let wanted = options.history_length.map_or(usize::MAX, |length| length as usize);
        let recent = self.history.get(self.history.len().saturating_sub(wanted)..).unwrap_or_default();
        if !recent.is_empty() {
            let list = object.member("history");
            for (index, entry) in recent.iter().enumerate() {
                list.push(if index == 0 { b'[' } else { b',' });
                list.extend_from_slice(entry.raw.as_bytes());
            }
            list.push(b']');
        }
        if let Some(metadata) = self.rendered_metadata(options.watertight) {
            object.raw("metadata", metadata.as_bytes());
        }
        for (name, raw) in &self.extra {
            object.raw(name, raw.as_bytes());
        }
        object.close();
        out
    }

    /// The Task as an event of a stream.
    pub fn render_task_event(&self, options: &RenderOptions<'_>) -> Vec<u8> {
        wrap("task", &self.render_task(options))
    }

    /// The agent's message as an answer to SendMessage, if that was all it said.
    pub fn render_message_event(&self) -> Option<Vec<u8>> {
        self.lone.as_ref().map(|message| wrap("message", message.as_bytes()))
    }

    /// The current status as an event of a stream.
    pub fn render_status_update(&self, watertight: Option<&Json>) -> Vec<u8> {
        let mut inner = Vec::with_capacity(self.status.as_bytes().len() + 128);
        let mut object = ObjectWriter::open(&mut inner);
        object.string("taskId", &self.task_id);
        object.string("contextId", &self.context_id);
        object.raw("status", self.status.as_bytes());
        if let Some(ours) = watertight {
            object.raw("metadata", &wrap("watertight", ours.as_bytes()));
        }
        object.close();
        wrap("statusUpdate", &inner)
    }

    /// A whole artifact, by its position, as an event of a stream.
    pub fn render_artifact_update(&self, index: usize) -> Option<Vec<u8>> {
        let artifact = self.artifacts.get(index)?;
        let mut inner = Vec::with_capacity(artifact.bytes() + 128);
        let mut object = ObjectWriter::open(&mut inner);
        object.string("taskId", &self.task_id);
        object.string("contextId", &self.context_id);
        artifact.write(object.member("artifact"));
        object.raw("append", b"false");
        object.raw("lastChunk", if artifact.last_chunk || self.state.is_terminal() { b"true" } else { b"false" });
        object.close();
        Some(wrap("artifactUpdate", &inner))
    }

    fn rendered_metadata(&self, watertight: Option<&Json>) -> Option<Json> {
        match (&self.metadata, watertight) {
            (Some(metadata), Some(ours)) => Some(edit::set_members(metadata, &[("watertight", Some(ours.clone()))])),
            (Some(metadata), None) => Some(metadata.clone()),
            (None, Some(ours)) => Some(Json::assume(wrap("watertight", ours.as_bytes()))),
            (None, None) => None,
        }
    }
}

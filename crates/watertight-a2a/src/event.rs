//! What agents answer: tasks, messages and updates, each with a peek for decisions and its raw text.
//!
//! Tolerant of a missing wrapper, int enums, snake_case, unknown members and unknown states; an unknown state is not
//! terminal. Not tolerant where guessing would invent a fact: a task without id or state, an artifact without id or
//! parts, two kinds of event in one.

use bytes::Bytes;

use crate::edit::{self, Ids};
use crate::json::{self, Json, Kind, Value};
use crate::reply::What;
use crate::time;

/// The longest id accepted from a peer, in bytes.
pub const MAX_REMOTE_ID_BYTES: usize = 1024;

/// The most messages, or artifacts, of one task that are looked at. A list of many tiny entries would cost far more
/// memory than its bytes.
pub const MAX_ENTRIES: usize = 10_000;

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are A2A's own")]
pub enum TaskState {
    Unspecified,
    Submitted,
    Working,
    Completed,
    Failed,
    Canceled,
    InputRequired,
    Rejected,
    AuthRequired,
    /// A name or number that this version does not know, cleaned and bounded.
    Unknown(String),
}

const STATES: [(TaskState, &str); 9] = [
    (TaskState::Unspecified, "TASK_STATE_UNSPECIFIED"),
    (TaskState::Submitted, "TASK_STATE_SUBMITTED"),
    (TaskState::Working, "TASK_STATE_WORKING"),
    (TaskState::Completed, "TASK_STATE_COMPLETED"),
    (TaskState::Failed, "TASK_STATE_FAILED"),
    (TaskState::Canceled, "TASK_STATE_CANCELED"),
    (TaskState::InputRequired, "TASK_STATE_INPUT_REQUIRED"),
    (TaskState::Rejected, "TASK_STATE_REJECTED"),
    (TaskState::AuthRequired, "TASK_STATE_AUTH_REQUIRED"),
];

impl TaskState {
    /// Reads a name or protobuf's int; `None` if it is neither.
    pub fn read(value: Value<'_>) -> Option<TaskState> {
        match value.kind() {
            Kind::String => value.as_str().map(|name| TaskState::of_name(&name)),
            Kind::Number => {
                let known = value.as_i64().and_then(|number| STATES.get(usize::try_from(number).ok()?));
                Some(known.map_or_else(
                    || TaskState::Unknown(crate::text::excerpt(value.raw(), 64)),
                    |(state, _)| state.clone(),
                ))
            }
            Kind::Object | Kind::Array | Kind::Bool | Kind::Null => None,
        }
    }

    /// The state of that name.
    pub fn of_name(name: &str) -> TaskState {
        let known = STATES.iter().find(|(_, known)| *known == name).map(|(state, _)| state.clone());
        known.unwrap_or_else(|| TaskState::Unknown(crate::text::clean(name, 64)))
    }

    /// The name on the wire.
    pub fn name(&self) -> &str {
        match self {
            TaskState::Unspecified => STATES[0].1,
            TaskState::Submitted => STATES[1].1,
            TaskState::Working => STATES[2].1,
            TaskState::Completed => STATES[3].1,
            TaskState::Failed => STATES[4].1,
            TaskState::Canceled => STATES[5].1,
            TaskState::InputRequired => STATES[6].1,
            TaskState::Rejected => STATES[7].1,
            TaskState::AuthRequired => STATES[8].1,
            TaskState::Unknown(name) => name,
        }
    }

    /// Whether nothing can follow it.
    pub fn is_terminal(&self) -> bool {
        matches!(self, TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected)
    }

    /// Whether the agent waits for somebody.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, TaskState::InputRequired | TaskState::AuthRequired)
    }

    /// Whether this version knows it.
    pub fn is_known(&self) -> bool {
        !matches!(self, TaskState::Unknown(_))
    }
}

/// One thing that an agent said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is, peeked.
    pub body: Body,
    /// The object itself, without the wrapper that names its kind.
    pub raw: Json,
    /// It came without its wrapper, or with an id under another name, and was recognised by shape.
    pub loose: bool,
    /// The text that `raw` is a part of, where that is a StreamResponse of nothing else.
    wrapped: Option<Json>,
}

/// The kinds of event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The whole task.
    Task(Task),
    /// A message.
    Message(Message),
    /// A change of status.
    Status(StatusUpdate),
    /// An artifact, or more of one.
    Artifact(ArtifactUpdate),
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// Its context.
    pub context_id: Option<String>,
    /// Its status.
    pub status: Status,
    /// Its artifacts; `None` where the member is absent.
    pub artifacts: Option<Vec<Artifact>>,
    /// Its messages.
    pub history: Vec<Message>,
    /// Its metadata.
    pub metadata: Option<Json>,
}

/// A task's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// As it came.
    pub raw: Json,
    /// The state.
    pub state: TaskState,
    /// What the agent said with it.
    pub message: Option<Message>,
    /// When, in milliseconds since 1970, if it said so legibly.
    pub millis: Option<i64>,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// As it came.
    pub raw: Json,
    /// Its id, if it has one.
    pub message_id: Option<String>,
    /// The task that it names.
    pub task_id: Option<String>,
    /// The context that it names.
    pub context_id: Option<String>,
    /// Whether a user wrote it; anything but ROLE_USER is the agent's.
    pub from_user: bool,
}

/// An artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// As it came.
    pub raw: Json,
    /// Its id, unique within the task.
    pub id: String,
    /// The array of its parts.
    pub parts: Json,
}

/// A change of status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Of which task.
    pub task_id: String,
    /// In which context.
    pub context_id: Option<String>,
    /// The status from now on.
    pub status: Status,
    /// The event's metadata.
    pub metadata: Option<Json>,
}

/// An artifact, or more of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactUpdate {
    /// Of which task.
    pub task_id: String,
    /// In which context.
    pub context_id: Option<String>,
    /// The artifact, or the parts to add to it.
    pub artifact: Artifact,
    /// Whether the parts are added.
    pub append: bool,
    /// Whether this is the last of it.
    pub last_chunk: bool,
    /// The event's metadata.
    pub metadata: Option<Json>,
}

const WRAPPERS: [&str; 4] = ["task", "message", "statusUpdate", "artifactUpdate"];

impl Event {
    /// Reads a StreamResponse: one event of a stream, or the payload of a push notification.
    pub fn read(doc: &Json) -> Result<Event, What> {
        let root = doc.value();
        if !root.is_object() {
            return Err(What::NotAnObject);
        }
        let wrapped = json::fields(root, WRAPPERS).map_err(What::Duplicate)?;
        let mut found = WRAPPERS.iter().zip(wrapped).filter_map(|(name, value)| value.map(|value| (*name, value)));
        // A bare task has no member of these names; its status and id decide before anything unknown does.
        let (kind, value, loose) = match (found.next(), found.next()) {
            (Some((name, value)), None) => (name, value, false),
            (Some((first, _)), Some((second, _))) => return Err(What::Member(format!("one of {first} and {second}"))),
            (None, _) => (shape(root).ok_or(What::NoEnvelope)?, root, true),
        };
        Event::of_kind(doc, kind, value, loose)
    }

    fn of_kind(doc: &Json, kind: &str, value: Value<'_>, loose: bool) -> Result<Event, What> {
        let mut reader = Peek { doc, loose };
        let body = match kind {
            "task" => Body::Task(reader.task(value)?),
            "message" => Body::Message(reader.lone_message(value)?),
            "statusUpdate" => Body::Status(reader.status_update(value)?),
            _ => Body::Artifact(reader.artifact_update(value)?),
        };
        Ok(Event { body, raw: doc.part(value), loose: reader.loose, wrapped: None })
    }

    /// Reads the result of SendMessage: a task or a message.
    pub fn read_send_result(doc: &Json) -> Result<Event, What> {
        let event = Event::read(doc)?;
        match event.body {
            Body::Task(_) | Body::Message(_) => Ok(event),
            Body::Status(_) | Body::Artifact(_) => Err(What::NoEnvelope),
        }
    }

    /// Reads the result of GetTask or CancelTask, which is a bare task; a wrapped one is loose.
    pub fn read_task_result(doc: &Json) -> Result<Event, What> {
        let mut event = Event::read(doc)?;
        match event.body {
            Body::Task(_) => {
                event.loose = event.raw.as_bytes().len() != doc.as_bytes().len();
                Ok(event)
            }
            Body::Message(_) | Body::Status(_) | Body::Artifact(_) => Err(What::NoEnvelope),
        }
    }

    /// The member that wraps it in a StreamResponse.
    pub fn wrapper(&self) -> &'static str {
        match self.body {
            Body::Task(_) => "task",
            Body::Message(_) => "message",
            Body::Status(_) => "statusUpdate",
            Body::Artifact(_) => "artifactUpdate",
        }
    }

    /// As a StreamResponse.
    pub fn to_stream_response(&self) -> Bytes {
        match &self.wrapped {
            Some(wrapped) => wrapped.clone().into_bytes(),
            None => wrap(self.wrapper(), self.raw.as_bytes()).into(),
        }
    }

    /// The task that it is about, by the agent's id.
    pub fn task_id(&self) -> Option<&str> {
        match &self.body {
            Body::Task(task) => Some(&task.id),
            Body::Message(message) => message.task_id.as_deref(),
            Body::Status(update) => Some(&update.task_id),
            Body::Artifact(update) => Some(&update.task_id),
        }
    }

    /// The context that it is in, by the agent's id.
    pub fn context_id(&self) -> Option<&str> {
        match &self.body {
            Body::Task(task) => task.context_id.as_deref(),
            Body::Message(message) => message.context_id.as_deref(),
            Body::Status(update) => update.context_id.as_deref(),
            Body::Artifact(update) => update.context_id.as_deref(),
        }
    }

    /// The state that it tells of.
    pub fn state(&self) -> Option<&TaskState> {
        self.status().map(|status| &status.state)
    }

    /// The status that it tells of.
    pub fn status(&self) -> Option<&Status> {
        match &self.body {
            Body::Task(task) => Some(&task.status),
            Body::Status(update) => Some(&update.status),
            Body::Message(_) | Body::Artifact(_) => None,
        }
    }

    /// The same event under our ids, without the metadata that only we may write.
    pub fn with_ids(&self, ids: &Ids<'_>) -> Result<Event, What> {
        let raw = match self.body {
            Body::Task(_) => edit::task(&self.raw, ids),
            Body::Message(_) => edit::message(&self.raw, ids),
            Body::Status(_) => edit::status_update(&self.raw, ids),
            Body::Artifact(_) => edit::artifact_update(&self.raw, ids),
        };
        let doc = Json::assume(wrap(self.wrapper(), raw.as_bytes()));
        // Its end is known, so that nobody has to look for it.
        let start = self.wrapper().len() + r#"{"":"#.len();
        let mut event = Event::of_kind(&doc, self.wrapper(), doc.at(start..start + raw.as_bytes().len()), self.loose)?;
        event.loose = self.loose;
        event.wrapped = Some(doc);
        Ok(event)
    }
}

/// `{"<member>":<raw>}`.
pub fn wrap(member: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + member.len() + 5);
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(raw);
    out.push(b'}');
    out
}

fn shape(root: Value<'_>) -> Option<&'static str> {
    let has = |name: &str, kind: Kind| root.get(name).is_some_and(|value| value.kind() == kind);
    if has("messageId", Kind::String) && has("parts", Kind::Array) {
        Some("message")
    } else if has("artifact", Kind::Object) && has("taskId", Kind::String) {
        Some("artifactUpdate")
    } else if has("taskId", Kind::String) && has("status", Kind::Object) {
        Some("statusUpdate")
    } else if root.get("id").is_some() || root.get("status").is_some() {
        Some("task")
    } else {
        None
    }
}

struct Peek<'d> {
    doc: &'d Json,
    loose: bool,
}

impl Peek<'_> {
    fn task(&mut self, value: Value<'_>) -> Result<Task, What> {
        let [id, context, status, artifacts, history, metadata] =
            members(value, "task", ["id", "contextId", "status", "artifacts", "history", "metadata"])?;
        let id = remote_id(id, "task", "id")?.ok_or_else(|| missing("task.id"))?;
        let status = self.status(status, "task.status")?;
        let artifacts = match list(artifacts, "task.artifacts")? {
            None => None,
            Some(items) => {
                Some(items.map(|item| self.artifact(item, "task.artifacts", false)).collect::<Result<_, _>>()?)
            }
        };
        let history = match list(history, "task.history")? {
            None => Vec::new(),
            Some(items) => items.map(|item| self.message(item, "task.history")).collect::<Result<_, _>>()?,
        };
        Ok(Task {
            id,
            context_id: remote_id(context, "task", "contextId")?,
            status,
            artifacts,
            history,
            metadata: self.object(metadata),
        })
    }

    fn status_update(&mut self, value: Value<'_>) -> Result<StatusUpdate, What> {
        let [task, context, status, metadata] =
            members(value, "statusUpdate", ["taskId", "contextId", "status", "metadata"])?;
        Ok(StatusUpdate {
            task_id: self.event_task_id(task, value, "statusUpdate")?,
            context_id: remote_id(context, "statusUpdate", "contextId")?,
            status: self.status(status, "statusUpdate.status")?,
            metadata: self.object(metadata),
        })
    }

    fn artifact_update(&mut self, value: Value<'_>) -> Result<ArtifactUpdate, What> {
        let [task, context, artifact, append, last, metadata] =
            members(value, "artifactUpdate", ["taskId", "contextId", "artifact", "append", "lastChunk", "metadata"])?;
        let flag = |value: Option<Value<'_>>| value.and_then(|value| value.as_bool()).unwrap_or(false);
        let (append, last_chunk) = (flag(append), flag(last));
        let artifact = artifact.ok_or_else(|| missing("artifactUpdate.artifact"))?;
        Ok(ArtifactUpdate {
            task_id: self.event_task_id(task, value, "artifactUpdate")?,
            context_id: remote_id(context, "artifactUpdate", "contextId")?,
            // A closing chunk may add nothing; serialisers drop an empty array.
            artifact: self.artifact(artifact, "artifactUpdate.artifact", append && last_chunk)?,
            append,
            last_chunk,
            metadata: self.object(metadata),
        })
    }

    fn event_task_id(&mut self, id: Option<Value<'_>>, event: Value<'_>, path: &str) -> Result<String, What> {
        if let Some(id) = remote_id(id, path, "taskId")? {
            return Ok(id);
        }
        self.loose = true;
        remote_id(event.get("id"), path, "taskId")?.ok_or_else(|| missing(&format!("{path}.taskId")))
    }

    fn status(&self, value: Option<Value<'_>>, path: &str) -> Result<Status, What> {
        let value = value.ok_or_else(|| missing(path))?;
        let [state, message, timestamp] = members(value, path, ["state", "message", "timestamp"])?;
        let at = |name: &str| format!("{path}.{name}");
        let state = state.and_then(TaskState::read).ok_or_else(|| What::Member(at("state")))?;
        let message = message.map(|message| self.message(message, &at("message"))).transpose()?;
        let millis = timestamp.and_then(|text| time::parse(&text.as_str()?));
        Ok(Status { raw: self.doc.part(value), state, message, millis })
    }

    fn lone_message(&self, value: Value<'_>) -> Result<Message, What> {
        let message = self.message(value, "message")?;
        let parts = value.get("parts").filter(|parts| parts.items().next().is_some());
        parts.map(|_| message).ok_or_else(|| missing("message.parts"))
    }

    fn message(&self, value: Value<'_>, path: &str) -> Result<Message, What> {
        let [id, task, context, role] = members(value, path, ["messageId", "taskId", "contextId", "role"])?;
        let from_user = role.is_some_and(|role| match role.kind() {
            Kind::String => role.as_str().as_deref() == Some("ROLE_USER"),
            Kind::Number => role.as_i64() == Some(1),
            Kind::Object | Kind::Array | Kind::Bool | Kind::Null => false,
        });
        Ok(Message {
            raw: self.doc.part(value),
            message_id: remote_id(id, path, "messageId")?,
            task_id: remote_id(task, path, "taskId")?,
            context_id: remote_id(context, path, "contextId")?,
            from_user,
        })
    }

    fn artifact(&self, value: Value<'_>, path: &str, may_be_empty: bool) -> Result<Artifact, What> {
        let [id, parts] = members(value, path, ["artifactId", "parts"])?;
        let at = |name: &str| format!("{path}.{name}");
        let id = remote_id(id, path, "artifactId")?.ok_or_else(|| missing(&at("artifactId")))?;
        let parts = match parts {
            Some(parts) if parts.kind() == Kind::Array && (may_be_empty || parts.items().next().is_some()) => {
                self.doc.part(parts)
            }
            None if may_be_empty => Json::assume("[]"),
            Some(_) | None => return Err(missing(&at("parts"))),
        };
        Ok(Artifact { raw: self.doc.part(value), id, parts })
    }

    fn object(&self, value: Option<Value<'_>>) -> Option<Json> {
        value.filter(Value::is_object).map(|value| self.doc.part(value))
    }
}

fn missing(path: &str) -> What {
    What::Member(path.to_owned())
}

fn members<'a, const N: usize>(
    value: Value<'a>,
    path: &str,
    names: [&'static str; N],
) -> Result<[Option<Value<'a>>; N], What> {
    if !value.is_object() {
        return Err(missing(path));
    }
    json::fields(value, names).map_err(What::Duplicate)
}

fn list<'a>(value: Option<Value<'a>>, path: &'static str) -> Result<Option<json::Items<'a>>, What> {
    match value {
        None => Ok(None),
        Some(value) if value.kind() != Kind::Array => Err(missing(path)),
        Some(value) if value.items().nth(MAX_ENTRIES).is_some() => Err(What::TooMany(path, MAX_ENTRIES)),
        Some(value) => Ok(Some(value.items())),
    }
}

/// A peer's id: a bounded string without control characters; `""` counts as absent.
fn remote_id(value: Option<Value<'_>>, path: &str, name: &str) -> Result<Option<String>, What> {
    let Some(value) = value else { return Ok(None) };
    let bad = || missing(&format!("{path}.{name}"));
    let text = value.as_exact_str().ok_or_else(bad)?;
    let plain = text.bytes().all(|byte| matches!(byte, 0x20..0x7f));
    if text.len() > MAX_REMOTE_ID_BYTES || (!plain && text.chars().any(char::is_control)) {
        return Err(bad());
    }
    Ok((!text.is_empty()).then(|| text.into_owned()))
}

#[cfg(test)]
mod tests;

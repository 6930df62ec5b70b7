//! What was said, out of any JSON that an agent, a proxy or a tool may have produced.
//!
//! One walk for everybody, since each copy of it would know other shapes: JSON-RPC responses and bare results, tasks,
//! messages and updates of A2A 1.0 and 0.3, the envelopes of tools (`{"task", "delegation_id"}` out, `{"text", …}` or
//! `{"response_preview", …}` back), rows of lists of delegations, plain strings, errors as objects and as strings.
//!
//! [`reply`] gives what was said as an answer, and says what it is: an acknowledgement is none, nor is anything that a task
//! said before it ended. [`archive`] gives all that was said, whatever it is. [`request`] gives what was asked for. None of
//! them panics, follows more than [`MAX_DEPTH`] levels, or gives more than was put in. They decide nothing: whether a reply
//! is acceptable is judged where it comes in ([`crate::reply`], [`crate::event`]).

use std::borrow::Cow;

use crate::event::TaskState;
use crate::json::{Kind, Value};

mod parts;

pub use parts::{Content, File, Piece, Place};

/// Envelopes in envelopes that are looked into.
pub const MAX_DEPTH: usize = 8;

/// What a reply is. Whoever wants an answer has to say what becomes of the others.
#[derive(Debug, Clone)]
pub enum Said<'a> {
    /// The answer to what was asked.
    Answer(Content<'a>),
    /// A question: it goes on when that is answered.
    Asks(Content<'a>),
    /// It is queued, or at work; what it said so far is no answer.
    Accepted(Content<'a>),
    /// It came to nothing; why.
    Failed(Content<'a>),
    /// Nothing that can be understood as one of these.
    Nothing,
}

impl<'a> Said<'a> {
    /// What was said, whatever it is.
    pub fn into_content(self) -> Content<'a> {
        match self {
            Said::Answer(content) | Said::Asks(content) | Said::Accepted(content) | Said::Failed(content) => content,
            Said::Nothing => Content::default(),
        }
    }

    /// What a task says in this state. An answer stands in its artifacts, and a question or a failure in its status message;
    /// each is looked for in the other place too, and then in the agent's last message.
    pub(crate) fn of_task(
        state: &TaskState,
        artifacts: Content<'a>,
        status: Content<'a>,
        last: Content<'a>,
    ) -> Said<'a> {
        match state {
            TaskState::Completed => Said::Answer(first([artifacts, status, last])),
            TaskState::InputRequired | TaskState::AuthRequired => Said::Asks(first([status, artifacts, last])),
            TaskState::Failed | TaskState::Canceled | TaskState::Rejected => {
                Said::Failed(first([status, artifacts, last]))
            }
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified | TaskState::Unknown(_) => {
                Said::Accepted(first([artifacts, status, last]))
            }
        }
    }
}

/// The first that says anything; where that has no words, those of the next that has some come after it.
fn first(places: [Content<'_>; 3]) -> Content<'_> {
    let mut places = places.into_iter().filter(|place| !place.is_empty());
    let mut said = places.next().unwrap_or_default();
    if !said.has_text()
        && let Some(words) = places.find(Content::has_text)
    {
        said.append(words);
    }
    said
}

/// What was said as an answer, and what it is.
pub fn reply(json: Value<'_>) -> Said<'_> {
    reply_in(json, false, 0)
}

/// All that was said, in order; the same text once.
pub fn archive(json: Value<'_>) -> Content<'_> {
    let mut all = Content::default();
    gather(json, 0, &mut all);
    all
}

/// What was asked for.
pub fn request(json: Value<'_>) -> Content<'_> {
    request_in(json, 0)
}

/// The text of an `error`, whatever stands there.
pub(crate) fn error_text(error: Value<'_>) -> Cow<'_, str> {
    let said = error.get("message").filter(|message| !message.is_null()).unwrap_or(error);
    said.as_str().unwrap_or_else(|| String::from_utf8_lossy(said.raw()))
}

/// The members that say something, each the first of its name. `null` counts as absent.
#[derive(Default)]
struct Members<'a> {
    error: Option<Value<'a>>,
    result: Option<Value<'a>>,
    params: Option<Value<'a>>,
    queued: Option<Value<'a>>,
    status: Option<Value<'a>>,
    task: Option<Value<'a>>,
    message: Option<Value<'a>>,
    status_update: Option<Value<'a>>,
    artifact_update: Option<Value<'a>>,
    artifacts: Option<Value<'a>>,
    artifact: Option<Value<'a>>,
    parts: Option<Value<'a>>,
    text: Option<Value<'a>>,
    preview: Option<Value<'a>>,
    role: Option<Value<'a>>,
    kind: Option<Value<'a>>,
    history: Option<Value<'a>>,
}

impl<'a> Members<'a> {
    fn of(object: Value<'a>) -> Members<'a> {
        let mut of = Members::default();
        for member in object.members() {
            let slot = match () {
                () if member.is("error") => &mut of.error,
                () if member.is("result") => &mut of.result,
                () if member.is("params") => &mut of.params,
                () if member.is("queued") => &mut of.queued,
                () if member.is("status") => &mut of.status,
                () if member.is("task") => &mut of.task,
                () if member.is("message") => &mut of.message,
                () if member.is("statusUpdate") => &mut of.status_update,
                () if member.is("artifactUpdate") => &mut of.artifact_update,
                () if member.is("artifacts") => &mut of.artifacts,
                () if member.is("artifact") => &mut of.artifact,
                () if member.is("parts") => &mut of.parts,
                () if member.is("text") => &mut of.text,
                () if member.is("responsePreview") => &mut of.preview,
                () if member.is("role") => &mut of.role,
                () if member.is("kind") => &mut of.kind,
                () if member.is("history") => &mut of.history,
                () => continue,
            };
            *slot = slot.or(Some(member.value).filter(|value| !value.is_null()));
        }
        of
    }

    /// What stands here as text itself.
    fn own_text(&self) -> Content<'a> {
        let text =
            |value: Option<Value<'a>>| value.and_then(|text| text.as_str()).filter(|text| !text.trim().is_empty());
        match (self.parts, text(self.text), text(self.preview)) {
            (Some(parts), ..) if parts.items().next().is_some() => Content::of_parts(parts.items()),
            (_, Some(text), _) => Content::of_text(text),
            (_, None, Some(preview)) => Content::of_preview(preview),
            (_, None, None) => Content::default(),
        }
    }

    fn all_artifacts(&self) -> Content<'a> {
        let mut content = Content::default();
        for artifact in self.artifacts.iter().flat_map(Value::items).chain(self.artifact) {
            content.append(words(artifact, 0));
        }
        content
    }

    fn last_of_agent(&self) -> Content<'a> {
        let spoken = self.history.iter().flat_map(Value::items).filter(|entry| !is_user(entry.get("role")));
        spoken.last().map(|entry| words(entry, 0)).unwrap_or_default()
    }
}

fn reply_in(json: Value<'_>, is_task: bool, depth: usize) -> Said<'_> {
    if depth > MAX_DEPTH {
        return Said::Nothing;
    }
    match json.kind() {
        Kind::String => match json.as_str().filter(|text| !text.trim().is_empty()) {
            Some(text) => Said::Answer(Content::of_text(text)),
            None => Said::Nothing,
        },
        Kind::Object => reply_of(&Members::of(json), is_task, depth),
        Kind::Array | Kind::Number | Kind::Bool | Kind::Null => Said::Nothing,
    }
}

fn reply_of<'a>(of: &Members<'a>, is_task: bool, depth: usize) -> Said<'a> {
    let object = |value: Option<Value<'a>>| value.filter(Value::is_object);
    let says_nothing = |error: &Value<'a>| error.as_bool() == Some(false) || matches!(error.raw(), b"\"\"" | b"{}");
    if let Some(error) = of.error.filter(|error| !says_nothing(error)) {
        return Said::Failed(Content::of_text(error_text(error)));
    }
    if let Some(result) = of.result {
        return reply_in(result, false, depth + 1);
    }
    // A request is no answer to itself.
    if of.params.is_some() {
        return Said::Nothing;
    }
    let is_kind = |kind: &str| of.kind.and_then(|said| said.as_str()).as_deref() == Some(kind);
    let is_task = is_task || is_kind("task");
    let own = || match of.own_text() {
        own if own.is_empty() => of.message.map(|message| words(message, depth)).unwrap_or_default(),
        own => own,
    };
    if of.queued.and_then(|queued| queued.as_bool()) == Some(true) {
        return Said::Accepted(own());
    }
    if let Some(status) = object(of.status) {
        let message = status.get("message").map(|message| words(message, depth)).unwrap_or_default();
        let state = status.get("state").map_or(TaskState::Unspecified, state_of);
        return Said::of_task(&state, of.all_artifacts(), message, of.last_of_agent());
    }
    // A number is an HTTP status.
    if let Some(status) = of.status.filter(|status| status.kind() == Kind::String) {
        return Said::of_task(&state_of(status), of.all_artifacts(), own(), of.last_of_agent());
    }
    if let Some(inner) = object(of.task) {
        return reply_in(inner, true, depth + 1);
    }
    if let Some(inner) = object(of.status_update) {
        return reply_in(inner, true, depth + 1);
    }
    if let Some(chunk) = object(of.artifact_update).or(object(of.artifact)) {
        return Said::Accepted(words(chunk, depth));
    }
    if of.artifacts.is_some() || is_task {
        let artifacts = of.all_artifacts();
        return if is_task { Said::Accepted(artifacts) } else { Said::Answer(artifacts) };
    }
    if of.parts.is_some() && is_user(of.role) {
        return Said::Nothing;
    }
    match of.own_text() {
        own if !own.is_empty() => Said::Answer(own),
        _ => object(of.message).map_or(Said::Nothing, |inner| reply_in(inner, false, depth + 1)),
    }
}

/// The words of a message, of an artifact, or of an update around one.
fn words(value: Value<'_>, depth: usize) -> Content<'_> {
    if depth > MAX_DEPTH {
        return Content::default();
    }
    if let Some(text) = value.as_str() {
        return Content::of_text(text);
    }
    let of = Members::of(value);
    match of.own_text() {
        own if !own.is_empty() => own,
        _ => of.artifact.or(of.message).map(|inner| words(inner, depth + 1)).unwrap_or_default(),
    }
}

fn request_in(json: Value<'_>, depth: usize) -> Content<'_> {
    if depth > MAX_DEPTH {
        return Content::default();
    }
    if let Some(text) = json.as_str() {
        return Content::of_text(text);
    }
    let of = Members::of(json);
    if let Some(task) = of.task.and_then(|task| task.as_str()) {
        return Content::of_text(task);
    }
    let own = of.own_text();
    let wrapped = own.data().find_map(|data| data.get("task").and_then(|task| task.as_str()));
    match (of.params.or(of.message), wrapped) {
        (_, Some(task)) if own.text().is_empty() => Content::of_text(task),
        (Some(inner), None) if own.is_empty() => request_in(inner, depth + 1),
        (_, _) => own,
    }
}

/// Everything, in the order in which it stands there.
fn gather<'a>(json: Value<'a>, depth: usize, all: &mut Content<'a>) {
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(text) = json.as_str() {
        return all.append(Content::of_text(text));
    }
    json.items().for_each(|item| gather(item, depth + 1, all));
    let said = ["text", "task", "message", "error", "responsePreview", "summary", "reason", "hint"];
    let inside =
        ["result", "params", "status", "statusUpdate", "artifactUpdate", "artifact", "artifacts", "history", "data"];
    for member in json.members() {
        let value = member.value;
        if member.is("parts") {
            all.push_parts(value.items());
        } else {
            let speaks = said.iter().any(|name| member.is(name));
            let holds = matches!(value.kind(), Kind::Object | Kind::Array) && inside.iter().any(|name| member.is(name));
            if speaks || holds {
                gather(value, depth + 1, all);
            }
        }
    }
}

fn is_user(role: Option<Value<'_>>) -> bool {
    let word = role.and_then(|role| role.as_str());
    word.is_some_and(|word| matches!(&*word, "user" | "ROLE_USER")) || role.and_then(|role| role.as_i64()) == Some(1)
}

/// A task's state, in A2A's words of any version or in those of tools. What is not known is no end.
fn state_of(state: Value<'_>) -> TaskState {
    let Some(word) = state.as_str() else { return TaskState::read(state).unwrap_or(TaskState::Unspecified) };
    let word = word.trim().to_ascii_uppercase().replace(['-', ' '], "_");
    match word.strip_prefix("TASK_STATE_").unwrap_or(&word) {
        "QUEUED" | "PENDING" | "DELEGATED" | "ACCEPTED" | "RECORDED" | "WAITING" => TaskState::Submitted,
        "DISPATCHED" | "RUNNING" | "IN_PROGRESS" => TaskState::Working,
        "OK" | "SUCCESS" | "DONE" => TaskState::Completed,
        "ERROR" | "EXPIRED" | "DROPPED" | "TIMEOUT" => TaskState::Failed,
        "CANCELLED" => TaskState::Canceled,
        other => TaskState::of_name(&format!("TASK_STATE_{other}")),
    }
}

#[cfg(test)]
mod tests;

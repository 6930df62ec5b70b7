//! Ids and settings changed in place; every other byte stays.
//!
//! [`send_params`] prepares a caller's params for an agent. [`task`], [`message`], [`status_update`] and
//! [`artifact_update`] bring an agent's answer back under our ids, and take out the metadata that only we may write.

use crate::call::PUSH_NAMES;
use crate::event::TaskState;
use crate::json::{Json, Kind, Value};
use crate::splice::{Op, Splices, quoted};

/// Metadata members that peers may not set toward our callers.
pub const RESERVED: [&str; 4] = ["watertight", "x-budget", "x-delegation", "x-queue"];

/// What to do with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Set<'a> {
    /// Leave it as it came.
    #[default]
    Keep,
    /// Write this.
    To(&'a str),
    /// Take it out.
    Remove,
}

/// Maps an id of one side to the other's; `None` takes it out.
pub type MapId<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How a caller's params change on their way to an agent.
#[derive(Clone, Copy, Default)]
pub struct SendEdit<'a> {
    /// `message.taskId`.
    pub task_id: Set<'a>,
    /// `message.contextId`.
    pub context_id: Set<'a>,
    /// Each entry of `message.referenceTaskIds`.
    pub references: Option<MapId<'a>>,
    /// Added to `message.messageId`.
    pub message_id_suffix: Option<&'a str>,
    /// Members of `message.metadata`: `Some` is written, `None` taken out. Neither survives in the params' own metadata.
    pub metadata: &'a [(&'a str, Option<Json>)],
    /// `configuration.returnImmediately`.
    pub return_immediately: Option<bool>,
    /// Takes out `configuration.taskPushNotificationConfig`, and the same under its old name.
    pub drop_push_config: bool,
    /// `tenant`.
    pub tenant: Set<'a>,
}

/// Edits SendMessage's or SendStreamingMessage's params.
pub fn send_params(params: &Json, edit: &SendEdit<'_>) -> Json {
    let root = params.value();
    let mut splices = Splices::default();
    let mut root_ops = Vec::new();
    push_set(&mut root_ops, "tenant", edit.tenant);

    if let Some(message) = object_member(root, "message") {
        let mut ops = Vec::new();
        push_set(&mut ops, "taskId", edit.task_id);
        push_set(&mut ops, "contextId", edit.context_id);
        if let Some(map) = edit.references {
            push_references(&mut ops, message, map);
        }
        if let (Some(suffix), Some(id)) = (edit.message_id_suffix, message.get("messageId").and_then(|id| id.as_str()))
        {
            ops.push(Op::Set("messageId", quoted(&format!("{id}{suffix}"))));
        }
        set_metadata(message, edit.metadata, &mut ops, &mut splices);
        splices.object(message, ops);
    }
    if let Some(metadata) = object_member(root, "metadata") {
        splices.object(metadata, edit.metadata.iter().map(|(name, _)| Op::Remove(name)).collect());
    }

    let mut ops = Vec::new();
    if let Some(flag) = edit.return_immediately {
        ops.push(Op::Set("returnImmediately", flag.to_string().into_bytes()));
    }
    match object_member(root, "configuration") {
        Some(configuration) => {
            if edit.drop_push_config {
                ops.extend(PUSH_NAMES.map(Op::Remove));
            }
            splices.object(configuration, ops);
        }
        None => {
            if let Some(flag) = edit.return_immediately {
                let text = format!("{{\"returnImmediately\":{flag}}}");
                root_ops.push(Op::Set("configuration", text.into_bytes()));
            }
        }
    }
    splices.object(root, root_ops);
    splices.apply(params)
}

/// A caller's metadata without what is only said to us, or only ours to say.
pub fn without_ours(metadata: &Json) -> Json {
    let mut splices = Splices::default();
    splices.object(metadata.value(), RESERVED.map(Op::Remove).into());
    splices.apply(metadata)
}

/// The params of a message without where its news is to be pushed: that holds secrets, and is nobody's affair but ours.
pub fn without_push(params: &Json) -> Json {
    let mut splices = Splices::default();
    if let Some(configuration) = object_member(params.value(), "configuration") {
        splices.object(configuration, PUSH_NAMES.map(Op::Remove).into());
    }
    splices.apply(params)
}

/// The same message under another id.
pub fn with_message_id(params: &Json, id: &str) -> Json {
    let mut splices = Splices::default();
    if let Some(message) = object_member(params.value(), "message") {
        splices.object(message, vec![Op::Set("messageId", quoted(id))]);
    }
    splices.apply(params)
}

/// Sets or takes out `tenant` in any operation's params, and writes our id for a task's over `id` and `taskId` where
/// they stand.
pub fn task_params(params: &Json, task_id: Option<&str>, tenant: Set<'_>) -> Json {
    let mut ops = Vec::new();
    push_set(&mut ops, "tenant", tenant);
    if let Some(id) = task_id {
        // Push operations name the task taskId, and their own configuration id.
        let name = if params.value().get("taskId").is_some() { "taskId" } else { "id" };
        ops.push(Op::Set(name, quoted(id)));
    }
    let mut splices = Splices::default();
    splices.object(params.value(), ops);
    splices.apply(params)
}

/// Our ids for what an agent calls by its own.
#[derive(Clone, Copy)]
pub struct Ids<'a> {
    /// The delegation.
    pub task_id: &'a str,
    /// The caller's context.
    pub context_id: &'a str,
    /// For `referenceTaskIds` that come back; without it they stay.
    pub references: Option<MapId<'a>>,
    /// What [`SendEdit::message_id_suffix`] added, to be taken off again.
    pub message_id_suffix: Option<&'a str>,
}

impl<'a> Ids<'a> {
    /// Only the two ids.
    pub fn new(task_id: &'a str, context_id: &'a str) -> Ids<'a> {
        Ids { task_id, context_id, references: None, message_id_suffix: None }
    }
}

/// A Task under our ids; `contextId` is added if the agent left it out.
pub fn task(raw: &Json, ids: &Ids<'_>) -> Json {
    let mut splices = Splices::default();
    let root = raw.value();
    let ops = vec![Op::Set("id", quoted(ids.task_id)), Op::Set("contextId", quoted(ids.context_id))];
    splices.object(root, ops);
    strip(root, &mut splices);
    status(root, ids, &mut splices);
    for item in root.get("history").iter().flat_map(Value::items) {
        nested_message(item, ids, &mut splices);
    }
    for artifact in root.get("artifacts").iter().flat_map(Value::items) {
        strip(artifact, &mut splices);
    }
    splices.apply(raw)
}

/// A Message that answers a call, under our ids; `contextId` is added if the agent left it out, `taskId` is not.
pub fn message(raw: &Json, ids: &Ids<'_>) -> Json {
    let mut splices = Splices::default();
    let mut ops = message_ops(raw.value(), ids);
    ops.retain(|op| !matches!(op, Op::Replace("contextId", _)));
    ops.push(Op::Set("contextId", quoted(ids.context_id)));
    splices.object(raw.value(), ops);
    strip(raw.value(), &mut splices);
    splices.apply(raw)
}

/// A TaskStatusUpdateEvent under our ids.
pub fn status_update(raw: &Json, ids: &Ids<'_>) -> Json {
    let mut splices = Splices::default();
    event(raw, ids, &mut splices);
    status(raw.value(), ids, &mut splices);
    splices.apply(raw)
}

/// A TaskArtifactUpdateEvent under our ids.
pub fn artifact_update(raw: &Json, ids: &Ids<'_>) -> Json {
    let mut splices = Splices::default();
    event(raw, ids, &mut splices);
    if let Some(artifact) = object_member(raw.value(), "artifact") {
        strip(artifact, &mut splices);
    }
    splices.apply(raw)
}

/// Writes or takes out members of an object; everything else stays.
pub fn set_members(raw: &Json, members: &[(&str, Option<Json>)]) -> Json {
    let mut splices = Splices::default();
    splices.object(raw.value(), member_ops(members));
    splices.apply(raw)
}

fn event(raw: &Json, ids: &Ids<'_>, splices: &mut Splices) {
    let root = raw.value();
    let mut ops = vec![Op::Set("taskId", quoted(ids.task_id)), Op::Set("contextId", quoted(ids.context_id))];
    // An agent that wrote `id` for `taskId` must not show its own id through it.
    if root.get("taskId").is_none() {
        ops.push(Op::Remove("id"));
    }
    splices.object(root, ops);
    strip(root, splices);
}

fn status(parent: Value<'_>, ids: &Ids<'_>, splices: &mut Splices) {
    let Some(status) = object_member(parent, "status") else { return };
    if let Some(message) = object_member(status, "message") {
        nested_message(message, ids, splices);
    }
    // Callers are owed names, never protobuf's ints.
    if let Some(state) = status.get("state").filter(|state| state.kind() == Kind::Number)
        && let Some(known) = TaskState::read(state).filter(TaskState::is_known)
    {
        splices.put(state.span(), quoted(known.name()));
    }
}

fn nested_message(message: Value<'_>, ids: &Ids<'_>, splices: &mut Splices) {
    splices.object(message, message_ops(message, ids));
    strip(message, splices);
}

fn message_ops<'a>(message: Value<'_>, ids: &Ids<'a>) -> Vec<Op<'a>> {
    let mut ops = vec![Op::Replace("taskId", quoted(ids.task_id)), Op::Replace("contextId", quoted(ids.context_id))];
    if let Some(map) = ids.references {
        push_references(&mut ops, message, map);
    }
    if let Some(suffix) = ids.message_id_suffix.filter(|suffix| !suffix.is_empty())
        && let Some(id) = message.get("messageId").and_then(|id| id.as_str())
        && let Some(own) = id.strip_suffix(suffix)
    {
        ops.push(Op::Replace("messageId", quoted(own)));
    }
    ops
}

fn strip(parent: Value<'_>, splices: &mut Splices) {
    if let Some(metadata) = object_member(parent, "metadata") {
        splices.object(metadata, RESERVED.map(Op::Remove).into());
    }
}

fn set_metadata<'a>(
    message: Value<'_>,
    members: &'a [(&'a str, Option<Json>)],
    ops: &mut Vec<Op<'a>>,
    splices: &mut Splices,
) {
    if members.is_empty() {
        return;
    }
    if let Some(metadata) = object_member(message, "metadata") {
        return splices.object(metadata, member_ops(members));
    }
    if members.iter().any(|(_, value)| value.is_some()) {
        let mut fresh = Vec::new();
        let mut object = crate::text::ObjectWriter::open(&mut fresh);
        for (name, value) in members {
            if let Some(value) = value {
                object.raw(name, value.as_bytes());
            }
        }
        object.close();
        ops.push(Op::Set("metadata", fresh));
    }
}

fn member_ops<'a>(members: &'a [(&'a str, Option<Json>)]) -> Vec<Op<'a>> {
    members
        .iter()
        .map(|(name, value)| match value {
            Some(value) => Op::Set(name, value.as_bytes().to_vec()),
            None => Op::Remove(name),
        })
        .collect()
}

fn push_set<'a>(ops: &mut Vec<Op<'a>>, name: &'a str, set: Set<'_>) {
    match set {
        Set::Keep => {}
        Set::To(text) => ops.push(Op::Set(name, quoted(text))),
        Set::Remove => ops.push(Op::Remove(name)),
    }
}

fn push_references(ops: &mut Vec<Op<'_>>, message: Value<'_>, map: MapId<'_>) {
    let Some(list) = message.get("referenceTaskIds").filter(|list| list.kind() == Kind::Array) else { return };
    let mut out = vec![b'['];
    for id in list.items().filter_map(|id| id.as_str()).filter_map(|id| map(&id)) {
        if out.len() > 1 {
            out.push(b',');
        }
        crate::text::quote(&id, &mut out);
    }
    out.push(b']');
    ops.push(Op::Replace("referenceTaskIds", out));
}

fn object_member<'a>(parent: Value<'a>, name: &str) -> Option<Value<'a>> {
    parent.get(name).filter(Value::is_object)
}

#[cfg(test)]
mod tests;

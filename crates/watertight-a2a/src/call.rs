//! What a caller asks for: the eleven operations, each with what decisions need and with its params as they came.
//!
//! `""` and `null` count as absent. Known members may be spelled in snake_case, enums may be ints, as protobuf's JSON
//! allows. Unknown members are ignored here and kept in the raw params. A member that decisions read may not occur
//! twice, since the agent behind could read the other one.

mod queue;

use crate::canonical::{Digest, Digester, Fingerprint};
use crate::error::Error;
use crate::event::TaskState;
use crate::json::{Json, Kind, Value};
use crate::jsonrpc::Method;
use crate::params::{Picked, join, pick, read_id};
use crate::text::{ObjectWriter, quote};

pub use queue::{MAX_PRIORITY, QUEUE_KEY, QueueWire, TTL_PATH};

/// The most entries of `referenceTaskIds`.
pub const MAX_REFERENCES: usize = 256;

/// The member of metadata that carries a budget.
pub const BUDGET_KEY: &str = "x-budget";

/// The member of a message's metadata that it is known by in place of its messageId.
pub const KEY_KEY: &str = "x-idempotency-key";

/// The member of metadata that says for which delegation its sender works.
pub const DELEGATION_KEY: &str = "x-delegation";

/// A validated call.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// SendMessage.
    Send(Send),
    /// SendStreamingMessage.
    Stream(Send),
    /// GetTask.
    Get(Get),
    /// ListTasks.
    List(List),
    /// CancelTask.
    Cancel(TaskRef),
    /// SubscribeToTask.
    Subscribe(TaskRef),
    /// CreateTaskPushNotificationConfig.
    CreatePush(PushConfig),
    /// GetTaskPushNotificationConfig.
    GetPush(PushRef),
    /// ListTaskPushNotificationConfigs.
    ListPush(PushList),
    /// DeleteTaskPushNotificationConfig.
    DeletePush(PushRef),
    /// GetExtendedAgentCard.
    ExtendedCard {
        /// The tenant named in the params.
        tenant: Option<String>,
    },
}

/// A message to an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Send {
    /// What decisions need.
    pub peek: SendPeek,
    /// The params as they came.
    pub params: Json,
}

/// What decisions need of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct SendPeek {
    /// The caller's id for it.
    pub message_id: String,
    /// The key that came along, by which a repetition is known in place of its id.
    pub idempotency_key: Option<String>,
    /// The task it continues.
    pub task_id: Option<String>,
    /// The context it belongs to.
    pub context_id: Option<String>,
    /// Other tasks it refers to.
    pub reference_task_ids: Vec<String>,
    /// How many parts it has.
    pub parts: usize,
    /// Whether the caller wants the task at once.
    pub return_immediately: bool,
    /// How much history the caller wants back.
    pub history_length: Option<u32>,
    /// Whether a push configuration came along.
    pub push_config: bool,
    /// The tenant named in the params.
    pub tenant: Option<String>,
    /// The budget that came along.
    pub budget: Option<BudgetWire>,
    /// What came along for the time in which it waits.
    pub queue: QueueWire,
    /// The token that came along, whoever made it.
    pub delegation: Option<String>,
    /// Over role, parts, taskId, contextId and referenceTaskIds; nothing else.
    pub fingerprint: Fingerprint,
    /// Of its parts.
    pub digest: Option<Digest>,
}

/// A delegation budget as metadata carries it. Each member may be missing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BudgetWire {
    /// Seconds left; above zero.
    pub remaining_s: Option<f64>,
    /// Hops left; a negative number is read as 0, one that is too large as the largest.
    pub depth: Option<u32>,
    /// Child delegations left; read like `depth`.
    pub fanout: Option<u32>,
    /// The delegation that the sender works for.
    pub task: Option<String>,
}

/// GetTask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    /// Which task.
    pub id: String,
    /// How much history.
    pub history_length: Option<u32>,
    /// The tenant named in the params.
    pub tenant: Option<String>,
}

/// ListTasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// Only this context.
    pub context_id: Option<String>,
    /// Only this state.
    pub status: Option<TaskState>,
    /// 1 to 100.
    pub page_size: u32,
    /// Where to go on.
    pub page_token: Option<String>,
    /// How much history of each.
    pub history_length: Option<u32>,
    /// Only tasks whose status is at or after this, in milliseconds since 1970.
    pub status_timestamp_after: Option<i64>,
    /// Whether artifacts are wanted.
    pub include_artifacts: bool,
    /// The tenant named in the params.
    pub tenant: Option<String>,
}

/// CancelTask or SubscribeToTask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRef {
    /// Which task.
    pub id: String,
    /// The tenant named in the params.
    pub tenant: Option<String>,
    /// The caller's metadata (CancelTask only).
    pub metadata: Option<Json>,
}

/// CreateTaskPushNotificationConfig, or the configuration that came with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushConfig {
    /// Which task; absent in a message's configuration.
    pub task_id: Option<String>,
    /// The caller's id for it, if any.
    pub id: Option<String>,
    /// Where to deliver.
    pub url: String,
    /// The receiver's own secret.
    pub token: Option<String>,
    /// Scheme and credentials of the Authorization header.
    pub authentication: Option<(String, Option<String>)>,
    /// The tenant named in the params.
    pub tenant: Option<String>,
    /// As it came.
    pub raw: Json,
}

/// Names one push configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRef {
    /// Of which task.
    pub task_id: String,
    /// Which one.
    pub id: String,
    /// The tenant named in the params.
    pub tenant: Option<String>,
}

/// ListTaskPushNotificationConfigs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushList {
    /// Of which task.
    pub task_id: String,
    /// 1 to 100.
    pub page_size: u32,
    /// Where to go on.
    pub page_token: Option<String>,
    /// The tenant named in the params.
    pub tenant: Option<String>,
}

const LENGTH: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

impl Call {
    /// Validates the params of an operation.
    pub fn parse(method: Method, params: Option<Json>) -> Result<Call, Error> {
        let optional = matches!(method, Method::ListTasks | Method::GetExtendedAgentCard);
        let params = match params {
            Some(params) => params,
            None if optional => Json::assume("{}"),
            None => return Err(Error::invalid_params("params", "is required")),
        };
        let root = Some(params.value());
        Ok(match method {
            Method::SendMessage => Call::Send(read_send(params)?),
            Method::SendStreamingMessage => Call::Stream(read_send(params)?),
            Method::GetTask => {
                let at = pick(root, "", ["id", "historyLength", "tenant"])?;
                Call::Get(Get {
                    id: at.required_id("id")?,
                    history_length: at.int("historyLength", LENGTH)?,
                    tenant: at.tenant()?,
                })
            }
            Method::ListTasks => Call::List(read_list(params.value())?),
            Method::CancelTask => {
                let at = pick(root, "", ["id", "tenant", "metadata"])?;
                let metadata = at.object("metadata")?.map(|metadata| params.part(metadata));
                Call::Cancel(TaskRef { id: at.required_id("id")?, tenant: at.tenant()?, metadata })
            }
            Method::SubscribeToTask => {
                let at = pick(root, "", ["id", "tenant"])?;
                Call::Subscribe(TaskRef { id: at.required_id("id")?, tenant: at.tenant()?, metadata: None })
            }
            Method::CreateTaskPushNotificationConfig => {
                let config = PushConfig::read(&params, "")?;
                if config.task_id.is_none() {
                    return Err(Error::invalid_params("taskId", "is required"));
                }
                Call::CreatePush(config)
            }
            Method::GetTaskPushNotificationConfig => Call::GetPush(read_push_ref(params.value())?),
            Method::DeleteTaskPushNotificationConfig => Call::DeletePush(read_push_ref(params.value())?),
            Method::ListTaskPushNotificationConfigs => {
                let at = pick(root, "", ["taskId", "pageSize", "pageToken", "tenant"])?;
                Call::ListPush(PushList {
                    task_id: at.required_id("taskId")?,
                    page_size: at.int("pageSize", 1..=100)?.unwrap_or(50),
                    page_token: at.text("pageToken")?,
                    tenant: at.tenant()?,
                })
            }
            Method::GetExtendedAgentCard => Call::ExtendedCard { tenant: pick(root, "", ["tenant"])?.tenant()? },
        })
    }
}

impl Call {
    /// The tenant named in the params.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Call::Send(send) | Call::Stream(send) => send.peek.tenant.as_deref(),
            Call::Get(get) => get.tenant.as_deref(),
            Call::List(list) => list.tenant.as_deref(),
            Call::Cancel(task) | Call::Subscribe(task) => task.tenant.as_deref(),
            Call::CreatePush(config) => config.tenant.as_deref(),
            Call::GetPush(config) | Call::DeletePush(config) => config.tenant.as_deref(),
            Call::ListPush(list) => list.tenant.as_deref(),
            Call::ExtendedCard { tenant } => tenant.as_deref(),
        }
    }
}

impl Send {
    /// The message, raw.
    pub fn message(&self) -> Json {
        self.params.value().get("message").map_or_else(|| Json::assume("{}"), |message| self.params.part(message))
    }

    /// The push configuration that came along.
    pub fn push_config(&self) -> Result<Option<PushConfig>, Error> {
        let root = self.params.value();
        let config = root.get("configuration").and_then(|configuration| {
            PUSH_NAMES.iter().filter_map(|name| configuration.get(name)).find(|config| !config.is_null())
        });
        config.map(|config| PushConfig::read(&self.params.part(config), PUSH_PATH)).transpose()
    }
}

/// The inline push configuration, and the name it had in 0.3.
pub(crate) const PUSH_NAMES: [&str; 2] = ["taskPushNotificationConfig", "pushNotificationConfig"];
const PUSH_PATH: &str = "configuration.taskPushNotificationConfig";

impl PushConfig {
    fn read(raw: &Json, path: &'static str) -> Result<PushConfig, Error> {
        let at = pick(Some(raw.value()), path, ["taskId", "id", "url", "token", "authentication", "tenant"])?;
        let url = at.text("url")?.ok_or_else(|| Error::invalid_params(&join(path, "url"), "is required"))?;
        let authentication = match at.object("authentication")? {
            None => None,
            Some(value) => {
                let inner = pick(Some(value), "authentication", ["scheme", "credentials"])?;
                let scheme = inner
                    .text("scheme")?
                    .ok_or_else(|| Error::invalid_params(&join(path, "authentication.scheme"), "is required"))?;
                Some((scheme, inner.text("credentials")?))
            }
        };
        Ok(PushConfig {
            task_id: at.id("taskId")?,
            id: at.id("id")?,
            url,
            token: at.text("token")?,
            authentication,
            tenant: at.tenant()?,
            raw: raw.clone(),
        })
    }
}

fn read_push_ref(params: Value<'_>) -> Result<PushRef, Error> {
    let at = pick(Some(params), "", ["taskId", "id", "tenant"])?;
    Ok(PushRef { task_id: at.required_id("taskId")?, id: at.required_id("id")?, tenant: at.tenant()? })
}

fn read_list(params: Value<'_>) -> Result<List, Error> {
    let at = pick(
        Some(params),
        "",
        [
            "contextId",
            "status",
            "pageSize",
            "pageToken",
            "historyLength",
            "statusTimestampAfter",
            "includeArtifacts",
            "tenant",
        ],
    )?;
    let status = match at.value("status") {
        None => None,
        Some(value) => match TaskState::read(value) {
            Some(TaskState::Unspecified) => None,
            Some(TaskState::Unknown(_)) | None => {
                return Err(Error::invalid_params("status", "must be the name of a task state"));
            }
            Some(state) => Some(state),
        },
    };
    Ok(List {
        context_id: at.id("contextId")?,
        status,
        page_size: at.int("pageSize", 1..=100)?.unwrap_or(50),
        page_token: at.text("pageToken")?,
        history_length: at.int("historyLength", LENGTH)?,
        status_timestamp_after: at.timestamp("statusTimestampAfter")?,
        include_artifacts: at.flag("includeArtifacts")?.unwrap_or(false),
        tenant: at.tenant()?,
    })
}

fn read_send(params: Json) -> Result<Send, Error> {
    let root = pick(Some(params.value()), "", ["message", "configuration", "metadata", "tenant"])?;
    let Some(message) = root.value("message") else {
        return Err(Error::invalid_params("message", "is required"));
    };
    let message = pick(
        Some(message),
        "message",
        ["messageId", "taskId", "contextId", "referenceTaskIds", "role", "parts", "metadata"],
    )?;
    let message_id = message.required_id("messageId")?;
    check_role(&message)?;
    let references = read_references(message.array("referenceTaskIds")?)?;
    let parts = message.array("parts")?.ok_or_else(|| Error::invalid_params("message.parts", "is required"))?;
    let count = check_parts(parts)?;
    let (task_id, context_id) = (message.id("taskId")?, message.id("contextId")?);

    let settings = pick(
        root.value("configuration"),
        "configuration",
        ["returnImmediately", "historyLength", PUSH_NAMES[0], PUSH_NAMES[1]],
    )?;
    let metadata = (message.object("metadata")?, root.object("metadata")?);
    let budget = match read_budget(metadata.0, "message.metadata")? {
        Some(budget) => Some(budget),
        None => read_budget(metadata.1, "metadata")?,
    };
    let queue = match queue::read(metadata.0, "message.metadata")? {
        Some(queue) => queue,
        None => queue::read(metadata.1, "metadata")?.unwrap_or_default(),
    };
    let tenant = root.tenant()?;
    let fingerprint = fingerprint(parts, task_id.as_deref(), context_id.as_deref(), &references, tenant.as_deref());
    let peek = SendPeek {
        message_id,
        idempotency_key: read_key(metadata.0)?,
        task_id,
        context_id,
        reference_task_ids: references,
        parts: count,
        return_immediately: settings.flag("returnImmediately")?.unwrap_or(false),
        history_length: settings.int("historyLength", LENGTH)?,
        push_config: settings.object(PUSH_NAMES[0])?.or(settings.object(PUSH_NAMES[1])?).is_some(),
        tenant,
        budget,
        queue,
        delegation: read_delegation(metadata.0).or_else(|| read_delegation(metadata.1)),
        fingerprint,
        digest: digest(parts),
    };
    Ok(Send { peek, params })
}

fn check_role<const N: usize>(message: &Picked<'_, N>) -> Result<(), Error> {
    let role = message.value("role").ok_or_else(|| Error::invalid_params("message.role", "is required"))?;
    let is_user = match role.kind() {
        Kind::String => role.as_str().as_deref() == Some("ROLE_USER"),
        Kind::Number => role.as_i64() == Some(1),
        Kind::Object | Kind::Array | Kind::Bool | Kind::Null => false,
    };
    is_user.then_some(()).ok_or_else(|| Error::invalid_params("message.role", "must be ROLE_USER"))
}

fn read_references(list: Option<Value<'_>>) -> Result<Vec<String>, Error> {
    let mut references = Vec::new();
    for (index, value) in list.iter().flat_map(Value::items).enumerate() {
        if index >= MAX_REFERENCES {
            let why = format!("must have at most {MAX_REFERENCES} entries");
            return Err(Error::invalid_params("message.referenceTaskIds", why));
        }
        let path = || format!("message.referenceTaskIds[{index}]");
        references.push(read_id(value, path)?.ok_or_else(|| Error::invalid_params(&path(), "must not be empty"))?);
    }
    Ok(references)
}

fn digest(parts: Value<'_>) -> Option<Digest> {
    let mut digest = Digester::default();
    parts.items().for_each(|part| digest.add(part));
    digest.finish()
}

fn check_parts(parts: Value<'_>) -> Result<usize, Error> {
    let mut count = 0;
    for part in parts.items() {
        part_content(part).map_err(|(name, why)| {
            let path = format!("message.parts[{count}]");
            Error::invalid_params(join(&path, name).trim_end_matches('.'), why)
        })?;
        count += 1;
    }
    if count == 0 {
        return Err(Error::invalid_params("message.parts", "must have at least one part"));
    }
    Ok(count)
}

/// The one content member of a part, by presence: `text: ""` and `data: null` are content. An error is (member, why).
pub(crate) fn part_content(part: Value<'_>) -> Result<(&'static str, Value<'_>), (&'static str, &'static str)> {
    if !part.is_object() {
        return Err(("", "must be an object"));
    }
    let mut content: Option<(&'static str, Value<'_>)> = None;
    for member in part.members() {
        for name in ["text", "raw", "url", "data"] {
            // Only a data member can mean null.
            if !member.is(name) || (name != "data" && member.value.is_null()) {
                continue;
            }
            if name != "data" && member.value.kind() != Kind::String {
                return Err((name, "must be a string"));
            }
            if content.replace((name, member.value)).is_some() {
                return Err(("", "must have exactly one of text, raw, url and data"));
            }
        }
    }
    content.ok_or(("", "must have exactly one of text, raw, url and data"))
}

fn read_key(metadata: Option<Value<'_>>) -> Result<Option<String>, Error> {
    let path = join("message.metadata", KEY_KEY);
    let mut found = metadata.iter().flat_map(Value::members).filter(|member| member.is(KEY_KEY));
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        return Err(Error::invalid_params(&path, "occurs twice"));
    }
    let Some(value) = first.map(|member| member.value).filter(|value| !value.is_null()) else { return Ok(None) };
    let key = value.as_str().filter(|key| is_key(key));
    key.map(|key| Some(key.into_owned())).ok_or_else(|| Error::invalid_params(&path, KEY_RULE))
}

/// What an idempotency key is.
pub const KEY_RULE: &str = "is 1 to 200 printable ASCII characters without spaces at its ends";

/// Whether a text can be an idempotency key.
pub fn is_key(text: &str) -> bool {
    let printable = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    printable && (1..=200).contains(&text.len()) && text.trim() == text
}

/// One that makes no sense is none: it may be another gateway's.
fn read_delegation(metadata: Option<Value<'_>>) -> Option<String> {
    let mut found = metadata.iter().flat_map(Value::members).filter(|member| member.is(DELEGATION_KEY));
    let (first, None) = (found.next()?, found.next()) else { return None };
    Some(first.value.as_str()?.into_owned())
}

fn read_budget(metadata: Option<Value<'_>>, path: &'static str) -> Result<Option<BudgetWire>, Error> {
    let mut found = metadata.iter().flat_map(Value::members).filter(|member| member.is(BUDGET_KEY));
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        return Err(Error::invalid_params(&join(path, BUDGET_KEY), "occurs twice"));
    }
    let Some(value) = first.map(|member| member.value).filter(|value| !value.is_null()) else { return Ok(None) };
    let path = join(path, BUDGET_KEY);
    if !value.is_object() {
        return Err(Error::invalid_params(&path, "must be an object"));
    }
    let mut budget = BudgetWire::default();
    for member in value.members().filter(|member| !member.value.is_null()) {
        let wrong = |name: &str, why: &str| Error::invalid_params(&join(&path, name), why);
        let count = |name: &str| {
            let number = member.value.as_f64().filter(|number| number.fract() == 0.0);
            // Saturating: a negative count is spent, a huge one the largest.
            number.map(|number| number as u32).ok_or_else(|| wrong(name, "must be a whole number"))
        };
        if member.is("remaining_s") {
            let seconds = member.value.as_f64().filter(|seconds| *seconds > 0.0);
            let why = "must be a number of seconds above 0: who has no time left cannot delegate";
            budget.remaining_s = Some(seconds.ok_or_else(|| wrong("remaining_s", why))?);
        } else if member.is("depth") {
            budget.depth = Some(count("depth")?);
        } else if member.is("fanout") {
            budget.fanout = Some(count("fanout")?);
        } else if member.is("task") {
            budget.task = read_id(member.value, || join(&path, "task"))?;
        }
    }
    Ok(Some(budget))
}

impl BudgetWire {
    /// The object that goes into metadata; seconds are rounded to milliseconds.
    pub fn to_json(&self) -> Json {
        let mut out = Vec::new();
        let mut object = ObjectWriter::open(&mut out);
        if let Some(seconds) = self.remaining_s.filter(|seconds| seconds.is_finite()) {
            object.raw("remaining_s", format!("{}", (seconds * 1000.0).round() / 1000.0).as_bytes());
        }
        for (name, count) in [("depth", self.depth), ("fanout", self.fanout)] {
            if let Some(count) = count {
                object.raw(name, count.to_string().as_bytes());
            }
        }
        if let Some(task) = &self.task {
            object.string("task", task);
        }
        object.close();
        Json::assume(out)
    }
}

fn fingerprint(
    parts: Value<'_>,
    task: Option<&str>,
    context: Option<&str>,
    references: &[String],
    tenant: Option<&str>,
) -> Fingerprint {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    if let Some(context) = context {
        object.string("contextId", context);
    }
    object.raw("parts", &crate::canonical::canonical(parts));
    if !references.is_empty() {
        let list = object.member("referenceTaskIds");
        for (index, id) in references.iter().enumerate() {
            list.push(if index == 0 { b'[' } else { b',' });
            quote(id, list);
        }
        list.push(b']');
    }
    object.string("role", "ROLE_USER");
    if let Some(task) = task {
        object.string("taskId", task);
    }
    if let Some(tenant) = tenant {
        object.string("tenant", tenant);
    }
    object.close();
    Fingerprint::of_text(&out)
}

#[cfg(test)]
mod tests;

//! What an agent is asked, and what it answers.
//!
//! A request is a verb, a target below the interface's address, and a body; an answer is a bare object, and an error a
//! google.rpc.Status under `error`. Which of A2A's errors it is, is told by its ErrorInfo, and by the status only where that
//! can mean one thing. Everything else with an error status is some server's or proxy's word and not the agent's.
//! Garbage is refused as it is in JSON-RPC.

use bytes::Bytes;

use crate::error::{self, A2a};
use crate::json::{self, Json, Kind, Limits, Value};
use crate::jsonrpc::Method;
use crate::reply::{self, AgentError, Head, MAX_EXCERPT_BYTES, MAX_MESSAGE_BYTES, Malformed, ReplyFault, What};
use crate::text::{ObjectWriter, clean, excerpt};

/// One operation, without how it is carried. Tasks are named by the agent's ids.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// The whole params.
    SendMessage(&'a Json),
    /// The whole params.
    SendStreamingMessage(&'a Json),
    /// The task.
    GetTask(&'a str),
    /// The task, and what is said with it.
    CancelTask(&'a str, Option<&'a Json>),
    /// The task.
    SubscribeToTask(&'a str),
    /// A page of the tasks of a context, with their histories.
    ListTasks {
        /// The context.
        context: &'a str,
        /// Tasks at most.
        page_size: u32,
        /// Messages of each at most.
        history_length: u32,
    },
}

impl Operation<'_> {
    /// Its name.
    pub fn method(&self) -> Method {
        match self {
            Operation::SendMessage(_) => Method::SendMessage,
            Operation::SendStreamingMessage(_) => Method::SendStreamingMessage,
            Operation::GetTask(_) => Method::GetTask,
            Operation::CancelTask(..) => Method::CancelTask,
            Operation::SubscribeToTask(_) => Method::SubscribeToTask,
            Operation::ListTasks { .. } => Method::ListTasks,
        }
    }

    /// Whether a task is asked about, so that "not found" can be about nothing else.
    pub fn names_task(&self) -> bool {
        match self {
            Operation::GetTask(_) | Operation::CancelTask(..) | Operation::SubscribeToTask(_) => true,
            Operation::SendMessage(_) | Operation::SendStreamingMessage(_) | Operation::ListTasks { .. } => false,
        }
    }

    /// The params of JSON-RPC. A message's have their tenant in them.
    pub fn params(&self, tenant: Option<&str>) -> Bytes {
        match self {
            Operation::SendMessage(params) | Operation::SendStreamingMessage(params) => (*params).clone().into_bytes(),
            Operation::GetTask(id) | Operation::SubscribeToTask(id) => {
                crate::jsonrpc::task_params(id, tenant, None).into()
            }
            Operation::CancelTask(id, said) => about(tenant, Some(id), *said),
            Operation::ListTasks { context, page_size, history_length } => {
                let mut out = Vec::new();
                let mut object = ObjectWriter::open(&mut out);
                if let Some(tenant) = tenant {
                    object.string("tenant", tenant);
                }
                object.string("contextId", context);
                object.raw("pageSize", page_size.to_string().as_bytes());
                object.raw("historyLength", history_length.to_string().as_bytes());
                object.raw("includeArtifacts", b"false");
                object.close();
                out.into()
            }
        }
    }
}

/// The address of an HTTP+JSON interface, below its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Without a slash at the end.
    path: String,
    /// Goes along with every request.
    query: Option<String>,
}

impl Base {
    /// Of a URL's path and query.
    pub fn of(path_and_query: &str) -> Base {
        let (path, query) = path_and_query.split_once('?').map_or((path_and_query, None), |(p, q)| (p, Some(q)));
        let query = query.filter(|query| !query.is_empty()).map(str::to_owned);
        Base { path: path.trim_end_matches('/').to_owned(), query }
    }
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.path.is_empty() { "/" } else { &self.path })?;
        self.query.iter().try_for_each(|query| write!(f, "?{query}"))
    }
}

/// How a tenant goes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenant<'a> {
    /// There is none.
    None,
    /// As the first segment below the base.
    Path(&'a str),
    /// In the body, and in the query where the body is not the message's.
    Beside(&'a str),
}

impl<'a> Tenant<'a> {
    fn name(self) -> Option<&'a str> {
        match self {
            Tenant::None => None,
            Tenant::Path(tenant) | Tenant::Beside(tenant) => Some(tenant),
        }
    }
}

/// The two verbs of these operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are HTTP's own")]
pub enum Verb {
    Get,
    Post,
}

/// A request for an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How.
    pub verb: Verb,
    /// Path and query.
    pub target: String,
    /// JSON; empty for GET.
    pub body: Bytes,
}

/// Writes a request. `by_get`: SubscribeToTask is asked with GET, as the protocol's definition has it, and not with POST, as
/// its text has it.
pub fn write(operation: &Operation<'_>, base: &Base, tenant: Tenant<'_>, by_get: bool) -> Request {
    let mut target = String::with_capacity(base.path.len() + 64);
    target.push_str(&base.path);
    if let Tenant::Path(tenant) = tenant {
        target.push('/');
        encode(tenant, &mut target);
    }
    let mut task = |id: &str, verb: &str| {
        target.push_str("/tasks/");
        encode(id, &mut target);
        target.push_str(verb);
    };
    let mut query: Option<String> = None;
    let mut ask = |name: &str, value: &str| {
        let query = query.get_or_insert_default();
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(name);
        query.push('=');
        encode(value, query);
    };
    let (verb, body) = match operation {
        Operation::SendMessage(params) => {
            target.push_str("/message:send");
            (Verb::Post, (*params).clone().into_bytes())
        }
        Operation::SendStreamingMessage(params) => {
            target.push_str("/message:stream");
            (Verb::Post, (*params).clone().into_bytes())
        }
        Operation::GetTask(id) => {
            task(id, "");
            (Verb::Get, Bytes::new())
        }
        Operation::CancelTask(id, said) => {
            task(id, ":cancel");
            (Verb::Post, about(tenant.name(), None, *said))
        }
        Operation::SubscribeToTask(id) => {
            task(id, ":subscribe");
            if by_get { (Verb::Get, Bytes::new()) } else { (Verb::Post, about(tenant.name(), None, None)) }
        }
        Operation::ListTasks { context, page_size, history_length } => {
            target.push_str("/tasks");
            ask("contextId", context);
            ask("pageSize", &page_size.to_string());
            ask("historyLength", &history_length.to_string());
            ask("includeArtifacts", "false");
            (Verb::Get, Bytes::new())
        }
    };
    let is_send = matches!(operation, Operation::SendMessage(_) | Operation::SendStreamingMessage(_));
    if let (Tenant::Beside(tenant), false) = (tenant, is_send) {
        ask("tenant", tenant);
    }
    let parts = [base.query.as_deref(), query.as_deref()].into_iter().flatten();
    for (before, part) in ['?', '&'].into_iter().zip(parts) {
        target.push(before);
        target.push_str(part);
    }
    Request { verb, target, body }
}

/// What a task is asked: the whole params in JSON-RPC; in HTTP+JSON, where its id is in the path, the body. Always an object, since
/// some servers parse what is announced as JSON.
fn about(tenant: Option<&str>, id: Option<&str>, metadata: Option<&Json>) -> Bytes {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    if let Some(tenant) = tenant {
        object.string("tenant", tenant);
    }
    if let Some(id) = id {
        object.string("id", id);
    }
    if let Some(metadata) = metadata {
        object.raw("metadata", metadata.as_bytes());
    }
    object.close();
    out.into()
}

/// Appends a text as one path segment or query value: whatever is not unreserved is percent-encoded.
fn encode(text: &str, out: &mut String) {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.extend(['%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Reads an answer, or the data of an event. `names_task`: see [`Operation::names_task`].
pub fn read_reply(body: &Bytes, head: Head<'_>, names_task: bool, limits: &Limits) -> Result<Json, ReplyFault> {
    let reply::Whole { text, reply } = reply::read_object(body, head, limits)?;
    let malformed = |what: What| ReplyFault::Malformed(Malformed::new(what, head, &text));
    let root = reply.value();
    let [error] = json::fields(root, ["error"])
        .map_err(|name| malformed(if head.is_failure() { What::HttpStatus } else { What::Duplicate(name) }))?;
    let is_result = reply::bare(root) || root.get("tasks").is_some_and(|tasks| tasks.kind() == Kind::Array);
    if let Some(error) = error {
        if is_result {
            return Err(malformed(What::ResultAndError));
        }
        return Err(ReplyFault::AgentError(judged(reply::agent_error(&reply, error, head.status), error, names_task)));
    }
    if head.is_failure() {
        let problem = problem(root, head.status);
        return Err(problem.map_or_else(|| malformed(What::HttpStatus), ReplyFault::AgentError));
    }
    if is_result {
        return Ok(reply);
    }
    // Some servers end a stream with the error object of JSON-RPC, without its envelope.
    let code = root.get("code").and_then(|code| code.as_i64());
    if code.is_some_and(|code| code < 0) && root.get("message").is_some_and(|text| text.kind() == Kind::String) {
        return Err(ReplyFault::AgentError(reply::agent_error(&reply, root, head.status)));
    }
    if head.status == 202 {
        return Err(ReplyFault::AcceptedUnconfirmed { excerpt: excerpt(&text, MAX_EXCERPT_BYTES) });
    }
    Err(malformed(What::NoEnvelope))
}

/// Gives an error the JSON-RPC code of what it says. Without a meaning of A2A's own it keeps the HTTP status for a code,
/// if it came with one, and is an internal error of the agent's inside an answer that began well.
fn judged(mut found: AgentError, error: Value<'_>, names_task: bool) -> AgentError {
    if !found.well_formed || found.code < 0 {
        return found;
    }
    let status = error.get("status").and_then(|status| status.as_str());
    let meant = found.data.as_ref().and_then(of_details).or(match (found.code, status.as_deref()) {
        (404, Some("NOT_FOUND")) if names_task => Some(A2a::TaskNotFound.row().code),
        (400, Some("INVALID_ARGUMENT")) => Some(error::INVALID_PARAMS),
        (501, Some("UNIMPLEMENTED")) => Some(error::METHOD_NOT_FOUND),
        _ => None,
    });
    found.code = match meant {
        Some(code) => code.into(),
        None if found.status < 300 => error::INTERNAL.into(),
        None => found.status.into(),
    };
    found
}

/// The code that an ErrorInfo of A2A's domain stands for.
fn of_details(details: &Json) -> Option<i32> {
    details.value().items().find_map(|detail| {
        let domain = detail.get("domain")?.as_str()?;
        (domain == "a2a-protocol.org").then(|| of_reason(&detail.get("reason")?.as_str()?)).flatten()
    })
}

fn of_reason(reason: &str) -> Option<i32> {
    Some(match reason {
        "PARSE_ERROR" => error::PARSE,
        "INVALID_REQUEST" => error::INVALID_REQUEST,
        "METHOD_NOT_FOUND" => error::METHOD_NOT_FOUND,
        "INVALID_PARAMS" => error::INVALID_PARAMS,
        "INTERNAL_ERROR" => error::INTERNAL,
        _ => A2a::of_reason(reason)?.row().code,
    })
}

/// An error as RFC 9457 writes it. Earlier texts of the protocol named its errors by a URL, whose last segment tells which.
fn problem(root: Value<'_>, status: u16) -> Option<AgentError> {
    let text = |name: &str| root.get(name).and_then(|text| text.as_str());
    let (kind, title) = (text("type"), text("title"));
    if kind.is_none() && title.is_none() {
        return None;
    }
    let known = kind.as_deref().and_then(|kind| {
        let (host, name) = kind.rsplit_once('/')?;
        let reason = name.trim_end_matches("-error").replace('-', "_").to_ascii_uppercase();
        host.contains("a2a-protocol.org").then(|| of_reason(&reason)).flatten()
    });
    let message = text("detail").or(title).unwrap_or_default();
    let code = known.map_or(i64::from(status), i64::from);
    Some(AgentError { code, message: clean(&message, MAX_MESSAGE_BYTES), data: None, well_formed: true, status })
}

#[cfg(test)]
mod tests;

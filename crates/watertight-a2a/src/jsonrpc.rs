//! JSON-RPC 2.0: one request in, requests and responses out. What peers answer is read in [`crate::reply`].
//!
//! Batches and notifications are refused: A2A has neither. The caller's id is never interpreted, only echoed.

use bytes::Bytes;

use crate::error::{self, A2a, Error};
use crate::json::{self, Json, Kind, Limits, fields};
use crate::text::{clean, quote};

/// The longest request id that is echoed, in bytes of JSON.
pub const MAX_ID_BYTES: usize = 1024;

/// A request's id as the caller wrote it: a string, a number or null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(Json);

impl Id {
    /// What answers a request whose id could not be read.
    pub fn null() -> Id {
        Id(Json::assume(Bytes::from_static(b"null")))
    }

    /// An id of our own.
    pub fn string(text: &str) -> Id {
        Id(Json::string(text))
    }

    /// The raw JSON.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The eleven operations of A2A 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are A2A's own")]
pub enum Method {
    SendMessage,
    SendStreamingMessage,
    GetTask,
    ListTasks,
    CancelTask,
    SubscribeToTask,
    CreateTaskPushNotificationConfig,
    GetTaskPushNotificationConfig,
    ListTaskPushNotificationConfigs,
    DeleteTaskPushNotificationConfig,
    GetExtendedAgentCard,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 11] = [
        Method::SendMessage,
        Method::SendStreamingMessage,
        Method::GetTask,
        Method::ListTasks,
        Method::CancelTask,
        Method::SubscribeToTask,
        Method::CreateTaskPushNotificationConfig,
        Method::GetTaskPushNotificationConfig,
        Method::ListTaskPushNotificationConfigs,
        Method::DeleteTaskPushNotificationConfig,
        Method::GetExtendedAgentCard,
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Method::SendMessage => "SendMessage",
            Method::SendStreamingMessage => "SendStreamingMessage",
            Method::GetTask => "GetTask",
            Method::ListTasks => "ListTasks",
            Method::CancelTask => "CancelTask",
            Method::SubscribeToTask => "SubscribeToTask",
            Method::CreateTaskPushNotificationConfig => "CreateTaskPushNotificationConfig",
            Method::GetTaskPushNotificationConfig => "GetTaskPushNotificationConfig",
            Method::ListTaskPushNotificationConfigs => "ListTaskPushNotificationConfigs",
            Method::DeleteTaskPushNotificationConfig => "DeleteTaskPushNotificationConfig",
            Method::GetExtendedAgentCard => "GetExtendedAgentCard",
        }
    }

    /// The method of that name.
    pub fn of_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether the answer is a stream of events.
    pub fn is_streaming(self) -> bool {
        matches!(self, Method::SendStreamingMessage | Method::SubscribeToTask)
    }

    /// The 1.0 operation that a 0.3 method name stands for.
    pub fn of_v03_name(name: &str) -> Option<Method> {
        Some(match name {
            "message/send" => Method::SendMessage,
            "message/stream" => Method::SendStreamingMessage,
            "tasks/get" => Method::GetTask,
            "tasks/list" => Method::ListTasks,
            "tasks/cancel" => Method::CancelTask,
            "tasks/resubscribe" => Method::SubscribeToTask,
            "tasks/pushNotificationConfig/set" => Method::CreateTaskPushNotificationConfig,
            "tasks/pushNotificationConfig/get" => Method::GetTaskPushNotificationConfig,
            "tasks/pushNotificationConfig/list" => Method::ListTaskPushNotificationConfigs,
            "tasks/pushNotificationConfig/delete" => Method::DeleteTaskPushNotificationConfig,
            "agent/getAuthenticatedExtendedCard" => Method::GetExtendedAgentCard,
            _ => return None,
        })
    }
}

/// A request that can be looked into further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// To be echoed.
    pub id: Id,
    /// What is asked.
    pub method: Method,
    /// An object; absent and null are the same.
    pub params: Option<Json>,
}

/// Why a body is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Not JSON at all.
    Parse,
    /// Over a limit: too long or too deep.
    Limit,
    /// JSON, but not one JSON-RPC 2.0 request object with an id.
    Shape,
    /// No such method.
    UnknownMethod,
    /// A method of A2A 0.3, and which operation it names.
    V03(Method),
    /// The params are no object.
    Params,
}

/// A refused body: what to answer, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The request's id, or null where it could not be read.
    pub id: Id,
    /// Why, for branching.
    pub cause: Cause,
    /// Why, for the caller.
    pub error: Error,
}

impl Rejected {
    /// The response to send.
    pub fn to_jsonrpc(&self) -> Vec<u8> {
        self.error.to_jsonrpc(&self.id)
    }
}

/// Reads one request.
pub fn parse_request(body: Bytes, limits: &Limits) -> Result<Request, Box<Rejected>> {
    let reject = |id: &Id, cause, error| Box::new(Rejected { id: id.clone(), cause, error });
    let shape = |id: &Id, why: &str| {
        reject(id, Cause::Shape, Error::new(error::INVALID_REQUEST, format!("Invalid request: {why}")))
    };
    let nobody = Id::null();
    let body = Json::parse(json::without_mark(body), limits).map_err(|bad| match bad {
        json::Error::TooLarge { .. } | json::Error::TooDeep { .. } => {
            reject(&nobody, Cause::Limit, Error::new(error::INVALID_REQUEST, format!("Invalid request: {bad}")))
        }
        json::Error::NotUtf8 { .. } | json::Error::Cut | json::Error::Syntax { .. } => {
            reject(&nobody, Cause::Parse, Error::new(error::PARSE, format!("Parse error: {bad}")))
        }
    })?;
    let root = body.value();
    match root.kind() {
        Kind::Object => {}
        Kind::Array => return Err(shape(&nobody, "batches are not supported")),
        Kind::String | Kind::Number | Kind::Bool | Kind::Null => return Err(shape(&nobody, "not an object")),
    }
    // `null` is a legal id, so presence is asked for by name.
    let raw_id = root.get("id");
    let id = match raw_id.map(|id| (id.kind(), id)) {
        Some((Kind::String | Kind::Number | Kind::Null, id)) if id.raw().len() <= MAX_ID_BYTES => {
            Id(body.part(id).detached())
        }
        Some((Kind::String | Kind::Number | Kind::Null, _)) => {
            return Err(shape(&nobody, &format!("the id is longer than {MAX_ID_BYTES} bytes")));
        }
        Some((Kind::Object | Kind::Array | Kind::Bool, _)) => {
            return Err(shape(&nobody, "the id must be a string, a number or null"));
        }
        None => return Err(shape(&nobody, "no id; notifications are not supported")),
    };
    let [version, _, method, params] = fields(root, ["jsonrpc", "id", "method", "params"])
        .map_err(|name| shape(&id, &format!("member {name} occurs twice")))?;
    if version.and_then(|version| version.as_str()).as_deref() != Some("2.0") {
        return Err(shape(&id, "member jsonrpc must be \"2.0\""));
    }
    let Some(name) = method.and_then(|method| method.as_str()) else {
        return Err(shape(&id, "member method must be a string"));
    };
    let Some(method) = Method::of_name(&name) else {
        if let Some(method) = Method::of_v03_name(&name) {
            let error = Error::a2a(A2a::VersionNotSupported)
                .message("The A2A 0.3 dialect is not supported yet; send A2A-Version: 1.0 and the method names of 1.0")
                .with("supportedVersions", "1.0");
            return Err(reject(&id, Cause::V03(method), error));
        }
        let error = Error::new(error::METHOD_NOT_FOUND, format!("Method not found: {}", clean(&name, 64)));
        return Err(reject(&id, Cause::UnknownMethod, error));
    };
    let params = match params {
        Some(params) if !params.is_object() => {
            return Err(reject(&id, Cause::Params, Error::invalid_params("params", "must be an object")));
        }
        params => params.map(|params| body.part(params)),
    };
    Ok(Request { id, method, params })
}

/// Writes a request of our own.
pub fn write_request(id: &str, method: Method, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + id.len() + 96);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    quote(id, &mut out);
    out.extend_from_slice(b",\"method\":\"");
    out.extend_from_slice(method.name().as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    out.extend_from_slice(if params.is_empty() { b"{}" } else { params });
    out.push(b'}');
    out
}

/// Writes a response; `result` is raw JSON.
pub fn write_result(id: &Id, result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(result.len() + id.as_bytes().len() + 40);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result);
    out.push(b'}');
    out
}

/// Params for the operations that name one task: GetTask, CancelTask, SubscribeToTask.
pub fn task_params(id: &str, tenant: Option<&str>, history_length: Option<u32>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = crate::text::ObjectWriter::open(&mut out);
    if let Some(tenant) = tenant {
        object.string("tenant", tenant);
    }
    object.string("id", id);
    if let Some(length) = history_length {
        object.raw("historyLength", length.to_string().as_bytes());
    }
    object.close();
    out
}

#[cfg(test)]
mod tests;

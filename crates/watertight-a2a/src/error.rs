//! What can go wrong, in the words of A2A and JSON-RPC, and how it is written.
//!
//! A2A's own errors carry an ErrorInfo of domain `a2a-protocol.org`. Ours are JSON-RPC -32000 with domain
//! `watertight`, because A2A owns the rest of the range. `data` is always an array of `@type` objects.

use std::collections::BTreeMap;
use std::fmt;

use crate::json::{Json, Kind};
use crate::text::{ObjectWriter, quote};

/// The JSON-RPC code of every refusal and failure that is Watertight's own.
pub const WATERTIGHT: i32 = -32000;
/// The body is not JSON.
pub const PARSE: i32 = -32700;
/// The body is JSON, but no request.
pub const INVALID_REQUEST: i32 = -32600;
/// No such operation.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The operation does not accept these params.
pub const INVALID_PARAMS: i32 = -32602;
/// Our fault.
pub const INTERNAL: i32 = -32603;

/// The nine errors that A2A 1.0 names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are A2A's own")]
pub enum A2a {
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    InvalidAgentResponse,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    VersionNotSupported,
}

/// One row of the error table of A2A 1.0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which error.
    pub error: A2a,
    /// JSON-RPC code.
    pub code: i32,
    /// ErrorInfo reason.
    pub reason: &'static str,
    /// HTTP status of the HTTP+JSON binding.
    pub http: u16,
    /// google.rpc.Code name.
    pub status: &'static str,
    /// What a person reads when nothing better is known.
    pub message: &'static str,
}

/// The error table of A2A 1.0.1.
pub const TABLE: [Row; 9] = {
    const fn row(
        error: A2a,
        code: i32,
        reason: &'static str,
        http: u16,
        status: &'static str,
        message: &'static str,
    ) -> Row {
        Row { error, code, reason, http, status, message }
    }
    const PRE: &str = "FAILED_PRECONDITION";
    [
        row(A2a::TaskNotFound, -32001, "TASK_NOT_FOUND", 404, "NOT_FOUND", "Task not found"),
        row(A2a::TaskNotCancelable, -32002, "TASK_NOT_CANCELABLE", 400, PRE, "Task cannot be canceled"),
        row(
            A2a::PushNotificationNotSupported,
            -32003,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
            400,
            PRE,
            "Push notifications are not supported",
        ),
        row(A2a::UnsupportedOperation, -32004, "UNSUPPORTED_OPERATION", 400, PRE, "This operation is not supported"),
        row(
            A2a::ContentTypeNotSupported,
            -32005,
            "CONTENT_TYPE_NOT_SUPPORTED",
            400,
            "INVALID_ARGUMENT",
            "Content type not supported",
        ),
        row(A2a::InvalidAgentResponse, -32006, "INVALID_AGENT_RESPONSE", 500, "INTERNAL", "Invalid agent response"),
        row(
            A2a::ExtendedAgentCardNotConfigured,
            -32007,
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
            400,
            PRE,
            "No extended agent card is configured",
        ),
        row(
            A2a::ExtensionSupportRequired,
            -32008,
            "EXTENSION_SUPPORT_REQUIRED",
            400,
            PRE,
            "A required extension was not requested",
        ),
        row(
            A2a::VersionNotSupported,
            -32009,
            "VERSION_NOT_SUPPORTED",
            400,
            PRE,
            "This protocol version is not supported",
        ),
    ]
};

impl A2a {
    /// Its row in [`TABLE`].
    pub fn row(self) -> &'static Row {
        // The enum and the table are in the same order; a test holds them to it.
        &TABLE[self as usize]
    }

    /// The error with this JSON-RPC code.
    pub fn of_code(code: i64) -> Option<A2a> {
        TABLE.iter().find(|row| i64::from(row.code) == code).map(|row| row.error)
    }

    /// The error with this ErrorInfo reason.
    pub fn of_reason(reason: &str) -> Option<A2a> {
        TABLE.iter().find(|row| row.reason == reason).map(|row| row.error)
    }
}

/// An entry of an error's `data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// google.rpc.ErrorInfo.
    ErrorInfo {
        /// UPPER_SNAKE for A2A's, lower_snake for ours.
        reason: String,
        /// Whose vocabulary the reason is from.
        domain: String,
        /// Words for machines.
        metadata: BTreeMap<String, String>,
    },
    /// google.rpc.BadRequest: (path of the field, what is wrong with it).
    BadRequest(Vec<(String, String)>),
    /// google.rpc.RetryInfo, in milliseconds.
    RetryInfo(u64),
    /// Somebody else's detail; written only if it is an object with a string `@type`.
    Raw(Json),
}

/// An error on its way to a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// JSON-RPC code.
    pub code: i32,
    /// For people.
    pub message: String,
    /// For machines.
    pub data: Vec<Detail>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// A bare JSON-RPC error.
    pub fn new(code: i32, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), data: Vec::new() }
    }

    /// One of A2A's errors, with its ErrorInfo and its usual message.
    pub fn a2a(error: A2a) -> Error {
        let row = error.row();
        let info = Detail::ErrorInfo {
            reason: row.reason.to_owned(),
            domain: "a2a-protocol.org".to_owned(),
            metadata: BTreeMap::new(),
        };
        Error { code: row.code, message: row.message.to_owned(), data: vec![info] }
    }

    /// A refusal or failure of Watertight's own; `reason` is a word of the closed vocabulary.
    pub fn watertight(reason: &str, message: impl Into<String>) -> Error {
        let info =
            Detail::ErrorInfo { reason: reason.to_owned(), domain: "watertight".to_owned(), metadata: BTreeMap::new() };
        Error { code: WATERTIGHT, message: message.into(), data: vec![info] }
    }

    /// -32602, naming one field.
    pub fn invalid_params(field: &str, description: impl Into<String>) -> Error {
        let description = description.into();
        Error {
            code: INVALID_PARAMS,
            message: format!("Invalid params: {field}: {description}"),
            data: vec![Detail::BadRequest(vec![(field.to_owned(), description)])],
        }
    }

    /// Replaces the message.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Error {
        self.message = message.into();
        self
    }

    /// Sets one word of the ErrorInfo's metadata; adds nothing to an error that has no ErrorInfo.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Error {
        for detail in &mut self.data {
            if let Detail::ErrorInfo { metadata, .. } = detail {
                metadata.insert(key.to_owned(), value.into());
                break;
            }
        }
        self
    }

    /// Names the agent that this is about.
    #[must_use]
    pub fn agent(self, agent: &str) -> Error {
        self.with("agent", agent)
    }

    /// Names the task, by our id.
    #[must_use]
    pub fn task_id(self, id: &str) -> Error {
        self.with("taskId", id)
    }

    /// Says whether the work reached the agent: `not_sent`, `maybe_delivered` or `delivered`.
    #[must_use]
    pub fn delivery(self, delivery: &str) -> Error {
        self.with("delivery", delivery)
    }

    /// Says when trying again makes sense, in the metadata and as google.rpc.RetryInfo.
    #[must_use]
    pub fn retry_after_ms(self, millis: u64) -> Error {
        let mut error = self.with("retryAfterMs", millis.to_string());
        error.data.push(Detail::RetryInfo(millis));
        error
    }

    /// The ErrorInfo's reason, if it has one.
    pub fn reason(&self) -> Option<&str> {
        self.data.iter().find_map(|detail| match detail {
            Detail::ErrorInfo { reason, .. } => Some(reason.as_str()),
            Detail::BadRequest(_) | Detail::RetryInfo(_) | Detail::Raw(_) => None,
        })
    }

    /// Which of A2A's errors it is, by code.
    pub fn kind(&self) -> Option<A2a> {
        A2a::of_code(self.code.into())
    }

    /// The error object of JSON-RPC: `{"code":…,"message":…,"data":[…]}`; no `data` if there is none. One of A2A's errors
    /// has its ErrorInfo there, whether it came along or not.
    pub fn to_object(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = ObjectWriter::open(&mut out);
        object.raw("code", self.code.to_string().as_bytes());
        object.string("message", &self.message);
        if !self.data.is_empty() || self.kind().is_some() {
            self.write_whole_data(object.member("data"));
        }
        object.close();
        out
    }

    /// The whole JSON-RPC response; `id` is raw JSON.
    pub fn to_jsonrpc(&self, id: &crate::jsonrpc::Id) -> Vec<u8> {
        let mut out = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(b",\"error\":");
        out.extend_from_slice(&self.to_object());
        out.push(b'}');
        out
    }

    /// The status of the HTTP+JSON binding; `None` for a code that has none of its own, such as ours.
    pub fn http_status(&self) -> Option<u16> {
        if let Some(kind) = self.kind() {
            return Some(kind.row().http);
        }
        match self.code {
            PARSE | INVALID_REQUEST | INVALID_PARAMS => Some(400),
            METHOD_NOT_FOUND => Some(501),
            INTERNAL => Some(500),
            _ => None,
        }
    }

    /// The body of the HTTP+JSON binding: `{"error":{"code":…,"status":…,"message":…,"details":[…]}}`. One of A2A's errors
    /// has its ErrorInfo there, whether it came along or not.
    pub fn to_http(&self, status: u16) -> Vec<u8> {
        let own = self.kind().map(A2a::row);
        let name = own.filter(|row| row.http == status).map_or(rpc_name(status), |row| row.status);
        let mut out = b"{\"error\":".to_vec();
        let mut object = ObjectWriter::open(&mut out);
        object.raw("code", status.to_string().as_bytes());
        object.string("status", name);
        object.string("message", &self.message);
        self.write_whole_data(object.member("details"));
        object.close();
        out.push(b'}');
        out
    }

    /// The data, with the ErrorInfo that one of A2A's errors has to have.
    fn write_whole_data(&self, out: &mut Vec<u8>) {
        let own = self.kind().map(A2a::row);
        match own.filter(|row| !self.data.iter().any(|detail| detail.has_reason(row.reason))) {
            None => self.write_data(out),
            Some(row) => {
                let mut whole = Error::a2a(row.error);
                whole.data.extend_from_slice(&self.data);
                whole.write_data(out);
            }
        }
    }

    /// The array that JSON-RPC calls `data` and HTTP+JSON calls `details`.
    pub fn write_data(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        let mut first = true;
        for detail in &self.data {
            if !detail.is_typed() {
                continue;
            }
            if !first {
                out.push(b',');
            }
            first = false;
            detail.write(out);
        }
        out.push(b']');
    }
}

/// The google.rpc.Code that goes with an HTTP status.
fn rpc_name(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        405 | 501 => "UNIMPLEMENTED",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        413 | 429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        502 => "UNKNOWN",
        503 => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

impl Detail {
    /// Whether this is an ErrorInfo of A2A's own with that reason.
    fn has_reason(&self, name: &str) -> bool {
        match self {
            Detail::ErrorInfo { reason, .. } => reason == name,
            Detail::Raw(raw) => raw.value().get("reason").and_then(|reason| reason.as_str()).as_deref() == Some(name),
            Detail::BadRequest(_) | Detail::RetryInfo(_) => false,
        }
    }

    fn is_typed(&self) -> bool {
        match self {
            Detail::ErrorInfo { .. } | Detail::BadRequest(_) | Detail::RetryInfo(_) => true,
            Detail::Raw(raw) => raw.value().get("@type").is_some_and(|name| name.kind() == Kind::String),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Detail::Raw(raw) = self {
            return out.extend_from_slice(raw.as_bytes());
        }
        let mut object = ObjectWriter::open(out);
        match self {
            Detail::ErrorInfo { reason, domain, metadata } => {
                object.string("@type", "type.googleapis.com/google.rpc.ErrorInfo");
                object.string("reason", reason);
                object.string("domain", domain);
                if !metadata.is_empty() {
                    let mut words = ObjectWriter::open(object.member("metadata"));
                    metadata.iter().for_each(|(key, value)| words.string(key, value));
                    words.close();
                }
            }
            Detail::BadRequest(violations) => {
                object.string("@type", "type.googleapis.com/google.rpc.BadRequest");
                let list = object.member("fieldViolations");
                for (index, (field, description)) in violations.iter().enumerate() {
                    list.extend_from_slice(if index == 0 { b"[" } else { b"," });
                    let mut violation = ObjectWriter::open(list);
                    violation.string("field", field);
                    violation.string("description", description);
                    violation.close();
                }
                list.extend_from_slice(if violations.is_empty() { b"[]" } else { b"]" });
            }
            Detail::RetryInfo(millis) => {
                object.string("@type", "type.googleapis.com/google.rpc.RetryInfo");
                quote(&format!("{}.{:03}s", millis / 1000, millis % 1000), object.member("retryDelay"));
            }
            Detail::Raw(_) => {}
        }
        object.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Id;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.error as usize, index);
            assert_eq!(row.error.row(), row);
            assert_eq!(row.code, -32001 - index as i32);
            assert_eq!(A2a::of_code(row.code.into()), Some(row.error));
            assert_eq!(A2a::of_reason(row.reason), Some(row.error));
        }
        assert_eq!(A2a::of_code(-32010), None);
    }

    #[test]
    fn shapes() {
        let id = Id::null();
        assert_eq!(
            String::from_utf8(Error::a2a(A2a::TaskNotFound).to_jsonrpc(&id)).unwrap(),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Task not found","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}"#
        );
        let ours = Error::watertight("bulkhead_full", "no \"slot\"").agent("hotels").retry_after_ms(1500);
        assert_eq!(
            String::from_utf8(ours.to_object()).unwrap(),
            r#"{"code":-32000,"message":"no \"slot\"","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"bulkhead_full","domain":"watertight","metadata":{"agent":"hotels","retryAfterMs":"1500"}},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.500s"}]}"#
        );
        assert_eq!(
            String::from_utf8(Error::invalid_params("message.role", "is required").to_object()).unwrap(),
            r#"{"code":-32602,"message":"Invalid params: message.role: is required","data":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.role","description":"is required"}]}]}"#
        );
        assert_eq!(
            Error::new(PARSE, "Parse error").to_object(),
            br#"{"code":-32700,"message":"Parse error"}"#.to_vec()
        );
    }

    #[test]
    fn http_shapes() {
        let of = |error: &Error, status| String::from_utf8(error.to_http(status)).unwrap();
        assert_eq!(
            of(&Error::a2a(A2a::TaskNotCancelable), 400),
            r#"{"error":{"code":400,"status":"FAILED_PRECONDITION","message":"Task cannot be canceled","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_CANCELABLE","domain":"a2a-protocol.org"}]}}"#
        );
        let full = Error::watertight("bulkhead_full", "no \"slot\"").retry_after_ms(1500);
        assert_eq!((full.http_status(), of(&full, 503).contains(r#""status":"UNAVAILABLE""#)), (None, true));
        assert_eq!(
            of(&Error::new(PARSE, "x"), 400),
            r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"x","details":[]}}"#
        );
        for row in TABLE {
            assert_eq!(Error::new(row.code, "x").http_status(), Some(row.http));
        }
        // An agent may have sent the code alone, or with its ErrorInfo.
        let bare = Error::new(-32001, "gone");
        let info = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}"#;
        assert!(of(&bare, 404).ends_with(&format!(r#""details":[{info}]}}}}"#)), "{}", of(&bare, 404));
        let object = String::from_utf8(bare.to_object()).unwrap();
        assert_eq!(object, format!(r#"{{"code":-32001,"message":"gone","data":[{info}]}}"#), "in JSON-RPC as well");
        let whole = Error { data: vec![Detail::Raw(Json::assume(info))], ..bare };
        assert!(of(&whole, 404).ends_with(&format!(r#""details":[{info}]}}}}"#)));
    }

    #[test]
    fn data_holds_typed_objects_only() {
        let mut error = Error::new(INTERNAL, "x");
        for raw in ["1", "{}", r#"{"@type":1}"#, r#"{"@type":"t","a":1}"#] {
            error.data.push(Detail::Raw(Json::assume(raw)));
        }
        let text = String::from_utf8(error.to_object()).unwrap();
        assert_eq!(text, r#"{"code":-32603,"message":"x","data":[{"@type":"t","a":1}]}"#);
    }
}

//! What a peer answered, whatever shape it came in.
//!
//! Tolerant where the meaning is unambiguous: a bare Task or Message, a missing id, a number for a string id. Anything
//! that carries `error` is a failure. Everything else is malformed, with its status, its media type and an excerpt fit
//! for a log line. Nothing a peer sends makes this panic or yields a success without content.

use bytes::Bytes;

use crate::error::A2a;
use crate::json::{self, Json, Kind, Limits, Value};
use crate::text::{clean, excerpt};

/// The longest excerpt of a peer's body, in bytes.
pub const MAX_EXCERPT_BYTES: usize = 200;
/// The longest error message taken from a peer, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 2048;

/// What came before the body. For an event of a stream: the status and media type of its data, so 200 and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// HTTP status.
    pub status: u16,
    /// Content-Type, if any.
    pub content_type: Option<&'a str>,
}

impl Head<'_> {
    /// What the data of a stream's event counts as.
    pub const EVENT: Head<'static> = Head { status: 200, content_type: Some("application/json") };

    /// Whether the status says that there is no result.
    pub(crate) fn is_failure(&self) -> bool {
        self.status >= 300
    }
}

/// A result, still raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawResult {
    /// The value of `result`, or the whole body where there was no envelope.
    pub result: Json,
    /// The envelope was missing, or lacked its id or version.
    pub loose: bool,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyFault {
    /// The agent said no.
    AgentError(AgentError),
    /// HTTP 202 and an object that is no A2A reply, such as `{"status":"queued"}`: something was taken, nothing is known.
    AcceptedUnconfirmed {
        /// The start of the body, cleaned.
        excerpt: String,
    },
    /// No A2A reply.
    Malformed(Malformed),
}

/// An error that the agent reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    /// The code, 0 if there was none.
    pub code: i64,
    /// The peer's text, cleaned and bounded.
    pub message: String,
    /// The peer's `data`, or HTTP+JSON's `details`.
    pub data: Option<Json>,
    /// It had the shape of JSON-RPC. A string, or an object without an integer code, does not.
    pub well_formed: bool,
    /// HTTP status it came with.
    pub status: u16,
}

impl AgentError {
    /// Which of A2A's errors it is: by ErrorInfo reason, else by code.
    pub fn kind(&self) -> Option<A2a> {
        let reason = self.data.as_ref().and_then(|data| {
            data.value()
                .items()
                .filter(|detail| {
                    detail.get("domain").and_then(|domain| domain.as_str()).as_deref() == Some("a2a-protocol.org")
                })
                .find_map(|detail| A2a::of_reason(&detail.get("reason")?.as_str()?))
        });
        reason.or_else(|| A2a::of_code(self.code))
    }
}

/// A body that is no A2A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// In which way.
    pub what: What,
    /// HTTP status it came with.
    pub status: u16,
    /// Content-Type it came with, cleaned.
    pub content_type: Option<String>,
    /// The start of the body, cleaned, at most [`MAX_EXCERPT_BYTES`].
    pub excerpt: String,
}

impl Malformed {
    /// Of a body that was read as a reply, and then found wanting.
    pub fn new(what: What, head: Head<'_>, body: &[u8]) -> Malformed {
        Malformed {
            what,
            status: head.status,
            content_type: head.content_type.map(|kind| clean(kind, 100)),
            excerpt: excerpt(body, MAX_EXCERPT_BYTES),
        }
    }
}

impl std::fmt::Display for ReplyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplyFault::AgentError(error) => {
                write!(f, "the agent answered with error {}: {}", error.code, error.message)
            }
            ReplyFault::AcceptedUnconfirmed { excerpt } => {
                write!(f, "the agent accepted the request without an A2A reply: {excerpt}")
            }
            ReplyFault::Malformed(Malformed { what, status, content_type, excerpt }) => {
                let kind = content_type.as_deref().unwrap_or("no content type");
                write!(f, "{} (HTTP {status}, {kind}): {excerpt}", what.sentence())
            }
        }
    }
}

impl std::error::Error for ReplyFault {}

/// The ways in which a reply is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// No body, or 204.
    Empty,
    /// An HTTP status of 300 or more, and no A2A reply with it.
    HttpStatus,
    /// A page for people.
    Html,
    /// Not JSON.
    NotJson,
    /// JSON that ends too early.
    Cut,
    /// Over the size limit.
    TooLarge,
    /// Over the depth limit.
    TooDeep,
    /// JSON, but no object.
    NotAnObject,
    /// An object that is neither an envelope nor a Task nor a Message.
    NoEnvelope,
    /// An envelope with a null result, or none.
    NoResult,
    /// Both `result` and `error`.
    ResultAndError,
    /// Somebody else's answer.
    WrongId,
    /// More entries in a list than we look at: its path, and the limit.
    TooMany(&'static str, usize),
    /// A member occurs twice.
    Duplicate(&'static str),
    /// A required member is missing or of the wrong type: its path.
    Member(String),
}

impl What {
    /// A short sentence for people.
    pub fn sentence(&self) -> String {
        let fixed = match self {
            What::Empty => "the reply is empty",
            What::HttpStatus => "the HTTP status is an error and the body is no A2A reply",
            What::Html => "the reply is a web page",
            What::NotJson => "the reply is not JSON",
            What::Cut => "the reply ends too early",
            What::TooLarge => "the reply is too large",
            What::TooDeep => "the reply is nested too deeply",
            What::NotAnObject => "the reply is not a JSON object",
            What::NoEnvelope => "the reply is neither a JSON-RPC response nor a task nor a message",
            What::NoResult => "the reply has no result",
            What::ResultAndError => "the reply has both a result and an error",
            What::WrongId => "the reply answers another request",
            What::TooMany(path, limit) => return format!("{path} has more than {limit} entries"),
            What::Duplicate(name) => return format!("member {name} occurs twice"),
            What::Member(path) => return format!("{path} is missing or malformed"),
        };
        fixed.to_owned()
    }
}

/// Reads the reply to the request that we sent under `id`.
pub fn read_reply(body: Bytes, head: Head<'_>, id: &str, limits: &Limits) -> Result<RawResult, ReplyFault> {
    let Whole { text, reply } = read_object(&body, head, limits)?;
    let root = reply.value();
    let malformed = |what: What| ReplyFault::Malformed(Malformed::new(what, head, &text));
    let failed = head.is_failure();
    let or_status = |what: What| malformed(if failed { What::HttpStatus } else { what });
    let [version, reply_id, result, error] =
        json::fields(root, ["jsonrpc", "id", "result", "error"]).map_err(|name| or_status(What::Duplicate(name)))?;
    let enveloped = version.is_some() || result.is_some() || error.is_some() || root.get("result").is_some();
    if !enveloped {
        return match bare(root) {
            _ if failed => Err(malformed(What::HttpStatus)),
            true => Ok(RawResult { result: reply.clone(), loose: true }),
            false if head.status == 202 => {
                Err(ReplyFault::AcceptedUnconfirmed { excerpt: excerpt(&text, MAX_EXCERPT_BYTES) })
            }
            false => Err(malformed(What::NoEnvelope)),
        };
    }
    // An error may come without our id, since its sender may not have been able to read it.
    if reply_id.is_some_and(|reply_id| !same_id(reply_id, id)) {
        return Err(malformed(What::WrongId));
    }
    if let Some(error) = error {
        if result.is_some() {
            return Err(malformed(What::ResultAndError));
        }
        return Err(ReplyFault::AgentError(agent_error(&reply, error, head.status)));
    }
    let Some(result) = result else {
        return Err(or_status(What::NoResult));
    };
    if failed {
        return Err(malformed(What::HttpStatus));
    }
    let versioned = version.and_then(|version| version.as_str()).as_deref() == Some("2.0");
    Ok(RawResult { result: reply.part(result), loose: reply_id.is_none() || !versioned })
}

/// A body that is one JSON object.
pub(crate) struct Whole {
    /// Without a byte order mark.
    pub(crate) text: Bytes,
    pub(crate) reply: Json,
}

/// Reads a body as one JSON object, whatever the binding.
pub(crate) fn read_object(body: &Bytes, head: Head<'_>, limits: &Limits) -> Result<Whole, ReplyFault> {
    let text = json::without_mark(body.clone());
    let malformed = |what: What| ReplyFault::Malformed(Malformed::new(what, head, &text));
    let or_status = |what: What| malformed(if head.is_failure() { What::HttpStatus } else { what });
    if head.status == 204 || text.iter().all(u8::is_ascii_whitespace) {
        return Err(or_status(What::Empty));
    }
    let reply = Json::parse(text.clone(), limits).map_err(|bad| match bad {
        json::Error::TooLarge { .. } => malformed(What::TooLarge),
        json::Error::TooDeep { .. } => malformed(What::TooDeep),
        json::Error::NotUtf8 { .. } | json::Error::Cut | json::Error::Syntax { .. } if is_html(&text, head) => {
            or_status(What::Html)
        }
        json::Error::Cut => or_status(What::Cut),
        json::Error::NotUtf8 { .. } | json::Error::Syntax { .. } => or_status(What::NotJson),
    })?;
    if !reply.value().is_object() {
        return Err(or_status(What::NotAnObject));
    }
    Ok(Whole { text, reply })
}

/// Whether an object without an envelope is, by shape, something that A2A answers with.
pub(crate) fn bare(root: Value<'_>) -> bool {
    let is = |name: &str, kind: Kind| root.get(name).is_some_and(|value| value.kind() == kind);
    let task = is("id", Kind::String) && is("status", Kind::Object);
    let message = is("messageId", Kind::String) && is("parts", Kind::Array);
    let wrapped = ["task", "message", "statusUpdate", "artifactUpdate"].iter().any(|name| is(name, Kind::Object));
    task || message || wrapped
}

fn same_id(theirs: Value<'_>, ours: &str) -> bool {
    match theirs.kind() {
        Kind::String => theirs.as_exact_str().as_deref() == Some(ours),
        Kind::Number => theirs.raw() == ours.as_bytes(),
        Kind::Object | Kind::Array | Kind::Bool | Kind::Null => false,
    }
}

fn is_html(text: &[u8], head: Head<'_>) -> bool {
    head.content_type.is_some_and(|kind| kind.to_ascii_lowercase().contains("html"))
        || text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<')
}

/// An error object, or whatever stands where one should.
pub(crate) fn agent_error(reply: &Json, error: Value<'_>, status: u16) -> AgentError {
    let text = clean(&crate::said::error_text(error), MAX_MESSAGE_BYTES);
    if !error.is_object() {
        return AgentError { code: 0, message: text, data: None, well_formed: false, status };
    }
    let code = error.get("code").and_then(|code| code.as_i64());
    let message = error.get("message").filter(|message| !message.is_null());
    AgentError {
        code: code.unwrap_or(0),
        message: text,
        data: ["data", "details"]
            .iter()
            .find_map(|name| error.get(name))
            .filter(|data| !data.is_null())
            .map(|data| reply.part(data).detached()),
        well_formed: code.is_some() && message.is_some_and(|message| message.kind() == Kind::String),
        status,
    }
}

#[cfg(test)]
mod tests;

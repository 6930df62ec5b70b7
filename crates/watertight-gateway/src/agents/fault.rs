//! What went wrong, in the one vocabulary: from connections, bodies, statuses and replies to a reason and a delivery.
//!
//! The delivery is never guessed. `not_sent` is said only where the socket counted no byte of the request, `delivered`
//! only where the agent answered in A2A; a status of a proxy's, a broken body or silence is neither.

use std::io;

use http::{HeaderMap, StatusCode, header};
use watertight_a2a::error::{A2a, METHOD_NOT_FOUND};
use watertight_a2a::reply::{self, MAX_EXCERPT_BYTES, ReplyFault, What};
use watertight_a2a::text;
use watertight_engine::input::Fault;
use watertight_engine::record::Delivery;
use watertight_policy::backoff;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use super::{AgentError, Detail, connect, pool};

/// The longest that an agent may ask to be left alone.
const MAX_RETRY_AFTER: Span = Span::from_secs(3_600);

/// An attempt's end without the agent's word.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) delivery: Delivery,
    pub(super) retry_after: Option<Span>,
    /// The agent said itself that it is busy and did not take the message.
    pub(super) busy: bool,
    /// Nothing came that shows the agent alive: no answer at all, or a 502, 503 or 504 of somebody before it.
    pub(super) silent: bool,
    /// The relay's verdict, which ends the attempt whatever the agent may still say.
    pub(super) final_word: bool,
    /// Which of A2A's errors the agent said.
    pub(super) kind: Option<A2a>,
    pub(super) detail: Box<Detail>,
}

impl Failure {
    pub(super) fn new(reason: Reason, delivery: Delivery, what: impl Into<String>) -> Failure {
        let detail = Box::new(Detail { what: what.into(), ..Detail::default() });
        Failure {
            reason,
            delivery,
            retry_after: None,
            busy: false,
            silent: false,
            final_word: false,
            kind: None,
            detail,
        }
    }

    /// What the relay refused.
    pub(super) fn of_relay(fault: Fault) -> Failure {
        let what = fault.reason.explain();
        let retry_after = fault.retry_after;
        Failure { retry_after, final_word: true, ..Failure::new(fault.reason, fault.delivery, what) }
    }

    /// No answer.
    pub(super) fn of_send(error: pool::Error) -> Failure {
        let (reason, delivery) = match &error {
            pool::Error::Connect(error) => (of_connect(error), Delivery::NotSent),
            pool::Error::Lost { written, read, cause } => {
                let reason = if cause.is_parse() {
                    Reason::AgentMalformed
                } else if *read > 0 {
                    Reason::AgentTruncated
                } else if io_kind(cause) == Some(io::ErrorKind::TimedOut) {
                    Reason::AgentNoAnswer
                } else {
                    Reason::AgentReset
                };
                (reason, if *written == 0 { Delivery::NotSent } else { Delivery::MaybeDelivered })
            }
        };
        let what = match &error {
            pool::Error::Connect(error) => error.to_string(),
            pool::Error::Lost { cause, .. } => format!("the connection ended before an answer came: {}", chain(cause)),
        };
        let silent = reason != Reason::AgentMalformed;
        Failure { silent, ..Failure::new(reason, delivery, text::clean(&what, 400)) }
    }

    /// The body of an answer that broke off.
    pub(super) fn of_body(stop: &BodyStop, head: &Head) -> Failure {
        let (reason, what) = match stop {
            BodyStop::Idle(limit) => {
                (Reason::AgentNoAnswer, format!("the answer stopped in the middle for {} ms", limit.as_millis()))
            }
            BodyStop::Cut => (Reason::AgentTruncated, "the answer ended before it was complete".to_owned()),
            BodyStop::Reset(why) => (Reason::AgentTruncated, format!("the connection broke during the answer: {why}")),
            BodyStop::Malformed(why) => (Reason::AgentMalformed, format!("the answer is not HTTP: {why}")),
            BodyStop::TooLarge(limit) => (Reason::ResultTooLarge, format!("the answer is longer than {limit} bytes")),
        };
        let silent = matches!(stop, BodyStop::Idle(_) | BodyStop::Cut | BodyStop::Reset(_));
        let mut failure = Failure { silent, ..Failure::new(reason, Delivery::MaybeDelivered, what) };
        failure.note(head);
        failure
    }

    /// A reply that is none, or an error of the agent's own.
    pub(super) fn of_reply(fault: ReplyFault, head: &Head, now: Time) -> Failure {
        let mut failure = match fault {
            ReplyFault::AgentError(error) if head.status < 400 || is_jsonrpc(&error) => Failure::of_agent(error, head),
            ReplyFault::AgentError(error) => Failure::of_status(head, error.message),
            ReplyFault::AcceptedUnconfirmed { excerpt } => {
                let what = "the agent took the message and named no task that could be asked for";
                let mut failure = Failure::new(Reason::OutcomeUnknown, Delivery::Delivered, what);
                failure.detail.excerpt = Some(excerpt);
                failure
            }
            ReplyFault::Malformed(bad) if head.status >= 300 => Failure::of_status(head, bad.excerpt),
            ReplyFault::Malformed(bad) => {
                let reason = if bad.what == What::TooLarge { Reason::ResultTooLarge } else { Reason::AgentMalformed };
                let mut failure = Failure::new(reason, Delivery::MaybeDelivered, bad.what.sentence());
                failure.detail.excerpt = Some(bad.excerpt).filter(|excerpt| !excerpt.is_empty());
                failure
            }
        };
        failure.retry_after = head.retry_after(now);
        failure.busy = match head.status {
            429 => true,
            503 if failure.retry_after.is_some() => true,
            // What is no A2A reply may still say so in its own words.
            _ => failure.detail.excerpt.as_deref().is_some_and(says_busy),
        };
        failure.note(head);
        failure
    }

    /// A result that is JSON-RPC and not A2A.
    pub(super) fn of_event(what: &What, raw: &[u8]) -> Failure {
        let mut failure = Failure::new(Reason::AgentMalformed, Delivery::MaybeDelivered, what.sentence());
        failure.detail.excerpt = Some(text::excerpt(raw, MAX_EXCERPT_BYTES));
        failure
    }

    fn of_agent(error: reply::AgentError, head: &Head) -> Failure {
        // A credential or a rate is the gateway's business, in whatever words it comes.
        let reason = match head.status {
            401 | 403 => Reason::AgentUnauthorized,
            429 => Reason::AgentRateLimited,
            // An error that is none of JSON-RPC's is no A2A reply, whatever it says.
            _ if !error.well_formed => Reason::AgentMalformed,
            _ => Reason::AgentError,
        };
        let kind = error.kind();
        let what = format!("the agent answered with error {}: {}", error.code, error.message);
        let mut failure = Failure { kind, ..Failure::new(reason, Delivery::Delivered, what) };
        failure.silent = matches!(head.status, 502..=504);
        failure.detail.agent_error = Some(AgentError { code: error.code, message: error.message, data: error.data });
        failure
    }

    fn of_status(head: &Head, excerpt: String) -> Failure {
        let (reason, what) = match head.status {
            500.. => (Reason::AgentHttpError, format!("the answer was HTTP {}", head.status)),
            429 => (Reason::AgentRateLimited, "the agent gets too many requests (HTTP 429)".to_owned()),
            401 | 403 => (Reason::AgentUnauthorized, format!("the credential was not taken (HTTP {})", head.status)),
            300..=399 => (
                Reason::AgentRejectedRequest,
                format!("the agent pointed elsewhere (HTTP {}), which is not followed", head.status),
            ),
            _ => (Reason::AgentRejectedRequest, format!("the request was not taken (HTTP {})", head.status)),
        };
        let mut failure = Failure::new(reason, Delivery::MaybeDelivered, what);
        failure.silent = matches!(head.status, 502..=504);
        failure.detail.excerpt = Some(excerpt).filter(|excerpt| !excerpt.is_empty());
        failure
    }

    /// Adds what the head of the answer said.
    fn note(&mut self, head: &Head) {
        self.detail.status = Some(head.status);
        self.detail.content_type = head.content_type().map(|kind| text::clean(kind, 100));
        if matches!(head.status, 401 | 403) {
            let challenge = head.headers.get(header::WWW_AUTHENTICATE);
            self.detail.challenge = challenge.map(|value| text::excerpt(value.as_bytes(), MAX_EXCERPT_BYTES));
        }
    }

    /// The agent surely did nothing, because it does not know or not support what was asked.
    pub(super) fn is_unsupported(&self) -> bool {
        self.kind == Some(A2a::UnsupportedOperation) || self.code() == Some(METHOD_NOT_FOUND.into())
    }

    /// Nobody was there to do anything: no such address, verb or method, and not in the words of an agent that knows the
    /// operation. Something else may be there under another address of the agent's.
    pub(super) fn is_nowhere(&self) -> bool {
        match &self.detail.agent_error {
            Some(error) => error.code == i64::from(METHOD_NOT_FOUND),
            None => matches!(self.detail.status, Some(404 | 405 | 501)),
        }
    }

    /// Asking the same again would get the same.
    pub(super) fn is_definite(&self) -> bool {
        let gone = self.kind == Some(A2a::TaskNotFound);
        let status =
            self.detail.status.is_some_and(|status| matches!(status, 300..=499) && status != 408 && status != 429);
        gone || status || self.is_unsupported()
    }

    /// The JSON-RPC code that the agent said.
    pub(super) fn code(&self) -> Option<i64> {
        self.detail.agent_error.as_ref().map(|error| error.code)
    }

    pub(super) fn into_fault(self) -> (Fault, Detail) {
        (
            Fault { reason: self.reason, delivery: self.delivery, retry_after: self.retry_after, busy: self.busy },
            *self.detail,
        )
    }
}

/// How the body of an answer ended before its end.
#[derive(Debug)]
pub(super) enum BodyStop {
    /// Nothing came for so long.
    Idle(std::time::Duration),
    /// The connection was closed.
    Cut,
    /// The connection broke.
    Reset(String),
    /// The framing is wrong.
    Malformed(String),
    /// More than so many bytes.
    TooLarge(usize),
}

impl BodyStop {
    pub(super) fn of(error: &hyper::Error) -> BodyStop {
        match io_kind(error) {
            Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => BodyStop::Malformed(chain(error)),
            Some(io::ErrorKind::UnexpectedEof) => BodyStop::Cut,
            Some(_) => BodyStop::Reset(chain(error)),
            None if error.is_incomplete_message() || error.is_closed() || error.is_canceled() => BodyStop::Cut,
            None => BodyStop::Reset(chain(error)),
        }
    }
}

/// The head of an answer.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
}

impl Head {
    pub(super) fn new(status: StatusCode, headers: HeaderMap) -> Head {
        Head { status: status.as_u16(), headers }
    }

    pub(super) fn content_type(&self) -> Option<&str> {
        self.headers.get(header::CONTENT_TYPE)?.to_str().ok()
    }

    /// Compressed, though nobody asked for it.
    pub(super) fn encoding(&self) -> Option<&str> {
        let encoding = self.headers.get(header::CONTENT_ENCODING)?.to_str().unwrap_or("?");
        (!encoding.trim().is_empty() && !encoding.trim().eq_ignore_ascii_case("identity")).then_some(encoding)
    }

    pub(super) fn for_reply(&self) -> reply::Head<'_> {
        reply::Head { status: self.status, content_type: self.content_type() }
    }

    fn retry_after(&self, now: Time) -> Option<Span> {
        if !matches!(self.status, 429 | 503) {
            return None;
        }
        backoff::parse_retry_after(self.headers.get(header::RETRY_AFTER)?.as_bytes(), now, MAX_RETRY_AFTER)
    }
}

fn of_connect(error: &connect::Error) -> Reason {
    match error {
        connect::Error::Dns(_) => Reason::AgentDnsFailure,
        connect::Error::Refused(_) => Reason::AgentConnectRefused,
        connect::Error::Timeout(_) => Reason::AgentConnectTimeout,
        connect::Error::Tls(_) => Reason::AgentTlsFailure,
        connect::Error::Local(_) => Reason::Internal,
    }
}

/// `{"busy": true}`, whatever else is in it.
fn says_busy(body: &str) -> bool {
    let body: Option<serde_json::Value> = serde_json::from_str(body).ok();
    body.is_some_and(|body| body["busy"] == true)
}

/// An error status with `{"error":{"code":503,…}}` is a proxy's or HTTP+JSON's own, and no answer in JSON-RPC.
fn is_jsonrpc(error: &reply::AgentError) -> bool {
    error.well_formed && !(300..600).contains(&error.code)
}

fn io_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        source = inner.source();
    }
    None
}

fn chain(error: &hyper::Error) -> String {
    let mut out = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        out.push_str(": ");
        out.push_str(&inner.to_string());
        source = inner.source();
    }
    text::clean(&out, 300)
}

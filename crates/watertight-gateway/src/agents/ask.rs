//! One request to an agent, and the body of its answer.
//!
//! Three classes, each with connections of its own: sends, streams, and the small questions beside them. There is no
//! limit on the time until an answer begins: whoever waits drops the future, and the connection is closed with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method as Verb, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use watertight_a2a::json::{Json, Limits};
use watertight_a2a::jsonrpc;
use watertight_a2a::reply::{self, ReplyFault};
use watertight_a2a::rest::outbound::{self, Operation};
use watertight_a2a::sse;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;

use super::AgentConfig;
use super::connect::Origin;
use super::endpoints::{Endpoint, Wire};
use super::fault::{BodyStop, Failure, Head};
use super::pool::{Exchange, Pool};
use crate::clock::Clock;

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
const A2A_EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("watertight/", env!("CARGO_PKG_VERSION")));
/// Name lookups under way at one agent; more wait, within their connect timeout.
const MAX_LOOKUPS: usize = 4;
/// The most that is read of a body that only explains an error.
const MAX_ERROR_BYTES: usize = 1 << 20;
/// And the longest that it is waited for.
const EXPLAIN_LIMIT: Duration = Duration::from_secs(1);

/// Whose connections a request uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Send,
    Stream,
    Side,
}

/// What goes along with everything about one job.
#[derive(Clone, Debug, Default)]
pub(super) struct Along {
    /// The tenant that the caller named. It outranks the card's.
    pub(super) tenant: Option<Arc<str>>,
    pub(super) traceparent: Option<HeaderValue>,
    pub(super) tracestate: Option<HeaderValue>,
    pub(super) extensions: Option<HeaderValue>,
}

/// Asks one agent.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) config: Arc<AgentConfig>,
    pub(super) clock: Clock,
    /// Of every request.
    headers: HeaderMap,
    next_id: AtomicU64,
    names: Arc<Semaphore>,
    sends: Pool,
    streams: Pool,
    side: Pool,
}

impl Asker {
    pub(super) fn new(config: Arc<AgentConfig>, clock: Clock) -> Result<Asker, String> {
        let unusable = || format!("{} is no http or https URL with a host", config.url);
        let origin = Origin::of(&config.url).ok_or_else(unusable)?.guarded(config.guard.clone());
        let host = origin.host_header().ok_or_else(unusable)?;
        if origin.is_https() {
            super::connect::prepare_tls();
        }
        let names = Arc::new(Semaphore::new(MAX_LOOKUPS));
        let pool = || Pool::new(origin.clone(), config.connect_timeout, config.pool_idle, &names);
        let (sends, streams, side) = (pool(), pool(), pool());
        let headers = headers_of(&config, host);
        Ok(Asker { clock, headers, next_id: AtomicU64::new(1), names, sends, streams, side, config })
    }

    pub(super) fn origin(&self) -> &Origin {
        self.side.origin()
    }

    /// The limits of one reply.
    pub(super) fn limits(&self) -> Limits {
        Limits { max_bytes: self.config.max_task_bytes, ..Limits::default() }
    }

    /// Asks at an endpoint, and waits until an answer begins.
    pub(super) async fn call(
        &self,
        class: Class,
        endpoint: &Endpoint,
        operation: &Operation<'_>,
        along: &Along,
    ) -> Result<Answer, Failure> {
        let by_get = endpoint.subscribes_by_get();
        let answer = self.call_once(class, endpoint, operation, along, by_get).await?;
        // The protocol's text and its definition differ in the verb of this one. Nothing is done by asking twice.
        let is_subscribe = matches!(operation, Operation::SubscribeToTask(_)) && !endpoint.is_json_rpc();
        if by_get || !is_subscribe || !matches!(answer.head.status, 404 | 405) {
            return Ok(answer);
        }
        let second = self.call_once(class, endpoint, operation, along, true).await?;
        if second.head.status >= 300 {
            return Ok(answer);
        }
        endpoint.set_subscribes_by_get();
        Ok(second)
    }

    async fn call_once(
        &self,
        class: Class,
        endpoint: &Endpoint,
        operation: &Operation<'_>,
        along: &Along,
        by_get: bool,
    ) -> Result<Answer, Failure> {
        let (asked, verb, uri, body) = match &endpoint.wire {
            Wire::JsonRpc { target } => {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
                let tenant = along.tenant.as_deref().or(endpoint.tenant.as_deref());
                let body = jsonrpc::write_request(&id, operation.method(), &operation.params(tenant));
                (Asked::JsonRpc { id }, Verb::POST, uri_of(target)?, body.into())
            }
            Wire::HttpJson { base } => {
                let tenant = endpoint.carried(along.tenant.as_deref());
                let outbound::Request { verb, target, body } = outbound::write(operation, base, tenant, by_get);
                let verb = match verb {
                    outbound::Verb::Get => Verb::GET,
                    outbound::Verb::Post => Verb::POST,
                };
                let asked = Asked::HttpJson { names_task: operation.names_task() };
                (asked, verb, uri_of(&target)?, body)
            }
        };
        let request = || {
            let mut headers = self.headers.clone();
            if class == Class::Stream {
                headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
            }
            if verb != Verb::POST {
                headers.remove(header::CONTENT_TYPE);
            }
            match &along.traceparent {
                Some(value) => headers.insert(TRACEPARENT, value.clone()),
                None => headers.remove(TRACEPARENT),
            };
            for (name, value) in [(TRACESTATE, &along.tracestate), (A2A_EXTENSIONS, &along.extensions)] {
                if let Some(value) = value {
                    headers.insert(name, value.clone());
                }
            }
            request_of(&verb, &uri, headers, &body)
        };
        let pool = match class {
            Class::Send => &self.sends,
            Class::Stream => &self.streams,
            Class::Side => &self.side,
        };
        self.exchange(pool, request, asked).await
    }

    /// Asks for something whose answer is one small reply, in the side class.
    pub(super) async fn ask(
        &self,
        endpoint: &Endpoint,
        operation: &Operation<'_>,
        along: &Along,
    ) -> Result<Json, Failure> {
        let answer = self.call(Class::Side, endpoint, operation, along).await?;
        let (limits, now) = (self.limits(), self.clock.now());
        answer.into_result(&limits).await.map_err(|end| match end {
            Unread::Body(stop, head) => Failure::of_body(&stop, &head),
            Unread::Reply(fault, head) => Failure::of_reply(fault, &head, now),
            Unread::Encoded(head) => encoded(&head),
        })
    }

    /// GETs a card. At another place than the agent's own, nothing is told that is meant for the agent.
    pub(super) async fn get(&self, url: &Uri, more: &[(HeaderName, HeaderValue)]) -> Result<Answer, Failure> {
        let unusable = || Failure::new(Reason::Internal, Delivery::NotSent, "the card's URL is no http or https URL");
        let origin = Origin::of(url).ok_or_else(unusable)?.guarded(self.config.guard.clone());
        let uri = uri_of(url.path_and_query().map_or("/", |path| path.as_str()))?;
        let mut headers = self.headers.clone();
        for name in [header::CONTENT_TYPE, A2A_VERSION, TRACEPARENT] {
            headers.remove(name);
        }
        for (name, value) in more {
            headers.insert(name, value.clone());
        }
        let request = |headers: &HeaderMap| request_of(&Verb::GET, &uri, headers.clone(), &Bytes::new());
        if origin == *self.origin() {
            return self.exchange(&self.side, || request(&headers), Asked::Card).await;
        }
        for (name, _) in &self.config.headers {
            headers.remove(name);
        }
        headers.insert(header::HOST, origin.host_header().ok_or_else(unusable)?);
        let pool = Pool::new(origin, self.config.connect_timeout, Duration::ZERO, &self.names);
        self.exchange(&pool, || request(&headers), Asked::Card).await
    }

    async fn exchange(
        &self,
        pool: &Pool,
        request: impl Fn() -> Request<Full<Bytes>>,
        asked: Asked,
    ) -> Result<Answer, Failure> {
        let (response, exchange) = pool.send(request).await.map_err(Failure::of_send)?;
        let (parts, incoming) = response.into_parts();
        let head = Head::new(parts.status, parts.headers);
        Ok(Answer { asked, head, body: Body { incoming, exchange: Some(exchange), idle: self.config.idle_timeout } })
    }
}

/// What goes along with every request to an agent; a trace takes the place that is kept for it.
fn headers_of(config: &AgentConfig, host: HeaderValue) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8 + config.headers.len());
    headers.insert(header::HOST, host);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, AGENT);
    for (name, value) in &config.headers {
        let mut value = value.clone();
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(A2A_VERSION, HeaderValue::from_static("1.0"));
    headers.insert(TRACEPARENT, HeaderValue::from_static(""));
    headers
}

fn uri_of(path: &str) -> Result<Uri, Failure> {
    Uri::try_from(path).map_err(|error| {
        Failure::new(Reason::Internal, Delivery::NotSent, format!("the request could not be written: {error}"))
    })
}

fn request_of(verb: &Verb, uri: &Uri, headers: HeaderMap, body: &Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = verb.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers;
    request
}

pub(super) fn encoded(head: &Head) -> Failure {
    let what = format!("the reply is compressed ({}), which was not asked for", head.encoding().unwrap_or("?"));
    let what = watertight_a2a::text::clean(&what, 200);
    let mut failure = Failure::new(Reason::AgentMalformed, Delivery::MaybeDelivered, what);
    failure.detail.status = Some(head.status);
    failure
}

/// What was asked, as far as the answer's meaning depends on it.
#[derive(Debug)]
pub(super) enum Asked {
    /// Under this id.
    JsonRpc { id: String },
    /// Something about a task, or not.
    HttpJson { names_task: bool },
    /// A document, which is no reply.
    Card,
}

impl Asked {
    /// Reads a reply, or an event of one.
    pub(super) fn read(&self, text: Bytes, head: reply::Head<'_>, limits: &Limits) -> Result<Json, ReplyFault> {
        match self {
            Asked::JsonRpc { id } => reply::read_reply(text, head, id, limits).map(|raw| raw.result),
            Asked::HttpJson { names_task } => outbound::read_reply(&text, head, *names_task, limits),
            Asked::Card => outbound::read_reply(&text, head, false, limits),
        }
    }
}

/// An answer whose head has come.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) asked: Asked,
    pub(super) head: Head,
    pub(super) body: Body,
}

/// Why an answer gave no result.
pub(super) enum Unread {
    Body(BodyStop, Head),
    Reply(ReplyFault, Head),
    Encoded(Head),
}

impl Answer {
    /// Reads the whole body as one reply; a stream of events counts by its last one.
    pub(super) async fn into_result(mut self, limits: &Limits) -> Result<Json, Unread> {
        let whole = if self.head.status >= 300 {
            self.explanation().await
        } else if self.head.encoding().is_some() {
            return Err(Unread::Encoded(self.head));
        } else {
            match self.body.whole(limits.max_bytes).await {
                Ok(whole) => whole,
                Err(stop) => return Err(Unread::Body(stop, self.head)),
            }
        };
        let events = self.head.content_type().is_some_and(is_event_stream) && starts_like_events(&whole) == Some(true);
        let text = if events { last_event(&whole, limits).unwrap_or(whole) } else { whole };
        self.asked.read(text, self.head.for_reply(), limits).map_err(|fault| Unread::Reply(fault, self.head))
    }
}

impl Answer {
    /// The body of an answer with an error status. The status says enough, so a body that is compressed, cut, slow or
    /// far too long is as good as none.
    pub(super) async fn explanation(&mut self) -> Bytes {
        if self.head.encoding().is_some() {
            return Bytes::new();
        }
        let read = timeout(EXPLAIN_LIMIT, self.body.whole(MAX_ERROR_BYTES)).await;
        read.ok().and_then(Result::ok).unwrap_or_default()
    }
}

fn last_event(whole: &[u8], limits: &Limits) -> Option<Bytes> {
    let mut reader = sse::Reader::new(sse::Limits { max_line: limits.max_bytes, max_event: limits.max_bytes });
    let mut items = Vec::new();
    let _ = reader.feed(whole, &mut items);
    let left = match reader.finish() {
        sse::End::Unterminated(event) => Some(event.data),
        sse::End::Clean | sse::End::Cut => None,
    };
    left.or_else(|| {
        items.into_iter().rev().find_map(|item| match item {
            sse::Item::Event(event) => Some(event.data),
            sse::Item::Comment(_) | sse::Item::Retry(_) => None,
        })
    })
}

pub(super) fn is_event_stream(content_type: &str) -> bool {
    content_type.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

/// Whether a body begins as a stream of events does; `None` if too little has come to tell.
pub(super) fn starts_like_events(start: &[u8]) -> Option<bool> {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let begins = |field: &&[u8]| field.starts_with(&start[..start.len().min(field.len())]);
    let fields: [&[u8]; 5] = [b":", b"data", b"event", b"id", b"retry"];
    match fields.iter().find(|field| begins(field)) {
        _ if start.is_empty() => None,
        Some(field) if start.len() < field.len() => None,
        found => Some(found.is_some()),
    }
}

/// The body of an answer. Dropped before its end, it closes the connection.
#[derive(Debug)]
pub(super) struct Body {
    incoming: Incoming,
    exchange: Option<Exchange>,
    idle: Duration,
}

impl Body {
    /// The next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self, idle: Option<Duration>) -> Result<Option<Bytes>, BodyStop> {
        let idle = idle.unwrap_or(self.idle);
        loop {
            match timeout(idle, self.incoming.frame()).await {
                Err(_) => return Err(BodyStop::Idle(idle)),
                Ok(None) => {
                    if let Some(exchange) = self.exchange.take() {
                        exchange.done();
                    }
                    return Ok(None);
                }
                Ok(Some(Err(error))) => return Err(BodyStop::of(&error)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// How long the rest says that it is, at least.
    pub(super) fn announced(&self) -> u64 {
        self.incoming.size_hint().lower()
    }

    /// All of it, refused as soon as it is known to be more than `limit`.
    pub(super) async fn whole(&mut self, limit: usize) -> Result<Bytes, BodyStop> {
        if self.announced() > limit as u64 {
            return Err(BodyStop::TooLarge(limit));
        }
        let Some(first) = self.chunk(None).await? else { return Ok(Bytes::new()) };
        let mut all: Option<BytesMut> = None;
        while let Some(more) = self.chunk(None).await? {
            let all = all.get_or_insert_with(|| BytesMut::from(&first[..]));
            if all.len() + more.len() > limit {
                return Err(BodyStop::TooLarge(limit));
            }
            all.extend_from_slice(&more);
        }
        let whole = all.map_or(first, BytesMut::freeze);
        if whole.len() > limit { Err(BodyStop::TooLarge(limit)) } else { Ok(whole) }
    }
}

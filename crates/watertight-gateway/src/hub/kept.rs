//! Messages and records as the store keeps them: the raw JSON, with what belongs to it and is ours beside it.

use bytes::Bytes;
use watertight_a2a::json::{Json, Value};
use watertight_a2a::record::Record;
use watertight_engine::record::{Row, TaskState};

use super::view::millis;
use super::{Detail, view};
use crate::handle::Trace;
use crate::states::state_of;

/// A caller's message, with what travels beside it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Message {
    /// The params of SendMessage as the caller sent them.
    pub(crate) params: Json,
    pub(crate) trace: Trace,
    /// Where its caller's connection is served, as long as this process lives.
    pub(crate) home: Home,
}

/// A runtime, or none in particular. No part of what a message is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Home(pub(crate) Option<tokio::runtime::Handle>);

impl Home {
    /// The one that runs this.
    pub(crate) fn here() -> Home {
        Home(tokio::runtime::Handle::try_current().ok())
    }
}

impl PartialEq for Home {
    fn eq(&self, _: &Home) -> bool {
        true
    }
}

impl Message {
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut out = Members::default();
        out.text("traceparent", self.trace.parent.as_deref());
        out.text("tracestate", self.trace.state.as_deref());
        out.text("extensions", self.trace.extensions.as_deref());
        out.raw("params", self.params.as_bytes());
        out.close()
    }

    pub(crate) fn from_bytes(bytes: Bytes) -> Option<Message> {
        let doc = Json::assume(bytes);
        let root = doc.value();
        let params = doc.part(root.get("params")?);
        let trace = Trace {
            parent: text(root, "traceparent"),
            state: text(root, "tracestate"),
            extensions: text(root, "extensions"),
        };
        Some(Message { params, trace, home: Home::default() })
    }
}

/// A record's body.
pub(crate) fn record(record: &Record, detail: Option<&Detail>) -> Bytes {
    let mut out = Members::default();
    out.detail(detail);
    out.raw("record", &record.to_bytes());
    out.close()
}

/// The body of one that is still nothing but the first message, which the store has.
pub(crate) fn hollow(detail: Option<&Detail>) -> Bytes {
    let mut out = Members::default();
    out.raw("hollow", b"true");
    out.detail(detail);
    out.close()
}

/// Whether the first message has to be read beside this body.
pub(crate) fn needs_message(body: &[u8]) -> bool {
    body.starts_with(b"{\"hollow\"")
}

/// What the store has of a record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// The last whole one.
    pub(crate) whole: Option<Bytes>,
    /// What was appended since.
    pub(crate) deltas: Vec<Bytes>,
    /// The first message, if there is no whole one: as long as nothing else is known, the record is that.
    pub(crate) message: Option<Bytes>,
}

/// A record from what is stored of it. What cannot be read is passed over: the row still tells the state.
pub(crate) fn restore(row: &Row, stored: Stored) -> (Record, Option<Detail>) {
    let Stored { whole, deltas, message } = stored;
    let whole = whole.map(Json::assume);
    let part = |name| whole.as_ref().and_then(|doc| doc.value().get(name).map(|value| doc.part(value)));
    let kept = part("record").and_then(|doc| Record::from_bytes(doc.as_bytes().to_vec()).ok());
    let missing = kept.is_none();
    let mut record = kept.unwrap_or_else(|| {
        let mut record = Record::new(&row.task.to_string(), &row.context, millis(row.created));
        let params = message.and_then(Message::from_bytes).map(|message| message.params);
        if let Some(said) = params.as_ref().and_then(|params| Some(params.part(params.value().get("message")?))) {
            record.add_client_message(&said);
        }
        record
    });
    for delta in deltas {
        if record.apply_delta(delta.into()).is_err() {
            break;
        }
    }
    // Deltas may have run ahead of the row; and without a record the row's verdict is all that is known.
    let says = state_of(record.state());
    let ahead = says.is_terminal() || says.is_interrupted();
    let detail = part("detail").map(|doc| detail(&doc));
    // An answer to what it asks is on its way: the question stands until the agent says something else.
    let asked = row.state == TaskState::Submitted && row.asked == Some(says);
    if says != row.state && !asked && (ahead || missing || row.state.is_terminal()) {
        view::overrule(&mut record, row, detail.as_ref());
    }
    (record, detail)
}

fn detail(doc: &Json) -> Detail {
    let root = doc.value();
    Detail {
        code: root.get("code").and_then(|code| code.as_i64()),
        message: text(root, "message"),
        data: root.get("data").map(|data| doc.part(data).into_bytes()),
        status: root.get("status").and_then(|status| u16::try_from(status.as_i64()?).ok()),
        excerpt: text(root, "excerpt"),
        resent: root.get("resent").is_some(),
    }
}

fn text(root: Value<'_>, name: &str) -> Option<String> {
    root.get(name).and_then(|value| value.as_str()).map(|text| text.into_owned())
}

/// Members of an object, written one after the other.
#[derive(Default)]
struct Members(Vec<u8>);

impl Members {
    fn raw(&mut self, name: &str, value: &[u8]) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.raw(name, Json::string(value).as_bytes());
        }
    }

    fn detail(&mut self, detail: Option<&Detail>) {
        let Some(detail) = detail else { return };
        let mut inner = Members::default();
        inner.number("code", detail.code);
        inner.text("message", detail.message.as_deref());
        if let Some(data) = &detail.data {
            inner.raw("data", data);
        }
        inner.number("status", detail.status.map(i64::from));
        inner.text("excerpt", detail.excerpt.as_deref());
        inner.number("resent", detail.resent.then_some(1));
        self.raw("detail", &inner.close());
    }

    fn number(&mut self, name: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.raw(name, value.to_string().as_bytes());
        }
    }

    fn close(mut self) -> Bytes {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        self.0.into()
    }
}

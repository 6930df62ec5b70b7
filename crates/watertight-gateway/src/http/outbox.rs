//! `/v1/outbox`: what came of what a caller delegated, until it has said that it has read it. Its own, and nobody else's.
//!
//! Fields are for programs, and hold what the agent said as it said it; `preview` is for a model, and framed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderMap, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_a2a::rest::query;
use watertight_a2a::{sse, time};
use watertight_engine::ids::{AgentId, Owner};
use watertight_policy::boundary::PeerText;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::auth::Who;
use super::body::Body;
use super::render;
use super::reply::{json_response, plain, stream_response};
use super::router::Router;
use super::sse::{BEAT, Events};
use crate::config::Agent;
use crate::error::{Problem, first_sentence};
use crate::handle::{Arrived, Declined, Handle, NotAcknowledged, Reading};
use crate::hub::TaskView;
use crate::hub::view::millis;
use crate::tools::{framed, what_of};

const NARROWED_BY: [&str; 3] = ["after", "wait", "limit"];

/// A page where nobody says how long, and the longest.
const LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// The longest wait: shorter than what proxies allow a request.
const MAX_WAIT_S: f64 = 50.0;

/// Bytes of a text that are enough to see what it is about.
const PREVIEW_BYTES: usize = 400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ack {
    #[serde(rename = "upTo")]
    up_to: u64,
}

/// Whether whoever reads may still do so.
pub(super) type Still = Box<dyn Fn() -> bool + Send + Sync>;

/// Whose outbox it is, or that there is none.
pub(super) fn owner(who: &Who) -> Result<Owner, Problem> {
    who.owner().ok_or_else(|| {
        let text = "this caller has no outbox: callers that are agents have one, others with `callers.NAME.outbox = true` \
                    (without callers, `server.outbox = true`)";
        Problem::http(StatusCode::NOT_FOUND, Error::new(INVALID_REQUEST, text))
    })
}

/// `GET /v1/outbox`
pub(super) async fn list(router: &Router, owner: &Owner, query: &str, still: &Still) -> Response<Body> {
    let asked = match Asked::of(query, &NARROWED_BY) {
        Ok(asked) => asked,
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    let until = Instant::now() + asked.wait;
    wait(router.handle(), owner, asked.after, until, &router.draining()).await;
    if !still() {
        let text = "the credential does not count any more: it was taken back while this request waited";
        return plain(&Problem::refusal(Reason::Unauthenticated, text));
    }
    match router.handle().read_outbox(owner, asked.after, asked.limit).await {
        Ok(reading) => json_response(StatusCode::OK, page(&router.answers(), &reading)),
        Err(reason) => unavailable(reason),
    }
}

/// `GET /v1/outbox/pending`
pub(super) async fn pending(router: &Router, owner: &Owner) -> Response<Body> {
    let outbox = match router.handle().outbox(owner).await {
        Ok(outbox) => outbox,
        Err(reason) => return unavailable(reason),
    };
    let body = json!({
        "of": match owner {
            Owner::Agent(tenant, agent) => json!({"tenant": &**tenant, "agent": agent.as_str()}),
            Owner::Caller(caller) => json!({"tenant": &*caller.tenant, "caller": &*caller.caller}),
        },
        "pending": outbox.waiting,
        "last": outbox.last,
        "lost": outbox.lost,
        "oldest": outbox.oldest.map(|oldest| time::write(millis(oldest))),
    });
    json_response(StatusCode::OK, body.to_string())
}

/// `POST /v1/outbox/ack`
pub(super) async fn acknowledge(router: &Router, owner: Owner, body: &Bytes) -> Response<Body> {
    let bad = |text: String| plain(&Problem::http(StatusCode::BAD_REQUEST, Error::invalid_params("upTo", text)));
    let Ok(Ack { up_to }) = serde_json::from_slice::<Ack>(body) else {
        return bad("has to be the number of the last result that was read: {\"upTo\": 3}".to_owned());
    };
    match router.handle().acknowledge(owner, up_to).await {
        Ok(done) => {
            let body = json!({"upTo": up_to, "pending": done.waiting, "last": done.last});
            json_response(StatusCode::OK, body.to_string())
        }
        Err(NotAcknowledged::NotThatFar(last)) => {
            bad(format!("is {up_to}, and nothing with that number was ever in the outbox; its last is {last}"))
        }
        Err(NotAcknowledged::Declined(declined)) => {
            let reason = match declined {
                Declined::Refused { reason, .. } => reason,
                Declined::Conflict { .. } | Declined::NotFound | Declined::TaskTerminal => Reason::Internal,
                Declined::ContextMismatch | Declined::NotCancelable | Declined::Forbidden { .. } => Reason::Internal,
            };
            let text = format!("the outbox cannot be written: {}", first_sentence(reason));
            plain(&Problem::of(reason, text).again(Some(Span::from_secs(1))))
        }
    }
}

/// `GET /v1/outbox/stream`
pub(super) fn stream(router: &Router, owner: Owner, query: &str, headers: &HeaderMap, still: Still) -> Response<Body> {
    let asked = match Asked::of(query, &["after"]) {
        Ok(asked) => asked,
        Err(error) => return plain(&Problem::http(StatusCode::BAD_REQUEST, error)),
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let pump = Pump {
        handle: router.handle().clone(),
        answers: router.answers(),
        owner,
        after: last.unwrap_or(asked.after),
        begun: false,
        draining: router.draining(),
        still,
    };
    let pieces = unfold(pump, |mut pump| async move { pump.piece().await.map(|piece| (piece, pump)) });
    stream_response(Box::new(Events::of(pieces)))
}

/// Results as events, each read when the reader has taken those before.
struct Pump {
    handle: Handle,
    answers: Answers,
    owner: Owner,
    after: u64,
    begun: bool,
    draining: CancellationToken,
    still: Still,
}

impl Pump {
    async fn piece(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            self.beat(&mut out);
            return Some(out.into());
        }
        wait(&self.handle, &self.owner, self.after, Instant::now() + BEAT, &self.draining).await;
        if self.draining.is_cancelled() || !(self.still)() {
            return None;
        }
        match self.handle.read_outbox(&self.owner, self.after, LIMIT).await {
            Ok(reading) => {
                if reading.reset {
                    self.after = 0;
                    sse::write_event(
                        None,
                        Some("reset"),
                        json!({"last": reading.outbox.last}).to_string().as_bytes(),
                        &mut out,
                    );
                }
                for arrived in &reading.results {
                    self.after = arrived.notice.seq;
                    let data = written(&one(&self.answers, arrived));
                    sse::write_event(Some(&self.after.to_string()), Some("result"), &data, &mut out);
                }
            }
            Err(reason) => {
                // It is tried again with the next beat; the reader sees why it gets nothing.
                sse::write_comment(&format!("cannot be read just now: {reason}"), &mut out);
                tokio::time::sleep(BEAT).await;
            }
        }
        if out.is_empty() {
            self.beat(&mut out);
        }
        Some(out.into())
    }

    fn beat(&self, out: &mut Vec<u8>) {
        let outbox = self.handle.outbox_now(&self.owner);
        let how = outbox.map(|outbox| format!("last={} pending={}", outbox.last, outbox.waiting));
        sse::write_comment(&format!("hb {}", how.as_deref().unwrap_or("loading")), out);
    }
}

/// Until something waits behind this number. Costs nothing meanwhile.
async fn wait(handle: &Handle, owner: &Owner, after: u64, until: Instant, draining: &CancellationToken) {
    let mut outbox = handle.follow_outbox(owner);
    loop {
        let now = outbox.borrow_and_update().clone();
        if now.newest > after || after > now.last && now.waiting > 0 {
            return;
        }
        tokio::select! {
            changed = timeout_at(until, outbox.changed()) => match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            },
            () = draining.cancelled() => return,
            () = sleep_until(until) => return,
        }
    }
}

struct Asked {
    after: u64,
    wait: Duration,
    limit: usize,
}

impl Asked {
    fn of(query: &str, known: &[&str]) -> Result<Asked, Error> {
        if let Some(unknown) = query::unknown(query, known) {
            let names = known.join(", ");
            return Err(Error::new(INVALID_REQUEST, format!("no `{unknown}` in this query: there are {names}")));
        }
        let wrong = |name: &'static str, what: &str| Error::invalid_params(name, what);
        let after = query::value(query, "after")?.map(|text| {
            text.parse()
                .map_err(|_| wrong("after", "is no whole number: it is the `seq` of the last result that was read"))
        });
        let wait = query::value(query, "wait")?.map(|text| match text.parse::<f64>() {
            Ok(seconds) if seconds >= 0.0 => Ok(Duration::from_secs_f64(seconds.min(MAX_WAIT_S))),
            Ok(_) | Err(_) => Err(wrong("wait", "is no number of seconds")),
        });
        let limit = query::value(query, "limit")?.map(|text| match text.parse() {
            Ok(limit @ 1..=MAX_LIMIT) => Ok(limit),
            Ok(_) | Err(_) => Err(wrong("limit", "is no whole number from 1 to 100")),
        });
        Ok(Asked {
            after: after.transpose()?.unwrap_or(0),
            wait: wait.transpose()?.unwrap_or_default(),
            limit: limit.transpose()?.unwrap_or(LIMIT),
        })
    }
}

/// How much of each agent's results is told.
#[derive(Clone)]
pub(super) struct Answers(pub(super) Arc<BTreeMap<AgentId, u64>>);

impl Answers {
    pub(super) fn of<'a>(agents: impl Iterator<Item = (&'a AgentId, &'a Agent)>) -> Answers {
        Answers(Arc::new(
            agents.map(|(name, agent)| (name.clone(), agent.settings.acceptance.max_result_bytes)).collect(),
        ))
    }
}

#[derive(Serialize)]
struct Page<'a> {
    results: Vec<One<'a>>,
    pending: usize,
    last: u64,
    lost: u64,
    reset: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct One<'a> {
    seq: u64,
    task_id: String,
    context_id: &'a str,
    agent: &'a str,
    turn: u32,
    state: &'static str,
    reason: Option<&'static str>,
    at: String,
    /// The task's state; none if it is not kept any more.
    now: Option<&'static str>,
    bytes: Option<usize>,
    withheld: bool,
    preview: Option<String>,
    text: Option<String>,
    /// As the agent said it, number by number.
    task: Option<Box<RawValue>>,
}

fn page(answers: &Answers, reading: &Reading) -> Vec<u8> {
    let outbox = &reading.outbox;
    let results = reading.results.iter().map(|arrived| one(answers, arrived)).collect();
    let (pending, last, lost) = (outbox.waiting, outbox.last, outbox.lost);
    written(&Page { results, pending, last, lost, reset: reading.reset })
}

/// What is written here is written to memory, and has no maps with odd keys.
fn written(what: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(what).unwrap_or_default()
}

fn one<'a>(answers: &Answers, arrived: &'a Arrived) -> One<'a> {
    let notice = &arrived.notice;
    // A task that has gone on is not as it was.
    let told = arrived.view.as_ref().filter(|view| view.state == notice.state && view.turn == notice.turn);
    let text = told.map(|view| text_of(view, notice.reason));
    let max = answers.0.get(&notice.agent).copied().unwrap_or(u64::MAX);
    let fits = text.as_ref().is_some_and(|text| text.len() as u64 <= max);
    let whole = told.filter(|view| fits && view.record.measure().bytes as u64 <= max).and_then(|view| {
        let json = String::from_utf8(render::task(view, Some(0), true)).ok()?;
        RawValue::from_string(json).ok()
    });
    One {
        seq: notice.seq,
        task_id: notice.task.to_string(),
        context_id: &notice.context,
        agent: notice.agent.as_str(),
        turn: notice.turn,
        state: notice.state.as_str(),
        reason: notice.reason.map(Reason::as_str),
        at: time::write(millis(notice.at)),
        now: arrived.view.as_ref().map(|view| view.state.as_str()),
        bytes: text.as_ref().map(String::len),
        withheld: told.is_some_and(|view| view.withheld || whole.is_none()),
        preview: text
            .as_deref()
            .and_then(|text| framed(what_of(notice.state), &PeerText::new(text).preview(PREVIEW_BYTES))),
        text: text.filter(|_| fits),
        task: whole,
    }
}

/// What the agent said in the end; our own words where that is withheld.
fn text_of(view: &TaskView, reason: Option<Reason>) -> String {
    match reason.filter(|_| view.withheld) {
        Some(reason) => first_sentence(reason).to_owned(),
        None => view.said().into_content().text(),
    }
}

fn unavailable(reason: Reason) -> Response<Body> {
    plain(&Problem::of(reason, format!("the outbox cannot be read: {}", first_sentence(reason))))
}

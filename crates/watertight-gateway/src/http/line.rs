//! One operation, carried out for whoever asks by whichever binding: what the handle is asked, and what comes of it.
//!
//! Assumes that the caller is known and that the faces ([`super::rpc`], [`super::rest`]) have read the request's shape.
//! They write the outcome in theirs.

use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use watertight_a2a::call::{Call, KEY_RULE, List, QueueWire, Send, TTL_PATH, TaskRef, is_key};
use watertight_a2a::edit;
use watertight_a2a::error::{A2a, Error};
use watertight_a2a::event::wrap;
use watertight_a2a::json;
use watertight_a2a::jsonrpc::Method;
use watertight_a2a::rest::query;
use watertight_a2a::traceparent::TraceParent;
use watertight_a2a::version::Version;
use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::input::{WireBudget, WireQueue};
use watertight_engine::record::{ReplyKind, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use super::auth::Who;
use super::body::Body;
use super::router::Router;
use super::sse::{Events, Shape};
use super::{redrive, render};
use crate::error::{Limits, Problem};
use crate::handle::{Declined, Filter, NewCall, NoPage, Trace, Want, idempotency_key};
use crate::hub::{EventId, TaskView};
use crate::outbox::Receipt;
use crate::states::state_of;

/// The most extensions that an answer names.
const MAX_NAMED: usize = 32;

/// The most that is said of extensions, to the agent as by the caller.
const MAX_EXTENSIONS_BYTES: usize = 4_096;

/// The most that is said to the agent with a cancel: it is kept beside the task.
const MAX_CANCEL_METADATA: usize = 16 << 10;

/// Where a request came in, and from whom.
pub(super) struct Line<'a> {
    pub(super) router: &'a Router,
    pub(super) who: Arc<Who>,
    pub(super) agent: AgentId,
    pub(super) head: &'a Parts,
    /// Of an answer that is a turn's end, for whoever writes it.
    pub(super) receipt: &'a Slot,
}

/// Where an operation leaves its receipt.
#[derive(Default)]
pub(super) struct Slot(Mutex<Option<Box<Receipt>>>);

impl Slot {
    pub(super) fn put(&self, receipt: Option<Receipt>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = receipt.map(Box::new);
    }

    pub(super) fn take(&self) -> Option<Box<Receipt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An operation's outcome, not yet written.
pub(super) enum Outcome {
    /// The result, as raw JSON.
    Result(Vec<u8>),
    /// The result's events.
    Events(Box<Events>),
}

impl Line<'_> {
    /// The limits of a body's JSON.
    pub(super) fn json_limits(&self) -> json::Limits {
        json::Limits { max_bytes: self.router.intake().limit(), ..json::Limits::default() }
    }

    /// Whether the caller speaks the version that is spoken here.
    pub(super) fn version(&self) -> Result<(), Problem> {
        let asked = self.head.uri.query().and_then(|text| query::joined(text, "a2a-version"));
        let headers = || self.head.headers.get_all("a2a-version").iter().filter_map(|value| value.to_str().ok());
        let said = || headers().chain(asked.as_deref());
        let wrong = match Version::of_request(said()) {
            Version::V1 => return Ok(()),
            Version::V03 if said().any(|said| !said.trim().is_empty()) => {
                "A2A version 0.3 is not spoken here".to_owned()
            }
            Version::V03 => "no A2A version is named, which means 0.3, and 0.3 is not spoken here".to_owned(),
            Version::Unsupported(version) => format!("A2A version {version} is not spoken here"),
            Version::Differing(versions) => format!("the request names differing A2A versions, {versions}"),
        };
        let text = format!("{wrong}; send the header `A2A-Version: 1.0`");
        Err(Error::a2a(A2a::VersionNotSupported).message(text).with("supportedVersions", "1.0").into())
    }

    pub(super) fn knows_agent(&self) -> bool {
        self.router.handle().rules().exists(&self.who, &self.agent) && self.router.agent(&self.agent).is_some()
    }

    pub(super) async fn carry_out(&self, shape: Shape, call: Call) -> Result<Outcome, Problem> {
        if let Call::Send(_) | Call::Stream(_) = call {
            self.check_extensions()?;
        }
        match call {
            Call::Send(send) => self.send(send).await.map(Outcome::Result),
            Call::Stream(send) => self.stream(shape, send).await,
            Call::Get(get) => {
                let view = self.task(&get.id).await?;
                Ok(Outcome::Result(render::task(&view, get.history_length, true)))
            }
            Call::List(list) => self.list(list).await.map(Outcome::Result),
            Call::Cancel(named) => self.cancel(&named).await.map(Outcome::Result),
            Call::Subscribe(named) => self.subscribe(shape, &named).await,
            Call::CreatePush(config) => self.create_push(config).await.map(Outcome::Result),
            Call::GetPush(named) => self.get_push(&named).await.map(Outcome::Result),
            Call::ListPush(list) => self.list_push(&list).await.map(Outcome::Result),
            Call::DeletePush(named) => self.delete_push(named).await.map(Outcome::Result),
            Call::ExtendedCard { .. } => Err(Error::a2a(A2a::ExtendedAgentCardNotConfigured).into()),
        }
    }

    /// The extensions that the caller asks for.
    fn asked_extensions(&self) -> impl Iterator<Item = &str> {
        let headers = self.head.headers.get_all("a2a-extensions").iter().filter_map(|value| value.to_str().ok());
        headers.flat_map(|value| value.split(',')).map(str::trim).filter(|uri| !uri.is_empty())
    }

    /// What the agent requires has to be asked for, as far as its card is known.
    fn check_extensions(&self) -> Result<(), Problem> {
        // They are asked for whole or not at all: the agent would do without those that were left out.
        if said_extensions(&self.head.headers).is_some_and(|all| all.len() > MAX_EXTENSIONS_BYTES) {
            let text = format!("must be at most {MAX_EXTENSIONS_BYTES} bytes long, all of its lines together");
            return Err(Error::invalid_params("A2A-Extensions", text).into());
        }
        let Some(card) = self.router.handle().card(&self.agent) else { return Ok(()) };
        let required = card.view.extensions.iter().filter(|(uri, required)| *required && !uri.is_empty());
        let missing: Vec<&str> = required
            .map(|(uri, _)| uri.as_str())
            .filter(|uri| !self.asked_extensions().any(|asked| asked == *uri))
            .take(MAX_NAMED)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        let text = format!(
            "agent {} requires extensions that were not asked for: send `A2A-Extensions: {missing}`",
            self.agent
        );
        let error = Error::a2a(A2a::ExtensionSupportRequired).message(text).agent(self.agent.as_str());
        Err(error.with("extensions", missing).into())
    }

    /// Tells the caller which of the extensions that it asked for the agent knows.
    pub(super) fn tell_extensions(&self, response: &mut Response<Body>) {
        let mut asked = self.asked_extensions().take(MAX_NAMED).peekable();
        if asked.peek().is_none() {
            return;
        }
        let Some(card) = self.router.handle().card(&self.agent) else { return };
        let mut known: Vec<&str> = Vec::new();
        for uri in asked {
            if !known.contains(&uri) && card.view.extensions.iter().any(|(declared, _)| declared == uri) {
                known.push(uri);
            }
        }
        if !known.is_empty() {
            let value = HeaderValue::try_from(known.join(", ")).ok();
            response.headers_mut().extend(value.map(|value| (HeaderName::from_static("a2a-extensions"), value)));
        }
    }

    /// A word in the log about what was not done.
    pub(super) fn log(&self, method: Method, problem: &Problem) {
        tracing::info!(
            agent = %self.agent,
            caller = %self.who.principal.caller,
            method = method.name(),
            code = problem.error.code,
            reason = problem.reason(),
            "not done"
        );
    }

    async fn send(&self, send: Send) -> Result<Vec<u8>, Problem> {
        let want = if send.peek.return_immediately { Want::Accepted } else { Want::Reply };
        let (history, asked) = (send.peek.history_length, send.peek.budget.as_ref().and_then(|b| b.remaining_s));
        let mut accepted = self.submit(send, want).await?;
        self.receipt.put(accepted.receipt.take());
        let view = accepted.view;
        // Failed, or the message surely never left and the task asks what it asked before.
        if let Some(reason) = view.reason.filter(|_| view.state == TaskState::Failed || view.state.is_interrupted()) {
            let mut problem = Problem::failed(&view, reason, &self.limits(asked));
            if accepted.replay {
                // It is the first one's failure that is told, and nothing was tried now.
                problem.error = problem.error.with("replay", "true").with("redrive", redrive::path(view.task));
            }
            return Err(problem);
        }
        let message = view.record.render_message_event();
        let alone = view.reply == ReplyKind::Message && view.state == TaskState::Completed;
        Ok(message.filter(|_| alone).unwrap_or_else(|| wrap("task", &render::task(&view, history, true))))
    }

    async fn stream(&self, shape: Shape, send: Send) -> Result<Outcome, Problem> {
        let accepted = self.submit(send, Want::Stream).await?;
        let events = accepted.stream.ok_or_else(|| Problem::of(Reason::Internal, "there is no stream to this task"))?;
        Ok(Outcome::Events(Box::new(Events::new(shape, &accepted.view, true, events))))
    }

    async fn submit(&self, send: Send, want: Want) -> Result<crate::handle::Accepted, Problem> {
        let (push, params) = match send.peek.push_config {
            true => (self.inline_push(&send)?, edit::without_push(&send.params)),
            false => (None, send.params),
        };
        let named = send.peek.task_id.clone();
        let queue = self.queue(send.peek.queue)?;
        let key = given_key(&self.head.headers, send.peek.idempotency_key.as_deref())?;
        let budget = send.peek.budget.clone().unwrap_or_default();
        let call = NewCall {
            principal: self.who.principal.clone(),
            who: Some(self.who.clone()),
            agent: self.agent.clone(),
            params: params.into_bytes(),
            peek: send.peek,
            want,
            wait: None,
            budget: WireBudget { remaining_s: budget.remaining_s, depth: budget.depth, fanout: budget.fanout },
            queue,
            parent: budget.task.as_deref().and_then(TaskId::parse),
            from: self.who.agent.clone(),
            trace: trace(&self.head.headers),
            key,
            redrives: None,
            outbox: self.who.outbox.clone(),
        };
        let submitted = self.router.handle().submit(call).await;
        let accepted = submitted.map_err(|declined| self.declined(declined, named.as_deref()))?;
        self.keep_push(accepted.task, push).await?;
        Ok(accepted)
    }

    /// What is wanted for the time in which the message waits, if the agent allows that.
    pub(super) fn queue(&self, wire: QueueWire) -> Result<WireQueue, Problem> {
        let ttl = wire.ttl_s.map(|seconds| Span::from_micros(seconds.saturating_mul(1_000_000)));
        let max = self.router.agent(&self.agent).map(|agent| agent.settings.queue_ttl_max);
        match max.filter(|max| ttl.is_some_and(|ttl| ttl > *max)) {
            None => Ok(WireQueue { priority: wire.priority, ttl }),
            Some(max) => {
                let text =
                    format!("must be at most {}: agent {} lets nobody wait longer", max.as_secs_f64(), self.agent);
                Err(Error::invalid_params(TTL_PATH, text).into())
            }
        }
    }

    async fn task(&self, id: &str) -> Result<TaskView, Problem> {
        let task = TaskId::parse(id).ok_or_else(not_found)?;
        let found = self.router.handle().task(&self.who.principal, &self.agent, task).await;
        found.map_err(|declined| self.declined(declined, Some(id)))
    }

    async fn cancel(&self, named: &TaskRef) -> Result<Vec<u8>, Problem> {
        let task = TaskId::parse(&named.id).ok_or_else(not_found)?;
        let said = named.metadata.as_ref().map(|said| edit::without_ours(said).detached());
        if said.as_ref().is_some_and(|said| said.as_bytes().len() > MAX_CANCEL_METADATA) {
            let text = format!("must be at most {MAX_CANCEL_METADATA} bytes long in a cancel");
            return Err(Error::invalid_params("metadata", text).into());
        }
        let canceled = self.router.handle().cancel(self.who.principal.clone(), self.agent.clone(), task, said).await;
        let view = canceled.map_err(|declined| self.declined(declined, Some(&named.id)))?;
        Ok(render::task(&view, None, true))
    }

    async fn subscribe(&self, shape: Shape, named: &TaskRef) -> Result<Outcome, Problem> {
        let view = self.task(&named.id).await?;
        let after = self.head.headers.get("last-event-id").and_then(|value| EventId::parse(value.to_str().ok()?));
        let subscribed = self.router.handle().subscribe(&self.who.principal, &self.agent, view.task, after).await;
        let events = subscribed.map_err(|declined| self.declined(declined, Some(&named.id)))?;
        Ok(Outcome::Events(Box::new(Events::new(shape, &view, false, events))))
    }

    async fn list(&self, list: List) -> Result<Vec<u8>, Problem> {
        let filter = Filter {
            agent: Some(self.agent.clone()),
            context: list.context_id,
            state: list.status.as_ref().map(state_of),
            changed_since: list.status_timestamp_after.map(|ms| Time::from_millis(u64::try_from(ms).unwrap_or(0))),
            limit: list.page_size as usize,
            after: list.page_token,
        };
        let page = self.router.handle().list(&self.who.principal, filter).await.map_err(|no| match no {
            NoPage::BadToken => Error::invalid_params("pageToken", "is no token of this list").into(),
            NoPage::StoreUnavailable => Problem::refusal(Reason::StoreUnavailable, "the store cannot be read"),
        })?;
        let mut out = b"{\"tasks\":[".to_vec();
        for (index, view) in page.tasks.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&render::task(view, list.history_length.or(Some(0)), list.include_artifacts));
        }
        out.extend_from_slice(b"],\"nextPageToken\":");
        watertight_a2a::text::quote(page.next.as_deref().unwrap_or(""), &mut out);
        out.extend_from_slice(format!(",\"pageSize\":{},\"totalSize\":{}}}", list.page_size, page.total).as_bytes());
        Ok(out)
    }

    pub(super) fn declined(&self, declined: Declined, task: Option<&str>) -> Problem {
        let walls = self.router.agent(&self.agent).map(|agent| &agent.settings);
        Problem::declined(declined, &self.agent, task, walls)
    }

    fn limits(&self, asked: Option<f64>) -> Limits<'_> {
        let agent = self.router.agent(&self.agent);
        Limits {
            walls: agent.map(|agent| &agent.settings),
            timeouts: agent.map(|agent| (agent.wire.connect_timeout, agent.wire.idle_timeout)),
            asked,
        }
    }
}

/// What the caller wants the message to be known by in place of its messageId.
fn given_key(headers: &HeaderMap, inside: Option<&str>) -> Result<Option<Arc<str>>, Problem> {
    let wrong = |why: &str| Problem::from(Error::invalid_params("Idempotency-Key", why));
    let mut said = headers.get_all("idempotency-key").iter();
    let (first, second) = (said.next(), said.next());
    if second.is_some() {
        return Err(wrong("occurs twice"));
    }
    let Some(first) = first else { return Ok(inside.map(idempotency_key)) };
    let text = first.to_str().ok().filter(|text| is_key(text)).ok_or_else(|| wrong(KEY_RULE))?;
    match inside {
        Some(inside) if inside != text => Err(wrong("differs from message.metadata.x-idempotency-key")),
        Some(_) | None => Ok(Some(idempotency_key(text))),
    }
}

fn not_found() -> Problem {
    Error::a2a(A2a::TaskNotFound).into()
}

/// What a request carries along to the agent: its trace, as far as it can be read (garbage is as good as nothing), and
/// the extensions that it asks for.
pub(super) fn trace(headers: &HeaderMap) -> Trace {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let parent = text("traceparent").filter(|value| TraceParent::parse(value).is_some());
    let state = text("tracestate").filter(|value| parent.is_some() && !value.is_empty() && value.len() <= 512);
    Trace {
        parent: parent.map(str::to_owned),
        state: state.map(str::to_owned),
        extensions: said_extensions(headers).filter(|all| all.len() <= MAX_EXTENSIONS_BYTES),
    }
}

/// The header may come several times; one with all of them means the same.
fn said_extensions(headers: &HeaderMap) -> Option<String> {
    let all: Vec<&str> = headers.get_all("a2a-extensions").iter().filter_map(|value| value.to_str().ok()).collect();
    Some(all.join(", ")).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_no_trace() {
        let of = |parent: &str, state: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_str(parent).unwrap());
            headers.insert("tracestate", HeaderValue::from_str(state).unwrap());
            trace(&headers)
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(
            of(good, "v=1"),
            Trace { parent: Some(good.to_owned()), state: Some("v=1".to_owned()), extensions: None }
        );
        assert_eq!(of("garbage", "v=1"), Trace::default());
        assert_eq!(of(good, &"x".repeat(513)).state, None);
    }
}

//! The JSON-RPC face: one request in, its operation carried out, one response or one stream out.
//!
//! Everything is answered with HTTP 200 and a JSON-RPC body, but a request that was refused as a whole: that carries
//! the status of its reason and a Retry-After too. The order of judgement: JSON, JSON-RPC, version, agent, params.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use watertight_a2a::call::{Call, List, Send, TaskRef};
use watertight_a2a::error::{A2a, Error};
use watertight_a2a::event::wrap;
use watertight_a2a::json;
use watertight_a2a::jsonrpc::{Id, parse_request, write_result};
use watertight_a2a::text::clean;
use watertight_a2a::traceparent::TraceParent;
use watertight_a2a::version::Version;
use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::input::WireBudget;
use watertight_engine::record::{ReplyKind, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use super::auth::Who;
use super::body::Body;
use super::render;
use super::router::Router;
use super::sse::Events;
use crate::error::{Limits, Problem};
use crate::handle::{Declined, Filter, NewCall, NoPage, Trace, Want};
use crate::hub::{EventId, TaskView};
use crate::states::state_of;

/// Where a request came in, and from whom.
pub(super) struct Line<'a> {
    pub(super) router: &'a Router,
    pub(super) who: Arc<Who>,
    pub(super) agent: AgentId,
    pub(super) headers: HeaderMap,
    pub(super) query: Option<String>,
}

/// An operation's outcome, not yet written.
enum Outcome {
    /// The result, as raw JSON.
    Result(Vec<u8>),
    /// The result's events.
    Events(Box<Events>),
}

/// Answers one request.
pub(super) async fn answer(line: Line<'_>, body: Bytes) -> Response<Body> {
    let limits = json::Limits { max_bytes: line.router.intake().limit(), ..json::Limits::default() };
    let request = match parse_request(body, &limits) {
        Ok(request) => request,
        Err(rejected) => return problem(&rejected.id, rejected.error.into()),
    };
    let id = request.id;
    if let Err(error) = line.version() {
        return problem(&id, error.into());
    }
    if !line.knows_agent() {
        return problem(&id, unknown(&line.agent));
    }
    let call = match Call::parse(request.method, request.params) {
        Ok(call) => call,
        Err(error) => return problem(&id, error.into()),
    };
    match line.carry_out(&id, call).await {
        Ok(Outcome::Result(result)) => json_response(StatusCode::OK, write_result(&id, &result)),
        Ok(Outcome::Events(events)) => stream_response(events),
        Err(problem_) => {
            tracing::info!(
                agent = %line.agent,
                caller = %line.who.principal.caller,
                method = request.method.name(),
                code = problem_.error.code,
                reason = problem_.reason(),
                "not done"
            );
            problem(&id, problem_)
        }
    }
}

impl Line<'_> {
    fn version(&self) -> Result<(), Error> {
        let header = self.headers.get("a2a-version").and_then(|value| value.to_str().ok());
        let query = self.query.as_deref().and_then(version_in);
        let wrong = match Version::of_request(header, query.as_deref()) {
            Version::V1 => return Ok(()),
            Version::V03 if header.is_some_and(|header| !header.trim().is_empty()) => {
                "A2A version 0.3 is not spoken here".to_owned()
            }
            Version::V03 => "no A2A version is named, which means 0.3, and 0.3 is not spoken here".to_owned(),
            Version::Unsupported(version) => format!("A2A version {version} is not spoken here"),
        };
        let text = format!("{wrong}; send the header `A2A-Version: 1.0`");
        Err(Error::a2a(A2a::VersionNotSupported).message(text).with("supportedVersions", "1.0"))
    }

    fn knows_agent(&self) -> bool {
        self.who.may_call(&self.agent) && self.router.agent(&self.agent).is_some()
    }

    async fn carry_out(&self, id: &Id, call: Call) -> Result<Outcome, Problem> {
        match call {
            Call::Send(send) => self.send(send).await.map(Outcome::Result),
            Call::Stream(send) => self.stream(id, send).await,
            Call::Get(get) => {
                let view = self.task(&get.id).await?;
                Ok(Outcome::Result(render::task(&view, get.history_length, true)))
            }
            Call::List(list) => self.list(list).await.map(Outcome::Result),
            Call::Cancel(named) => self.cancel(&named).await.map(Outcome::Result),
            Call::Subscribe(named) => self.subscribe(id, &named).await,
            Call::CreatePush(_) | Call::GetPush(_) | Call::ListPush(_) | Call::DeletePush(_) => Err(no_push().into()),
            Call::ExtendedCard { .. } => Err(Error::a2a(A2a::ExtendedAgentCardNotConfigured).into()),
        }
    }

    async fn send(&self, send: Send) -> Result<Vec<u8>, Problem> {
        let want = if send.peek.return_immediately { Want::Accepted } else { Want::Reply };
        let (history, asked) = (send.peek.history_length, send.peek.budget.as_ref().and_then(|b| b.remaining_s));
        let accepted = self.submit(send, want).await?;
        let view = accepted.view;
        if let Some(reason) = view.reason.filter(|_| view.state == TaskState::Failed) {
            return Err(Problem::failed(&view, reason, &self.limits(asked)));
        }
        let message = view.record.render_message_event();
        let alone = view.reply == ReplyKind::Message && view.state == TaskState::Completed;
        Ok(message.filter(|_| alone).unwrap_or_else(|| wrap("task", &render::task(&view, history, true))))
    }

    async fn stream(&self, id: &Id, send: Send) -> Result<Outcome, Problem> {
        let accepted = self.submit(send, Want::Stream).await?;
        let events = accepted.stream.ok_or_else(|| Problem::of(Reason::Internal, "there is no stream to this task"))?;
        Ok(Outcome::Events(Box::new(Events::new(id.clone(), &accepted.view, true, events))))
    }

    async fn submit(&self, send: Send, want: Want) -> Result<crate::handle::Accepted, Problem> {
        if send.peek.push_config {
            return Err(no_push().into());
        }
        let named = send.peek.task_id.clone();
        let budget = send.peek.budget.clone().unwrap_or_default();
        let call = NewCall {
            principal: self.who.principal.clone(),
            agent: self.agent.clone(),
            params: send.params.into_bytes(),
            peek: send.peek,
            want,
            wait: None,
            budget: WireBudget { remaining_s: budget.remaining_s, depth: budget.depth, fanout: budget.fanout },
            parent: budget.task.as_deref().and_then(TaskId::parse),
            trace: trace(&self.headers),
        };
        let submitted = self.router.handle().submit(call).await;
        submitted.map_err(|declined| self.declined(declined, named.as_deref()))
    }

    async fn task(&self, id: &str) -> Result<TaskView, Problem> {
        let task = TaskId::parse(id).ok_or_else(not_found)?;
        let found = self.router.handle().task(&self.who.principal, &self.agent, task).await;
        found.map_err(|declined| self.declined(declined, Some(id)))
    }

    async fn cancel(&self, named: &TaskRef) -> Result<Vec<u8>, Problem> {
        let task = TaskId::parse(&named.id).ok_or_else(not_found)?;
        let canceled = self.router.handle().cancel(self.who.principal.clone(), self.agent.clone(), task).await;
        let view = canceled.map_err(|declined| self.declined(declined, Some(&named.id)))?;
        Ok(render::task(&view, None, true))
    }

    async fn subscribe(&self, id: &Id, named: &TaskRef) -> Result<Outcome, Problem> {
        let view = self.task(&named.id).await?;
        let after = self.headers.get("last-event-id").and_then(|value| EventId::parse(value.to_str().ok()?));
        let subscribed = self.router.handle().subscribe(&self.who.principal, &self.agent, view.task, after).await;
        let events = subscribed.map_err(|declined| self.declined(declined, Some(&named.id)))?;
        Ok(Outcome::Events(Box::new(Events::new(id.clone(), &view, false, events))))
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

    fn declined(&self, declined: Declined, task: Option<&str>) -> Problem {
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

fn not_found() -> Problem {
    Error::a2a(A2a::TaskNotFound).into()
}

fn no_push() -> Error {
    Error::a2a(A2a::PushNotificationNotSupported)
}

/// There is no such agent for this caller.
pub(super) fn unknown(agent: &AgentId) -> Problem {
    let name = clean(agent.as_str(), 64);
    let mut problem =
        Problem::refusal(Reason::AgentUnknown, format!("agent {name}: there is no such agent for this caller"));
    problem.error = problem.error.agent(&name);
    problem
}

/// `A2A-Version` in a query, whatever its case.
fn version_in(query: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("a2a-version")).map(|(_, value)| clean(value, 32))
}

/// What a request carries along to the agent: its trace, as far as it can be read (garbage is as good as nothing), and
/// the extensions that it asks for.
fn trace(headers: &HeaderMap) -> Trace {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let parent = text("traceparent").filter(|value| TraceParent::parse(value).is_some());
    let state = text("tracestate").filter(|value| parent.is_some() && !value.is_empty() && value.len() <= 512);
    // The header may come several times; one with all of them means the same.
    let extensions: Vec<&str> =
        headers.get_all("a2a-extensions").iter().filter_map(|value| value.to_str().ok()).collect();
    let extensions = Some(extensions.join(", ")).filter(|all| !all.is_empty() && all.len() <= 4_096);
    Trace { parent: parent.map(str::to_owned), state: state.map(str::to_owned), extensions }
}

/// The response for a request that has no result.
pub(super) fn problem(id: &Id, problem: Problem) -> Response<Body> {
    let mut response = json_response(problem.status, problem.error.to_jsonrpc(id));
    decorate(response.headers_mut(), &problem);
    response
}

/// The headers that say the same as the body to those who do not read it.
pub(super) fn decorate(headers: &mut HeaderMap, problem: &Problem) {
    if let Some(after) = problem.retry_after.filter(|_| problem.status != StatusCode::OK) {
        let seconds = after.as_micros().div_ceil(1_000_000).max(1);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"watertight\""));
    }
}

pub(super) fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Full(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn stream_response(events: Box<Events>) -> Response<Body> {
    let mut response = Response::new(Body::Events(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
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

    #[test]
    fn the_version_may_stand_in_the_query() {
        assert_eq!(version_in("a=b&A2A-Version=1.0").as_deref(), Some("1.0"));
        assert_eq!(version_in("a2a-versions=1.0"), None);
    }

    #[test]
    fn a_refusal_says_when_to_come_back_in_the_header_too() {
        let again =
            Problem::refusal(Reason::BreakerOpen, "x").again(Some(watertight_policy::time::Span::from_millis(1_200)));
        let response = problem(&Id::null(), again);
        assert_eq!(response.status().as_u16(), 503);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let denied = problem(&Id::null(), Problem::refusal(Reason::Unauthenticated, "x"));
        assert_eq!(denied.status().as_u16(), 401);
        assert!(denied.headers().contains_key(header::WWW_AUTHENTICATE));
    }
}

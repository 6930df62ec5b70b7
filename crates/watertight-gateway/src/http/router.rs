//! From a path to what answers it. Every refusal has the shape of the face that it is for: JSON-RPC at an agent's
//! address, HTTP+JSON below it and elsewhere.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watertight_a2a::error::{Error, INTERNAL, INVALID_REQUEST};
use watertight_a2a::jsonrpc::Id;
use watertight_engine::ids::{AgentId, Owner};
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::auth::{Auth, Denied, Who};
use super::body::{Body, Intake, Untaken, discard};
use super::doors::{DOORS, Found, Route};
use super::line::{Line, Slot};
use super::live::{Common, Live};
use super::mcp::Mcp;
use super::public::Public;
use super::reply::{json_response, nothing, plain, unknown, wrong_method};
use super::server::Service;
use super::{
    api, audit, cards, delegations, drain, inbox, outbox, queue, redrive, registry, reload, rest, rpc, workspaces,
};
use crate::config::{Agent, Caller, Config};
use crate::error::Problem;
use crate::handle::Handle;
use crate::tools::Desk;

/// Everything that answers requests.
pub(super) struct Router {
    handle: Handle,
    auth: Auth,
    agents: BTreeMap<AgentId, Agent>,
    /// No longer configured: what they have can be followed to its end.
    leaving: BTreeMap<AgentId, Agent>,
    /// Those of the agents that registered themselves, and by which enrolment.
    registered: BTreeMap<AgentId, String>,
    intake: Intake,
    public: Public,
    since: SystemTime,
    draining: CancellationToken,
    answers: outbox::Answers,
    mcp: Mcp,
    live: Weak<Live>,
}

impl Router {
    /// Answers for these agents and callers; nothing of it changes.
    pub(super) fn new(
        config: &Config,
        callers: &[Caller],
        leaving: &BTreeMap<AgentId, Agent>,
        intake: Intake,
        common: &Common,
        live: Weak<Live>,
    ) -> Router {
        Router {
            auth: Auth::new(common.key.clone(), callers, common.tokens.clone(), common.handle.clock(), config),
            agents: config.agents.clone(),
            leaving: leaving.clone(),
            registered: config
                .registered
                .iter()
                .filter(|(name, _)| config.is_registered(name))
                .map(|(name, record)| (name.clone(), record.enrolment.clone()))
                .collect(),
            intake,
            public: Public::new(config.public_url.as_deref(), &config.trusted_proxies, &common.listening),
            handle: common.handle.clone(),
            since: common.since,
            draining: common.draining.clone(),
            mcp: Mcp::new(Desk::new(common.handle.clone(), config.agents.clone())),
            answers: outbox::Answers::of(config.agents.iter().chain(leaving)),
            live,
        }
    }

    /// The configuration's keeper, while the gateway runs.
    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.live.upgrade()
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn intake(&self) -> &Intake {
        &self.intake
    }

    pub(super) fn agent(&self, name: &AgentId) -> Option<&Agent> {
        self.agents.get(name).or_else(|| self.leaving.get(name))
    }

    /// It is no longer configured, and takes nothing new.
    pub(super) fn is_leaving(&self, name: &AgentId) -> bool {
        !self.agents.contains_key(name) && self.leaving.contains_key(name)
    }

    /// Whether it is an agent of the configuration in force, and not one that leaves.
    pub(super) fn is_served(&self, name: &AgentId) -> bool {
        self.agents.contains_key(name)
    }

    /// The enrolment of an agent that registered itself.
    pub(super) fn enrolment(&self, name: &AgentId) -> Option<&str> {
        self.registered.get(name).map(String::as_str)
    }

    async fn route(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let route = match self.public.find(&head.method, path, &head.headers, peer) {
            Found::Door(route) => route,
            Found::Methods(methods) => return self.not_so(&methods, &head, peer),
            Found::Nothing => return plain(&nothing(path)),
        };
        match route {
            Route::Index => self.guarded(&head.uri, &head.headers, index),
            Route::Health => json_response(StatusCode::OK, r#"{"status":"alive"}"#),
            Route::Ready => self.ready(),
            Route::Metrics => self.operated(&head.uri, &head.headers, || self.metrics()),
            Route::Agents => self.operated(&head.uri, &head.headers, || api::agents(self)),
            Route::Register => match self.registrant(&head) {
                Ok(by) => match self.intake.read(&head.headers, body).await {
                    Ok(body) => registry::register(self, by, &body).await,
                    Err(untaken) => plain(&self.untaken(untaken)),
                },
                Err(problem) => plain(&problem),
            },
            Route::Agent(agent) => match self.auth.who(&head.uri, &head.headers) {
                Ok(who) => registry::show(self, &who, &AgentId::new(agent)).await,
                Err(denied) => plain(&refused(denied)),
            },
            Route::Dismiss(agent) => match self.auth.who(&head.uri, &head.headers) {
                Ok(who) => registry::dismiss(self, &who, AgentId::new(agent)).await,
                Err(denied) => plain(&refused(denied)),
            },
            Route::ResetBreaker(agent) => match self.auth.operator(&head.uri, &head.headers) {
                Ok(_) => api::reset_breaker(self, &AgentId::new(agent)).await,
                Err(denied) => plain(&refused(denied)),
            },
            Route::Drain(agent) => match self.auth.operator(&head.uri, &head.headers) {
                Ok(_) => match self.intake.read(&head.headers, body).await {
                    Ok(body) => drain::drain(self, &AgentId::new(agent), &body).await,
                    Err(untaken) => plain(&self.untaken(untaken)),
                },
                Err(denied) => plain(&refused(denied)),
            },
            Route::Resume(agent) => match self.auth.operator(&head.uri, &head.headers) {
                Ok(_) => drain::resume(self, &AgentId::new(agent)).await,
                Err(denied) => plain(&refused(denied)),
            },
            Route::Queue(agent) => match self.auth.operator(&head.uri, &head.headers) {
                Ok(who) => queue::list(self, &who, &AgentId::new(agent), head.uri.query().unwrap_or("")).await,
                Err(denied) => plain(&refused(denied)),
            },
            Route::Drop(task) => match self.auth.operator(&head.uri, &head.headers) {
                Ok(who) => match self.intake.read(&head.headers, body).await {
                    Ok(body) => queue::drop(self, &who, task, &body).await,
                    Err(untaken) => plain(&self.untaken(untaken)),
                },
                Err(denied) => plain(&refused(denied)),
            },
            Route::Config => self.operated(&head.uri, &head.headers, || reload::shown(self)),
            Route::Reload => match self.auth.admin(&head.uri, &head.headers) {
                Ok(who) => reload::reload(self, &who).await,
                Err(denied) => plain(&refused(denied)),
            },
            Route::Audit => match self.auth.operator(&head.uri, &head.headers) {
                Ok(who) => audit::list(self, &who, head.uri.query().unwrap_or("")).await,
                Err(denied) => plain(&refused(denied)),
            },
            Route::Delegations => {
                let query = head.uri.query().unwrap_or("");
                self.read(&head, async |who| delegations::list(self, who, query).await).await
            }
            Route::Delegation(task) => self.read(&head, async |who| delegations::show(self, who, task).await).await,
            Route::Tree(task) => self.read(&head, async |who| delegations::tree(self, who, task).await).await,
            Route::Redrive(task) => self.read(&head, async |who| redrive::redrive(self, who, task).await).await,
            Route::Outbox => {
                let query = head.uri.query().unwrap_or("");
                match self.owner(&head) {
                    Ok(owner) => outbox::list(self, &owner, query, &self.still(&head, &owner)).await,
                    Err(problem) => plain(&problem),
                }
            }
            Route::OutboxPending => match self.owner(&head) {
                Ok(owner) => outbox::pending(self, &owner).await,
                Err(problem) => plain(&problem),
            },
            Route::OutboxStream => match self.owner(&head) {
                Ok(owner) => {
                    let still = self.still(&head, &owner);
                    outbox::stream(self, owner, head.uri.query().unwrap_or(""), &head.headers, still)
                }
                Err(problem) => plain(&problem),
            },
            Route::OutboxAck => match self.owner(&head) {
                Ok(owner) => match self.intake.read(&head.headers, body).await {
                    Ok(body) => outbox::acknowledge(self, owner, &body).await,
                    Err(untaken) => plain(&self.untaken(untaken)),
                },
                Err(problem) => plain(&problem),
            },
            Route::Inbox => match self.worker(&head) {
                Ok(agent) => inbox::show(self, &agent),
                Err(problem) => plain(&problem),
            },
            Route::InboxClaim => match self.worker(&head) {
                Ok(agent) => inbox::claim(self, &agent, head.uri.query().unwrap_or("")).await,
                Err(problem) => plain(&problem),
            },
            Route::InboxWord(task, verb) => match self.worker(&head) {
                Ok(agent) => match self.intake.read(&head.headers, body).await {
                    Ok(body) => inbox::say(self, &agent, task, verb, &body).await,
                    Err(untaken) => plain(&self.untaken(untaken)),
                },
                Err(problem) => plain(&problem),
            },
            Route::Mcp => self.mcp(head, body).await,
            Route::Card(agent) => self.card(&AgentId::new(agent), &head, peer),
            Route::Rpc(agent) => self.rpc(AgentId::new(agent), &head, body, false).await,
            Route::OpenRpc(agent) => self.rpc(AgentId::new(agent), &head, body, true).await,
            Route::Delegate(agent) => self.delegate(AgentId::new(agent), &head, body).await,
            Route::Dealings(agent) => match self.enter(&head) {
                Ok(who) => workspaces::list(self, &who, &AgentId::new(agent), head.uri.query().unwrap_or("")).await,
                Err(problem) => workspaces::refuse(problem),
            },
            Route::Dealing(agent, id) => match self.enter(&head) {
                Ok(who) => workspaces::show(self, &who, &AgentId::new(agent), id).await,
                Err(problem) => workspaces::refuse(problem),
            },
            Route::Rest(agent, below) => self.rest(AgentId::new(agent), below, &head, body).await,
        }
    }

    async fn mcp(&self, head: Parts, body: Incoming) -> Response<Body> {
        let who = match self.enter(&head) {
            Ok(who) => who,
            Err(problem) => return plain(&problem),
        };
        match self.intake.read(&head.headers, body).await {
            Ok(body) => self.mcp.answer(who, head, body).await,
            Err(untaken) => plain(&self.untaken(untaken)),
        }
    }

    /// `opens`: a body may come without its envelope.
    async fn rpc(&self, agent: AgentId, head: &Parts, body: Incoming, opens: bool) -> Response<Body> {
        let whole = |problem| rpc::problem(&Id::null(), problem);
        let read = async {
            let who = self.enter(head)?;
            let body = self.intake.read(&head.headers, body).await.map_err(|untaken| self.untaken(untaken))?;
            Ok((who, body))
        };
        match read.await {
            Ok((who, body)) => {
                let receipt = Slot::default();
                let line = Line { router: self, who, agent, head, receipt: &receipt };
                let answer = match opens {
                    true => rpc::answer_open(line, body).await,
                    false => rpc::answer(line, body).await,
                };
                answer.map(|body| body.with(receipt.take()))
            }
            Err(problem) => whole(problem),
        }
    }

    async fn delegate(&self, agent: AgentId, head: &Parts, body: Incoming) -> Response<Body> {
        let read = async {
            let who = self.enter(head)?;
            let body = self.intake.read(&head.headers, body).await.map_err(|untaken| self.untaken(untaken))?;
            Ok((who, body))
        };
        match read.await {
            Ok((who, body)) => {
                let receipt = Slot::default();
                workspaces::delegate(Line { router: self, who, agent, head, receipt: &receipt }, body).await
            }
            Err(problem) => workspaces::refuse(problem),
        }
    }

    async fn rest(&self, agent: AgentId, below: &str, head: &Parts, body: Incoming) -> Response<Body> {
        let whole = |problem| rest::problem(&head.headers, problem);
        let who = match self.enter(head) {
            Ok(who) => who,
            Err(problem) => return whole(problem),
        };
        let receipt = Slot::default();
        let line = Line { router: self, who, agent, head, receipt: &receipt };
        let asked = match rest::ask(&line, below) {
            Ok(asked) => asked,
            Err(response) => {
                discard(body);
                return *response;
            }
        };
        // What comes with a GET means nothing.
        let read =
            if head.method == Method::POST { self.intake.read(&head.headers, body).await } else { Ok(Bytes::new()) };
        match read {
            Ok(body) => rest::answer(line, asked, body).await.map(|body| body.with(receipt.take())),
            Err(untaken) => whole(self.untaken(untaken)),
        }
    }

    /// A path that does not take this method.
    fn not_so(&self, methods: &[&str], head: &Parts, peer: IpAddr) -> Response<Body> {
        let text = match self.public.find(&Method::POST, head.uri.path(), &head.headers, peer) {
            Found::Door(Route::Rpc(_) | Route::OpenRpc(_)) => {
                "this takes JSON-RPC by POST; the agent's card is at .well-known/agent-card.json below it, and HTTP+JSON at \
                 message:send and tasks"
                    .to_owned()
            }
            Found::Door(_) | Found::Methods(_) | Found::Nothing => format!("this takes {}", methods.join(" and ")),
        };
        wrong_method(methods, &text)
    }

    /// Who it is, before anything is read.
    fn enter(&self, head: &Parts) -> Result<Arc<Who>, Problem> {
        // Cheap, and it tells a stranger nothing: a body that is announced as too large is not even waited for.
        let announced = head.headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|n| n > self.intake.limit() as u64) {
            return Err(self.untaken(Untaken::TooLarge));
        }
        self.auth.caller(&head.uri, &head.headers).map_err(refused)
    }

    /// Whose outbox it is that is asked for: always the caller's own.
    fn owner(&self, head: &Parts) -> Result<Owner, Problem> {
        self.owner_by(&head.uri, &head.headers)
    }

    fn owner_by(&self, uri: &Uri, headers: &HeaderMap) -> Result<Owner, Problem> {
        outbox::owner(&*self.auth.caller(uri, headers).map_err(refused)?)
    }

    /// Whether whoever came in by this may still read this outbox. A credential that was taken back, or an agent that was let
    /// go, must not read on because it began before.
    fn still(&self, head: &Parts, owner: &Owner) -> outbox::Still {
        let (live, uri, headers, owner) = (self.live.clone(), head.uri.clone(), head.headers.clone(), owner.clone());
        Box::new(move || {
            let now = live.upgrade().map(|live| live.router().owner_by(&uri, &headers));
            now.is_some_and(|now| now.is_ok_and(|now| now == owner))
        })
    }

    /// The agent whose worker asks.
    fn worker(&self, head: &Parts) -> Result<AgentId, Problem> {
        let who = self.auth.caller(&head.uri, &head.headers).map_err(refused)?;
        inbox::agent(&self.handle, &who)
    }

    /// By what an agent comes that registers: an enrolment's secret, or its own token.
    fn registrant(&self, head: &Parts) -> Result<registry::By, Problem> {
        if let Some(enrolment) = self.auth.enrolment(&head.headers) {
            return Ok(registry::By::Enrolment(enrolment.to_owned()));
        }
        match self.auth.who(&head.uri, &head.headers) {
            Ok(who) if who.enrolled.is_some() => Ok(registry::By::Token(who)),
            // Whatever is shown, and to whomever: there is nothing that would let anybody in.
            Ok(_) | Err(_) if !self.auth.enrols() => Err(registry::nobody_enrols()),
            Ok(who) => Ok(registry::By::Token(who)),
            Err(denied) => Err(refused(denied)),
        }
    }

    /// Until then there is something to wait for.
    pub(super) fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// How much of each agent's results is told at once.
    pub(super) fn answers(&self) -> outbox::Answers {
        self.answers.clone()
    }

    async fn read(&self, head: &Parts, answer: impl AsyncFnOnce(&Who) -> Response<Body>) -> Response<Body> {
        match self.auth.reader(&head.uri, &head.headers) {
            Ok(who) => answer(&who).await,
            Err(denied) => plain(&refused(denied)),
        }
    }

    fn untaken(&self, untaken: Untaken) -> Problem {
        let bad = |status, text: &str| Problem::http(status, Error::new(INVALID_REQUEST, text));
        match untaken {
            Untaken::TooLarge => {
                let text = format!("the request is larger than max_request_bytes, {} bytes", self.intake.limit());
                let mut problem = Problem::refusal(Reason::TooLarge, text);
                problem.error = problem.error.with("limitBytes", self.intake.limit().to_string());
                problem
            }
            Untaken::TooSlow => bad(StatusCode::REQUEST_TIMEOUT, "the request's body did not come within body_timeout"),
            Untaken::NoRoom => {
                Problem::refusal(Reason::CellOverloaded, "too many request bodies are being read at once")
                    .again(Some(Span::from_secs(1)))
            }
            Untaken::Encoded => {
                bad(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a Content-Encoding is not accepted; send the body as it is")
            }
            Untaken::Broken => bad(StatusCode::BAD_REQUEST, "the request's body broke off"),
        }
    }

    fn guarded(&self, uri: &Uri, headers: &HeaderMap, answer: impl FnOnce() -> Response<Body>) -> Response<Body> {
        match self.auth.who(uri, headers) {
            Ok(_) => answer(),
            Err(denied) => plain(&refused(denied)),
        }
    }

    fn operated(&self, uri: &Uri, headers: &HeaderMap, answer: impl FnOnce() -> Response<Body>) -> Response<Body> {
        match self.auth.operator(uri, headers) {
            Ok(_) => answer(),
            Err(denied) => plain(&refused(denied)),
        }
    }

    fn ready(&self) -> Response<Body> {
        let (status, word) = if self.draining.is_cancelled() {
            (StatusCode::SERVICE_UNAVAILABLE, "draining")
        } else if self.handle.ready() {
            (StatusCode::OK, "ready")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready")
        };
        json_response(status, json!({ "status": word }).to_string())
    }

    fn metrics(&self) -> Response<Body> {
        let mut response = Response::new(Body::Full(self.handle.metrics().into()));
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    fn card(&self, name: &AgentId, head: &Parts, peer: IpAddr) -> Response<Body> {
        let (uri, headers) = (&head.uri, &head.headers);
        let who = match self.auth.caller(uri, headers) {
            Ok(who) => who,
            Err(denied) => return plain(&refused(denied)),
        };
        // Whoever looks for an agent to call is not shown one that takes nothing new.
        let Some(agent) = self.agents.get(name).filter(|_| self.handle.rules().shows(&who, name)) else {
            return plain(&unknown(name));
        };
        let upstream = self.handle.card(name);
        let upstream = upstream.as_ref().map(|card| card.raw.as_bytes());
        let base = self.public.base(uri, headers, peer);
        let ways = (!self.auth.is_open(), self.handle.pushes_news());
        let mut response = cards::serve(agent, upstream, &base, ways, self.since, headers);
        let vary = self.public.vary().map(|names| (header::VARY, HeaderValue::from_static(names)));
        response.headers_mut().extend(vary);
        response
    }
}

impl Service for Router {
    async fn call(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        self.route(request, peer).await
    }

    fn panicked(&self, uri: &Uri) -> Response<Body> {
        let text = "the gateway made a mistake; it is in its log";
        let mut problem = Problem::of(Reason::Internal, text);
        problem.error.code = INTERNAL;
        let nobody = IpAddr::from([0, 0, 0, 0]);
        match self.public.find(&Method::POST, uri.path(), &HeaderMap::new(), nobody) {
            Found::Door(Route::Rpc(_) | Route::OpenRpc(_)) => rpc::problem(&Id::null(), problem),
            Found::Door(_) | Found::Methods(_) | Found::Nothing => plain(&problem),
        }
    }
}

fn refused(denied: Denied) -> Problem {
    Problem::refusal(denied.reason, denied.text)
}

/// What there is, and where: for people who look, and for programs that check what may come out where.
fn index() -> Response<Body> {
    let doors = DOORS.iter().map(|door| {
        let methods = if door.methods.is_empty() { "as A2A's HTTP+JSON says".to_owned() } else { door.methods.join(", ") };
        json!({ "path": if door.path.is_empty() { "/" } else { door.path }, "methods": methods, "agentsWords": door.words.as_str() })
    });
    let body = json!({
        "name": "watertight",
        "version": env!("CARGO_PKG_VERSION"),
        "a2a": "/agents/{agent}",
        "card": "/agents/{agent}/.well-known/agent-card.json",
        "agents": "/v1/agents",
        "config": "/v1/config",
        "delegations": "/v1/delegations",
        "outbox": "/v1/outbox",
        "inbox": "/v1/inbox",
        "metrics": "/metrics",
        "health": ["/healthz", "/readyz"],
        "doors": doors.collect::<Vec<_>>(),
    });
    json_response(StatusCode::OK, body.to_string())
}

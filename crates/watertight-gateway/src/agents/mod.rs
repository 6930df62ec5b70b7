//! Everything that talks *to* agents: connections, sends, streams, polls, cancels, cards.
//!
//! One [`Agent`] per configured agent. Nothing is shared between two agents, and within one agent nothing is shared
//! between sends and the small questions beside them (polls, cancels, cards), so that a full or hanging agent can still
//! be asked how it stands, and be told to stop.
//!
//! Assumes that the engine decides: what may be sent, when it is enough (it drops the future, which closes the
//! connection), and whether to try again. Nothing here sends a message twice, unless it is certain that no byte of the
//! first one left. Leaves out records, numbers and streams toward callers: that is the [`Relay`]'s.

mod ask;
mod cancel;
mod cards;
mod connect;
mod endpoints;
mod events;
mod fault;
mod guard;
mod inspect;
mod lookup;
mod pool;
mod post;
mod questions;
#[cfg(test)]
mod tests;
mod turn;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use watertight_a2a::error::A2a;
use watertight_a2a::event::Event;
use watertight_a2a::json::Json;
use watertight_engine::ids::RemoteId;
use watertight_engine::input::Fault;
use watertight_engine::output::Dispatch;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;

use crate::clock::Clock;
use fault::Failure;
use turn::Turn;

pub use cards::Card;
pub(crate) use connect::resolves;
pub use guard::Guard;
pub use inspect::{CardFacts, CardReport, InterfaceFacts, Place, Use, inspect};
pub(crate) use post::{post, post_to};

/// Stands for the address of an agent that has none, and leads nowhere.
pub const NOWHERE: &str = "http://nowhere.invalid/";

/// Cancels under way at one agent; more wait for their turn, within their time.
const MAX_CANCELS: usize = 32;

/// Who gets what an agent says while it works on a turn. Called in order, from one task, and never waited for.
///
/// The turn is over when [`Agent::send`] or [`Agent::watch`] returns. `Ok` there means that the last event handed over was
/// the agent's word: a task or status in a terminal or interrupted state, or a lone message.
pub trait Relay: Send {
    /// The agent said this. Every event comes here, in the order in which the agent sent it: events of streams, the
    /// answer to a send, and the answers to polls as far as they differ from the one before. A task is a snapshot: it
    /// replaces what was put together before it.
    ///
    /// `event.raw` is what the agent wrote, under its own ids.
    ///
    /// `Break` refuses the event (a task id that belongs to another delegation, a record over its limit): the attempt
    /// ends with that fault, and the connection is closed.
    fn event(&mut self, event: Event) -> ControlFlow<Fault>;

    /// Something that is no event. Nothing has to be done about it.
    fn learnt(&mut self, news: News) {
        let _ = news;
    }
}

/// What is seen beside the events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The agent's stream is open.
    Streaming,
    /// Bytes came on the stream: an event, part of one, or a comment that only says that it lives.
    Heartbeat,
    /// An event of an unknown kind came on the stream, and was passed over.
    Unknown,
    /// The stream ended, broke or went silent before the turn was over. The agent is asked how the task stands.
    Lost,
    /// An answer to a poll: the agent lives, whatever it said.
    Polled,
    /// A poll got no answer. So many in a row, since so long.
    Silent {
        /// Polls without an answer, in a row.
        polls: u32,
        /// Since the last answer.
        since: Duration,
    },
}

/// What to deliver, or only to watch.
#[derive(Clone, Debug)]
pub struct Job {
    /// The engine's order.
    pub dispatch: Dispatch,
    /// What the agent may show to be charged for what it starts: `x-delegation`.
    pub delegation: String,
    /// The `params` of SendMessage as the caller sent them.
    pub message: Json,
    /// What our task ids in `referenceTaskIds` are called at the agent. Others go as they came.
    pub references: Vec<(String, RemoteId)>,
    /// The tenant at the agent that the task began in, if its caller named one; it outranks the card's.
    pub tenant: Option<Arc<str>>,
    /// To be sent along: a child of the caller's, or a new trace.
    pub traceparent: Option<HeaderValue>,
    /// Likewise.
    pub tracestate: Option<HeaderValue>,
    /// The caller's A2A-Extensions, as far as they may be passed on.
    pub extensions: Option<HeaderValue>,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct End {
    /// By the agent's word, which the relay has; or why not.
    pub ended: Result<(), Fault>,
    /// What there is to say about it to people.
    pub detail: Option<Detail>,
}

/// What went wrong, for error texts and logs. All text is bounded, and free of control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// A sentence.
    pub what: String,
    /// The HTTP status that the agent, or a proxy before it, answered with.
    pub status: Option<u16>,
    /// The Content-Type that came with it.
    pub content_type: Option<String>,
    /// The start of the body, at most 200 bytes.
    pub excerpt: Option<String>,
    /// The WWW-Authenticate header of a 401 or 403.
    pub challenge: Option<String>,
    /// The error of the agent's own, if there was one.
    pub agent_error: Option<AgentError>,
    /// How long the attempt had taken by then.
    pub waited: Duration,
}

/// An error that the agent answered with, as it said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentError {
    /// The JSON-RPC code.
    pub code: i64,
    /// The text, cleaned and bounded.
    pub message: String,
    /// The `data` member, raw.
    pub data: Option<Json>,
}

/// How to talk to one agent.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Its name in errors, logs and metrics.
    pub name: Arc<str>,
    /// Where it is called, unless its card names a place on the same scheme, host and port: `http` or `https`, with a host.
    pub url: Uri,
    /// A stranger chose `url`: where a connection may lead.
    pub guard: Option<Arc<Guard>>,
    /// Nobody calls it, at `url` or elsewhere: it fetches its work.
    pub fetches: bool,
    /// How it is spoken to.
    pub binding: Binding,
    /// Where its card is. `None`: `.well-known/agent-card.json` below the URL, then at the host's root.
    pub card: Option<Uri>,
    /// How it is asked.
    pub mode: Mode,
    /// It lists the tasks of a context with their messages, so that one whose id was lost is found.
    pub lookup: bool,
    /// Sent with every request to the configured scheme, host and port, and never anywhere else.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest that resolving, connecting and the TLS handshake may take, together. 5 s by default.
    pub connect_timeout: Duration,
    /// The longest silence inside an answer or a stream; comments count as life. 60 s by default.
    pub idle_timeout: Duration,
    /// The longest that a first send waits for the first card. 500 ms by default.
    pub card_wait: Duration,
    /// The shortest and the longest pause between two polls. 50 ms and 2 s by default.
    pub poll: (Duration, Duration),
    /// Given up on after so long without any answer, over at least three polls in a row. 60 s by default.
    pub unreachable_after: Duration,
    /// An unused connection is closed after so long; it should be less than the agent's own keep-alive. 4 s by default.
    pub pool_idle: Duration,
    /// The largest answer, and the largest sum of events of one stream. 64 MiB by default.
    pub max_task_bytes: usize,
    /// The largest event of a stream. 16 MiB by default.
    pub max_event_bytes: usize,
}

/// How an agent is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Binding {
    /// As its card prefers, and as it turns out to work; JSON-RPC without a card.
    #[default]
    Auto,
    /// Always JSON-RPC.
    JsonRpc,
    /// Always HTTP+JSON.
    HttpJson,
}

/// How an agent is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Streaming if its card says that it can, else `Poll`.
    #[default]
    Auto,
    /// Always SendStreamingMessage.
    Stream,
    /// SendMessage with returnImmediately, then GetTask.
    Poll,
    /// SendMessage, and wait.
    Blocking,
}

/// Without the headers, which may be secret.
impl fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("AgentConfig");
        out.field("name", &self.name).field("url", &self.url).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl AgentConfig {
    /// The defaults.
    pub fn new(name: &str, url: Uri) -> AgentConfig {
        AgentConfig {
            name: name.into(),
            url,
            guard: None,
            fetches: false,
            binding: Binding::Auto,
            card: None,
            mode: Mode::Auto,
            lookup: false,
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            card_wait: Duration::from_millis(500),
            poll: (Duration::from_millis(50), Duration::from_secs(2)),
            unreachable_after: Duration::from_secs(60),
            pool_idle: Duration::from_secs(4),
            max_task_bytes: 64 << 20,
            max_event_bytes: 16 << 20,
        }
    }
}

/// One configured agent.
#[derive(Debug)]
pub struct Agent {
    asker: ask::Asker,
    cards: cards::Cards,
    cancels: Semaphore,
    keeper: OnceLock<AbortHandle>,
}

impl Agent {
    /// An agent, whose card is fetched from now on. Must be called inside a tokio runtime. An error says what is wrong
    /// with the configuration.
    pub fn new(config: Arc<AgentConfig>, clock: Clock) -> Result<Arc<Agent>, String> {
        let agent = Arc::new(Agent {
            cards: cards::Cards::new(&config),
            asker: ask::Asker::new(config, clock)?,
            cancels: Semaphore::new(MAX_CANCELS),
            keeper: OnceLock::new(),
        });
        if !agent.config().fetches {
            let keeper = tokio::spawn(cards::keep(Arc::downgrade(&agent)));
            let _ = agent.keeper.set(keeper.abort_handle());
        }
        Ok(agent)
    }

    /// What it was made with.
    pub fn config(&self) -> &AgentConfig {
        &self.asker.config
    }

    /// Its card, as last seen.
    pub fn card(&self) -> Option<Arc<Card>> {
        self.cards.card()
    }

    /// How and where it is called first: JSONRPC or HTTP+JSON, and the path at its URL's host.
    pub fn interface(&self) -> (&'static str, String) {
        let endpoints = self.cards.endpoints();
        let first = endpoints.get(endpoints.first());
        (first.binding(), first.path())
    }

    /// Delivers a message, and hands what comes back to the relay until the turn is over. Dropping the future closes the
    /// connection; that is how an attempt is stopped.
    pub async fn send(&self, job: &Job, relay: &mut dyn Relay) -> End {
        let begun = Instant::now();
        let endpoints = self.cards.settled_endpoints(self.asker.config.card_wait).await;
        let mut turn = Turn::new(self, job, relay, endpoints);
        let ended = turn.send().await;
        match &ended {
            Ok(()) => self.cards.missed(),
            Err(failure) => self.doubt(failure),
        }
        self.end(begun, ended)
    }

    /// Does not deliver: the agent has the message, or may have it. Finds out how the task stands, and hands that over until
    /// the turn is over.
    pub async fn watch(&self, job: &Job, relay: &mut dyn Relay) -> End {
        let begun = Instant::now();
        let what = "nobody can say what came of the message";
        let unknown = Failure::new(Reason::OutcomeUnknown, Delivery::MaybeDelivered, what);
        let endpoints = self.cards.settled_endpoints(self.asker.config.card_wait).await;
        let mut turn = Turn::new(self, job, relay, endpoints);
        // An id can only have come from the agent; whether it has had a later message than the first is not known.
        let first = job.dispatch.turn <= 1 && turn.remote.is_some();
        turn.delivery = if first { Delivery::Delivered } else { Delivery::MaybeDelivered };
        turn.answered = true;
        if turn.remote.is_none() {
            turn.remote = turn.lookup_patiently().await;
        }
        let ended = match turn.remote {
            Some(_) => turn.resolve(unknown).await,
            None => Err(unknown),
        };
        self.end(begun, ended)
    }

    fn end(&self, begun: Instant, ended: Result<(), Failure>) -> End {
        let Err(failure) = ended else { return End { ended: Ok(()), detail: None } };
        let (fault, mut detail) = failure.into_fault();
        detail.waited = begun.elapsed();
        End { ended: Err(fault), detail: Some(detail) }
    }

    /// What the agent does may not be what its card says any more.
    fn doubt(&self, failure: &Failure) {
        let refused = [Reason::AgentUnauthorized, Reason::AgentRejectedRequest].contains(&failure.reason);
        let version = failure.kind == Some(A2a::VersionNotSupported);
        if refused || version || failure.is_nowhere() {
            self.cards.doubt();
        }
    }
}

/// What the caller that began a task named, and what goes along with a cancel of it as well.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// The tenant at the agent.
    pub tenant: Option<Arc<str>>,
    /// A2A-Extensions: an agent that requires one does so for every operation.
    pub extensions: Option<HeaderValue>,
    /// The metadata of the cancel itself.
    pub said: Option<Json>,
}

impl Named {
    /// By the params of a task's first message, and the header that came with it.
    pub fn of(params: &Json, extensions: Option<HeaderValue>) -> Named {
        let tenant = params.value().get("tenant").and_then(|tenant| tenant.as_exact_str());
        let tenant = tenant.filter(|tenant| !tenant.is_empty()).map(|tenant| tenant.as_ref().into());
        Named { tenant, extensions, said: None }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.abort();
        }
    }
}

//! One attempt: the message is sent, once, and what comes back is followed until the turn is over.
//!
//! ```text
//!   send ──▶ events ──▶ terminal, interrupted, or a lone message ──▶ over
//!              │
//!              └─▶ the answer ends, breaks or goes silent before that: a question
//!                    │
//!                    ├─ the agent's task id is known ──▶ GetTask ──▶ over
//!                    │                                     └─ still active ──▶ SubscribeToTask, or polls
//!                    └─ it is not ──▶ a fault, with what is known of the delivery
//! ```

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watertight_a2a::call::{BUDGET_KEY, DELEGATION_KEY};
use watertight_a2a::edit::{self, SendEdit, Set};
use watertight_a2a::error::METHOD_NOT_FOUND;
use watertight_a2a::event::{Body, Event};
use watertight_a2a::json::Json;
use watertight_a2a::rest::outbound::Operation;
use watertight_engine::ids::RemoteId;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use super::ask::{Along, Class};
use super::endpoints::{Endpoint, Endpoints};
use super::events::{Ending, Events, Next};
use super::fault::Failure;
use super::{Agent, Job, Mode, News, Relay};

/// How long a follow-up's stream may stay silent after a snapshot that shows the task as it was before the message.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(1);
/// Whether the turn is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Over,
    GoesOn,
}

/// What is known while an attempt runs.
pub(super) struct Turn<'a> {
    pub(super) agent: &'a Agent,
    pub(super) job: &'a Job,
    pub(super) relay: &'a mut dyn Relay,
    pub(super) along: Along,
    /// Where the agent may be asked, and which of these places is.
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) at: usize,
    /// The agent's id of the task.
    pub(super) remote: Option<RemoteId>,
    /// What can be said of the delivery.
    pub(super) delivery: Delivery,
    /// The agent said something to this turn's message.
    pub(super) answered: bool,
    /// There is a task at the agent, so that a message is not all there is: how the turn ends is the task's to tell.
    has_task: bool,
    /// Questions about the task without an answer, in a row, and when there was a sign of life before them.
    pub(super) silent: (u32, Instant),
}

impl<'a> Turn<'a> {
    pub(super) fn new(agent: &'a Agent, job: &'a Job, relay: &'a mut dyn Relay, endpoints: Arc<Endpoints>) -> Turn<'a> {
        let along = Along {
            tenant: job.tenant.clone(),
            traceparent: job.traceparent.clone(),
            tracestate: job.tracestate.clone(),
            extensions: job.extensions.clone(),
        };
        let remote = job.dispatch.remote_task.clone();
        let delivery = Delivery::NotSent;
        let has_task = remote.is_some();
        let silent = (0, Instant::now());
        let at = endpoints.first();
        Turn { agent, job, relay, along, endpoints, at, remote, delivery, answered: false, has_task, silent }
    }

    /// Sends the message, and follows what comes of it.
    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        let ended = self.send_somewhere().await;
        if !ended.as_ref().is_err_and(|failure| self.is_nowhere(failure)) {
            return ended;
        }
        let Some(newer) = self.agent.cards.newer_than(&self.endpoints).await else { return ended };
        self.endpoints = newer;
        self.send_somewhere().await
    }

    /// Whether the message surely began nothing, since nobody was there to take it.
    fn is_nowhere(&self, failure: &Failure) -> bool {
        !self.answered && failure.is_nowhere()
    }

    /// Only a place where surely nobody was is followed by the next one: whatever else a send may end with, it may have
    /// begun something.
    async fn send_somewhere(&mut self) -> Result<(), Failure> {
        let endpoints = self.endpoints.clone();
        let mut nowhere: Option<Failure> = None;
        for at in endpoints.from(endpoints.first()) {
            self.at = at;
            match self.send_to(endpoints.get(at)).await {
                Err(failure) if self.is_nowhere(&failure) => {
                    nowhere = Some(match nowhere {
                        None => failure,
                        Some(first) => first.and_then(&failure),
                    });
                }
                ended => {
                    if (ended.is_ok() || self.answered) && endpoints.worked(at) {
                        tracing::info!(agent = %self.agent.asker.config.name, "another of the agent's interfaces works");
                    }
                    return ended;
                }
            }
        }
        Err(nowhere.unwrap_or_else(|| Failure::new(Reason::Internal, Delivery::NotSent, "the agent has no interface")))
    }

    async fn send_to(&mut self, endpoint: &Endpoint) -> Result<(), Failure> {
        let streams = match self.agent.asker.config.mode {
            Mode::Stream => true,
            Mode::Auto => self.endpoints.streaming == Some(true) && !endpoint.is_streamless(),
            Mode::Poll | Mode::Blocking => false,
        };
        let refused = match streams {
            true => match self.send_as(endpoint, Class::Stream).await {
                Err(failure) if !self.answered && self.is_streamless(endpoint, &failure) => true,
                ended => return ended,
            },
            false => false,
        };
        let ended = self.send_as(endpoint, Class::Send).await;
        // Unless it turns out that nothing at all is there.
        if refused && !ended.as_ref().is_err_and(Failure::is_nowhere) {
            endpoint.set_streamless();
            self.agent.cards.doubt();
        }
        ended
    }

    /// Whether a refusal says that the agent does not stream. About a task that it knows, it could mean the task.
    fn is_streamless(&self, endpoint: &Endpoint, refusal: &Failure) -> bool {
        let unknown = match endpoint.is_json_rpc() {
            true => refusal.code() == Some(METHOD_NOT_FOUND.into()),
            false => refusal.is_nowhere(),
        };
        unknown || (refusal.is_unsupported() && self.job.dispatch.remote_task.is_none())
    }

    async fn send_as(&mut self, endpoint: &Endpoint, class: Class) -> Result<(), Failure> {
        let config = &self.agent.asker.config;
        let at_once = (class != Class::Stream).then_some(config.mode != Mode::Blocking);
        let params = self.params(endpoint, at_once);
        let operation = match class {
            Class::Stream => Operation::SendStreamingMessage(&params),
            Class::Send | Class::Side => Operation::SendMessage(&params),
        };
        let asker = &self.agent.asker;
        let answer = match asker.call(class, endpoint, &operation, &self.along).await {
            Ok(answer) => answer,
            Err(failure) => {
                self.delivery = failure.delivery;
                return match failure.delivery {
                    Delivery::NotSent => Err(failure),
                    Delivery::MaybeDelivered | Delivery::Delivered => self.recover(failure).await,
                };
            }
        };
        self.delivery = Delivery::MaybeDelivered;
        let now = asker.clock.now();
        let mut events = Events::new(answer, asker.limits(), asker.config.max_event_bytes, now);
        self.alive();
        if class == Class::Stream {
            self.relay.learnt(News::Streaming);
        }
        match self.follow(&mut events, self.job.dispatch.remote_task.is_some() && class == Class::Stream).await? {
            Followed::Over => Ok(()),
            // A task that is on its way is what was asked for, and no loss.
            Followed::Ended { .. } if class == Class::Send && self.answered && self.remote.is_some() => {
                drop(events);
                self.poll(Failure::truncated(self.delivery)).await
            }
            Followed::Ended { why, .. } => {
                drop(events);
                self.recover(why).await
            }
        }
    }

    /// Hands over what an answer holds, to its end or the turn's. `again`: it may begin with the task as it was before
    /// this turn's message.
    pub(super) async fn follow(&mut self, events: &mut Events, again: bool) -> Result<Followed, Failure> {
        let (mut count, mut stale) = (0u32, false);
        loop {
            let next = match self.listen(events, stale).await? {
                Listened::Heard(next) => next,
                Listened::Over => return Ok(Followed::Over),
            };
            match next {
                Next::Alive => self.relay.learnt(News::Heartbeat),
                Next::Unknown => self.relay.learnt(News::Unknown),
                Next::Event(event) => {
                    let is_task = matches!(event.body, Body::Task(_));
                    let interrupted = event.state().is_some_and(|state| state.is_interrupted());
                    stale = again && count == 0 && is_task && interrupted;
                    count += 1;
                    if self.take(*event)? == Said::Over && !stale {
                        return Ok(Followed::Over);
                    }
                }
                Next::End(Ending::Clean) => {
                    let why = Failure::truncated(self.delivery);
                    return Ok(Followed::Ended { why, count });
                }
                Next::End(Ending::Broken(mut why)) => {
                    why.delivery = why.delivery.max(self.delivery);
                    return Ok(Followed::Ended { why, count });
                }
                Next::End(Ending::Accepted(why)) => {
                    (self.delivery, self.answered) = (Delivery::Delivered, true);
                    if self.remote.is_none() {
                        self.remote = self.lookup().await;
                    }
                    return Ok(Followed::Ended { why, count });
                }
                Next::End(Ending::Said(mut failure)) => {
                    failure.delivery = failure.delivery.max(self.delivery);
                    self.delivery = failure.delivery;
                    // An error inside a stream may be the stream's and not the task's.
                    return if failure.code().is_some() && count > 0 {
                        Ok(Followed::Ended { why: failure, count })
                    } else {
                        Err(failure)
                    };
                }
            }
        }
    }

    /// What comes next of an answer. An agent that says nothing on it for long is asked beside it how the task stands:
    /// silence there may be work, silence here too is the agent's.
    async fn listen(&mut self, events: &mut Events, stale: bool) -> Result<Listened, Failure> {
        let asks = self.answered && self.remote.is_some() && !stale;
        let mut next = pin!(events.next(stale.then_some(SNAPSHOT_PAUSE)));
        loop {
            let config = &self.agent.asker.config;
            let quiet = config.unreachable_after / 3;
            let pause = if self.silent.0 == 0 { quiet } else { quiet.min(config.poll.1) };
            let asked = async {
                sleep(pause).await;
                self.ask_task(self.ask_limit()).await
            };
            let asked = tokio::select! {
                biased;
                next = &mut next => {
                    if !matches!(next, Next::End(Ending::Broken(_))) {
                        self.alive();
                    }
                    return Ok(Listened::Heard(next));
                }
                asked = asked, if asks => asked,
            };
            match asked {
                Ok(event) => {
                    self.alive();
                    self.relay.learnt(News::Polled);
                    // What goes on is the stream's to tell; an end may have been lost on the way.
                    let ends = event.state().is_some_and(|state| state.is_terminal() || state.is_interrupted());
                    if ends && self.take(event)? == Said::Over {
                        return Ok(Listened::Over);
                    }
                }
                Err(failure) if failure.silent => self.unanswered(failure)?,
                // Whatever it says, it is there.
                Err(_) => self.alive(),
            }
        }
    }

    /// The agent gave a sign of life.
    pub(super) fn alive(&mut self) {
        self.silent = (0, Instant::now());
    }

    /// Hands one event over.
    pub(super) fn take(&mut self, event: Event) -> Result<Said, Failure> {
        let is_message = matches!(event.body, Body::Message(_));
        // A message may name anything; it is no word about the task.
        if let (Some(known), Some(told)) = (&self.remote, event.task_id())
            && **known != *told
            && !is_message
        {
            let mut failure = Failure::new(
                Reason::AgentMalformed,
                Delivery::Delivered,
                "the agent speaks of another task than the one it was asked about",
            );
            failure.detail.excerpt = Some(watertight_a2a::text::excerpt(event.raw.as_bytes(), 200));
            return Err(failure);
        }
        if !is_message {
            self.has_task = true;
            self.remote = self.remote.take().or_else(|| event.task_id().map(RemoteId::from));
        }
        (self.delivery, self.answered) = (Delivery::Delivered, true);
        let ends = event.state().is_some_and(|state| state.is_terminal() || state.is_interrupted());
        let over = ends || (is_message && !self.has_task);
        match self.relay.event(event) {
            ControlFlow::Continue(()) => Ok(if over { Said::Over } else { Said::GoesOn }),
            ControlFlow::Break(fault) => Err(Failure::of_relay(fault)),
        }
    }

    fn params(&self, endpoint: &Endpoint, at_once: Option<bool>) -> Json {
        let tenant = self.along.tenant.as_deref().or(endpoint.tenant.as_deref());
        self.job.params(self.agent.asker.clock.now(), tenant, at_once)
    }
}

impl Job {
    /// The caller's params, as the agent is to have them.
    pub(crate) fn params(&self, now: Time, tenant: Option<&str>, at_once: Option<bool>) -> Json {
        let dispatch = &self.dispatch;
        let wire = dispatch.budget.to_wire(now);
        let budget = format!(
            "{{\"remaining_s\":{},\"depth\":{},\"fanout\":{},\"task\":\"{}\"}}",
            wire.remaining_s, wire.depth, wire.fanout, dispatch.task
        );
        let references = |ours: &str| {
            let known = self.references.iter().find(|(known, _)| known == ours);
            Some(known.map_or_else(|| ours.to_owned(), |(_, remote)| remote.to_string()))
        };
        let (task, context) = (dispatch.remote_task.as_deref(), dispatch.remote_context.as_deref());
        let mut delegation = Vec::new();
        watertight_a2a::text::quote(&self.delegation, &mut delegation);
        // What the caller says to us alone, and what only we may say, stays here.
        let metadata = edit::RESERVED.map(|name| match name {
            BUDGET_KEY => (name, Some(Json::assume(budget.clone()))),
            DELEGATION_KEY => (name, Some(Json::assume(delegation.clone()))),
            _ => (name, None),
        });
        let tenant = tenant.map_or(Set::Remove, Set::To);
        edit::send_params(
            &self.message,
            &SendEdit {
                task_id: task.map_or(Set::Remove, Set::To),
                context_id: context.map_or(Set::Remove, Set::To),
                references: Some(&references),
                message_id_suffix: None,
                metadata: &metadata,
                return_immediately: at_once,
                drop_push_config: true,
                tenant,
            },
        )
    }
}

pub(super) enum Followed {
    Over,
    /// The answer is over and the turn is not, after so many events.
    Ended {
        why: Failure,
        count: u32,
    },
}

/// What an answer, or a question beside it, gave.
enum Listened {
    Heard(Next),
    Over,
}

impl Failure {
    pub(super) fn truncated(delivery: Delivery) -> Failure {
        let what = "the agent's answer ended before the task was over";
        Failure { silent: true, ..Failure::new(Reason::AgentTruncated, delivery, what) }
    }

    /// This at one interface, and that at another.
    fn and_then(mut self, that: &Failure) -> Failure {
        self.detail.what = format!("{}; at another interface: {}", self.detail.what, that.detail.what);
        self
    }
}

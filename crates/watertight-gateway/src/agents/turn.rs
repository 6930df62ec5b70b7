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
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use watertight_a2a::call::BUDGET_KEY;
use watertight_a2a::edit::{self, SendEdit, Set};
use watertight_a2a::error::METHOD_NOT_FOUND;
use watertight_a2a::event::{Body, Event};
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::{self, Method};
use watertight_engine::ids::RemoteId;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;

use super::ask::{Along, Class};
use super::cards::Endpoint;
use super::events::{Ending, Events, Next};
use super::fault::Failure;
use super::{Agent, Job, Mode, News, Relay};

/// Times that a lost stream is joined again without anything new coming of it.
const MAX_JOINS: u32 = 3;
/// The pause before the second of them; it doubles.
const JOIN_PAUSE: Duration = Duration::from_millis(100);
/// How long a follow-up's stream may stay silent after a snapshot that shows the task as it was before the message.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(1);
/// The longest that a single question about a task waits for its answer.
const ASK_LIMIT: Duration = Duration::from_secs(10);

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
    pub(super) endpoint: std::sync::Arc<Endpoint>,
    /// The agent's id of the task.
    pub(super) remote: Option<RemoteId>,
    /// What can be said of the delivery.
    pub(super) delivery: Delivery,
    /// The agent said something to this turn's message.
    pub(super) answered: bool,
    /// There is a task at the agent, so that a message is not all there is: how the turn ends is the task's to tell.
    has_task: bool,
    /// Questions about the task without an answer, in a row, and when there was a sign of life before them.
    silent: (u32, Instant),
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        job: &'a Job,
        relay: &'a mut dyn Relay,
        endpoint: std::sync::Arc<Endpoint>,
    ) -> Turn<'a> {
        let along = Along {
            traceparent: job.traceparent.clone(),
            tracestate: job.tracestate.clone(),
            extensions: job.extensions.clone(),
        };
        let remote = job.dispatch.remote_task.clone();
        let delivery = Delivery::NotSent;
        let has_task = remote.is_some();
        let silent = (0, Instant::now());
        Turn { agent, job, relay, along, endpoint, remote, delivery, answered: false, has_task, silent }
    }

    /// Sends the message, and follows what comes of it.
    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        let streaming = match self.agent.asker.config.mode {
            Mode::Stream => true,
            Mode::Auto => self.endpoint.streaming == Some(true) && !self.agent.is_streamless(),
            Mode::Poll | Mode::Blocking => false,
        };
        if streaming {
            match self.send_as(Class::Stream, Method::SendStreamingMessage, None).await {
                // The one kind of refusal after which it is certain that nothing was done: it is asked for otherwise.
                Err(failure) if !self.answered && self.is_streamless(&failure) => self.agent.set_streamless(),
                ended => return ended,
            }
        }
        let at_once = self.agent.asker.config.mode != Mode::Blocking;
        self.send_as(Class::Send, Method::SendMessage, Some(at_once)).await
    }

    /// Whether a refusal says that the agent does not stream. About a task that it knows, it could mean the task.
    fn is_streamless(&self, refusal: &Failure) -> bool {
        let unknown = refusal.code() == Some(METHOD_NOT_FOUND.into());
        unknown || (refusal.is_unsupported() && self.job.dispatch.remote_task.is_none())
    }

    async fn send_as(&mut self, class: Class, method: Method, at_once: Option<bool>) -> Result<(), Failure> {
        let params = self.params(at_once);
        let path = self.endpoint.path.clone();
        let asker = &self.agent.asker;
        let answer = match asker.call(class, &path, method, params.as_bytes(), &self.along).await {
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
    async fn follow(&mut self, events: &mut Events, again: bool) -> Result<Followed, Failure> {
        let (mut count, mut stale) = (0u32, false);
        loop {
            let next = match self.listen(events, stale).await? {
                Listened::Heard(next) => next,
                Listened::Over => return Ok(Followed::Over),
            };
            match next {
                Next::Alive => self.relay.learnt(News::Heartbeat),
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
    fn alive(&mut self) {
        self.silent = (0, Instant::now());
    }

    /// A question got no answer. An error: one too many.
    fn unanswered(&mut self, failure: Failure) -> Result<(), Failure> {
        self.silent.0 += 1;
        let (polls, since) = (self.silent.0, self.silent.1.elapsed());
        self.relay.learnt(News::Silent { polls, since });
        let given_up = polls >= 3 && since >= self.agent.asker.config.unreachable_after;
        if given_up { Err(unreachable(failure, polls, since, self.delivery)) } else { Ok(()) }
    }

    /// How long one question waits: a third of the time after which an agent is given up on, so that three fit. Those
    /// after the second do not outlive it.
    fn ask_limit(&self) -> Duration {
        let limit = ASK_LIMIT.min(self.agent.asker.config.unreachable_after / 3);
        if self.silent.0 < 2 { limit } else { limit.min(self.left().max(limit / 10)) }
    }

    /// What is left of the time after which the agent is given up on.
    fn left(&self) -> Duration {
        self.agent.asker.config.unreachable_after.saturating_sub(self.silent.1.elapsed())
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

    /// The answer was lost. What came of the message is found out, if there is anything to ask about.
    async fn recover(&mut self, why: Failure) -> Result<(), Failure> {
        if self.remote.is_none() || (why.reason == Reason::AgentMalformed && why.code().is_none()) {
            return Err(why);
        }
        self.relay.learnt(News::Lost);
        self.resolve(why).await
    }

    /// Finds out how the task stands, and follows it to the turn's end. `why`: what to say if that cannot be found out.
    pub(super) async fn resolve(&mut self, why: Failure) -> Result<(), Failure> {
        let (mut joins, mut pause) = (0, JOIN_PAUSE);
        loop {
            match self.ask_task(self.ask_limit()).await {
                Ok(event) => {
                    self.alive();
                    self.relay.learnt(News::Polled);
                    // An agent that may not have had the message, and shows the task as it was before it, tells nothing.
                    let interrupted = event.state().is_some_and(|state| state.is_interrupted());
                    if interrupted && !self.answered {
                        return Err(why);
                    }
                    if self.take(event)? == Said::Over {
                        return Ok(());
                    }
                }
                Err(failure) if failure.silent => {
                    self.unanswered(failure)?;
                    return self.poll(why).await;
                }
                Err(failure) => {
                    self.alive();
                    joins += 1;
                    if failure.is_definite() || joins >= MAX_JOINS {
                        return Err(why.because(failure, self.delivery));
                    }
                    sleep(pause).await;
                    pause *= 2;
                    continue;
                }
            }
            if joins >= MAX_JOINS || !self.may_join() {
                return self.poll(why).await;
            }
            if joins > 0 {
                sleep(pause).await;
                pause *= 2;
            }
            joins += 1;
            match self.join().await? {
                Joined::Over => return Ok(()),
                Joined::Refused => return self.poll(why).await,
                Joined::Lost { news: true } => (joins, pause) = (0, JOIN_PAUSE),
                Joined::Lost { news: false } => {}
            }
        }
    }

    fn may_join(&self) -> bool {
        match self.agent.asker.config.mode {
            Mode::Stream => true,
            Mode::Auto => self.endpoint.streaming == Some(true) && !self.agent.is_streamless(),
            Mode::Poll | Mode::Blocking => false,
        }
    }

    /// Joins the task's stream again.
    async fn join(&mut self) -> Result<Joined, Failure> {
        let params = self.task_params();
        let path = self.endpoint.path.clone();
        let asker = &self.agent.asker;
        // Unlike a send, this has nothing to wait for: the first event is the task as it is.
        let called = asker.call(Class::Stream, &path, Method::SubscribeToTask, &params, &self.along);
        let Ok(Ok(answer)) = timeout(ASK_LIMIT, called).await else { return Ok(Joined::Lost { news: false }) };
        let now = asker.clock.now();
        let mut events = Events::new(answer, asker.limits(), asker.config.max_event_bytes, now);
        self.alive();
        self.relay.learnt(News::Streaming);
        match self.follow(&mut events, false).await {
            Ok(Followed::Over) => Ok(Joined::Over),
            Ok(Followed::Ended { count, .. }) => {
                // The snapshot is nothing new; what follows it is.
                self.relay.learnt(News::Lost);
                Ok(Joined::Lost { news: count > 1 })
            }
            Err(failure) if failure.final_word => Err(failure),
            Err(failure) if matches!(failure.reason, Reason::ResultTooLarge | Reason::AgentUnreachable) => Err(failure),
            // About the stream, whatever it says: the task is asked for otherwise.
            Err(_) => Ok(Joined::Refused),
        }
    }

    /// Asks for the task.
    pub(super) async fn ask_task(&mut self, limit: Duration) -> Result<Event, Failure> {
        let params = self.task_params();
        let asker = &self.agent.asker;
        let asked = asker.ask(&self.endpoint.path, Method::GetTask, &params, &self.along);
        let limit = limit.max(Duration::from_millis(1));
        let Ok(answer) = timeout(limit, asked).await else {
            let what = format!("no answer to GetTask within {} ms", limit.as_millis());
            let failure = Failure::new(Reason::AgentNoAnswer, Delivery::MaybeDelivered, what);
            return Err(Failure { silent: true, ..failure });
        };
        let result = answer?;
        Event::read_task_result(&result).map_err(|what| Failure::of_event(&what, result.as_bytes()))
    }

    fn task_params(&self) -> Vec<u8> {
        let id = self.remote.as_deref().unwrap_or_default();
        jsonrpc::task_params(id, self.endpoint.tenant.as_deref(), None)
    }

    /// The caller's params, as the agent is to have them.
    fn params(&self, at_once: Option<bool>) -> Json {
        let dispatch = &self.job.dispatch;
        let wire = dispatch.budget.to_wire(self.agent.asker.clock.now());
        let budget = format!(
            "{{\"remaining_s\":{},\"depth\":{},\"fanout\":{},\"task\":\"{}\"}}",
            wire.remaining_s, wire.depth, wire.fanout, dispatch.task
        );
        let references = |ours: &str| {
            let known = self.job.references.iter().find(|(known, _)| known == ours);
            Some(known.map_or_else(|| ours.to_owned(), |(_, remote)| remote.to_string()))
        };
        let id = |id: &'a Option<RemoteId>| id.as_deref().map_or(Set::Remove, Set::To);
        let metadata = [(BUDGET_KEY, Some(Json::assume(budget)))];
        let tenant = self.endpoint.tenant.as_deref().map_or(Set::Remove, Set::To);
        edit::send_params(
            &self.job.message,
            &SendEdit {
                task_id: id(&self.job.dispatch.remote_task),
                context_id: id(&self.job.dispatch.remote_context),
                references: Some(&references),
                message_id_suffix: None,
                metadata: &metadata,
                return_immediately: at_once,
                drop_push_config: true,
                tenant,
            },
        )
    }

    /// Polls until the turn is over, or the agent is given up on.
    pub(super) async fn poll(&mut self, why: Failure) -> Result<(), Failure> {
        let config = self.agent.asker.config.clone();
        let (least, most) = config.poll;
        let mut pause = least;
        let (mut refused, mut last) = (0u32, None::<Json>);
        loop {
            let last_try = self.silent.0 >= 2;
            sleep(if last_try { jittered(pause).min(self.left()) } else { jittered(pause) }).await;
            pause = (pause + pause / 2).min(most).max(least);
            let asked_at = Instant::now();
            let answer = self.ask_task(self.ask_limit()).await;
            // An answer that takes long, because it is large or the agent busy, is not asked for all the time.
            pause = pause.max(asked_at.elapsed() * 2).min(most);
            match answer {
                Ok(event) => {
                    refused = 0;
                    self.alive();
                    self.relay.learnt(News::Polled);
                    let interrupted = event.state().is_some_and(|state| state.is_interrupted());
                    if interrupted && !self.answered {
                        return Err(why);
                    }
                    if last.as_ref() == Some(&event.raw) {
                        continue;
                    }
                    last = Some(event.raw.clone());
                    if self.take(event)? == Said::Over {
                        return Ok(());
                    }
                }
                Err(failure) if failure.silent => self.unanswered(failure)?,
                Err(failure) => {
                    self.alive();
                    self.relay.learnt(News::Polled);
                    if failure.reason == Reason::ResultTooLarge {
                        return Err(Failure { delivery: self.delivery, ..failure });
                    }
                    // Three times the same no is an answer; anything else may pass, and the budget bounds the wait.
                    refused =
                        if failure.is_definite() || failure.reason == Reason::AgentMalformed { refused + 1 } else { 0 };
                    if refused >= 3 {
                        return Err(self.lost(failure));
                    }
                    if let Some(wish) = failure.retry_after {
                        let wish = Duration::from_micros(wish.as_micros()).min(ASK_LIMIT);
                        pause = pause.max(wish);
                    }
                }
            }
        }
    }

    /// The agent is there, and does not tell of the task.
    fn lost(&self, failure: Failure) -> Failure {
        let said_no = failure.reason == Reason::AgentError;
        let reason = if said_no { Reason::OutcomeUnknown } else { failure.reason };
        Failure { reason, delivery: self.delivery, ..failure }
    }
}

enum Followed {
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

enum Joined {
    Over,
    Refused,
    Lost { news: bool },
}

impl Failure {
    fn truncated(delivery: Delivery) -> Failure {
        let what = "the agent's answer ended before the task was over";
        Failure { silent: true, ..Failure::new(Reason::AgentTruncated, delivery, what) }
    }

    /// This, which could not be cleared up, because of that.
    fn because(mut self, that: Failure, delivery: Delivery) -> Failure {
        self.delivery = delivery.max(self.delivery);
        self.detail.what = format!("{}; asked how the task stands: {}", self.detail.what, that.detail.what);
        self.detail.agent_error = that.detail.agent_error.or(self.detail.agent_error);
        self.detail.status = that.detail.status.or(self.detail.status);
        self
    }
}

fn unreachable(last: Failure, polls: u32, since: Duration, delivery: Delivery) -> Failure {
    let what = format!(
        "no answer for {:.1} s over {polls} polls in a row; the last: {}",
        since.as_secs_f64(),
        last.detail.what
    );
    let mut failure = Failure::new(Reason::AgentUnreachable, delivery, what);
    failure.detail.status = last.detail.status;
    failure
}

/// Between 80 and 120 per cent of a pause, so that what began together does not stay together.
fn jittered(pause: Duration) -> Duration {
    let [byte] = crate::clock::random::<1>().unwrap_or([128]);
    pause.mul_f64(0.8 + 0.4 * f64::from(byte) / 255.0)
}

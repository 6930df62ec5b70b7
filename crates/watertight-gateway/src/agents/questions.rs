//! What came of a message, where its answer did not tell: GetTask, SubscribeToTask, and polls.
//!
//! A question may be asked twice, and anywhere. It goes where the message went; where nobody is there any more, to the
//! agent's other interfaces, and to those of a newer card.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use watertight_a2a::event::Event;
use watertight_a2a::json::Json;
use watertight_a2a::rest::outbound::Operation;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;

use super::ask::{Along, Class};
use super::endpoints::Endpoints;
use super::events::Events;
use super::fault::Failure;
use super::turn::{Followed, Said, Turn};
use super::{Agent, Mode, News};

/// Times that a lost stream is joined again without anything new coming of it.
const MAX_JOINS: u32 = 3;
/// The pause before the second of them; it doubles.
const JOIN_PAUSE: Duration = Duration::from_millis(100);
/// The longest that a single question about a task waits for its answer.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// How long a newer card is given to come where nobody is at the places that the last one names.
const CARD_PAUSE: Duration = Duration::from_millis(1_500);

impl Agent {
    /// Asks at one endpoint, and at the others as long as nobody is there. Also where the answer is from.
    pub(super) async fn ask(
        &self,
        endpoints: &Endpoints,
        first: usize,
        operation: &Operation<'_>,
        along: &Along,
    ) -> (usize, Result<Json, Failure>) {
        let mut nowhere = None;
        for at in endpoints.from(first) {
            match self.asker.ask(endpoints.get(at), operation, along).await {
                Err(failure) if failure.is_nowhere() => nowhere = nowhere.or(Some(failure)),
                answer => return (at, answer),
            }
        }
        let none = || Failure::new(Reason::Internal, Delivery::NotSent, "the agent has no interface");
        (first, Err(nowhere.unwrap_or_else(none)))
    }
}

impl Turn<'_> {
    /// Asks about the task.
    pub(super) async fn ask(&mut self, operation: &Operation<'_>) -> Result<Json, Failure> {
        let (at, answer) = self.agent.ask(&self.endpoints, self.at, operation, &self.along).await;
        self.at = at;
        if !answer.as_ref().is_err_and(Failure::is_nowhere) {
            return answer;
        }
        self.agent.cards.doubt();
        let newer = self.agent.cards.endpoints();
        if Arc::ptr_eq(&newer, &self.endpoints) {
            return answer;
        }
        (self.at, self.endpoints) = (newer.first(), newer);
        let (at, answer) = self.agent.ask(&self.endpoints, self.at, operation, &self.along).await;
        self.at = at;
        answer
    }

    /// A question got no answer. An error: one too many.
    pub(super) fn unanswered(&mut self, failure: Failure) -> Result<(), Failure> {
        self.silent.0 += 1;
        let (polls, since) = (self.silent.0, self.silent.1.elapsed());
        self.relay.learnt(News::Silent { polls, since });
        let given_up = polls >= 3 && since >= self.agent.asker.config.unreachable_after;
        if given_up { Err(unreachable(failure, polls, since, self.delivery)) } else { Ok(()) }
    }

    /// How long one question waits: a third of the time after which an agent is given up on, so that three fit. Those
    /// after the second do not outlive it.
    pub(super) fn ask_limit(&self) -> Duration {
        let limit = ASK_LIMIT.min(self.agent.asker.config.unreachable_after / 3);
        if self.silent.0 < 2 { limit } else { limit.min(self.left().max(limit / 10)) }
    }

    /// What is left of the time after which the agent is given up on.
    fn left(&self) -> Duration {
        self.agent.asker.config.unreachable_after.saturating_sub(self.silent.1.elapsed())
    }

    /// The answer was lost. What came of the message is found out, if there is anything to ask about.
    pub(super) async fn recover(&mut self, why: Failure) -> Result<(), Failure> {
        if self.remote.is_none() && self.agent.asker.config.lookup && why.code().is_none() {
            self.remote = self.lookup_patiently().await;
        }
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
                    let nowhere = failure.is_nowhere();
                    if (failure.is_definite() && !nowhere) || joins >= MAX_JOINS {
                        return Err(why.because(failure, self.delivery));
                    }
                    sleep(if nowhere { CARD_PAUSE } else { pause }).await;
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
            Mode::Auto => self.endpoints.streaming == Some(true) && !self.endpoints.get(self.at).is_streamless(),
            Mode::Poll | Mode::Blocking => false,
        }
    }

    /// Joins the task's stream again.
    async fn join(&mut self) -> Result<Joined, Failure> {
        let remote = self.remote.clone();
        let operation = Operation::SubscribeToTask(remote.as_deref().unwrap_or_default());
        let (asker, endpoints) = (&self.agent.asker, self.endpoints.clone());
        // Unlike a send, this has nothing to wait for: the first event is the task as it is.
        let called = asker.call(Class::Stream, endpoints.get(self.at), &operation, &self.along);
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
        let remote = self.remote.clone();
        let operation = Operation::GetTask(remote.as_deref().unwrap_or_default());
        let asked = self.ask(&operation);
        let limit = limit.max(Duration::from_millis(1));
        let Ok(answer) = timeout(limit, asked).await else {
            let what = format!("no answer to GetTask within {} ms", limit.as_millis());
            let failure = Failure::new(Reason::AgentNoAnswer, Delivery::MaybeDelivered, what);
            return Err(Failure { silent: true, ..failure });
        };
        let result = answer?;
        Event::read_task_result(&result).map_err(|what| Failure::of_event(&what, result.as_bytes()))
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
                    if failure.is_nowhere() {
                        pause = pause.max(CARD_PAUSE);
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

enum Joined {
    Over,
    Refused,
    Lost { news: bool },
}

impl Failure {
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

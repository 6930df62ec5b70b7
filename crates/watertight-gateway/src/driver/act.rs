//! Carries out what the cell asks for. What is shown comes before who is told, so that no answer is ahead of GetTask.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::HeaderValue;
use watertight_a2a::call::MAX_REFERENCES;
use watertight_a2a::json::Json;
use watertight_a2a::traceparent::TraceParent;
use watertight_engine::ids::{AgentId, Attempt, LineId, RemoteId, TaskId};
use watertight_engine::input::{CancelAnswer, Fault, Outcome};
use watertight_engine::output::{Answer, Dispatch, Output};
use watertight_engine::record::{Delivery, Row, Save};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use super::Driver;
use super::lines::{Line, Told};
use super::shared::{Health, Shared};
use crate::access::Verdict;
use crate::agents::{Agent, Job, Named};
use crate::clock;
use crate::fetch::{Seat, Until};
use crate::handle::{Declined, Trace};
use crate::hub::{Detail, End, Home, Live, Message, Stored};
use crate::outbox::Receipt;
use crate::push;
use crate::relay::{self, Ear};
use crate::reminder;
use crate::wake;

/// Between two tries of a cancel.
const CANCEL_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

impl Driver {
    /// Everything that may be done now.
    pub(super) fn act(&mut self, now: Time) {
        let outputs: Vec<Output> = std::iter::from_fn(|| self.cell.poll_output()).collect();
        #[cfg(test)]
        assert!(outputs.is_empty() || !self.shared.act_panics_now(), "as ordered by a drill");
        for output in &outputs {
            match output {
                Output::Keep(save) => self.keep(save),
                Output::Answer { .. } | Output::Send(_) | Output::Watch(_) | Output::Cancel { .. } => {}
                Output::Stop { .. } | Output::Forget { .. } | Output::Rests { .. } => {}
                Output::Wake { .. } | Output::Outbox(_) => {}
                Output::Publish { .. } | Output::Settled { .. } => self.show(output, now),
            }
        }
        for task in std::mem::take(&mut self.staged) {
            if let Some(live) = self.shared.hub.live(task) {
                live.flush(now);
            }
        }
        let mut forgotten = Vec::new();
        for output in outputs {
            match output {
                Output::Answer { line, answer } => self.answer(line, answer, now),
                Output::Send(dispatch) => self.begin(dispatch, true),
                Output::Watch(dispatch) => self.begin(dispatch, false),
                Output::Cancel { task, agent, remote_task, until } => self.cancel(task, &agent, remote_task, until),
                Output::Stop { task, attempt } => {
                    if let Some(handle) = self.running.remove(&(task, attempt)) {
                        handle.abort();
                    }
                }
                Output::Wake { agent, waiting } => wake::call(&self.shared, agent, waiting),
                Output::Rests { task } => self.shared.hub.rest(task),
                Output::Outbox(view) => {
                    self.shared.outboxes.put(view.clone());
                    reminder::due(&self.shared, &view);
                }
                Output::Forget { task } => forgotten.push(task),
                Output::Keep(_) | Output::Publish { .. } | Output::Settled { .. } => {}
            }
        }
        for task in forgotten {
            self.forget(task, now);
        }
    }

    /// What is kept in memory alone is shown from now on.
    fn keep(&mut self, save: &Save) {
        if let Save::Delegation { row, message, record: _ } = save {
            let hub = &self.shared.hub;
            let live = hub.adopt(row, self.fence, Stored::default());
            if let Some(proposed) = message.then(|| hub.proposed(row)).flatten() {
                hub.keep_message(&live, row.turn.no, &proposed, true);
            }
            live.stage(row.clone());
            self.staged.insert(row.task);
        }
        self.shared.shelf.put(save);
    }

    /// The store answers for it from now on, or the shelf.
    pub(super) fn forget(&self, task: TaskId, now: Time) {
        let volatile = self.shared.hub.live(task).filter(|live| live.volatile);
        if let Some(view) = volatile.and_then(|live| live.view()) {
            self.shared.shelf.bury(task, view.record, view.detail, now);
        }
        self.shared.hub.forget(task);
    }

    fn show(&self, output: &Output, now: Time) {
        match output {
            Output::Publish { task, seq, state: _ } => {
                if let Some(live) = self.shared.hub.live(*task) {
                    live.publish(*seq, now);
                }
                self.shared.fetching.shown(*task, Until::Begun);
            }
            Output::Settled { task, state, reason, took, waited } => {
                let Some(live) = self.shared.hub.live(*task) else { return };
                live.settle(*state, *reason, now);
                self.shared.fetching.shown(*task, Until::Over);
                self.shared.hub.drop_messages(&live);
                push::stir(&self.shared, *task);
                self.shared.metrics.ended(&live.agent, *state, *reason, *took, *waited);
                self.shared.figures.ended(now, &live.agent, *reason, *took, *waited);
                let took_s = took.map(Span::as_secs_f64);
                match reason {
                    Some(reason) => tracing::info!(
                        %task, agent = %live.agent, state = state.as_str(), reason = reason.as_str(), took_s, "turn ended"
                    ),
                    // What went well is in the metrics; a line for each would cost more than the turn.
                    None => tracing::debug!(%task, agent = %live.agent, state = state.as_str(), took_s, "turn ended"),
                }
            }
            Output::Keep(_)
            | Output::Answer { .. }
            | Output::Send(_)
            | Output::Watch(_)
            | Output::Cancel { .. }
            | Output::Stop { .. }
            | Output::Wake { .. }
            | Output::Rests { .. }
            | Output::Outbox(_)
            | Output::Forget { .. } => {}
        }
    }

    // ---- answers ---------------------------------------------------------------------------------------------------

    fn answer(&mut self, id: LineId, answer: Answer, now: Time) {
        let line = self.shared.lines.take(id);
        self.shared.hub.withdraw(id);
        let receipt = match &answer {
            Answer::Task { task, receipt: Some(turn), .. } => Some(Receipt::new(&self.shared, *task, *turn)),
            Answer::Task { receipt: None, .. } | Answer::Refused(_) | Answer::Conflict { .. } => None,
            Answer::NotFound | Answer::TaskTerminal | Answer::ContextMismatch | Answer::NotCancelable => None,
            Answer::Work { .. } | Answer::NoWork => None,
            Answer::Acknowledged { .. } | Answer::NotThatFar { .. } => None,
        };
        let work = if let Answer::Work { task, attempt } = answer { Some((task, attempt)) } else { None };
        let Some(line) = line else { return self.nobody_took(work) };
        let told = match answer {
            Answer::Task { task, replay, receipt: _ } => {
                // Asked for again after a reload, the first one looks like a repeat of itself.
                let replay = replay && task != line.task;
                let view = self.shared.hub.live(task).and_then(|live| live.view()).map(Box::new);
                let waits = view.as_deref().is_none_or(|view| view.waiting_on.is_some());
                let position = if waits { self.cell.stood(task) } else { None };
                let stream = if line.stream { self.shared.hub.open(task, replay) } else { None };
                Told::Task { task, replay, view, position, stream, receipt }
            }
            Answer::Acknowledged { last, waiting } => Told::Acknowledged { last, waiting },
            Answer::NotThatFar { last } => Told::NotThatFar { last },
            Answer::Work { task, attempt } => Told::Work { task, attempt },
            Answer::NoWork => Told::NoWork,
            Answer::Refused(refusal) => {
                let known = self.settings.agents.contains_key(&refusal.agent);
                self.shared.metrics.refused(&refusal.agent, known, refusal.reason);
                self.shared.figures.refused(now, &refusal.agent, refusal.reason);
                let retry_after = refusal.again.map(|again| again.since(now));
                Told::Declined(Declined::Refused {
                    reason: refusal.reason,
                    agent: refusal.agent,
                    retry_after,
                    cause: refusal.cause,
                })
            }
            Answer::Conflict { first } => Told::Declined(Declined::Conflict { first }),
            Answer::NotFound => Told::Declined(Declined::NotFound),
            Answer::TaskTerminal => Told::Declined(Declined::TaskTerminal),
            Answer::ContextMismatch => Told::Declined(Declined::ContextMismatch),
            Answer::NotCancelable => Told::Declined(Declined::NotCancelable),
        };
        // A caller that has left meanwhile does not hear it; the record stands.
        if line.to.send(told).is_err() {
            self.nobody_took(work);
        }
    }

    /// The worker that this was for has left.
    fn nobody_took(&self, work: Option<(TaskId, Attempt)>) {
        if let Some((task, attempt)) = work {
            self.shared.fetching.left(task, attempt);
        }
    }

    /// Nobody answers a line any more: its caller gets the task as it is, if it was accepted.
    pub(super) fn tell_at_the_end(&self, id: LineId, line: Line, otherwise: Reason) {
        let hub = &self.shared.hub;
        let live = hub.of_line(id).or_else(|| hub.live(line.task));
        hub.withdraw(id);
        let told = match live.and_then(|live| live.view()) {
            Some(view) => {
                let (task, replay) = (view.task, view.task != line.task);
                let stream = if line.stream { hub.open(task, true) } else { None };
                Told::Task { task, replay, view: Some(Box::new(view)), position: None, stream, receipt: None }
            }
            None => match self.cell.on_line(id) {
                // Asked for again while it only waits: the store has it.
                Some(task) => {
                    let replay = task != line.task;
                    Told::Task { task, replay, view: None, position: None, stream: None, receipt: None }
                }
                None => refused(&line.agent, otherwise, None),
            },
        };
        let _ = line.to.send(told);
    }

    // ---- attempts --------------------------------------------------------------------------------------------------

    fn begin(&mut self, dispatch: Dispatch, send: bool) {
        let (task, attempt) = (dispatch.task, dispatch.attempt);
        let shared = self.shared.clone();
        let (Some(live), Some(known)) = (shared.hub.live(task), shared.known(&dispatch.agent)) else {
            let fault =
                Fault { reason: Reason::AgentUnknown, delivery: Delivery::NotSent, retry_after: None, busy: false };
            return shared.inbox.ended(task, attempt, Outcome::Failed(fault));
        };
        if send && dispatch.deadline <= shared.clock.now() {
            // Its time passed while its commit waited for the disk: nobody wants it any more.
            let fault =
                Fault { reason: Reason::DeadlineExceeded, delivery: Delivery::NotSent, retry_after: None, busy: false };
            return shared.inbox.ended(task, attempt, Outcome::Failed(fault));
        }
        if let Some(outcome) = send.then(|| forbidden(&shared, &live, &dispatch)).flatten() {
            return shared.inbox.ended(task, attempt, outcome);
        }
        let max = known.spec.wire.max_task_bytes;
        // Where its caller's connection is, its connection to the agent is too.
        let home = live.home(dispatch.turn).unwrap_or_else(|| shared.runtime.clone());
        let ear = Ear::new(shared.clone(), live.clone(), &dispatch, max);
        let way = match known.spec.lease {
            Some(lease) => Way::Fetched(Seat::new(&shared, &dispatch.agent, task, attempt), lease),
            None => Way::Called(known.agent.clone()),
        };
        let run = async move {
            // In a place of its own: it is large, and would be copied whole at every step of a task's making and end.
            let trying = Box::pin(attempt_of(&shared, &live, way, dispatch, ear, send));
            let outcome = AssertUnwindSafe(trying);
            let outcome = outcome.catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(%task, "an attempt panicked");
                let delivery = Delivery::MaybeDelivered;
                Outcome::Failed(Fault { reason: Reason::Internal, delivery, retry_after: None, busy: false })
            });
            shared.ended(task, attempt, outcome);
        };
        self.running.insert((task, attempt), home.spawn(run).abort_handle());
    }

    fn cancel(&mut self, task: TaskId, agent: &AgentId, remote_task: RemoteId, until: Time) {
        let shared = self.shared.clone();
        let Some(known) = shared.known(agent) else {
            return shared.inbox.cancel_answered(task, CancelAnswer::Failed);
        };
        let run = async move {
            let asking = AssertUnwindSafe(async {
                match known.spec.lease {
                    Some(_) => worker_stops(&shared, task, until).await,
                    None => cancel_until(&shared, &known.agent, task, &remote_task, until).await,
                }
            });
            let answer = asking.catch_unwind().await.unwrap_or(CancelAnswer::Failed);
            shared.cancel_answered(task, answer);
        };
        if let Some(old) = self.cancels.insert(task, self.shared.runtime.spawn(run).abort_handle()) {
            old.abort();
        }
    }
}

/// What becomes of a message that its caller may not send any more: what counts is what is in force now, however long it
/// has waited. `None`: it may be sent.
fn forbidden(shared: &Shared, live: &Live, dispatch: &Dispatch) -> Option<Outcome> {
    let (task, agent, attempt) = (dispatch.task, &dispatch.agent, dispatch.attempt);
    match shared.rules().verdict(&live.principal, agent) {
        Verdict::Send => None,
        Verdict::Wait => {
            tracing::warn!(%task, %agent, "not sent: the tokens cannot be read, and whether its caller may call cannot be said");
            Some(Outcome::Withheld)
        }
        Verdict::Refuse(why) => {
            tracing::info!(%task, %agent, caller = %live.principal.caller, ?why, "not sent: it is not allowed any more");
            live.begin(attempt);
            live.explain(attempt, Detail { message: Some(why.told(agent)), ..Detail::default() });
            let (reason, delivery) = (Reason::Forbidden, Delivery::NotSent);
            Some(Outcome::Failed(Fault { reason, delivery, retry_after: None, busy: false }))
        }
    }
}

/// The driver is gone, and nothing is ever answered again: everybody is told so.
pub(crate) fn collapse(shared: &Shared) {
    tracing::error!("the driver of the cell has ended by a panic; the gateway serves nothing any more");
    shared.inbox.shut();
    for (id, line) in shared.lines.take_all() {
        shared.hub.withdraw(id);
        let _ = line.to.send(refused(&line.agent, Reason::Internal, None));
    }
    shared.hub.close_streams(End::ShuttingDown);
    shared.set_health(Health::Gone);
}

pub(super) fn refused(agent: &AgentId, reason: Reason, retry_after: Option<Span>) -> Told {
    Told::Declined(Declined::Refused { reason, agent: agent.clone(), retry_after, cause: None })
}

/// How a turn gets to its agent.
enum Way {
    Called(Arc<Agent>),
    /// Its worker speaks there, within this time.
    Fetched(Seat, Duration),
}

async fn attempt_of(
    shared: &Arc<Shared>,
    live: &Live,
    way: Way,
    dispatch: Dispatch,
    mut ear: Ear,
    send: bool,
) -> Outcome {
    let message = match live.message(dispatch.turn) {
        Some(message) => Some(message),
        None => stored_message(shared, dispatch.task, dispatch.turn, send).await,
    };
    let Some(message) = message else {
        let fault =
            Fault { reason: Reason::StoreUnavailable, delivery: Delivery::NotSent, retry_after: None, busy: false };
        return Outcome::Failed(fault);
    };
    live.fill_with(&message);
    let extensions = header(message.trace.extensions.as_ref());
    let job = Job {
        delegation: shared.chain.token(dispatch.root, dispatch.task, &dispatch.agent),
        dispatch,
        traceparent: header(traceparent(&message.trace).as_ref()),
        tracestate: header(message.trace.state.as_ref()),
        extensions: extensions.clone(),
        references: references(shared, live, &message.params).await,
        tenant: live.along.named_or(|| Named::of(&message.params, extensions)).tenant.clone(),
        message: message.params,
    };
    let end = match (way, send) {
        (Way::Called(agent), true) => agent.send(&job, &mut ear).await,
        (Way::Called(agent), false) => agent.watch(&job, &mut ear).await,
        (Way::Fetched(mut seat, lease), send) => seat.attend(&job, &mut ear, lease, !send).await,
    };
    if let Some(learnt) = ear.learnt().filter(|_| end.ended.is_ok())
        && is_foreign(shared, live, learnt).await
    {
        return Outcome::Failed(relay::malformed());
    }
    ear.finish(end)
}

fn header(text: Option<&String>) -> Option<HeaderValue> {
    HeaderValue::from_str(text?).ok()
}

/// Whether the agent gave this task id to another delegation before, that only the store knows any more.
async fn is_foreign(shared: &Arc<Shared>, live: &Live, remote_task: RemoteId) -> bool {
    if let Some(first) = shared.shelf.owner(&live.agent, &remote_task) {
        return first != live.task;
    }
    if live.volatile {
        return false;
    }
    let (store, agent) = (shared.store.clone(), live.agent.clone());
    if store.is_new_remote(&agent, &remote_task) {
        return false;
    }
    let first = tokio::task::spawn_blocking(move || store.remote_task(&agent, &remote_task)).await;
    matches!(first, Ok(Ok(Some(first))) if first != live.task)
}

/// A message that was not kept in memory. A watch goes on without it; nothing else than the message is ever sent.
async fn stored_message(shared: &Arc<Shared>, task: TaskId, turn: u32, send: bool) -> Option<Message> {
    let store = shared.store.clone();
    let read = tokio::task::spawn_blocking(move || store.message(task, turn));
    let body = match read.await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            tracing::error!(%task, %error, "the message cannot be read");
            return None;
        }
        Err(_) => None,
    };
    match body {
        Some(body) => Message::from_bytes(body.bytes),
        None if send => None,
        None => Some(Message { params: Json::assume("{}"), trace: Trace::default(), home: Home::default() }),
    }
}

/// What the caller's other tasks with this agent, which the message refers to, are called there.
async fn references(shared: &Arc<Shared>, live: &Live, params: &Json) -> Vec<(String, RemoteId)> {
    let message = params.value().get("message");
    let named = message.and_then(|message| message.get("referenceTaskIds"));
    let named = named.into_iter().flat_map(|list| list.items()).filter_map(|id| id.as_str().map(|id| id.into_owned()));
    let tasks: Vec<TaskId> = named.take(MAX_REFERENCES).filter_map(|id| TaskId::parse(&id)).collect();
    if tasks.is_empty() {
        return Vec::new();
    }
    let (inside, principal, agent) = (shared.clone(), live.principal.clone(), live.agent.clone());
    let read = tokio::task::spawn_blocking(move || {
        let remote = |task: TaskId| match inside.hub.live(task) {
            Some(live) => live.view().filter(|_| live.belongs_to(&principal, &agent))?.remote_task,
            None => {
                let kept = inside.shelf.row(task).map(|row| Row::clone(&row));
                let row = kept.or_else(|| inside.store.task(task).ok().flatten());
                row.filter(|row| row.principal == principal && row.agent == agent)?.remote_task
            }
        };
        tasks.into_iter().filter_map(|task| Some((task.to_string(), remote(task)?))).collect()
    });
    read.await.unwrap_or_default()
}

/// The same trace under a new span; a new trace if there is none.
fn traceparent(trace: &Trace) -> Option<String> {
    let span = clock::random().ok()?;
    let parent = trace.parent.as_deref().and_then(TraceParent::parse);
    Some(match parent {
        Some(parent) => parent.child(span).to_string(),
        None => TraceParent::root(clock::random().ok()?, span, false).to_string(),
    })
}

/// A worker hears of a cancel when it speaks next. How it ends then is its attempt's to tell.
async fn worker_stops(shared: &Shared, task: TaskId, until: Time) -> CancelAnswer {
    if shared.fetching.cancel(task) {
        let left = until.since(shared.clock.now());
        tokio::time::sleep(Duration::from_micros(left.as_micros())).await;
    }
    CancelAnswer::Failed
}

async fn cancel_until(
    shared: &Arc<Shared>,
    agent: &Agent,
    task: TaskId,
    remote_task: &RemoteId,
    until: Time,
) -> CancelAnswer {
    let live = shared.hub.live(task);
    // After a restart only the store knows.
    let mut named = match live.as_ref().and_then(|live| live.along.named().cloned()) {
        Some(named) => named,
        None => {
            let first = stored_message(shared, task, 1, false).await;
            first.map_or_else(Named::default, |first| Named::of(&first.params, header(first.trace.extensions.as_ref())))
        }
    };
    named.said = live.and_then(|live| live.along.said_with_cancel());
    let mut pause = CANCEL_AGAIN.0;
    loop {
        let answer = agent.cancel(remote_task, &named, until).await;
        let left = Duration::from_micros(until.since(shared.clock.now()).as_micros());
        if answer != CancelAnswer::Failed || left <= pause {
            return answer;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(CANCEL_AGAIN.1);
    }
}

//! Agents that fetch their work: what a worker was given, and what it says of it.
//!
//! An attempt at such an agent is no call. It waits here, with an address of its own, for the words of the worker that was
//! given the turn, and hands them to the [relay](crate::relay) as the events that an agent would have sent; so all behind it is
//! the same. A worker holds its work by a lease, and names it by a fence: the attempt's number, which the row has and which
//! only grows. Who was given it before names another one, and is not heard.
//!
//! Assumes that the engine gives a turn to a worker at a time, and that whoever speaks was found to be of that agent. What a
//! worker is told to have begun, or ended, is durable by then ([`Fetching::shown`]).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use watertight_a2a::event::Event;
use watertight_a2a::json::{Json, Limits};
use watertight_a2a::said;
use watertight_engine::ids::{AgentId, Attempt, TaskId};
use watertight_engine::input::Fault;
use watertight_engine::record::{Delivery, TaskState};
use watertight_policy::reason::Reason;

use crate::agents::{Detail, End, Job, Relay};
use crate::driver::shared::Shared;
use crate::relay::{Ear, malformed};

/// Words of one worker that may wait to be heard.
const MAX_WORDS: usize = 8;

/// The turns that workers have, or are being given.
#[derive(Default)]
pub(crate) struct Fetching {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    held: BTreeMap<TaskId, Held>,
    /// Who waits until what was said of a task is durable: its begin, or its end.
    unsure: BTreeMap<TaskId, Vec<(Until, oneshot::Sender<()>)>>,
}

struct Held {
    agent: AgentId,
    attempt: Attempt,
    to: mpsc::Sender<Word>,
    /// Somebody wants it to stop.
    cancel: bool,
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// That it runs.
    Begun,
    /// That its turn is over.
    Over,
}

/// What an attempt is told.
enum Word {
    /// A worker is here for it.
    Take(oneshot::Sender<Work>),
    /// The worker that it was for has left.
    Left,
    Said(Said, oneshot::Sender<Result<(), Unheard>>),
}

/// What a worker is given.
pub(crate) struct Work {
    pub(crate) task: TaskId,
    /// What all that it says of it has to name.
    pub(crate) fence: Attempt,
    pub(crate) turn: u32,
    pub(crate) context: String,
    pub(crate) lease: Duration,
    /// The message, as an agent that is called would be sent it.
    pub(crate) params: Json,
    /// Likewise.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// What a worker says.
#[derive(Debug)]
pub(crate) enum Said {
    /// It begins.
    Start,
    /// It is still at it.
    Extend,
    /// How far it is.
    Progress(Parts),
    /// A piece of its answer.
    Partial(Parts),
    /// It needs an answer from whoever sent the message.
    Ask(Parts),
    /// It is done.
    Finish(TaskState, Option<Parts>),
}

/// The parts of a message: an array, as the worker wrote it, number by number.
#[derive(Debug)]
pub(crate) struct Parts(Box<RawValue>);

impl Parts {
    /// `None`: it is no array.
    pub(crate) fn of(parts: Box<RawValue>) -> Option<Parts> {
        parts.get().starts_with('[').then_some(Parts(parts))
    }

    /// What is said in them.
    pub(crate) fn into_text(self) -> String {
        let message = format!(r#"{{"parts":{}}}"#, self.0);
        let read = Json::parse(message, &Limits::default());
        read.map(|message| said::request(message.value()).text()).unwrap_or_default()
    }

    /// One, of text.
    pub(crate) fn text(text: &str) -> Option<Parts> {
        Parts::of(serde_json::value::to_raw_value(&[json!({"text": text})]).ok()?)
    }
}

/// Why it was not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unheard {
    /// It is not this worker's any more.
    Gone,
    /// It has to begin first.
    NotBegun,
    /// What it said is not what can be said.
    Malformed,
}

/// Where an attempt is spoken to; when it ends, nobody is heard any more.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    task: TaskId,
    attempt: Attempt,
    words: mpsc::Receiver<Word>,
}

impl Fetching {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn to(&self, task: TaskId, attempt: Attempt) -> Option<mpsc::Sender<Word>> {
        self.lock().held.get(&task).filter(|held| held.attempt == attempt).map(|held| held.to.clone())
    }

    /// The turn that a worker was given. `None`: it was taken back meanwhile.
    pub(crate) async fn take(&self, task: TaskId, attempt: Attempt) -> Option<Work> {
        let (to, work) = oneshot::channel();
        self.to(task, attempt)?.send(Word::Take(to)).await.ok()?;
        work.await.ok()
    }

    /// The worker that it was for was gone before it could be given it.
    pub(crate) fn left(&self, task: TaskId, attempt: Attempt) {
        // Its seat is new, and so there is room; the lease would end it too.
        let _ = self.to(task, attempt).map(|to| to.try_send(Word::Left));
    }

    /// Whether this agent's worker has it under this fence; and then, whether it is to stop.
    pub(crate) fn has(&self, agent: &AgentId, task: TaskId, fence: Attempt) -> Option<bool> {
        let inner = self.lock();
        inner.held.get(&task).filter(|held| held.agent == *agent && held.attempt == fence).map(|held| held.cancel)
    }

    /// Says something of it.
    pub(crate) async fn say(&self, task: TaskId, fence: Attempt, said: Said) -> Result<(), Unheard> {
        let (to, heard) = oneshot::channel();
        let held = self.to(task, fence).ok_or(Unheard::Gone)?;
        held.send(Word::Said(said, to)).await.map_err(|_| Unheard::Gone)?;
        heard.await.unwrap_or(Err(Unheard::Gone))
    }

    /// Its worker is to stop, and hears of it with the next thing that it says. `false`: nobody has it.
    pub(crate) fn cancel(&self, task: TaskId) -> bool {
        self.lock().held.get_mut(&task).map(|held| held.cancel = true).is_some()
    }

    /// Resolves when that is durable; fails when it never will be.
    pub(crate) fn durable(&self, task: TaskId, until: Until) -> oneshot::Receiver<()> {
        let (to, shown) = oneshot::channel();
        let mut inner = self.lock();
        let waiting = inner.unsure.entry(task).or_default();
        waiting.retain(|(_, to)| !to.is_closed());
        waiting.push((until, to));
        shown
    }

    /// What was decided about it is durable.
    pub(crate) fn shown(&self, task: TaskId, what: Until) {
        let mut inner = self.lock();
        let Some(waiting) = inner.unsure.remove(&task) else { return };
        let (told, left) = waiting.into_iter().partition(|(until, _)| what == Until::Over || *until == what);
        if !Vec::is_empty(&left) {
            inner.unsure.insert(task, left);
        }
        for (_, to) in told {
            let _ = to.send(());
        }
    }
}

impl Seat {
    pub(crate) fn new(shared: &Arc<Shared>, agent: &AgentId, task: TaskId, attempt: Attempt) -> Seat {
        let (to, words) = mpsc::channel(MAX_WORDS);
        let held = Held { agent: agent.clone(), attempt, to, cancel: false };
        shared.fetching.lock().held.insert(task, held);
        Seat { shared: shared.clone(), task, attempt, words }
    }

    /// One attempt: until the worker has ended it, or its lease has. `begun`: a worker of a life before has it.
    pub(crate) async fn attend(&mut self, job: &Job, ear: &mut Ear, lease: Duration, mut begun: bool) -> End {
        let context = ear.context_toward(job);
        let mut ends = Instant::now() + lease;
        loop {
            let word = tokio::select! {
                biased;
                word = self.words.recv() => word,
                () = sleep_until(ends) => None,
            };
            let (said, reply) = match word {
                None if begun => return lease_ended(lease),
                None | Some(Word::Left) => return nobody_began(),
                Some(Word::Take(to)) => match to.send(self.work(job, &context, lease)) {
                    Ok(()) => continue,
                    Err(_) => return nobody_began(),
                },
                Some(Word::Said(said, reply)) => (said, reply),
            };
            if !begun && !matches!(said, Said::Start) {
                let _ = reply.send(Err(Unheard::NotBegun));
                continue;
            }
            ends = Instant::now() + lease;
            let over = matches!(said, Said::Ask(_) | Said::Finish(..));
            let events = self.events(&said, &context, job.dispatch.turn, begun);
            begun = true;
            match events {
                Some(events) => {
                    let refused = events.into_iter().find_map(|event| match ear.event(event) {
                        ControlFlow::Break(fault) => Some(fault),
                        ControlFlow::Continue(()) => None,
                    });
                    let _ = reply.send(Ok(()));
                    match refused {
                        Some(fault) => return End { ended: Err(fault), detail: None },
                        None if over => return End { ended: Ok(()), detail: None },
                        None => {}
                    }
                }
                None => {
                    let _ = reply.send(Err(Unheard::Malformed));
                }
            }
        }
    }

    fn work(&self, job: &Job, context: &str, lease: Duration) -> Work {
        let mut job = job.clone();
        job.dispatch.remote_context = Some(context.into());
        let header = |name, value: &Option<http::HeaderValue>| Some((name, value.as_ref()?.to_str().ok()?.to_owned()));
        let headers = [
            header("traceparent", &job.traceparent),
            header("tracestate", &job.tracestate),
            header("a2a-extensions", &job.extensions),
        ];
        Work {
            task: self.task,
            fence: self.attempt,
            turn: job.dispatch.turn,
            context: context.to_owned(),
            lease,
            params: job.params(self.shared.clock.now(), job.tenant.as_deref(), None),
            headers: headers.into_iter().flatten().collect(),
        }
    }

    /// What an agent that is called would have sent. `None`: nothing that could be sent.
    fn events(&self, said: &Said, context: &str, turn: u32, begun: bool) -> Option<Vec<Event>> {
        let (task, quoted) = (self.task.to_string(), Json::string(context));
        let ids = format!(r#""taskId":"{task}","contextId":{}"#, String::from_utf8_lossy(quoted.as_bytes()));
        let message = |parts: &Parts| {
            let id = format!("{task}-{}-{}", self.attempt.0, self.shared.clock.now().as_micros());
            format!(r#","message":{{"messageId":"{id}","role":"ROLE_AGENT",{ids},"parts":{}}}"#, parts.0)
        };
        let status = |state: TaskState, parts: Option<&Parts>| {
            let (state, said) = (state.as_str(), parts.map(message).unwrap_or_default());
            format!(r#"{{"statusUpdate":{{{ids},"status":{{"state":"{state}"{said}}}}}}}"#)
        };
        let artifact = |parts: &Parts, append: bool| {
            let artifact = format!(r#"{{"artifactId":"answer-{turn}","parts":{}}}"#, parts.0);
            format!(r#"{{"artifactUpdate":{{{ids},"artifact":{artifact},"append":{append}}}}}"#)
        };
        let events = match said {
            Said::Start if begun => Vec::new(),
            Said::Start => vec![status(TaskState::Working, None)],
            Said::Extend => Vec::new(),
            Said::Progress(parts) => vec![status(TaskState::Working, Some(parts))],
            Said::Partial(parts) => vec![artifact(parts, true)],
            Said::Ask(parts) => vec![status(TaskState::InputRequired, Some(parts))],
            Said::Finish(TaskState::Completed, Some(parts)) => {
                vec![artifact(parts, false), status(TaskState::Completed, None)]
            }
            Said::Finish(state, parts) => vec![status(*state, parts.as_ref())],
        };
        let read = |event: String| Event::read(&Json::parse(event, &Limits::default()).ok()?).ok();
        events.into_iter().map(read).collect()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inner = self.shared.fetching.lock();
        if inner.held.get(&self.task).is_some_and(|held| held.attempt == self.attempt) {
            inner.held.remove(&self.task);
        }
        // What has not begun by now never will.
        if let Some(waiting) = inner.unsure.get_mut(&self.task) {
            waiting.retain(|(until, _)| *until != Until::Begun);
            if waiting.is_empty() {
                inner.unsure.remove(&self.task);
            }
        }
    }
}

/// It is offered again.
fn nobody_began() -> End {
    let fault = Fault { reason: Reason::NoWorker, delivery: Delivery::NotSent, retry_after: None, busy: false };
    End { ended: Err(fault), detail: None }
}

fn lease_ended(lease: Duration) -> End {
    let fault = Fault { delivery: Delivery::Delivered, reason: Reason::AgentUnreachable, ..malformed() };
    let what = format!("the worker that had begun with it said nothing for its lease of {} s", lease.as_secs_f64());
    End { ended: Err(fault), detail: Some(Detail { what, waited: lease, ..Detail::default() }) }
}

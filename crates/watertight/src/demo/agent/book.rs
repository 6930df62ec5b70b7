//! An agent's tasks: each is a timer that ends in an offer, or in a cancellation.
//!
//! A task keeps the latency it started with; changing the latency concerns the tasks that start afterwards.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::demo::clock::{self, Clock};
use crate::demo::model::Agent;

/// Tasks and log entries kept; the oldest ended ones go first.
const MAX_KEPT: usize = 20_000;

/// What can become of a task here.
///
/// ```text
/// Submitted ──► Working ──► Completed
///                  └──────► Canceled
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Submitted,
    Working,
    Completed,
    Canceled,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Submitted => "TASK_STATE_SUBMITTED",
            State::Working => "TASK_STATE_WORKING",
            State::Completed => "TASK_STATE_COMPLETED",
            State::Canceled => "TASK_STATE_CANCELED",
        }
    }

    pub(super) fn is_terminal(self) -> bool {
        matches!(self, State::Completed | State::Canceled)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Status {
    pub(super) state: State,
    pub(super) unix_ms: u64,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) context_id: String,
    pub(super) message: Value,
    seq: u64,
    status: watch::Sender<Status>,
    cancel: Notify,
}

impl Task {
    pub(super) fn status(&self) -> Status {
        *self.status.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Asks the work to stop. The caller then waits for the end, whichever it is.
    pub(super) fn cancel(&self) {
        self.cancel.notify_one();
    }

    pub(super) async fn ended(&self) -> Status {
        let mut watch = self.watch();
        match watch.wait_for(|status| status.state.is_terminal()).await {
            Ok(status) => *status,
            Err(_) => self.status(),
        }
    }

    fn enter(&self, state: State) {
        self.status.send_replace(Status { state, unix_ms: clock::unix_ms() });
    }
}

#[derive(Debug)]
struct Span {
    id: String,
    started: Duration,
    ended: Option<(Duration, State)>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    by_id: BTreeMap<String, Arc<Task>>,
    /// Oldest first.
    log: VecDeque<Span>,
    running: u64,
    completed: u64,
    canceled: u64,
}

#[derive(Debug)]
pub(super) struct Book {
    agent: Agent,
    url: String,
    /// Sets this process's task ids apart from those of an earlier one.
    run: u64,
    clock: Clock,
    latency_ms: AtomicU64,
    inner: Mutex<Inner>,
}

impl Book {
    pub(super) fn new(agent: Agent, url: String, latency: Duration) -> Book {
        let latency_ms = AtomicU64::new(millis(latency));
        let inner = Mutex::new(Inner::default());
        Book { agent, url, run: clock::unix_ms(), clock: Clock::start(), latency_ms, inner }
    }

    pub(super) fn agent(&self) -> Agent {
        self.agent
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        self.latency_ms.store(millis(latency), Ordering::Relaxed);
    }

    /// Starts the work for a message. It ends by itself or by a cancel, never because a caller hung up.
    pub(super) fn start(self: &Arc<Self>, context_id: Option<String>, message: Value) -> Arc<Task> {
        let task = self.admit(context_id, message);
        let (book, work) = (Arc::clone(self), Arc::clone(&task));
        let latency = jittered(self.latency_ms.load(Ordering::Relaxed), task.seq);
        tokio::spawn(async move {
            work.enter(State::Working);
            let end = tokio::select! {
                biased;
                () = work.cancel.notified() => State::Canceled,
                () = tokio::time::sleep(latency) => State::Completed,
            };
            book.note_end(&work, end);
            work.enter(end);
        });
        task
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Task>> {
        self.lock().by_id.get(id).cloned()
    }

    /// Newest status first, as ListTasks wants it.
    pub(super) fn all(&self) -> Vec<Arc<Task>> {
        let mut tasks: Vec<_> = self.lock().by_id.values().cloned().collect();
        tasks.sort_by_key(|task| (std::cmp::Reverse(task.status().unix_ms), std::cmp::Reverse(task.seq)));
        tasks
    }

    pub(super) fn stats(&self) -> Value {
        let inner = self.lock();
        json!({
            "name": self.agent.name(),
            "latency_ms": self.latency_ms.load(Ordering::Relaxed),
            "running": inner.running,
            "started": inner.next,
            "completed": inner.completed,
            "canceled": inner.canceled,
        })
    }

    /// When each task ran, in milliseconds on the agent's clock, which `now_ms` lets a reader place on its own.
    pub(super) fn log(&self) -> Value {
        let inner = self.lock();
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let span = |span: &Span| {
            let ended = span.ended.map(|(at, state)| (ms(at), state.name()));
            json!({
                "id": span.id,
                "started_ms": ms(span.started),
                "ended_ms": ended.map(|(at, _)| at),
                "state": ended.map_or(State::Working.name(), |(_, state)| state),
            })
        };
        json!({"now_ms": ms(self.clock.now()), "tasks": inner.log.iter().map(span).collect::<Vec<_>>()})
    }

    /// The task as A2A writes it.
    pub(super) fn render(&self, task: &Task, with_artifacts: bool, with_history: bool) -> Value {
        let status = task.status();
        let mut rendered = json!({
            "id": task.id,
            "contextId": task.context_id,
            "status": render_status(status),
        });
        if with_artifacts && status.state == State::Completed {
            rendered["artifacts"] = json!([self.artifact(task)]);
        }
        if with_history {
            rendered["history"] = json!([task.message]);
        }
        rendered
    }

    pub(super) fn artifact(&self, task: &Task) -> Value {
        json!({
            "artifactId": "offers",
            "name": format!("{} offers", self.agent),
            "parts": [{"data": {"offers": offers(self.agent, task.seq)}, "mediaType": "application/json"}],
        })
    }

    fn admit(&self, context_id: Option<String>, message: Value) -> Arc<Task> {
        let mut inner = self.lock();
        let seq = inner.next;
        inner.next += 1;
        inner.running += 1;
        let id = format!("{}-{:x}-{seq}", self.agent, self.run);
        let context_id = context_id.unwrap_or_else(|| format!("ctx-{id}"));
        let first = Status { state: State::Submitted, unix_ms: clock::unix_ms() };
        let (status, _) = watch::channel(first);
        let task = Arc::new(Task { id: id.clone(), context_id, message, seq, status, cancel: Notify::new() });
        inner.by_id.insert(id.clone(), Arc::clone(&task));
        inner.log.push_back(Span { id, started: self.clock.now(), ended: None });
        while inner.log.len() > MAX_KEPT && inner.log.front().is_some_and(|span| span.ended.is_some()) {
            if let Some(span) = inner.log.pop_front() {
                inner.by_id.remove(&span.id);
            }
        }
        task
    }

    fn note_end(&self, task: &Task, end: State) {
        let mut inner = self.lock();
        let now = self.clock.now();
        inner.running -= 1;
        match end {
            State::Canceled => inner.canceled += 1,
            State::Completed | State::Submitted | State::Working => inner.completed += 1,
        }
        if let Some(span) = inner.log.iter_mut().rev().find(|span| span.id == task.id) {
            span.ended = Some((now, end));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn render_status(status: Status) -> Value {
    json!({"state": status.state.name(), "timestamp": clock::rfc3339(status.unix_ms)})
}

fn offers(agent: Agent, seq: u64) -> Value {
    let cheap = seq * 37 % 90;
    match agent {
        Agent::Flights => json!([
            {"id": format!("FL-{}", 100 + cheap), "price": 120 + cheap, "currency": "EUR"},
            {"id": format!("FL-{}", 300 + cheap), "price": 180 + cheap, "currency": "EUR"},
        ]),
        Agent::Hotels => json!([
            {"id": format!("HT-{}", 10 + cheap), "price": 80 + cheap, "currency": "EUR"},
            {"id": format!("HT-{}", 200 + cheap), "price": 140 + cheap, "currency": "EUR"},
        ]),
        Agent::Fx => json!([{"id": "EUR-USD", "price": 1.08, "currency": "USD"}]),
    }
}

/// Up to 2.5 % more or less, in a fixed pattern of eleven, so that any few seconds have the same spread.
fn jittered(ms: u64, seq: u64) -> Duration {
    let step = (seq * 7 % 11) as f64 - 5.0;
    Duration::from_secs_f64(ms as f64 / 1e3 * (1.0 + step * 0.005))
}

fn millis(d: Duration) -> u64 {
    d.as_millis().try_into().unwrap_or(u64::MAX)
}

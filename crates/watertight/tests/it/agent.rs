//! A well-behaved A2A 1.0 agent that keeps its tasks: blocking and immediate sends, streams, subscriptions, polls, cancels, rounds of questions.
//! What a turn does is a list of steps, chosen by the test from the turn's text.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::ms;
use crate::peer::{After, Card, Peer, Received, Wire};

/// One thing that an agent does in a turn.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Say WORKING, with a text.
    Work(&'static str),
    /// Take this long. A cancel ends it.
    Take(Duration),
    /// Add a piece to the artifact `out`; the first one begins it.
    Chunk(String),
    /// Ask the caller something, and end the turn.
    Ask(&'static str),
    /// End the task in this state; COMPLETED with the artifact so far.
    End(&'static str),
}

/// What the agent does when asked to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCancel {
    /// Stops the work and says CANCELED.
    Stop,
    /// Answers with the task as it is, and works on.
    Ignore,
    /// Never answers.
    Hang,
}

/// A running agent; it can be asked what it was sent like any peer.
pub(crate) struct Agent {
    pub(crate) peer: Peer,
    work: Arc<Work>,
}

/// From a turn's text to what the agent does.
type Script = Box<dyn Fn(&str) -> Vec<Step> + Send + Sync>;

struct Work {
    script: Script,
    tasks: Mutex<BTreeMap<String, Task>>,
    changed: Condvar,
    on_cancel: Mutex<OnCancel>,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

struct Task {
    context: String,
    state: &'static str,
    text: String,
    output: Option<String>,
    /// What its callers said.
    heard: Vec<Value>,
    /// Every update so far, for streams and subscribers to follow.
    updates: Vec<Value>,
}

impl Agent {
    /// An agent that answers every message with `echo: …` at once.
    pub(crate) fn echo() -> Self {
        Self::start(Card::Plain, |text| vec![Step::Chunk(format!("echo: {text}")), Step::End("COMPLETED")])
    }

    pub(crate) fn start(card: Card, script: impl Fn(&str) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let work = Arc::new(Work {
            script: Box::new(script),
            tasks: Mutex::default(),
            changed: Condvar::new(),
            on_cancel: Mutex::new(OnCancel::Stop),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        });
        let own = work.clone();
        Self { peer: Peer::start(card, move |request, wire| answer(&own, request, wire)), work }
    }

    pub(crate) fn url(&self) -> String {
        self.peer.url()
    }

    pub(crate) fn on_cancel(&self, what: OnCancel) {
        *self.work.on_cancel.lock().unwrap() = what;
    }

    /// How many turns are running now.
    pub(crate) fn running(&self) -> usize {
        self.work.running.load(Ordering::SeqCst)
    }

    /// The most turns that ran at the same time.
    pub(crate) fn most_running(&self) -> usize {
        self.work.most_running.load(Ordering::SeqCst)
    }

    /// How many of the agent's tasks are in a state.
    pub(crate) fn in_state(&self, state: &str) -> usize {
        self.work.tasks().values().filter(|t| t.state == state).count()
    }
}

fn answer(work: &Arc<Work>, request: &Received, wire: &mut Wire) -> After {
    let params = request.params();
    match request.method() {
        "SendMessage" => {
            let Some(id) = begin(work, params) else { return wire.error(-32001, "no such task") };
            let now = params["configuration"]["returnImmediately"].as_bool().unwrap_or(false);
            let mut tasks = work.tasks();
            while !now && !tasks[&id].settled() {
                tasks = work.changed.wait(tasks).unwrap();
            }
            let task = tasks[&id].json(&id);
            drop(tasks);
            wire.ok(&json!({"task": task}))
        }
        "SendStreamingMessage" => {
            let Some(id) = begin(work, params) else { return wire.error(-32001, "no such task") };
            follow(work, &id, wire)
        }
        "SubscribeToTask" => {
            let ended = work.tasks().get(id_of(params)).map(Task::ended);
            match ended {
                None => wire.error(-32001, "no such task"),
                Some(true) => wire.error(-32004, "the task has ended"),
                Some(false) => follow(work, id_of(params), wire),
            }
        }
        "GetTask" => {
            let task = work.tasks().get(id_of(params)).map(|t| t.json(id_of(params)));
            known(task, wire)
        }
        "ListTasks" => {
            let tasks = work.tasks();
            let inside = tasks.iter().filter(|(_, task)| params["contextId"] == task.context.as_str());
            let listed: Vec<Value> = inside.map(|(id, task)| task.with_history(id)).collect();
            drop(tasks);
            wire.ok(&json!({"tasks": listed, "nextPageToken": "", "pageSize": 50, "totalSize": listed.len()}))
        }
        "CancelTask" => cancel(work, id_of(params), wire),
        _ => wire.error(-32601, "method not found"),
    }
}

fn id_of(params: &Value) -> &str {
    params["id"].as_str().unwrap_or("")
}

/// Starts a turn, on a new task or on the one that the message names.
fn begin(work: &Arc<Work>, params: &Value) -> Option<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let message = &params["message"];
    let named = message["taskId"].as_str().filter(|id| !id.is_empty());
    let mut tasks = work.tasks();
    let id = if let Some(id) = named {
        let task = tasks.get_mut(id).filter(|t| !t.ended())?;
        task.state = "SUBMITTED";
        id.to_owned()
    } else {
        let id = format!("remote-{}", NEXT.fetch_add(1, Ordering::SeqCst));
        let context = message["contextId"].as_str().map_or_else(|| format!("context-of-{id}"), str::to_owned);
        tasks.insert(
            id.clone(),
            Task {
                context,
                state: "SUBMITTED",
                text: String::new(),
                output: None,
                heard: Vec::new(),
                updates: Vec::new(),
            },
        );
        id
    };
    tasks.get_mut(&id)?.heard.push(message.clone());
    drop(tasks);
    let steps = (work.script)(message["parts"][0]["text"].as_str().unwrap_or(""));
    let (work, turn) = (work.clone(), id.clone());
    thread::spawn(move || {
        let running = work.running.fetch_add(1, Ordering::SeqCst) + 1;
        work.most_running.fetch_max(running, Ordering::SeqCst);
        let _cut_short = steps.iter().try_for_each(|step| work.play(&turn, step));
        work.running.fetch_sub(1, Ordering::SeqCst);
    });
    Some(id)
}

/// Streams a task: a snapshot, then every update until the turn has ended.
fn follow(work: &Work, id: &str, wire: &mut Wire) -> After {
    if !wire.events() {
        return After::Close;
    }
    let mut tasks = work.tasks();
    let mut sent = tasks[id].updates.len();
    let snapshot = json!({"task": tasks[id].json(id)});
    let mut settled = tasks[id].settled();
    drop(tasks);
    if !wire.event(&snapshot) {
        return After::Close;
    }
    while !settled {
        tasks = work.tasks();
        while tasks[id].updates.len() == sent {
            tasks = work.changed.wait(tasks).unwrap();
        }
        let news = tasks[id].updates[sent..].to_vec();
        sent += news.len();
        settled = tasks[id].settled();
        drop(tasks);
        if !news.iter().all(|update| wire.event(update)) {
            return After::Close;
        }
    }
    After::Close
}

fn cancel(work: &Work, id: &str, wire: &mut Wire) -> After {
    let on_cancel = *work.on_cancel.lock().unwrap();
    match on_cancel {
        OnCancel::Hang => {
            wire.hold(Duration::from_secs(600));
            return After::Close;
        }
        OnCancel::Stop => {
            let mut tasks = work.tasks();
            match tasks.get_mut(id) {
                None => {}
                Some(task) if task.ended() => {
                    drop(tasks);
                    return wire.error(-32002, "the task has ended");
                }
                Some(task) => task.set(id, "CANCELED", "stopped"),
            }
            work.changed.notify_all();
        }
        OnCancel::Ignore => {}
    }
    let task = work.tasks().get(id).map(|t| t.json(id));
    known(task, wire)
}

fn known(task: Option<Value>, wire: &mut Wire) -> After {
    match task {
        Some(task) => wire.ok(&task),
        None => wire.error(-32001, "no such task"),
    }
}

impl Work {
    fn tasks(&self) -> MutexGuard<'_, BTreeMap<String, Task>> {
        self.tasks.lock().unwrap()
    }

    /// Does one step; `None` where the task was ended by somebody else, so that the turn is over.
    fn play(&self, id: &str, step: &Step) -> Option<()> {
        if let Step::Take(time) = step {
            let canceled = self.changed.wait_timeout_while(self.tasks(), *time, |tasks| !tasks[id].ended()).unwrap().0;
            return (!canceled[id].ended()).then_some(());
        }
        let mut tasks = self.tasks();
        let task = tasks.get_mut(id).filter(|t| !t.ended())?;
        match step {
            Step::Take(_) => {}
            Step::Work(text) => task.set(id, "WORKING", text),
            Step::Chunk(text) => task.add(id, text),
            Step::Ask(text) => task.set(id, "INPUT_REQUIRED", text),
            Step::End(state) => task.set(id, state, ""),
        }
        self.changed.notify_all();
        Some(())
    }
}

impl Task {
    fn ended(&self) -> bool {
        matches!(self.state, "COMPLETED" | "FAILED" | "CANCELED" | "REJECTED")
    }

    fn settled(&self) -> bool {
        self.ended() || matches!(self.state, "INPUT_REQUIRED" | "AUTH_REQUIRED")
    }

    fn set(&mut self, id: &str, state: &'static str, text: &str) {
        self.state = state;
        text.clone_into(&mut self.text);
        self.updates
            .push(json!({"statusUpdate": {"taskId": id, "contextId": self.context, "status": self.status(id)}}));
    }

    fn add(&mut self, id: &str, text: &str) {
        let append = self.output.is_some();
        self.output.get_or_insert_default().push_str(text);
        let artifact = json!({"artifactId": "out", "parts": [{"text": text}]});
        self.updates.push(json!({
            "artifactUpdate": {"taskId": id, "contextId": self.context, "artifact": artifact, "append": append}
        }));
    }

    fn status(&self, id: &str) -> Value {
        let mut status =
            json!({"state": format!("TASK_STATE_{}", self.state), "timestamp": "2026-01-01T00:00:00.000Z"});
        if !self.text.is_empty() {
            status["message"] = json!({
                "messageId": format!("{id}-says-{}", self.updates.len()), "role": "ROLE_AGENT", "parts": [{"text": self.text}],
                "taskId": id, "contextId": self.context,
            });
        }
        status
    }

    fn with_history(&self, id: &str) -> Value {
        let mut task = self.json(id);
        task["history"] = json!(self.heard);
        task
    }

    fn json(&self, id: &str) -> Value {
        let mut task = json!({"id": id, "contextId": self.context, "status": self.status(id)});
        if let Some(output) = &self.output {
            task["artifacts"] = json!([{"artifactId": "out", "parts": [{"text": output}]}]);
        }
        task
    }
}

/// An agent's turn that takes a while and then answers `done: …`.
pub(crate) fn slow(text: &str, time: Duration) -> Vec<Step> {
    vec![Step::Work("on it"), Step::Take(time), Step::Chunk(format!("done: {text}")), Step::End("COMPLETED")]
}

/// A turn's length written in its text, as in `slow 300`.
pub(crate) fn length(text: &str) -> Duration {
    ms(text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0))
}

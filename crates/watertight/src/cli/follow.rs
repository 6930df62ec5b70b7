//! A task's stream, followed to its end: what breaks on the way is joined again where it was left.
//!
//! Assumes that the gateway ends a stream after the terminal or interrupted state and never before it, except with an
//! error that can be resumed. Gives up when nothing was heard for half a minute.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, Outcome, RpcError, StreamEnd};
use super::exit::{Code, Failure};
use super::output;
use super::send::{is_question, state_of};

const TASK_IS_OVER: i64 = -32004;

/// Between two tries, the first time and at most; and how many there are in a row that bring nothing.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
const TRIES: u32 = 10;

/// The beginning: a message that is sent, or a task that is there.
pub(super) struct Begin<'a> {
    pub(super) agent: &'a str,
    pub(super) method: &'static str,
    pub(super) params: Value,
    /// The task, where it is known.
    pub(super) task: Option<String>,
}

impl<'a> Begin<'a> {
    pub(super) fn with(agent: &'a str, task: &str) -> Begin<'a> {
        Begin { agent, method: "SubscribeToTask", params: json!({ "id": task }), task: Some(task.to_owned()) }
    }
}

/// What is known on the way.
struct Seen {
    task: Option<String>,
    id: Option<String>,
    over: bool,
    /// A broken line, to be joined again.
    cut: Option<RpcError>,
    /// Something came since the last try.
    heard: bool,
}

/// Gives every event to `each`, and the task as it ended if its stream was over before it was joined.
pub(super) async fn follow(client: &Client, begin: Begin<'_>, mut each: impl FnMut(Outcome)) -> Result<(), Failure> {
    let Begin { agent, mut method, mut params, task } = begin;
    let mut seen = Seen { task, id: None, over: false, cut: None, heard: false };
    let (mut tries, mut pause) = (0, PAUSES.0);
    loop {
        let after = seen.id.clone();
        let joins = method == "SubscribeToTask";
        let streamed = client
            .stream(agent, method, &params, after.as_deref(), |id, outcome| {
                seen.id = id.map(str::to_owned).or(seen.id.take());
                match outcome {
                    Err(error) if joins && error.code == TASK_IS_OVER => seen.cut = Some(error),
                    Err(error) if error.is_resumable() => {
                        seen.task = seen.task.take().or(error.task.clone());
                        seen.cut = Some(error);
                    }
                    outcome => {
                        seen.note(&outcome);
                        each(outcome);
                    }
                }
                // A task that asks its caller goes on some day; nobody waits for that here.
                !seen.over
            })
            .await;
        let why = match (streamed, seen.cut.take()) {
            (Ok(_), Some(error)) if joins && error.code == TASK_IS_OVER => {
                let task = client.call(agent, "GetTask", &params).await?;
                each(task.map(|task| json!({ "task": task })));
                return Ok(());
            }
            (_, _) if seen.over => return Ok(()),
            (Ok(_), Some(error)) => error.failure().text,
            (Ok(StreamEnd::Broken), None) => "the connection broke".to_owned(),
            (Ok(StreamEnd::Whole), None) => return Ok(()),
            // Nothing has begun yet: it is as if it had never been sent.
            (Err(failure), _) if seen.task.is_none() => return Err(failure),
            (Err(failure), _) if failure.code == Code::Usage => return Err(failure),
            (Err(failure), _) => failure.text,
        };
        let Some(task) = seen.task.clone() else {
            return Err(Failure::new(Code::Unreachable, format!("{why}, before the gateway said which task it is")));
        };
        if std::mem::take(&mut seen.heard) {
            (tries, pause) = (0, PAUSES.0);
        }
        if tries == TRIES {
            let text = format!("{why}; given up on after {TRIES} tries: see watertight tasks watch {task}");
            return Err(Failure::new(Code::Unfinished, text));
        }
        if tries == 0 {
            output::note(&format!("{why}; joining again"));
        }
        tokio::time::sleep(pause).await;
        (tries, pause) = (tries + 1, (pause * 2).min(PAUSES.1));
        (method, params) = ("SubscribeToTask", json!({ "id": task }));
    }
}

impl Seen {
    fn note(&mut self, outcome: &Outcome) {
        self.heard = true;
        let Ok(event) = outcome else {
            // An error that nothing can be done about is the end.
            self.over = true;
            return;
        };
        if event.get("message").is_some() {
            self.over = true;
        }
        let part = ["task", "statusUpdate", "artifactUpdate"].iter().find_map(|name| event.get(name));
        let Some(part) = part else { return };
        let id = part.get("id").or(part.get("taskId")).and_then(Value::as_str);
        self.task = id.map(str::to_owned).or(self.task.take());
        if part.get("status").is_some() {
            let (state, code) = state_of(part);
            self.over = code != Code::Unfinished || is_question(&state);
        }
    }
}

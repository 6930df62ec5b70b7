//! `watertight send`: one message, and its answer.

mod parts;
mod wait;

use serde_json::{Value, json};
use watertight_a2a::json::Json;
use watertight_a2a::said;

use super::args::SendArgs;
use super::client::{Client, Outcome};
use super::exit::{Code, Failure};
use super::follow::{self, Begin};
use super::output::{self, safe, safe_line};
use wait::Waiting;

pub(super) async fn run(args: SendArgs) -> Result<Code, Failure> {
    let client = Client::new(&args.gateway)?;
    let message_id = args.message_id.clone().map_or_else(message_id, Ok)?;
    let params = params(&args, &message_id)?;
    if args.stream {
        return stream(&client, &args, params).await;
    }
    let shows = !args.gateway.json && !args.no_wait && output::shows_progress();
    let waiting = Waiting { client: &client, agent: &args.agent, message_id: &message_id, shows };
    let answer = client.call(&args.agent, "SendMessage", &params);
    let Some(outcome) = waiting.until(answer).await? else { return Ok(Code::Interrupted) };
    if args.gateway.json {
        let code = print_json(&outcome);
        return Ok(if args.no_wait && outcome.is_ok() { handed_over(code) } else { code });
    }
    match outcome {
        Ok(result) => Ok(print(&result, &args.agent, args.no_wait)),
        Err(error) => Err(error.failure()),
    }
}

/// Said to whom a task asks something.
pub(super) fn go_on_with(agent: &str, task: &str) {
    let (agent, task) = (safe_line(agent), safe_line(task));
    output::note(&format!("to answer: watertight send {agent} --task {task} \"...\""));
}

/// Said to who does not want to wait any longer.
pub(super) fn goes_on(task: Option<&str>) {
    match task.map(safe_line) {
        Some(task) => output::note(&format!(
            "task {task} goes on: watertight tasks watch {task} follows it, watertight tasks cancel {task} ends it"
        )),
        None => output::note("no task was accepted so far"),
    }
}

fn params(args: &SendArgs, message_id: &str) -> Result<Value, Failure> {
    let parts = parts::parts(&args.parts.0)?;
    let mut message = json!({"messageId": message_id, "role": "ROLE_USER", "parts": parts});
    for (name, value) in [("taskId", &args.task), ("contextId", &args.context)] {
        if let Some(value) = value {
            message[name] = json!(value);
        }
    }
    let mut budget = serde_json::Map::new();
    budget.extend(args.budget.map(|seconds| ("remaining_s".to_owned(), json!(seconds))));
    budget.extend(args.depth.map(|depth| ("depth".to_owned(), json!(depth))));
    budget.extend(args.fanout.map(|fanout| ("fanout".to_owned(), json!(fanout))));
    let mut queue = serde_json::Map::new();
    queue.extend(args.priority.map(|priority| ("priority".to_owned(), json!(priority))));
    queue.extend(args.ttl.map(|seconds| ("ttl_s".to_owned(), json!(seconds))));
    for (name, wanted) in [("x-budget", budget), ("x-queue", queue)] {
        if !wanted.is_empty() {
            message["metadata"][name] = Value::Object(wanted);
        }
    }
    let mut params = json!({ "message": message });
    if args.no_wait {
        params["configuration"] = json!({"returnImmediately": true});
    }
    Ok(params)
}

fn message_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| Failure::new(Code::Failed, e.to_string()))?;
    Ok(format!("cli-{:032x}", u128::from_be_bytes(bytes)))
}

async fn stream(client: &Client, args: &SendArgs, params: Value) -> Result<Code, Failure> {
    let mut last = Ok(Code::Unfinished);
    let mut shown = Shown::default();
    let begin = Begin { agent: &args.agent, method: "SendStreamingMessage", params, task: None };
    let followed = follow::follow(client, begin, |outcome| match outcome {
        outcome if args.gateway.json => {
            if let Ok(event) = &outcome {
                shown.learn(event);
            }
            last = Ok(print_json(&outcome));
        }
        Ok(event) => last = Ok(shown.event(&event)),
        Err(error) => last = Err(error.failure()),
    });
    let followed = tokio::select! {
        followed = followed => followed,
        _ = tokio::signal::ctrl_c() => {
            shown.close();
            goes_on(shown.task.as_deref());
            return Ok(Code::Interrupted);
        }
    };
    shown.close();
    followed?;
    shown.ask(&args.agent);
    if last.is_ok() && matches!(shown.state.as_str(), "SUBMITTED" | "WORKING") {
        output::note("the stream ended before the task did; see watertight tasks show");
    }
    last
}

/// What of a stream was printed already.
#[derive(Default)]
pub(super) struct Shown {
    task: Option<String>,
    state: String,
    open_line: bool,
    /// The text of artifacts that was printed, as long as it is kept.
    text: String,
    /// More was printed than is kept.
    forgot: bool,
}

/// Of what was printed, so much is kept, to go on after a snapshot.
const KEPT: usize = 4 << 20;

impl Shown {
    /// The task's id, for who stops.
    fn learn(&mut self, event: &Value) {
        let part = ["task", "statusUpdate", "artifactUpdate"].iter().find_map(|name| event.get(name));
        let id = part.and_then(|part| part.get("id").or(part.get("taskId"))).and_then(Value::as_str);
        self.task = id.map(str::to_owned).or(self.task.take());
    }

    /// Ends a line that is open.
    pub(super) fn close(&mut self) {
        if std::mem::take(&mut self.open_line) {
            output::line("");
        }
    }

    /// How to answer, if the task asks.
    pub(super) fn ask(&self, agent: &str) {
        if let Some(task) = self.task.as_deref().filter(|_| is_question(&self.state)) {
            go_on_with(agent, task);
        }
    }

    /// Some of the answer, as it comes.
    fn print(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        output::out(&safe(text));
        self.open_line = !text.ends_with('\n');
        self.forgot |= self.text.len() + text.len() > KEPT;
        if !self.forgot {
            self.text.push_str(text);
        }
    }

    /// The whole answer so far, after some of it was printed: what is new of it.
    fn catch_up(&mut self, task: &Value) {
        let whole = answer(&json!({"artifacts": task["artifacts"]}));
        match whole.strip_prefix(self.text.as_str()).filter(|_| !self.forgot) {
            Some(rest) => self.print(rest),
            None => {
                self.close();
                output::note(
                    "some of the text was missed while the line was broken; watertight tasks show has all of it",
                );
            }
        }
    }

    pub(super) fn event(&mut self, event: &Value) -> Code {
        self.learn(event);
        if let Some(update) = event.get("artifactUpdate") {
            self.print(&answer(update));
            return Code::Unfinished;
        }
        if let Some(message) = event.get("message") {
            output::line(&safe(&answer(message)));
            return Code::Ok;
        }
        let (of, whole) = match (event.get("task"), event.get("statusUpdate")) {
            (Some(task), _) => (task, true),
            (None, Some(update)) => (update, false),
            (None, None) => return Code::Unfinished,
        };
        let (state, code) = state_of(of);
        let said = safe(&answer(of));
        // What an agent says at work is progress; what it says at the end, or asks, is what the caller waits for.
        let answers = code != Code::Unfinished || is_question(&state);
        let progress = if answers || whole { "" } else { said.as_str() };
        if whole && answers && !self.text.is_empty() {
            self.catch_up(of);
        }
        if state != self.state || !progress.is_empty() {
            // Elsewhere the two do not meet.
            if output::is_screen() {
                self.close();
            }
            let id = of.get("id").or(of.get("taskId")).and_then(Value::as_str).unwrap_or("");
            output::note(format!("task {} {state}  {}", safe_line(id), progress.replace('\n', "\\n")).trim_end());
            state.clone_into(&mut self.state);
        }
        if whole && !answers {
            // What it has said already is the beginning of what comes.
            self.catch_up(of);
        }
        if answers && !said.is_empty() {
            match !self.text.is_empty() && code == Code::Failed {
                // Part of an answer stands on stdout already; why it is not whole is no part of it.
                true => output::note(&said),
                false if self.text.is_empty() || is_question(&state) => {
                    self.close();
                    output::line(&said);
                }
                false => {}
            }
        }
        code
    }
}

/// The task waits for its caller.
pub(super) fn is_question(state: &str) -> bool {
    matches!(state, "INPUT_REQUIRED" | "AUTH_REQUIRED")
}

/// Prints a result for people, and says how the command ends.
fn print(result: &Value, agent: &str, id_only: bool) -> Code {
    if let Some(message) = result.get("message") {
        output::line(&safe(&answer(message)));
        return Code::Ok;
    }
    let task = &result["task"];
    let (state, code) = state_of(task);
    let id = safe_line(task["id"].as_str().unwrap_or(""));
    if id_only {
        output::line(&id);
        return handed_over(code);
    }
    let said = answer(task);
    if !said.is_empty() {
        output::line(&safe(&said));
    }
    if code != Code::Ok {
        output::note(&format!("task {id} {state}"));
    }
    if is_question(&state) {
        go_on_with(agent, &id);
    }
    code
}

/// For who only hands a message over, a task that is at work is all that was asked for.
fn handed_over(code: Code) -> Code {
    if code == Code::Unfinished { Code::Ok } else { code }
}

pub(super) fn print_json(outcome: &Outcome) -> Code {
    match outcome {
        Ok(result) => {
            output::line(&result.to_string());
            let of = result.get("task").or(result.get("statusUpdate"));
            of.map_or(Code::Ok, |of| state_of(of).1)
        }
        Err(error) => {
            output::line(&json!({"error": error.raw()}).to_string());
            error.failure().code
        }
    }
}

/// The state for people, and how a command ends with it.
pub(super) fn state_of(task: &Value) -> (String, Code) {
    let state = task["status"]["state"].as_str().unwrap_or("");
    let state = bare_state(state);
    let code = match state {
        "COMPLETED" => Code::Ok,
        "FAILED" | "CANCELED" | "REJECTED" => Code::Failed,
        _ => Code::Unfinished,
    };
    (safe_line(state), code)
}

/// A state as it is printed here.
pub(super) fn bare_state(state: &str) -> &str {
    state.strip_prefix("TASK_STATE_").unwrap_or(state)
}

/// What a task says, or a message, or an update: its answer, its question, why it failed, or what it has so far.
pub(super) fn answer(of: &Value) -> String {
    said::reply(Json::assume(of.to_string()).value()).into_content().shown()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_s_answer_and_how_it_ended() {
        let task = json!({"status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [
            {"parts": [{"text": "one "}, {"data": {"n": 1}}]}, {"parts": [{"raw": "aGk=", "filename": "a.txt"}]}]});
        assert_eq!(answer(&task), "one {\"n\":1}\n[file a.txt]");
        assert_eq!(state_of(&task), ("COMPLETED".to_owned(), Code::Ok));
        let asks =
            json!({"status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": "which day?"}]}}});
        assert_eq!((answer(&asks), state_of(&asks).1), ("which day?".to_owned(), Code::Unfinished));
        assert_eq!(state_of(&json!({"status": {"state": "TASK_STATE_FAILED"}})).1, Code::Failed);
    }
}

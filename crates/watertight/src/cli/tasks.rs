//! `watertight tasks`: what the gateway has under way, and what became of it.

mod tree;
mod watch;

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::{Value, json};

use super::args::{TasksArgs, TasksCommand};
use super::client::{Client, Outcome, encoded};
use super::exit::{Code, Failure};
use super::output::{self, safe, safe_line};
use super::send::{answer, go_on_with, is_question, state_of};
use super::table::{Cell, Step, Tone, duration, fitted};

const NOT_FOUND: i64 = -32001;

pub(super) async fn run(args: TasksArgs) -> Result<Code, Failure> {
    let client = Client::new(&args.gateway)?;
    let json = args.gateway.json;
    match args.command {
        TasksCommand::List { agent, status, limit, all: false, cursor: None } => {
            list(&client, Listed { agent, status, limit, cursor: None }, json).await
        }
        TasksCommand::List { agent, status, limit, all: _, cursor } => {
            everything(&client, &Listed { agent, status, limit, cursor }, json).await
        }
        TasksCommand::Show { id, agent } => match of_any(&client, agent, "GetTask", &id).await {
            Ok((agent, task)) => {
                // How it stands in its tree and in the queue, and since when nothing is heard, only the gateway itself knows.
                let row = match json {
                    false => client.api(Method::GET, &format!("/v1/delegations/{id}")).await.unwrap_or_default(),
                    true => Value::Null,
                };
                show(&agent, &task, &row, json);
                Ok(Code::Ok)
            }
            Err(failure) if failure.code == Code::Refused => row(&client, &id, json).await.map_err(|_| failure),
            Err(failure) => Err(failure),
        },
        TasksCommand::Cancel { id, agent } => {
            let (agent, task) = of_any(&client, agent, "CancelTask", &id).await?;
            show(&agent, &task, &Value::Null, json);
            let canceled = state_of(&task).0 == "CANCELED";
            Ok(if canceled { Code::Ok } else { Code::Unfinished })
        }
        TasksCommand::Watch { id: Some(id), agent } => watch::one(&client, &id, agent, json).await,
        TasksCommand::Watch { id: None, agent } => {
            let listed = Listed { agent, status: None, limit: 20, cursor: None };
            watch::all(&client, &listed, json).await
        }
        TasksCommand::Redrive { id } => {
            is_id(&id)?;
            let done = client.api(Method::POST, &format!("/v1/delegations/{id}/redrive")).await?;
            let before = if done["replay"] == true { " (asked for before)" } else { "" };
            match json {
                true => output::line(&done.to_string()),
                false => output::line(&format!("{}{before}; see watertight tasks watch {0}", text(&done["task"]))),
            }
            Ok(Code::Ok)
        }
        TasksCommand::Tree { id, columns } => tree::run(&client, &id, columns, json).await,
    }
}

/// Which delegations are asked for.
struct Listed {
    agent: Option<String>,
    status: Option<String>,
    limit: u32,
    cursor: Option<String>,
}

impl Listed {
    async fn page(&self, client: &Client) -> Result<Value, Failure> {
        let mut path = format!("/v1/delegations?limit={}", self.limit);
        for (name, value) in [("agent", &self.agent), ("state", &self.status), ("cursor", &self.cursor)] {
            if let Some(value) = value {
                path += &format!("&{name}={}", encoded(value));
            }
        }
        client.api(Method::GET, &path).await
    }
}

/// A page of all that one may see: an operator, the tenant's.
async fn everything(client: &Client, listed: &Listed, as_json: bool) -> Result<Code, Failure> {
    let page = listed.page(client).await?;
    if as_json {
        output::line(&page.to_string());
        return Ok(Code::Ok);
    }
    match rows_of(&page, output::wants_color()) {
        Some(rows) => output::out(&rows),
        None => output::note("there are no such tasks"),
    }
    if let Some(next) = page["next"].as_str() {
        output::note(&format!("{} in all; more with --cursor {}", page["total"], safe_line(next)));
    }
    Ok(Code::Ok)
}

/// What a narrow terminal does without. The id stays whole: it is what the other commands want.
const NARROW: [Step; 7] = [
    Step::LeaveOut("ELAPSED"),
    Step::Brief("CHANGED"),
    Step::LeaveOut("CALLER"),
    Step::Cut("AGENT", 10),
    Step::LeaveOut("CHANGED"),
    Step::Cut("AGENT", 5),
    Step::Cut("REASON", 8),
];

/// A page as a table; `None`: there is nothing on it.
fn rows_of(page: &Value, color: bool) -> Option<String> {
    let all = page["delegations"].as_array().filter(|all| !all.is_empty())?;
    let rows = all.iter().map(|row| {
        let why = row["reason"].as_str().or(row["waitingOn"].as_str()).unwrap_or("");
        [
            Cell::from(text(&row["task"])),
            state_cell(&row["state"]),
            Cell::from(text(&row["agent"])),
            Cell::from(text(&row["caller"])),
            changed_cell(&text(&row["changed"])),
            Cell::from(row["elapsedMs"].as_f64().map_or_else(String::new, duration)),
            Cell::from(safe_line(why)),
        ]
    });
    let head = ["TASK", "STATE", "AGENT", "CALLER", "CHANGED", "ELAPSED", "REASON"];
    Some(fitted(head, rows.collect(), color, output::columns(), &NARROW))
}

fn state_cell(state: &Value) -> Cell {
    let state = text(state);
    let word = state.strip_prefix("TASK_STATE_").unwrap_or(&state).to_owned();
    let tone = match word.as_str() {
        "COMPLETED" => Tone::Good,
        "FAILED" | "REJECTED" => Tone::Bad,
        "INPUT_REQUIRED" | "AUTH_REQUIRED" | "CANCELED" => Tone::Warning,
        _ => Tone::Plain,
    };
    Cell::toned(word, tone)
}

fn text(value: &Value) -> String {
    safe_line(value.as_str().unwrap_or(""))
}

/// What may stand in a path: a task's id is 32 hex digits.
pub(super) fn is_id(id: &str) -> Result<(), Failure> {
    match id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err(Failure::usage(format!("`{}` is no task's id: it has 32 hex digits", safe_line(id)))),
    }
}

/// Of another caller's task an operator sees how it stands, not what was said.
async fn row(client: &Client, id: &str, as_json: bool) -> Result<Code, Failure> {
    is_id(id)?;
    let row = client.api(Method::GET, &format!("/v1/delegations/{id}")).await?;
    if as_json {
        output::line(&row.to_string());
        return Ok(Code::Ok);
    }
    let names = [
        "task",
        "agent",
        "caller",
        "state",
        "reason",
        "waitingOn",
        "delivery",
        "changed",
        "context",
        "parent",
        "redrives",
        "redrivenBy",
    ];
    for (name, value) in names.iter().map(|name| (name, text(&row[*name]))).filter(|(_, value)| !value.is_empty()) {
        output::line(&format!("{name:10} {}", value.strip_prefix("TASK_STATE_").unwrap_or(&value)));
    }
    for (name, value) in progress(&row).into_iter().chain(chain(&row).map(|chain| ("chain", chain))) {
        output::line(&format!("{name:10} {value}"));
    }
    output::note("it is another caller's: what was said in it is not shown");
    Ok(Code::Ok)
}

/// The agents that this came through, if it came through any.
fn chain(row: &Value) -> Option<String> {
    let above: Vec<String> = row["chain"].as_array().into_iter().flatten().map(text).collect();
    (!above.is_empty()).then(|| format!("{} → {}", above.join(" → "), text(&row["agent"])))
}

/// The agent that a task is with.
async fn agent_of(client: &Client, agent: Option<String>, id: &str) -> Result<String, Failure> {
    if let Some(agent) = agent {
        return Ok(agent);
    }
    let row = client.api(Method::GET, &format!("/v1/delegations/{id}")).await?;
    Ok(row["agent"].as_str().unwrap_or_default().to_owned())
}

async fn list(client: &Client, listed: Listed, as_json: bool) -> Result<Code, Failure> {
    let agents = named_or_all(client, &listed).await?;
    let Listed { status, limit, .. } = listed;
    let mut params = json!({"pageSize": limit});
    if let Some(status) = status {
        params["status"] = json!(status);
    }
    let mut all: Vec<(String, Value)> = Vec::new();
    for agent in agents {
        let page = client.call(&agent, "ListTasks", &params).await?.map_err(|error| {
            let mut failure = error.failure();
            // An operator has no tasks of its own.
            if failure.text.contains("[forbidden]") {
                failure.text += "; --all lists every caller's, for an operator";
            }
            failure
        })?;
        let tasks = page["tasks"].as_array().into_iter().flatten();
        all.extend(tasks.map(|task| (agent.clone(), task.clone())));
    }
    let changed = |task: &Value| task["status"]["timestamp"].as_str().unwrap_or("").to_owned();
    all.sort_by_key(|(_, task)| std::cmp::Reverse(changed(task)));
    all.truncate(limit as usize);
    if as_json {
        let all: Vec<Value> = all.into_iter().map(|(agent, task)| json!({"agent": agent, "task": task})).collect();
        output::line(&json!({ "tasks": all }).to_string());
        return Ok(Code::Ok);
    }
    if all.is_empty() {
        output::note("there are no such tasks");
        return Ok(Code::Ok);
    }
    let rows = all.iter().map(|(agent, task)| {
        let ours = &task["metadata"]["watertight"];
        let why = ours["reason"].as_str().or(ours["waitingOn"].as_str()).unwrap_or("");
        [
            Cell::from(text(&task["id"])),
            state_cell(&task["status"]["state"]),
            Cell::from(safe_line(agent)),
            changed_cell(&safe_line(&changed(task))),
            Cell::from(safe_line(why)),
        ]
    });
    let head = ["TASK", "STATE", "AGENT", "CHANGED", "REASON"];
    output::out(&fitted(head, rows.collect(), output::wants_color(), output::columns(), &NARROW));
    Ok(Code::Ok)
}

/// When a task changed; where there is little room, without the year.
fn changed_cell(time: &str) -> Cell {
    let whole = to_the_second(time);
    let brief = whole.get(5..19).map_or_else(|| whole.clone(), |brief| brief.replace('T', " "));
    Cell::from(whole).or(brief)
}

/// `2026-01-02T03:04:05.678Z` without the fraction: enough for people.
pub(super) fn to_the_second(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) if time.ends_with('Z') => format!("{seconds}Z"),
        Some(_) | None => time.to_owned(),
    }
}

/// The task, through the door of the agent that has it.
async fn of_any(client: &Client, agent: Option<String>, method: &str, id: &str) -> Result<(String, Value), Failure> {
    let none = || Failure::new(Code::Refused, format!("there is no task {}", safe_line(id)));
    is_id(id).map_err(|_| none())?;
    let agent = agent_of(client, agent, id).await.map_err(|failure| match failure.code == Code::Refused {
        true if failure.text.contains("TASK_NOT_FOUND") => none(),
        _ => failure,
    })?;
    let outcome: Outcome = client.call(&agent, method, &json!({ "id": id })).await?;
    match outcome {
        Ok(task) => Ok((agent, task)),
        Err(error) if error.code == NOT_FOUND => Err(none()),
        Err(error) => Err(Failure { code: Code::Refused, ..error.failure() }),
    }
}

/// Who is not an operator does not see the list of agents, but its own delegations: the agents of the newest of them
/// have the newest tasks.
async fn named_or_all(client: &Client, listed: &Listed) -> Result<Vec<String>, Failure> {
    if let Some(agent) = &listed.agent {
        return Ok(vec![agent.clone()]);
    }
    match client.agents().await {
        Err(failure) if failure.code == Code::Refused => {
            let page = listed.page(client).await?;
            let rows = page["delegations"].as_array().into_iter().flatten();
            let agents: BTreeSet<&str> = rows.filter_map(|row| row["agent"].as_str()).collect();
            Ok(agents.into_iter().map(str::to_owned).collect())
        }
        agents => agents,
    }
}

/// How a task stands that is under way: its place and end in the queue, and what was heard of it when.
fn progress(row: &Value) -> Vec<(&'static str, String)> {
    let lasting = |value: &Value| value.as_f64().map_or_else(String::new, duration);
    let number = |value: &Value| value.as_u64().map_or_else(String::new, |number| number.to_string());
    let waits = row["waitingMs"].is_u64();
    let mut rows = vec![("position", number(&row["position"]))];
    if waits {
        rows.extend([
            ("priority", number(&row["priority"])),
            ("waited", lasting(&row["waitingMs"])),
            ("expires", to_the_second(&text(&row["expires"]))),
        ]);
    }
    rows.extend(["sent", "answered", "advanced"].map(|name| (name, to_the_second(&text(&row[name])))));
    rows.push(("silent", lasting(&row["silentMs"])));
    rows.retain(|(_, value)| !value.is_empty());
    rows
}

fn show(agent: &str, task: &Value, row: &Value, as_json: bool) {
    if as_json {
        return output::line(&task.to_string());
    }
    let text = |value: &Value| safe_line(value.as_str().unwrap_or(""));
    let mut rows = vec![
        ("task", text(&task["id"])),
        ("agent", safe_line(agent)),
        ("state", state_of(task).0),
        ("changed", text(&task["status"]["timestamp"])),
        ("context", text(&task["contextId"])),
    ];
    if let Some(ours) = task["metadata"]["watertight"].as_object() {
        rows.extend(ours.iter().filter(|(name, _)| *name != "agent").map(|(name, value)| (name.as_str(), text(value))));
    }
    if matches!(state_of(task).0.as_str(), "SUBMITTED" | "WORKING") {
        rows.extend(progress(row));
    }
    rows.extend(row["parent"].as_str().map(|parent| ("parent", safe_line(parent))));
    rows.extend(chain(row).map(|chain| ("chain", chain)));
    for (name, value) in rows {
        output::line(&format!("{:10} {value}", safe_line(name)));
    }
    let said = answer(task);
    if !said.is_empty() {
        output::line(&format!("\n{}", safe(&said)));
    }
    if is_question(&state_of(task).0) {
        go_on_with(agent, task["id"].as_str().unwrap_or(""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_to_the_second() {
        assert_eq!(to_the_second("2026-01-02T03:04:05.678901Z"), "2026-01-02T03:04:05Z");
        assert_eq!(to_the_second("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05Z");
        assert_eq!(to_the_second(""), "");
    }
}

//! `watertight tasks`: what the gateway has under way, and what became of it.

use serde_json::{Value, json};

use super::args::{TasksArgs, TasksCommand};
use super::client::{Client, Outcome};
use super::exit::{Code, Failure};
use super::output::{self, safe, safe_line};
use super::send::{answer, state_of};
use super::table::{Cell, table};

const NOT_FOUND: i64 = -32001;

pub(super) async fn run(args: TasksArgs) -> Result<Code, Failure> {
    let client = Client::new(&args.gateway)?;
    let json = args.gateway.json;
    match args.command {
        TasksCommand::List { agent, status, limit } => list(&client, agent, status, limit, json).await,
        TasksCommand::Show { id, agent } => {
            let (agent, task) = of_any(&client, agent, "GetTask", &id).await?;
            show(&agent, &task, json);
            Ok(Code::Ok)
        }
        TasksCommand::Cancel { id, agent } => {
            let (agent, task) = of_any(&client, agent, "CancelTask", &id).await?;
            show(&agent, &task, json);
            let canceled = state_of(&task).0 == "CANCELED";
            Ok(if canceled { Code::Ok } else { Code::Unfinished })
        }
    }
}

async fn list(
    client: &Client,
    agent: Option<String>,
    status: Option<String>,
    limit: u32,
    as_json: bool,
) -> Result<Code, Failure> {
    let agents = named_or_all(client, agent).await?;
    let mut params = json!({"pageSize": limit});
    if let Some(status) = status {
        params["status"] = json!(status);
    }
    let mut all: Vec<(String, Value)> = Vec::new();
    for agent in agents {
        let page = client.call(&agent, "ListTasks", &params).await?.map_err(|error| error.failure())?;
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
        let id = task["id"].as_str().unwrap_or("");
        [id, &state_of(task).0, agent, &to_the_second(&changed(task)), why].map(|cell| Cell::from(safe_line(cell)))
    });
    output::out(&table(["TASK", "STATE", "AGENT", "CHANGED", "REASON"], rows.collect(), false));
    Ok(Code::Ok)
}

/// `2026-01-02T03:04:05.678Z` without the fraction: enough for people.
fn to_the_second(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) if time.ends_with('Z') => format!("{seconds}Z"),
        Some(_) | None => time.to_owned(),
    }
}

/// The task, through the door of the agent that has it.
async fn of_any(client: &Client, agent: Option<String>, method: &str, id: &str) -> Result<(String, Value), Failure> {
    for agent in named_or_all(client, agent).await? {
        let outcome: Outcome = client.call(&agent, method, &json!({ "id": id })).await?;
        match outcome {
            Ok(task) => return Ok((agent, task)),
            Err(error) if error.code == NOT_FOUND => {}
            Err(error) => return Err(Failure { code: Code::Refused, ..error.failure() }),
        }
    }
    Err(Failure::new(Code::Refused, format!("there is no task {}", safe_line(id))))
}

async fn named_or_all(client: &Client, agent: Option<String>) -> Result<Vec<String>, Failure> {
    match agent {
        Some(agent) => Ok(vec![agent]),
        None => client.agents().await,
    }
}

fn show(agent: &str, task: &Value, as_json: bool) {
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
    for (name, value) in rows {
        output::line(&format!("{:10} {value}", safe_line(name)));
    }
    let said = answer(task);
    if !said.is_empty() {
        output::line(&format!("\n{}", safe(&said)));
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

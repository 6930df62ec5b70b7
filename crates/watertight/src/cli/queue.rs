//! `watertight queue`: what waits for the agents' slots, in its order, and taking one of it out.

use hyper::Method;
use serde_json::{Value, json};

use super::args::{QueueArgs, QueueCommand};
use super::client::{Client, is_name};
use super::exit::{Code, Failure};
use super::output::{self, safe_line};
use super::table::{Cell, duration, table};
use super::tasks::{is_id, to_the_second};

pub(super) async fn run(args: QueueArgs) -> Result<Code, Failure> {
    if let Some(QueueCommand::Drop { id, reason, gateway }) = args.command {
        is_id(&id)?;
        let client = Client::new(&gateway)?;
        let asked = json!({ "reason": reason }).to_string();
        let done = client.api_with(Method::POST, &format!("/v1/delegations/{id}/drop"), Some(asked)).await?;
        match gateway.json {
            true => output::line(&done.to_string()),
            false => output::line(&format!("task {id} is dropped, and its caller is told")),
        }
        return Ok(Code::Ok);
    }
    let client = Client::new(&args.gateway)?;
    let agents = match args.agent {
        Some(agent) => {
            is_name(&agent)?;
            vec![agent]
        }
        None => client.agents().await?,
    };
    let mut queues = Vec::new();
    for agent in agents {
        let path = format!("/v1/agents/{agent}/queue?limit={}&skip={}", args.limit, args.skip);
        queues.push(client.api(Method::GET, &path).await?);
    }
    if args.gateway.json {
        output::line(&json!({ "queues": queues }).to_string());
        return Ok(Code::Ok);
    }
    let rows: Vec<[Cell; 8]> = queues.iter().flat_map(rows).collect();
    if rows.is_empty() {
        output::note("nothing waits for a slot");
        return Ok(Code::Ok);
    }
    output::out(&table(
        ["AGENT", "PLACE", "TASK", "CALLER", "PRIORITY", "WAITED", "EXPIRES", "WAITS FOR"],
        rows,
        false,
    ));
    for queue in queues.iter().filter(|queue| queue["next"].is_u64()) {
        output::note(&format!(
            "{}: {} wait in all; more with --skip {}",
            text(&queue["agent"]),
            queue["total"],
            queue["next"]
        ));
    }
    Ok(Code::Ok)
}

fn rows(queue: &Value) -> Vec<[Cell; 8]> {
    let all = queue["queued"].as_array().into_iter().flatten();
    let row = |row: &Value| {
        [
            text(&queue["agent"]),
            row["position"].to_string(),
            text(&row["task"]),
            text(&row["caller"]),
            row["priority"].to_string(),
            row["waitingMs"].as_f64().map_or_else(String::new, duration),
            to_the_second(&text(&row["expires"])),
            text(&row["waitingOn"]),
        ]
        .map(Cell::from)
    };
    all.map(row).collect()
}

fn text(value: &Value) -> String {
    safe_line(value.as_str().unwrap_or(""))
}

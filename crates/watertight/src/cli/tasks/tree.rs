//! `watertight tasks tree`: who started what for whom, and how each of it stands.

use hyper::Method;
use serde_json::Value;

use crate::cli::client::Client;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{self, safe_line};
use crate::cli::table::{Cell, Step, duration, fitted};

use super::{is_id, state_cell, text};

/// The last digits of an id, which are random: enough to tell it from its neighbours.
const SHORT_ID: usize = 8;

pub(super) async fn run(client: &Client, id: &str, columns: Option<usize>, as_json: bool) -> Result<Code, Failure> {
    is_id(id)?;
    let tree = client.api(Method::GET, &format!("/v1/delegations/{id}/tree")).await?;
    if as_json {
        output::line(&tree.to_string());
        return Ok(Code::Ok);
    }
    output::out(&drawn(&tree, id, columns.or_else(output::columns), output::wants_color()));
    if tree["whole"] == false {
        output::note("there are more than are shown");
    }
    Ok(Code::Ok)
}

const HEAD: [&str; 11] =
    ["TASK", "AGENT", "CALLER", "STATE", "DELIVERY", "TIME", "TIME LEFT", "CHILDREN", "HOPS LEFT", "TRIES", "REASON"];

/// What gives way where there is no room for it.
const STEPS: [Step; 10] = [
    Step::LeaveOut("CALLER"),
    Step::LeaveOut("DELIVERY"),
    Step::Brief("TASK"),
    Step::Cut("AGENT", 12),
    Step::Cut("REASON", 12),
    Step::LeaveOut("TRIES"),
    Step::LeaveOut("TIME LEFT"),
    Step::LeaveOut("HOPS LEFT"),
    Step::LeaveOut("TIME"),
    Step::LeaveOut("REASON"),
];

fn drawn(tree: &Value, asked: &str, room: Option<usize>, color: bool) -> String {
    let nodes: Vec<&Value> = tree["nodes"].as_array().into_iter().flatten().collect();
    let levels: Vec<usize> = nodes.iter().map(|node| level(node)).collect();
    let rows = nodes.iter().enumerate().map(|(at, node)| {
        let mark = if node["task"] == asked { " *" } else { "" };
        let (branch, id) = (branch(&levels, at), text(&node["task"]));
        let short = id.get(id.len().saturating_sub(SHORT_ID)..).unwrap_or(&id);
        let brief = format!("{branch}…{short}{mark}");
        let left = node["budget"]["remainingMs"].as_f64().map_or_else(|| "-".to_owned(), duration);
        let why = node["reason"].as_str().or(node["waitingOn"].as_str()).unwrap_or("");
        let started = node["children"].as_u64().unwrap_or(0);
        let all = started + node["budget"]["fanout"].as_u64().unwrap_or(0);
        [
            Cell::from(format!("{branch}{id}{mark}")).or(brief),
            Cell::from(text(&node["agent"])),
            Cell::from(text(&node["caller"])),
            state_cell(&node["state"]),
            Cell::from(text(&node["delivery"])),
            Cell::from(node["elapsedMs"].as_f64().map_or_else(String::new, duration)),
            Cell::from(left),
            Cell::from(format!("{started}/{all}")),
            Cell::from(node["budget"]["depth"].to_string()),
            Cell::from(node["attempts"].to_string()),
            Cell::from(safe_line(why)),
        ]
    });
    fitted(HEAD, rows.collect(), color, room, &STEPS)
}

fn level(node: &Value) -> usize {
    node["level"].as_u64().and_then(|level| usize::try_from(level).ok()).unwrap_or(0)
}

/// The lines before a node: whether something of each level above is still to come.
fn branch(levels: &[usize], at: usize) -> String {
    let level = levels[at];
    let goes_on = |of: usize| levels[at + 1..].iter().find(|later| **later <= of).is_some_and(|later| *later == of);
    let mut out = String::new();
    for above in 1..level {
        out += if goes_on(above) { "│  " } else { "   " };
    }
    match (level, goes_on(level)) {
        (0, _) => {}
        (_, true) => out += "├─ ",
        (_, false) => out += "└─ ",
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_as_wide_as_there_is_room() {
        let node = |level: u32, n: u32| {
            serde_json::json!({
                "task": format!("{:032x}", 0x1234_5678_9abc_u64 * u64::from(n)), "level": level, "agent": "a-rather-long-name",
                "caller": "somebody", "state": "TASK_STATE_INPUT_REQUIRED", "delivery": "maybe_delivered", "reason": "deadline_exceeded",
                "elapsedMs": 190_000.0, "children": 3, "attempts": 2, "budget": {"remainingMs": 7_500_000.0, "depth": 2, "fanout": 13},
            })
        };
        let tree = serde_json::json!({"nodes": [node(0, 1), node(1, 2), node(2, 3), node(3, 4)]});
        let asked = format!("{:032x}", 0x1234_5678_9abc_u64);
        for width in [200, 120, 100, 80, 60] {
            let text = drawn(&tree, &asked, Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert!(text.contains("3/16") && text.contains("INPUT_REQUIRED"), "{text}");
        }
        assert!(drawn(&tree, &asked, None, false).contains(&asked));
    }

    #[test]
    fn branches() {
        let levels = [0, 1, 2, 2, 1, 2, 3];
        let drawn: Vec<String> = (0..levels.len()).map(|at| branch(&levels, at)).collect();
        assert_eq!(drawn, ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ ", "   └─ ", "      └─ "]);
    }
}

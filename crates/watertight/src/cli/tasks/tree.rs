//! `watertight tasks tree`: who started what for whom, and how each of it stands.

use hyper::Method;
use serde_json::Value;

use crate::cli::client::Client;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{self, safe_line};
use crate::cli::table::{Cell, duration, table};

use super::{is_id, state_cell, text};

pub(super) async fn run(client: &Client, id: &str, as_json: bool) -> Result<Code, Failure> {
    is_id(id)?;
    let tree = client.api(Method::GET, &format!("/v1/delegations/{id}/tree")).await?;
    if as_json {
        output::line(&tree.to_string());
        return Ok(Code::Ok);
    }
    output::out(&drawn(&tree, id, output::wants_color()));
    if tree["whole"] == false {
        output::note("there are more than are shown");
    }
    Ok(Code::Ok)
}

fn drawn(tree: &Value, asked: &str, color: bool) -> String {
    let nodes: Vec<&Value> = tree["nodes"].as_array().into_iter().flatten().collect();
    let levels: Vec<usize> = nodes.iter().map(|node| level(node)).collect();
    let rows = nodes.iter().enumerate().map(|(at, node)| {
        let mark = if node["task"] == asked { " *" } else { "" };
        let left = node["budget"]["remainingMs"].as_f64().map_or_else(|| "-".to_owned(), duration);
        let why = node["reason"].as_str().or(node["waitingOn"].as_str()).unwrap_or("");
        [
            Cell::from(format!("{}{}{mark}", branch(&levels, at), text(&node["task"]))),
            Cell::from(text(&node["agent"])),
            Cell::from(text(&node["caller"])),
            state_cell(&node["state"]),
            Cell::from(text(&node["delivery"])),
            Cell::from(node["elapsedMs"].as_f64().map_or_else(String::new, duration)),
            Cell::from(left),
            Cell::from(format!("{}/{}", node["budget"]["depth"], node["budget"]["fanout"])),
            Cell::from(safe_line(why)),
        ]
    });
    let head = ["TASK", "AGENT", "CALLER", "STATE", "DELIVERY", "ELAPSED", "TIME LEFT", "HOPS/CHILDREN LEFT", "REASON"];
    table(head, rows.collect(), color)
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
    fn branches() {
        let levels = [0, 1, 2, 2, 1, 2, 3];
        let drawn: Vec<String> = (0..levels.len()).map(|at| branch(&levels, at)).collect();
        assert_eq!(drawn, ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ ", "   └─ ", "      └─ "]);
    }
}

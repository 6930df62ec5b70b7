//! What `check` found, as text.

use std::path::Path;

use watertight_gateway::config::keys::{self, Key, Kind, Value};
use watertight_gateway::config::{Config, Finding, Level, Opens, Without};

use super::cards::{self, Looked};
use crate::cli::output::safe_line;
use crate::cli::table::wrapped;

/// The values in force, the cards, and what was found, which comes last because it is what to read first.
pub(super) fn whole(file: &Path, config: &Config, cards: &[Looked], findings: &[Finding]) -> String {
    let mut out = String::new();
    for section in keys::SECTIONS {
        let (table, named) = section.path.split_once(".*").map_or((section.path, false), |(table, _)| (table, true));
        if !named {
            rows(&mut out, config, section.path, "", |key| key.of_gateway(config));
        } else if table == "agents" && section.path == "agents.*" {
            for (name, agent) in &config.agents {
                rows(&mut out, config, section.path, name.as_str(), |key| key.of_agent(agent));
                if let Some(card) = cards.iter().find(|card| card.agent == name.as_str()) {
                    out.push_str(&format!("  {:<30}{}\n", "its card", cards::line(card)));
                }
                rows(&mut out, config, "agents.*.breaker", name.as_str(), |key| key.of_agent(agent));
            }
        } else if table == "callers" {
            for caller in &config.callers {
                rows(&mut out, config, section.path, &caller.name, |key| key.of_caller(caller));
            }
        }
    }
    out.push('\n');
    for finding in findings {
        let line = finding.line.map(|line| format!(", line {line}")).unwrap_or_default();
        out.push_str(&format!("{}: {}{line}: {}\n", finding.level.as_str(), finding.at, safe_line(&finding.text)));
    }
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let (agents, callers) = (config.agents.len(), config.callers.len());
    out.push_str(&format!(
        "{}: valid; {agents} agent{}, {callers} caller{}; errors {}, warnings {}, without effect {}, notes {}\n",
        file.display(),
        plural(agents),
        plural(callers),
        count(Level::Error),
        count(Level::Warning),
        count(Level::NoEffect),
        count(Level::Note)
    ));
    out
}

fn rows(out: &mut String, config: &Config, section: &str, name: &str, value: impl Fn(&Key) -> Option<Value>) {
    let mut path: Vec<String> = section.split('.').map(str::to_owned).collect();
    path.iter_mut().filter(|part| *part == "*").for_each(|part| name.clone_into(part));
    let title = if section.is_empty() { String::new() } else { format!("\n[{}]\n", keys::dotted(&path)) };
    out.push_str(&title);
    for key in keys::of(section) {
        let Some(value) = value(key) else { continue };
        let from = match config.places.line(&key.at(name)) {
            Some(line) => format!("line {line}"),
            None => "default".to_owned(),
        };
        let shown = match value {
            Value::None => key.otherwise.to_owned(),
            Value::List(ref names) if names.is_empty() && key.kind == Kind::Headers => key.otherwise.to_owned(),
            Value::Span(_)
            | Value::Size(_)
            | Value::Share(_)
            | Value::Count(_)
            | Value::Flag(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Secret => value.shown(),
        };
        out.push_str(&format!("  {:<30}{:<32}  {from}\n", key.name(), safe_line(&shown)));
    }
}

/// In lines that the terminal has room for; what stands in the second column stays there.
pub(super) fn folded(text: &str, room: Option<usize>) -> String {
    let fold = |line: &str| wrapped(line, room, if line.starts_with("  ") { 30 } else { 2 }) + "\n";
    text.lines().map(fold).collect()
}

/// What fails when one agent does.
pub(super) fn without(gone: &Without) -> String {
    let none = |list: &[String], none: &str| if list.is_empty() { none.to_owned() } else { list.join(", ") };
    let mut out = format!("Without {}\n\nWho may call it, and is hit: {}\n", gone.agent, none(&gone.callers, "nobody"));
    out.push_str(&format!(
        "Agents that are not affected (slots, line, queue, breaker, connections of their own): {}\n",
        none(&gone.untouched, "there are no others")
    ));
    out.push_str("\nWhat it can hold, at the most\n");
    for bound in &gone.holds {
        out.push_str(&format!("  {:<28}{}\n  {:<28}{}\n", bound.what, bound.most, "", bound.because));
    }
    out.push_str("\nWhen its breaker opens\n");
    out.push_str(&opens("it refuses connections", &gone.refuses));
    out.push_str(&opens("it is silent", &gone.silent));
    out.push_str("\nWhat callers are told\n");
    for told in &gone.told {
        out.push_str(&format!("  {:<28}{}\n", told.reason, told.when));
    }
    out.push_str("\nWhat all agents share, and the most that it can take\n");
    for share in &gone.shared {
        let all = if share.exhausts { "  ALL OF IT" } else { "" };
        out.push_str(&format!(
            "  {:<28}{} of {}{all}\n  {:<28}{}\n",
            share.what, share.most, share.all, "", share.because
        ));
    }
    for share in gone.shared.iter().filter(|share| share.exhausts) {
        out.push_str(&format!("\nwarning: it can exhaust {}: {}\n", share.what, share.because));
    }
    out
}

fn opens(when: &str, opens: &Opens) -> String {
    let after = match (opens.tries, opens.after) {
        (Some(tries), Some(after)) => {
            format!("after {tries} failed tries, {} under full load", Value::Span(after).shown())
        }
        (Some(tries), None) => format!("after {tries} failed tries, as fast as they come"),
        (None, _) => "never".to_owned(),
    };
    format!("  {when:<28}{after}\n  {:<28}{}\n", "", opens.because)
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

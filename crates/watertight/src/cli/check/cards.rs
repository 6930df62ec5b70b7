//! The agents' cards, looked at as the gateway would, and what is worth saying about them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use watertight_gateway::agents::{CardReport, Mode, inspect};
use watertight_gateway::config::{Agent, Config, Finding, Level};
use watertight_policy::reason::Reason;

use crate::cli::output::{self, safe_line};

/// Agents that are asked at the same time.
const AT_ONCE: usize = 16;

/// What one agent answered.
pub(super) struct Looked {
    pub(super) agent: String,
    pub(super) report: Result<CardReport, String>,
}

/// Asks every agent, each within the time that a look may take. With `progress`, who has been asked is told as it comes.
pub(super) async fn look(config: &Config, progress: bool) -> Vec<Looked> {
    let mut waiting = config.agents.iter().filter(|(_, agent)| !agent.wire.fetches);
    let (mut asked, mut done) = (JoinSet::new(), Vec::new());
    loop {
        while asked.len() < AT_ONCE
            && let Some((name, agent)) = waiting.next()
        {
            let (agent_name, wire) = (name.as_str().to_owned(), agent.wire.clone());
            asked.spawn(async move { Looked { report: inspect(&wire).await, agent: agent_name } });
        }
        let Some(looked) = asked.join_next().await else { break };
        let Ok(looked) = looked else { continue };
        done.push(looked);
        if progress {
            output::note(&format!("cards: {} of {}", done.len(), config.agents.len()));
        }
    }
    done.sort_by(|a, b| a.agent.cmp(&b.agent));
    done
}

/// What follows for the agent.
pub(super) fn judge(config: &Config, looked: &Looked) -> Vec<Finding> {
    let Some((_, agent)) = config.agents.iter().find(|(name, _)| name.as_str() == looked.agent) else {
        return Vec::new();
    };
    let path = ["agents".to_owned(), looked.agent.clone()];
    let (at, line) = (watertight_gateway::config::keys::dotted(&path), config.places.line(&path));
    let finding = |(level, text): (Level, String)| Finding { level, at: at.clone(), line, text: safe_line(&text) };
    let said = match &looked.report {
        Ok(report) => of_report(agent, report),
        Err(why) => vec![(Level::Error, why.clone())],
    };
    said.into_iter().map(finding).collect()
}

fn of_report(agent: &Agent, report: &CardReport) -> Vec<(Level, String)> {
    let problem = report.places.iter().find_map(|place| place.problem.as_ref().map(|problem| (place, problem)));
    if let Some((place, (reason, what))) = problem {
        let status = place.status.map(|status| format!(", HTTP {status}")).unwrap_or_default();
        let text = format!("{}{status} at {}: {what}. {}", reason.as_str(), place.url, advice(*reason));
        return vec![(Level::Error, text)];
    }
    let Some(card) = &report.card else {
        let text = "it has no card: callers are shown one made from its name, and JSON-RPC is spoken to it";
        return vec![(Level::Note, text.to_owned())];
    };
    let mut out = Vec::new();
    if card.only_v03 {
        out.push((Level::Error, "its card speaks of A2A 0.3 only, and 1.0 is spoken to it".to_owned()));
    }
    if report.elsewhere {
        let text = "every interface in its card is at another scheme, host or port than `url`, which is used in their \
                    place: name the address in `url` that the card names";
        out.push((Level::Warning, text.to_owned()));
    }
    if report.uses.is_empty() {
        out.push((Level::Error, "no interface in its card can be used".to_owned()));
    }
    if !card.required_extensions.is_empty() {
        let text = format!("every caller has to name these extensions: {}", card.required_extensions.join(", "));
        out.push((Level::Note, text));
    }
    match agent.wire.mode {
        Mode::Stream if !card.streaming => {
            out.push((Level::Warning, "mode is \"stream\", and its card says that it does not stream".to_owned()));
        }
        Mode::Poll | Mode::Blocking if card.streaming => {
            out.push((Level::Note, "its card says that it streams, and mode keeps it from that".to_owned()));
        }
        Mode::Auto | Mode::Stream | Mode::Poll | Mode::Blocking => {}
    }
    for interface in &card.interfaces {
        if let Some(why) = &interface.unusable {
            out.push((Level::Note, format!("{} at {} is not used: {why}", interface.binding, interface.url)));
        }
    }
    out
}

/// The second sentence of a reason: what to do.
fn advice(reason: Reason) -> &'static str {
    reason.explain().split_once(". ").map_or("", |(_, advice)| advice)
}

/// One line for people.
pub(super) fn line(looked: &Looked) -> String {
    let Ok(report) = &looked.report else { return "not asked".to_owned() };
    let took: Duration = report.places.iter().map(|place| place.took).sum();
    let uses: Vec<String> = report.uses.iter().map(|way| format!("{} at {}", way.binding, way.path)).collect();
    let uses = uses.join(", else ");
    let text = match (&report.card, report.places.iter().any(|place| place.problem.is_some())) {
        (Some(card), _) => format!(
            "\"{}\" {}, {}, {uses}; {} ms",
            card.name,
            card.version,
            if card.streaming { "streams" } else { "does not stream" },
            took.as_millis()
        ),
        (None, true) => format!("not seen; {} ms", took.as_millis()),
        (None, false) => format!("none, {uses}; {} ms", took.as_millis()),
    };
    safe_line(&text)
}

pub(super) fn to_json(looked: &Looked) -> Value {
    let report = match &looked.report {
        Ok(report) => report,
        Err(why) => return json!({ "error": why }),
    };
    let places: Vec<Value> = report
        .places
        .iter()
        .map(|place| {
            let problem = place.problem.as_ref().map(|(reason, what)| json!({"reason": reason.as_str(), "text": what}));
            json!({
                "url": place.url,
                "reachable": place.reachable,
                "status": place.status,
                "tookMs": place.took.as_millis(),
                "problem": problem,
            })
        })
        .collect();
    let card = report.card.as_ref().map(|card| {
        let interfaces: Vec<Value> = card
            .interfaces
            .iter()
            .map(|one| json!({"url": one.url, "binding": one.binding, "version": one.protocol_version, "unusable": one.unusable}))
            .collect();
        json!({
            "name": card.name,
            "version": card.version,
            "streaming": card.streaming,
            "signed": card.signed,
            "requiredExtensions": card.required_extensions,
            "interfaces": interfaces,
        })
    });
    let uses: Vec<Value> =
        report.uses.iter().map(|way| json!({"binding": way.binding, "path": way.path, "tenant": way.tenant})).collect();
    json!({"places": places, "card": card, "uses": uses, "elsewhere": report.elsewhere})
}

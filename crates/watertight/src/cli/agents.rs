//! `watertight agents` and `watertight breaker`: what traffic meets at each agent, and how many slots it needs.

mod drain;
mod register;

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::args::{AgentsArgs, AgentsCommand, BreakerArgs, BreakerCommand, Gateway};
use super::client::{Client, is_name};
use super::exit::{Code, Failure};
use super::output::{self, safe_line};
use super::screen::{self, Frame};
use super::table::{Cell, Step, Tone, duration, fitted, wrapped};

pub(super) async fn run(args: AgentsArgs) -> Result<Code, Failure> {
    match args.command {
        None => show(args.name.as_deref(), args.watch, &args.gateway).await,
        Some(AgentsCommand::List { gateway }) => show(None, None, &gateway).await,
        Some(AgentsCommand::Register(args)) => register::register(args).await,
        Some(AgentsCommand::Remove { agent, gateway }) => register::remove(&agent, &gateway).await,
        Some(AgentsCommand::Drain { agent, timeout, wait, gateway }) => {
            drain::drain(&agent, timeout, wait, &gateway).await
        }
        Some(AgentsCommand::Resume { agent, gateway }) => drain::resume(&agent, &gateway).await,
    }
}

async fn show(name: Option<&str>, watch: Option<u64>, gateway: &Gateway) -> Result<Code, Failure> {
    let (client, color) = (Client::new(gateway)?, output::wants_color());
    let look = async || {
        let json = of(client.api(Method::GET, "/v1/agents").await?, name)?;
        let text = match (name, json["agents"].as_array()) {
            (Some(_), Some(agents)) => agents.iter().map(|agent| one(agent, color)).collect(),
            (_, agents) => all(agents.map_or(&[], |agents| agents), color),
        };
        Ok(Frame { text, json })
    };
    if let Some(seconds) = watch {
        return screen::watch(Duration::from_secs(seconds), gateway.json, look).await;
    }
    let frame = look().await?;
    match gateway.json {
        true => output::line(&frame.json.to_string()),
        false => output::out(&frame.text),
    }
    Ok(Code::Ok)
}

pub(super) async fn breaker(args: BreakerArgs) -> Result<Code, Failure> {
    let client = Client::new(&args.gateway)?;
    let BreakerCommand::Reset { agent } = args.command;
    is_name(&agent)?;
    let done = client.api(Method::POST, &format!("/v1/agents/{agent}/breaker/reset")).await?;
    match args.gateway.json {
        true => output::line(&done.to_string()),
        false => output::line(&format!("{agent}: the breaker is reset, and traffic flows")),
    }
    Ok(Code::Ok)
}

/// The answer with the agent that is asked for alone.
fn of(mut answer: Value, name: Option<&str>) -> Result<Value, Failure> {
    let Some(name) = name else { return Ok(answer) };
    let agents = answer["agents"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let names: Vec<String> = agents.iter().map(|agent| text(&agent["agent"])).collect();
    let only: Vec<Value> = agents.into_iter().filter(|agent| agent["agent"] == name).collect();
    if only.is_empty() {
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(Failure::new(Code::Refused, format!("there is no agent {}; known: {there}", safe_line(name))));
    }
    Ok(json!({ "agents": only }))
}

/// What a narrow terminal does without: what is seen elsewhere, or matters to sizing alone. What traffic meets stays.
const NARROW: [Step; 10] = [
    Step::LeaveOut("STREAMS"),
    Step::LeaveOut("CARD"),
    Step::LeaveOut("STRANDED"),
    Step::LeaveOut("WAIT P99"),
    Step::LeaveOut("CALLS/S"),
    Step::LeaveOut("P50"),
    Step::LeaveOut("QUEUED"),
    Step::Cut("AGENT", 12),
    Step::LeaveOut("WAITING"),
    Step::Cut("STATE", 8),
];

/// A line each, and below them what the figures mean.
fn all(agents: &[Value], color: bool) -> String {
    if agents.is_empty() {
        return "no agents are configured\n".to_owned();
    }
    let rows = agents.iter().map(|agent| {
        let lately = &agent["lately"];
        [
            Cell::from(text(&agent["agent"])),
            state(agent),
            card(agent),
            Cell::from(format!("{}/{}", agent["inFlight"], agent["maxInFlight"])),
            Cell::from(agent["waiting"].to_string()),
            Cell::from(match agent["oldestQueuedMs"].is_u64() {
                true => format!("{} ({})", agent["queued"], millis(&agent["oldestQueuedMs"])),
                false => agent["queued"].to_string(),
            }),
            Cell::from(agent["streams"].to_string()),
            Cell::from(failures(agent)),
            Cell::from(per_second(&lately["callsPerSecond"])),
            Cell::from(millis(&lately["turns"]["p50Ms"])),
            Cell::from(millis(&lately["turns"]["p99Ms"])),
            Cell::from(millis(&lately["slotWait"]["p99Ms"])),
            Cell::from(lately["strandedSlots"].to_string()),
        ]
    });
    let head = [
        "AGENT", "STATE", "CARD", "SLOTS", "WAITING", "QUEUED", "STREAMS", "FAILED", "CALLS/S", "P50", "P99",
        "WAIT P99", "STRANDED",
    ];
    let room = output::columns();
    let mut out = fitted(head, rows.collect(), color, room, &NARROW);
    out.push('\n');
    for agent in agents {
        let advice = format!("{}: {}", text(&agent["agent"]), text(&agent["lately"]["advice"]["text"]));
        out += &wrapped(&advice, room, 2);
        out.push('\n');
    }
    out
}

/// Everything about one.
fn one(agent: &Value, color: bool) -> String {
    let (lately, breaker, limits) = (&agent["lately"], &agent["breaker"], &agent["limits"]);
    let state = state(agent);
    let mut rows = vec![
        ("agent", text(&agent["agent"])),
        ("url", address(agent)),
        ("registered", registered(agent)),
        ("state", state.tone.paint(&state.text, color)),
        ("card", card_in_full(agent)),
        ("interface", interface(agent)),
        ("parent", text(&agent["access"]["parent"])),
        ("may call", may_call(agent)),
        (
            "slots",
            format!(
                "{} of {} taken, {} at most lately",
                agent["inFlight"], agent["maxInFlight"], lately["peakInFlight"]
            ),
        ),
        (
            "waiting",
            format!("{} of {}, for {} at most", agent["waiting"], limits["maxWaiting"], millis(&limits["maxWaitMs"])),
        ),
        (
            "queued",
            format!(
                "{} of {}, for {} where nothing is said{}",
                agent["queued"],
                limits["maxQueued"],
                millis(&limits["queueTtlMs"]),
                match agent["oldestQueuedMs"].is_u64() {
                    true => format!("; the oldest has waited {}", millis(&agent["oldestQueuedMs"])),
                    false => String::new(),
                }
            ),
        ),
        ("draining", drain::in_words(agent)),
        ("wake hook", wake(agent)),
        ("streams", agent["streams"].to_string()),
        (
            "breaker",
            format!(
                "{} calls, {} failed, {} slow; {} failures in a row; {} ejections",
                breaker["calls"],
                breaker["failures"],
                breaker["slow"],
                breaker["consecutiveFailures"],
                breaker["ejections"]
            ),
        ),
        ("calls", format!("{} per second, over {}", per_second(&lately["callsPerSecond"]), millis(&lately["overMs"]))),
        ("turns", times(&lately["turns"])),
        ("slot wait", times(&lately["slotWait"])),
        ("turned away", format!("{} for want of a slot", lately["turnedAway"])),
        ("stranded", format!("{} slots", lately["strandedSlots"])),
        ("advice", text(&lately["advice"]["text"])),
    ];
    rows.retain(|(_, value)| !value.is_empty());
    let room = output::columns();
    rows.into_iter().map(|(name, value)| wrapped(&format!("{name:12} {value}"), room, 13) + "\n").collect()
}

/// Whom it may send messages, as the caller that it is.
fn may_call(agent: &Value) -> String {
    let access = &agent["access"];
    let names = access["mayCall"].as_array().map(|all| all.iter().map(text).collect::<Vec<_>>().join(", "));
    let of_tenant = || match access["tenant"].as_str() {
        Some(tenant) => format!("all agents of tenant {}", safe_line(tenant)),
        None => "all agents of its caller's tenant".to_owned(),
    };
    match (access["canDelegate"].as_bool(), names) {
        (None, _) => String::new(),
        (Some(false), _) => "nobody: can_delegate is false".to_owned(),
        (Some(true), None) => of_tenant(),
        (Some(true), Some(names)) if names.is_empty() => "nobody".to_owned(),
        (Some(true), Some(names)) => names,
    }
}

/// By whom it was let in; nothing if it is in the configuration.
fn registered(agent: &Value) -> String {
    let by = text(&agent["enrolment"]);
    if by.is_empty() { by } else { format!("by itself, let in by {by}") }
}

/// How the hook went the last time; nothing if it was never called.
fn wake(agent: &Value) -> String {
    let wake = &agent["wake"];
    match wake["ok"].as_bool() {
        Some(ok) => {
            let how = if ok { "went well" } else { "failed" };
            format!("{how} {} ago: {}", millis(&wake["agoMs"]), text(&wake["said"]))
        }
        None => String::new(),
    }
}

fn state(agent: &Value) -> Cell {
    let word = text(&agent["state"]);
    let until = agent["breaker"]["untilMs"].as_f64().filter(|ms| *ms > 0.0);
    match (word.as_str(), until, agent["pacingMs"].as_f64()) {
        ("admitting", _, _) => Cell::toned(word, Tone::Good),
        ("ejected", Some(ms), _) => Cell::toned(format!("ejected, trial in {}", duration(ms)), Tone::Bad),
        ("ejected", None, _) => Cell::toned("ejected, trial due", Tone::Bad),
        ("pacing", _, Some(ms)) => Cell::toned(format!("pacing for {}", duration(ms)), Tone::Warning),
        _ => Cell::toned(word, Tone::Warning),
    }
}

/// Where it is called, or how many of its workers ask for work.
fn address(agent: &Value) -> String {
    match agent["fetches"]["workers"].as_u64() {
        Some(1) => "none: it fetches its work, and 1 worker waits for some".to_owned(),
        Some(workers) => format!("none: it fetches its work, and {workers} workers wait for some"),
        None => text(&agent["url"]),
    }
}

/// Whether the agent says who it is.
fn card(agent: &Value) -> Cell {
    match (agent["card"].is_object(), agent["card"]["stale"].as_bool()) {
        (true, Some(true)) => Cell::toned("stale", Tone::Warning),
        (true, Some(false) | None) => Cell::toned("ok", Tone::Good),
        (false, _) => Cell::from("none"),
    }
}

/// `ok: Hotels 1.2, seen 3 s ago`
fn card_in_full(agent: &Value) -> String {
    let card = &agent["card"];
    let word = self::card(agent).text;
    if !card.is_object() {
        return word;
    }
    let name = [text(&card["name"]), text(&card["version"])].join(" ");
    format!("{word}: {}, seen {} ago", name.trim(), millis(&card["fetchedAgoMs"]))
}

/// How it is spoken to: `JSONRPC at /a2a`.
fn interface(agent: &Value) -> String {
    let interface = &agent["interface"];
    let (binding, path) = (text(&interface["binding"]), text(&interface["path"]));
    if path.is_empty() { binding } else { format!("{binding} at {path}") }
}

/// `3 of 20`: what the breaker remembers.
fn failures(agent: &Value) -> String {
    match agent["breaker"]["calls"].as_u64() {
        Some(0) | None => "-".to_owned(),
        Some(calls) => format!("{} of {calls}", agent["breaker"]["failures"]),
    }
}

fn times(of: &Value) -> String {
    match of["count"].as_u64() {
        Some(0) | None => "none lately".to_owned(),
        Some(count) => format!("{count} lately: p50 {}, p99 {}", millis(&of["p50Ms"]), millis(&of["p99Ms"])),
    }
}

fn millis(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), duration)
}

fn per_second(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"))
}

fn text(value: &Value) -> String {
    safe_line(value.as_str().unwrap_or(""))
}

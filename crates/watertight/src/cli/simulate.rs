//! `watertight simulate world`: the engine in virtual time, from a seed, and what the invariants say of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use watertight_sim::{Broken, Faults, Report, Scenario, Tally, run_watched, sweep};

use super::args::{SimulateWorld, SimulatedFaults};
use super::exit::{Code, Failure};
use super::output;
use super::table;

/// Between two lines that say how far it is.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// Plays the world, and its sweeps if they are wanted. Exit code 1 if an invariant broke.
pub(super) async fn world(args: SimulateWorld) -> Result<Code, Failure> {
    let chaos = match args.faults {
        SimulatedFaults::None => Faults::None,
        SimulatedFaults::Some => Faults::Some,
        SimulatedFaults::Many => Faults::Many,
    };
    let (agents, cells) = (usize::from(args.agents), usize::from(args.cells));
    let scenario = match args.sweep {
        false => Scenario::world(args.seed, args.delegations, agents, cells, chaos),
        true => Scenario::cycle(args.seed, args.delegations),
    };
    output::note(&match args.sweep {
        false => format!("seed {}: {} messages to {agents} agents through {cells} cells", args.seed, args.delegations),
        true => format!("seed {}: {} messages, a crash and a reload at every commit", args.seed, args.delegations),
    });
    let sent = Arc::new(AtomicU64::new(0));
    let (seen, sweeps) = (sent.clone(), args.sweep);
    let begun = Instant::now();
    let work = tokio::task::spawn_blocking(move || {
        let report = run_watched(&scenario, |so_far| seen.store(so_far, Ordering::Relaxed));
        let swept = sweeps.then(|| {
            let (crashes, crashed) = sweep::crashes(&scenario, 1);
            let (reloads, reloaded) = sweep::reloads(&scenario, 1);
            let twice = sweep::twice(&scenario).into_iter().map(|what| ("cancels twice".to_owned(), vec![what]));
            let broken: Vec<_> = crashes.into_iter().chain(reloads).chain(twice).collect();
            (broken, crashed + reloaded + 2)
        });
        (report, swept)
    });
    // Long runs say how far they are; the simulation itself has no clock to ask.
    tokio::pin!(work);
    let (report, swept) = loop {
        tokio::select! {
            done = &mut work => break done.map_err(|error| Failure::new(Code::Failed, error.to_string()))?,
            () = tokio::time::sleep(NOTE_EVERY) => {
                let sent = sent.load(Ordering::Relaxed);
                output::note(&format!("{} s: {sent} of {} messages sent", begun.elapsed().as_secs(), args.delegations));
            }
        }
    };
    let took = begun.elapsed();
    let fine = report.broken.is_empty() && swept.as_ref().is_none_or(|(broken, _)| broken.is_empty());
    if args.json {
        output::line(&in_json(&args, &report, swept.as_ref(), took).to_string());
    } else {
        output::out(&in_words(&report, swept.as_ref(), took));
    }
    if !fine {
        output::note(&format!("play it again: {}", replay(&args)));
    }
    Ok(if fine { Code::Ok } else { Code::Failed })
}

type Swept = (Vec<sweep::Broken>, u64);

/// The command that plays the same run.
fn replay(args: &SimulateWorld) -> String {
    let SimulateWorld { seed, delegations, agents, cells, .. } = args;
    let start = format!("watertight simulate world --seed {seed} --delegations {delegations}");
    match args.sweep {
        true => format!("{start} --sweep"),
        false => format!("{start} --agents {agents} --cells {cells} --faults {}", args.faults.as_str()),
    }
}

fn per_second(inputs: u64, took: Duration) -> f64 {
    inputs as f64 / took.as_secs_f64().max(1e-6)
}

fn in_json(args: &SimulateWorld, report: &Report, swept: Option<&Swept>, took: Duration) -> serde_json::Value {
    let swept_broken = |swept: &Swept| -> Vec<serde_json::Value> {
        swept.0.iter().map(|(fault, what)| json!({"fault": fault, "broken": what})).collect()
    };
    let broken = |broken: &Broken| {
        json!({
            "step": broken.step,
            "cell": broken.cell,
            "task": broken.task,
            "what": broken.what,
            "events": broken.events,
        })
    };
    let tally = |tally: &Tally| {
        json!({
            "sent": tally.sent,
            "byItsWord": tally.by_its_word,
            "byOurVerdict": tally.by_our_verdict,
            "refused": tally.refused,
            "cut": tally.cut,
            "cancels": tally.cancels,
            "maxQueued": tally.max_queued,
        })
    };
    let agents: serde_json::Map<_, _> = report.agents.iter().map(|(name, of)| (name.clone(), tally(of))).collect();
    json!({
        "seed": args.seed,
        "delegations": args.delegations,
        "replay": replay(args),
        "broken": report.broken.iter().map(broken).collect::<Vec<_>>(),
        "accepted": report.accepted,
        "children": report.children,
        "outcomes": report.outcomes,
        "refusals": report.refusals,
        "faults": report.faults,
        "agents": agents,
        "commits": report.commits,
        "steps": report.steps,
        "inputs": report.inputs,
        "inputsPerSecond": per_second(report.inputs, took).round(),
        "heldMax": report.held,
        "executions": report.executions,
        "cancels": report.cancels,
        "virtualMs": report.took.as_millis(),
        "tookMs": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "sweep": swept.map(|swept| json!({"runs": swept.1, "broken": swept_broken(swept)})),
    })
}

fn in_words(report: &Report, swept: Option<&Swept>, took: Duration) -> String {
    let mut rows = Vec::new();
    for (name, tally) in &report.agents {
        let sum = |of: &std::collections::BTreeMap<String, u64>| of.values().sum::<u64>();
        let most = tally.by_our_verdict.iter().max_by_key(|(_, times)| **times);
        let row = [
            name.clone(),
            tally.sent.to_string(),
            sum(&tally.by_its_word).to_string(),
            sum(&tally.by_our_verdict).to_string(),
            most.map_or(String::new(), |(reason, times)| format!("{reason} {times}")),
            tally.cut.to_string(),
            sum(&tally.refused).to_string(),
            tally.max_queued.to_string(),
        ];
        rows.push(row.map(table::Cell::from));
    }
    let heads = ["agent", "sent", "its word", "our verdict", "mostly", "cut", "refused", "max queued"];
    let mut text = table::table(heads, rows, false);
    for (kind, counts) in [("task", &report.outcomes), ("answer", &report.refusals), ("fault", &report.faults)] {
        text += "\n";
        for (what, times) in counts {
            text += &format!("{times:>10}  {kind} {}\n", what.trim_start_matches("TASK_STATE_"));
        }
    }
    text += &format!(
        "\n{} accepted, {} of them children; agents were sent {} messages and {} cancels; at most {} in memory at once\n\
         {:.0} s of virtual time, {} steps, {} inputs, {:.0} inputs/s\n",
        report.accepted,
        report.children,
        report.executions,
        report.cancels,
        report.held,
        report.took.as_secs_f64(),
        report.steps,
        report.inputs,
        per_second(report.inputs, took),
    );
    if let Some((broken, runs)) = swept {
        text += &format!("sweeps: {runs} runs, {} with a broken invariant\n", broken.len());
        for (fault, what) in broken {
            text += &format!("  {fault}: {}\n", what.join("; "));
        }
    }
    if report.broken.is_empty() {
        text += "no invariant broke\n";
    }
    let mut told: &[String] = &[];
    for broken in &report.broken {
        let whose = broken.task.as_deref().map_or(String::new(), |task| format!(" {task}"));
        text += &format!("BROKEN  step {}, cell {}:{whose} {}\n", broken.step, broken.cell, broken.what);
        if broken.events.as_slice() != told {
            told = &broken.events;
            told.iter().for_each(|event| text += &format!("        {event}\n"));
        }
    }
    text
}

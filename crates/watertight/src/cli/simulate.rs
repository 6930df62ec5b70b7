//! `watertight simulate world`: the engine in virtual time, from a seed, and what the invariants say of it.

use std::time::Duration;

use serde_json::json;
use watertight_sim::{Report, Scenario, run, sweep};

use super::args::SimulateWorld;
use super::exit::{Code, Failure};
use super::output;

/// Plays the world, and its sweeps if they are wanted. Exit code 1 if an invariant broke.
pub(super) async fn world(args: SimulateWorld) -> Result<Code, Failure> {
    let scenario = Scenario::small(args.seed, args.delegations);
    let sweeps = args.sweep;
    output::note(&match sweeps {
        false => format!("seed {}: {} delegations", args.seed, args.delegations),
        true => format!("seed {}: {} delegations, a crash and a reload at every commit", args.seed, args.delegations),
    });
    let work = tokio::task::spawn_blocking(move || {
        let report = run(&scenario);
        let swept = sweeps.then(|| {
            let (crashes, crashed) = sweep::crashes(&scenario, 1);
            let (reloads, reloaded) = sweep::reloads(&scenario, 1);
            let twice = sweep::twice(&scenario).into_iter().map(|what| ("cancels twice".to_owned(), vec![what]));
            let broken: Vec<_> = crashes.into_iter().chain(reloads).chain(twice).collect();
            (broken, crashed + reloaded + 2)
        });
        (report, swept)
    });
    // Long runs say that they are alive; the simulation itself has no clock to ask.
    tokio::pin!(work);
    let (report, swept) = loop {
        tokio::select! {
            done = &mut work => break done.map_err(|error| Failure::new(Code::Failed, error.to_string()))?,
            () = tokio::time::sleep(Duration::from_secs(5)) => output::note("still playing"),
        }
    };
    let fine = report.broken.is_empty() && swept.as_ref().is_none_or(|(broken, _)| broken.is_empty());
    if args.json {
        output::line(&in_json(&args, &report, swept.as_ref()).to_string());
    } else {
        output::out(&in_words(&report, swept.as_ref()));
    }
    Ok(if fine { Code::Ok } else { Code::Failed })
}

type Swept = (Vec<sweep::Broken>, u64);

fn in_json(args: &SimulateWorld, report: &Report, swept: Option<&Swept>) -> serde_json::Value {
    let broken = |swept: &Swept| -> Vec<serde_json::Value> {
        swept.0.iter().map(|(fault, what)| json!({"fault": fault, "broken": what})).collect()
    };
    json!({
        "seed": args.seed,
        "delegations": args.delegations,
        "broken": report.broken,
        "outcomes": report.outcomes,
        "refusals": report.refusals,
        "commits": report.commits,
        "steps": report.steps,
        "executions": report.executions,
        "cancels": report.cancels,
        "tookMs": report.took.as_millis(),
        "sweep": swept.map(|swept| json!({"runs": swept.1, "broken": broken(swept)})),
    })
}

fn in_words(report: &Report, swept: Option<&Swept>) -> String {
    let mut text = format!(
        "{:.0} s of virtual time, {} steps, {} commits; agents were sent {} messages and {} cancels\n",
        report.took.as_secs_f64(),
        report.steps,
        report.commits,
        report.executions,
        report.cancels
    );
    for (kind, counts) in [("task", &report.outcomes), ("refused", &report.refusals)] {
        for (what, times) in counts {
            text += &format!("  {times:>8}  {kind} {}\n", what.trim_start_matches("TASK_STATE_"));
        }
    }
    if let Some((broken, runs)) = swept {
        text += &format!("sweeps: {runs} runs, {} with a broken invariant\n", broken.len());
        for (fault, what) in broken {
            text += &format!("  {fault}: {}\n", what.join("; "));
        }
    }
    match report.broken.is_empty() {
        true => text += "no invariant broke\n",
        false => report.broken.iter().for_each(|what| text += &format!("BROKEN  {what}\n")),
    }
    text
}

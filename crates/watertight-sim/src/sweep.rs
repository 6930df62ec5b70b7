//! Every place where something can go wrong, one after the other.

use crate::report::Report;
use crate::scenario::{Fault, Scenario};
use crate::world::run;

/// A fault, and what it broke.
pub type Broken = (String, Vec<String>);

/// The scenario without faults of ours, then with the process dying after each of its commits in turn, and before each
/// of them (in steps of `stride`). Gives what broke, and how many runs it took.
pub fn crashes(scenario: &Scenario, stride: u64) -> (Vec<Broken>, u64) {
    let (mut broken, after) = each_commit(scenario, stride, Fault::CrashAfter, |_, _| None);
    let (others, before) = each_commit(scenario, stride, Fault::CrashBefore, |_, _| None);
    broken.extend(others);
    (broken, after + before)
}

/// The same with only the engine replaced: every message still has to come to an end. Which one may differ, since the
/// disk answers earlier then.
pub fn reloads(scenario: &Scenario, stride: u64) -> (Vec<Broken>, u64) {
    each_commit(scenario, stride, Fault::ReloadAfter, |calm, shaken| {
        // What an agent starts meanwhile depends on when it is asked.
        let of_callers = |report: &Report| report.fates.keys().filter(|message| **message >> 63 == 0).count();
        let (has, had) = (of_callers(shaken), of_callers(calm));
        (has != had).then(|| format!("{has} messages have a fate, {had} had"))
    })
}

/// Likewise in a scenario where no message is in another's way: every one has to come to the same end.
pub fn reloads_alike(scenario: &Scenario, stride: u64) -> (Vec<Broken>, u64) {
    each_commit(scenario, stride, Fault::ReloadAfter, |calm, shaken| {
        let differs = calm.fates.iter().find(|(message, fate)| shaken.fates.get(message) != Some(fate));
        differs.map(|(message, fate)| format!("message {message} ended as {:?}, was {fate}", shaken.fates.get(message)))
    })
}

/// Every at-least-once effect twice: no message may end differently.
pub fn twice(scenario: &Scenario) -> Vec<String> {
    let calm = run(scenario);
    let doubled = run(&Scenario { twice: true, ..scenario.clone() });
    let differs = calm.fates != doubled.fates;
    words(doubled).into_iter().chain(differs.then(|| "a doubled cancel changed a fate".to_owned())).collect()
}

fn words(report: Report) -> Vec<String> {
    let word = |task: Option<String>, what: String| task.map_or(what.clone(), |task| format!("{task}: {what}"));
    report.broken.into_iter().map(|broken| word(broken.task, broken.what)).collect()
}

fn each_commit(
    scenario: &Scenario,
    stride: u64,
    fault: impl Fn(u64) -> Fault,
    compare: impl Fn(&Report, &Report) -> Option<String>,
) -> (Vec<Broken>, u64) {
    let calm = run(scenario);
    let mut broken: Vec<Broken> = Vec::new();
    if !calm.broken.is_empty() {
        broken.push(("no fault".into(), words(calm.clone())));
    }
    let mut runs = 1;
    for n in (1..=calm.commits).step_by(usize::try_from(stride.max(1)).unwrap_or(1)) {
        let fault = fault(n);
        let shaken = run(&Scenario { faults: vec![fault], ..scenario.clone() });
        runs += 1;
        let differs = compare(&calm, &shaken);
        let all: Vec<String> = words(shaken).into_iter().chain(differs).collect();
        if !all.is_empty() {
            broken.push((format!("{fault:?}"), all));
        }
    }
    (broken, runs)
}

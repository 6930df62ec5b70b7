//! Every place where something can go wrong, one after the other.

use crate::scenario::{Fault, Scenario};
use crate::world::{Report, run};

/// A fault, and what it broke.
pub type Broken = (String, Vec<String>);

/// The scenario without faults of ours, then with the process dying after each of its commits in turn (in steps of
/// `stride`). Gives what broke, and how many runs it took.
pub fn crashes(scenario: &Scenario, stride: u64) -> (Vec<Broken>, u64) {
    each_commit(scenario, stride, Fault::CrashAfter, |_, _| None)
}

/// The same with only the engine replaced: every message still has to come to an end. Which one may differ, since the
/// disk answers earlier then, and the agents' draws come in another order.
pub fn reloads(scenario: &Scenario, stride: u64) -> (Vec<Broken>, u64) {
    each_commit(scenario, stride, Fault::ReloadAfter, |calm, shaken| {
        (calm.fates.len() != shaken.fates.len())
            .then(|| format!("{} messages have a fate, {} had", shaken.fates.len(), calm.fates.len()))
    })
}

/// Every at-least-once effect twice: no message may end differently.
pub fn twice(scenario: &Scenario) -> Vec<String> {
    let calm = run(scenario);
    let doubled = run(&Scenario { twice: true, ..scenario.clone() });
    let differs = calm.fates != doubled.fates;
    doubled.broken.into_iter().chain(differs.then(|| "a doubled cancel changed a fate".to_owned())).collect()
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
        broken.push(("no fault".into(), calm.broken.clone()));
    }
    let mut runs = 1;
    for n in (1..=calm.commits).step_by(usize::try_from(stride.max(1)).unwrap_or(1)) {
        let fault = fault(n);
        let shaken = run(&Scenario { faults: vec![fault], ..scenario.clone() });
        runs += 1;
        let differs = compare(&calm, &shaken);
        let all: Vec<String> = shaken.broken.into_iter().chain(differs).collect();
        if !all.is_empty() {
            broken.push((format!("{fault:?}"), all));
        }
    }
    (broken, runs)
}

//! Seeds and sweeps.

use watertight_sim::{Scenario, run, sweep};

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(&Scenario::small(1, 200)), run(&Scenario::small(1, 200)));
    assert_ne!(run(&Scenario::small(1, 200)).fates, run(&Scenario::small(2, 200)).fates);
}

#[test]
fn no_invariant_breaks_over_many_seeds() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let report = run(&Scenario::small(seed, 150));
        assert_eq!(report.broken, Vec::<String>::new(), "seed {seed}");
        kinds.extend(report.outcomes.into_keys());
        kinds.extend(report.refusals.into_keys());
    }
    // The scenario is only worth something if it gets to all these places.
    for kind in [
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED deadline_exceeded",
        "TASK_STATE_FAILED agent_no_answer",
        "TASK_STATE_CANCELED canceled",
        "TASK_STATE_REJECTED",
        "bulkhead_full",
        "breaker_open",
        "agent_pacing",
    ] {
        assert!(kinds.contains(kind), "{kind} never happened: {kinds:?}");
    }
}

#[test]
fn a_crash_after_any_commit_loses_and_doubles_nothing() {
    for seed in [3, 4] {
        let (broken, runs) = sweep::crashes(&Scenario::small(seed, 60), 1);
        assert!(runs > 100, "{runs}");
        assert_eq!(broken, vec![], "seed {seed}");
    }
}

#[test]
fn an_engine_replaced_after_any_commit_goes_on() {
    let (broken, runs) = sweep::reloads(&Scenario::small(5, 60), 1);
    assert!(runs > 100, "{runs}");
    assert_eq!(broken, vec![]);
}

#[test]
fn what_is_kept_in_memory_goes_with_the_process_and_nothing_else_does() {
    for seed in 0..30 {
        assert_eq!(run(&Scenario::mixed(seed, 150)).broken, Vec::<String>::new(), "seed {seed}");
    }
    let (broken, runs) = sweep::crashes(&Scenario::mixed(6, 60), 1);
    assert!(runs > 50, "{runs}");
    assert_eq!(broken, vec![]);
    let (broken, runs) = sweep::reloads(&Scenario::mixed(7, 60), 1);
    assert!(runs > 50, "{runs}");
    assert_eq!(broken, vec![]);
    assert_eq!(sweep::twice(&Scenario::mixed(8, 100)), Vec::<String>::new());
}

#[test]
fn every_cancel_twice_changes_nothing() {
    for seed in 0..20 {
        assert_eq!(sweep::twice(&Scenario::small(seed, 100)), Vec::<String>::new(), "seed {seed}");
    }
}

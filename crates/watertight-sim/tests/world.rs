//! Seeds and sweeps.

use std::collections::BTreeSet;

use watertight_sim::{Faults, Report, Scenario, run, sweep};

#[track_caller]
fn unbroken(report: &Report, of: &str) {
    assert!(report.broken.is_empty(), "{of}: {:#?}", report.broken);
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(&Scenario::small(1, 200)), run(&Scenario::small(1, 200)));
    assert_ne!(run(&Scenario::small(1, 200)).fates, run(&Scenario::small(2, 200)).fates);
    let world = Scenario::world(1, 500, 12, 2, Faults::Many);
    assert_eq!(run(&world), run(&world));
}

#[test]
fn no_invariant_breaks_over_many_seeds() {
    let mut kinds = BTreeSet::new();
    for seed in 0..40 {
        let report = run(&Scenario::small(seed, 150));
        unbroken(&report, &format!("seed {seed}"));
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
fn everything_at_once_breaks_nothing() {
    let mut seen = BTreeSet::new();
    for (seed, chaos) in [(1, Faults::None), (16, Faults::Many), (3, Faults::Some), (10, Faults::Many)] {
        let report = run(&Scenario::world(seed, 2_500, 15, 2, chaos));
        unbroken(&report, &format!("seed {seed}, {chaos:?}"));
        assert!(report.children > 40, "{report:?}");
        // What sleeps was woken and worked, what could be asked was asked, and the session did one thing after the other.
        assert!(report.wakes > 0 && report.found > 0, "{report:?}");
        for agent in ["asleep-0", "findable-0", "session-0"] {
            assert!(report.agents[agent].by_its_word["completed"] > 10, "{agent}: {:?}", report.agents[agent]);
        }
        seen.extend(report.outcomes.into_keys().chain(report.refusals.into_keys()).chain(report.faults.into_keys()));
    }
    for kind in [
        "TASK_STATE_FAILED outcome_unknown",
        "TASK_STATE_FAILED expired",
        "TASK_STATE_FAILED forbidden",
        "gone with the process",
        "fanout_exhausted",
        "depth_exhausted",
        "delegation_cycle",
        "parent_ended",
        "agent_draining",
        "shutting_down",
        "queue_full",
        "task_busy",
        "conflict",
        "not found",
        "terminal",
        "crash",
        "reload",
        "disk fails",
        "stall",
        "agent restarts",
        "exit",
    ] {
        assert!(seen.contains(kind), "{kind} never happened: {seen:?}");
    }
}

/// Seeds at which something broke once. Everything is looked at after nearly every step.
#[test]
fn what_broke_once_does_not_break_again() {
    let seeds = [
        // A failed commit was written all the same, and what it was about was over: the message on its line began it anew.
        (6, 12),
        // One of two equal messages was asked for anew after a reload, found its task over and never sent, and began another.
        (127, 12),
        // A caller on a line took the slot in the moment in which the agent's pause ended, and nobody looked at the queue.
        (5, 12),
        // A process died while its session may still have been at work; and a cancel of what had no name freed it.
        (324, 15),
        (748, 15),
    ];
    for (seed, agents) in seeds {
        let world = Scenario::world(seed, 3_000, agents, 2, Faults::Many);
        unbroken(&run(&Scenario { audit_every: 50, ..world }), &format!("seed {seed}"));
    }
}

#[test]
fn a_crash_before_and_after_any_commit_loses_and_doubles_nothing() {
    let (broken, runs) = sweep::crashes(&Scenario::small(3, 50), 1);
    assert!(runs > 200, "{runs}");
    assert_eq!(broken, vec![]);
    // Children, questions, follow-ups, cancels.
    let cycle = Scenario::cycle(4, 12);
    let calm = run(&cycle);
    assert!(calm.children > 5 && calm.cancels > 0, "{calm:?}");
    let (broken, runs) = sweep::crashes(&cycle, 1);
    assert!(runs > 100, "{runs}");
    assert_eq!(broken, vec![]);
}

#[test]
fn an_engine_replaced_after_any_commit_goes_on() {
    for scenario in [Scenario::small(5, 60), Scenario::cycle(6, 20)] {
        let (broken, runs) = sweep::reloads(&scenario, 1);
        assert!(runs > 100, "{runs}");
        assert_eq!(broken, vec![]);
    }
}

#[test]
fn an_engine_replaced_after_any_commit_goes_on_like_the_one_before() {
    let (broken, runs) = sweep::reloads_alike(&Scenario::roomy(7, 50), 1);
    assert!(runs > 100, "{runs}");
    assert_eq!(broken, vec![]);
}

#[test]
fn what_is_kept_in_memory_goes_with_the_process_and_nothing_else_does() {
    for seed in 0..20 {
        unbroken(&run(&Scenario::mixed(seed, 150)), &format!("seed {seed}"));
    }
    let (broken, runs) = sweep::crashes(&Scenario::mixed(6, 50), 1);
    assert!(runs > 50, "{runs}");
    assert_eq!(broken, vec![]);
    let (broken, runs) = sweep::reloads(&Scenario::mixed(7, 50), 1);
    assert!(runs > 50, "{runs}");
    assert_eq!(broken, vec![]);
    assert_eq!(sweep::twice(&Scenario::mixed(8, 100)), Vec::<String>::new());
}

#[test]
fn every_cancel_twice_changes_nothing() {
    for seed in 0..12 {
        assert_eq!(sweep::twice(&Scenario::small(seed, 100)), Vec::<String>::new(), "seed {seed}");
        assert_eq!(sweep::twice(&Scenario::cycle(seed, 30)), Vec::<String>::new(), "seed {seed}");
    }
}

//! The breaker, case by case. The model is in `model`.

use super::*;

mod model;

const START: Time = Time::from_millis(1_000_000);
const OK: Sample = Sample::Success { took: Span::from_millis(100) };

fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

/// Fails `count` times for one caller, and gives what came of the last.
fn fail(breaker: &mut Breaker, now: Time, caller: u64, count: u32) -> Option<Transition> {
    (0..count).map(|_| breaker.record(now, caller, Sample::Failure, None)).last().flatten()
}

fn ejected(params: Params) -> Breaker {
    let mut breaker = Breaker::new(params);
    let transition = fail(&mut breaker, START, 1, params.consecutive_failures);
    assert!(matches!(transition, Some(Transition::Ejected { .. })));
    breaker
}

#[test]
fn five_in_a_row_eject_and_four_do_not() {
    let mut breaker = Breaker::new(Params::default());
    assert_eq!(fail(&mut breaker, START, 1, 4), None);
    assert_eq!(breaker.record(START, 1, OK, None), None);
    assert_eq!(fail(&mut breaker, START, 1, 4), None);
    assert_eq!(breaker.gate(START), Gate::Open);
    let until = START + secs(5);
    assert_eq!(fail(&mut breaker, START, 1, 1), Some(Transition::Ejected { until, cause: Cause::Consecutive }));
    assert_eq!(breaker.gate(START), Gate::Closed { until: Some(until) });
    assert_eq!(breaker.gate(until), Gate::Probe);
}

#[test]
fn the_callers_fault_does_not_count() {
    let mut breaker = Breaker::new(Params::default());
    for _ in 0..10 {
        assert_eq!(breaker.record(START, 1, Sample::Neutral, None), None);
        assert_eq!(breaker.record(START, 1, Sample::Cut { waited: Span::from_millis(999) }, None), None);
    }
    assert_eq!(breaker.snapshot().calls, 0);
    assert_eq!(breaker.gate(START), Gate::Open);
}

#[test]
fn a_cut_counts_once_the_agent_had_time() {
    let mut breaker = Breaker::new(Params::default());
    for _ in 0..4 {
        assert_eq!(breaker.record(START, 1, Sample::Cut { waited: secs(1) }, None), None);
    }
    assert!(breaker.record(START, 1, Sample::Cut { waited: secs(1) }, None).is_some());
}

#[test]
fn half_of_twenty_eject_by_rate() {
    let mut breaker = Breaker::new(Params { consecutive_failures: 0, ..Params::default() });
    for _ in 0..10 {
        assert_eq!(breaker.record(START, 1, OK, None), None);
    }
    assert_eq!(fail(&mut breaker, START, 1, 9), None);
    let until = START + secs(5);
    assert_eq!(fail(&mut breaker, START, 1, 1), Some(Transition::Ejected { until, cause: Cause::FailureRate }));
}

#[test]
fn what_left_the_window_does_not_count() {
    let mut breaker = Breaker::new(Params { consecutive_failures: 0, ..Params::default() });
    assert_eq!(fail(&mut breaker, START, 1, 19), None);
    assert_eq!(fail(&mut breaker, START + secs(30), 1, 19), None);
    assert_eq!(breaker.snapshot().calls, 19);
    assert!(fail(&mut breaker, START + secs(59), 1, 1).is_some());
}

#[test]
fn slow_calls_eject_only_where_asked() {
    let slow = Sample::Success { took: secs(10) };
    let mut lenient = Breaker::new(Params::default());
    assert!((0..40).all(|_| lenient.record(START, 1, slow, None).is_none()));
    assert_eq!(lenient.snapshot().slow, 40);

    let mut strict = Breaker::new(Params { slow_rate_bp: 10_000, ..Params::default() });
    assert!((0..19).all(|_| strict.record(START, 1, slow, None).is_none()));
    let until = START + secs(5);
    let transition = Transition::Ejected { until, cause: Cause::SlowRate };
    assert_eq!(strict.record(START, 1, slow, None), Some(transition));
    // Where slowness ejects, a slow trial does not readmit.
    let probe = strict.begin_probe(until);
    assert!(matches!(
        strict.record(until + secs(10), 1, slow, Some(probe)),
        Some(Transition::Ejected { cause: Cause::Trial, .. })
    ));
}

#[test]
fn one_caller_cannot_open_it_for_all() {
    let mut breaker = Breaker::new(Params::default());
    for round in 0..200 {
        let now = START + Span::from_millis(100).mul(round);
        assert_eq!(fail(&mut breaker, now, 1, 6), None, "round {round}");
        for well in [2, 3] {
            assert_eq!(breaker.record(now, well, OK, None), None);
        }
    }
    // Two callers are too few to say who is wrong.
    let mut breaker = Breaker::new(Params::default());
    breaker.record(START, 2, OK, None);
    assert!(fail(&mut breaker, START, 1, 5).is_some());
}

#[test]
fn one_callers_run_counts_as_much_as_the_others_run() {
    let mut breaker = Breaker::new(Params::default());
    for well in [2, 3] {
        breaker.record(START, well, OK, None);
    }
    assert_eq!(fail(&mut breaker, START, 1, 50), None, "only one caller sees it fail");
    assert_eq!(fail(&mut breaker, START, 2, 1), None);
    assert_eq!(fail(&mut breaker, START, 3, 1), None, "two of others, so two of the first: four");
    assert!(fail(&mut breaker, START, 2, 1).is_some());
}

#[test]
fn when_all_fail_the_cap_changes_nothing() {
    for caller_share_bp in [2_500, 5_000, 10_000] {
        let mut breaker = Breaker::new(Params { consecutive_failures: 0, caller_share_bp, ..Params::default() });
        let transitions = (0..60).filter_map(|n| breaker.record(START, n % 3, Sample::Failure, None)).count();
        assert_eq!(transitions, 1, "share {caller_share_bp}");
    }
}

#[test]
fn a_good_trial_readmits_with_a_clean_window() {
    let mut breaker = ejected(Params::default());
    let now = START + secs(5);
    let probe = breaker.begin_probe(now);
    assert_eq!(breaker.gate(now), Gate::Closed { until: None });
    assert_eq!(breaker.record(now + secs(1), 1, OK, Some(probe)), Some(Transition::Admitted));
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.state, snapshot.calls, snapshot.consecutive, snapshot.ejections), (State::Admitting, 0, 0, 0));
    assert_eq!(fail(&mut breaker, now + secs(1), 1, 4), None);
}

#[test]
fn failed_trials_eject_for_longer_up_to_the_maximum() {
    let mut breaker = ejected(Params::default());
    let mut lengths = Vec::new();
    for _ in 0..6 {
        let now = breaker.next_wake().unwrap();
        let probe = breaker.begin_probe(now);
        match breaker.record(now, 1, Sample::Failure, Some(probe)) {
            Some(Transition::Ejected { until, cause: Cause::Trial }) => {
                lengths.push(until.since(now).as_millis() / 1_000)
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lengths, [10, 20, 40, 60, 60, 60]);
}

#[test]
fn fifty_calls_at_once_are_one_trial() {
    let mut breaker = ejected(Params::default());
    let now = START + secs(5);
    let trials = (0..50).filter(|_| {
        let trial = breaker.gate(now) == Gate::Probe;
        if trial {
            breaker.begin_probe(now);
        }
        trial
    });
    assert_eq!(trials.count(), 1);
}

#[test]
fn a_hung_trial_is_given_up_and_its_late_result_does_not_count() {
    let mut breaker = ejected(Params::default());
    let hung = breaker.begin_probe(START + secs(5));
    let later = START + secs(35);
    assert_eq!(breaker.gate(later - Span::from_micros(1)), Gate::Closed { until: None });
    assert_eq!(breaker.wake_after(START + secs(5)), Some(later));
    assert_eq!(breaker.gate(later), Gate::Probe);
    assert_eq!(breaker.wake_after(later), None);
    let second = breaker.begin_probe(later);
    assert_eq!(breaker.record(later, 1, Sample::Failure, Some(hung)), None);
    assert_eq!(breaker.record(later, 1, OK, Some(hung)), None);
    assert_eq!(breaker.state(), State::Probing);
    assert_eq!(breaker.record(later, 1, OK, Some(second)), Some(Transition::Admitted));
    assert_eq!(breaker.record(later, 1, Sample::Failure, Some(second)), None, "a trial ends once");
    assert_eq!(breaker.snapshot().calls, 0);
}

#[test]
fn a_trial_that_told_nothing_makes_room_at_once() {
    let now = START + secs(5);
    let silent = [Sample::Neutral, Sample::Cut { waited: Span::from_millis(10) }];
    for sample in silent {
        let mut breaker = ejected(Params::default());
        let probe = breaker.begin_probe(now);
        assert_eq!(breaker.record(now, 1, sample, Some(probe)), None);
        assert_eq!(breaker.gate(now), Gate::Probe);
    }
    let mut breaker = ejected(Params::default());
    let probe = breaker.begin_probe(now);
    breaker.abandon_probe(probe);
    assert_eq!((breaker.gate(now), breaker.wake_after(now)), (Gate::Probe, None));
    let next = breaker.begin_probe(now);
    breaker.abandon_probe(probe);
    assert_eq!(breaker.state(), State::Probing, "abandoned twice, and the second is another's");
    assert_ne!(probe, next);
}

#[test]
fn results_from_before_the_ejection_change_nothing() {
    let mut breaker = ejected(Params::default());
    let until = breaker.next_wake();
    fail(&mut breaker, START + secs(1), 1, 20);
    breaker.record(START + secs(1), 1, OK, None);
    assert_eq!((breaker.next_wake(), breaker.state()), (until, State::Ejected));
    let now = START + secs(5);
    let probe = breaker.begin_probe(now);
    fail(&mut breaker, now, 1, 20);
    breaker.record(now, 1, OK, None);
    assert_eq!(breaker.state(), State::Probing);
    breaker.record(now, 1, OK, Some(probe));
    // Back in service, the calls that hung all the while are cut one by one.
    let cut = Sample::Cut { waited: secs(20) };
    assert!((0..20).all(|_| breaker.record(now + secs(1), 1, cut, None).is_none()));
    let begun = START - secs(1);
    assert!((0..20).all(|_| breaker.record_begun(now + secs(1), begun, 1, Sample::Failure, None).is_none()));
    assert_eq!(breaker.snapshot().calls, 0);
}

#[test]
fn an_outage_of_ours_moves_everything() {
    let mut breaker = ejected(Params::default());
    breaker.shift(secs(7));
    assert_eq!(breaker.gate(START + secs(11)), Gate::Closed { until: Some(START + secs(12)) });
    breaker.begin_probe(START + secs(12));
    breaker.shift(secs(7));
    assert_eq!(breaker.next_wake(), Some(START + secs(49)));

    let mut breaker = Breaker::new(Params { consecutive_failures: 0, ..Params::default() });
    fail(&mut breaker, START, 1, 19);
    breaker.shift(secs(100));
    assert!(fail(&mut breaker, START + secs(101), 1, 1).is_some());
}

#[test]
fn an_operator_may_reset_at_any_time() {
    let mut breaker = ejected(Params::default());
    let probe = breaker.begin_probe(START + secs(5));
    breaker.reset(START + secs(6));
    assert_eq!(breaker.gate(START + secs(6)), Gate::Open);
    assert_eq!(breaker.record(START + secs(7), 1, Sample::Failure, Some(probe)), None);
    assert_eq!(breaker.snapshot().failures, 0);
}

#[test]
fn a_trial_begins_only_where_the_gate_says_so() {
    let mut breaker = Breaker::new(Params::default());
    breaker.begin_probe(START);
    assert_eq!(breaker.gate(START), Gate::Open);
    let mut breaker = ejected(Params::default());
    let early = breaker.begin_probe(START);
    assert_eq!(breaker.record(START, 1, OK, Some(early)), None);
    assert_eq!(breaker.state(), State::Ejected);
}

#[test]
fn memory_is_bounded_and_many_callers_still_open_it() {
    let params = Params { consecutive_failures: 0, failure_rate_bp: 10_000, ..Params::default() };
    let mut breaker = Breaker::new(params);
    breaker.record(START, 0, OK, None);
    for n in 0..20_000u64 {
        let now = START + Span::from_millis(n);
        breaker.record(now, n % 1_000, Sample::Failure, None);
        let (buckets, named) = breaker.window.size();
        assert!(buckets <= 16 && named <= window::NAMED);
    }
    assert_eq!(breaker.state(), State::Admitting, "one success in twenty thousand calls is not all failures");
    breaker.set_params(Params { failure_rate_bp: 5_000, ..params });
    assert!(fail(&mut breaker, START + secs(20), 5, 1).is_some());
}

#[test]
fn a_noisy_caller_keeps_its_name_and_the_window_forgets_the_nameless() {
    let mut breaker = Breaker::new(Params { consecutive_failures: 0, ..Params::default() });
    for other in 0..30 {
        breaker.record(START, other, OK, None);
    }
    // The noisy one comes late, and after it come others who fail once.
    fail(&mut breaker, START, 999, 10);
    for other in 100..109 {
        assert_eq!(fail(&mut breaker, START, other, 1), None);
    }
    assert_eq!(breaker.window.excess(5_000, |counts| counts.failures), 1, "ten against nine");
    assert_eq!(breaker.snapshot().calls, 49);
    breaker.record(START + secs(30), 1, OK, None);
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.calls, snapshot.failures, breaker.callers()), (1, 0, 1));
}

#[test]
fn a_noisy_caller_among_many_is_still_capped() {
    let mut breaker = Breaker::new(Params { consecutive_failures: 0, ..Params::default() });
    for round in 0..300u64 {
        let now = START + Span::from_millis(50 * round);
        for well in 0..40 {
            assert_eq!(breaker.record(now, well, OK, None), None);
        }
        assert_eq!(fail(&mut breaker, now, 999, 60), None, "round {round}");
    }
}

#[test]
fn parameters_are_checked() {
    let good = Params::default();
    assert_eq!(good.validate(), Ok(good));
    let cases = [
        (Params { failure_rate_bp: 10_001, ..good }, InvalidParams::AboveWhole),
        (Params { caller_share_bp: 0, ..good }, InvalidParams::NoCallerShare),
        (Params { window: Span::ZERO, ..good }, InvalidParams::NoWindow),
        (Params { ejection_base: Span::ZERO, ..good }, InvalidParams::NoEjection),
        (Params { ejection_max: secs(4), ..good }, InvalidParams::MaxBelowBase),
        (Params { probe_timeout: Span::ZERO, ..good }, InvalidParams::NoProbeTimeout),
    ];
    for (params, expected) in cases {
        assert_eq!(params.validate(), Err(expected));
    }
}

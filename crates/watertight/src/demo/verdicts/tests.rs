//! Verdicts on runs that were made up: one that holds, and the same with one thing wrong at a time.

use super::*;
use crate::demo::model::{Plain, Records, Schedule};
use crate::demo::report::Late;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn call(agent: Agent, phase: Phase, made: u64, took: u64, outcome: Outcome) -> Call {
    Call { agent, phase, made: ms(made), trip: ms(made), ended: ms(made + took), outcome }
}

fn refused(made: u64, took: u64, reason: &str) -> Call {
    call(Agent::Hotels, Phase::During, made, took, Outcome::Refused(reason.to_owned()))
}

/// Ten seconds of fault: two cuts, refusals, a probe that is cut, a probe that succeeds.
fn good() -> Facts {
    let mut calls = Vec::new();
    for (phase, from) in [(Phase::Before, 0), (Phase::During, 10_000)] {
        for n in 0..40 {
            calls.push(call(Agent::Flights, phase, from + n * 250, 400 + n % 5, Outcome::Ok));
            calls.push(call(Agent::Fx, phase, from + n * 250, 200 + n % 5, Outcome::Ok));
        }
    }
    calls.push(call(Agent::Hotels, Phase::During, 10_000, 5_701, Outcome::Cut));
    calls.push(refused(11_000, 503, "bulkhead_full"));
    calls.push(refused(15_750, 250, "breaker_open")); // It had waited for a slot.
    calls.push(refused(16_000, 1, "breaker_open"));
    calls.push(call(Agent::Hotels, Phase::During, 18_000, 5_705, Outcome::Cut));
    calls.push(refused(18_500, 2, "breaker_open"));
    calls.push(call(Agent::Hotels, Phase::After, 26_000, 1_500, Outcome::Ok));
    calls.push(call(Agent::Hotels, Phase::After, 28_000, 1_500, Outcome::Ok));
    let trip = |answer| Trip { phase: Phase::During, arrived: ms(10_000), answered: ms(15_710), answer };
    let work = |from, to| Work { started: ms(from), ended: Some(ms(to)) };
    let ran = vec![work(10_001, 15_702), work(18_001, 23_706), work(26_001, 27_499), work(28_001, 29_499)];
    let plain = (0..80).map(|n| Plain { made: ms(n * 250), took: ms(1) }).collect();
    Facts {
        mode: Mode::Walls,
        schedule: Schedule { trips: 120, fault_from: 40, fault_to: 80 },
        fault_from: ms(9_940),
        fault_to: ms(19_940),
        slots_full: Some(ms(11_800)),
        pool_full: None,
        records: Records {
            calls,
            plain,
            trips: vec![trip(Answer::Partial), trip(Answer::Full)],
            last_answer: String::new(),
        },
        hotels: HotelsLog { work: ran, canceled: 2, still_running: 0 },
        late: Late::default(),
    }
}

fn failing(facts: &Facts) -> Vec<&'static str> {
    judge(facts).into_iter().filter(|verdict| !verdict.pass).map(|verdict| verdict.id).collect()
}

#[test]
fn a_good_run_passes_every_verdict() {
    let facts = good();
    assert_eq!(failing(&facts), Vec::<&str>::new());
    let said: Vec<_> = judge(&facts).into_iter().map(|verdict| verdict.measured).collect();
    assert_eq!(
        said,
        [
            "p99 404 ms before, 404 ms during the fault; 40 of 40 ok",
            "p99 204 ms before, 204 ms during the fault; 40 of 40 ok",
            "after 1.86 s",
            "2 refused, the longest waited 503 ms",
            "open after 6.06 s; 2 refused, p50 1.0 ms, p99 2.0 ms; bare p50 1.0 ms, p99 1.0 ms",
            "2 cut, between 5.701 s and 5.705 s",
            "2 cut, 2 cancelled, 0 still running at the end",
            "slowest of 2 trips 5.710 s; 0 got nothing",
            "2 probes in 11.5 s, at most 1 at once",
            "after 7.56 s and 1 probe(s); then 1 of 1 calls ok",
        ]
    );
}

#[test]
fn each_wrong_thing_fails_its_own_verdict() {
    let check = |expected: &str, spoil: fn(&mut Facts)| {
        let mut facts = good();
        spoil(&mut facts);
        assert_eq!(failing(&facts), [expected]);
    };
    check("flights_unchanged", |f| {
        f.records.calls.push(call(Agent::Flights, Phase::During, 19_000, 460, Outcome::Ok));
    });
    check("fx_unchanged", |f| {
        f.records.calls.push(call(Agent::Fx, Phase::During, 19_000, 1, Outcome::Refused("bulkhead_full".into())));
    });
    check("slots_full", |f| f.slots_full = Some(ms(12_000)));
    check("refused_by_bulkhead", |f| f.records.calls.push(refused(11_000, 551, "bulkhead_full")));
    check("refused_by_breaker", |f| f.records.calls.push(refused(16_500, 7, "breaker_open")));
    check("cut_at_deadline", |f| f.records.calls[80 * 2].ended += ms(200));
    check("cancelled", |f| f.hotels.canceled = 1);
    check("answered", |f| f.records.trips[0].answer = Answer::Nothing);
    check("one_probe_at_a_time", |f| f.hotels.work.push(Work { started: ms(18_250), ended: Some(ms(18_300)) }));
    check("readmitted", |f| f.hotels.work.push(Work { started: ms(24_000), ended: Some(ms(25_000)) }));
}

#[test]
fn a_neighbour_that_was_slower_before_the_fault_is_no_failure() {
    let mut facts = good();
    facts.records.calls.push(call(Agent::Fx, Phase::Before, 9_000, 282, Outcome::Ok));
    assert_eq!(failing(&facts), Vec::<&str>::new());
}

#[test]
fn a_refusal_is_measured_against_a_bare_exchange_of_the_same_time() {
    let cold = |facts: &mut Facts, from: usize| facts.records.plain[from..].iter_mut().for_each(|one| one.took = ms(5));
    let mut facts = good();
    facts.records.calls.push(refused(18_600, 9, "breaker_open"));
    cold(&mut facts, 76);
    assert_eq!(failing(&facts), ["refused_by_breaker"], "what came later says nothing of it");
    cold(&mut facts, 64);
    assert_eq!(failing(&facts), Vec::<&str>::new());
    facts.records.calls.push(refused(18_700, 11, "breaker_open"));
    assert_eq!(failing(&facts), ["refused_by_breaker"], "really slow");
    facts.records.plain.clear();
    assert!(failing(&facts).contains(&"refused_by_breaker"), "nothing to measure against");
}

#[test]
fn what_was_not_seen_does_not_pass() {
    let mut facts = good();
    facts.records = Records::default();
    facts.slots_full = None;
    assert_eq!(failing(&facts).len(), 10);
}

#[test]
fn the_collapse_counts_trips_from_16_s_on() {
    let trip =
        |arrived, answer| Trip { phase: Phase::During, arrived: ms(arrived), answered: ms(arrived + 5_900), answer };
    let mut facts = Facts { mode: Mode::WithoutWalls, pool_full: Some(ms(25_500)), ..good() };
    facts.records.trips = (0..10).map(|n| trip(26_000 + n * 250, Answer::Nothing)).collect();
    facts.records.trips.push(trip(25_900, Answer::Partial));
    assert_eq!(failing(&facts), Vec::<&str>::new());
    assert_eq!(judge(&facts)[0].measured, "10 of 10 trips got nothing (100 %); pool full after 15.6 s");
    facts.records.trips.extend([trip(27_000, Answer::Partial), trip(27_250, Answer::Full)]);
    assert_eq!(failing(&facts), ["collapse"]);
}

#[test]
fn a_busy_machine_is_not_the_gateway_s_fault_and_a_late_gateway_not_the_machine_s() {
    let mut facts = good();
    facts.records.calls.push(refused(12_000, 900, "bulkhead_full"));
    facts.records.calls.push(refused(18_600, 10, "breaker_open"));
    facts.records.calls.push(call(Agent::Hotels, Phase::During, 19_000, 6_050, Outcome::Unanswered));
    facts.records.trips[0].answered = ms(16_120);
    facts.hotels.canceled = 3;
    assert_eq!(failing(&facts), ["refused_by_bulkhead", "refused_by_breaker", "answered"]);
    facts.late = Late { p99: ms(4), most: ms(350) };
    assert_eq!(failing(&facts), [""; 0], "it woke up as late itself");
    facts.hotels.canceled = 4;
    facts.late.most = ms(340);
    assert_eq!(failing(&facts), ["refused_by_bulkhead", "cancelled"]);
}

//! The breaker against a naive model (every sample kept, everything recounted), in every short sequence of events and
//! in long random ones. After each event, the promises: one trial at a time, always another, no wake-up in the past.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Call { caller: u64, sample: Sample },
    Begin,
    Answer { sample: Sample },
    StaleAnswer { sample: Sample },
    Abandon,
    Reset,
    Shift { micros: u64 },
    Pass { micros: u64 },
    PassToWake,
}

struct Kept {
    bucket: Time,
    caller: u64,
    bad: bool,
    slow: bool,
}

struct Model {
    params: Params,
    phase: Phase,
    ejections: u32,
    bucket: Option<Time>,
    kept: Vec<Kept>,
    run: Vec<u64>,
    admitted: Time,
}

impl Model {
    fn gate(&self, now: Time) -> Gate {
        match self.phase {
            Phase::Admitting => Gate::Open,
            Phase::Ejected { until } if until > now => Gate::Closed { until: Some(until) },
            Phase::Probing { since, .. } if since + self.params.probe_timeout > now => Gate::Closed { until: None },
            Phase::Ejected { .. } | Phase::Probing { .. } => Gate::Probe,
        }
    }

    fn counts(&self, sample: Sample) -> Option<(bool, bool)> {
        match sample {
            Sample::Success { took } => Some((false, took >= self.params.slow_call)),
            Sample::Failure => Some((true, false)),
            Sample::Cut { waited } => (waited >= self.params.min_wait).then_some((true, false)),
            Sample::Neutral => None,
        }
    }

    fn call(&mut self, now: Time, caller: u64, sample: Sample) -> Option<Transition> {
        let (bad, slow) = self.counts(sample)?;
        let duration = match sample {
            Sample::Success { took: span } | Sample::Cut { waited: span } => span,
            Sample::Failure | Sample::Neutral => Span::ZERO,
        };
        if self.phase != Phase::Admitting || now - duration < self.admitted {
            return None;
        }
        self.kept.retain(|kept| kept.bucket + self.params.window > now);
        let width = Span::from_micros(self.params.window.as_micros().div_ceil(16));
        // A bucket outlives its samples in the real one only where it has none, and then it is as good as gone.
        let bucket = match self.bucket {
            Some(start) if now < start + width && start + self.params.window > now => start,
            Some(_) | None => now,
        };
        self.bucket = Some(bucket);
        self.kept.push(Kept { bucket, caller, bad, slow });
        if bad {
            self.run.push(caller);
        } else {
            self.run.clear();
        }
        let cause = self.cause(bad, slow)?;
        Some(self.eject(now, cause))
    }

    fn cause(&self, bad: bool, slow: bool) -> Option<Cause> {
        let callers: BTreeSet<u64> = self.kept.iter().map(|kept| kept.caller).collect();
        let capped = callers.len() >= 3 && self.params.caller_share_bp < 10_000;
        let share = u64::from(self.params.caller_share_bp);
        let excess = |bad: &[u64]| -> u64 {
            let mine = |caller: u64| bad.iter().filter(|other| **other == caller).count() as u64;
            let allowed = |caller: u64| (bad.len() as u64 - mine(caller)) * share / (10_000 - share);
            let names: BTreeSet<u64> = bad.iter().copied().collect();
            if capped { names.iter().map(|name| mine(*name).saturating_sub(allowed(*name))).sum() } else { 0 }
        };
        let limit = u64::from(self.params.consecutive_failures);
        if bad && limit > 0 && self.run.len() as u64 - excess(&self.run) >= limit {
            return Some(Cause::Consecutive);
        }
        let too_many = |of: Vec<u64>, rate: u32| {
            let excess = excess(&of);
            let (of, calls) = (of.len() as u64 - excess, self.kept.len() as u64 - excess);
            let enough = |calls: u64| calls >= u64::from(self.params.min_calls);
            rate > 0 && of > 0 && enough(calls) && of * 10_000 >= calls * u64::from(rate)
        };
        let callers_of = |pick: fn(&Kept) -> bool| self.kept.iter().filter(|k| pick(k)).map(|k| k.caller).collect();
        if bad && too_many(callers_of(|kept| kept.bad), self.params.failure_rate_bp) {
            return Some(Cause::FailureRate);
        }
        (slow && too_many(callers_of(|kept| kept.slow), self.params.slow_rate_bp)).then_some(Cause::SlowRate)
    }

    fn answer(&mut self, now: Time, probe: ProbeId, sample: Sample) -> Option<Transition> {
        let since = match self.phase {
            Phase::Probing { probe: running, since } if running == probe => since,
            Phase::Admitting | Phase::Ejected { .. } | Phase::Probing { .. } => return None,
        };
        match self.counts(sample) {
            None => {
                self.phase = Phase::Ejected { until: since };
                None
            }
            Some((bad, slow)) if bad || (slow && self.params.slow_rate_bp > 0) => Some(self.eject(now, Cause::Trial)),
            Some(_) => {
                self.admit(now);
                Some(Transition::Admitted)
            }
        }
    }

    fn eject(&mut self, now: Time, cause: Cause) -> Transition {
        let factor = 1 << self.ejections.min(20);
        let until = now + self.params.ejection_base.mul(factor).min(self.params.ejection_max);
        self.ejections += 1;
        self.phase = Phase::Ejected { until };
        Transition::Ejected { until, cause }
    }

    fn admit(&mut self, now: Time) {
        (self.phase, self.ejections, self.admitted, self.bucket) = (Phase::Admitting, 0, now, None);
        self.kept.clear();
        self.run.clear();
    }

    fn shift(&mut self, by: Span) {
        self.kept.iter_mut().for_each(|kept| kept.bucket = kept.bucket + by);
        self.bucket = self.bucket.map(|start| start + by);
        match &mut self.phase {
            Phase::Admitting => {}
            Phase::Ejected { until: at } | Phase::Probing { since: at, .. } => *at = *at + by,
        }
    }
}

fn check(params: Params, ops: &[Op]) {
    let (mut real, mut now) = (Breaker::new(params), START);
    let mut model = Model {
        params,
        phase: Phase::Admitting,
        ejections: 0,
        bucket: None,
        kept: Vec::new(),
        run: Vec::new(),
        admitted: Time::ZERO,
    };
    let (mut running, mut stale) = (None, None);
    for op in ops {
        let context = || format!("{op:?} of {ops:?} with {params:?}");
        match *op {
            Op::Call { caller, sample } => {
                assert_eq!(real.record(now, caller, sample, None), model.call(now, caller, sample), "{}", context());
            }
            Op::Begin => {
                let trial = model.gate(now) == Gate::Probe;
                let probe = real.begin_probe(now);
                if trial {
                    model.phase = Phase::Probing { probe, since: now };
                    stale = running.replace(probe).or(stale);
                } else {
                    stale = Some(probe);
                }
            }
            Op::Answer { sample } => {
                if let Some(probe) = running.take() {
                    assert_eq!(
                        real.record(now, 1, sample, Some(probe)),
                        model.answer(now, probe, sample),
                        "{}",
                        context()
                    );
                    stale = Some(probe);
                }
            }
            Op::StaleAnswer { sample } => {
                if let Some(probe) = stale {
                    let before = (real.snapshot(), real.gate(now));
                    assert_eq!(real.record(now, 1, sample, Some(probe)), None, "{}", context());
                    real.abandon_probe(probe);
                    assert_eq!((real.snapshot(), real.gate(now)), before, "{}", context());
                }
            }
            Op::Abandon => {
                if let Some(probe) = running.take() {
                    real.abandon_probe(probe);
                    model.answer(now, probe, Sample::Neutral);
                    stale = Some(probe);
                }
            }
            Op::Reset => {
                real.reset(now);
                model.admit(now);
                stale = running.take().or(stale);
            }
            Op::Shift { micros } => {
                let by = Span::from_micros(micros);
                real.shift(by);
                model.shift(by);
                now = now + by;
            }
            Op::Pass { micros } => now = now + Span::from_micros(micros),
            Op::PassToWake => now = real.wake_after(now).unwrap_or(now),
        }
        assert_eq!(real.gate(now), model.gate(now), "{}", context());
        assert_eq!((real.phase, real.ejections), (model.phase, model.ejections), "{}", context());
        assert_eq!(real.snapshot().calls, model.kept.len() as u64, "{}", context());
        assert_eq!(real.snapshot().consecutive, model.run.len() as u64, "{}", context());
        check_promises(&real, now);
    }
}

/// Wherever the breaker is: it is open, a trial may begin, or a wake-up ahead leads to a trial; and while a trial runs,
/// no other begins before it is given up.
fn check_promises(real: &Breaker, now: Time) {
    let wake = real.wake_after(now);
    assert!(wake.is_none_or(|wake| wake > now));
    match real.gate(now) {
        Gate::Open => assert_eq!(wake, None),
        Gate::Probe => {
            let mut tried = real.clone();
            tried.begin_probe(now);
            assert_eq!(tried.gate(now), Gate::Closed { until: None });
        }
        Gate::Closed { until } => {
            let wake = wake.expect("what is closed opens again");
            assert!(until.is_none_or(|until| until == wake));
            assert!(matches!(real.gate(wake - Span::from_micros(1)), Gate::Closed { .. }));
            assert_eq!(real.gate(wake), Gate::Probe, "always another trial");
        }
    }
}

fn small() -> Params {
    Params {
        consecutive_failures: 2,
        failure_rate_bp: 5_000,
        slow_rate_bp: 5_000,
        slow_call: Span::from_micros(4),
        window: Span::from_micros(20),
        min_calls: 3,
        min_wait: Span::from_micros(2),
        caller_share_bp: 5_000,
        ejection_base: Span::from_micros(5),
        ejection_max: Span::from_micros(12),
        probe_timeout: Span::from_micros(7),
    }
}

#[test]
fn every_short_sequence() {
    let good = Sample::Success { took: Span::ZERO };
    let ops = [
        Op::Call { caller: 1, sample: Sample::Failure },
        Op::Call { caller: 1, sample: good },
        Op::Begin,
        Op::Answer { sample: good },
        Op::Answer { sample: Sample::Failure },
        Op::StaleAnswer { sample: good },
        Op::Abandon,
        Op::PassToWake,
    ];
    let quick = Params { consecutive_failures: 1, ..small() };
    for code in 0..8usize.pow(6) {
        let sequence: [Op; 6] = std::array::from_fn(|place| ops[code / 8usize.pow(place as u32) % 8]);
        check(quick, &sequence);
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    prop_oneof![
        4 => Just(Sample::Failure),
        4 => (0..6u64).prop_map(|took| Sample::Success { took: Span::from_micros(took) }),
        2 => (0..4u64).prop_map(|waited| Sample::Cut { waited: Span::from_micros(waited) }),
        1 => Just(Sample::Neutral),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        24 => (0..5u64, sample()).prop_map(|(caller, sample)| Op::Call { caller, sample }),
        4 => Just(Op::Begin),
        4 => sample().prop_map(|sample| Op::Answer { sample }),
        1 => sample().prop_map(|sample| Op::StaleAnswer { sample }),
        1 => Just(Op::Abandon),
        1 => Just(Op::Reset),
        1 => (0..30u64).prop_map(|micros| Op::Shift { micros }),
        6 => (0..8u64).prop_map(|micros| Op::Pass { micros }),
        3 => Just(Op::PassToWake),
    ]
}

fn params() -> impl Strategy<Value = Params> {
    let share = prop_oneof![Just(2_500u32), Just(5_000), Just(7_500), Just(10_000)];
    (0..6u32, 0..10_001u32, 0..10_001u32, 1..60u64, 0..8u32, share).prop_map(
        |(consecutive_failures, failure_rate_bp, slow_rate_bp, window, min_calls, caller_share_bp)| Params {
            consecutive_failures,
            failure_rate_bp,
            slow_rate_bp,
            window: Span::from_micros(window),
            min_calls,
            caller_share_bp,
            ..small()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn long_random_sequences(params in params(), ops in proptest::collection::vec(op(), 0..120)) {
        check(params, &ops);
    }
}

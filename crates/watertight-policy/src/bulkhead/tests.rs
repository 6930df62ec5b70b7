//! The bulkhead against a naive model: every sequence of a few operations, and long random ones.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Admit { deadline: Option<u64> },
    TryAcquire,
    Release,
    Grant,
    Expire,
    Abandon { nth: usize },
    Resize(Params),
    Pass { micros: u64 },
}

/// The same rules, written to be obvious: one list in order of arrival.
struct Model {
    params: Params,
    in_flight: u32,
    tickets: u64,
    line: Vec<(Ticket, Time)>,
}

impl Model {
    fn live(&self, now: Time) -> Vec<(Ticket, Time)> {
        self.line.iter().copied().filter(|(_, until)| *until > now).collect()
    }

    fn admit(&mut self, now: Time, deadline: Option<Time>) -> Admission {
        let live = self.live(now);
        if live.is_empty() && self.in_flight < self.params.max_in_flight {
            self.in_flight += 1;
            return Admission::Granted;
        }
        let until = (now + self.params.max_wait).min(deadline.unwrap_or(Time::FAR));
        if live.len() >= self.params.max_waiting as usize {
            return Admission::Refused { again: live.iter().map(|(_, until)| *until).min() };
        }
        if until <= now {
            return Admission::Refused { again: None };
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.line.push((ticket, until));
        Admission::Waiting { ticket, until }
    }

    fn grant(&mut self, now: Time) -> Option<Ticket> {
        let (ticket, _) = *self.live(now).first()?;
        if self.in_flight >= self.params.max_in_flight {
            return None;
        }
        self.in_flight += 1;
        self.line.retain(|(other, _)| *other != ticket);
        Some(ticket)
    }

    fn expire(&mut self, now: Time) -> Vec<Ticket> {
        let (gone, left) = self.line.iter().partition(|(_, until)| *until <= now);
        self.line = left;
        let gone: Vec<(Ticket, Time)> = gone;
        gone.into_iter().map(|(ticket, _)| ticket).collect()
    }

    fn abandon(&mut self, ticket: Ticket) -> bool {
        let before = self.line.len();
        self.line.retain(|(other, _)| *other != ticket);
        self.line.len() < before
    }
}

/// Runs the operations on both and compares every answer, and after every operation the promises.
fn check(params: Params, ops: &[Op]) {
    let (mut real, mut now) = (Bulkhead::new(params), Time::from_millis(1));
    let mut model = Model { params, in_flight: 0, tickets: 0, line: Vec::new() };
    let mut lowered = false;
    for op in ops {
        let taken = real.in_flight();
        match *op {
            Op::Admit { deadline } => {
                let deadline = deadline.map(|micros| now + Span::from_micros(micros));
                assert_eq!(real.admit(now, deadline), model.admit(now, deadline), "{op:?} of {ops:?}");
            }
            Op::TryAcquire => {
                let free = model.in_flight < model.params.max_in_flight;
                model.in_flight += u32::from(free);
                assert_eq!(real.try_acquire(), free);
            }
            Op::Release => {
                real.release();
                model.in_flight = model.in_flight.saturating_sub(1);
            }
            Op::Grant => assert_eq!(real.grant(now), model.grant(now), "{op:?} of {ops:?}"),
            Op::Expire => assert_eq!(real.expire(now), model.expire(now), "{op:?} of {ops:?}"),
            Op::Abandon { nth } => {
                let ticket = model.line.get(nth).map_or(Ticket(u64::MAX), |(ticket, _)| *ticket);
                assert_eq!(real.abandon(ticket), model.abandon(ticket));
                assert!(!real.abandon(ticket), "twice");
            }
            Op::Resize(params) => {
                real.set_params(params);
                model.params = params;
                lowered = true;
            }
            Op::Pass { micros } => now = now + Span::from_micros(micros),
        }
        assert_eq!(real.in_flight(), model.in_flight);
        assert!(real.in_flight() <= taken || real.in_flight() <= real.params().max_in_flight, "over its limit");
        assert!(lowered || real.waiting() <= real.params().max_waiting, "over its limit");
        check_drained(&real, now);
    }
}

/// After a drain nothing that could go waits, and the next wake-up lies ahead.
fn check_drained(real: &Bulkhead, now: Time) {
    let mut drained = real.clone();
    drained.expire(now);
    let mut last = None;
    while let Some(ticket) = drained.grant(now) {
        assert!(last < Some(ticket), "first come, first served");
        last = Some(ticket);
    }
    assert!(drained.next_wake().is_none_or(|wake| wake > now), "a wake-up in the past");
    assert!(drained.waiting() == 0 || drained.in_flight() >= drained.params().max_in_flight, "a free slot, and a line");
}

#[test]
fn every_short_sequence() {
    const OPS: [Op; 8] = [
        Op::Admit { deadline: None },
        Op::Admit { deadline: Some(1) },
        Op::TryAcquire,
        Op::Release,
        Op::Grant,
        Op::Expire,
        Op::Abandon { nth: 0 },
        Op::Pass { micros: 1 },
    ];
    let sizes = [(0, 1, 2), (1, 0, 2), (1, 1, 0), (1, 1, 2), (1, 2, 2), (2, 1, 1)];
    for (max_in_flight, max_waiting, wait) in sizes {
        let params = Params { max_in_flight, max_waiting, max_wait: Span::from_micros(wait) };
        for code in 0..8usize.pow(5) {
            let ops: [Op; 5] = std::array::from_fn(|place| OPS[code / 8usize.pow(place as u32) % 8]);
            check(params, &ops);
        }
    }
}

fn params() -> impl Strategy<Value = Params> {
    // A wait without end has no time at which a place is sure to come free, and the model would say FAR.
    (0..4u32, 0..4u32, 0..20u64).prop_map(|(max_in_flight, max_waiting, wait)| Params {
        max_in_flight,
        max_waiting,
        max_wait: Span::from_micros(wait),
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => proptest::option::of(0..20u64).prop_map(|deadline| Op::Admit { deadline }),
        1 => Just(Op::TryAcquire),
        3 => Just(Op::Release),
        3 => Just(Op::Grant),
        2 => Just(Op::Expire),
        1 => (0..4usize).prop_map(|nth| Op::Abandon { nth }),
        1 => params().prop_map(Op::Resize),
        3 => (0..10u64).prop_map(|micros| Op::Pass { micros }),
    ]
}

proptest! {
    #[test]
    fn long_random_sequences(params in params(), ops in proptest::collection::vec(op(), 0..80)) {
        check(params, &ops);
    }
}

#[test]
fn the_slow_hotels_agent_fills_its_own_slots_only() {
    let mut hotels = Bulkhead::new(Params::default());
    let mut now = Time::ZERO;
    let mut granted = 0;
    let mut line = Vec::new();
    // Four calls per second, none of which comes back: two seconds to fill, then half a second of waiting each.
    for _ in 0..40 {
        line.extend(hotels.expire(now));
        match hotels.admit(now, Some(now + Span::from_secs(6))) {
            Admission::Granted => granted += 1,
            Admission::Waiting { until, .. } => assert_eq!(until, now + Span::from_millis(500)),
            Admission::Refused { .. } => panic!("two calls wait at a time, and sixteen may"),
        }
        assert!(hotels.waiting() <= 2);
        now = now + Span::from_millis(250);
    }
    assert_eq!((granted, hotels.in_flight()), (8, 8));
    assert!(line.len() >= 30, "{} calls were turned away after half a second", line.len());
}

#[test]
fn full_on_both_sides_refuses_at_once_and_says_when_a_place_is_free() {
    let params = Params::try_new(1, 1, Span::from_millis(500)).unwrap();
    let mut bulkhead = Bulkhead::new(params);
    let now = Time::from_millis(10);
    assert_eq!(bulkhead.admit(now, None), Admission::Granted);
    let until = now + Span::from_millis(500);
    assert_eq!(bulkhead.admit(now, None), Admission::Waiting { ticket: Ticket(0), until });
    assert_eq!(bulkhead.admit(now, None), Admission::Refused { again: Some(until) });
    assert_eq!(bulkhead.next_wake(), Some(until));
    // A wait that has ended holds no place, even before it is reported.
    assert!(matches!(bulkhead.admit(until, None), Admission::Waiting { ticket: Ticket(1), .. }));
    assert_eq!(bulkhead.next_wake(), Some(until), "not reported yet");
    assert_eq!(bulkhead.expire(until), [Ticket(0)]);
    assert_eq!(bulkhead.next_wake(), Some(until + Span::from_millis(500)));
    assert!(!bulkhead.abandon(Ticket(0)));
}

#[test]
fn nobody_overtakes_the_line() {
    let mut bulkhead = Bulkhead::new(Params::try_new(1, 2, Span::from_secs(1)).unwrap());
    assert_eq!(bulkhead.admit(Time::ZERO, None), Admission::Granted);
    assert!(matches!(bulkhead.admit(Time::ZERO, None), Admission::Waiting { ticket: Ticket(0), .. }));
    bulkhead.release();
    assert!(matches!(bulkhead.admit(Time::ZERO, None), Admission::Waiting { ticket: Ticket(1), .. }));
    assert_eq!(bulkhead.grant(Time::ZERO), Some(Ticket(0)));
    assert_eq!(bulkhead.grant(Time::ZERO), None);
}

#[test]
fn a_wait_without_end_has_no_wake_up() {
    let mut bulkhead = Bulkhead::new(Params { max_in_flight: 1, max_waiting: 1, max_wait: Span::MAX });
    bulkhead.admit(Time::ZERO, None);
    assert_eq!(bulkhead.admit(Time::ZERO, None), Admission::Waiting { ticket: Ticket(0), until: Time::FAR });
    assert_eq!(bulkhead.next_wake(), None);
    assert_eq!(bulkhead.admit(Time::ZERO, None), Admission::Refused { again: None });
}

#[test]
fn a_smaller_bulkhead_lets_run_what_runs() {
    let mut bulkhead = Bulkhead::new(Params::try_new(3, 0, Span::ZERO).unwrap());
    (0..3).for_each(|_| assert!(bulkhead.try_acquire()));
    bulkhead.set_params(Params::try_new(1, 0, Span::ZERO).unwrap());
    assert_eq!(bulkhead.in_flight(), 3);
    bulkhead.release();
    bulkhead.release();
    assert!(!bulkhead.try_acquire());
    bulkhead.release();
    assert!(bulkhead.try_acquire());
    assert_eq!(Params::try_new(0, 1, Span::ZERO), Err(InvalidParams::NoSlots));
}

//! Budgets shrink, and trees end.

use proptest::prelude::*;

use super::*;

const NOW: Time = Time::from_millis(1_000);

fn params() -> impl Strategy<Value = Params> {
    (0..10_000_000u64, 0..10_000_000u64, 0..6u32, 0..6u32, 0..6u32, 1..400_000u64).prop_map(
        |(remaining, max_remaining, depth, fanout, child_fanout, reserve)| Params {
            remaining: Span::from_micros(remaining),
            max_remaining: Span::from_micros(max_remaining),
            depth,
            fanout,
            child_fanout,
            reserve: Span::from_micros(reserve),
        },
    )
}

fn seconds() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        2 => Just(None),
        6 => (-1.0..20.0f64).prop_map(Some),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(1e300)].prop_map(Some),
    ]
}

/// Starts every child that a budget allows, and theirs, at once; gives how many there were.
fn grow(budget: &mut Budget, params: &Params) -> u64 {
    let mut started = 0;
    while let Ok(mut child) = budget.child(NOW, params) {
        started += 1 + grow(&mut child, params);
    }
    started
}

proptest! {
    #[test]
    fn nothing_arrives_above_its_maximum(
        params in params(), remaining_s in seconds(), depth: Option<u32>, fanout: Option<u32>,
    ) {
        let budget = params.arrive(NOW, remaining_s, depth, fanout);
        prop_assert!(budget.remaining(NOW) <= params.max_remaining);
        prop_assert!(budget.depth <= params.depth && budget.fanout <= params.fanout);
        prop_assert!(depth.is_none_or(|depth| budget.depth <= depth));
        prop_assert!(fanout.is_none_or(|fanout| budget.fanout <= fanout));
        if remaining_s.is_some_and(|secs| secs.is_nan() || secs <= 0.0) {
            prop_assert_eq!(budget.remaining(NOW), Span::ZERO);
        }
    }

    #[test]
    fn every_child_has_strictly_less(
        params in params(), remaining_s in seconds(), depth in 0..6u32, fanout in 0..6u32, later in 0..5_000_000u64,
    ) {
        let mut parent = params.arrive(NOW, remaining_s, Some(depth), Some(fanout));
        let now = NOW + Span::from_micros(later);
        let before = parent;
        match parent.child(now, &params) {
            Ok(child) => {
                prop_assert!(child.deadline < before.deadline && child.deadline > now);
                prop_assert!(child.depth < before.depth);
                prop_assert!(child.fanout <= before.fanout && child.fanout <= params.child_fanout);
                prop_assert_eq!(parent.fanout, before.fanout - 1);
                prop_assert_eq!((parent.deadline, parent.depth), (before.deadline, before.depth));
            }
            Err(exhausted) => {
                prop_assert_eq!(parent, before, "a refusal costs nothing");
                let expected = if before.depth == 0 {
                    Exhausted::Depth
                } else if before.fanout == 0 {
                    Exhausted::Fanout
                } else {
                    Exhausted::Time
                };
                prop_assert_eq!(exhausted, expected);
            }
        }
    }

    #[test]
    fn every_tree_ends(params in params(), depth in 0..6u32, fanout in 0..6u32) {
        let mut root = params.arrive(NOW, Some(1e9), Some(depth), Some(fanout));
        let (levels, width) = (root.depth, u64::from(root.fanout));
        let bound: u64 = (1..=levels).map(|level| width.pow(level)).sum();
        prop_assert!(grow(&mut root, &params) <= bound);
        prop_assert!(root.fanout == 0 || root.depth == 0 || root.remaining(NOW) <= params.reserve);
    }
}

/// A fan-out of ten over three levels is a thousand tasks and a hundred and ten above them, if nobody counts.
#[test]
fn ten_over_three_levels() {
    let wide = Params { depth: 3, fanout: 10, child_fanout: 10, ..Params::default() };
    let mut root = wide.arrive(NOW, None, None, None);
    // Ten children, which get 10, 9, … 1: 55 grandchildren, and 220 below them.
    assert_eq!(grow(&mut root, &wide), 10 + 55 + 220);

    let usual = Params { depth: 3, fanout: 10, ..Params::default() };
    let mut root = usual.arrive(NOW, None, None, None);
    // Seven children get 4 and the last three 3, 2, 1; a child with n has n + n(n+1)/2 below it.
    assert_eq!(grow(&mut root, &usual), 10 + 7 * (4 + 10) + (3 + 6) + (2 + 3) + (1 + 1));
}

/// The trip: six seconds, two hops, fan-out four.
#[test]
fn the_trip() {
    let params = Params::default();
    let mut trip = params.arrive(NOW, Some(6.0), Some(2), Some(4));
    let hotels = trip.child(NOW, &params).unwrap();
    assert_eq!(hotels, Budget { deadline: NOW + Span::from_millis(5_700), depth: 1, fanout: 4 });
    assert_eq!(trip.fanout, 3);
    assert_eq!(hotels.to_wire(NOW + Span::from_millis(200)), Wire { remaining_s: 5.5, depth: 1, fanout: 4 });
    assert_eq!(trip.child(NOW + Span::from_millis(5_700), &params), Err(Exhausted::Time));
    assert_eq!(trip.fanout, 3);
    trip.refund();
    assert_eq!(trip.fanout, 4);
}

#[test]
fn the_wire_is_rounded_to_the_millisecond() {
    let budget = Budget { deadline: Time::from_micros(1_234_567), depth: 1, fanout: 2 };
    assert_eq!(budget.to_wire(Time::ZERO).remaining_s, 1.235);
    assert_eq!(budget.to_wire(Time::FAR).remaining_s, 0.0);
}

#[test]
fn parameters_are_checked() {
    let params = Params::default();
    assert_eq!(params.validate(), Ok(params));
    let bad = Params { remaining: Span::MAX, ..params };
    assert_eq!(bad.validate(), Err(InvalidParams::DefaultAboveMax));
    let bad = Params { reserve: params.remaining, ..params };
    assert_eq!(bad.validate(), Err(InvalidParams::ReserveSwallowsDefault));
}

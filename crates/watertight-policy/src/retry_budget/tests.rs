//! Retries never outgrow their share.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Deposit,
    Withdraw,
    Pass { millis: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Deposit),
        6 => Just(Op::Withdraw),
        2 => (0..200u64).prop_map(|millis| Op::Pass { millis }),
        1 => (0..3_000u64).prop_map(|millis| Op::Pass { millis }),
    ]
}

proptest! {
    /// Retries are the ratio of the traffic, and one floor for each window that went by. A window may be short by the
    /// width of a bucket, so there is room for one more in ten.
    #[test]
    fn retries_stay_within_their_share(
        ratio_bp in 0..10_001u32, floor in 0..3u32, ops in proptest::collection::vec(op(), 0..400),
    ) {
        let window = Span::from_secs(1);
        let mut budget = RetryBudget::new(Params::try_new(ratio_bp, floor, window).unwrap());
        let (mut now, mut first, mut retries) = (Time::ZERO, 0u64, 0u64);
        for op in ops {
            match op {
                Op::Deposit => {
                    budget.deposit(now);
                    first += 1;
                }
                Op::Withdraw => {
                    let granted = budget.try_withdraw(now);
                    retries += u64::from(granted);
                    prop_assert!(granted || budget.left() == 0, "refused what is covered");
                }
                Op::Pass { millis } => now = now + Span::from_millis(millis),
            }
            prop_assert!(budget.buckets.len() <= BUCKETS as usize);
            let windows = now.as_millis() / 900 + 1;
            prop_assert!(retries * 10_000 <= first * u64::from(ratio_bp) + windows * u64::from(floor) * 10_000);
        }
    }
}

/// An agent answers 503 for half a minute at 50 calls per second, and every call would like to be repeated for ever.
#[test]
fn an_outage_is_not_amplified() {
    let mut budget = RetryBudget::new(Params::default());
    let (mut now, mut sent) = (Time::ZERO, 0);
    for _ in 0..1_500 {
        budget.deposit(now);
        sent += 1;
        while budget.try_withdraw(now) {
            sent += 1;
        }
        now = now + Span::from_millis(20);
    }
    assert!((1_640..=1_655).contains(&sent), "{sent} sent for 1500 offered");
}

#[test]
fn little_traffic_has_one_retry_per_window() {
    let mut budget = RetryBudget::new(Params::default());
    let at = Time::from_millis;
    budget.deposit(at(0));
    assert!(budget.try_withdraw(at(1)));
    assert!(!budget.try_withdraw(at(2)));
    assert!(!budget.try_withdraw(at(9_999)));
    assert!(budget.try_withdraw(at(10_000)));
}

#[test]
fn extremes() {
    let mut none = RetryBudget::new(Params::try_new(0, 0, Span::MAX).unwrap());
    none.deposit(Time::ZERO);
    assert!(!none.try_withdraw(Time::FAR));
    let mut all = RetryBudget::new(Params { floor: u32::MAX, ..Params::default() });
    assert!((0..1_000).all(|_| all.try_withdraw(Time::ZERO)));
    assert_eq!(Params::try_new(10_001, 0, Span::MAX), Err(InvalidParams::RatioAboveOne));
    assert_eq!(Params::try_new(1_000, 0, Span::ZERO), Err(InvalidParams::NoWindow));
}

//! Sizing by Little's law: calls in flight equal arrival rate times latency.
//!
//! Assumes a steady rate and the latency of a *healthy* agent: the slots that a degraded one would need are exactly
//! what a bulkhead exists to refuse. Leaves out variance; the quarter of headroom in [`advice`] stands for it.

use crate::load::Seen;
use crate::time::Span;

/// Fewer answers than this say nothing about an agent.
const ENOUGH: u64 = 10;

/// Slots that `rate_per_s` calls per second keep busy at `latency`, rounded up. NaN and negative rates are no calls.
pub fn slots(rate_per_s: f64, latency: Span) -> u32 {
    rounded_up(busy(rate_per_s, latency))
}

/// Slots to provide: what the calls keep busy and a quarter more, rounded up, at least one.
pub fn advice(rate_per_s: f64, normal_latency: Span) -> u32 {
    rounded_up(busy(rate_per_s, normal_latency).saturating_mul(5).div_ceil(4)).max(1)
}

/// In millionths of a millionth of a slot. Rates are taken to the millionth of a call, so that 0.1/s × 30 s is 3 and
/// not 3.0000000000000004.
fn busy(rate_per_s: f64, latency: Span) -> u128 {
    let micro_rate = (rate_per_s * 1e6).round() as u64;
    u128::from(micro_rate) * u128::from(latency.as_micros())
}

fn rounded_up(busy: u128) -> u32 {
    u32::try_from(busy.div_ceil(1_000_000_000_000)).unwrap_or(u32::MAX)
}

/// Whether a bulkhead provides what a load needs, and what that costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grants {
    /// All of it.
    Granted {
        /// Slots that stay idle: the price of the wall, since no other agent may use them.
        stranded: u32,
    },
    /// Not all of it. The rest is refused on purpose, so that one slow agent cannot take what the others need.
    Refused {
        /// Slots the load would need.
        needed: u32,
        /// How many of them are not there.
        missing: u32,
    },
}

/// Compares what a load needs with what its bulkhead has.
pub const fn grants(needed: u32, max: u32) -> Grants {
    if needed <= max {
        Grants::Granted { stranded: max - needed }
    } else {
        Grants::Refused { needed, missing: needed - max }
    }
}

/// What the last minutes say about an agent's slots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Advice {
    /// Too few turns were answered to say.
    TooFew {
        /// So many.
        answered: u64,
    },
    /// The agent answers fewer than half of its turns as fast as a healthy one: it is not slots that it lacks.
    Unwell,
    /// There are too few slots for what is asked of it.
    Raise(Need),
    /// On average there are enough, but calls were turned away for want of one: they come in bursts.
    Bursts(Need),
    /// There are enough.
    Enough(Need),
}

/// How many slots, and why.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Need {
    /// What [`advice`] says, or as many as were in use at once, if that was more.
    pub slots: u32,
    /// Calls per second that asked for one.
    pub rate_per_s: f64,
    /// The mean of what was answered as fast as a healthy agent does.
    pub latency: Span,
}

impl Advice {
    /// Judges what was seen of an agent with `slots` slots, whose calls are slow from `slow` on.
    pub fn of(seen: &Seen, slots: u32, slow: Span) -> Advice {
        let (answered, latency) = seen.answered.below(slow);
        let all = seen.turns.count();
        if all < ENOUGH {
            return Advice::TooFew { answered };
        }
        if answered * 2 < all {
            return Advice::Unwell;
        }
        if answered < ENOUGH {
            return Advice::TooFew { answered };
        }
        let rate_per_s = seen.rate_per_s();
        let by_load = advice(rate_per_s, latency);
        // More than there are were never in use but after a change of the limit.
        let need = Need { slots: by_load.max(seen.peak.min(slots)), rate_per_s, latency };
        match (grants(need.slots, slots), seen.turned_away) {
            (Grants::Refused { .. }, _) => Advice::Raise(need),
            (Grants::Granted { .. }, 1..) => Advice::Bursts(need),
            (Grants::Granted { .. }, 0) => Advice::Enough(need),
        }
    }

    /// Slots of `slots` that were not needed: nobody else may use them. What was in use at once was needed; beyond that,
    /// without a judgement, nothing is known to be.
    pub fn stranded(&self, seen: &Seen, slots: u32) -> u32 {
        let needed = match self {
            Advice::TooFew { .. } | Advice::Unwell => seen.peak,
            Advice::Raise(need) | Advice::Bursts(need) | Advice::Enough(need) => need.slots.max(seen.peak),
        };
        slots.saturating_sub(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{End, Load};
    use crate::time::Time;

    /// What was seen of an agent: calls per second over a hundred seconds, how long each took, how many were in flight.
    fn seen(per_s: u64, took: Span, end: End, peak: u32, turned_away: u64) -> Seen {
        let start = Time::from_millis(1_767_225_600_000);
        let mut load = Load::new(start);
        let at = |n: u64, of: u64| start + Span::from_micros(100_000_000 * n / of);
        (0..per_s * 100).for_each(|n| load.ended(at(n, per_s * 100), end, took, Span::ZERO));
        (0..turned_away).for_each(|n| load.turned_away(at(n, turned_away)));
        load.in_flight(start, peak);
        load.seen(start + Span::from_secs(100))
    }

    fn needed(advice: Advice) -> u32 {
        match advice {
            Advice::Raise(need) | Advice::Bursts(need) | Advice::Enough(need) => need.slots,
            none @ (Advice::TooFew { .. } | Advice::Unwell) => panic!("{none:?}"),
        }
    }

    #[test]
    fn advice_for_hotels() {
        let (took, slow) = (Span::from_millis(1_500), Span::from_secs(10));
        let well = seen(4, took, End::Answered, 6, 0);
        let advice = Advice::of(&well, 16, slow);
        assert!(matches!(advice, Advice::Enough(_)) && needed(advice) == 8, "{advice:?}");
        assert_eq!(advice.stranded(&well, 16), 8);
        assert!(matches!(Advice::of(&well, 4, slow), Advice::Raise(need) if need.slots == 8));

        let burst = seen(4, took, End::Answered, 12, 5);
        let advice = Advice::of(&burst, 12, slow);
        assert!(matches!(advice, Advice::Bursts(_)) && needed(advice) == 12, "{advice:?}");
        assert_eq!(advice.stranded(&burst, 12), 0);

        // Those that were turned away would have needed slots too.
        let crowded = seen(4, took, End::Answered, 8, 400);
        assert!(
            matches!(Advice::of(&crowded, 8, slow), Advice::Raise(need) if (15..=16).contains(&need.slots)),
            "{crowded:?}"
        );
    }

    #[test]
    fn a_sick_agent_gets_no_slots() {
        let slow = Span::from_secs(10);
        let degraded = seen(4, Span::from_secs(30), End::Answered, 16, 0);
        assert_eq!(Advice::of(&degraded, 16, slow), Advice::Unwell);
        let dead = seen(4, Span::from_millis(2), End::Unanswered, 2, 0);
        assert_eq!(Advice::of(&dead, 16, slow), Advice::Unwell);
        assert_eq!(Advice::Unwell.stranded(&dead, 16), 14);
        // Who set no limit to slowness calls an agent well that takes half a minute.
        assert!(needed(Advice::of(&degraded, 200, Span::MAX)).abs_diff(150) <= 9);
    }

    #[test]
    fn a_few_calls_say_nothing() {
        let mut load = Load::new(Time::ZERO);
        (0..9).for_each(|_| load.ended(Time::ZERO, End::Answered, Span::from_secs(1), Span::ZERO));
        assert_eq!(Advice::of(&load.seen(Time::ZERO), 16, Span::MAX), Advice::TooFew { answered: 9 });
    }

    /// The hotels agent: four calls per second, 1.5 s when healthy, 30 s when not.
    #[test]
    fn the_slow_hotels_agent() {
        let normal = Span::from_millis(1_500);
        assert_eq!(slots(4.0, normal), 6);
        assert_eq!(advice(4.0, normal), 8);
        assert_eq!(grants(6, 8), Grants::Granted { stranded: 2 });
        let degraded = slots(4.0, Span::from_secs(30));
        assert_eq!(degraded, 120);
        assert_eq!(grants(degraded, 8), Grants::Refused { needed: 120, missing: 112 });
    }

    #[test]
    fn odd_rates() {
        assert_eq!(slots(0.1, Span::from_secs(30)), 3);
        assert_eq!(slots(0.01, Span::from_secs(1)), 1);
        assert_eq!(slots(f64::NAN, Span::from_secs(1)), 0);
        assert_eq!(slots(-4.0, Span::from_secs(1)), 0);
        assert_eq!(slots(f64::INFINITY, Span::MAX), u32::MAX);
        assert_eq!(advice(0.0, Span::from_secs(1)), 1);
        assert_eq!(advice(f64::INFINITY, Span::MAX), u32::MAX);
    }
}

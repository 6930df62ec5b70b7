//! Sizing by Little's law: calls in flight equal arrival rate times latency.
//!
//! Assumes a steady rate and the latency of a *healthy* agent: the slots that a degraded one would need are exactly
//! what a bulkhead exists to refuse. Leaves out variance; the quarter of headroom in [`advice`] stands for it.

use crate::time::Span;

/// Slots that `rate_per_s` calls per second keep busy at `latency`, rounded up. NaN and negative rates are no calls.
pub fn slots(rate_per_s: f64, latency: Span) -> u32 {
    // Rates are taken to the millionth of a call, so that 0.1/s × 30 s is 3 and not 3.0000000000000004.
    let micro_rate = (rate_per_s * 1e6).round() as u64;
    let busy = (u128::from(micro_rate) * u128::from(latency.as_micros())).div_ceil(1_000_000_000_000);
    u32::try_from(busy).unwrap_or(u32::MAX)
}

/// Slots to provide: [`slots`] and a quarter more, rounded up, at least one.
pub fn advice(rate_per_s: f64, normal_latency: Span) -> u32 {
    let needed = u64::from(slots(rate_per_s, normal_latency));
    u32::try_from((needed * 5).div_ceil(4)).unwrap_or(u32::MAX).max(1)
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

#[cfg(test)]
mod tests {
    use super::*;

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

//! How long things take: a histogram of fixed size on a logarithmic scale.
//!
//! Eight buckets per power of two, from 128 µs to 19 hours: a quantile is off by at most a sixteenth, whatever the
//! scale, and adding one is two shifts and an increment. Assumes that what lies outside the scale need not be told apart.
//! Leaves out time: [`crate::load`] keeps one for each slice of the last minutes.

use crate::time::Span;

/// What is shorter than `1 << FIRST` microseconds is one bucket.
const FIRST: u32 = 7;
/// And what is as long as `1 << LAST` is one.
const LAST: u32 = 36;
/// Buckets per power of two, as a power of two.
const FINE: u32 = 3;
const BUCKETS: usize = (((LAST - FIRST) << FINE) + 2) as usize;

/// Counts by length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: [u32; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS] }
    }
}

impl Histogram {
    /// One more. Counts saturate.
    pub fn add(&mut self, span: Span) {
        if let Some(count) = self.counts.get_mut(bucket(span)) {
            *count = count.saturating_add(1);
        }
    }

    /// All of the other's too.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// The length that a share of all, in basis points, does not exceed; `None` of nothing. 5000 is the median; zero is
    /// the shortest, 10000 and more the longest.
    pub fn quantile(&self, share_bp: u32) -> Option<Span> {
        let all = self.count();
        let rank = (all * u64::from(share_bp.min(10_000))).div_ceil(10_000).max(1);
        let mut seen = 0;
        self.counts
            .iter()
            .position(|count| {
                seen += u64::from(*count);
                seen >= rank
            })
            .map(middle)
    }

    /// How many are shorter than a limit, and their mean; the bucket that the limit lies in counts as shorter.
    pub fn below(&self, limit: Span) -> (u64, Span) {
        let (mut count, mut micros) = (0, 0);
        for (at, n) in self.counts.iter().enumerate().take(bucket(limit) + 1) {
            count += u64::from(*n);
            micros += u128::from(*n) * u128::from(middle(at).as_micros());
        }
        let mean = micros.checked_div(u128::from(count)).unwrap_or(0);
        (count, Span::from_micros(u64::try_from(mean).unwrap_or(u64::MAX)))
    }
}

fn bucket(span: Span) -> usize {
    let micros = span.as_micros();
    let power = micros.checked_ilog2().unwrap_or(0);
    if power < FIRST {
        return 0;
    }
    if power >= LAST {
        return BUCKETS - 1;
    }
    let fine = (micros >> (power - FINE)) & ((1 << FINE) - 1);
    (((power - FIRST) << FINE) as u64 + fine + 1) as usize
}

/// What stands for all in a bucket: zero for the first, the begin of the last, else the middle.
fn middle(bucket: usize) -> Span {
    let Some(at) = bucket.checked_sub(1) else { return Span::ZERO };
    let (power, fine) = (FIRST + (at >> FINE) as u32, at as u64 & ((1 << FINE) - 1));
    if power >= LAST {
        return Span::from_micros(1 << LAST);
    }
    let width = 1_u64 << (power - FINE);
    Span::from_micros((1 << power) + fine * width + width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_middle_of_a_bucket_lies_in_it_and_is_near_everything_in_it() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(middle(at)), at, "{at}");
        }
        let mut rng = Rng::new(1);
        for _ in 0..10_000 {
            let micros = 128 + (rng.next_u64() >> (29 + rng.next_u64() % 28));
            let said = middle(bucket(Span::from_micros(micros))).as_micros();
            assert!(said.abs_diff(micros) * 16 <= micros, "{micros} told as {said}");
        }
    }

    #[test]
    fn quantiles_of_a_hundred() {
        let mut all = Histogram::default();
        assert_eq!((all.count(), all.quantile(5_000), all.below(Span::MAX).0), (0, None, 0));
        (1..=99).for_each(|n| all.add(Span::from_millis(n)));
        all.add(Span::from_secs(30));
        let near = |share, millis: u64| {
            let said = all.quantile(share).unwrap().as_micros();
            assert!(said.abs_diff(millis * 1_000) * 15 <= millis * 1_000, "{share}: {said}, not {millis} ms");
        };
        near(0, 1);
        near(5_000, 50);
        near(9_900, 99);
        near(10_000, 30_000);
        let (count, mean) = all.below(Span::from_secs(10));
        assert!(count == 99 && mean.as_millis().abs_diff(50) <= 2, "{count} of {mean}");
        let mut twice = all.clone();
        twice.merge(&all);
        assert_eq!((twice.count(), twice.quantile(5_000)), (200, all.quantile(5_000)));
    }

    #[test]
    fn what_is_off_the_scale_is_counted() {
        let mut all = Histogram::default();
        all.add(Span::ZERO);
        all.add(Span::MAX);
        assert_eq!(all.quantile(5_000), Some(Span::ZERO));
        assert_eq!(all.quantile(10_000), Some(Span::from_micros(1 << LAST)));
    }
}

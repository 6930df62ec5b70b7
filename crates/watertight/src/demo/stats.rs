//! The report's statistics: nearest-rank quantiles, so that every figure printed is one that was measured.

use std::time::Duration;

/// Samples in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<Duration>);

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Samples {
        let mut samples: Vec<_> = samples.into_iter().collect();
        samples.sort_unstable();
        Samples(samples)
    }
}

impl Samples {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest sample that at least `percent` of all samples do not exceed; none of none.
    pub(super) fn quantile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied()
    }

    pub(super) fn min(&self) -> Option<Duration> {
        self.0.first().copied()
    }

    pub(super) fn max(&self) -> Option<Duration> {
        self.0.last().copied()
    }
}

/// The most spans that were open at once. A span that ends as another starts does not overlap it.
pub(super) fn most_at_once(spans: &[(Duration, Duration)]) -> usize {
    let open_at = |at: Duration| spans.iter().filter(|(from, to)| *from <= at && at < *to).count();
    spans.iter().map(|(from, _)| open_at(*from)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(samples: impl IntoIterator<Item = u64>) -> Samples {
        samples.into_iter().map(Duration::from_millis).collect()
    }

    fn quantile(samples: &Samples, percent: usize) -> Option<u64> {
        samples.quantile(percent).map(|d| d.as_millis() as u64)
    }

    #[test]
    fn quantiles_of_known_samples() {
        let hundred = ms((1..=100).rev());
        assert_eq!(quantile(&hundred, 50), Some(50));
        assert_eq!(quantile(&hundred, 99), Some(99));
        assert_eq!(quantile(&hundred, 100), Some(100));
        assert_eq!(quantile(&hundred, 0), Some(1));
        let odd = ms([30, 10, 20]);
        assert_eq!((quantile(&odd, 50), quantile(&odd, 99)), (Some(20), Some(30)));
        assert_eq!(quantile(&ms([7]), 50), Some(7));
        assert_eq!(quantile(&ms([]), 50), None);
        assert_eq!(
            (odd.min(), odd.max(), odd.len()),
            (Some(Duration::from_millis(10)), Some(Duration::from_millis(30)), 3)
        );
    }

    #[test]
    fn overlap_is_counted_at_starts() {
        let spans = |list: &[(u64, u64)]| -> Vec<_> {
            list.iter().map(|(a, b)| (Duration::from_millis(*a), Duration::from_millis(*b))).collect()
        };
        assert_eq!(most_at_once(&spans(&[])), 0);
        assert_eq!(most_at_once(&spans(&[(0, 10), (10, 20)])), 1);
        assert_eq!(most_at_once(&spans(&[(0, 10), (9, 20), (5, 6)])), 2);
    }
}

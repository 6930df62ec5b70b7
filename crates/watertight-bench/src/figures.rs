//! Samples and what is made of them: nearest-rank quantiles and medians, so that every figure was measured.

use std::time::Duration;

/// How long calls took.
#[derive(Default)]
pub(crate) struct Waits {
    nanos: Vec<u32>,
    sorted: bool,
}

impl Waits {
    pub(crate) fn add(&mut self, wait: Duration) {
        self.nanos.push(u32::try_from(wait.as_nanos()).unwrap_or(u32::MAX));
        self.sorted = false;
    }

    pub(crate) fn len(&self) -> usize {
        self.nanos.len()
    }

    /// Milliseconds that this share of all calls did not exceed; zero where there were none.
    pub(crate) fn quantile(&mut self, share: f64) -> f64 {
        if !self.sorted {
            self.nanos.sort_unstable();
            self.sorted = true;
        }
        let rank = (self.nanos.len() as f64 * share).ceil().max(1.0) as usize;
        self.nanos.get(rank - 1).map_or(0.0, |&nanos| f64::from(nanos) / 1e6)
    }
}

/// The middle one; of two, the lower. `None` of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_was_measured() {
        let mut waits = Waits::default();
        (1..=100).rev().for_each(|ms| waits.add(Duration::from_millis(ms)));
        assert_eq!((waits.quantile(0.5), waits.quantile(0.99), waits.quantile(1.0)), (50.0, 99.0, 100.0));
        waits.add(Duration::from_secs(60));
        assert!(waits.quantile(1.0) > 4_000.0, "longer than can be held is still long");
        assert_eq!(Waits::default().quantile(0.5), 0.0);
        assert_eq!((median([3.0, 1.0, 2.0]), median([2.0, 1.0]), median([])), (Some(2.0), Some(1.0), None));
    }
}

//! Real time, for tests that must wait for another process.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The one place here that reads the clock.
#[expect(clippy::disallowed_methods, reason = "these tests watch a real process in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Asks again every 20 ms until there is an answer, and fails the test when there is none in time.
#[track_caller]
pub(crate) fn eventually<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(ms(20));
    }
}

/// The value below which the given share of the samples lies.
pub(crate) fn percentile(mut samples: Vec<Duration>, share: f64) -> Duration {
    assert!(!samples.is_empty(), "no samples");
    samples.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a few hundred samples"
    )]
    let at = ((samples.len() - 1) as f64 * share).round() as usize;
    samples[at]
}

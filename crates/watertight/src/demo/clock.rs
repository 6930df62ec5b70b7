//! The demo's clock: the only place where the demo asks what time it is.
//!
//! Everything else works with durations since a `Clock` was made, so that reports and tests are plain arithmetic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::stats::Samples;

/// Measures from the moment it was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the demo measures real processes; this is its one clock read")]
    pub(super) fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Time since the clock was made.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Sleeps until `at` on this clock; returns at once if that is past.
    pub(super) async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until((self.origin + at).into()).await;
    }
}

/// How late this machine is with what is due, told by a thread that only wants to wake up at times. It asks nothing of
/// the gateway and the agents: what it sees is the machine's, and whatever else runs on it.
pub(super) struct Alarm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Duration>>>,
}

/// Between two times that it wants to wake up.
const EVERY: Duration = Duration::from_millis(10);

impl Alarm {
    pub(super) fn set(clock: Clock) -> Alarm {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut late = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let due = clock.now() + EVERY;
                thread::sleep(EVERY);
                late.push(clock.now().saturating_sub(due));
            }
            late
        });
        Alarm { stop, thread: Some(thread) }
    }

    /// How late it was, each time.
    pub(super) fn late(mut self) -> Samples {
        self.stop.store(true, Ordering::Relaxed);
        let late = self.thread.take().and_then(|thread| thread.join().ok());
        late.unwrap_or_default().into_iter().collect()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Milliseconds since 1970, for the timestamps that A2A wants in a task.
#[expect(clippy::disallowed_methods, reason = "a task's status carries a wall-clock timestamp")]
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis().try_into().unwrap_or(u64::MAX))
}

/// RFC 3339 in UTC with milliseconds, as A2A 1.0 asks for.
pub(super) fn rfc3339(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // Days to a civil date, with years that begin on 1 March so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (h, m, s, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn known_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_709_251_199_999), "2024-02-29T23:59:59.999Z");
        assert_eq!(rfc3339(1_735_689_600_001), "2025-01-01T00:00:00.001Z");
    }
}

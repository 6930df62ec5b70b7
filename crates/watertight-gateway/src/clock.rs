//! Cell time and minted ids: the gateway's only reader of the OS clock.
//!
//! A cell's time is anchored to the store's clock when its lease is taken, and advances with the monotonic clock from
//! there: two hosts, or two starts of one, never disagree about what is later by more than the lease says. Ids are
//! random by the OS, never by a seeded generator.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;
use watertight_engine::ids::TaskId;
use watertight_policy::time::{Span, Time};

/// Shows cell time. Clones show the same.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Anchor>);

#[derive(Debug)]
struct Anchor {
    begun: Instant,
    /// The time at `begun`, in microseconds. Moved forward only.
    at: AtomicU64,
    /// The latest time shown.
    shown: AtomicU64,
}

impl Clock {
    /// A clock that shows `at` now.
    pub fn anchored(at: Time) -> Clock {
        // The runtime's instant is the OS's monotonic clock, except under a test's paused time.
        let (at, shown) = (AtomicU64::new(at.as_micros()), AtomicU64::new(at.as_micros()));
        Clock(Arc::new(Anchor { begun: Instant::now(), at, shown }))
    }

    /// The time. Never less than a time shown before.
    pub fn now(&self) -> Time {
        let elapsed = u64::try_from(self.0.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let now = self.0.at.load(Ordering::Relaxed).saturating_add(elapsed);
        Time::from_micros(self.0.shown.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// A lease was taken again: the store's clock counts if it is ahead.
    pub fn advance_to(&self, store: Time) {
        let behind = store.since(self.now());
        self.0.at.fetch_add(behind.as_micros(), Ordering::Relaxed);
    }

    /// When `at` will be, for the runtime's timers.
    pub fn instant(&self, at: Time) -> Instant {
        let ahead = at.since(self.now()).min(Span::from_secs(86_400));
        Instant::now() + std::time::Duration::from_micros(ahead.as_micros())
    }
}

/// A new delegation's id: 48 bits of Unix milliseconds, 80 random bits.
pub fn mint_task(now: Time) -> Result<TaskId, getrandom::Error> {
    let random = u128::from_be_bytes(random()?) >> 48;
    let millis = u128::from(now.as_millis()) & 0xffff_ffff_ffff;
    Ok(TaskId(millis << 80 | random))
}

/// A new contextId, for callers or for agents: 32 hex digits, in order of time like a task's, so that the store appends.
pub fn mint_context(now: Time) -> Result<Arc<str>, getrandom::Error> {
    Ok(mint_task(now)?.to_string().into())
}

/// Bytes that are asked of the OS at once: a call takes some five times a few, and each question is a system call.
const DRAWN: usize = 512;

/// Random bytes of the OS that this thread has not given out yet.
struct Drawn {
    bytes: [u8; DRAWN],
    used: usize,
}

thread_local! {
    static RANDOM: RefCell<Drawn> = const { RefCell::new(Drawn { bytes: [0; DRAWN], used: DRAWN }) };
}

/// Random bytes from the OS.
pub fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut out = [0; N];
    if N > DRAWN {
        getrandom::fill(&mut out)?;
        return Ok(out);
    }
    RANDOM.with_borrow_mut(|drawn| {
        if drawn.used + N > DRAWN {
            getrandom::fill(&mut drawn.bytes)?;
            drawn.used = 0;
        }
        let given = &mut drawn.bytes[drawn.used..drawn.used + N];
        out.copy_from_slice(given);
        // Nobody finds here what was given out.
        given.fill(0);
        drawn.used += N;
        Ok(out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_starts_at_the_anchor_and_never_goes_back() {
        let clock = Clock::anchored(Time::from_millis(5_000));
        assert_eq!(clock.now(), Time::from_millis(5_000));
        tokio::time::advance(std::time::Duration::from_millis(20)).await;
        assert_eq!(clock.now(), Time::from_millis(5_020));
        clock.advance_to(Time::from_millis(4_000));
        assert_eq!(clock.now(), Time::from_millis(5_020));
        clock.advance_to(Time::from_millis(6_000));
        assert_eq!(clock.now(), Time::from_millis(6_000));
    }

    #[test]
    fn ids_are_ordered_by_time_and_differ() {
        let at = |millis| mint_task(Time::from_millis(millis)).unwrap();
        assert!(at(1_000) < at(1_001));
        assert_ne!(at(1_000), at(1_000));
        assert_eq!(at(1_700_000_000_000).0 >> 80, 1_700_000_000_000);
        assert_eq!(mint_context(Time::ZERO).unwrap().len(), 32);
    }
}

//! The store's clock, which a cell's time is anchored to when its lease is given out.

use std::time::{SystemTime, UNIX_EPOCH};

use watertight_policy::time::Time;

#[expect(clippy::disallowed_methods, reason = "the store's clock: read once per lease, and nowhere else in this crate")]
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

//! Retry budget: retries are a share of traffic, so that an outage is not answered with a multiple of the load.
//!
//! Every first attempt deposits, every retry withdraws; in any window, retries stay within `ratio` of the first
//! attempts and a small floor. Assumes one budget per agent, and that retries are never deposited. Leaves out whether
//! a retry is safe, and when it happens ([`crate::backoff`]).

use std::collections::VecDeque;
use std::fmt;

use crate::time::{Span, Time};

const BUCKETS: u32 = 10;

/// How much may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// Retries per first attempt, in basis points (10 000 are one retry for each). Zero: the floor alone. At most
    /// 10 000. A tenth by default: enough for lost packets, harmless in an outage.
    pub ratio_bp: u32,
    /// Retries per window whatever the traffic, so that an agent called once a minute can be retried at all. Zero:
    /// none, and little traffic then gets no retry. `u32::MAX`: retries are not limited. One by default.
    pub floor: u32,
    /// Over how long traffic and retries are compared. Zero is refused; [`Span::MAX`]: since the beginning. Ten
    /// seconds by default: long enough to smooth bursts, short enough that old calm does not pay for a new outage.
    pub window: Span,
}

impl Default for Params {
    fn default() -> Self {
        Self { ratio_bp: 1_000, floor: 1, window: Span::from_secs(10) }
    }
}

impl Params {
    /// Checked parameters: a ratio of at most one, and a window.
    pub const fn try_new(ratio_bp: u32, floor: u32, window: Span) -> Result<Self, InvalidParams> {
        if ratio_bp > 10_000 {
            return Err(InvalidParams::RatioAboveOne);
        }
        if window.is_zero() {
            return Err(InvalidParams::NoWindow);
        }
        Ok(Self { ratio_bp, floor, window })
    }
}

/// Why parameters make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidParams {
    /// More than one retry per first attempt amplifies an outage without bound.
    RatioAboveOne,
    /// Without a window nothing is compared.
    NoWindow,
}

impl fmt::Display for InvalidParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RatioAboveOne => "the retry ratio is above 10000 basis points, more than one retry per attempt",
            Self::NoWindow => "the retry window is zero, so there is nothing to compare",
        })
    }
}

impl std::error::Error for InvalidParams {}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    start: Time,
    deposits: u64,
    withdrawals: u64,
}

/// What one agent's traffic has earned in retries. At most ten counters in memory.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    params: Params,
    buckets: VecDeque<Bucket>,
    deposits: u64,
    withdrawals: u64,
}

impl RetryBudget {
    /// A budget that has seen no traffic: the floor is there from the beginning.
    pub const fn new(params: Params) -> Self {
        Self { params, buckets: VecDeque::new(), deposits: 0, withdrawals: 0 }
    }

    /// A first attempt was made.
    pub fn deposit(&mut self, now: Time) {
        self.roll(now);
        self.bucket(now).deposits += 1;
        self.deposits += 1;
    }

    /// Whether one more retry is covered; if so it is taken.
    pub fn try_withdraw(&mut self, now: Time) -> bool {
        self.roll(now);
        let covered = self.withdrawals < self.allowed();
        if covered {
            self.bucket(now).withdrawals += 1;
            self.withdrawals += 1;
        }
        covered
    }

    /// Retries still covered, by what was seen up to the last call.
    pub fn left(&self) -> u64 {
        self.allowed().saturating_sub(self.withdrawals)
    }

    /// The limits in force.
    pub const fn params(&self) -> Params {
        self.params
    }

    /// New limits from now on; the traffic seen so far still counts.
    pub const fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    fn allowed(&self) -> u64 {
        (self.deposits.saturating_mul(u64::from(self.params.ratio_bp)) / 10_000)
            .saturating_add(self.params.floor.into())
    }

    fn roll(&mut self, now: Time) {
        while let Some(oldest) = self.buckets.front()
            && oldest.start + self.params.window <= now
        {
            self.deposits -= oldest.deposits;
            self.withdrawals -= oldest.withdrawals;
            self.buckets.pop_front();
        }
    }

    fn bucket(&mut self, now: Time) -> &mut Bucket {
        let width = Span::from_micros(self.params.window.as_micros().div_ceil(BUCKETS.into()).max(1));
        let fresh = self.buckets.back().is_none_or(|last| last.start + width <= now);
        if fresh {
            self.buckets.push_back(Bucket { start: now, deposits: 0, withdrawals: 0 });
        }
        let last = self.buckets.len() - 1;
        &mut self.buckets[last]
    }
}

#[cfg(test)]
mod tests;

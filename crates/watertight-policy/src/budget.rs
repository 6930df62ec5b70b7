//! Delegation budget: what a tree of delegations may still spend, in time, depth and fan-out.
//!
//! Agents call agents that call agents. Every task carries a [`Budget`]; each child it starts takes one fan-out from
//! it and gets an earlier deadline, one hop less, and never more fan-out than its parent had. A spent budget refuses
//! ([`Exhausted`]) instead of going on quietly, so no tree outgrows the request it serves.
//!
//! The wire carries *remaining* seconds, never a point in time: clocks on two hosts disagree, and each receiver turns
//! the rest into its own deadline. Assumes that one parent's children are started through one `Budget` value, in any
//! order but one at a time: the debit is what makes ten children of ten children finite. Leaves out cycles (a chain of
//! names, not a count, finds those), money, and the field's name on the wire.

use std::fmt;

use crate::time::{Span, Time};

/// Defaults and maxima for budgets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// Time for a task that arrives without any. Zero: such a task cannot start anything. [`Span::MAX`]: bounded by
    /// `max_remaining` alone. Five minutes by default: long for an agent's turn, short for a leak.
    pub remaining: Span,
    /// The most time a task may arrive with; more is cut to this. Zero: everything arrives spent. [`Span::MAX`]: no
    /// limit. A day by default, after which nobody reads the answer.
    pub max_remaining: Span,
    /// Hops left for a task that arrives without a number, and the most it may arrive with. Zero: what arrives may be
    /// served but not delegated further. `u32::MAX`: no limit. Four by default: orchestrator, specialist, tool agent,
    /// and one to spare.
    pub depth: u32,
    /// Children a task may start if it arrives without a number, and the most it may arrive with. Zero: none.
    /// `u32::MAX`: no limit. Sixteen by default.
    pub fanout: u32,
    /// Children a child may start at most. Zero: children start none, whatever their depth. `u32::MAX`: as many as the
    /// parent had left. Four by default, the number in use where this was measured.
    pub child_fanout: u32,
    /// Time held back at each hop, so that the parent can still merge results and answer after a child ran out. Zero:
    /// children may use the parent's last microsecond, and their deadline is not earlier than its. [`Span::MAX`]:
    /// nothing can be delegated. 0.3 s by default.
    pub reserve: Span,
}

/// 5 min (at most a day), 4 hops, 16 children, 4 per child, 0.3 s held back.
impl Default for Params {
    fn default() -> Self {
        Self {
            remaining: Span::from_secs(300),
            max_remaining: Span::from_secs(24 * 3_600),
            depth: 4,
            fanout: 16,
            child_fanout: 4,
            reserve: Span::from_millis(300),
        }
    }
}

impl Params {
    /// Checked parameters: a default that exceeds its own maximum, or a reserve that swallows the default time, is a
    /// mistake.
    pub fn validate(self) -> Result<Self, InvalidParams> {
        if self.remaining > self.max_remaining {
            return Err(InvalidParams::DefaultAboveMax);
        }
        if self.reserve >= self.remaining {
            return Err(InvalidParams::ReserveSwallowsDefault);
        }
        Ok(self)
    }

    /// The budget of a task that arrived at `now` with these numbers. What is missing takes its default, what is too
    /// much is cut to its maximum; NaN and negative seconds are no time at all.
    pub fn arrive(&self, now: Time, remaining_s: Option<f64>, depth: Option<u32>, fanout: Option<u32>) -> Budget {
        let remaining = remaining_s.map_or(self.remaining, Span::from_secs_f64).min(self.max_remaining);
        Budget {
            deadline: now + remaining,
            depth: depth.unwrap_or(self.depth).min(self.depth),
            fanout: fanout.unwrap_or(self.fanout).min(self.fanout),
        }
    }
}

/// Why parameters make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidParams {
    /// `remaining` is above `max_remaining`.
    DefaultAboveMax,
    /// `reserve` is not below `remaining`, so a task with the default time could start nothing.
    ReserveSwallowsDefault,
}

impl fmt::Display for InvalidParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DefaultAboveMax => "remaining is above max_remaining; lower it, or raise the maximum",
            Self::ReserveSwallowsDefault => "reserve is not below remaining, so nothing could be delegated",
        })
    }
}

impl std::error::Error for InvalidParams {}

/// What one task, and all it starts, may still spend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Budget {
    /// When the task is cut, on this host's clock.
    pub deadline: Time,
    /// Hops left below this task.
    pub depth: u32,
    /// Children this task may still start.
    pub fanout: u32,
}

/// A budget as it travels: time as a rest, because clocks differ.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wire {
    /// Seconds left when it was written, to the millisecond.
    pub remaining_s: f64,
    /// Hops left below the receiver.
    pub depth: u32,
    /// Children the receiver may start.
    pub fanout: u32,
}

/// What has run out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Exhausted {
    /// No hop is left.
    Depth,
    /// No child is left to start.
    Fanout,
    /// Less time is left than a parent must hold back.
    Time,
}

impl Budget {
    /// Nothing is left.
    pub const SPENT: Self = Self { deadline: Time::ZERO, depth: 0, fanout: 0 };

    /// The budget of one more child, paid for by this one.
    ///
    /// The child's deadline is earlier by the reserve, its depth one less, and its fan-out at most `child_fanout` and
    /// never more than this budget had left. A refusal debits nothing. What is asked first is answered first: depth,
    /// fan-out, time.
    pub fn child(&mut self, now: Time, params: &Params) -> Result<Self, Exhausted> {
        let depth = self.depth.checked_sub(1).ok_or(Exhausted::Depth)?;
        let rest = self.fanout.checked_sub(1).ok_or(Exhausted::Fanout)?;
        let deadline = self.deadline - params.reserve;
        if deadline <= now {
            return Err(Exhausted::Time);
        }
        let fanout = params.child_fanout.min(self.fanout);
        self.fanout = rest;
        Ok(Self { deadline, depth, fanout })
    }

    /// The budget of a tree's first task, on behalf of whoever calls with this one.
    ///
    /// Its deadline is earlier by the reserve and its depth one less, as a child's; but its fan-out is all that there is:
    /// `child_fanout` bounds those that are started by others. Of a caller whose own tasks are not known nothing is
    /// debited. What is asked first is answered first: depth, fan-out, time.
    pub fn first(&self, now: Time, params: &Params) -> Result<Self, Exhausted> {
        let child = Self { ..*self }.child(now, params)?;
        Ok(Self { fanout: self.fanout, ..child })
    }

    /// Gives back the fan-out of a child that never started: a refusal (full bulkhead, open breaker) costs nothing.
    /// At most once per successful [`Budget::child`].
    pub const fn refund(&mut self) {
        self.fanout = self.fanout.saturating_add(1);
    }

    /// Time left at `now`.
    pub const fn remaining(&self, now: Time) -> Span {
        self.deadline.since(now)
    }

    /// What to send along: the rest of the time, rounded to the millisecond.
    pub fn to_wire(&self, now: Time) -> Wire {
        let millis = self.remaining(now).as_micros().saturating_add(500) / 1_000;
        Wire { remaining_s: millis as f64 / 1e3, depth: self.depth, fanout: self.fanout }
    }
}

#[cfg(test)]
mod tests;

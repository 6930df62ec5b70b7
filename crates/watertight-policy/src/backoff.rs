//! Backoff: how long to wait before asking an agent again, by our own ladder or by its own wish.
//!
//! The ladder is exponential with full jitter: any wait between zero and the rung, so that callers which failed
//! together do not come back together. An agent's `Retry-After` goes before the ladder, is capped, and is shared by
//! all callers of that agent ([`Pacing`]): it spoke to one and meant everybody.
//!
//! Assumes that the header's value arrives as bytes from outside. Leaves out whether to ask again at all
//! ([`crate::retry_budget`]).

use std::fmt;

use crate::rng::Rng;
use crate::time::{Span, Time};

mod http_date;
#[cfg(test)]
mod tests;

/// The ladder of waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// The longest wait after the first failure; it doubles with each further one. Zero: no waiting at all.
    /// [`Span::MAX`] is `max` from the beginning. 0.2 s by default, about one round trip of an agent in trouble.
    pub base: Span,
    /// The longest wait whatever the count. Zero: no waiting at all. [`Span::MAX`]: the ladder never ends. 10 s by
    /// default: after that the breaker decides, not the ladder.
    pub max: Span,
}

impl Default for Params {
    fn default() -> Self {
        Self { base: Span::from_millis(200), max: Span::from_secs(10) }
    }
}

/// Why parameters make no sense: the first rung is above the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseAboveMax;

impl fmt::Display for BaseAboveMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the backoff's base is above its maximum")
    }
}

impl std::error::Error for BaseAboveMax {}

impl Params {
    /// Checked parameters: the base is not above the maximum.
    pub fn try_new(base: Span, max: Span) -> Result<Self, BaseAboveMax> {
        if base > max { Err(BaseAboveMax) } else { Ok(Self { base, max }) }
    }

    /// The longest wait after `attempt` failures in a row; zero is taken as one.
    pub fn rung(&self, attempt: u32) -> Span {
        let doublings = attempt.saturating_sub(1).min(63);
        let rung = u128::from(self.base.as_micros()) << doublings;
        u64::try_from(rung).map_or(Span::MAX, Span::from_micros).min(self.max)
    }

    /// A wait after `attempt` failures in a row: uniform between zero and the rung.
    pub fn delay(&self, attempt: u32, rng: &mut Rng) -> Span {
        Span::from_micros(rng.below(self.rung(attempt).as_micros().saturating_add(1)))
    }
}

/// A wait spread upwards by up to a tenth: never earlier than asked, and not everybody at once.
pub fn spread(wait: Span, rng: &mut Rng) -> Span {
    wait + Span::from_micros(rng.below((wait.as_micros() / 10).saturating_add(1)))
}

/// The wait that a `Retry-After` header asks for, at most `cap`.
///
/// Takes whole seconds in ASCII digits, however many, or a date in any of the three forms of RFC 9110; a date in the
/// past is no wait. Everything else (`-5`, `1.5`, `1e9`, `²`, nothing) is `None`: guessing at junk would let it decide.
pub fn parse_retry_after(value: &[u8], now: Time, cap: Span) -> Option<Span> {
    let value = value.trim_ascii();
    let wait = if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        let digit = |secs: u64, byte: &u8| secs.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
        Span::from_secs(value.iter().fold(0, digit))
    } else {
        http_date::parse(value, now)?.since(now)
    };
    Some(wait.min(cap))
}

/// An agent's wish to be left alone, shared by all who call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pacing {
    until: Time,
}

impl Pacing {
    /// No wish.
    pub const fn new() -> Self {
        Self { until: Time::ZERO }
    }

    /// The agent asked for `wait`. A shorter wish does not shorten an earlier, longer one.
    pub fn hint(&mut self, now: Time, wait: Span) {
        self.until = self.until.max(now + wait);
    }

    /// When the agent may be called again; `None` if that is now.
    pub fn until(&self, now: Time) -> Option<Time> {
        (self.until > now).then_some(self.until)
    }

    /// Forgets the wish: an operator knows better.
    pub const fn clear(&mut self) {
        self.until = Time::ZERO;
    }

    /// Moves a wish by an outage of our own, during which the agent could not have recovered before our eyes.
    pub fn shift(&mut self, by: Span) {
        if self.until > Time::ZERO {
            self.until = self.until + by;
        }
    }
}

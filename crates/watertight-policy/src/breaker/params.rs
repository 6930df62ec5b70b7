//! The breaker's limits. Assumes that whoever reads configuration calls [`Params::validate`]; unchecked values are
//! harmless and may make a breaker that never closes, or one that only trials pass.

use std::fmt;

use crate::time::Span;

/// When traffic to an agent is stopped, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// Failures in a row that eject. Zero: not counted. `u32::MAX`: practically never. Five by default: a dead agent is
    /// found within seconds even with little traffic, and five chance failures in a row are rare.
    pub consecutive_failures: u32,
    /// Share of failures among the window's calls that ejects, in basis points. Zero: not judged. 10 000: only if all
    /// fail. Half by default: an agent that fails every other call costs more than it gives.
    pub failure_rate_bp: u32,
    /// Share of slow calls among the window's calls that ejects, in basis points. Zero, the default: not judged, since
    /// agents are slow by nature and a bulkhead bounds what that costs. 10 000: only if all are slow.
    pub slow_rate_bp: u32,
    /// From which duration on a success is slow. Zero: none is. [`Span::MAX`]: none is. 10 s by default.
    pub slow_call: Span,
    /// Over how long shares are judged. Zero is refused. [`Span::MAX`]: since the last return. 30 s by default: long
    /// enough to hold `min_calls` at one call per second, short enough to forget.
    pub window: Span,
    /// Calls the window must hold before a share is judged, because two of three is no statistic. Zero is taken as
    /// one. `u32::MAX`: shares are never judged. Twenty by default.
    pub min_calls: u32,
    /// How long an agent must have had before our giving up counts as its failure. Zero: every cut counts, and callers
    /// with tiny budgets can eject any agent. [`Span::MAX`]: no cut counts. 1 s by default.
    pub min_wait: Span,
    /// The most that one caller's failures may weigh among all that are counted, in basis points, once three callers
    /// are seen. 10 000: no cap. Zero: one caller's failures never count once three are seen, and is refused. Half by
    /// default: nobody outweighs all others together.
    pub caller_share_bp: u32,
    /// How long the first ejection lasts; each failed trial doubles it. Zero is refused. [`Span::MAX`]: until reset.
    /// 5 s by default: about what a restart takes.
    pub ejection_base: Span,
    /// How long an ejection lasts at most. Below the base it is refused. [`Span::MAX`]: doubled without end. 60 s by
    /// default: a recovered agent waits no longer than a minute for its trial.
    pub ejection_max: Span,
    /// How long a trial may take before another may begin. Zero is refused, since every call would be a trial.
    /// [`Span::MAX`]: a trial that hangs keeps the agent ejected for ever. 30 s by default.
    pub probe_timeout: Span,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            failure_rate_bp: 5_000,
            slow_rate_bp: 0,
            slow_call: Span::from_secs(10),
            window: Span::from_secs(30),
            min_calls: 20,
            min_wait: Span::from_secs(1),
            caller_share_bp: 5_000,
            ejection_base: Span::from_secs(5),
            ejection_max: Span::from_secs(60),
            probe_timeout: Span::from_secs(30),
        }
    }
}

impl Params {
    /// Checked parameters.
    pub fn validate(self) -> Result<Self, InvalidParams> {
        if self.failure_rate_bp.max(self.slow_rate_bp).max(self.caller_share_bp) > 10_000 {
            return Err(InvalidParams::AboveWhole);
        }
        if self.caller_share_bp == 0 {
            return Err(InvalidParams::NoCallerShare);
        }
        if self.window.is_zero() {
            return Err(InvalidParams::NoWindow);
        }
        if self.ejection_base.is_zero() {
            return Err(InvalidParams::NoEjection);
        }
        if self.ejection_max < self.ejection_base {
            return Err(InvalidParams::MaxBelowBase);
        }
        if self.probe_timeout.is_zero() {
            return Err(InvalidParams::NoProbeTimeout);
        }
        Ok(self)
    }

    /// How long the `count`th ejection in a row lasts, counted from one.
    pub fn ejection(&self, count: u32) -> Span {
        let doublings = count.saturating_sub(1).min(63);
        let span = u128::from(self.ejection_base.as_micros()) << doublings;
        u64::try_from(span).map_or(Span::MAX, Span::from_micros).min(self.ejection_max)
    }
}

/// Why parameters make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidParams {
    /// A share above 10 000 basis points.
    AboveWhole,
    /// `caller_share_bp` is zero.
    NoCallerShare,
    /// `window` is zero.
    NoWindow,
    /// `ejection_base` is zero.
    NoEjection,
    /// `ejection_max` is below `ejection_base`.
    MaxBelowBase,
    /// `probe_timeout` is zero.
    NoProbeTimeout,
}

impl fmt::Display for InvalidParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AboveWhole => "a share is above 10000 basis points, more than everything",
            Self::NoCallerShare => "caller_share_bp is 0, so no failure would count; 10000 turns the cap off",
            Self::NoWindow => "window is zero, so there is nothing to judge",
            Self::NoEjection => "ejection_base is zero, so traffic would never stop",
            Self::MaxBelowBase => "ejection_max is below ejection_base",
            Self::NoProbeTimeout => "probe_timeout is zero, so every call would be a trial",
        })
    }
}

impl std::error::Error for InvalidParams {}

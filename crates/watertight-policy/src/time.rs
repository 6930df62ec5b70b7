//! Time as a value: a point ([`Time`]) and a length ([`Span`]), both in whole microseconds.
//!
//! Assumes that whoever calls reads a clock once, makes it monotonic, and passes the same `now` to everything that
//! belongs to one decision. Leaves out clocks, calendars and time zones. All arithmetic saturates: [`Time::FAR`] plus
//! anything is still `FAR`, an earlier time minus a later one is [`Span::ZERO`].

use std::fmt;
use std::ops::{Add, Sub};

/// A point in time: microseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

/// A length of time: microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(u64);

impl Time {
    /// The Unix epoch, where tests and simulations begin.
    pub const ZERO: Self = Self(0);
    /// Never: later than every time a clock shows.
    pub const FAR: Self = Self(u64::MAX);

    /// The point `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The point `millis` milliseconds after the epoch, at most [`Time::FAR`].
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the epoch, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// Seconds since the epoch with six decimals, `never` for [`Time::FAR`].
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FAR => f.write_str("never"),
            Self(micros) => write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000),
        }
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than anything: added to a time it gives [`Time::FAR`].
    pub const MAX: Self = Self(u64::MAX);

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// `millis` milliseconds, at most [`Span::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// `secs` seconds, at most [`Span::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// `secs` seconds to the nearest microsecond. NaN and negative numbers are [`Span::ZERO`], what does not fit is
    /// [`Span::MAX`]: a number from the wire cannot make a length that is not one.
    pub fn from_secs_f64(secs: f64) -> Self {
        // The cast saturates and takes NaN to zero, which is exactly what is wanted here.
        Self((secs * 1e6).round() as u64)
    }

    /// Microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Seconds, for display and for the wire; never for a comparison.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whether this is [`Span::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `times` as long, at most [`Span::MAX`].
    pub const fn mul(self, times: u32) -> Self {
        Self(self.0.saturating_mul(times as u64))
    }

    /// One of `parts` equal parts, rounded down. Zero parts are taken as one.
    pub const fn div(self, parts: u32) -> Self {
        match parts {
            0 => self,
            _ => Self(self.0 / parts as u64),
        }
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Seconds with as many decimals as are needed: `0.5s`, `30s`, `0.000001s`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if micros == 0 {
            return write!(f, "{secs}s");
        }
        let decimals = format!("{micros:06}");
        write!(f, "{secs}.{}s", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::FAR + Span::from_secs(1), Time::FAR);
        assert_eq!(Time::ZERO - Span::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_millis(5).since(Time::from_millis(7)), Span::ZERO);
        assert_eq!(Time::from_millis(7).since(Time::from_millis(5)), Span::from_millis(2));
        assert_eq!(Span::MAX + Span::MAX, Span::MAX);
        assert_eq!(Span::ZERO - Span::MAX, Span::ZERO);
        assert_eq!(Span::MAX.mul(2), Span::MAX);
        assert_eq!(Span::from_secs(u64::MAX), Span::MAX);
        assert_eq!(Time::from_millis(u64::MAX), Time::FAR);
        assert_eq!(Span::from_secs(3).div(0), Span::from_secs(3));
        assert_eq!(Span::from_secs(3).div(2), Span::from_millis(1_500));
    }

    #[test]
    fn seconds_from_the_wire_cannot_do_harm() {
        for bad in [f64::NAN, -1.0, -0.0, f64::NEG_INFINITY] {
            assert_eq!(Span::from_secs_f64(bad), Span::ZERO, "{bad}");
        }
        assert_eq!(Span::from_secs_f64(f64::INFINITY), Span::MAX);
        assert_eq!(Span::from_secs_f64(1e300), Span::MAX);
        assert_eq!(Span::from_secs_f64(5.7), Span::from_millis(5_700));
    }

    #[test]
    fn spans_and_times_print_short() {
        let shown = |micros| Span::from_micros(micros).to_string();
        assert_eq!(
            [shown(500_000), shown(30_000_000), shown(1), shown(0), shown(1_250_000)],
            ["0.5s", "30s", "0.000001s", "0s", "1.25s"]
        );
        assert_eq!(Time::from_millis(1_500).to_string(), "1.500000");
        assert_eq!(Time::FAR.to_string(), "never");
    }
}

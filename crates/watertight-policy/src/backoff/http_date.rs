//! The three date forms of RFC 9110 section 5.6.7, and nothing else.
//!
//! Assumes GMT, as the RFC does. Leaves out checking the weekday against the date (senders get it wrong without
//! meaning another day) and every other form of date.

use crate::time::Time;

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAYS: [&[u8]; 7] = [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"];

/// The time that `value` names; years before 1970 are the epoch. `now` decides the century of a two-digit year.
pub(super) fn parse(value: &[u8], now: Time) -> Option<Time> {
    let mut text = Text(value);
    let day_name = text.until(|byte| !byte.is_ascii_alphabetic());
    if DAYS.contains(&day_name) {
        rfc850(text, now)
    } else if DAYS.iter().any(|day| &day[..3] == day_name) {
        match text.0.first() {
            Some(b',') => imf_fixdate(text),
            Some(_) | None => asctime(text),
        }
    } else {
        None
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, from the comma on.
fn imf_fixdate(mut text: Text<'_>) -> Option<Time> {
    text.skip(b", ")?;
    let day = text.number(2)?;
    text.skip(b" ")?;
    let month = text.month()?;
    text.skip(b" ")?;
    let year = text.number(4)?;
    text.skip(b" ")?;
    let clock = text.clock()?;
    text.skip(b" GMT")?;
    text.end_with(year, month, day, clock)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`, from the comma on.
fn rfc850(mut text: Text<'_>, now: Time) -> Option<Time> {
    text.skip(b", ")?;
    let day = text.number(2)?;
    text.skip(b"-")?;
    let month = text.month()?;
    text.skip(b"-")?;
    let short_year = text.number(2)?;
    text.skip(b" ")?;
    let clock = text.clock()?;
    text.skip(b" GMT")?;
    let this_year = year_of(now);
    let same_century = this_year - this_year % 100 + short_year;
    // The RFC: what seems more than 50 years ahead is the most recent past year with the same digits. The mirror of
    // it, for a year just after the turn of a century read just before, is the same rule one century later.
    let year = if same_century > this_year + 50 {
        same_century - 100
    } else if same_century + 50 <= this_year {
        same_century + 100
    } else {
        same_century
    };
    text.end_with(year, month, day, clock)
}

/// `Sun Nov  6 08:49:37 1994`, from the space after the weekday on.
fn asctime(mut text: Text<'_>) -> Option<Time> {
    text.skip(b" ")?;
    let month = text.month()?;
    text.skip(b" ")?;
    let day = match text.skip(b" ") {
        Some(()) => text.number(1)?,
        None => text.number(2)?,
    };
    text.skip(b" ")?;
    let clock = text.clock()?;
    text.skip(b" ")?;
    let year = text.number(4)?;
    text.end_with(year, month, day, clock)
}

struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn until(&mut self, stop: impl Fn(&u8) -> bool) -> &'a [u8] {
        let at = self.0.iter().position(stop).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(at);
        self.0 = rest;
        taken
    }

    fn skip(&mut self, prefix: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(prefix)?;
        Some(())
    }

    fn number(&mut self, digits: usize) -> Option<u64> {
        let (taken, rest) = self.0.split_at_checked(digits)?;
        if !taken.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        Some(taken.iter().fold(0, |number, byte| number * 10 + u64::from(byte - b'0')))
    }

    /// 1 to 12.
    fn month(&mut self) -> Option<u64> {
        let (taken, rest) = self.0.split_at_checked(3)?;
        self.0 = rest;
        (1..).zip(MONTHS).find_map(|(number, month)| (month == taken).then_some(number))
    }

    /// Seconds of the day. A leap second is taken as the one before it.
    fn clock(&mut self) -> Option<u64> {
        let hour = self.number(2)?;
        self.skip(b":")?;
        let minute = self.number(2)?;
        self.skip(b":")?;
        let second = self.number(2)?;
        (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3_600 + minute * 60 + second.min(59))
    }

    fn end_with(self, year: u64, month: u64, day: u64, clock: u64) -> Option<Time> {
        if !self.0.is_empty() || day == 0 || day > days_in(year, month) {
            return None;
        }
        let secs = (days_before_year(year) + days_before_month(year, month) + day - 1) * 86_400 + clock;
        Some(Time::from_millis(secs.saturating_sub(days_before_year(1970) * 86_400) * 1_000))
    }
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the first of January of year 0 to that of `year`.
const fn days_before_year(year: u64) -> u64 {
    match year.checked_sub(1) {
        None => 0,
        Some(last) => year * 365 + last / 4 - last / 100 + last / 400 + 1,
    }
}

fn days_before_month(year: u64, month: u64) -> u64 {
    (1..month).map(|earlier| days_in(year, earlier)).sum()
}

fn year_of(now: Time) -> u64 {
    let days = now.as_millis() / 86_400_000 + days_before_year(1970);
    // 400 years are 146 097 days; the estimate is never too late and at most a year early.
    let estimate = days * 400 / 146_097;
    (estimate.saturating_sub(1)..).take_while(|year| days_before_year(*year) <= days).last().unwrap_or(estimate)
}

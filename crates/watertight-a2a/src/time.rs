//! RFC 3339 timestamps to and from milliseconds since 1970. The caller brings the clock.

/// Writes `millis` as A2A wants it: UTC, `Z`, three fractional digits. Clamped to the years 0001 to 9999.
pub fn write(millis: i64) -> String {
    let millis = millis.clamp(-62_135_596_800_000, 253_402_300_799_999);
    let (days, rest) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    let mut text = String::with_capacity(24);
    for (number, places, behind) in [
        (year, 4, '-'),
        (month, 2, '-'),
        (day, 2, 'T'),
        (hour, 2, ':'),
        (minute, 2, ':'),
        (second, 2, '.'),
        (milli, 3, 'Z'),
    ] {
        let digit = |place| char::from(b'0' + (number / 10_i64.pow(place) % 10) as u8);
        text.extend((0..places).rev().map(digit));
        text.push(behind);
    }
    text
}

/// Reads any RFC 3339 timestamp, whatever its offset and digits, rounded down to the millisecond.
pub fn parse(text: &str) -> Option<i64> {
    parse_exact(text).map(|(millis, _)| millis)
}

/// Like [`parse`], rounded up.
pub(crate) fn parse_up(text: &str) -> Option<i64> {
    parse_exact(text).map(|(millis, more)| millis + i64::from(more))
}

fn parse_exact(text: &str) -> Option<(i64, bool)> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let is = |at: usize, one_of: &[u8]| bytes.get(at).is_some_and(|byte| one_of.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=length).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (mut at, mut milli, mut more) = (19, 0, false);
    if is(19, b".") {
        at = 20;
        while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
            match at {
                20..=22 => milli += i64::from(digit - b'0') * [100, 10, 1][at - 20],
                _ => more |= *digit != b'0',
            }
            at += 1;
        }
        if at == 20 || at > 29 {
            return None;
        }
    }
    let offset = match bytes.get(at)? {
        b'Z' | b'z' => {
            at += 1;
            0
        }
        sign @ (b'+' | b'-') => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if !is(at + 3, b":") || hours > 23 || minutes > 59 {
                return None;
            }
            at += 6;
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    if at != bytes.len() {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + (minute - offset) * 60 + second;
    Some((seconds * 1000 + milli, more))
}

/// Days since 1970-01-01 of a proleptic Gregorian date; March-based years, after Howard Hinnant.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_every_shape() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-30T14:27:13.5Z", Some(1_796_048_833_500)),
            ("2026-11-30T15:27:13.500+01:00", Some(1_796_048_833_500)),
            ("2026-11-30t14:27:13.500999999z", Some(1_796_048_833_500)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("1969-12-31T23:59:59.999Z", Some(-1)),
            ("2023-02-29T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-11-30T14:27:13", None),
            ("2026-11-30T14:27:13.Z", None),
            ("2026-11-30T14:27:13Zjunk", None),
            ("2026-11-30T14:27:13+0100", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(parse(text), millis, "{text}");
        }
        assert_eq!(parse_up("1970-01-01T00:00:00.0001Z"), Some(1));
        assert_eq!(parse_up("1970-01-01T00:00:00.000000Z"), Some(0));
    }

    #[test]
    fn what_is_written_reads_back() {
        for millis in [-1, 0, 1, 1_796_048_833_500, 951_782_400_000, -62_135_596_800_000, 253_402_300_799_999] {
            assert_eq!(parse(&write(millis)), Some(millis), "{}", write(millis));
        }
        assert_eq!(write(1_796_048_833_500), "2026-11-30T14:27:13.500Z");
        assert_eq!(write(i64::MAX), "9999-12-31T23:59:59.999Z");
    }
}

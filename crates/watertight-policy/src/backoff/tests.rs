//! Ladder, header and pacing.

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;

/// Sun, 06 Nov 1994 08:49:37 GMT, the RFC's own example.
const EXAMPLE: Time = Time::from_millis(784_111_777_000);
const CAP: Span = Span::from_secs(60);

fn ask(value: &str, now: Time) -> Option<Span> {
    parse_retry_after(value.as_bytes(), now, CAP)
}

#[test]
fn seconds() {
    assert_eq!(ask("2", EXAMPLE), Some(Span::from_secs(2)));
    assert_eq!(ask(" 2\t", EXAMPLE), Some(Span::from_secs(2)));
    assert_eq!(ask("0", EXAMPLE), Some(Span::ZERO));
    assert_eq!(ask("0007", EXAMPLE), Some(Span::from_secs(7)));
    assert_eq!(ask("3600", EXAMPLE), Some(CAP));
    assert_eq!(ask("99999999999999999999999999999999", EXAMPLE), Some(CAP));
    assert_eq!(parse_retry_after(b"99999999999999999999999", EXAMPLE, Span::MAX), Some(Span::MAX));
}

#[test]
fn junk_is_no_wish() {
    let junk = ["", " ", "²", "٣", "-5", "+5", "1.5", "1e9", "0x10", "2 s", "2,3", "soon", "NaN", "inf"];
    for value in junk {
        assert_eq!(ask(value, EXAMPLE), None, "{value:?}");
    }
    assert_eq!(parse_retry_after(&[0xFF, 0xB2], EXAMPLE, CAP), None);
}

#[test]
fn a_date_two_seconds_ahead_in_all_three_forms() {
    let now = EXAMPLE - Span::from_secs(2);
    for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert_eq!(ask(date, now), Some(Span::from_secs(2)), "{date}");
        assert_eq!(ask(date, now + Span::from_millis(500)), Some(Span::from_millis(1_500)), "{date}");
        assert_eq!(ask(date, EXAMPLE + Span::from_secs(1)), Some(Span::ZERO), "{date}");
        assert_eq!(ask(date, EXAMPLE - Span::from_secs(7_200)), Some(CAP), "{date}");
    }
}

#[test]
fn dates_that_are_none() {
    let bad = [
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT ago",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Thu, 31 Nov 1994 08:49:37 GMT",
        "Wed, 29 Feb 1995 08:49:37 GMT",
        "sun, 06 nov 1994 08:49:37 gmt",
        "Son, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 19²4 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov 006 08:49:37 1994",
        "1994-11-06T08:49:37Z",
        "Sun",
        "Sun,",
    ];
    for date in bad {
        assert_eq!(ask(date, EXAMPLE), None, "{date:?}");
    }
}

#[test]
fn dates_that_are_rare() {
    let at = |value: &str, now| http_date::parse(value.as_bytes(), now).map(|time| time.as_millis() / 1_000);
    assert_eq!(at("Thu, 01 Jan 1970 00:00:00 GMT", EXAMPLE), Some(0));
    assert_eq!(at("Mon, 01 Jan 0001 00:00:00 GMT", EXAMPLE), Some(0));
    assert_eq!(at("Sat, 01 Jan 0000 00:00:00 GMT", EXAMPLE), Some(0));
    assert_eq!(at("Tue, 29 Feb 2000 12:00:00 GMT", EXAMPLE), Some(951_825_600));
    assert_eq!(at("Fri, 31 Dec 9999 23:59:59 GMT", EXAMPLE), Some(253_402_300_799));
    assert_eq!(at("Sat, 31 Dec 2016 23:59:60 GMT", EXAMPLE), Some(1_483_228_799), "a leap second");
    // A two-digit year is never more than fifty years ahead, and at the turn of a century it is the next one.
    let in_2026 = Time::from_millis(1_780_000_000_000);
    assert_eq!(at("Sunday, 06-Nov-94 08:49:37 GMT", in_2026), Some(784_111_777));
    assert_eq!(at("Friday, 01-Jan-27 00:00:00 GMT", in_2026), Some(1_798_761_600));
    let in_2099 = Time::from_millis(4_090_000_000_000);
    assert_eq!(at("Saturday, 01-Jan-00 00:00:00 GMT", in_2099), Some(4_102_444_800));
}

proptest! {
    #[test]
    fn no_value_breaks_the_parser(value in proptest::collection::vec(any::<u8>(), 0..40), now in any::<u64>()) {
        if let Some(wait) = parse_retry_after(&value, Time::from_micros(now), CAP) {
            prop_assert!(wait <= CAP);
        }
    }

    #[test]
    fn every_second_survives_a_round_trip(secs in 0..4_000_000_000u64, form in 0..3) {
        let (year, month, day, h, m, s) = civil(secs);
        let name = MONTHS[month as usize - 1];
        let date = match form {
            0 => format!("Sun, {day:02} {name} {year} {h:02}:{m:02}:{s:02} GMT"),
            1 => format!("Sunday, {day:02}-{name}-{:02} {h:02}:{m:02}:{s:02} GMT", year % 100),
            _ => format!("Sun {name} {day:2} {h:02}:{m:02}:{s:02} {year}"),
        };
        let at = Time::from_millis(secs * 1_000);
        prop_assert_eq!(http_date::parse(date.as_bytes(), at), Some(at), "{}", date);
    }

    #[test]
    fn delays_stay_on_their_rung(base in 0..1_000_000u64, max in 0..100_000_000u64, attempt in 0..200u32, seed: u64) {
        let params = Params { base: Span::from_micros(base), max: Span::from_micros(max) };
        let mut rng = Rng::new(seed);
        prop_assert!(params.delay(attempt, &mut rng) <= params.rung(attempt));
        prop_assert!(params.rung(attempt) <= params.max);
        prop_assert!(params.rung(attempt) <= params.rung(attempt + 1));
    }
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The calendar by counting days, one year and one month at a time: slow, and not the parser's way.
fn civil(secs: u64) -> (u64, u64, u64, u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(if year.is_multiple_of(100) { 400 } else { 4 });
    let (mut days, mut year, mut month) = (secs / 86_400, 1970, 1);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month - 1] {
        days -= lengths[month - 1];
        month += 1;
    }
    (year, month as u64, days + 1, secs / 3_600 % 24, secs / 60 % 60, secs % 60)
}

#[test]
fn the_ladder_doubles_up_to_its_end() {
    let params = Params::default();
    let rungs: Vec<u64> = (0..9).map(|attempt| params.rung(attempt).as_millis()).collect();
    assert_eq!(rungs, [200, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    assert_eq!(params.rung(u32::MAX), params.max);
    assert_eq!(Params { base: Span::MAX, max: Span::MAX }.rung(9), Span::MAX);
    assert_eq!(Params::try_new(Span::from_secs(2), Span::from_secs(1)), Err(BaseAboveMax));
}

#[test]
fn jitter_is_full() {
    let (params, mut rng) = (Params::default(), Rng::new(3));
    let delays: Vec<u64> = (0..400).map(|_| params.delay(1, &mut rng).as_millis()).collect();
    let below = |limit| delays.iter().filter(|delay| **delay < limit).count();
    assert!((70..130).contains(&below(50)) && (160..240).contains(&below(100)), "{} {}", below(50), below(100));
}

#[test]
fn a_wish_is_shared_and_only_grows() {
    let mut pacing = Pacing::new();
    assert_eq!(pacing.until(EXAMPLE), None);
    pacing.hint(EXAMPLE, Span::from_secs(5));
    pacing.hint(EXAMPLE, Span::from_secs(2));
    assert_eq!(pacing.until(EXAMPLE), Some(EXAMPLE + Span::from_secs(5)));
    pacing.shift(Span::from_secs(1));
    assert_eq!(pacing.until(EXAMPLE + Span::from_secs(5)), Some(EXAMPLE + Span::from_secs(6)));
    assert_eq!(pacing.until(EXAMPLE + Span::from_secs(6)), None, "a wake-up lies ahead, or is none");
    pacing.clear();
    assert_eq!(pacing.until(Time::ZERO), None);
}

#[test]
fn spreading_never_comes_early() {
    let mut rng = Rng::new(9);
    for _ in 0..100 {
        let wait = spread(Span::from_secs(10), &mut rng);
        assert!((Span::from_secs(10)..=Span::from_secs(11)).contains(&wait), "{wait}");
    }
    assert_eq!(spread(Span::MAX, &mut rng), Span::MAX);
}

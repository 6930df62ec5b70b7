//! The view fits its screen, whatever it has to show.

use super::*;

fn view(mode: Mode) -> View {
    let schedule = Schedule { trips: 240, fault_from: 48, fault_to: 168 };
    View { mode, schedule, gateway: Some("http://127.0.0.1:65535".to_owned()), color: false }
}

fn records() -> Records {
    let mut records = Records { last_answer: "flight FL-1 120 EUR; ".repeat(20), ..Records::default() };
    for n in 0..100 {
        let made = Duration::from_millis(10_000 + n * 250);
        let outcome = match n % 5 {
            0 => Outcome::Ok,
            1 => Outcome::Refused("bulkhead_full".to_owned()),
            2 => Outcome::Refused("breaker_open".to_owned()),
            3 => Outcome::Cut,
            _ => Outcome::Failed("a reason\nfar too long to fit on the line with all of the others".to_owned()),
        };
        let ended = made + Duration::from_millis(500);
        records.calls.push(Call { agent: Agent::Hotels, phase: Phase::During, made, trip: made, ended, outcome });
        records.trips.push(Trip { phase: Phase::During, arrived: made, answered: ended, answer: Answer::Partial });
    }
    records
}

#[test]
fn it_fits_80_by_24() {
    let gauges = [Gauges { in_flight: 8, waiting: 16, breaker: Some(Breaker::Admitting) }; 3];
    for (mode, pool) in [(Mode::Walls, None), (Mode::WithoutWalls, Some(64)), (Mode::Direct, None)] {
        for records in [Records::default(), records()] {
            let lines = view(mode).lines(Duration::from_secs(30), gauges, pool, &records);
            assert!(lines.len() < 24, "{} lines", lines.len());
            for line in &lines {
                assert!(line.chars().count() <= WIDTH && !line.contains(char::is_control), "{line:?}");
            }
        }
    }
}

#[test]
fn words_say_what_colour_says() {
    let gauges = [Gauges { in_flight: 8, waiting: 0, breaker: Some(Breaker::Ejected) }; 3];
    let plain = view(Mode::Walls).lines(Duration::from_secs(30), gauges, None, &records()).join("\n");
    assert!(plain.contains("FAULT") && plain.contains("ejected") && plain.contains("[########] 8/8"));
    let colored = View { color: true, ..view(Mode::Walls) };
    let colored = colored.lines(Duration::from_secs(30), gauges, None, &records()).join("\n");
    let stripped = ["\x1b[1;31m", "\x1b[31m", "\x1b[0m"].iter().fold(colored, |text, code| text.replace(code, ""));
    assert_eq!(plain, stripped);
}

#[test]
fn a_bar_is_full_only_when_it_is() {
    assert_eq!(bar(0, 8, 8), "........");
    assert_eq!(bar(3, 8, 8), "###.....");
    assert_eq!(bar(9, 8, 8), "########");
    assert_eq!(bar(1, 64, 4), "#...");
}

//! The live view: one screen of 79 columns and fewer than 24 lines, redrawn eight times a second.
//!
//! Colour only repeats what a word says. Where stdout is no terminal, one plain line per second goes to stderr.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use super::Mode;
use super::metrics::{Breaker, Gauges};
use super::model::{Agent, Answer, Call, Outcome, POOL, Phase, Records, Schedule, Trip};
use super::orchestrator::Orchestrator;
use super::output;
use super::report::show;
use super::stats::Samples;
use super::watcher::Watcher;

const WIDTH: usize = 79;
const REDRAW: Duration = Duration::from_millis(125);
/// What "now" means for a quantile or a count of trips.
const WINDOW: Duration = Duration::from_secs(10);

/// What the view shows that does not change during the run.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) mode: Mode,
    pub(super) schedule: Schedule,
    pub(super) gateway: Option<String>,
    pub(super) color: bool,
}

impl View {
    /// Redraws until dropped, and then gives the terminal back as it was.
    pub(super) async fn on_terminal(&self, orchestrator: &Orchestrator, watcher: &Watcher) -> Infallible {
        let _screen = Screen::enter();
        let mut ticks = tokio::time::interval(REDRAW);
        loop {
            ticks.tick().await;
            let gauges = watcher.seen().gauges;
            let now = orchestrator.clock.now();
            let lines = self.lines(now, gauges, orchestrator.pool_in_use(), &orchestrator.records());
            let rows: String = lines.iter().map(|line| format!("{line}\x1b[K\r\n")).collect();
            output::out(&format!("\x1b[H{rows}\x1b[J"));
        }
    }

    /// A line per second.
    pub(super) async fn as_lines(&self, orchestrator: &Orchestrator, watcher: &Watcher) -> Infallible {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            let gauges = watcher.seen().gauges;
            let now = orchestrator.clock.now();
            let line = self.line(now, gauges, orchestrator.pool_in_use(), &orchestrator.records());
            output::progress(&line);
        }
    }

    fn line(&self, now: Duration, gauges: [Gauges; 3], pool: Option<usize>, records: &Records) -> String {
        let slots: Vec<_> = Agent::ALL.iter().zip(gauges).map(|(a, g)| format!("{a} {}", g.in_flight)).collect();
        let breaker = gauges[Agent::Hotels as usize].breaker.map_or("-", Breaker::name);
        let pool = pool.map_or_else(String::new, |used| format!(" | pool {used}/{POOL}"));
        let [full, partial, nothing] = answers(recent_trips(records, now, Duration::from_secs(1)));
        format!(
            "{:>4.0} s {:<6} | {}{pool} | hotels breaker {breaker} | full {full} partial {partial} nothing {nothing}",
            now.as_secs_f64(),
            self.phase(now).name(),
            slots.join(" "),
        )
    }

    fn lines(&self, now: Duration, gauges: [Gauges; 3], pool: Option<usize>, records: &Records) -> Vec<String> {
        let mut lines = self.head(now);
        if let Some(used) = pool {
            lines.push(format!("one pool  [{}]  {used} of {POOL} calls", bar(used as u64, POOL as u64, 48)));
            lines.push(String::new());
        }
        lines.push(format!("{:<9}{:<18}{:>8}  {:<11}{:>9}{:>9}", "agent", "slots", "waiting", "breaker", "p50", "p99"));
        for (agent, gauges) in Agent::ALL.into_iter().zip(gauges) {
            lines.extend(self.agent(now, agent, gauges, records));
        }
        lines.push(String::new());
        lines.extend(trips(now, records));
        lines.push(String::new());
        lines.push("The last answer".to_owned());
        lines.extend(wrap(&records.last_answer, WIDTH - 2).iter().take(2).map(|part| format!("  {part}")));
        lines.push(String::new());
        lines.push("p50, p99 and \"now\": the last 10 s. Ctrl-C ends everything.".to_owned());
        lines
    }

    fn head(&self, now: Duration) -> Vec<String> {
        let at = self.gateway.as_ref().map_or_else(String::new, |url| format!(", gateway {url}"));
        let phase = self.phase(now);
        let (what, until) = match phase {
            Phase::Before => ("BEFORE  everything is well", self.schedule.fault_from),
            Phase::During => ("FAULT   hotels takes 30 s instead of 1.5 s", self.schedule.fault_to),
            Phase::After => ("AFTER   hotels takes 1.5 s again", self.schedule.trips),
        };
        let left = Schedule::at(until).saturating_sub(now).as_secs_f64().ceil();
        let total = Schedule::at(self.schedule.trips).saturating_sub(now).as_secs_f64().ceil();
        let what = format!("{what:<46}");
        let what = if phase == Phase::During { self.paint(&what, "1;31") } else { self.paint(&what, "1") };
        vec![
            cut(&format!("Watertight demo, {}{at}", self.mode)),
            format!("{what} {:>31}", format!("{left:.0} s left, {total:.0} s in all")),
            String::new(),
        ]
    }

    fn agent(&self, now: Duration, agent: Agent, gauges: Gauges, records: &Records) -> [String; 2] {
        let recent = recent_calls(records, agent, now);
        let took: Samples = recent.map(Call::took).collect();
        let quantile = |percent| took.quantile(percent).map_or_else(|| "-".to_owned(), show);
        let limits = agent.bulkhead();
        let (slots, waiting) = match self.mode {
            Mode::Walls => {
                let bar = bar(gauges.in_flight, limits.max_in_flight, limits.max_in_flight as usize);
                (
                    format!("[{bar}] {}/{}", gauges.in_flight, limits.max_in_flight),
                    format!("{}/{}", gauges.waiting, limits.max_waiting),
                )
            }
            Mode::Direct | Mode::WithoutWalls => (format!("{} running, no limit", gauges.in_flight), "-".to_owned()),
        };
        let breaker = format!("{:<11}", gauges.breaker.map_or("-", Breaker::name));
        let breaker = match gauges.breaker {
            Some(Breaker::Ejected) => self.paint(&breaker, "31"),
            Some(Breaker::Probing) => self.paint(&breaker, "33"),
            Some(Breaker::Admitting) | None => breaker,
        };
        [
            format!("{agent:<9}{slots:<18}{waiting:>8}  {breaker}{:>9}{:>9}", quantile(50), quantile(99)),
            cut(&format!("         {}", ends(records, agent))),
        ]
    }

    fn phase(&self, now: Duration) -> Phase {
        let trip = now.as_millis() / super::model::TRIP_EVERY.as_millis();
        self.schedule.phase(trip.try_into().unwrap_or(u64::MAX))
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn trips(now: Duration, records: &Records) -> [String; 3] {
    let row = |what: &str, trips: &[&Trip]| {
        let [full, partial, nothing] = answers(trips.iter().copied());
        let took: Samples = trips.iter().map(|trip| trip.took()).collect();
        let p99 = took.quantile(99).map_or_else(|| "-".to_owned(), show);
        format!("{what:<9}{full:>6} {partial:>9} {nothing:>9} {p99:>9}")
    };
    let recent: Vec<_> = recent_trips(records, now, WINDOW).collect();
    let all: Vec<_> = records.trips.iter().collect();
    [
        format!("{:<9}{:>6} {:>9} {:>9} {:>9}", "trips", "full", "partial", "nothing", "p99"),
        row("now", &recent),
        row("so far", &all),
    ]
}

fn recent_calls(records: &Records, agent: Agent, now: Duration) -> impl Iterator<Item = &Call> {
    let from = now.saturating_sub(WINDOW);
    records.calls.iter().rev().take_while(move |call| call.ended >= from).filter(move |call| call.agent == agent)
}

fn recent_trips(records: &Records, now: Duration, window: Duration) -> impl Iterator<Item = &Trip> {
    let from = now.saturating_sub(window);
    records.trips.iter().rev().take_while(move |trip| trip.answered >= from)
}

fn answers<'a>(trips: impl Iterator<Item = &'a Trip>) -> [usize; 3] {
    let mut counts = [0; 3];
    for trip in trips {
        let place = match trip.answer {
            Answer::Full => 0,
            Answer::Partial => 1,
            Answer::Nothing => 2,
        };
        counts[place] += 1;
    }
    counts
}

/// How an agent's calls have ended so far.
fn ends(records: &Records, agent: Agent) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in records.calls.iter().filter(|call| call.agent == agent) {
        let end = match &call.outcome {
            Outcome::Ok => "1 ok".to_owned(),
            Outcome::Refused(reason) => format!("2 refused ({reason})"),
            Outcome::Cut => "3 cut".to_owned(),
            Outcome::Failed(reason) => format!("4 failed ({reason})"),
            Outcome::Unanswered => "5 no answer".to_owned(),
        };
        *counts.entry(end).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(end, n)| format!("{n} {}", &end[2..])).collect();
    counts.join(", ")
}

fn bar(used: u64, of: u64, width: usize) -> String {
    let filled = (used.min(of) as usize * width).div_ceil(of.max(1) as usize);
    format!("{}{}", "#".repeat(filled), ".".repeat(width - filled))
}

fn cut(line: &str) -> String {
    let safe = line.chars().map(|c| if c.is_control() { '?' } else { c });
    safe.take(WIDTH).collect()
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The terminal's other screen, without a cursor and without wrapping.
struct Screen;

impl Screen {
    fn enter() -> Screen {
        output::out("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[J");
        Screen
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        output::out("\x1b[?7h\x1b[?25h\x1b[?1049l");
    }
}

#[cfg(test)]
mod tests;

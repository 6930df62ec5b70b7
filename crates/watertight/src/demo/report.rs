//! What the demo measured, counted and laid out: as a table for people, as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::Mode;
use super::model::{Agent, Answer, Call, Outcome, Phase, Records, SLOW, Schedule, Trip};
use super::stats::Samples;
use super::verdicts::{self, Verdict};

/// Everything that a report is made from.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) mode: Mode,
    pub(super) schedule: Schedule,
    pub(super) fault_from: Duration,
    pub(super) fault_to: Duration,
    pub(super) slots_full: Option<Duration>,
    pub(super) pool_full: Option<Duration>,
    pub(super) records: Records,
    pub(super) hotels: HotelsLog,
    pub(super) late: Late,
}

/// An idle machine is late by less.
const WORTH_SAYING: Duration = Duration::from_millis(20);

/// How late this machine was with what was due, whatever the gateway did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Late {
    pub(super) p99: Duration,
    pub(super) most: Duration,
}

/// The hotels agent's own account of its work.
#[derive(Debug, Default)]
pub(super) struct HotelsLog {
    pub(super) work: Vec<Work>,
    pub(super) canceled: u64,
    pub(super) still_running: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) started: Duration,
    pub(super) ended: Option<Duration>,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    mode: Mode,
    seconds: f64,
    trips_per_second: u64,
    fault_from_s: f64,
    fault_to_s: f64,
    calls: Vec<CallRow>,
    trips: Vec<TripRow>,
    machine_late_p99_s: f64,
    machine_late_most_s: f64,
    #[serde(skip)]
    late: Late,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) pass: bool,
}

/// One agent in one phase. p50 and p99 are how long the trip waited, whatever came of it.
#[derive(Debug, Serialize)]
struct CallRow {
    agent: Agent,
    phase: Phase,
    calls: usize,
    ok: usize,
    refused: BTreeMap<String, usize>,
    cut: usize,
    failed: BTreeMap<String, usize>,
    unanswered: usize,
    p50_s: Option<f64>,
    p99_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct TripRow {
    phase: Phase,
    trips: usize,
    full: usize,
    partial: usize,
    nothing: usize,
    p99_s: Option<f64>,
    slowest_s: Option<f64>,
}

impl Report {
    pub(super) fn new(facts: &Facts) -> Report {
        let verdicts = verdicts::judge(facts);
        let rows = Phase::ALL.into_iter().flat_map(|phase| Agent::ALL.map(|agent| (agent, phase)));
        let mut calls: Vec<_> = rows.map(|(agent, phase)| call_row(&facts.records.calls, agent, phase)).collect();
        calls.sort_by_key(|row| (row.agent, row.phase));
        Report {
            mode: facts.mode,
            seconds: Schedule::at(facts.schedule.trips).as_secs_f64(),
            trips_per_second: super::model::TRIPS_PER_SECOND,
            fault_from_s: round(facts.fault_from),
            fault_to_s: round(facts.fault_to),
            calls,
            trips: Phase::ALL.map(|phase| trip_row(&facts.records.trips, phase)).into(),
            machine_late_p99_s: round(facts.late.p99),
            machine_late_most_s: round(facts.late.most),
            late: facts.late,
            pass: verdicts.iter().all(|verdict| verdict.pass),
            verdicts,
        }
    }

    pub(super) fn json(&self) -> String {
        // Plain structs with string keys: this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub(super) fn text(&self, color: bool) -> String {
        let mut text = String::new();
        let _infallible = self.write(&mut text, color);
        text
    }

    fn write(&self, out: &mut String, color: bool) -> std::fmt::Result {
        let normal = show(Agent::Hotels.normal_latency());
        writeln!(
            out,
            "Watertight demo, {}: {:.0} s, {} trips per second.",
            self.mode, self.seconds, self.trips_per_second
        )?;
        writeln!(
            out,
            "From {:.1} s to {:.1} s the hotels agent took {} s instead of {normal}.\n",
            self.fault_from_s,
            self.fault_to_s,
            SLOW.as_secs()
        )?;
        writeln!(
            out,
            "{:<8} {:<7} {:>5} {:>5} {:>7} {:>5} {:>6} {:>9} {:>8} {:>8}",
            "agent", "phase", "calls", "ok", "refused", "cut", "failed", "no answer", "p50", "p99"
        )?;
        for row in &self.calls {
            row.write(out)?;
        }
        for (what, reasons) in self.reasons() {
            writeln!(out, "{what}: {reasons}")?;
        }
        let (a, b) = ("trips", "phase");
        writeln!(
            out,
            "\n{a:<8} {b:<7} {:>6} {:>6} {:>8} {:>8} {:>8} {:>9}",
            "trips", "full", "partial", "nothing", "p99", "slowest"
        )?;
        for row in &self.trips {
            row.write(out)?;
        }
        writeln!(out)?;
        for verdict in &self.verdicts {
            writeln!(out, "{}  {}\n      {}", mark(verdict.pass, color), verdict.claim, verdict.measured)?;
        }
        if self.late.most >= WORTH_SAYING {
            writeln!(
                out,
                "\nThis machine was busy: it woke up as much as {} late, p99 {}. The verdicts allow for that.",
                show(self.late.most),
                show(self.late.p99)
            )?;
        }
        let failed = self.verdicts.iter().filter(|verdict| !verdict.pass).count();
        writeln!(out, "\n{} PASS, {failed} FAIL", self.verdicts.len() - failed)
    }

    fn reasons(&self) -> Vec<(String, String)> {
        let line = |row: &CallRow, what: &str, reasons: &BTreeMap<String, usize>| {
            let list: Vec<_> = reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            (!list.is_empty()).then(|| (format!("{} {}, {what}", row.agent, row.phase.name()), list.join(", ")))
        };
        let both = |row: &CallRow| [line(row, "refused", &row.refused), line(row, "failed", &row.failed)];
        self.calls.iter().flat_map(both).flatten().collect()
    }
}

impl CallRow {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let (refused, failed): (usize, usize) = (self.refused.values().sum(), self.failed.values().sum());
        writeln!(
            out,
            "{:<8} {:<7} {:>5} {:>5} {refused:>7} {:>5} {failed:>6} {:>9} {:>8} {:>8}",
            self.agent,
            self.phase.name(),
            self.calls,
            self.ok,
            self.cut,
            self.unanswered,
            show_s(self.p50_s),
            show_s(self.p99_s)
        )
    }
}

impl TripRow {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "{:<8} {:<7} {:>6} {:>6} {:>8} {:>8} {:>8} {:>9}",
            "",
            self.phase.name(),
            self.trips,
            self.full,
            self.partial,
            self.nothing,
            show_s(self.p99_s),
            show_s(self.slowest_s)
        )
    }
}

fn call_row(calls: &[Call], agent: Agent, phase: Phase) -> CallRow {
    let mut row = CallRow {
        agent,
        phase,
        calls: 0,
        ok: 0,
        refused: BTreeMap::new(),
        cut: 0,
        failed: BTreeMap::new(),
        unanswered: 0,
        p50_s: None,
        p99_s: None,
    };
    let mine = || calls.iter().filter(|call| call.agent == agent && call.phase == phase);
    for call in mine() {
        row.calls += 1;
        match &call.outcome {
            Outcome::Ok => row.ok += 1,
            Outcome::Cut => row.cut += 1,
            Outcome::Unanswered => row.unanswered += 1,
            Outcome::Refused(reason) => *row.refused.entry(reason.clone()).or_default() += 1,
            Outcome::Failed(reason) => *row.failed.entry(reason.clone()).or_default() += 1,
        }
    }
    let took: Samples = mine().map(Call::took).collect();
    row.p50_s = took.quantile(50).map(round);
    row.p99_s = took.quantile(99).map(round);
    row
}

fn trip_row(trips: &[Trip], phase: Phase) -> TripRow {
    let mine = || trips.iter().filter(|trip| trip.phase == phase);
    let with = |answer: Answer| mine().filter(|trip| trip.answer == answer).count();
    let took: Samples = mine().map(Trip::took).collect();
    TripRow {
        phase,
        trips: took.len(),
        full: with(Answer::Full),
        partial: with(Answer::Partial),
        nothing: with(Answer::Nothing),
        p99_s: took.quantile(99).map(round),
        slowest_s: took.max().map(round),
    }
}

fn mark(pass: bool, color: bool) -> &'static str {
    match (pass, color) {
        (true, false) => "PASS",
        (false, false) => "FAIL",
        (true, true) => "\x1b[32mPASS\x1b[0m",
        (false, true) => "\x1b[1;31mFAIL\x1b[0m",
    }
}

/// Seconds, to the microsecond.
pub(super) fn round(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e6
}

/// A duration in three digits or so.
pub(super) fn show(d: Duration) -> String {
    match d.as_secs_f64() {
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.2} s"),
        s => format!("{s:.1} s"),
    }
}

fn show_s(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |s| show(Duration::from_secs_f64(s)))
}

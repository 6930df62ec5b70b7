//! The report for people: Markdown whose columns are aligned, so that it reads as well in a terminal.

use std::fmt::Write as _;

use crate::Failure;
use crate::figures::median;
use crate::model::{Backlog, Cell, Quantiles, Report, Waiting};
use crate::route::Kind;

/// Between these a document holds the table.
const BEGIN: &str = "<!-- bench: begin -->";
const END: &str = "<!-- bench: end -->";

/// Everything that was measured, and how it stands to its target.
pub(crate) fn of(report: &Report) -> String {
    let mut out = String::new();
    let about = &report.about;
    let nginx = if about.nginx.is_empty() { String::new() } else { format!(", nginx {}", about.nginx) };
    let _ = writeln!(
        out,
        "Commit {}, profile `{}`; {}, {} cores, Linux {}{nginx}; medians of {} rounds of {} s; load average before it {}.",
        about.commit,
        about.profile,
        about.processor,
        about.cores,
        about.kernel,
        about.rounds,
        about.seconds,
        about.load
    );
    if about.load > about.cores as f64 / 4.0 {
        let _ = writeln!(
            out,
            "\n**The machine was busy with something else: ratios and CPU per call are worth more than rates and times.**"
        );
    }
    cells(&mut out, report);
    rest(&mut out, report);
    verdicts(&mut out, report);
    for note in &report.notes {
        let _ = writeln!(out, "\n{note}.");
    }
    out
}

/// The document with this table in the place of the one it has.
pub(crate) fn put(document: &str, table: &str) -> Result<String, Failure> {
    let missing = || format!("it has no lines `{BEGIN}` and `{END}` to put the table between");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

fn cells(out: &mut String, report: &Report) {
    let mut rows = Vec::new();
    let mut conns: Vec<usize> = report.cells.iter().map(|cell| cell.conns).collect();
    conns.extend(report.sqlite.iter().map(|it| it.fold));
    conns.sort_unstable();
    conns.dedup();
    for conns in conns {
        for cell in report.cells.iter().filter(|cell| cell.conns == conns) {
            rows.push(cell_row(cell));
        }
        if let Some(it) = report.sqlite(conns) {
            let rate = whole(median(it.rates.iter().copied()).unwrap_or_default());
            rows.push([conns.to_string(), "SQLite alone".into(), rate].into_iter().chain(dashes(5)).collect());
        }
    }
    if !rows.is_empty() {
        let head = ["connections", "path", "calls/s", "p50 ms", "p99 ms", "CPU s per 1000 calls", "RSS MiB", "errors"];
        write_table(out, &head, &rows);
    }
}

fn cell_row(cell: &Cell) -> Vec<String> {
    let name = match cell.path {
        Kind::Direct => "direct",
        Kind::Nginx => "nginx",
        Kind::Memory => "Watertight, memory",
        Kind::Durable => "Watertight, durable",
    };
    let errors: u64 = cell.rounds.iter().map(|round| round.errors).sum();
    vec![
        cell.conns.to_string(),
        name.into(),
        whole(cell.median(|round| round.rate)),
        format!("{:.3}", cell.median(|round| round.p50)),
        format!("{:.3}", cell.median(|round| round.p99)),
        format!("{:.4}", cell.median(|round| round.cpu)),
        mebibytes(cell.median(|round| round.resident as f64)),
        errors.to_string(),
    ]
}

fn rest(out: &mut String, report: &Report) {
    let mut rows = Vec::new();
    let quantiles = |what: String, all: &[Quantiles]| {
        let of = |pick: fn(&Quantiles) -> f64| median(all.iter().map(pick)).unwrap_or_default();
        vec![what, format!("{:.3} ms", of(|it| it.p50)), format!("{:.3} ms", of(|it| it.p99))]
    };
    if let Some(it) = &report.refusal {
        rows.push(quantiles("a refusal, idle".into(), &it.idle));
        rows.push(quantiles(format!("a refusal beside {} durable callers", it.callers), &it.loaded));
    }
    if let Some(it) = &report.list {
        rows.push(quantiles(format!("a page of {} of ListTasks over {} tasks", it.page, it.tasks), &it.walks));
    }
    if !rows.is_empty() {
        write_table(out, &["one at a time", "p50", "p99"], &rows);
    }
    let rows: Vec<_> = report
        .footprint
        .iter()
        .map(|it| {
            let resident = median(it.resident.iter().map(|&bytes| bytes as f64)).unwrap_or_default();
            let start = median(it.starts.iter().copied()).unwrap_or_default();
            vec![format!("{} tasks", it.tasks), format!("{start:.1} ms"), format!("{} MiB", mebibytes(resident))]
        })
        .collect();
    if !rows.is_empty() {
        write_table(out, &["started on a store of", "exec to `listening on`", "RSS when idle"], &rows);
    }
    if let Some(it) = &report.backlog {
        backlog(out, it);
    }
    if let Some(it) = &report.waiting {
        waiting(out, it);
    }
}

fn waiting(out: &mut String, it: &Waiting) {
    let of = |all: &[f64]| median(all.iter().copied()).unwrap_or_default();
    let arrives = |which: fn(&Quantiles) -> f64| median(it.arrives.iter().map(which)).unwrap_or_default();
    let row = vec![
        whole(it.callers as f64),
        format!("{:.0}", it.callers as f64 * 60.0 / it.held.max(1) as f64),
        format!("{:.2} %", of(&it.cpu) * 100.0),
        format!("{:.1} KiB", of(&it.each) / 1024.0),
        format!("{:.2} ms", arrives(|it| it.p50)),
        format!("{:.2} ms", arrives(|it| it.p99)),
    ];
    let head = ["wait for results", "requests a minute", "CPU, idle", "RSS each", "a result arrives, p50", "p99"];
    write_table(out, &head, &[row]);
}

fn backlog(out: &mut String, it: &Backlog) {
    let of = |all: &[f64]| median(all.iter().copied()).unwrap_or_default();
    let resident = median(it.resident.iter().map(|&bytes| bytes as f64)).unwrap_or_default();
    let row = vec![
        whole(it.tasks as f64),
        format!("{}/s", whole(of(&it.rates))),
        format!("{} MiB", mebibytes(resident)),
        it.threads.to_string(),
        format!("{:.0} ms", of(&it.ready)),
    ];
    write_table(out, &["waiting tasks", "accepted", "RSS", "threads", "killed, exec to ready"], &[row]);
}

/// Each figure against its target. What was not measured is not judged.
fn verdicts(out: &mut String, report: &Report) {
    let mut rows = Vec::new();
    let mut judge = |what: String, measured: String, target: String, holds: bool| {
        rows.push(vec![what, measured, target, if holds { "PASS" } else { "below" }.to_owned()]);
    };
    for conns in [16, 128] {
        if let Some(ratio) = ratio(report, Kind::Memory, Kind::Nginx, conns) {
            judge(format!("memory / nginx, {conns} connections"), format!("{ratio:.2}"), "≥ 0.60".into(), ratio >= 0.6);
        }
    }
    if let (Some(memory), Some(direct)) = (report.cell(Kind::Memory, 1), report.cell(Kind::Direct, 1)) {
        let added = median(memory.rounds.iter().zip(&direct.rounds).map(|(m, d)| m.p50 - d.p50)).unwrap_or_default();
        judge(
            "p50 added by memory mode, 1 connection".into(),
            format!("{added:.3} ms"),
            "< 0.150 ms".into(),
            added < 0.15,
        );
    }
    for (conns, least) in [(1, 0.35), (16, 0.6), (64, 0.6), (128, 0.6)] {
        if let (Some(durable), Some(sqlite)) = (report.cell(Kind::Durable, conns), report.sqlite(conns)) {
            let ratios = durable.rounds.iter().zip(&sqlite.rates).map(|(round, rate)| round.rate / rate);
            let ratio = median(ratios).unwrap_or_default();
            let what = format!("durable / SQLite alone, {conns} connection{}", if conns == 1 { "" } else { "s" });
            judge(what, format!("{ratio:.2}"), format!("≥ {least:.2}"), ratio >= least);
        }
    }
    if let Some(it) = &report.refusal {
        let p50 = median(it.loaded.iter().map(|it| it.p50)).unwrap_or_default();
        let what = format!("refusal p50 beside {} durable callers", it.callers);
        judge(what, format!("{p50:.3} ms"), "< 0.100 ms".into(), p50 < 0.1);
    }
    if let Some(it) = &report.list {
        let p99 = median(it.walks.iter().map(|it| it.p99)).unwrap_or_default();
        judge("ListTasks page, p99".into(), format!("{p99:.3} ms"), "< 5 ms".into(), p99 < 5.0);
    }
    if let Some(it) = &report.backlog {
        let ready = median(it.ready.iter().copied()).unwrap_or_default();
        let what = format!("{} waiting, killed: ready again", whole(it.tasks as f64));
        judge(what, format!("{ready:.0} ms"), "< 3000 ms".into(), ready < 3_000.0);
    }
    if let Some(it) = &report.waiting {
        let p99 = median(it.arrives.iter().map(|it| it.p99)).unwrap_or_default();
        let what = format!("a result at one of {} that wait, p99", whole(it.callers as f64));
        judge(what, format!("{p99:.2} ms"), "< 50 ms".into(), p99 < 50.0);
    }
    if !rows.is_empty() {
        write_table(out, &["target", "measured", "wanted", ""], &rows);
    }
}

/// Of the same rounds, so that what disturbed one disturbed both.
fn ratio(report: &Report, of: Kind, to: Kind, conns: usize) -> Option<f64> {
    let (of, to) = (report.cell(of, conns)?, report.cell(to, conns)?);
    median(of.rounds.iter().zip(&to.rounds).map(|(of, to)| of.rate / to.rate))
}

fn write_table(out: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let head: Vec<String> = head.iter().map(|&it| it.to_owned()).collect();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).chain(head.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let line = |row: &[String]| {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let width = width(at);
            if cell.starts_with(|c: char| c.is_ascii_digit()) {
                format!(" {cell:>width$} |")
            } else {
                format!(" {cell:<width$} |")
            }
        });
        format!("|{}\n", cells.collect::<String>())
    };
    out.push('\n');
    out.push_str(&line(&head));
    let rule: String = (0..head.len()).map(|at| format!("{}|", "-".repeat(width(at) + 2))).collect();
    let _ = writeln!(out, "|{rule}");
    rows.iter().for_each(|row| out.push_str(&line(row)));
}

fn dashes(n: usize) -> impl Iterator<Item = String> {
    std::iter::repeat_n("–".to_owned(), n)
}

/// With a comma at the thousands.
fn whole(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.0}", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Round, Sqlite};

    fn cell(path: Kind, conns: usize, rates: [f64; 3]) -> Cell {
        let rounds = rates.map(|rate| Round { rate, p50: 1e3 / rate, ..Round::default() });
        Cell { path, conns, rounds: rounds.to_vec() }
    }

    #[test]
    fn figures_of_the_same_round_are_compared() {
        let mut report = Report::default();
        report.cells.push(cell(Kind::Nginx, 16, [100.0, 200.0, 300.0]));
        report.cells.push(cell(Kind::Memory, 16, [50.0, 140.0, 180.0]));
        report.cells.push(cell(Kind::Durable, 1, [30.0, 10.0, 40.0]));
        report.sqlite.push(Sqlite { fold: 1, rates: vec![100.0, 100.0, 100.0] });
        let text = of(&report);
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{text}"));
        let [memory, durable] = ["memory / nginx, 16 connections", "durable / SQLite alone, 1 connection "].map(line);
        assert!(memory.contains(" 0.60 ") && memory.contains(" PASS "), "{memory}");
        assert!(durable.contains(" 0.30 ") && durable.contains(" below "), "{durable}");
        assert!(!text.contains("refusal"), "what was not measured is not judged: {text}");
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let document = format!("above\n{BEGIN}\nold\n{END}\nbelow\n");
        let new = put(&document, "| new |").unwrap();
        assert_eq!(new, format!("above\n{BEGIN}\n| new |\n{END}\nbelow\n"));
        assert_eq!(put(&new, "| new |").unwrap(), new);
        assert!(put("no marks", "").is_err());
        assert_eq!((whole(999.0), whole(1_234_567.4)), ("999".to_owned(), "1,234,567".to_owned()));
    }
}

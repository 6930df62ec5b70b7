//! The whole measurement, in order: the cells of the table, interleaved; refusals; start and memory; lists.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use crate::ask::Asker;
use crate::call::{Request, find};
use crate::cell::{self, FIRST};
use crate::clock::seconds;
use crate::figures::Waits;
use crate::load::Load;
use crate::model::{About, Cell, Footprint, List, Quantiles, Refusal, Report, Sqlite};
use crate::route::{self, Kind, Place};
use crate::{Failure, RunArgs, backlog, floor, stop, waiting};

/// What can be asked for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Direct,
    Nginx,
    Memory,
    Durable,
    Sqlite,
    Refusal,
    Footprint,
    List,
    Backlog,
    Waiting,
}

/// Durable callers beside whom refusals are asked for.
const BUSY: usize = 128;
/// Tasks on a page of a list: the most that A2A gives.
const PAGE: usize = 100;
/// A gateway's memory is looked at so long after its start.
pub(crate) const SETTLED: Duration = Duration::from_millis(500);

pub(crate) fn all(args: &RunArgs) -> Result<Report, Failure> {
    std::fs::create_dir_all(&args.out)?;
    // On the same disk as the figures, because a temporary directory may be memory.
    let temporary = tempfile::Builder::new().prefix("run-").tempdir_in(&args.out)?;
    let place = Place {
        gateway: canonical(&args.gateway)?,
        nginx: args.nginx.as_deref().map(canonical).transpose()?,
        dir: temporary.path().canonicalize()?,
    };
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let mut report = Report { about: about(args, &place), ..Report::default() };
    if wanted(Part::Nginx) && place.nginx.is_none() {
        report.notes.push("nginx was left out: none was named".into());
    }
    for &conns in &args.conns {
        for round in 1..=args.rounds {
            for (part, kind) in [
                (Part::Direct, Kind::Direct),
                (Part::Nginx, Kind::Nginx),
                (Part::Memory, Kind::Memory),
                (Part::Durable, Kind::Durable),
            ] {
                if wanted(part) && (kind != Kind::Nginx || place.nginx.is_some()) {
                    stop::check()?;
                    one_cell(&mut report, kind, &place, conns, round, args)?;
                }
            }
            if wanted(Part::Sqlite) {
                let dir = route::fresh(&place, "floor")?;
                let rate = floor::rate(&dir, conns, seconds(args.seconds.min(2.0)))?;
                say(&format!("{conns:>4} connections, round {round}: sqlite   {rate:>8.0}/s"));
                match report.sqlite.iter_mut().find(|it| it.fold == conns) {
                    Some(known) => known.rates.push(rate),
                    None => report.sqlite.push(Sqlite { fold: conns, rates: vec![rate] }),
                }
            }
        }
    }
    if wanted(Part::Refusal) {
        report.refusal = Some(refusal(&place, args)?);
    }
    if wanted(Part::Footprint) {
        report.footprint.push(footprint(&place, args, 0)?);
    }
    if wanted(Part::List) || wanted(Part::Footprint) {
        let dir = route::fresh(&place, "many")?;
        let list = many(&place, &dir, args)?;
        if wanted(Part::Footprint) {
            report.footprint.push(footprint(&place, args, list.tasks)?);
        }
        report.list = wanted(Part::List).then_some(list);
    }
    if wanted(Part::Backlog) {
        report.backlog = Some(backlog::measure(&place, args)?);
    }
    if wanted(Part::Waiting) {
        report.waiting = Some(waiting::measure(&place, args)?);
    }
    Ok(report)
}

/// A line about how far it is, to stderr.
pub(crate) fn say(line: &str) {
    let _nobody_reads = writeln!(std::io::stderr(), "{line}");
}

fn one_cell(
    report: &mut Report,
    kind: Kind,
    place: &Place,
    conns: usize,
    round: usize,
    args: &RunArgs,
) -> Result<(), Failure> {
    let found = cell::measure(kind, place, conns, args.warm_up, args.seconds)
        .map_err(|e| format!("{} at {conns} connections: {e}", kind.as_str()))?;
    say(&format!(
        "{conns:>4} connections, round {round}: {:<8} {:>8.0}/s  p50 {:>7.3} ms  p99 {:>7.3} ms  CPU {:.4} s/1000",
        kind.as_str(),
        found.rate,
        found.p50,
        found.p99,
        found.cpu
    ));
    match report.cells.iter_mut().find(|cell| cell.path == kind && cell.conns == conns) {
        Some(cell) => cell.rounds.push(found),
        None => report.cells.push(Cell { path: kind, conns, rounds: vec![found] }),
    }
    Ok(())
}

/// An agent with one slot, taken by a call that is never answered, beside the one that works.
fn refusal(place: &Place, args: &RunArgs) -> Result<Refusal, Failure> {
    let mut found = Refusal { callers: BUSY, ..Refusal::default() };
    for round in 1..=args.rounds {
        stop::check()?;
        let (_agent, agent) = route::agent(place)?;
        let dir = route::fresh(place, "refusal")?;
        let agents = format!(
            "{}\n[agents.full]\nurl = \"http://{agent}/hang\"\nmode = \"blocking\"\nmax_in_flight = 1\nmax_waiting = 0\n",
            route::agents(Kind::Durable, agent)
        );
        let (_gateway, addr) = route::gateway(place, &dir, &agents)?;
        let mut holder = Asker::new(addr)?;
        let params = r#"{"message":{"messageId":"holder","role":"ROLE_USER","parts":[{"text":"never answered"}]}}"#;
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#);
        holder.leave("/agents/full", &body)?;
        thread::sleep(Duration::from_millis(300));

        let idle = {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let asked = scope.spawn(|| refused(addr, 1_000_000_000, &over));
                thread::sleep(seconds(args.seconds / 2.0));
                over.store(true, Relaxed);
                asked.join().map_err(|_| "the asking thread panicked")?
            })?
        };
        let over = AtomicBool::new(false);
        let mut load = Load::start(addr, "/agents/echo", BUSY, FIRST)?;
        load.run(seconds(args.warm_up))?;
        let (loaded, beside) = thread::scope(|scope| {
            let asked = scope.spawn(|| refused(addr, 2_000_000_000, &over));
            let tally = load.run(seconds(args.seconds));
            over.store(true, Relaxed);
            let asked = asked.join().map_err(|_| "the asking thread panicked")??;
            Ok::<_, Failure>((asked, tally?.rate()))
        })?;
        say(&format!(
            "refusals, round {round}: idle p50 {:.3} ms, p99 {:.3} ms; beside {BUSY} callers ({beside:.0}/s) p50 {:.3} ms, p99 {:.3} ms",
            idle.p50, idle.p99, loaded.p50, loaded.p99
        ));
        found.idle.push(idle);
        found.loaded.push(loaded);
    }
    Ok(found)
}

/// Asks one at a time until it is over; every answer has to be the refusal.
fn refused(addr: std::net::SocketAddr, first: u64, over: &AtomicBool) -> Result<Quantiles, Failure> {
    let mut asker = Asker::new(addr)?;
    let mut request = Request::new(addr, "/agents/full");
    let mut waits = Waits::default();
    for n in first.. {
        if over.load(Relaxed) {
            break;
        }
        stop::check()?;
        let answer = asker.send(request.number(n))?;
        if find(&answer.body, b"bulkhead_full").is_none() {
            let text = String::from_utf8_lossy(&answer.body).escape_debug().to_string();
            return Err(format!("an agent without slots answered {}: {text}", answer.status).into());
        }
        waits.add(answer.took);
    }
    Ok(quantiles(&mut waits))
}

/// Starts on a new store, or on the one that [`many`] left.
fn footprint(place: &Place, args: &RunArgs, tasks: usize) -> Result<Footprint, Failure> {
    let mut found = Footprint { tasks, starts: Vec::new(), resident: Vec::new() };
    let (_agent, agent) = route::agent(place)?;
    for _ in 0..args.rounds {
        stop::check()?;
        let dir = if tasks == 0 { route::fresh(place, "empty")? } else { place.dir.join("many") };
        let (gateway, _) = route::gateway(place, &dir, &route::agents(Kind::Durable, agent))?;
        let (_, start) = gateway.ready.ok_or("it never said that it listens")?;
        thread::sleep(SETTLED);
        found.starts.push(start.as_secs_f64() * 1e3);
        found.resident.push(gateway.used().bytes);
    }
    Ok(found)
}

/// Fills a store through the front door, and walks through its list.
fn many(place: &Place, dir: &Path, args: &RunArgs) -> Result<List, Failure> {
    say(&format!("a store with {} tasks", args.tasks));
    let (_agent, agent) = route::agent(place)?;
    let (_gateway, addr) = route::gateway(place, dir, &route::agents(Kind::Durable, agent))?;
    {
        let mut load = Load::start(addr, "/agents/echo", BUSY.min(args.tasks), FIRST)?;
        let mut done = 0;
        while done < args.tasks {
            done += load.run(Duration::from_millis(5))?.waits.len();
        }
    }
    let mut asker = Asker::new(addr)?;
    let mut found = List { tasks: 0, page: PAGE, walks: Vec::new() };
    for _ in 0..args.rounds {
        let (mut waits, mut token, mut tasks) = (Waits::default(), String::new(), 0);
        loop {
            stop::check()?;
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{{"pageSize":{PAGE},"pageToken":{}}}}}"#,
                Value::from(token)
            );
            let answer = asker.post("/agents/echo", &body)?;
            let page: Value = serde_json::from_slice(&answer.body)?;
            let Some(listed) = page["result"]["tasks"].as_array() else {
                return Err(format!("ListTasks answered {}: {}", answer.status, page["error"]).into());
            };
            waits.add(answer.took);
            tasks += listed.len();
            token = page["result"]["nextPageToken"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                break;
            }
        }
        found.tasks = tasks;
        found.walks.push(quantiles(&mut waits));
    }
    Ok(found)
}

pub(crate) fn quantiles(waits: &mut Waits) -> Quantiles {
    Quantiles { p50: waits.quantile(0.5), p99: waits.quantile(0.99), count: waits.len() }
}

fn about(args: &RunArgs, place: &Place) -> About {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let nginx = place.nginx.as_ref().and_then(|nginx| said(Command::new(nginx).arg("-v")));
    let changed = said(Command::new("git").args(["status", "--porcelain", "--untracked-files=no"])).is_some();
    let commit = said(Command::new("git").args(["rev-parse", "--short", "HEAD"]));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    About {
        load: load.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or_default(),
        commit: commit.map_or_else(|| "unknown".into(), |it| if changed { format!("{it} and changes") } else { it }),
        profile: args.profile.clone(),
        processor: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
        cores: thread::available_parallelism().map_or(0, usize::from),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        nginx: nginx.and_then(|said| Some(said.split_once("nginx/")?.1.to_owned())).unwrap_or_default(),
        rounds: args.rounds,
        seconds: args.seconds,
    }
}

/// What a program says, on whichever of its outputs.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
    Some(text).filter(|text| !text.is_empty())
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| format!("{}: {e}", path.display()).into())
}

//! What a full store costs: to open it, to load what is live, a page of a list with its records, a round of pruning.
//! Then a page beside what is on its way from the log to the tables.
//!
//! ```text
//! cargo run --release -p watertight-store --example lists [TASKS]
//! ```
//!
//! One caller has 10,000 tasks, the rest belong to a hundred others; every hundredth of those is live.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use watertight_engine::ids::{AgentId, Attempt, Key, Principal, TaskId};
use watertight_engine::record::{Delivery, Phase, Row, Save, TaskState, Turn};
use watertight_policy::budget::Budget;
use watertight_policy::time::{Span, Time};
use watertight_store::{Body, CommitError, Dialect, ListQuery, Store, Write};

/// Tasks of the one who lists.
const OWN: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let tasks: u64 = std::env::args().nth(1).as_deref().unwrap_or("200000").parse()?;
    let home = tempfile::tempdir()?;
    let mut out = std::io::stdout().lock();
    let mut tell = |what: &str, took: Duration| writeln!(out, "{what:<52} {:>9.2} ms", took.as_secs_f64() * 1e3);

    let began = now();
    write(&Store::open(home.path(), 0)?, (1..=tasks).map(task))?.close();
    tell(&format!("{tasks} tasks written"), began.elapsed())?;
    let began = now();
    let (store, lease) = Store::open(home.path(), 0)?;
    tell("opened", began.elapsed())?;
    let began = now();
    let live = store.load()?.len();
    tell(&format!("{live} live ones loaded"), began.elapsed())?;

    let own = ListQuery::of(principal(0));
    let failed = ListQuery { states: Some(vec![TaskState::Failed]), ..own.clone() };
    let context = ListQuery { context: Some("context-77".into()), ..own.clone() };
    for (what, mut query) in [("all", own.clone()), ("those that failed", failed), ("one context", context)] {
        let (mut pages, mut rows, mut worst, began, used) = (0, 0, Duration::ZERO, now(), cpu());
        loop {
            let page_began = now();
            let page = store.list(&query)?;
            let tasks: Vec<TaskId> = page.rows.iter().map(|row| row.task).collect();
            store.records(&tasks, usize::MAX)?;
            worst = worst.max(page_began.elapsed());
            (pages, rows) = (pages + 1, rows + page.rows.len());
            let Some(last) = page.rows.last() else { break };
            query.after = Some((last.changed, last.task));
        }
        tell(&format!("a page of {what} ({pages} pages, {rows} tasks)"), began.elapsed() / pages)?;
        tell("  the slowest", worst)?;
        tell("  of CPU a page", (cpu() - used) / pages)?;
    }
    let began = now();
    let pruned = store.prune(lease.now, lease.now.since(Time::from_micros(20_000)), Span::MAX)?;
    tell(&format!("{} tasks pruned", pruned.tasks), began.elapsed())?;
    store.close();
    for (tasks, what) in
        [(0, Fresh::New), (1_000, Fresh::New), (4_000, Fresh::New), (1_000, Fresh::Changed), (4_000, Fresh::Changed)]
    {
        for moves in [false, true] {
            let (mut took, worst) = beside(tasks, what, moves)?;
            took.sort_unstable();
            let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default();
            let moves = if moves { "on the move" } else { "lying still" };
            tell(&format!("a page beside {tasks} {what:?}, {moves}: p50"), at(50))?;
            tell(&format!("  p99 of {}", took.len()), at(99))?;
            tell("  the slowest", worst)?;
        }
    }
    Ok(())
}

/// What the log has that the tables have not.
#[derive(Clone, Copy, Debug)]
enum Fresh {
    /// Tasks of which the tables know nothing.
    New,
    /// Tasks of which the tables have an earlier state.
    Changed,
}

/// Pages of a caller with 20,000 tasks, of which so many are on their way to the tables: as they are, or while they go.
fn beside(tasks: u64, what: Fresh, moves: bool) -> Result<(Vec<Duration>, Duration), Box<dyn Error>> {
    let home = tempfile::tempdir()?;
    let own = |n| {
        task(n).map(|mut write| {
            if let Save::Delegation { row, .. } = &mut write.save {
                let row = Arc::make_mut(row);
                (row.principal, row.state) = (principal(0), TaskState::Working);
            }
            if let Save::Key { key, .. } = &mut write.save {
                key.principal = principal(0);
            }
            write
        })
    };
    write(&Store::open(home.path(), 0)?, (1..=20_000).map(own))?.close();
    let opened = Store::open(home.path(), 0)?;
    let ended = |n| {
        own(n).map(|mut write| {
            if let Save::Delegation { row, .. } = &mut write.save {
                let row = Arc::make_mut(row);
                (row.version, row.state) = (2, TaskState::Completed);
                row.changed = Time::from_micros(100_000 + n);
            }
            write
        })
    };
    let store = match what {
        Fresh::New => write(&opened, (30_001..=30_000 + tasks).map(own))?,
        Fresh::Changed => write(&opened, (1..=tasks).map(ended))?,
    };
    store.hang(!moves);
    let (mut all, mut worst) = (Vec::new(), Duration::ZERO);
    let began = now();
    while began.elapsed() < Duration::from_millis(1_200) {
        let mut query = ListQuery::of(principal(0));
        for _ in 0..50 {
            let began = now();
            let page = store.list(&query)?;
            let tasks: Vec<TaskId> = page.rows.iter().map(|row| row.task).collect();
            store.records(&tasks, usize::MAX)?;
            all.push(began.elapsed());
            worst = worst.max(began.elapsed());
            assert_eq!(page.rows.len(), 100);
            query.after = page.rows.last().map(|last| (last.changed, last.task));
        }
    }
    store.hang(false);
    store.close();
    Ok((all, worst))
}

/// Commits of a hundred each, and waits for them.
fn write(
    (store, lease): &(Store, watertight_store::Lease),
    tasks: impl Iterator<Item = [Write; 2]>,
) -> Result<Store, Box<dyn Error>> {
    let (sender, answers) = channel();
    let mut tasks = tasks.peekable();
    while tasks.peek().is_some() {
        while !store.room() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let sender = sender.clone();
        let done = move |_, result: Result<(), CommitError>| drop(sender.send(result));
        store.commit(0, lease.fence, tasks.by_ref().take(100).flatten().collect(), Box::new(done));
    }
    drop(sender);
    for answer in answers {
        answer.map_err(|error| error.to_string())?;
    }
    Ok(store.clone())
}

fn principal(n: u64) -> Principal {
    Principal { tenant: "acme".into(), caller: format!("caller-{n}").as_str().into() }
}

fn task(n: u64) -> [Write; 2] {
    // The one's tasks lie between those of the others.
    let own = n.is_multiple_of(20) && n / 20 <= OWN || n <= OWN / 2 && !n.is_multiple_of(20);
    let over = if n.is_multiple_of(50) { TaskState::Failed } else { TaskState::Completed };
    let state = if !own && n.is_multiple_of(101) { TaskState::Working } else { over };
    let task = TaskId(u128::from(n) << 80);
    let message_id = format!("{:032x}", u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let agent = AgentId::new(if n.is_multiple_of(3) { "hotels" } else { "flights" });
    let (context, now) = (format!("context-{}", n / 10), Time::from_micros(n));
    let budget = Budget { deadline: Time::FAR, depth: 4, fanout: 8 };
    let turn = Turn::new(1, message_id.as_str().into(), n.into(), budget);
    let who = principal(if own { 0 } else { 1 + n % 100 });
    let row = Row {
        version: 1,
        remote_task: Some(format!("r{message_id}").as_str().into()),
        state,
        delivery: Delivery::Delivered,
        attempt: Attempt(1),
        turn: Turn { phase: Phase::Ended, attempts: 1, ..turn.clone() },
        ..Row::new(task, who, agent, context.as_str().into(), now, turn)
    };
    let Row { principal, agent, .. } = row.clone();
    let key = Key { principal, agent, message_id: row.turn.message_id.clone() };
    let text = |letter| Some(Body { dialect: Dialect::V1, bytes: vec![letter; 1_200].into() });
    let save = Save::Delegation { row: row.into(), message: true, record: true };
    [
        Write { save, message: text(b'm'), record: text(b'a') },
        Write::bare(Save::Key { key, fingerprint: u128::from(n), task, turn: 1 }),
    ]
}

/// What this process has used so far, to a hundredth of a second.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = |at: usize| stat.rsplit(')').next()?.split_whitespace().nth(at)?.parse::<u64>().ok();
    Duration::from_millis((ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) * 10)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}

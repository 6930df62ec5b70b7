//! What a call costs in the store, with 1, 16 and 128 callers: two commits, each of which its caller waits for.
//!
//! ```text
//! cargo run --release -p watertight-store --example rate [DIRECTORY]
//! ```
//!
//! The first commit saves a row, its message of 1.2 kB and its key; the second the row's end and a record of 1.2 kB. The
//! second line of each pair is SQLite with the same two commits a call and nothing else: one thread, the leanest schema,
//! all callers' calls in each transaction. Only what stands beside each other in one run can be compared.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use watertight_engine::ids::{AgentId, Key, Principal, TaskId};
use watertight_engine::record::{Phase, Row, Save, TaskState, Turn};
use watertight_policy::budget::Budget;
use watertight_policy::time::Time;
use watertight_store::{Body, CommitError, Dialect, Store, Write};

const SECONDS: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let directory = std::env::args_os().nth(1).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let (store, lease) = Store::open(&directory, 0)?;
    let ids = AtomicU64::new(u64::try_from(now().1)? << 8);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "callers          calls/s  commits/transaction  CPU us/call  writes/call  kB/call      p50      p99"
    )?;
    for callers in [1, 16, 128] {
        let (before, used) = (store.stats(), used());
        let mut waits = measure(&store, lease.fence, callers, &ids)?;
        let after = store.stats();
        waits.sort_unstable();
        let folded = (after.commits - before.commits) as f64 / (after.transactions - before.transactions) as f64;
        let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or_default().as_secs_f64() * 1e3;
        let line = figures(waits.len(), &used);
        writeln!(
            out,
            "{callers:>7}  store  {:>9}  {folded:>19.1}  {}  {:>5.2} ms  {:>5.2} ms",
            line.0,
            line.1,
            at(50),
            at(99)
        )?;
        let used = self::used();
        let calls = alone(&temporary.path().join(format!("alone-{callers}")), callers)?;
        let line = figures(calls, &used);
        writeln!(out, "{:>7}  alone  {:>9}  {callers:>19}  {}", "", line.0, line.1)?;
    }
    store.close();
    Ok(())
}

/// CPU seconds, calls of write, and bytes written by this process.
fn used() -> [f64; 3] {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = |at: usize| stat.rsplit(')').next()?.split_whitespace().nth(at)?.parse::<f64>().ok();
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let number = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    let cpu = (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / 100.0;
    [cpu, number("syscw:").unwrap_or_default(), number("wchar:").unwrap_or_default()]
}

fn figures(calls: usize, before: &[f64; 3]) -> (String, String) {
    let after = used();
    let each = |at: usize| (after[at] - before[at]) / calls.max(1) as f64;
    let rate = calls as f64 / SECONDS.as_secs_f64();
    (format!("{rate:.0}"), format!("{:>11.0}  {:>11.1}  {:>7.1}", each(0) * 1e6, each(1), each(2) / 1e3))
}

/// How long each call took, over all callers.
fn measure(store: &Store, fence: u64, callers: usize, ids: &AtomicU64) -> Result<Vec<Duration>, Box<dyn Error>> {
    let started = now().0;
    let caller = || {
        let mut waits = Vec::new();
        let (sender, answers) = sync_channel(1);
        while started.elapsed() < SECONDS {
            let sent = now().0;
            let writes = delegation(ids.fetch_add(1, Relaxed));
            let end = ended(&writes);
            for writes in [writes, end] {
                let sender = sender.clone();
                let done = move |_, result: Result<(), CommitError>| drop(sender.send(result));
                store.commit(0, fence, writes, Box::new(done));
                answers.recv().map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            }
            waits.push(sent.elapsed());
        }
        Ok::<_, String>(waits)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a caller panicked")??);
        }
        Ok(all)
    })
}

/// The same by SQLite alone; how many calls.
fn alone(directory: &Path, fold: usize) -> Result<usize, Box<dyn Error>> {
    std::fs::create_dir_all(directory)?;
    let db = Connection::open(directory.join("alone.sqlite"))?;
    db.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(()))?;
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000; PRAGMA cache_size = -16384; \
         CREATE TABLE task (task BLOB PRIMARY KEY, state INTEGER NOT NULL, changed INTEGER NOT NULL, row BLOB NOT NULL) STRICT; \
         CREATE TABLE body (task BLOB NOT NULL, kind INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, kind)) STRICT; \
         CREATE TABLE dedupe (message_id TEXT PRIMARY KEY, task BLOB NOT NULL) STRICT, WITHOUT ROWID;",
    )?;
    let run = |sql: &str, params: &[&dyn rusqlite::ToSql]| db.prepare_cached(sql)?.execute(params).map(drop);
    let (row, text) = (vec![b'r'; 240], vec![b'm'; 1_200]);
    let (started, mut calls) = (now().0, 0_usize);
    while started.elapsed() < SECONDS {
        let tasks = (calls as u64..(calls + fold) as u64).map(|n| (u128::from(n) << 80).to_be_bytes());
        run("BEGIN IMMEDIATE", params![])?;
        for task in tasks.clone() {
            let message_id = format!(
                "{:036x}",
                u128::from_be_bytes(task).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 3
            );
            run("INSERT INTO task VALUES (?1, 1, 5, ?2)", params![task, row])?;
            run("INSERT INTO body VALUES (?1, 0, ?2)", params![task, text])?;
            run("INSERT INTO dedupe VALUES (?1, ?2)", params![message_id, task])?;
        }
        run("COMMIT", params![])?;
        run("BEGIN IMMEDIATE", params![])?;
        for task in tasks {
            run("UPDATE task SET state = 4, changed = 6, row = ?2 WHERE task = ?1", params![task, row])?;
            run("INSERT INTO body VALUES (?1, 1, ?2)", params![task, text])?;
        }
        run("COMMIT", params![])?;
        calls += fold;
    }
    Ok(calls)
}

/// What its end saves: the row, the agent's id, and the record.
fn ended(writes: &[Write]) -> Vec<Write> {
    let Some(Save::Delegation { row, .. }) = writes.first().map(|write| &write.save) else { return Vec::new() };
    let mut row = Row::clone(row);
    row.version += 1;
    row.state = TaskState::Completed;
    row.remote_task = Some(format!("remote-{}", row.turn.message_id).as_str().into());
    row.turn.phase = Phase::Ended;
    let record = Body { dialect: Dialect::V1, bytes: vec![b'a'; 1_200].into() };
    vec![Write {
        save: Save::Delegation { row: row.into(), message: false, record: true },
        message: None,
        record: Some(record),
    }]
}

/// What accepting a message saves: a row, its message, its key.
fn delegation(n: u64) -> Vec<Write> {
    // Callers choose message ids at random, mostly: this is what it costs.
    let message_id = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let task = TaskId(u128::from(n) << 64);
    let principal = Principal { tenant: "acme".into(), caller: "planner".into() };
    let budget = Budget { deadline: Time::FAR, depth: 4, fanout: 8 };
    let turn = Turn::new(1, message_id.as_str().into(), n.into(), budget);
    // A context that the gateway minted, in order of time.
    let context = task.to_string();
    let row = Row {
        version: 1,
        turn: Turn { phase: Phase::Dispatching, attempts: 1, ..turn.clone() },
        ..Row::new(task, principal, AgentId::new("hotels"), context.as_str().into(), Time::from_micros(n), turn)
    };
    let Row { principal, agent, .. } = row.clone();
    let key = Key { principal, agent, message_id: row.turn.message_id.clone() };
    let message = Body { dialect: Dialect::V1, bytes: vec![b'x'; 1_200].into() };
    let save = Save::Delegation { row: row.into(), message: true, record: false };
    vec![
        Write { save, message: Some(message), record: None },
        Write::bare(Save::Key { key, fingerprint: u128::from(n), task, turn: 1 }),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> (Instant, u128) {
    let epoch = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    (Instant::now(), epoch.as_micros())
}

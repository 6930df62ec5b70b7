//! How many commits a second are durable with 1, 16 and 128 callers that each wait for their answer:
//!
//! ```text
//! cargo run --release -p watertight-store --example rate [DIRECTORY]
//! ```
//!
//! Only the ratios within one run mean anything on another machine. With one caller every commit is a transaction of
//! its own; with many, those that wait go together.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use watertight_engine::ids::{AgentId, Attempt, Key, Principal, TaskId};
use watertight_engine::record::{Cancel, Delivery, Phase, ReplyKind, Row, Save, TaskState, Turn};
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
    writeln!(out, "callers  commits/s  of 1 caller  commits/transaction      p50      p99")?;
    let mut alone = 0.0;
    for callers in [1, 16, 128] {
        let before = store.stats();
        let mut waits = measure(&store, lease.fence, callers, &ids)?;
        let after = store.stats();
        waits.sort_unstable();
        let rate = waits.len() as f64 / SECONDS.as_secs_f64();
        if callers == 1 {
            alone = rate;
        }
        let folded = (after.commits - before.commits) as f64 / (after.transactions - before.transactions) as f64;
        let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or_default().as_secs_f64() * 1e3;
        let (p50, p99, ratio) = (at(50), at(99), rate / alone);
        writeln!(out, "{callers:>7}  {rate:>9.0}  {ratio:>10.1}x  {folded:>19.1}  {p50:>4.2} ms  {p99:>4.2} ms")?;
    }
    store.close();
    Ok(())
}

/// How long each commit took, over all callers.
fn measure(store: &Store, fence: u64, callers: usize, ids: &AtomicU64) -> Result<Vec<Duration>, Box<dyn Error>> {
    let started = now().0;
    let caller = || {
        let mut waits = Vec::new();
        let (sender, answers) = sync_channel(1);
        while started.elapsed() < SECONDS {
            let sent = now().0;
            let sender = sender.clone();
            let done = move |_, result: Result<(), CommitError>| drop(sender.send(result));
            store.commit(0, fence, delegation(ids.fetch_add(1, Relaxed)), Box::new(done));
            answers.recv().map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
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

/// What accepting a message saves: a row, its message of 1 KiB, its key.
fn delegation(n: u64) -> Vec<Write> {
    // Callers choose message ids at random, mostly: this is what it costs.
    let message_id = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let task = TaskId(u128::from(n) << 64);
    let row = Row {
        task,
        version: 1,
        principal: Principal { tenant: "acme".into(), caller: "planner".into() },
        agent: AgentId::new("hotels"),
        context: format!("context-{message_id}").as_str().into(),
        remote_task: None,
        remote_context: None,
        root: task,
        parent: None,
        depth: 0,
        state: TaskState::Submitted,
        reason: None,
        delivery: Delivery::NotSent,
        cancel: Cancel::None,
        reply: ReplyKind::Task,
        late: None,
        created: Time::from_micros(n),
        changed: Time::from_micros(n),
        attempt: Attempt(0),
        turn: Turn {
            no: 1,
            message_id: message_id.as_str().into(),
            fingerprint: u128::from(n),
            phase: Phase::Dispatching,
            waiting_on: None,
            not_before: Time::ZERO,
            expires: Time::FAR,
            budget: Budget { deadline: Time::FAR, depth: 4, fanout: 8 },
            runs_for: None,
            attempts: 1,
        },
    };
    let Row { principal, agent, .. } = row.clone();
    let key = Key { principal, agent, message_id: row.turn.message_id.clone() };
    let message = Body { dialect: Dialect::V1, bytes: vec![b'x'; 1_024].into() };
    let save = Save::Delegation { row: Box::new(row), message: true, record: false };
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

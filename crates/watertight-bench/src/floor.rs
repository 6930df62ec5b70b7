//! What SQLite itself gives: two commits a call, of what a durable call has to write, and nothing else at all.
//!
//! One thread, one connection, the gateway's settings (WAL, synchronous FULL, automatic checkpoints), every statement
//! prepared. `fold` calls share each of the two transactions, as group commit does with so many callers. The schema is
//! the leanest that keeps what a durable call promises: a task is found by its id, a messageId by its caller. Nobody
//! sends, reads JSON, or waits for an agent here, and both cores belong to it: a gateway cannot reach this rate.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::Failure;
use crate::call::message_id;
use crate::clock::now;
use crate::stop;

/// Bytes of what a call has to write: the columns of its row, the message as it came, status and artifact of the answer.
const ROW: usize = 240;
const MESSAGE: usize = 1_214;
const RECORD: usize = 1_200;

const SCHEMA: &str = "
    CREATE TABLE task (task BLOB PRIMARY KEY, state INTEGER NOT NULL, changed INTEGER NOT NULL, row BLOB NOT NULL) STRICT;
    CREATE TABLE body (task BLOB NOT NULL, kind INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, kind)) STRICT;
    CREATE TABLE dedupe (caller INTEGER NOT NULL, message_id TEXT NOT NULL, task BLOB NOT NULL,
                         PRIMARY KEY (caller, message_id)) STRICT, WITHOUT ROWID;
";

/// Calls a second, in a new file in this directory.
pub(crate) fn rate(dir: &Path, fold: usize, time: Duration) -> Result<f64, Failure> {
    let db = Connection::open(dir.join("floor.sqlite"))?;
    let journal: String = db.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    if journal != "wal" {
        return Err(format!("SQLite's journal stays \"{journal}\" on this file system").into());
    }
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000; PRAGMA cache_size = -16384;")?;
    db.execute_batch(SCHEMA)?;
    let (row, message, record) = (vec![b'r'; ROW], vec![b'm'; MESSAGE], vec![b'a'; RECORD]);
    let mut calls = 0_u64;
    let began = now();
    while began.elapsed() < time {
        stop::check()?;
        let ids: Vec<u64> = (calls..calls + fold as u64).collect();
        begin(&db)?;
        for &n in &ids {
            let task = task(n);
            run(&db, "INSERT INTO task VALUES (?1, 1, ?2, ?3)", params![task, n as i64, row])?;
            run(&db, "INSERT INTO body VALUES (?1, 0, ?2)", params![task, message])?;
            run(&db, "INSERT INTO dedupe VALUES (1, ?1, ?2)", params![message_id(n), task])?;
        }
        end(&db)?;
        begin(&db)?;
        for &n in &ids {
            let task = task(n);
            run(
                &db,
                "UPDATE task SET state = 4, changed = ?2, row = ?3 WHERE task = ?1",
                params![task, n as i64, row],
            )?;
            run(&db, "INSERT INTO body VALUES (?1, 1, ?2)", params![task, record])?;
        }
        end(&db)?;
        calls += fold as u64;
    }
    Ok(calls as f64 / began.elapsed().as_secs_f64())
}

/// Sixteen bytes that begin with the time, as the gateway's ids do.
fn task(n: u64) -> [u8; 16] {
    let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(n) << 80 | u128::from(random)).to_be_bytes()
}

fn begin(db: &Connection) -> rusqlite::Result<()> {
    run(db, "BEGIN IMMEDIATE", ())
}

fn end(db: &Connection) -> rusqlite::Result<()> {
    run(db, "COMMIT", ())
}

fn run(db: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute(params).map(drop)
}

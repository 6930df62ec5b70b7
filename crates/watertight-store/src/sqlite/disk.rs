//! The writing side, on the store's thread: one connection, one transaction at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};
use watertight_engine::ids::{AgentId, ContextKey, Key, Principal, TaskId};
use watertight_engine::record::{Row, Save};
use watertight_policy::time::Time;

use super::rows;
use crate::error::CommitError;
use crate::queue::{Job, PIECE, PruneAsk, PruneStep, is_large};
use crate::words::{Body, Delta, Lease, Write};
use crate::writer::Disk;
use crate::{clock, codes, may_follow};

/// Kinds of bodies, as in the schema.
pub(super) const MESSAGE: i64 = 0;
pub(super) const RECORD: i64 = 1;
pub(super) const DELTA: i64 = 2;

/// Pieces that one transaction writes or removes: 1 MiB.
const PIECES: i64 = 16;
/// Known pairs kept in memory.
const PAIRS: usize = 10_000;

pub(super) struct Hand {
    // In this order they are dropped: the lock last.
    pub(super) connection: Connection,
    path: PathBuf,
    /// The next payload's id.
    next: i64,
    pairs: BTreeMap<(Principal, AgentId), i64>,
    _lock: File,
}

/// Why a commit is not written.
pub(super) enum Fault {
    /// It must not be: it is taken back, and the transaction goes on.
    Refused(CommitError),
    /// It could not be: the transaction is over.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sqlite(error)
    }
}

impl From<CommitError> for Fault {
    fn from(error: CommitError) -> Fault {
        Fault::Refused(error)
    }
}

/// A run of payloads.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) first: i64,
    pub(super) pieces: i64,
}

/// The large bodies of a commit, by its save and the body's kind.
type Laid = BTreeMap<(usize, i64), Run>;

impl Hand {
    pub(super) fn new(connection: Connection, path: PathBuf, lock: File) -> Hand {
        Hand { connection, path, next: 1, pairs: BTreeMap::new(), _lock: lock }
    }

    /// Prepared once, kept by the connection.
    pub(super) fn statement(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }

    pub(super) fn run(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.statement(sql)?.execute(params)
    }

    /// One transaction of its own around something small.
    pub(super) fn alone<T>(&mut self, what: impl FnOnce(&mut Hand) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        self.run("BEGIN IMMEDIATE", ())?;
        let result = what(self).and_then(|it| self.run("COMMIT", ()).map(|_| it));
        if result.is_err() {
            self.abandon();
        }
        result
    }

    pub(super) fn unavailable(&self, error: &rusqlite::Error) -> CommitError {
        CommitError::Unavailable(format!("{}: {error}", self.path.display()))
    }

    fn write_all(&mut self, writes: &[Write], laid: &Laid) -> Result<(), Fault> {
        for (at, write) in writes.iter().enumerate() {
            match &write.save {
                Save::Delegation { row, message, .. } => {
                    if *message && write.message.is_none() {
                        return Err(CommitError::Incomplete { task: row.task }.into());
                    }
                    self.put_row(row)?;
                    if let Some(body) = &write.message {
                        self.put_body(row.task, MESSAGE, i64::from(row.turn.no), body, laid.get(&(at, MESSAGE)))?;
                    }
                    if let Some(body) = &write.record {
                        self.drop_bodies(row.task, DELTA..=DELTA)?;
                        self.put_body(row.task, RECORD, 0, body, laid.get(&(at, RECORD)))?;
                    }
                }
                Save::Key { key, fingerprint, task, turn } => self.put_key(key, *fingerprint, *task, *turn)?,
                Save::Context { key, remote } => self.put_context(key, remote)?,
            }
        }
        Ok(())
    }

    fn put_row(&mut self, row: &Row) -> Result<(), Fault> {
        let stored = self
            .statement("SELECT id, version, state FROM delegation WHERE task = ?1")?
            .query_row([rows::id(row.task)], |it| {
                Ok((it.get::<_, i64>(0)?, it.get::<_, i64>(1)? as u64, rows::coded(it, 2, codes::to_state)?))
            })
            .optional()?;
        may_follow(row, stored.map(|(_, version, state)| (version, state)))?;
        if let Some((id, ..)) = stored {
            rows::update(&mut self.statement(rows::UPDATE)?, row, id)?;
        } else {
            let pair = self.pair(&row.principal, &row.agent)?;
            rows::insert(&mut self.statement(rows::INSERT)?, row, pair)?;
        }
        Ok(())
    }

    fn put_body(&mut self, task: TaskId, kind: i64, no: i64, body: &Body, laid: Option<&Run>) -> rusqlite::Result<()> {
        let before = self
            .statement("SELECT first, pieces FROM body WHERE task = ?1 AND kind = ?2 AND no = ?3")?
            .query_row(params![rows::id(task), kind, no], run_of)
            .optional()?;
        if let Some(run) = before {
            self.drop_run(run)?;
        }
        let run = if let Some(run) = laid {
            self.run("DELETE FROM pending WHERE first = ?1", [run.first])?;
            *run
        } else {
            let run = self.take(1);
            self.put_piece(run.first, &body.bytes)?;
            run
        };
        let sql = "INSERT OR REPLACE INTO body (task, kind, no, dialect, first, pieces, size) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let (dialect, size) = (codes::dialect(body.dialect), body.bytes.len() as i64);
        self.run(sql, params![rows::id(task), kind, no, dialect, run.first, run.pieces, size]).map(drop)
    }

    fn put_delta(&mut self, delta: &Delta, laid: Option<&Run>) -> rusqlite::Result<()> {
        let known = self.statement("SELECT 1 FROM delegation WHERE task = ?1")?.exists([rows::id(delta.task)])?;
        // One that was laid ahead for nobody stays pending, and is swept away.
        if known { self.put_body(delta.task, DELTA, delta.seq as i64, &delta.body, laid) } else { Ok(()) }
    }

    fn put_key(&mut self, key: &Key, fingerprint: u128, task: TaskId, turn: u32) -> rusqlite::Result<()> {
        let pair = self.pair(&key.principal, &key.agent)?;
        let sql = "INSERT INTO dedupe (pair, message_id, fingerprint, task, turn) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (pair, message_id) DO UPDATE SET fingerprint = ?3, task = ?4, turn = ?5";
        self.run(sql, params![pair, &*key.message_id, fingerprint.to_be_bytes(), rows::id(task), turn]).map(drop)
    }

    fn put_context(&mut self, key: &ContextKey, remote: &str) -> rusqlite::Result<()> {
        let pair = self.pair(&key.principal, &key.agent)?;
        let sql = "INSERT INTO context (pair, context, remote) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (pair, context) DO UPDATE SET remote = ?3";
        self.run(sql, params![pair, &*key.context, remote]).map(drop)
    }

    fn pair(&mut self, principal: &Principal, agent: &AgentId) -> rusqlite::Result<i64> {
        let key = (principal.clone(), agent.clone());
        if let Some(&id) = self.pairs.get(&key) {
            return Ok(id);
        }
        let names = [&*principal.tenant, &*principal.caller, agent.as_str()];
        self.run("INSERT OR IGNORE INTO pair (tenant, caller, agent) VALUES (?1, ?2, ?3)", names)?;
        let id = self
            .statement("SELECT id FROM pair WHERE tenant = ?1 AND caller = ?2 AND agent = ?3")?
            .query_row(names, |row| row.get(0))?;
        if self.pairs.len() >= PAIRS {
            self.pairs.clear();
        }
        self.pairs.insert(key, id);
        Ok(id)
    }

    fn take(&mut self, pieces: i64) -> Run {
        let run = Run { first: self.next, pieces };
        self.next += pieces;
        run
    }

    fn put_piece(&self, id: i64, bytes: &[u8]) -> rusqlite::Result<()> {
        self.run("INSERT INTO payload (id, bytes) VALUES (?1, ?2)", params![id, bytes]).map(drop)
    }

    /// Writes a large body; the first transaction says that it belongs to nothing yet.
    fn lay_body(&mut self, body: &Body) -> rusqlite::Result<(Run, u64)> {
        let chunks: Vec<&[u8]> = body.bytes.chunks(PIECE).collect();
        let run = self.take(chunks.len() as i64);
        let mut transactions = 0;
        for (group, pieces) in (0..).zip(chunks.chunks(PIECES as usize)) {
            self.alone(|hand| {
                if group == 0 {
                    hand.run("INSERT INTO pending (first, pieces) VALUES (?1, ?2)", [run.first, run.pieces])?;
                }
                let ids = run.first + group * PIECES..;
                ids.zip(pieces).try_for_each(|(id, piece)| hand.put_piece(id, piece))
            })?;
            transactions += 1;
        }
        Ok((run, transactions))
    }

    /// Removes bodies of these kinds; says how many pieces that were.
    pub(super) fn drop_bodies(&self, task: TaskId, kinds: std::ops::RangeInclusive<i64>) -> rusqlite::Result<i64> {
        let range = params![rows::id(task), kinds.start(), kinds.end()];
        let runs: Vec<Run> = self
            .statement("SELECT first, pieces FROM body WHERE task = ?1 AND kind BETWEEN ?2 AND ?3 ORDER BY kind, no")?
            .query_map(range, run_of)?
            .collect::<rusqlite::Result<_>>()?;
        // What one stream appended lies side by side, mostly.
        for side_by_side in runs.chunk_by(|left, right| left.first + left.pieces == right.first) {
            let pieces = side_by_side.iter().map(|run| run.pieces).sum();
            self.drop_run(Run { first: side_by_side[0].first, pieces })?;
        }
        if !runs.is_empty() {
            self.run("DELETE FROM body WHERE task = ?1 AND kind BETWEEN ?2 AND ?3", range)?;
        }
        Ok(runs.iter().map(|run| run.pieces).sum())
    }

    fn drop_run(&self, run: Run) -> rusqlite::Result<()> {
        self.run("DELETE FROM payload WHERE id >= ?1 AND id < ?2", [run.first, run.first + run.pieces]).map(drop)
    }

    /// Removes what was laid for commits that never came, and finds the end of the payloads.
    fn sweep(&mut self) -> rusqlite::Result<()> {
        let left: Vec<Run> = self
            .statement("SELECT first, pieces FROM pending")?
            .query_map((), run_of)?
            .collect::<rusqlite::Result<_>>()?;
        for run in left {
            for first in (run.first..run.first + run.pieces).step_by(PIECES as usize) {
                let pieces = PIECES.min(run.first + run.pieces - first);
                self.alone(|hand| hand.drop_run(Run { first, pieces }))?;
            }
            self.alone(|hand| hand.run("DELETE FROM pending WHERE first = ?1", [run.first]))?;
        }
        let last = self.statement("SELECT max(id) FROM payload")?.query_row((), |row| row.get::<_, Option<i64>>(0))?;
        self.next = self.next.max(last.unwrap_or(0) + 1);
        Ok(())
    }

    fn raise(&mut self) -> rusqlite::Result<Lease> {
        self.alone(|hand| {
            // What is live is loaded now anyway; what is not has an index.
            let sql = "SELECT max(saved, coalesce((SELECT max(max(changed, created)) FROM delegation WHERE live = 1), 0), \
                       coalesce((SELECT max(changed) FROM delegation WHERE live = 0), 0)) FROM meta";
            let saved = hand.statement(sql)?.query_row((), |row| row.get::<_, rows::Moment>(0))?.0;
            let now = clock::now().max(saved);
            let sql = "UPDATE meta SET fence = fence + 1, saved = ?1 RETURNING fence";
            let fence = hand.statement(sql)?.query_row([rows::time(now)], |row| row.get::<_, i64>(0))?;
            Ok(Lease { fence: fence as u64, now })
        })
    }
}

pub(super) fn run_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run { first: row.get(0)?, pieces: row.get(1)? })
}

impl Disk for Hand {
    type Laid = Laid;

    fn lay(&mut self, job: &Job) -> Result<(Laid, u64), CommitError> {
        let bodies: Vec<(usize, i64, &Body)> = match job {
            Job::Commit { writes, .. } => {
                let each = writes.iter().enumerate();
                each.flat_map(|(at, it)| [(at, MESSAGE, it.message.as_ref()), (at, RECORD, it.record.as_ref())])
                    .filter_map(|(at, kind, body)| Some((at, kind, body?)))
                    .collect()
            }
            Job::Delta(delta) => vec![(0, DELTA, &delta.body)],
            Job::Refused { .. } => Vec::new(),
        };
        let (mut laid, mut transactions) = (Laid::new(), 0);
        for (at, kind, body) in bodies.into_iter().filter(|(.., body)| is_large(body)) {
            let (run, count) = self.lay_body(body).map_err(|error| self.unavailable(&error))?;
            laid.insert((at, kind), run);
            transactions += count;
        }
        Ok((laid, transactions))
    }

    fn begin(&mut self) -> Result<u64, CommitError> {
        let begun = self
            .run("BEGIN IMMEDIATE", ())
            .and_then(|_| self.statement("SELECT fence FROM meta")?.query_row((), |row| row.get::<_, i64>(0)));
        begun.map(|fence| fence as u64).map_err(|error| {
            let error = self.unavailable(&error);
            self.abandon();
            error
        })
    }

    fn apply(&mut self, writes: &[Write], laid: &Laid) -> Result<(), CommitError> {
        let mut written = self.run("SAVEPOINT one", ()).map_err(Fault::from);
        if written.is_ok() {
            written = self.write_all(writes, laid).map(|()| 0);
        }
        let (refused, closed) = match written {
            Ok(_) => (None, self.run("RELEASE one", ())),
            Err(Fault::Refused(error)) => {
                self.pairs.clear();
                (Some(error), self.run("ROLLBACK TO one", ()).and_then(|_| self.run("RELEASE one", ())))
            }
            Err(Fault::Sqlite(error)) => (None, Err(error)),
        };
        closed.map_err(|error| self.unavailable(&error))?;
        refused.map_or(Ok(()), Err)
    }

    fn delta(&mut self, delta: &Delta, laid: &Laid) -> Result<(), CommitError> {
        let run = laid.get(&(0, DELTA));
        self.put_delta(delta, run).map_err(|error| self.unavailable(&error))
    }

    fn end(&mut self) -> Result<(), CommitError> {
        self.run("COMMIT", ()).map(drop).map_err(|error| self.unavailable(&error))
    }

    fn abandon(&mut self) {
        self.pairs.clear();
        if !self.connection.is_autocommit() {
            // If even this fails, the next BEGIN does too, and says why.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn lease(&mut self) -> Result<Lease, CommitError> {
        self.abandon();
        self.sweep().and_then(|()| self.raise()).map_err(|error| self.unavailable(&error))
    }

    fn prune(&mut self, ask: &PruneAsk) -> Result<PruneStep, CommitError> {
        self.alone(|hand| super::prune::step(hand, ask)).map_err(|error| self.unavailable(&error))
    }

    #[cfg(test)]
    fn limit(&mut self, pages: u32) {
        self.connection.execute_batch(&format!("PRAGMA max_page_count = {pages}")).unwrap();
    }
}

/// The latest time that a cutoff may be: what never ended is never old.
pub(super) fn cutoff(before: Time) -> i64 {
    rows::time(before).min(i64::MAX - 1)
}

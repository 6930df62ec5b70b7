//! The writing side, on the store's thread: one connection, one transaction at a time.
//!
//! A commit is one row in the log, however many tasks, texts and keys are in it: that is all that a caller waits for.
//! From there it goes to its place in pieces, when nobody waits ([`super::settle`]).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};
use watertight_engine::ids::{AgentId, ContextKey, Key, Principal, TaskId};
use watertight_engine::record::{Row, Save, TaskState};
use watertight_policy::time::Time;

use super::checkpoint::Checkpointer;
use super::filter::Filter;
use super::log::{Encoder, Entry, Text};
use super::open::Opened;
use super::order::Listed;
use super::overlay::{Overlay, Tables};
use super::rows;
use crate::error::CommitError;
use crate::follow::{self, Versions};
use crate::queue::{Job, PIECE, PruneAsk, PruneStep, is_large};
use crate::words::{Body, Delta, HookChange, Late, Lease, Write};
use crate::writer::{Disk, Tidy};
use crate::{clock, codes};

/// Kinds of bodies, as in the schema.
pub(super) const MESSAGE: i64 = 0;
pub(super) const RECORD: i64 = 1;
pub(super) const DELTA: i64 = 2;

/// Pieces that one transaction writes or removes: 1 MiB.
const PIECES: i64 = 16;
/// Known pairs kept in memory.
const PAIRS: usize = 10_000;

pub(super) struct Hand {
    // In this order they are dropped: the lock last, and nobody else is in the database when it is closed.
    pub(super) checkpointer: Checkpointer,
    pub(super) connection: Connection,
    path: PathBuf,
    /// The next payload's id.
    next: i64,
    pairs: BTreeMap<(Principal, AgentId), i64>,
    pub(super) overlay: Arc<RwLock<Overlay>>,
    pub(super) filter: Arc<Filter>,
    /// The fence under which the overlay was made.
    pub(super) fence: i64,
    /// The next row of the log.
    pub(super) seq: u64,
    /// What the transaction that is open puts into it.
    pub(super) encoder: Encoder,
    staged: Vec<Entry>,
    versions: Versions,
    /// What the tables have of the tasks in it, where that was asked for.
    listed: RefCell<BTreeMap<TaskId, Listed>>,
    /// The connection does not wait for the disk: what it writes now is in the log already.
    pub(super) lazy: bool,
    /// Tasks that went to the tables since the last checkpoint.
    pub(super) since_checkpoint: usize,
    /// What came before this row of the log goes to its place before anything is removed.
    pub(super) prune_from: u64,
    _lock: File,
}

/// Why a commit is not written.
pub(super) enum Fault {
    /// It must not be: the transaction goes on without it.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) first: i64,
    pub(super) pieces: i64,
}

/// The large bodies of a commit, by its save and the body's kind.
pub(super) type Laid = BTreeMap<(usize, i64), Run>;

impl Hand {
    pub(super) fn new(opened: Opened, overlay: Arc<RwLock<Overlay>>, filter: Arc<Filter>) -> Hand {
        let Opened { connection, path, lock } = opened;
        Hand {
            checkpointer: Checkpointer::new(path.clone()),
            connection,
            path,
            next: 1,
            pairs: BTreeMap::new(),
            overlay,
            filter,
            fence: 0,
            seq: 1,
            encoder: Encoder::default(),
            staged: Vec::new(),
            versions: Versions::new(),
            listed: RefCell::default(),
            lazy: false,
            since_checkpoint: 0,
            prune_from: 0,
            _lock: lock,
        }
    }

    /// Payloads get numbers from this one on.
    pub(super) fn skip_to(&mut self, next: i64) {
        self.next = self.next.max(next);
    }

    /// Pairs that were taken back are not known any more.
    pub(super) fn forget_pairs(&mut self) {
        self.pairs.clear();
    }

    pub(super) fn overlay(&self) -> RwLockReadGuard<'_, Overlay> {
        self.overlay.read().unwrap_or_else(PoisonError::into_inner)
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
        let begun = self.begin_as_owner();
        let result = begun.and_then(|()| what(self)).and_then(|it| self.run("COMMIT", ()).map(|_| it));
        if result.is_err() {
            self.abandon();
        }
        result
    }

    pub(super) fn unavailable(&self, error: &rusqlite::Error) -> CommitError {
        CommitError::Unavailable(format!("{}: {error}", self.path.display()))
    }

    /// Version and state of a row, as the transaction sees it.
    fn stored(&self, task: TaskId) -> Result<Option<(u64, TaskState)>, Fault> {
        let known = self.versions.get(&task).copied().or_else(|| self.overlay().version(task));
        if known.is_some() {
            return Ok(known);
        }
        let Some((version, listed)) = self.settled_row(task)? else { return Ok(None) };
        self.listed.borrow_mut().insert(task, listed);
        Ok(Some((version, listed.state)))
    }

    /// What the tables have of a task's row.
    pub(super) fn tables(&self, task: TaskId) -> rusqlite::Result<Tables> {
        Ok(self.settled_row(task)?.map_or(Tables::Nothing, |(_, listed)| Tables::Row(listed)))
    }

    fn settled_row(&self, task: TaskId) -> rusqlite::Result<Option<(u64, Listed)>> {
        let it = |row: &rusqlite::Row<'_>| {
            let state = rows::coded(row, 1, codes::to_state)?;
            Ok((row.get::<_, i64>(0)? as u64, Listed { state, changed: row.get::<_, rows::Moment>(2)?.0 }))
        };
        let mut statement = self.statement("SELECT version, state, changed FROM delegation WHERE task = ?1")?;
        statement.query_row([rows::id(task)], it).optional()
    }

    /// What the tables have of the row in it, if it is the first news of its task; of a notice, which is written once,
    /// nothing.
    fn before(&self, entry: &Entry) -> Tables {
        match entry.row() {
            Some(row) if row.version == 1 => Tables::Nothing,
            Some(row) => self.listed.borrow().get(&row.task).map_or(Tables::Unknown, |listed| Tables::Row(*listed)),
            None if matches!(entry, Entry::Notice(_)) => Tables::Nothing,
            None => Tables::Unknown,
        }
    }

    fn log(&mut self, entry: Entry) {
        self.encoder.add(&entry);
        self.staged.push(entry);
    }

    /// Writes a row to its place; `born`: there is none of it yet.
    pub(super) fn put_row(&mut self, row: &Row, born: bool) -> rusqlite::Result<()> {
        let stored = match born {
            true => None,
            false => self
                .statement("SELECT id FROM delegation WHERE task = ?1")?
                .query_row([rows::id(row.task)], |it| it.get::<_, i64>(0))
                .optional()?,
        };
        if let Some(id) = stored {
            rows::update(&mut self.statement(rows::UPDATE)?, row, id)?;
        } else {
            let pair = self.pair(&row.principal, &row.agent)?;
            rows::insert(&mut self.statement(rows::INSERT)?, row, pair)?;
        }
        Ok(())
    }

    pub(super) fn put_body(
        &mut self,
        task: TaskId,
        kind: i64,
        no: i64,
        text: &Text,
        born: bool,
    ) -> rusqlite::Result<()> {
        let before = match born {
            true => None,
            false => self
                .statement("SELECT first, pieces FROM body WHERE task = ?1 AND kind = ?2 AND no = ?3")?
                .query_row(params![rows::id(task), kind, no], run_of)
                .optional()?,
        };
        let (dialect, run, size) = match text {
            Text::Here(body) => {
                let run = self.take(1);
                self.put_piece(run.first, &body.bytes)?;
                (body.dialect, run, body.bytes.len() as i64)
            }
            Text::Laid { dialect, run, size } => {
                self.run("DELETE FROM pending WHERE first = ?1", [run.first])?;
                (*dialect, *run, *size)
            }
        };
        // The same one again, if it is written a second time after a crash.
        if let Some(before) = before.filter(|before| before.first != run.first) {
            self.drop_run(before)?;
        }
        let sql = "INSERT OR REPLACE INTO body (task, kind, no, dialect, first, pieces, size) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let dialect = codes::dialect(dialect);
        self.run(sql, params![rows::id(task), kind, no, dialect, run.first, run.pieces, size]).map(drop)
    }

    pub(super) fn put_key(&mut self, key: &Key, fingerprint: u128, task: TaskId, turn: u32) -> rusqlite::Result<()> {
        let pair = self.pair(&key.principal, &key.agent)?;
        let sql = "INSERT INTO dedupe (pair, message_id, fingerprint, task, turn) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (pair, message_id) DO UPDATE SET fingerprint = ?3, task = ?4, turn = ?5";
        self.run(sql, params![pair, &*key.message_id, fingerprint.to_be_bytes(), rows::id(task), turn]).map(drop)
    }

    pub(super) fn put_context(&mut self, key: &ContextKey, remote: &str) -> rusqlite::Result<()> {
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

    pub(super) fn drop_run(&self, run: Run) -> rusqlite::Result<()> {
        self.run("DELETE FROM payload WHERE id >= ?1 AND id < ?2", [run.first, run.first + run.pieces]).map(drop)
    }

    /// Removes what was laid for commits that never came.
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
        Ok(())
    }

    /// A transaction beside the commits. Who wrote past the lock knows better than what waits here.
    pub(super) fn begin_as_owner(&self) -> rusqlite::Result<()> {
        self.run("BEGIN IMMEDIATE", ())?;
        if self.stored_fence()? == self.fence {
            return Ok(());
        }
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_PROTOCOL);
        Err(rusqlite::Error::SqliteFailure(error, Some("another process has written past the lock".into())))
    }

    /// The fence that is stored.
    pub(super) fn stored_fence(&self) -> rusqlite::Result<i64> {
        self.statement("SELECT fence FROM meta")?.query_row((), |row| row.get(0))
    }

    fn raise(&mut self) -> rusqlite::Result<Lease> {
        self.firm()?;
        let lease = self.alone(|hand| {
            // What is live is loaded now anyway; what is not has an index.
            let sql = "SELECT max(saved, coalesce((SELECT max(max(changed, created)) FROM delegation WHERE live = 1), 0), \
                       coalesce((SELECT max(changed) FROM delegation WHERE live = 0), 0)) FROM meta";
            let saved = hand.statement(sql)?.query_row((), |row| row.get::<_, rows::Moment>(0))?.0;
            let now = clock::now().max(saved);
            let sql = "UPDATE meta SET fence = fence + 1, saved = ?1 RETURNING fence";
            let fence = hand.statement(sql)?.query_row([rows::time(now)], |row| row.get::<_, i64>(0))?;
            Ok(Lease { fence: fence as u64, now })
        })?;
        self.fence = lease.fence as i64;
        Ok(lease)
    }
}

pub(super) fn run_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run { first: row.get(0)?, pieces: row.get(1)? })
}

impl Disk for Hand {
    type Laid = Laid;

    fn lay(&mut self, job: &Job) -> Result<(Laid, u64), CommitError> {
        let bodies: Vec<(usize, i64, &Body)> = match job {
            Job::Commit(writes) => {
                let each = writes.iter().enumerate();
                each.flat_map(|(at, it)| [(at, MESSAGE, it.message.as_ref()), (at, RECORD, it.record.as_ref())])
                    .filter_map(|(at, kind, body)| Some((at, kind, body?)))
                    .collect()
            }
            Job::Delta(delta) => vec![(0, DELTA, &delta.body)],
            Job::Refused => Vec::new(),
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
        self.encoder.clear();
        let begun = self.firm().and_then(|()| self.run("BEGIN IMMEDIATE", ())).and_then(|_| self.stored_fence());
        begun.map(|fence| fence as u64).map_err(|error| {
            let error = self.unavailable(&error);
            self.abandon();
            error
        })
    }

    fn apply(&mut self, writes: Vec<Write>, laid: Laid) -> Result<(), CommitError> {
        if self.is_overfull() {
            return Err(CommitError::Unavailable(format!("{}: too much waits for its place", self.path.display())));
        }
        let after = follow::check(&writes, |task| self.stored(task));
        let after = after.map_err(|fault| match fault {
            Fault::Refused(error) => error,
            Fault::Sqlite(error) => self.unavailable(&error),
        })?;
        self.versions.extend(after);
        for (at, write) in writes.into_iter().enumerate() {
            let text = |kind, body: Option<Body>| body.map(|body| Text::of(body, laid.get(&(at, kind)).copied()));
            let entry = match write.save {
                Save::Delegation { row, .. } => {
                    Entry::Row { row, message: text(MESSAGE, write.message), record: text(RECORD, write.record) }
                }
                Save::Key { key, fingerprint, task, turn } => Entry::Key { key, fingerprint, task, turn },
                Save::Context { key, remote } => Entry::Context { key, remote },
                Save::Notice(notice) => Entry::Notice(notice),
                Save::Taken { owner, first, last, lost } => Entry::Taken { owner, first, last, lost },
            };
            self.log(entry);
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta, laid: Laid) -> Result<(), CommitError> {
        let known = self.stored(delta.task).map_err(|fault| match fault {
            Fault::Refused(error) => error,
            Fault::Sqlite(error) => self.unavailable(&error),
        })?;
        // One that was laid ahead for nobody stays pending, and is swept away.
        if known.is_some() {
            let text = Text::of(delta.body, laid.get(&(0, DELTA)).copied());
            self.log(Entry::Delta { task: delta.task, seq: delta.seq, text });
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), CommitError> {
        let written = self.write_log().and_then(|()| self.run("COMMIT", ()));
        written.map_err(|error| self.unavailable(&error))?;
        let staged = std::mem::take(&mut self.staged);
        if !staged.is_empty() {
            let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
            for entry in staged {
                self.filter.add(&entry);
                let tables = self.before(&entry);
                overlay.put(self.seq, entry, tables);
            }
            drop(overlay);
            self.filter.refresh();
            self.seq += 1;
        }
        self.encoder.clear();
        self.versions.clear();
        self.listed.borrow_mut().clear();
        Ok(())
    }

    fn abandon(&mut self) {
        self.pairs.clear();
        self.staged.clear();
        self.encoder.clear();
        self.versions.clear();
        self.listed.borrow_mut().clear();
        if !self.connection.is_autocommit() {
            // If even this fails, the next BEGIN does too, and says why.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn lease(&mut self) -> Result<Lease, CommitError> {
        self.abandon();
        self.recover().and_then(|()| self.sweep()).and_then(|()| self.raise()).map_err(|error| self.unavailable(&error))
    }

    fn hook(&mut self, change: HookChange) -> Result<(), CommitError> {
        self.change_hook(&change).map_err(|error| self.unavailable(&error))
    }

    fn late(&mut self, late: Late) -> Result<(), CommitError> {
        self.keep_late(&late).map_err(|error| self.unavailable(&error))
    }

    fn prune(&mut self, ask: &PruneAsk) -> Result<PruneStep, CommitError> {
        self.prune_step(ask).map_err(|error| self.unavailable(&error))
    }

    fn tidy(&mut self, when: Tidy) -> bool {
        self.tidy_up(when)
    }

    #[cfg(test)]
    fn settle_some(&mut self, count: usize) -> bool {
        self.settle(count).is_ok()
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

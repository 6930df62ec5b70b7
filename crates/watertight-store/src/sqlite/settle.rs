//! From the log to the tables, a bounded piece at a time, newest state only: what was accepted, sent and answered since
//! is one row written once.
//!
//! None of it waits for the disk: it is durable in the log already, and the next commit's wait covers it. A crash in
//! between costs nothing, because writing it again changes nothing.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use rusqlite::params;
use watertight_engine::ids::TaskId;

use super::checkpoint::checkpoint;
use super::disk::{DELTA, Hand, MESSAGE, RECORD, Run, run_of};
use super::log::{self, Text};
use super::overlay::{Overlay, Tables};
use super::rows;
use crate::writer::Tidy;

/// Tasks in one piece, where nobody waits. The more go together, the fewer pages each costs.
pub(super) const PIECE: usize = 256;
/// And where the next commit waits for it, or may come at any time. Keys and agents' ids lie anywhere in their indexes,
/// so that it costs little more.
const SLICE: usize = 64;
/// It is worth doing.
const SHOULD: usize = 1_024;
/// After so many tasks SQLite's own log goes into the database: about 4000 pages.
const CHECKPOINT: usize = 1_024;
/// After so many it is done by who is here: the thread that does it beside commits does not keep up.
const OVERDUE: usize = 8 * CHECKPOINT;
/// It is done although others wait; in tasks, and in bytes.
const MUST: (usize, usize) = (4_096, 16 << 20);
/// Nothing more is taken: the tables cannot be written.
const TOO_MUCH: (usize, usize) = (16_384, 128 << 20);

impl Hand {
    /// All that is in the log goes to the tables: what is known of it, and what a crash left.
    pub(super) fn recover(&mut self) -> rusqlite::Result<()> {
        let stored = self.stored_fence()?;
        if stored != self.fence {
            // Who wrote past the lock found in the log what is here, and has gone on from there.
            let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
            *overlay = Overlay::default();
            drop(overlay);
            self.filter.forget();
            self.fence = stored;
        }
        self.settle_all()?;
        self.read_log()?;
        self.settle_all()
    }

    fn read_log(&mut self) -> rusqlite::Result<()> {
        let mut overlay = Overlay::default();
        let mut statement = self.statement("SELECT seq, bytes FROM log ORDER BY seq")?;
        let mut found = statement.query(())?;
        let (mut last, mut end) = (0, 0);
        while let Some(row) = found.next()? {
            last = row.get::<_, i64>(0)? as u64;
            let entries = log::decode(row.get(1)?).ok_or_else(|| rows::garbled_log(last))?;
            for entry in entries {
                let runs = entry.texts().filter_map(Text::run);
                end = runs.map(|run| run.first + run.pieces).fold(end, i64::max);
                // Of a commit that was taken for lost, nobody has said so yet.
                self.filter.add(&entry);
                let tables = match entry.row().filter(|row| overlay.row(row.task).is_none()) {
                    Some(first) => self.tables(first.task)?,
                    None => Tables::Unknown,
                };
                overlay.put(last, entry, tables);
            }
        }
        drop(found);
        drop(statement);
        self.seq = last + 1;
        let sql = "SELECT max(coalesce((SELECT max(id) + 1 FROM payload), 1), \
                   coalesce((SELECT max(first + pieces) FROM pending), 1))";
        let free = self.statement(sql)?.query_row((), |row| row.get::<_, i64>(0))?;
        // No number of a payload is used again while anything may still name it.
        self.skip_to(free.max(end));
        *self.overlay.write().unwrap_or_else(PoisonError::into_inner) = overlay;
        Ok(())
    }

    /// The row of the transaction that is open.
    pub(super) fn write_log(&self) -> rusqlite::Result<()> {
        if self.encoder.bytes().is_empty() {
            return Ok(());
        }
        self.run("INSERT INTO log (seq, bytes) VALUES (?1, ?2)", params![self.seq as i64, self.encoder.bytes()])
            .map(drop)
    }

    /// From now on a commit is answered when the disk has it.
    pub(super) fn firm(&mut self) -> rusqlite::Result<()> {
        if self.lazy {
            // The automatic checkpoint is only for what comes between ours: a commit would wait for it.
            self.connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000")?;
            self.lazy = false;
        }
        Ok(())
    }

    /// More waits for its place than can: the disk is full, or worse.
    pub(super) fn is_overfull(&self) -> bool {
        let overlay = self.overlay();
        overlay.tasks() > TOO_MUCH.0 || overlay.bytes() > TOO_MUCH.1
    }

    /// Whether something is left. What cannot be written now is tried again later; it is safe in the log.
    pub(super) fn tidy_up(&mut self, when: Tidy) -> bool {
        let mut due = self.is_due(when);
        while due {
            let count = if when == Tidy::May { PIECE } else { SLICE };
            if self.settle(count).is_err() {
                return when != Tidy::May;
            }
            self.since_checkpoint += count;
            let is_quiet = self.overlay().is_empty();
            if is_quiet
                || self.since_checkpoint >= OVERDUE
                || self.since_checkpoint >= CHECKPOINT && self.checkpointer.advance()
            {
                checkpoint(&self.connection);
                self.since_checkpoint = 0;
            }
            due = when == Tidy::Must && self.is_due(when);
        }
        !self.overlay().is_empty()
    }

    fn is_due(&self, when: Tidy) -> bool {
        let overlay = self.overlay();
        let piled = |tasks, bytes| overlay.tasks() >= tasks || overlay.bytes() >= bytes;
        match when {
            Tidy::Must => piled(MUST.0, MUST.1),
            Tidy::Should => piled(SHOULD, MUST.1 / 4),
            Tidy::May => !overlay.is_empty(),
        }
    }

    fn settle_all(&mut self) -> rusqlite::Result<()> {
        while !self.overlay().is_empty() {
            self.settle(PIECE)?;
        }
        Ok(())
    }

    /// One piece, of so many tasks.
    pub(super) fn settle(&mut self, count: usize) -> rusqlite::Result<()> {
        if !self.lazy {
            self.connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0")?;
            self.lazy = true;
        }
        let (tasks, needed) = self.overlay().first(count);
        let settled = self.settle_piece(&tasks, needed);
        if settled.is_err() && !self.connection.is_autocommit() {
            // If even this fails, the next BEGIN does too, and says why.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        if settled.is_err() {
            self.forget_pairs();
            self.overlay.write().unwrap_or_else(PoisonError::into_inner).in_doubt(&tasks);
        }
        settled
    }

    /// `needed`: the first row of the log that is needed afterwards.
    fn settle_piece(&mut self, tasks: &[TaskId], needed: Option<u64>) -> rusqlite::Result<()> {
        let shared = self.overlay.clone();
        let overlay = shared.read().unwrap_or_else(PoisonError::into_inner);
        self.begin_as_owner()?;
        for task in tasks {
            self.settle_task(&overlay, *task)?;
        }
        for (key, remote) in &overlay.contexts {
            self.put_context(key, remote)?;
        }
        for (owner, news) in &overlay.outboxes {
            self.put_outbox(owner, news)?;
        }
        for run in &overlay.litter {
            self.run("DELETE FROM pending WHERE first = ?1", [run.first])?;
            self.drop_run(*run)?;
        }
        match needed {
            Some(needed) => self.run("DELETE FROM log WHERE seq < ?1", [needed as i64])?,
            None => self.run("DELETE FROM log", ())?,
        };
        drop(overlay);
        // Nobody sees it in neither place.
        let mut overlay = shared.write().unwrap_or_else(PoisonError::into_inner);
        self.run("COMMIT", ())?;
        overlay.settled(tasks);
        Ok(())
    }

    /// What the tables have of them. After a crash that may be the same runs that are here.
    fn drop_deltas(&mut self, task: TaskId, here: &BTreeMap<u64, Text>) -> rusqlite::Result<()> {
        let sql = "SELECT first, pieces FROM body WHERE task = ?1 AND kind = ?2";
        let runs: Vec<Run> =
            self.statement(sql)?.query_map(params![rows::id(task), DELTA], run_of)?.collect::<rusqlite::Result<_>>()?;
        if runs.is_empty() {
            return Ok(());
        }
        let kept: Vec<i64> = here.values().filter_map(Text::run).map(|run| run.first).collect();
        for run in runs.into_iter().filter(|run| !kept.contains(&run.first)) {
            self.drop_run(run)?;
        }
        self.run("DELETE FROM body WHERE task = ?1 AND kind = ?2", params![rows::id(task), DELTA]).map(drop)
    }

    fn settle_task(&mut self, overlay: &Overlay, task: TaskId) -> rusqlite::Result<()> {
        let Some(fresh) = overlay.get(task) else { return Ok(()) };
        let born = fresh.born();
        if let Some(row) = &fresh.row {
            self.put_row(row, born)?;
        }
        for (turn, text) in &fresh.messages {
            self.put_body(task, MESSAGE, i64::from(*turn), text, born)?;
        }
        if let Some(record) = &fresh.record {
            if !born {
                self.drop_deltas(task, &fresh.deltas)?;
            }
            self.put_body(task, RECORD, 0, record, born)?;
        }
        for (seq, text) in &fresh.deltas {
            self.put_body(task, DELTA, *seq as i64, text, born)?;
        }
        for key in &fresh.keys {
            if let Some(it) = overlay.keys.get(key).filter(|it| it.task == task) {
                self.put_key(key, it.fingerprint, task, it.turn)?;
            }
        }
        Ok(())
    }
}

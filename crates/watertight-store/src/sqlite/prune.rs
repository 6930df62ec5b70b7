//! Removing what is old, a bounded step at a time.

use rusqlite::{OptionalExtension, params};
use watertight_engine::ids::TaskId;

use super::disk::{DELTA, Hand, MESSAGE, cutoff};
use super::log::Entry;
use super::rows::{self, Id};
use super::settle::PIECE;
use crate::queue::{PruneAsk, PruneStep};

/// Tasks in one step, and owners of keys.
const TASKS: usize = 256;
/// No further task in this step once so many pieces are removed: 32 MiB.
const PIECES: i64 = 512;

impl Hand {
    /// One step. What was committed before the round began is in the tables first: nothing of it stays in the log, to
    /// come back from there after a crash, and what the log still has of a task that goes is told so.
    pub(super) fn prune_step(&mut self, ask: &PruneAsk) -> rusqlite::Result<PruneStep> {
        if ask.first {
            self.prune_from = self.seq;
        }
        let waits = self.overlay().oldest().is_some_and(|oldest| oldest < self.prune_from);
        if waits {
            self.settle(PIECE)?;
            return Ok(PruneStep { more: true, ..PruneStep::default() });
        }
        let step = self.alone(|hand| step(hand, ask));
        // Also if it failed: that a transaction could not be ended does not say that it was not.
        self.overlay().counts.forget();
        step
    }
}

/// One step, inside a transaction.
fn step(hand: &mut Hand, ask: &PruneAsk) -> rusqlite::Result<PruneStep> {
    let mut step = PruneStep::default();
    hand.encoder.clear();
    if let Some(before) = ask.keys_before {
        keys(hand, cutoff(before), &mut step)?;
    }
    if let Some(before) = ask.tasks_before {
        tasks(hand, cutoff(before), &mut step)?;
    }
    if step.tasks > 0 {
        // The newest time that was saved may have gone with its row.
        hand.run("UPDATE meta SET saved = max(saved, ?1)", [cutoff(ask.now)])?;
    }
    hand.write_log()?;
    hand.seq += 1;
    hand.encoder.clear();
    Ok(step)
}

/// Goes on behind the last delegation that was looked at: what is terminal keeps the time at which it ended.
fn keys(hand: &mut Hand, before: i64, step: &mut PruneStep) -> rusqlite::Result<()> {
    let sql = "SELECT d.changed, d.id, d.task FROM meta m JOIN delegation d INDEXED BY delegation_ended \
               ON d.live = 0 AND (d.changed, d.id) > (m.keys_changed, m.keys_id) \
               WHERE d.changed <= ?1 ORDER BY d.changed, d.id LIMIT ?2";
    let due: Vec<(i64, i64, Id)> = hand
        .statement(sql)?
        .query_map(params![before, TASKS as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (_, _, task) in &due {
        step.keys += hand.run("DELETE FROM dedupe WHERE task = ?1", [task.0.to_be_bytes()])? as u64;
    }
    if let Some((changed, id, _)) = due.last() {
        hand.run("UPDATE meta SET keys_changed = ?1, keys_id = ?2", [changed, id])?;
    }
    step.more |= due.len() == TASKS;
    let tasks: Vec<TaskId> = due.into_iter().map(|(_, _, task)| task.task()).collect();
    if !tasks.is_empty() && !hand.overlay().is_empty() {
        hand.encoder.add(&Entry::KeysGone(tasks));
    }
    Ok(())
}

fn tasks(hand: &mut Hand, before: i64, step: &mut PruneStep) -> rusqlite::Result<()> {
    let sql = "SELECT id, task FROM delegation INDEXED BY delegation_ended WHERE live = 0 AND changed <= ?1 \
               ORDER BY changed, id LIMIT ?2";
    let due: Vec<(i64, Id)> = hand
        .statement(sql)?
        .query_map(params![before, TASKS as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let full = due.len() == TASKS;
    let (mut pieces, mut gone) = (0, Vec::new());
    for (id, task) in due {
        let task = task.task();
        if hand.overlay().get(task).is_some() {
            // There is news of it: its turn comes when that is in its place.
            continue;
        }
        if pieces >= PIECES {
            step.more = true;
            break;
        }
        pieces += task_away(hand, id, task)?;
        gone.push(task);
    }
    step.tasks += gone.len() as u64;
    step.more |= full && !gone.is_empty();
    if !gone.is_empty() && !hand.overlay().is_empty() {
        hand.encoder.add(&Entry::Gone(gone));
    }
    Ok(())
}

/// Removes one, with all that belongs to it, and its context if it was the last one in it.
fn task_away(hand: &Hand, id: i64, task: TaskId) -> rusqlite::Result<i64> {
    let pieces = hand.drop_bodies(task, MESSAGE..=DELTA)?;
    hand.run("DELETE FROM dedupe WHERE task = ?1", [rows::id(task)])?;
    hand.run("DELETE FROM hook WHERE task = ?1", [rows::id(task)])?;
    hand.run("DELETE FROM late WHERE task = ?1", [rows::id(task)])?;
    let context = hand
        .statement("DELETE FROM delegation WHERE id = ?1 RETURNING pair, context")?
        .query_row([id], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    // A younger task of the context may be in memory alone so far; then it takes the context away when its own time comes.
    let context = context.filter(|(_, context)| !hand.overlay().order.has_context(context));
    if let Some((pair, context)) = context {
        let sql = "DELETE FROM context WHERE pair = ?1 AND context = ?2 AND NOT EXISTS (SELECT 1 FROM delegation \
                   INDEXED BY delegation_context WHERE pair = ?1 AND context = ?2)";
        hand.run(sql, params![pair, context])?;
    }
    Ok(pieces)
}

//! What agents said too late. It is rare, and nothing waits for it: each is a transaction of its own.

use rusqlite::{OptionalExtension, params};
use watertight_engine::ids::TaskId;

use super::disk::Hand;
use super::{SqliteStore, questions, rows};
use crate::codes;
use crate::error::ReadError;
use crate::words::Late;

impl Hand {
    /// The first that is said of a task is kept.
    pub(super) fn keep_late(&mut self, late: &Late) -> rusqlite::Result<()> {
        self.firm()?;
        let bytes = i64::try_from(late.bytes).unwrap_or(i64::MAX);
        self.alone(|hand| {
            let sql = "INSERT OR IGNORE INTO late (task, at, state, bytes, text) VALUES (?1, ?2, ?3, ?4, ?5)";
            let values = params![rows::id(late.task), rows::time(late.at), codes::state(late.state), bytes, late.text];
            hand.run(sql, values).map(drop)
        })
    }
}

impl SqliteStore {
    pub(crate) fn late(&self, task: TaskId) -> Result<Option<Late>, ReadError> {
        let late = |row: &rusqlite::Row<'_>| {
            Ok(Late {
                task,
                at: rows::at(row, 0)?,
                state: rows::coded(row, 1, codes::to_state)?,
                bytes: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
                text: row.get(3)?,
            })
        };
        self.readers.with(|connection| {
            connection.prepare_cached(questions::LATE)?.query_row(params![rows::id(task)], late).optional()
        })
    }
}

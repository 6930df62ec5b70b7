//! Hooks of tasks. They are few, and no commit waits for them: each change is a transaction of its own.

use rusqlite::params;
use watertight_engine::record::TaskState;

use super::disk::Hand;
use super::rows::{self, Id};
use super::{SqliteStore, questions};
use crate::codes;
use crate::error::ReadError;
use crate::words::{Hook, HookChange};

impl Hand {
    pub(super) fn change_hook(&mut self, change: &HookChange) -> rusqlite::Result<()> {
        self.firm()?;
        self.alone(|hand| match change {
            HookChange::Put(Hook { task, id, sealed, told }) => {
                let (turn, state) = told.unwrap_or((0, TaskState::Submitted));
                let sql = "INSERT OR REPLACE INTO hook (task, id, sealed, turn, state) VALUES (?1, ?2, ?3, ?4, ?5)";
                hand.run(sql, params![rows::id(*task), id, sealed, turn, codes::state(state)]).map(drop)
            }
            HookChange::Drop(task, id) => {
                hand.run("DELETE FROM hook WHERE task = ?1 AND id = ?2", params![rows::id(*task), id]).map(drop)
            }
        })
    }
}

impl SqliteStore {
    pub(crate) fn hooks(&self) -> Result<Vec<Hook>, ReadError> {
        let hook = |row: &rusqlite::Row<'_>| {
            let (turn, state) = (row.get(3)?, rows::coded(row, 4, codes::to_state)?);
            Ok(Hook {
                task: row.get::<_, Id>(0)?.task(),
                id: row.get(1)?,
                sealed: row.get(2)?,
                told: Some((turn, state)).filter(|_| turn > 0),
            })
        };
        self.readers.with(|connection| connection.prepare_cached(questions::HOOKS)?.query_map((), hook)?.collect())
    }
}

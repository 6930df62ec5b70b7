//! Compare and set, the same for every kind of store: whether a commit may be written over what is stored.

use std::collections::BTreeMap;

use watertight_engine::ids::TaskId;
use watertight_engine::record::{Save, TaskState};

use crate::error::CommitError;
use crate::words::Write;

/// Versions and states of rows that are about to be written.
pub(crate) type Versions = BTreeMap<TaskId, (u64, TaskState)>;

/// The versions that the stored rows have after this commit; or why nothing of it may be written.
pub(crate) fn check<E: From<CommitError>>(
    writes: &[Write],
    stored: impl Fn(TaskId) -> Result<Option<(u64, TaskState)>, E>,
) -> Result<Versions, E> {
    let mut after = Versions::new();
    for write in writes {
        let Save::Delegation { row, message, .. } = &write.save else { continue };
        let before = match after.get(&row.task) {
            Some(before) => Some(*before),
            None => stored(row.task)?,
        };
        let (version, state) = before.unwrap_or((0, row.state));
        let follows = row.version == version.saturating_add(1) && (!state.is_terminal() || state == row.state);
        if !follows {
            return Err(CommitError::Conflict { task: row.task }.into());
        }
        if *message && write.message.is_none() {
            return Err(CommitError::Incomplete { task: row.task }.into());
        }
        after.insert(row.task, (row.version, row.state));
    }
    Ok(after)
}

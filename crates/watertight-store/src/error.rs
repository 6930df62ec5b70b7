//! What can go wrong, by what the one who asked can do about it.

use std::path::PathBuf;

use watertight_engine::ids::TaskId;

/// Why a store cannot be opened. Each one names the path, for the person who has to look there.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another store of this one, has it.
    #[error("{} is in use{}; a cell belongs to one process at a time: stop that one, or give this one another directory",
        path.display(), holder.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    InUse {
        /// The lock file.
        path: PathBuf,
        /// The process that wrote its id into it.
        holder: Option<u32>,
    },
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A later version of this program wrote it.
    #[error("{} was written by a newer watertight (schema {found}, this one knows {known}); use that version",
        path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// It is some other database, or another cell's.
    #[error("{} is not the store of cell {cell}: {found}", path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
        /// Which cell was wanted.
        cell: u32,
        /// What it is.
        found: String,
    },
    /// SQLite said no.
    #[error("cannot open {}: {text}", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What it said.
        text: String,
    },
}

/// Why a commit is not durable. After the last three, and until the next lease, every later commit under the same
/// fence fails too, because it stands on this one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// Another lease was given out since. Whoever holds this one is the past and has to stop.
    #[error("a newer lease was given out for this cell")]
    Fenced,
    /// The row is not the successor of the stored one, or would replace a terminal state.
    #[error("delegation {task} is not stored as the commit assumes")]
    Conflict {
        /// The delegation.
        task: TaskId,
    },
    /// The save says that a message comes with it, and none did.
    #[error("the message of delegation {task} was not given with its row")]
    Incomplete {
        /// The delegation.
        task: TaskId,
    },
    /// The disk is full, read-only, broken, or too far behind; nothing of the commit was written.
    #[error("the store cannot be written: {0}")]
    Unavailable(String),
}

/// Why something could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk or the database said no.
    #[error("the store cannot be read: {0}")]
    Unavailable(String),
    /// What is stored makes no sense to this version.
    #[error("the store holds something that cannot be read: {0}")]
    Corrupt(String),
}

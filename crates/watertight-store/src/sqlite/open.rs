//! Opening a cell's database: the lock, the look at what is there, the settings, the migrations.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::OpenError;

/// Marks a database as one of ours ("wtgt").
const APPLICATION: i64 = 0x7774_6774;

/// All schemas, in order. One that was ever released is never changed.
const MIGRATIONS: [&str; 7] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
];

/// A database that is ours alone.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    /// Held as long as anything is written.
    pub(super) lock: File,
}

pub(super) fn open(directory: &Path, cell: u32) -> Result<Opened, OpenError> {
    make_directory(directory)?;
    let lock = lock(&directory.join(format!("cell-{cell}.lock")))?;
    let path = directory.join(format!("cell-{cell}.sqlite"));
    make_private(&path)?;
    let said = |error: rusqlite::Error| OpenError::Sqlite { path: path.clone(), text: error.to_string() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags).map_err(said)?;
    let version = inspect(&connection, &path, cell)?;
    let journal = settle(&connection).map_err(said)?;
    if journal != "wal" {
        let text = format!("its journal stays \"{journal}\"; the file system cannot do what a store needs");
        return Err(OpenError::Sqlite { path, text });
    }
    migrate(&connection, version, cell).map_err(said)?;
    let stored = connection.query_row("SELECT cell FROM meta", (), |row| row.get::<_, i64>(0)).map_err(said)?;
    if stored != i64::from(cell) {
        return Err(OpenError::Foreign { path, cell, found: format!("it is that of cell {stored}") });
    }
    // The file's name has to survive a loss of power like what is in it.
    let synced = File::open(directory).and_then(|it| it.sync_all());
    synced.map_err(|source| OpenError::Io { doing: "sync", path: directory.into(), source })?;
    Ok(Opened { connection, path, lock })
}

/// A connection that only reads what is committed.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192; PRAGMA trusted_schema = OFF;")?;
    connection.set_prepared_statement_cache_capacity(32);
    plan_once(&connection)?;
    Ok(connection)
}

/// A statement is planned when it is prepared, and not again for every value: that cost more than what it reads.
fn plan_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// A connection that only takes part in checkpoints.
pub(super) fn open_beside(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA trusted_schema = OFF;")?;
    Ok(connection)
}

fn make_directory(directory: &Path) -> Result<(), OpenError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let made = builder.create(directory);
    made.map_err(|source| OpenError::Io { doing: "create", path: directory.into(), source })
}

/// What agents and callers say to each other is nobody else's business. SQLite gives its other files the same mode.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn make_private(path: &Path) -> Result<(), OpenError> {
    let made = private().open(path);
    made.map(drop).map_err(|source| OpenError::Io { doing: "open", path: path.into(), source })
}

/// The lock ends with the process, however that ends. The number in the file is only for people.
fn lock(path: &Path) -> Result<File, OpenError> {
    let failed = |doing| move |source| OpenError::Io { doing, path: path.into(), source };
    let mut file = private().open(path).map_err(failed("open"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.take(20).read_to_string(&mut holder);
            return Err(OpenError::InUse { path: path.into(), holder: holder.trim().parse().ok() });
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
    }
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(failed("write"))?;
    Ok(file)
}

/// Which schema it has: 0 for a new one. Nothing is written before this has looked.
fn inspect(connection: &Connection, path: &Path, cell: u32) -> Result<i64, OpenError> {
    let ask = |sql| connection.query_row(sql, (), |row| row.get::<_, i64>(0));
    let look =
        || Ok((ask("PRAGMA application_id")?, ask("PRAGMA user_version")?, ask("SELECT count(*) FROM sqlite_schema")?));
    let (application, found, things) =
        look().map_err(|error: rusqlite::Error| OpenError::Sqlite { path: path.into(), text: error.to_string() })?;
    let known = MIGRATIONS.len() as i64;
    if application != APPLICATION && (things > 0 || found > 0) {
        return Err(OpenError::Foreign { path: path.into(), cell, found: "another program made it".into() });
    }
    if found > known {
        return Err(OpenError::Newer { path: path.into(), found, known });
    }
    Ok(found)
}

/// Gives the journal's mode.
fn settle(connection: &Connection) -> rusqlite::Result<String> {
    let journal = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    // FULL: what is answered is on the disk. Checkpoints are made beside commits, see `settle`.
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000; \
         PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY; \
         PRAGMA trusted_schema = OFF;",
    )?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    plan_once(connection)?;
    Ok(journal)
}

fn migrate(connection: &Connection, version: i64, cell: u32) -> rusqlite::Result<()> {
    for (at, sql) in MIGRATIONS.iter().enumerate().skip(version as usize) {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(sql)?;
        if at == 0 {
            transaction.execute(
                "INSERT INTO meta (one, cell, fence, saved, keys_changed, keys_id) VALUES (1, ?1, 0, 0, 0, 0)",
                [cell],
            )?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", at as i64 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;
    use rusqlite::types::Value;

    use super::*;
    use crate::sqlite::questions::ANSWERED_BY;

    /// SQLite as it is built here plans anew for values that may make another plan better, and the statements' cache is
    /// of no use then.
    #[test]
    fn no_question_is_planned_again_for_other_values() {
        let home = tempfile::tempdir().unwrap();
        let opened = open(home.path(), 0).unwrap();
        let reader = open_reader(&opened.path).unwrap();
        for connection in [&opened.connection, &reader] {
            for (sql, _) in ANSWERED_BY {
                let mut statement = connection.prepare(sql).unwrap();
                let count = statement.parameter_count();
                for value in [Value::Integer(0), Value::Integer(1), Value::Integer(7)] {
                    let values = rusqlite::params_from_iter(vec![value; count]);
                    statement.query(values).unwrap().next().unwrap();
                }
                assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{sql}");
            }
        }
    }
}

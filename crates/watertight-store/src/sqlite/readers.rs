//! A few connections that read. Each sees everything that is committed when its question begins.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::open::open_reader;
use crate::error::ReadError;

/// Questions at the same time; one more waits.
const READERS: usize = 4;

pub(super) struct Readers {
    path: PathBuf,
    pool: Mutex<Pool>,
    freed: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    lent: usize,
    closed: bool,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Readers {
        Readers { path, pool: Mutex::default(), freed: Condvar::new() }
    }

    pub(super) fn with<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ReadError> {
        let loan = self.borrow()?;
        match &loan.connection {
            Some(connection) => ask(connection).map_err(|error| self.said(&error)),
            None => Err(ReadError::Unavailable("it is closed".into())),
        }
    }

    pub(super) fn close(&self) {
        let mut pool = self.pool();
        pool.closed = true;
        pool.idle.clear();
        drop(pool);
        self.freed.notify_all();
    }

    fn borrow(&self) -> Result<Loan<'_>, ReadError> {
        let mut pool = self.pool();
        while pool.idle.is_empty() && pool.lent >= READERS && !pool.closed {
            pool = self.freed.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        if pool.closed {
            return Err(ReadError::Unavailable("it is closed".into()));
        }
        pool.lent += 1;
        let mut loan = Loan { readers: self, connection: pool.idle.pop() };
        drop(pool);
        if loan.connection.is_none() {
            loan.connection = Some(open_reader(&self.path).map_err(|error| self.said(&error))?);
        }
        Ok(loan)
    }

    fn said(&self, error: &rusqlite::Error) -> ReadError {
        let text = format!("{}: {error}", self.path.display());
        let garbled = matches!(
            error,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
        );
        if garbled { ReadError::Corrupt(text) } else { ReadError::Unavailable(text) }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that comes back, whatever happens to who has it.
struct Loan<'a> {
    readers: &'a Readers,
    connection: Option<Connection>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.pool();
        pool.lent -= 1;
        if !pool.closed {
            pool.idle.extend(self.connection.take());
        }
        drop(pool);
        self.readers.freed.notify_one();
    }
}

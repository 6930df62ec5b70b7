//! A cell's store in one SQLite file: one thread that writes, a few connections that read.
//!
//! ```text
//!   commit ─▶ log (one row a transaction, synced) ─▶ answered ─▶ overlay (in memory) ─▶ tables (later, newest state only)
//! ```
//!
//! What is read is what is in the overlay, and else what is in the tables. After a crash the log makes the overlay again.
//!
//! Assumes that the file is on a local disk and that nobody else writes it. Leaves out waiting: every read takes as
//! long as the disk does.

mod checkpoint;
mod counts;
mod disk;
mod filter;
mod hooks;
mod late;
mod lists;
mod log;
mod open;
mod order;
mod outbox;
mod overlay;
mod prune;
pub(crate) mod questions;
mod readers;
mod rows;
mod settle;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use watertight_engine::ids::{AgentId, ContextKey, Key, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::record::Row;

use crate::codes;
use crate::error::{OpenError, ReadError};
use crate::words::{Body, Lease, Record};
use crate::writer::{Disk, Writer};
use disk::{DELTA, Hand, MESSAGE, RECORD, Run, run_of};
use filter::Filter;
use log::Text;
use overlay::{Overlay, Use};
use readers::Readers;
use rows::{Id, Names};

/// The way to a store on disk.
pub struct SqliteStore {
    // In this order they are dropped: the thread's connection last, so that it is the one to tidy up the log.
    readers: Readers,
    pub(crate) writer: Writer,
    overlay: Arc<RwLock<Overlay>>,
    filter: Arc<Filter>,
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.filter.close();
    }
}

impl SqliteStore {
    pub(crate) fn open(directory: &Path, cell: u32) -> Result<(SqliteStore, Lease), OpenError> {
        let opened = open::open(directory, cell)?;
        let path = opened.path.clone();
        let overlay = Arc::<RwLock<Overlay>>::default();
        let filter = Filter::new(path.clone(), overlay.clone());
        let mut hand = Hand::new(opened, overlay.clone(), filter.clone());
        let lease = hand.lease().map_err(|error| OpenError::Sqlite { path: path.clone(), text: error.to_string() })?;
        let writer = Writer::start(format!("store-{cell}"), hand, lease.fence);
        let writer =
            writer.map_err(|source| OpenError::Io { doing: "start a thread for", path: path.clone(), source })?;
        filter.refresh();
        Ok((SqliteStore { readers: Readers::new(path), writer, overlay, filter }, lease))
    }

    pub(crate) fn close(&self) {
        self.filter.close();
        self.readers.close();
        self.writer.close();
    }

    pub(crate) fn is_new_key(&self, key: &Key) -> bool {
        self.filter.is_new_key(key)
    }

    pub(crate) fn is_new_context(&self, key: &ContextKey) -> bool {
        self.filter.is_new_context(key)
    }

    pub(crate) fn is_new_remote(&self, agent: &AgentId, remote: &str) -> bool {
        self.filter.is_new_remote(agent, remote)
    }

    pub(crate) fn load(&self) -> Result<Vec<Row>, ReadError> {
        let rows = |overlay: &Overlay| overlay.rows().cloned().collect::<Vec<_>>();
        self.both(rows, |fresh, view| {
            let mut names = Names::default();
            let mut stored = view.prepare_cached(questions::LOAD)?;
            let stored = stored.query_map((), |row| names.row(row).map(|row| (row.task, row)))?;
            let mut rows: BTreeMap<TaskId, Row> = stored.collect::<rusqlite::Result<_>>()?;
            rows.extend(fresh.into_iter().map(|row| (row.task, row)));
            Ok(rows.into_values().filter(Row::is_live).collect())
        })
    }

    pub(crate) fn task(&self, task: TaskId) -> Result<Option<Row>, ReadError> {
        let fresh = self.overlay().row(task).cloned();
        if fresh.is_some() {
            return Ok(fresh);
        }
        self.readers.with(|connection| row_of(connection, task))
    }

    pub(crate) fn message(&self, task: TaskId, turn: u32) -> Result<Option<Body>, ReadError> {
        let fresh = |overlay: &Overlay| overlay.get(task).and_then(|fresh| fresh.messages.get(&turn).cloned());
        if let Some(Text::Here(body)) = fresh(&self.overlay()) {
            return Ok(Some(body));
        }
        self.both(fresh, |fresh, view| match fresh {
            Some(text) => body_of(view, task, text).map(Some),
            None => Ok(bodies(view, task, MESSAGE, i64::from(turn)..=i64::from(turn))?.pop()),
        })
    }

    pub(crate) fn record(&self, task: TaskId) -> Result<Option<Record>, ReadError> {
        if let Some(News { whole: Some(Text::Here(whole)), deltas, .. }) = News::of(&self.overlay(), task)
            && deltas.is_empty()
        {
            return Ok(Some(Record { whole: Some(whole), deltas: Vec::new() }));
        }
        self.both(|overlay| News::of(overlay, task), |news, view| record_of(view, task, news))
    }

    /// Several, in order, until they are more than so many bytes together.
    pub(crate) fn records(&self, tasks: &[TaskId], bytes: usize) -> Result<Vec<Option<Record>>, ReadError> {
        let news = |overlay: &Overlay| tasks.iter().map(|task| News::of(overlay, *task)).collect::<Vec<_>>();
        self.both(news, |news, view| {
            let (mut records, mut size) = (Vec::with_capacity(tasks.len()), 0);
            for (task, news) in tasks.iter().zip(news) {
                let record = record_of(view, *task, news)?;
                size += record.as_ref().map_or(0, Record::bytes);
                records.push(record);
                if size > bytes {
                    break;
                }
            }
            Ok(records)
        })
    }

    pub(crate) fn key(&self, key: &Key) -> Result<Option<KnownKey>, ReadError> {
        let fresh = self.overlay().keys.get(key).copied();
        let found = match fresh {
            Some(fresh) => Some(fresh),
            None => self.readers.with(|connection| {
                let Key { principal, agent, message_id } = key;
                let params = params![&*principal.tenant, &*principal.caller, agent.as_str(), &**message_id];
                let it = |row: &rusqlite::Row<'_>| {
                    let (fingerprint, task) = (row.get::<_, Id>(0)?.0, row.get::<_, Id>(1)?.task());
                    Ok(Use { fingerprint, task, turn: row.get(2)? })
                };
                connection.prepare_cached(questions::KEY)?.query_row(params, it).optional()
            })?,
        };
        let Some(Use { fingerprint, task, turn }) = found else { return Ok(None) };
        let never_sent = self.task(task)?.is_some_and(|row| row.never_sent(turn));
        Ok(Some(KnownKey { task, fingerprint, never_sent }))
    }

    pub(crate) fn context(&self, key: &ContextKey) -> Result<Option<RemoteId>, ReadError> {
        let fresh = self.overlay().contexts.get(key).cloned();
        if fresh.is_some() {
            return Ok(fresh);
        }
        let ContextKey { principal, agent, context } = key;
        let params = params![&*principal.tenant, &*principal.caller, agent.as_str(), &**context];
        self.readers.with(|connection| {
            connection.prepare_cached(questions::CONTEXT)?.query_row(params, |row| row.get(0)).optional()
        })
    }

    pub(crate) fn remote_task(&self, agent: &AgentId, remote: &str) -> Result<Option<TaskId>, ReadError> {
        let is_it = |row: &&Row| row.agent == *agent && row.remote_task.as_deref() == Some(remote);
        let first = |overlay: &Overlay| overlay.rows().filter(is_it).map(|row| row.task).min();
        self.both(first, |first, view| {
            let it = |row: &rusqlite::Row<'_>| row.get::<_, Id>(0).map(Id::task);
            let mut stored = view.prepare_cached(questions::REMOTE)?;
            let stored = stored.query_row([remote, agent.as_str()], it).optional()?;
            Ok(stored.into_iter().chain(first).min())
        })
    }

    /// What is fresh and what is in the tables, as of one moment.
    fn both<F, T>(
        &self,
        fresh: impl FnOnce(&Overlay) -> F,
        ask: impl FnOnce(F, &Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ReadError> {
        self.readers.with(|connection| {
            let overlay = self.overlay();
            let view = connection.unchecked_transaction()?;
            // The transaction sees the tables as they are at its first question.
            view.prepare_cached("SELECT one FROM meta")?.query_row((), |_| Ok(()))?;
            let fresh = fresh(&overlay);
            drop(overlay);
            ask(fresh, &view)
        })
    }

    fn overlay(&self) -> RwLockReadGuard<'_, Overlay> {
        self.overlay.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is fresh of a task's record.
#[derive(Default)]
struct News {
    whole: Option<Text>,
    deltas: Vec<Text>,
    /// The tables have nothing of it.
    born: bool,
}

impl News {
    fn of(overlay: &Overlay, task: TaskId) -> Option<News> {
        let fresh = overlay.get(task)?;
        let deltas = fresh.deltas.values().cloned().collect();
        Some(News { whole: fresh.record.clone(), deltas, born: fresh.born() })
    }
}

fn record_of(view: &Connection, task: TaskId, news: Option<News>) -> rusqlite::Result<Option<Record>> {
    let News { whole, deltas, born } = news.unwrap_or_default();
    let mut record = match whole {
        Some(whole) => Record { whole: Some(body_of(view, task, whole)?), deltas: Vec::new() },
        None if born => Record::default(),
        None => Record {
            whole: bodies(view, task, RECORD, 0..=0)?.pop(),
            deltas: bodies(view, task, DELTA, i64::MIN..=i64::MAX)?,
        },
    };
    for delta in deltas {
        record.deltas.push(body_of(view, task, delta)?);
    }
    Ok(record.some())
}

fn row_of(connection: &Connection, task: TaskId) -> rusqlite::Result<Option<Row>> {
    connection.prepare_cached(questions::TASK)?.query_row([rows::id(task)], |row| Names::default().row(row)).optional()
}

fn bodies(
    connection: &Connection,
    task: TaskId,
    kind: i64,
    numbers: std::ops::RangeInclusive<i64>,
) -> rusqlite::Result<Vec<Body>> {
    let mut statement = connection.prepare_cached(questions::BODIES)?;
    let mut found = statement.query(params![rows::id(task), kind, numbers.start(), numbers.end()])?;
    let mut bodies = Vec::new();
    while let Some(row) = found.next()? {
        let (run, dialect, size) = (run_of(row)?, rows::coded(row, 2, codes::to_dialect)?, row.get::<_, i64>(3)?);
        bodies.push(Body { dialect, bytes: bytes_of(connection, task, run, size)? });
    }
    Ok(bodies)
}

fn body_of(connection: &Connection, task: TaskId, text: Text) -> rusqlite::Result<Body> {
    match text {
        Text::Here(body) => Ok(body),
        Text::Laid { dialect, run, size } => Ok(Body { dialect, bytes: bytes_of(connection, task, run, size)? }),
    }
}

fn bytes_of(connection: &Connection, task: TaskId, run: Run, size: i64) -> rusqlite::Result<Bytes> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    let mut pieces = connection.prepare_cached(questions::PIECES)?;
    let mut pieces = pieces.query([run.first, run.first + run.pieces])?;
    while let Some(piece) = pieces.next()? {
        bytes.extend_from_slice(piece.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    if bytes.len() as i64 == size { Ok(Bytes::from(bytes)) } else { Err(rows::missing(task)) }
}

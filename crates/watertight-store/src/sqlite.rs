//! A cell's store in one SQLite file: one thread that writes, a few connections that read.
//!
//! Assumes that the file is on a local disk and that nobody else writes it. Leaves out waiting: every read takes as
//! long as the disk does.

mod disk;
mod open;
mod prune;
pub(crate) mod questions;
mod readers;
mod rows;

use std::path::Path;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use watertight_engine::ids::{AgentId, ContextKey, Key, RemoteId, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::record::Row;

use crate::codes;
use crate::error::{OpenError, ReadError};
use crate::words::{Body, Lease, ListQuery, Page};
use crate::writer::{Disk, Writer};
use disk::{DELTA, Hand, MESSAGE, RECORD, run_of};
use readers::Readers;
use rows::{Id, Names};

/// The way to a store on disk.
pub struct SqliteStore {
    // In this order they are dropped: the thread's connection last, so that it is the one to tidy up the log.
    readers: Readers,
    pub(crate) writer: Writer,
}

impl SqliteStore {
    pub(crate) fn open(directory: &Path, cell: u32) -> Result<(SqliteStore, Lease), OpenError> {
        let opened = open::open(directory, cell)?;
        let path = opened.path.clone();
        let mut hand = Hand::new(opened.connection, opened.path, opened.lock);
        let lease = hand.lease().map_err(|error| OpenError::Sqlite { path: path.clone(), text: error.to_string() })?;
        let writer = Writer::start(format!("store-{cell}"), hand, lease.fence);
        let writer =
            writer.map_err(|source| OpenError::Io { doing: "start a thread for", path: path.clone(), source })?;
        Ok((SqliteStore { readers: Readers::new(path), writer }, lease))
    }

    pub(crate) fn close(&self) {
        self.readers.close();
        self.writer.close();
    }

    pub(crate) fn load(&self) -> Result<Vec<Row>, ReadError> {
        self.readers.with(|connection| {
            let mut names = Names::default();
            connection.prepare_cached(questions::LOAD)?.query_map((), |row| names.row(row))?.collect()
        })
    }

    pub(crate) fn task(&self, task: TaskId) -> Result<Option<Row>, ReadError> {
        self.readers.with(|connection| row_of(connection, task))
    }

    pub(crate) fn message(&self, task: TaskId, turn: u32) -> Result<Option<Body>, ReadError> {
        self.readers.with(|connection| {
            let bodies = bodies(connection, task, MESSAGE, i64::from(turn)..=i64::from(turn))?;
            Ok(bodies.into_iter().next())
        })
    }

    pub(crate) fn record(&self, task: TaskId) -> Result<Option<(Body, Vec<Body>)>, ReadError> {
        self.readers.with(|connection| {
            let view = connection.unchecked_transaction()?;
            let Some(whole) = bodies(&view, task, RECORD, 0..=0)?.into_iter().next() else { return Ok(None) };
            Ok(Some((whole, bodies(&view, task, DELTA, i64::MIN..=i64::MAX)?)))
        })
    }

    pub(crate) fn key(&self, key: &Key) -> Result<Option<KnownKey>, ReadError> {
        self.readers.with(|connection| {
            let view = connection.unchecked_transaction()?;
            let Key { principal, agent, message_id } = key;
            let found = view
                .prepare_cached(questions::KEY)?
                .query_row(params![&*principal.tenant, &*principal.caller, agent.as_str(), &**message_id], |row| {
                    Ok((row.get::<_, Id>(0)?.0, row.get::<_, Id>(1)?.task(), row.get::<_, u32>(2)?))
                })
                .optional()?;
            let Some((fingerprint, task, turn)) = found else { return Ok(None) };
            let never_sent = row_of(&view, task)?.is_some_and(|row| row.never_sent(turn));
            Ok(Some(KnownKey { task, fingerprint, never_sent }))
        })
    }

    pub(crate) fn context(&self, key: &ContextKey) -> Result<Option<RemoteId>, ReadError> {
        let ContextKey { principal, agent, context } = key;
        let params = params![&*principal.tenant, &*principal.caller, agent.as_str(), &**context];
        self.readers.with(|connection| {
            connection.prepare_cached(questions::CONTEXT)?.query_row(params, |row| row.get(0)).optional()
        })
    }

    pub(crate) fn remote_task(&self, agent: &AgentId, remote: &str) -> Result<Option<TaskId>, ReadError> {
        self.readers.with(|connection| {
            let first = |row: &rusqlite::Row<'_>| row.get::<_, Id>(0).map(Id::task);
            connection.prepare_cached(questions::REMOTE)?.query_row([remote, agent.as_str()], first).optional()
        })
    }

    pub(crate) fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.readers.with(|connection| list(&*connection.unchecked_transaction()?, query))
    }
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
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        let mut pieces = connection.prepare_cached(questions::PIECES)?;
        let mut pieces = pieces.query([run.first, run.first + run.pieces])?;
        while let Some(piece) = pieces.next()? {
            bytes.extend_from_slice(piece.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
        }
        if bytes.len() as i64 != size {
            return Err(rows::missing(task));
        }
        bodies.push(Body { dialect, bytes: Bytes::from(bytes) });
    }
    Ok(bodies)
}

fn list(view: &Connection, query: &ListQuery) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    for pair in pairs(view, query)? {
        let (rows, total) = list_pair(view, query, pair)?;
        page.rows.extend(rows);
        page.total += total;
    }
    page.rows.sort_unstable_by_key(|row| std::cmp::Reverse((row.changed, row.task)));
    page.rows.truncate(query.limit);
    Ok(page)
}

fn pairs(view: &Connection, query: &ListQuery) -> rusqlite::Result<Vec<i64>> {
    let (principal, agent) = (&query.principal, query.agent.as_ref().map(AgentId::as_str));
    view.prepare_cached(questions::PAIRS)?
        .query_map(params![&*principal.tenant, &*principal.caller, agent], |row| row.get(0))?
        .collect()
}

fn list_pair(view: &Connection, query: &ListQuery, pair: i64) -> rusqlite::Result<(Vec<Row>, u64)> {
    let (page, count) = match query.context {
        Some(_) => (questions::PAGE_OF_CONTEXT, questions::COUNT_OF_CONTEXT),
        None => (questions::PAGE, questions::COUNT),
    };
    let from = query.changed_after.map_or(i64::MIN, rows::time);
    // Longer than any id, and so behind all of them.
    let last = query.after.map_or_else(|| vec![0xff; 17], |(_, task)| rows::id(task).to_vec());
    let until = query.after.map_or(i64::MAX, |(changed, _)| rows::time(changed));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let total = view
        .prepare_cached(count)?
        .query_row(params![pair, query.context, from, query.mask()], |row| row.get::<_, i64>(0))?;
    let mut names = Names::default();
    let rows = view
        .prepare_cached(page)?
        .query_map(params![pair, query.context, from, query.mask(), until, last, limit], |row| names.row(row))?
        .collect::<rusqlite::Result<_>>()?;
    Ok((rows, total as u64))
}

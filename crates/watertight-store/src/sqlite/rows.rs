//! Rows of the engine as columns, and back.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, Type, ValueRef};
use rusqlite::{CachedStatement, params};
use watertight_engine::ids::{AgentId, Attempt, Principal, TaskId};
use watertight_engine::record::{Digest, Durability, Outbox, Row, Times, Turn};
use watertight_policy::budget::Budget;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::codes;

/// What [`Names::row`] reads, in this order. Goes with `FROM delegation d JOIN pair p ON p.id = d.pair`.
macro_rules! columns {
    () => {
        "d.task, d.version, p.tenant, p.caller, p.agent, d.context, d.remote_task, d.remote_context, d.root, d.parent, \
         d.depth, d.state, d.reason, d.delivery, d.cancel, d.reply, d.late, d.created, d.changed, d.attempt, d.turn, \
         d.message_id, d.fingerprint, d.phase, d.waiting_on, d.not_before, d.expires, d.deadline, d.hops, d.fanout, \
         d.attempts, d.runs_for, d.priority, d.sent, d.answered, d.advanced, d.chain, d.children, d.redrives, d.outbox, \
         d.request, d.result"
    };
}
pub(super) use columns;

/// For [`insert`].
pub(super) const INSERT: &str = "INSERT INTO delegation (task, pair, context, root, parent, depth, created, version, \
    remote_task, remote_context, state, reason, delivery, cancel, reply, late, live, changed, attempt, turn, message_id, \
    fingerprint, phase, waiting_on, not_before, expires, deadline, hops, fanout, attempts, runs_for, priority, sent, answered, advanced, chain, children, redrives, outbox, request, result) VALUES (?1, ?2, ?3, ?4, ?5, \
    ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, \
    ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41)";

/// For [`update`].
pub(super) const UPDATE: &str = "UPDATE delegation SET version = ?2, remote_task = ?3, remote_context = ?4, state = ?5, \
    reason = ?6, delivery = ?7, cancel = ?8, reply = ?9, late = ?10, live = ?11, changed = ?12, attempt = ?13, turn = ?14, \
    message_id = ?15, fingerprint = ?16, phase = ?17, waiting_on = ?18, not_before = ?19, expires = ?20, deadline = ?21, \
    hops = ?22, fanout = ?23, attempts = ?24, runs_for = ?25, priority = ?26, sent = ?27, answered = ?28, advanced = ?29, \
    children = ?30, request = ?31, result = ?32 WHERE id = ?1";

pub(super) fn insert(statement: &mut CachedStatement<'_>, row: &Row, pair: i64) -> rusqlite::Result<usize> {
    let turn = &row.turn;
    statement.execute(params![
        id(row.task),
        pair,
        &*row.context,
        id(row.root),
        row.parent.map(id),
        row.depth,
        time(row.created),
        row.version as i64,
        row.remote_task.as_deref(),
        row.remote_context.as_deref(),
        codes::state(row.state),
        row.reason.map(Reason::as_str),
        codes::delivery(row.delivery),
        codes::cancel(row.cancel),
        codes::reply(row.reply),
        codes::beside(row).map(codes::state),
        row.is_live(),
        time(row.changed),
        row.attempt.0,
        turn.no,
        &*turn.message_id,
        turn.fingerprint.to_be_bytes(),
        codes::phase(turn.phase),
        turn.waiting_on.map(Reason::as_str),
        time(turn.not_before),
        time(turn.expires),
        time(turn.budget.deadline),
        turn.budget.depth,
        turn.budget.fanout,
        turn.attempts,
        turn.runs_for.map(span),
        turn.priority,
        turn.times.sent.map(time),
        turn.times.answered.map(time),
        turn.times.advanced.map(time),
        (!row.chain.is_empty()).then(|| chain(row)),
        row.children,
        row.redrives.map(id),
        outbox(&row.outbox),
        turn.request.map(digest),
        turn.result.map(digest),
    ])
}

pub(super) fn update(statement: &mut CachedStatement<'_>, row: &Row, at: i64) -> rusqlite::Result<usize> {
    let turn = &row.turn;
    statement.execute(params![
        at,
        row.version as i64,
        row.remote_task.as_deref(),
        row.remote_context.as_deref(),
        codes::state(row.state),
        row.reason.map(Reason::as_str),
        codes::delivery(row.delivery),
        codes::cancel(row.cancel),
        codes::reply(row.reply),
        codes::beside(row).map(codes::state),
        row.is_live(),
        time(row.changed),
        row.attempt.0,
        turn.no,
        &*turn.message_id,
        turn.fingerprint.to_be_bytes(),
        codes::phase(turn.phase),
        turn.waiting_on.map(Reason::as_str),
        time(turn.not_before),
        time(turn.expires),
        time(turn.budget.deadline),
        turn.budget.depth,
        turn.budget.fanout,
        turn.attempts,
        turn.runs_for.map(span),
        turn.priority,
        turn.times.sent.map(time),
        turn.times.answered.map(time),
        turn.times.advanced.map(time),
        row.children,
        turn.request.map(digest),
        turn.result.map(digest),
    ])
}

/// Names that many rows share, kept once.
#[derive(Default)]
pub(super) struct Names(BTreeSet<Arc<str>>);

impl Names {
    /// Reads a row of [`columns`].
    pub(super) fn row(&mut self, from: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
        let at = |column| coded(from, column, codes::to_state);
        let state = at(11)?;
        let (late, asked) = codes::of_beside(state, from.get::<_, Option<i64>>(16)?.map(|_| at(16)).transpose()?);
        Ok(Row {
            task: from.get::<_, Id>(0)?.task(),
            version: from.get::<_, i64>(1)? as u64,
            principal: Principal { tenant: self.shared(from, 2)?, caller: self.shared(from, 3)? },
            agent: AgentId(self.shared(from, 4)?),
            durability: Durability::Durable,
            context: from.get(5)?,
            remote_task: from.get(6)?,
            remote_context: from.get(7)?,
            root: from.get::<_, Id>(8)?.task(),
            parent: from.get::<_, Option<Id>>(9)?.map(Id::task),
            depth: from.get(10)?,
            chain: self.chain(from, 36)?,
            children: from.get(37)?,
            redrives: from.get::<_, Option<Id>>(38)?.map(Id::task),
            outbox: self.outbox(from, 39)?,
            state,
            reason: reason(from, 12)?,
            delivery: coded(from, 13, codes::to_delivery)?,
            cancel: coded(from, 14, codes::to_cancel)?,
            reply: coded(from, 15, codes::to_reply)?,
            late,
            asked,
            created: from.get::<_, Moment>(17)?.0,
            changed: from.get::<_, Moment>(18)?.0,
            attempt: Attempt(from.get(19)?),
            turn: Turn {
                no: from.get(20)?,
                message_id: from.get(21)?,
                fingerprint: from.get::<_, Id>(22)?.0,
                phase: coded(from, 23, codes::to_phase)?,
                waiting_on: reason(from, 24)?,
                not_before: from.get::<_, Moment>(25)?.0,
                expires: from.get::<_, Moment>(26)?.0,
                budget: Budget { deadline: from.get::<_, Moment>(27)?.0, depth: from.get(28)?, fanout: from.get(29)? },
                attempts: from.get(30)?,
                runs_for: from.get::<_, Option<Moment>>(31)?.map(|it| it.0.since(Time::ZERO)),
                priority: from.get(32)?,
                times: Times { sent: moment(from, 33)?, answered: moment(from, 34)?, advanced: moment(from, 35)? },
                request: to_digest(from, 40)?,
                result: to_digest(from, 41)?,
            },
        })
    }

    fn chain(&mut self, from: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Arc<[AgentId]>> {
        let Some(names) = from.get_ref(column)?.as_str_or_null().map_err(|error| unreadable(column, error))? else {
            return Ok(Arc::from([]));
        };
        Ok(names.split('\n').map(|name| AgentId(self.known(name))).collect())
    }

    fn outbox(&mut self, from: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Outbox> {
        let name = from.get_ref(column)?.as_str_or_null().map_err(|error| unreadable(column, error))?;
        Ok(name.map_or(Outbox::None, |name| to_outbox(self.known(name))))
    }

    fn shared(&mut self, from: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Arc<str>> {
        let name = from.get_ref(column)?.as_str().map_err(|error| unreadable(column, error))?;
        Ok(self.known(name))
    }

    fn known(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.0.insert(new.clone());
        new
    }
}

/// A task's id, or a fingerprint, as a column.
pub(super) fn id(task: TaskId) -> [u8; 16] {
    task.0.to_be_bytes()
}

/// A time as a column. The last one that fits stands for all that do not.
pub(super) fn time(time: Time) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn at(from: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Time> {
    Ok(from.get::<_, Moment>(column)?.0)
}

fn moment(from: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<Time>> {
    Ok(from.get::<_, Option<Moment>>(column)?.map(|moment| moment.0))
}

/// As a column, and in the log: no agent has an empty name.
pub(super) fn outbox(outbox: &Outbox) -> Option<&str> {
    match outbox {
        Outbox::None => None,
        Outbox::Caller => Some(""),
        Outbox::Agent(agent) => Some(agent.as_str()),
    }
}

/// What [`outbox`] wrote, if it wrote anything.
pub(super) fn to_outbox(name: Arc<str>) -> Outbox {
    if name.is_empty() { Outbox::Caller } else { Outbox::Agent(AgentId(name)) }
}

/// As a column, and in the log: the size and then the hash.
pub(super) fn digest(digest: Digest) -> [u8; 40] {
    let mut out = [0; 40];
    let all = digest.bytes.to_be_bytes().into_iter().chain(digest.sha256);
    out.iter_mut().zip(all).for_each(|(to, byte)| *to = byte);
    out
}

/// What [`digest`] wrote.
pub(super) fn of_digest(bytes: [u8; 40]) -> Digest {
    let mut from = bytes.into_iter();
    let size = std::array::from_fn(|_| from.next().unwrap_or(0));
    Digest { bytes: u64::from_be_bytes(size), sha256: std::array::from_fn(|_| from.next().unwrap_or(0)) }
}

fn to_digest(from: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<Digest>> {
    Ok(from.get::<_, Option<[u8; 40]>>(column)?.map(of_digest))
}

/// An agent's name has no line breaks.
fn chain(row: &Row) -> String {
    row.chain.iter().map(AgentId::as_str).collect::<Vec<_>>().join("\n")
}

fn span(span: Span) -> i64 {
    time(Time::ZERO + span)
}

/// Sixteen bytes.
pub(super) struct Id(pub(super) u128);

impl Id {
    pub(super) fn task(self) -> TaskId {
        TaskId(self.0)
    }
}

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        <[u8; 16]>::column_result(value).map(u128::from_be_bytes).map(Id)
    }
}

/// What [`time`] wrote.
pub(super) struct Moment(pub(super) Time);

impl FromSql for Moment {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_i64()? {
            i64::MAX => Ok(Moment(Time::FAR)),
            micros => u64::try_from(micros)
                .map(|it| Moment(Time::from_micros(it)))
                .map_err(|_| FromSqlError::OutOfRange(micros)),
        }
    }
}

pub(super) fn coded<T>(from: &rusqlite::Row<'_>, column: usize, read: fn(i64) -> Option<T>) -> rusqlite::Result<T> {
    let code = from.get(column)?;
    read(code).ok_or_else(|| unreadable(column, FromSqlError::OutOfRange(code)))
}

pub(super) fn reason(from: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<Reason>> {
    let Some(word) = from.get::<_, Option<String>>(column)? else { return Ok(None) };
    let unknown = || unreadable(column, FromSqlError::Other(format!("no reason is called {word}").into()));
    Reason::from_word(&word).map(Some).ok_or_else(unknown)
}

/// A body without all its pieces.
pub(super) fn missing(task: TaskId) -> rusqlite::Error {
    unreadable(0, FromSqlError::Other(format!("a text of delegation {task} is not all there").into()))
}

/// A row of the log that this version cannot read.
pub(super) fn garbled_log(seq: u64) -> rusqlite::Error {
    unreadable(1, FromSqlError::Other(format!("row {seq} of the log makes no sense").into()))
}

fn unreadable(column: usize, error: FromSqlError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Null, Box::new(error))
}

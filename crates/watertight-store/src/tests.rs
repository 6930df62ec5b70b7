//! What the tests share: rows, a commit that is waited for, and one run of a story over both kinds of store.

mod children;
mod contract;
mod crash;
mod files;
mod hooks;
mod late;
mod lists;
mod log;
mod newness;
mod outbox;
mod over;
mod reading;

use std::sync::mpsc::{Receiver, channel};

use watertight_engine::ids::{AgentId, Attempt, ContextKey, Key, Owner, Principal, TaskId};
use watertight_engine::record::{
    Cancel, Delivery, Digest, Notice, Outbox, Phase, ReplyKind, Row, Save, TaskState, Times, Turn,
};
use watertight_policy::budget::Budget;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::{Body, CommitError, Dialect, Lease, Store, Write};

/// Tells the same story to both.
pub(crate) fn both(story: impl Fn(Store, Lease)) {
    let (store, lease) = Store::memory();
    story(store, lease);
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    story(store, lease);
}

pub(crate) fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// A delegation as it is accepted, at a time that its id tells.
pub(crate) fn row(n: u128) -> Row {
    let principal = Principal { tenant: "acme".into(), caller: "planner".into() };
    let (context, message_id) = (format!("ctx-{n}"), format!("m-{n}"));
    let budget = Budget { deadline: at(60_000), depth: 4, fanout: 8 };
    let turn = Turn::new(1, message_id.as_str().into(), n * 7, budget);
    let row = Row::new(TaskId(n), principal, AgentId::new("hotels"), context.as_str().into(), at(n as u64), turn);
    Row { version: 1, ..row }
}

/// What is told of a delegation's end, under this number.
pub(crate) fn notice(seq: u64) -> Notice {
    let row = full(u128::from(seq));
    Notice {
        owner: Owner::Agent("acme".into(), AgentId::new("planner")),
        seq,
        task: row.task,
        turn: 3,
        agent: row.agent,
        context: row.context,
        state: TaskState::Failed,
        reason: Some(Reason::AgentReset),
        at: at(seq),
    }
}

/// The same delegation one save later.
pub(crate) fn next(row: &Row, state: TaskState) -> Row {
    Row { version: row.version + 1, state, ..row.clone() }
}

/// A row with every field away from its default.
pub(crate) fn full(n: u128) -> Row {
    Row {
        remote_task: Some("their-task".into()),
        remote_context: Some("their-context".into()),
        root: TaskId(1),
        parent: Some(TaskId(2)),
        depth: 3,
        chain: [AgentId::new("first"), AgentId::new("second")].into(),
        children: 5,
        redrives: Some(TaskId(3)),
        outbox: Outbox::Agent(AgentId::new("planner")),
        state: TaskState::InputRequired,
        reason: Some(Reason::AgentReset),
        delivery: Delivery::MaybeDelivered,
        cancel: Cancel::Owed,
        reply: ReplyKind::Message,
        asked: Some(TaskState::AuthRequired),
        attempt: Attempt(7),
        turn: Turn {
            no: 2,
            fingerprint: u128::MAX,
            phase: Phase::Dispatching,
            waiting_on: Some(Reason::BulkheadFull),
            not_before: at(5),
            runs_for: Some(Span::from_secs(9)),
            request: Some(Digest { bytes: u64::MAX, sha256: std::array::from_fn(|at| at as u8) }),
            result: Some(Digest { bytes: 0, sha256: [0xff; 32] }),
            attempts: 3,
            priority: 100,
            times: Times { sent: Some(at(6)), answered: Some(at(7)), advanced: Some(at(8)) },
            ..row(n).turn
        },
        ..row(n)
    }
}

pub(crate) fn key_of(row: &Row) -> Key {
    Key { principal: row.principal.clone(), agent: row.agent.clone(), message_id: row.turn.message_id.clone() }
}

pub(crate) fn context_of(row: &Row) -> ContextKey {
    ContextKey { principal: row.principal.clone(), agent: row.agent.clone(), context: row.context.clone() }
}

pub(crate) fn save(row: &Row) -> Write {
    Write::bare(Save::Delegation { row: row.clone().into(), message: false, record: false })
}

pub(crate) fn save_key(row: &Row) -> Write {
    let Turn { fingerprint, no, .. } = row.turn;
    Write::bare(Save::Key { key: key_of(row), fingerprint, task: row.task, turn: no })
}

pub(crate) fn save_context(row: &Row, remote: &str) -> Write {
    Write::bare(Save::Context { key: context_of(row), remote: remote.into() })
}

pub(crate) fn with_message(row: &Row, message: Body) -> Write {
    let save = Save::Delegation { row: row.clone().into(), message: true, record: false };
    Write { save, message: Some(message), record: None }
}

pub(crate) fn with_record(row: &Row, record: Body) -> Write {
    let save = Save::Delegation { row: row.clone().into(), message: false, record: true };
    Write { save, message: None, record: Some(record) }
}

pub(crate) fn body(text: &str) -> Body {
    Body { dialect: Dialect::V1, bytes: text.to_owned().into() }
}

/// So many bytes, no two pieces alike.
pub(crate) fn bulk(size: usize) -> Body {
    let bytes: Vec<u8> = (0..size).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    Body { dialect: Dialect::V03, bytes: bytes.into() }
}

/// A record's parts.
fn recorded(store: &Store, task: TaskId) -> Option<(Body, Vec<Body>)> {
    store.record(task).unwrap().map(|record| (record.whole.expect("a whole one"), record.deltas))
}

/// A commit, and its answer.
fn commit(store: &Store, fence: u64, writes: Vec<Write>) -> Result<(), CommitError> {
    let (sender, answer) = channel();
    store.commit(1, fence, writes, Box::new(move |_, result| sender.send(result).unwrap()));
    answer.recv().unwrap()
}

/// Holds the store's thread, at the answer of an empty commit, until the sender is dropped.
fn hold(store: &Store, fence: u64) -> std::sync::mpsc::Sender<()> {
    let (gate, closed) = channel::<()>();
    let (sender, reached) = channel();
    let wait = move |_, _| {
        sender.send(()).unwrap();
        let _ = closed.recv();
    };
    store.commit(0, fence, Vec::new(), Box::new(wait));
    reached.recv().unwrap();
    gate
}

/// Commits one after another without waiting; their answers, with their numbers.
fn commit_all(
    store: &Store,
    commits: impl IntoIterator<Item = (u64, Vec<Write>)>,
) -> Receiver<(u64, Result<(), CommitError>)> {
    let (sender, answers) = channel();
    for (n, (fence, writes)) in (1..).zip(commits) {
        let sender = sender.clone();
        store.commit(n, fence, writes, Box::new(move |n, result| sender.send((n, result)).unwrap()));
    }
    answers
}

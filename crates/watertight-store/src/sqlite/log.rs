//! What a transaction leaves in the log: one row of bytes, from which everything that it saved can be made again.
//!
//! Assumes that SQLite keeps the bytes whole. Numbers are LEB128 with the low seven bits first, ids and fingerprints 16
//! bytes, texts and bodies have their length before them. The first byte is the format; the next format gets another.

use std::sync::Arc;

use bytes::Bytes;
use watertight_engine::ids::{AgentId, Attempt, ContextKey, Fingerprint, Key, Owner, Principal, RemoteId, TaskId};
use watertight_engine::record::{Digest, Durability, NORMAL_PRIORITY, Notice, Outbox, Row, Times, Turn};
use watertight_policy::budget::Budget;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use super::disk::Run;
use super::rows;
use crate::codes;
use crate::words::{Body, Dialect};

const FORMAT: u8 = 4;

/// The format before it had no digests.
const THIRD_FORMAT: u8 = 3;

/// The one before that no outboxes.
const SECOND_FORMAT: u8 = 2;

/// And the one before that no priorities, times, chains, and the like.
const FIRST_FORMAT: u8 = 1;

/// One thing that was saved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Row {
        row: Arc<Row>,
        message: Option<Text>,
        record: Option<Text>,
    },
    Key {
        key: Key,
        fingerprint: Fingerprint,
        task: TaskId,
        turn: u32,
    },
    Context {
        key: ContextKey,
        remote: RemoteId,
    },
    Delta {
        task: TaskId,
        seq: u64,
        text: Text,
    },
    Notice(Arc<Notice>),
    Taken {
        owner: Owner,
        first: u64,
        last: u64,
        lost: u64,
    },
    /// These were removed, with all that belongs to them.
    Gone(Vec<TaskId>),
    /// The keys of these were.
    KeysGone(Vec<TaskId>),
}

/// A body: here, or written ahead in pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Text {
    Here(Body),
    Laid { dialect: Dialect, run: Run, size: i64 },
}

impl Text {
    pub(super) fn of(body: Body, laid: Option<Run>) -> Text {
        match laid {
            Some(run) => Text::Laid { dialect: body.dialect, run, size: body.bytes.len() as i64 },
            None => Text::Here(body),
        }
    }

    /// Where it was written ahead.
    pub(super) fn run(&self) -> Option<Run> {
        match self {
            Text::Here(_) => None,
            Text::Laid { run, .. } => Some(*run),
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Text::Here(body) => body.bytes.len(),
            Text::Laid { .. } => 0,
        }
    }
}

impl Entry {
    pub(super) fn row(&self) -> Option<&Row> {
        match self {
            Entry::Row { row, .. } => Some(row),
            Entry::Key { .. } | Entry::Context { .. } | Entry::Delta { .. } | Entry::Gone(_) | Entry::KeysGone(_) => {
                None
            }
            Entry::Notice(_) | Entry::Taken { .. } => None,
        }
    }

    /// The bodies in it.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Text> {
        let (message, record) = match self {
            Entry::Row { message, record, .. } => (message.as_ref(), record.as_ref()),
            Entry::Delta { text, .. } => (Some(text), None),
            Entry::Key { .. } | Entry::Context { .. } | Entry::Gone(_) | Entry::KeysGone(_) => (None, None),
            Entry::Notice(_) | Entry::Taken { .. } => (None, None),
        };
        message.into_iter().chain(record)
    }
}

/// The row of one transaction, as it is written.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    out: Vec<u8>,
}

impl Encoder {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.out
    }

    pub(super) fn clear(&mut self) {
        self.out.clear();
        // What a burst took is given back.
        self.out.shrink_to(1 << 20);
    }

    pub(super) fn add(&mut self, entry: &Entry) {
        if self.out.is_empty() {
            self.out.push(FORMAT);
        }
        match entry {
            Entry::Row { row, message, record } => {
                self.out.push(0);
                self.row(row);
                self.maybe(message.as_ref(), Encoder::text);
                self.maybe(record.as_ref(), Encoder::text);
            }
            Entry::Key { key, fingerprint, task, turn } => {
                self.out.push(1);
                self.pair(&key.principal, &key.agent);
                self.string(&key.message_id);
                self.wide(*fingerprint);
                self.wide(task.0);
                self.number(u64::from(*turn));
            }
            Entry::Context { key, remote } => {
                self.out.push(2);
                self.pair(&key.principal, &key.agent);
                self.string(&key.context);
                self.string(remote);
            }
            Entry::Delta { task, seq, text } => {
                self.out.push(3);
                self.wide(task.0);
                self.number(*seq);
                self.text(text);
            }
            Entry::Gone(tasks) => {
                self.out.push(4);
                self.tasks(tasks);
            }
            Entry::KeysGone(tasks) => {
                self.out.push(5);
                self.tasks(tasks);
            }
            Entry::Notice(notice) => {
                self.out.push(6);
                self.owner(&notice.owner);
                self.number(notice.seq);
                self.wide(notice.task.0);
                self.number(u64::from(notice.turn));
                self.string(notice.agent.as_str());
                self.string(&notice.context);
                self.code(codes::state(notice.state));
                self.maybe(notice.reason, |out, reason| out.string(reason.as_str()));
                self.number(notice.at.as_micros());
            }
            Entry::Taken { owner, first, last, lost } => {
                self.out.push(7);
                self.owner(owner);
                [*first, *last, *lost].into_iter().for_each(|number| self.number(number));
            }
        }
    }

    fn row(&mut self, row: &Row) {
        let turn = &row.turn;
        self.wide(row.task.0);
        self.number(row.version);
        self.pair(&row.principal, &row.agent);
        self.string(&row.context);
        self.maybe(row.remote_task.as_deref(), Encoder::string);
        self.maybe(row.remote_context.as_deref(), Encoder::string);
        self.wide(row.root.0);
        self.maybe(row.parent, |out, parent| out.wide(parent.0));
        self.number(u64::from(row.depth));
        self.code(codes::state(row.state));
        self.maybe(row.reason, |out, reason| out.string(reason.as_str()));
        self.code(codes::delivery(row.delivery));
        self.code(codes::cancel(row.cancel));
        self.code(codes::reply(row.reply));
        self.maybe(codes::beside(row), |out, state| out.code(codes::state(state)));
        self.number(row.created.as_micros());
        self.number(row.changed.as_micros());
        self.number(u64::from(row.attempt.0));
        self.number(u64::from(turn.no));
        self.string(&turn.message_id);
        self.wide(turn.fingerprint);
        self.code(codes::phase(turn.phase));
        self.maybe(turn.waiting_on, |out, reason| out.string(reason.as_str()));
        self.number(turn.not_before.as_micros());
        self.number(turn.expires.as_micros());
        self.number(turn.budget.deadline.as_micros());
        self.number(u64::from(turn.budget.depth));
        self.number(u64::from(turn.budget.fanout));
        self.number(u64::from(turn.attempts));
        self.maybe(turn.runs_for, |out, span| out.number(span.as_micros()));
        self.number(u64::from(turn.priority));
        for time in [turn.times.sent, turn.times.answered, turn.times.advanced] {
            self.maybe(time, |out, time| out.number(time.as_micros()));
        }
        self.number(row.chain.len() as u64);
        row.chain.iter().for_each(|agent| self.string(agent.as_str()));
        self.number(u64::from(row.children));
        self.maybe(row.redrives, |out, task| out.wide(task.0));
        self.maybe(rows::outbox(&row.outbox), Encoder::string);
        for digest in [turn.request, turn.result] {
            self.maybe(digest, |out, digest| out.out.extend_from_slice(&rows::digest(digest)));
        }
    }

    fn text(&mut self, text: &Text) {
        match text {
            Text::Here(body) => {
                self.out.push(0);
                self.code(codes::dialect(body.dialect));
                self.raw(&body.bytes);
            }
            Text::Laid { dialect, run, size } => {
                self.out.push(1);
                self.code(codes::dialect(*dialect));
                [run.first, run.pieces, *size].into_iter().for_each(|number| self.number(number as u64));
            }
        }
    }

    fn tasks(&mut self, tasks: &[TaskId]) {
        self.number(tasks.len() as u64);
        tasks.iter().for_each(|task| self.wide(task.0));
    }

    fn owner(&mut self, owner: &Owner) {
        let (kind, tenant, name) = match owner {
            Owner::Agent(tenant, agent) => (0, tenant, agent.as_str()),
            Owner::Caller(Principal { tenant, caller }) => (1, tenant, &**caller),
        };
        self.out.push(kind);
        self.string(tenant);
        self.string(name);
    }

    fn pair(&mut self, principal: &Principal, agent: &AgentId) {
        self.string(&principal.tenant);
        self.string(&principal.caller);
        self.string(agent.as_str());
    }

    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Encoder, T)) {
        self.out.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn string(&mut self, text: &str) {
        self.raw(text.as_bytes());
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn wide(&mut self, number: u128) {
        self.out.extend_from_slice(&number.to_be_bytes());
    }

    /// Codes are small.
    fn code(&mut self, code: i64) {
        self.number(code as u64);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }
}

/// All entries of a row; `None` if it makes no sense.
pub(super) fn decode(bytes: Vec<u8>) -> Option<Vec<Entry>> {
    let mut from = Decoder { left: Bytes::from(bytes), format: 0 };
    from.format = from.byte()?;
    if ![FIRST_FORMAT, SECOND_FORMAT, THIRD_FORMAT, FORMAT].contains(&from.format) {
        return None;
    }
    let mut entries = Vec::new();
    while !from.left.is_empty() {
        entries.push(from.entry()?);
    }
    Some(entries)
}

struct Decoder {
    left: Bytes,
    format: u8,
}

impl Decoder {
    fn entry(&mut self) -> Option<Entry> {
        Some(match self.byte()? {
            0 => Entry::Row {
                row: self.row()?.into(),
                message: self.maybe(Decoder::text)?,
                record: self.maybe(Decoder::text)?,
            },
            1 => {
                let (principal, agent) = self.pair()?;
                let key = Key { principal, agent, message_id: self.string()? };
                Entry::Key { key, fingerprint: self.wide()?, task: TaskId(self.wide()?), turn: self.small()? }
            }
            2 => {
                let (principal, agent) = self.pair()?;
                let key = ContextKey { principal, agent, context: self.string()? };
                Entry::Context { key, remote: self.string()? }
            }
            3 => Entry::Delta { task: TaskId(self.wide()?), seq: self.number()?, text: self.text()? },
            4 => Entry::Gone(self.tasks()?),
            5 => Entry::KeysGone(self.tasks()?),
            6 => Entry::Notice(Arc::new(Notice {
                owner: self.owner()?,
                seq: self.number()?,
                task: TaskId(self.wide()?),
                turn: self.small()?,
                agent: AgentId(self.string()?),
                context: self.string()?,
                state: codes::to_state(self.code()?)?,
                reason: self.maybe(Decoder::reason)?,
                at: self.time()?,
            })),
            7 => {
                Entry::Taken { owner: self.owner()?, first: self.number()?, last: self.number()?, lost: self.number()? }
            }
            _ => return None,
        })
    }

    fn row(&mut self) -> Option<Row> {
        let task = TaskId(self.wide()?);
        let version = self.number()?;
        let (principal, agent) = self.pair()?;
        let mut row = Row {
            task,
            version,
            principal,
            agent,
            durability: Durability::Durable,
            context: self.string()?,
            remote_task: self.maybe(Decoder::string)?,
            remote_context: self.maybe(Decoder::string)?,
            root: TaskId(self.wide()?),
            parent: self.maybe(|from| from.wide().map(TaskId))?,
            depth: self.small()?,
            chain: Arc::from([]),
            children: 0,
            redrives: None,
            outbox: Outbox::None,
            state: codes::to_state(self.code()?)?,
            reason: self.maybe(Decoder::reason)?,
            delivery: codes::to_delivery(self.code()?)?,
            cancel: codes::to_cancel(self.code()?)?,
            reply: codes::to_reply(self.code()?)?,
            late: self.maybe(|from| codes::to_state(from.code()?))?,
            asked: None,
            created: self.time()?,
            changed: self.time()?,
            attempt: Attempt(self.small()?),
            turn: Turn {
                no: self.small()?,
                message_id: self.string()?,
                fingerprint: self.wide()?,
                phase: codes::to_phase(self.code()?)?,
                waiting_on: self.maybe(Decoder::reason)?,
                not_before: self.time()?,
                expires: self.time()?,
                budget: Budget { deadline: self.time()?, depth: self.small()?, fanout: self.small()? },
                attempts: self.small()?,
                runs_for: self.maybe(|from| from.number().map(Span::from_micros))?,
                priority: NORMAL_PRIORITY,
                times: Times::default(),
                request: None,
                result: None,
            },
        };
        (row.late, row.asked) = codes::of_beside(row.state, row.late);
        if self.format > FIRST_FORMAT {
            row.turn.priority = u8::try_from(self.number()?).ok()?;
            let (sent, answered) = (self.maybe(Decoder::time)?, self.maybe(Decoder::time)?);
            row.turn.times = Times { sent, answered, advanced: self.maybe(Decoder::time)? };
            let count = self.number()?;
            row.chain = (0..count).map(|_| self.string().map(AgentId)).collect::<Option<_>>()?;
            row.children = self.small()?;
            row.redrives = self.maybe(|from| from.wide().map(TaskId))?;
        }
        if self.format > SECOND_FORMAT {
            row.outbox = self.maybe(Decoder::string)?.map_or(Outbox::None, rows::to_outbox);
        }
        if self.format > THIRD_FORMAT {
            row.turn.request = self.maybe(Decoder::digest)?;
            row.turn.result = self.maybe(Decoder::digest)?;
        }
        Some(row)
    }

    fn digest(&mut self) -> Option<Digest> {
        let mut bytes = [0; 40];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Some(rows::of_digest(bytes))
    }

    fn text(&mut self) -> Option<Text> {
        let laid = self.byte()?;
        let dialect = codes::to_dialect(self.code()?)?;
        match laid {
            0 => Some(Text::Here(Body { dialect, bytes: self.raw()? })),
            1 => {
                let (first, pieces, size) = (self.code()?, self.code()?, self.code()?);
                Some(Text::Laid { dialect, run: Run { first, pieces }, size })
            }
            _ => None,
        }
    }

    fn tasks(&mut self) -> Option<Vec<TaskId>> {
        let count = self.number()?;
        (0..count).map(|_| self.wide().map(TaskId)).collect()
    }

    fn owner(&mut self) -> Option<Owner> {
        let (kind, tenant, name) = (self.byte()?, self.string()?, self.string()?);
        match kind {
            0 => Some(Owner::Agent(tenant, AgentId(name))),
            1 => Some(Owner::Caller(Principal { tenant, caller: name })),
            _ => None,
        }
    }

    fn pair(&mut self) -> Option<(Principal, AgentId)> {
        let principal = Principal { tenant: self.string()?, caller: self.string()? };
        Some((principal, AgentId(self.string()?)))
    }

    fn maybe<T>(&mut self, read: impl FnOnce(&mut Decoder) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn reason(&mut self) -> Option<Reason> {
        Reason::from_word(&self.string()?)
    }

    fn time(&mut self) -> Option<Time> {
        self.number().map(Time::from_micros)
    }

    fn string(&mut self) -> Option<Arc<str>> {
        let bytes = self.raw()?;
        std::str::from_utf8(&bytes).ok().map(Arc::from)
    }

    fn raw(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        (length <= self.left.len()).then(|| self.left.split_to(length))
    }

    fn wide(&mut self) -> Option<u128> {
        let (bytes, _) = self.left.split_first_chunk::<16>()?;
        let number = u128::from_be_bytes(*bytes);
        self.left = self.left.slice(16..);
        Some(number)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.left.first()?;
        self.left = self.left.slice(1..);
        Some(byte)
    }

    fn code(&mut self) -> Option<i64> {
        i64::try_from(self.number()?).ok()
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{body, context_of, full, key_of, notice, row};

    fn all() -> Vec<Entry> {
        let (plain, full) = (row(1), full(u128::MAX >> 9));
        let laid = Text::Laid { dialect: Dialect::V03, run: Run { first: i64::MAX, pieces: 77 }, size: 5 << 20 };
        vec![
            Entry::Row { row: plain.clone().into(), message: None, record: None },
            Entry::Row {
                row: full.clone().into(),
                message: Some(Text::Here(body("hello"))),
                record: Some(laid.clone()),
            },
            Entry::Key { key: key_of(&full), fingerprint: u128::MAX, task: full.task, turn: 7 },
            Entry::Context { key: context_of(&full), remote: "far".into() },
            Entry::Delta { task: plain.task, seq: u64::MAX, text: laid },
            Entry::Gone(vec![plain.task, full.task]),
            Entry::KeysGone(vec![]),
            Entry::Notice(notice(u64::MAX).into()),
            Entry::Taken { owner: notice(1).owner, first: 1, last: 300, lost: u64::MAX },
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        let mut out = Encoder::default();
        all().iter().for_each(|entry| out.add(entry));
        assert_eq!(decode(out.bytes().to_vec()), Some(all()));
        assert!(out.bytes().len() < 1_000, "{}", out.bytes().len());
        out.clear();
        assert!(out.bytes().is_empty());
    }

    /// As the format before wrote it: what it did not know yet is as if nobody had said anything.
    #[test]
    fn a_row_of_an_earlier_format_is_read() {
        let mut out = Encoder::default();
        let plain = row(1);
        out.add(&Entry::Row { row: plain.clone().into(), message: None, record: None });
        // Behind the row: its priority, no times, no chain, no children, none that it repeats, no outbox, no
        // digests; then no texts.
        let (known, added) = out.bytes().split_at(out.bytes().len() - 12);
        assert_eq!(added, [50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let first = [&[FIRST_FORMAT], &known[1..], &[0, 0]].concat();
        let second = [&[SECOND_FORMAT], &known[1..], &added[..9]].concat();
        let third = [&[THIRD_FORMAT], &known[1..], &added[..10]].concat();
        let row = Some(vec![Entry::Row { row: plain.into(), message: None, record: None }]);
        assert_eq!((decode(first), decode(second), decode(third)), (row.clone(), row.clone(), row));
    }

    #[test]
    fn what_is_cut_or_of_another_format_is_not_guessed() {
        let mut out = Encoder::default();
        out.add(&all()[1]);
        let bytes = out.bytes();
        assert!((0..bytes.len()).filter(|&end| end != 1).all(|end| decode(bytes[..end].to_vec()).is_none()));
        assert_eq!(decode([&[9], &bytes[1..]].concat()), None);
        assert_eq!(decode(vec![FORMAT, 9]), None);
    }
}

//! One live delegation: its record, its events in order, and its readers.
//!
//! ```text
//!   relayed ─▶ pending (behind a state that is not durable yet) ─▶ shown ─▶ ring, readers
//! ```
//!
//! There are two records while something is pending: `shown` is what everybody sees, `ahead` has what was relayed.

mod late;
mod messages;
mod rest;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use watertight_a2a::event::{Body, Event as Heard};
use watertight_a2a::record::{ENTRY_BYTES, Record, delta};
use watertight_engine::ids::{AgentId, Attempt, Key, Principal, TaskId};
use watertight_engine::record::{Durability, Phase, Row, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use super::along::Along;
use super::kept::{self, Message};
use super::reader::{Put, Reader};
use super::view::{kind_of, millis, overrule, verdict, view_of};
use super::{Detail, End, Event, EventId, EventKind, Limits, TaskView};
use crate::states::state_of;

pub(crate) use rest::only_waits;

/// One live delegation.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) task: TaskId,
    pub(crate) principal: Principal,
    pub(crate) agent: AgentId,
    /// It is kept in memory alone: nothing of it is written.
    pub(crate) volatile: bool,
    fence: u64,
    limits: Limits,
    evictions: Arc<AtomicU64>,
    pub(crate) along: Along,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The durable row that is shown.
    row: Option<Arc<Row>>,
    /// A durable row that is to be shown together with its event.
    staged: Option<Arc<Row>>,
    context: Arc<str>,
    shown: Arc<Record>,
    ahead: Option<Arc<Record>>,
    detail: Option<Arc<Detail>>,
    /// The message that it began with is only in the store.
    hollow: bool,
    /// What the agent says after the verdict.
    late: Option<Box<Record>>,
    /// The agent has spoken of a task: a bare message is not its whole answer then.
    seen_task: bool,
    /// The last number given out.
    last: u64,
    /// The last number shown.
    last_shown: u64,
    /// The state as of the last event in line.
    line_state: TaskState,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    ring: VecDeque<Arc<Event>>,
    ring_bytes: usize,
    readers: Vec<Arc<Reader>>,
    attempt: Attempt,
    claimed: Vec<Arc<str>>,
    /// The message of the turn that is to be sent.
    to_send: Option<(u32, Message)>,
    /// What was relayed and is to be appended to the stored record, as events with their times.
    deltas: VecDeque<(i64, Bytes)>,
    delta_bytes: usize,
    /// Too much waited to be appended: what comes after the gap would not fit, until there is a whole record again.
    torn: bool,
    /// The number of the next delta. None is ever used twice for a task, not even by the next process: what is stored
    /// of one is replaced by another of the same number.
    delta: u64,
}

#[derive(Debug)]
struct Pending {
    event: Arc<Event>,
    heard: Heard,
    gate: Gate,
    at: Time,
}

/// What an event waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gate {
    /// Only for what is before it.
    Free,
    /// For a commit that says the same state.
    State,
    /// For the end of the turn.
    Final,
}

/// Bytes that may wait to be appended to one stored record, while the store is away.
const MAX_DELTA_BYTES: usize = 4 << 20;

/// Numbers of deltas that one fence has for itself.
const DELTAS_PER_FENCE: u64 = 1 << 40;

/// What became of a relayed event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbered {
    pub(crate) n: u64,
    /// It waits until the cell has made its state durable.
    pub(crate) gated: bool,
    /// It is a message, and the agent's whole answer.
    pub(crate) lone: bool,
    /// Bytes of the record with it, and of what waits to be shown.
    pub(crate) bytes: usize,
}

/// What a delta has to be written with.
pub(crate) struct Deltas {
    pub(crate) first: u64,
    pub(crate) bodies: VecDeque<Bytes>,
}

impl Live {
    pub(crate) fn new(
        row: &Row,
        record: Record,
        detail: Option<Detail>,
        fence: u64,
        limits: Limits,
        evictions: Arc<AtomicU64>,
    ) -> Live {
        let inner = Inner {
            row: None,
            staged: None,
            context: row.context.clone(),
            shown: Arc::new(record),
            ahead: None,
            detail: detail.map(Arc::new),
            hollow: false,
            late: None,
            seen_task: row.remote_task.is_some(),
            last: 0,
            last_shown: 0,
            line_state: row.state,
            pending: VecDeque::new(),
            pending_bytes: 0,
            ring: VecDeque::new(),
            ring_bytes: 0,
            readers: Vec::new(),
            attempt: row.attempt,
            claimed: Vec::new(),
            to_send: None,
            deltas: VecDeque::new(),
            delta_bytes: 0,
            torn: false,
            delta: (fence % (1 << 23)) * DELTAS_PER_FENCE + 1,
        };
        Live {
            task: row.task,
            principal: row.principal.clone(),
            agent: row.agent.clone(),
            volatile: row.durability == Durability::Memory,
            fence,
            limits,
            evictions,
            along: Along::default(),
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, n: u64) -> EventId {
        EventId { fence: self.fence, n }
    }

    pub(crate) fn belongs_to(&self, principal: &Principal, agent: &AgentId) -> bool {
        self.principal == *principal && self.agent == *agent
    }

    /// Whether its turn began with this message, as far as is durable.
    pub(super) fn took_on(&self, key: &Key) -> bool {
        let inner = self.lock();
        let row = inner.staged.as_ref().or(inner.row.as_ref());
        self.belongs_to(&key.principal, &key.agent) && row.is_some_and(|row| row.turn.message_id == key.message_id)
    }

    /// An id of the agent's that is this delegation's alone.
    pub(super) fn claimed(&self, remote: &Arc<str>) {
        let mut inner = self.lock();
        if !inner.claimed.contains(remote) {
            inner.claimed.push(remote.clone());
        }
    }

    pub(super) fn all_claimed(&self) -> Vec<Arc<str>> {
        self.lock().claimed.clone()
    }

    // ---- from the agent ----------------------------------------------------------------------------------------

    /// A new attempt may speak; what earlier ones still say is not heard any more.
    pub(crate) fn begin(&self, attempt: Attempt) {
        let mut inner = self.lock();
        inner.attempt = attempt;
        inner.detail = super::view::resent(inner.row.as_deref(), inner.detail.as_deref());
    }

    pub(crate) fn context(&self) -> Arc<str> {
        self.lock().context.clone()
    }

    /// An event of the running attempt, under our ids. `None`: it is not heard, because the attempt is an old one or
    /// the task is over.
    pub(crate) fn relay(&self, attempt: Attempt, heard: Heard, now: Time) -> Option<Numbered> {
        let mut inner = self.lock();
        if inner.is_over() || inner.attempt != attempt {
            if inner.attempt == attempt && !self.volatile {
                inner.hear_late(&heard, now);
            }
            return None;
        }
        inner.last += 1;
        let n = inner.last;
        let lone = matches!(heard.body, Body::Message(_)) && !inner.seen_task;
        inner.seen_task |= !matches!(heard.body, Body::Message(_));
        let state = if lone { Some(TaskState::Completed) } else { heard.state().map(state_of) };
        let gate = match state {
            Some(state) if state.is_terminal() || state.is_interrupted() => Gate::Final,
            Some(TaskState::Working) if inner.line_state != TaskState::Working => Gate::State,
            Some(_) | None => Gate::Free,
        };
        if let Some(state) = state.filter(|_| gate != Gate::Free) {
            inner.line_state = state;
        }
        let body = heard.to_stream_response();
        if !self.volatile {
            inner.keep_delta(millis(now), &body);
        }
        let event = Arc::new(Event { id: self.id(n), kind: kind_of(&heard), state, body });
        if gate == Gate::Free && inner.pending.is_empty() {
            inner.show(event, &heard, now, now, self);
        } else {
            let mut ahead = inner.ahead.take().unwrap_or_else(|| inner.shown.clone());
            Arc::make_mut(&mut ahead).apply(&heard, millis(now));
            inner.ahead = Some(ahead);
            inner.pending_bytes += event.body.len();
            inner.pending.push_back(Pending { event, heard, gate, at: now });
        }
        let record = inner.ahead.as_ref().unwrap_or(&inner.shown).bytes();
        Some(Numbered { n, gated: gate != Gate::Free, lone, bytes: record.max(inner.pending_bytes) })
    }

    /// The record with everything that was relayed.
    pub(crate) fn relayed(&self) -> Arc<Record> {
        let inner = self.lock();
        inner.ahead.clone().unwrap_or_else(|| inner.shown.clone())
    }

    /// Bytes of the record with everything that was relayed.
    pub(super) fn bytes(&self) -> usize {
        let inner = self.lock();
        inner.ahead.as_ref().unwrap_or(&inner.shown).bytes()
    }

    /// What there is to say about how an attempt failed.
    pub(crate) fn explain(&self, attempt: Attempt, detail: Detail) {
        let mut inner = self.lock();
        let over = inner.row.as_ref().is_some_and(|row| row.state.is_terminal());
        if inner.attempt == attempt && !over {
            inner.detail = Some(Arc::new(detail.after(inner.detail.as_deref())));
        }
    }

    // ---- from the cell -----------------------------------------------------------------------------------------

    /// The whole record, to be written with this row. The deltas before it are part of it.
    pub(crate) fn whole(&self, row: &Row) -> Bytes {
        let mut inner = self.lock();
        inner.deltas.clear();
        (inner.delta_bytes, inner.torn) = (0, false);
        if inner.hollow {
            return inner.hollow_record();
        }
        let mut record = inner.shown.clone();
        for pending in &inner.pending {
            if pending.gate != Gate::Final || stands(&pending.event, row.state, row.reason) {
                Arc::make_mut(&mut record).apply(&pending.heard, millis(pending.at));
            }
        }
        if row.turn.phase == Phase::Ended && state_of(record.state()) != row.state {
            overrule(Arc::make_mut(&mut record), row, inner.detail.as_deref());
        }
        kept::record(&record, inner.detail.as_deref())
    }

    /// What was relayed since, for the store.
    pub(crate) fn take_deltas(&self) -> Deltas {
        let mut inner = self.lock();
        let bodies: VecDeque<Bytes> =
            std::mem::take(&mut inner.deltas).into_iter().map(|(at, event)| delta(at, &event).into()).collect();
        inner.delta_bytes = 0;
        let first = inner.delta;
        inner.delta += bodies.len() as u64;
        Deltas { first, bodies }
    }

    /// This row is durable. It is shown with the event that says its state, or by [`Live::flush`].
    pub(crate) fn stage(&self, row: Arc<Row>) {
        self.lock().staged = Some(row);
    }

    /// The event `seq` and what waits behind it may be shown.
    pub(crate) fn publish(&self, seq: u64, now: Time) {
        let mut inner = self.lock();
        inner.show_row();
        while let Some(front) = inner.pending.front() {
            if front.gate == Gate::Final || front.gate == Gate::State && front.event.id.n > seq {
                break;
            }
            inner.show_front(now, self);
        }
    }

    /// The turn is over: what the agent said is shown if it stands, else our verdict; the streams end.
    pub(crate) fn settle(&self, state: TaskState, reason: Option<Reason>, now: Time) {
        let mut inner = self.lock();
        inner.show_row();
        let mut told = false;
        let Some(row) = inner.row.clone() else { return };
        while let Some(front) = inner.pending.front() {
            if front.gate == Gate::Final && !stands(&front.event, state, reason) {
                inner.drop_front();
            } else {
                told |= front.gate == Gate::Final;
                inner.show_front(now, self);
            }
        }
        inner.ahead = None;
        inner.line_state = state;
        // It asks what it asked before, and its caller is told why.
        let again = state.is_interrupted() && reason.is_some();
        if !told && (again || state_of(inner.shown.state()) != state) {
            inner.author(&Row { state, reason, ..Row::clone(&row) }, now, self);
        }
        for reader in std::mem::take(&mut inner.readers) {
            reader.end(End::Over);
        }
    }

    /// This row is what the store has. If it was not shown that a turn ended, it is now.
    pub(crate) fn restage(&self, row: Arc<Row>, now: Time) {
        let (state, reason, ended) = (row.state, row.reason, row.turn.phase == Phase::Ended);
        let mut inner = self.lock();
        let unsaid = state_of(inner.shown.state()) != state || inner.pending.iter().any(|one| one.gate == Gate::Final);
        inner.staged = Some(row);
        drop(inner);
        if ended && unsaid {
            self.settle(state, reason, now);
        } else {
            self.flush(now);
        }
    }

    /// Shows what is durable and has no event of its own.
    pub(crate) fn flush(&self, now: Time) {
        let mut inner = self.lock();
        inner.show_row();
        let Some(state) = inner.row.as_ref().map(|row| row.state) else { return };
        while let Some(front) = inner.pending.front() {
            let durable = front.gate == Gate::Free || front.gate == Gate::State && front.event.state == Some(state);
            if !durable {
                break;
            }
            inner.show_front(now, self);
        }
    }

    // ---- to readers --------------------------------------------------------------------------------------------

    /// `None`: it is not durable yet, so nobody can know of it; or only the store knows all of it.
    pub(crate) fn view(&self) -> Option<TaskView> {
        self.lock().view()
    }

    /// A reader for the stream that a send opens. It sees everything from the first event of the running turn on.
    pub(super) fn open(&self, replay: bool) -> Option<Arc<Reader>> {
        let mut inner = self.lock();
        let view = inner.view()?;
        let over = view.state.is_terminal() || inner.row.as_ref().is_some_and(|row| row.turn.phase == Phase::Ended);
        let id = self.id(inner.last_shown);
        let reader = Reader::new(self.limits, id, view.state);
        if over || replay {
            reader.put_snapshot(id, view);
        }
        match over {
            true => reader.end(End::Over),
            false => inner.readers.push(reader.clone()),
        }
        Some(reader)
    }

    /// A reader that joins: a snapshot and what is newer, or what is newer than `after` if it is still held.
    pub(super) fn join(&self, after: Option<EventId>, now: Time) -> Option<Arc<Reader>> {
        let mut inner = self.lock();
        let view = inner.view()?;
        let over = view.state.is_terminal();
        let id = self.id(inner.last_shown);
        let oldest = inner.ring.front().map_or(u64::MAX, |event| event.id.n);
        let missed = after.filter(|after| after.fence == self.fence && after.n <= id.n);
        let missed = missed.filter(|after| after.n == id.n && !over || after.n.saturating_add(1) >= oldest);
        let missed = missed.filter(|after| !over || after.n < id.n);
        let state = view.state;
        let reader = Reader::new(self.limits, missed.unwrap_or(id), state);
        match missed {
            Some(after) => {
                reader.resume();
                for event in inner.ring.iter().filter(|event| event.id.n > after.n) {
                    reader.put(event, state, now);
                }
            }
            // A terminal task has no subscribers, except those that missed its end.
            None if over => return None,
            None => reader.put_snapshot(id, view),
        }
        match over {
            true => reader.end(End::Over),
            false => inner.readers.push(reader.clone()),
        }
        Some(reader)
    }

    /// A reader that has seen nothing yet is given the task as it stands.
    pub(super) fn introduce(&self, reader: &Arc<Reader>) {
        let inner = self.lock();
        if let (true, Some(view)) = (reader.unopened(), inner.view()) {
            reader.put_snapshot(self.id(inner.last_shown), view);
        }
    }

    pub(super) fn leave(&self, reader: &Arc<Reader>) {
        self.lock().readers.retain(|other| !Arc::ptr_eq(other, reader));
    }

    /// Ends all streams.
    pub(crate) fn close(&self, end: End) {
        for reader in std::mem::take(&mut self.lock().readers) {
            reader.end(end);
        }
    }
}

impl Inner {
    fn view(&self) -> Option<TaskView> {
        let row = self.row.as_ref().filter(|_| !self.hollow)?;
        Some(view_of(row, self.shown.clone(), self.detail.clone()))
    }

    fn show_row(&mut self) {
        if let Some(row) = self.staged.take() {
            if self.pending.is_empty() {
                self.line_state = row.state;
            }
            self.row = Some(row);
        }
    }

    fn keep_delta(&mut self, at: i64, event: &Bytes) {
        if self.torn {
            return;
        }
        self.delta_bytes += event.len() + ENTRY_BYTES;
        // One alone may be of any size: it was bounded where it came in.
        if self.delta_bytes > MAX_DELTA_BYTES && !self.deltas.is_empty() {
            self.deltas.clear();
            (self.delta_bytes, self.torn) = (0, true);
        } else {
            self.deltas.push_back((at, event.clone()));
        }
    }

    fn drop_front(&mut self) -> Option<Pending> {
        let front = self.pending.pop_front()?;
        self.pending_bytes -= front.event.body.len();
        self.ahead = None;
        Some(front)
    }

    fn show_front(&mut self, now: Time, live: &Live) {
        let ahead = self.ahead.take();
        let Some(front) = self.drop_front() else { return };
        let view = self.view_for_unopened();
        // The last one in line makes both records the same: no need to put it together twice.
        match ahead {
            Some(ahead) if self.pending.is_empty() => self.shown = ahead,
            ahead => {
                self.ahead = ahead;
                Arc::make_mut(&mut self.shown).apply(&front.heard, millis(front.at));
            }
        }
        self.hand_out(front.event, view, now, live);
    }

    fn show(&mut self, event: Arc<Event>, heard: &Heard, at: Time, now: Time, live: &Live) {
        let view = self.view_for_unopened();
        Arc::make_mut(&mut self.shown).apply(heard, millis(at));
        self.hand_out(event, view, now, live);
    }

    /// The task before the next event, if a reader may need it.
    fn view_for_unopened(&self) -> Option<TaskView> {
        self.readers.iter().any(|reader| reader.unopened()).then(|| self.view()).flatten()
    }

    /// Gives an event, which the record has by now, to the readers and the ring. A reader that knows nothing yet gets
    /// the task before it first, unless the event introduces itself.
    fn hand_out(&mut self, event: Arc<Event>, view: Option<TaskView>, now: Time, live: &Live) {
        self.last_shown = event.id.n;
        if event.kind == EventKind::Message && event.state.is_none() {
            // Said beside a task: it stands in the history, and no stream may carry it.
            return;
        }
        let state = self.row.as_ref().map_or(TaskState::Submitted, |row| row.state);
        // Who knows that there is a task is told of its end by a status; only who knows nothing gets the lone message.
        let told = match event.kind {
            EventKind::Message => {
                let body = self.shown.render_status_update(None).into();
                Arc::new(Event { id: event.id, kind: EventKind::Status, state: event.state, body })
            }
            EventKind::Task | EventKind::Status | EventKind::Artifact => event.clone(),
        };
        let opens = matches!(event.kind, EventKind::Task | EventKind::Message);
        let before = live.id(event.id.n - 1);
        self.readers.retain(|reader| {
            let unopened = reader.unopened();
            if let (true, false, Some(view)) = (unopened, opens, &view) {
                reader.put_snapshot(before, view.clone());
            }
            let put = reader.put(if unopened { &event } else { &told }, state, now);
            if put == Put::Evicted {
                live.evictions.fetch_add(1, Ordering::Relaxed);
            }
            put == Put::Taken
        });
        self.ring_bytes += told.body.len();
        self.ring.push_back(told);
        while self.ring.len() > live.limits.ring_events || self.ring_bytes > live.limits.ring_bytes {
            let Some(old) = self.ring.pop_front() else { break };
            self.ring_bytes -= old.body.len();
        }
    }

    /// Our own status, where the agent said nothing that stands.
    fn author(&mut self, row: &Row, now: Time, live: &Live) {
        let view = self.view_for_unopened();
        self.last += 1;
        if state_of(self.shown.state()) != row.state {
            overrule(Arc::make_mut(&mut self.shown), row, self.detail.as_deref());
        }
        let body = self.shown.render_status_update(verdict(row, &self.shown).as_ref()).into();
        let event = Event { id: live.id(self.last), kind: EventKind::Status, state: Some(row.state), body };
        self.hand_out(Arc::new(event), view, now, live);
    }
}

/// Whether the agent's last word is the turn's end. With a reason of ours it is not.
fn stands(event: &Event, state: TaskState, reason: Option<Reason>) -> bool {
    event.state == Some(state) && (reason.is_none() || state == TaskState::Canceled)
}

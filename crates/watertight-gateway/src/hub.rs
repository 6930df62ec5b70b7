//! What is shown of the delegations that are live: their records, their events, and who reads them.
//!
//! Assumes that one driver says what is durable. Nothing that is not durable is shown: an event that changes a task's
//! state waits until its commit is on disk, and everything that came after it waits behind it. The attempt that relays
//! an agent's events never waits for a reader: a reader that stays full is closed with an error that says how to resume.

mod along;
mod kept;
mod live;
mod reader;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use watertight_a2a::record::Record;
use watertight_engine::cell::Waiting;
use watertight_engine::ids::{AgentId, Fingerprint, Key, LineId, Principal, TaskId};
use watertight_engine::record::{Cancel, Delivery, ReplyKind, Row, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

pub(crate) use kept::{Home, Message, Stored, needs_message};
pub(crate) use live::{Live, only_waits};
use reader::Reader;

/// Limits of streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Events that may wait for one reader before it counts as full.
    pub max_outbound_events: usize,
    /// Bytes that may wait for one reader; above, it is closed at once.
    pub max_outbound_bytes: usize,
    /// How long a reader may stay full.
    pub drain: Span,
    /// Shown events kept per task, to resume after.
    pub ring_events: usize,
    /// Likewise in bytes.
    pub ring_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_outbound_events: 128,
            max_outbound_bytes: 4 << 20,
            drain: Span::from_secs(5),
            ring_events: 256,
            ring_bytes: 1 << 20,
        }
    }
}

/// Names an event for resuming after it: the fence under which it was numbered, and its number. Numbers count up by
/// one per task; a number of another fence means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventId {
    /// The fence.
    pub fence: u64,
    /// The number.
    pub n: u64,
}

impl EventId {
    /// Reads what [`fmt::Display`] wrote; `None` for anything else.
    pub fn parse(text: &str) -> Option<EventId> {
        let (fence, n) = text.split_once('-')?;
        Some(EventId { fence: fence.parse().ok()?, n: n.parse().ok()? })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.fence, self.n)
    }
}

/// What an event is, by the one member of its StreamResponse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// `task`
    Task,
    /// `message`
    Message,
    /// `statusUpdate`
    Status,
    /// `artifactUpdate`
    Artifact,
}

/// One event as it is shown: ids are ours, the rest is as the agent wrote it.
#[derive(Debug)]
pub struct Event {
    /// Its number.
    pub id: EventId,
    /// What it is.
    pub kind: EventKind,
    /// The task's state as this event tells it, if it tells any.
    pub state: Option<TaskState>,
    /// A 1.0 StreamResponse: one JSON object with one member.
    pub body: Bytes,
}

/// What a stream is given next.
#[derive(Debug)]
pub enum Item {
    /// The task as a whole, up to and including the event `id`; only newer events follow.
    Snapshot {
        /// The last event that it contains (`n` is 0 before the first).
        id: EventId,
        /// The task.
        view: Box<TaskView>,
    },
    /// The next event.
    Event(Arc<Event>),
    /// Nothing follows. Given once.
    End(End),
}

/// Why a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The task is terminal or waits for its caller, and everything was given: close cleanly.
    Over,
    /// The reader stayed full for too long. What it had was given; it can subscribe again. (Resumable.)
    Lagged,
    /// The gateway stops; the work goes on when it is back. (Resumable.)
    ShuttingDown,
    /// The store has been away for long: what happens meanwhile cannot be told. (Resumable.)
    StoreAway,
}

/// What a heartbeat may tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The last event given or queued.
    pub last: EventId,
    /// Events queued.
    pub queued: usize,
    /// Events that may be queued.
    pub limit: usize,
    /// The task's state as it is shown.
    pub state: TaskState,
}

/// How long the reader of a new stream is kept waiting for the agent's own first word, before it is given the task as
/// we have it. A lone message can only be passed on as one within this time.
const INTRODUCE_AFTER: Duration = Duration::from_secs(1);

/// One reader of one task's events. Dropping it changes nothing for the task or for other readers.
#[derive(Debug)]
pub struct Subscription {
    live: Option<Arc<Live>>,
    reader: Arc<Reader>,
    _open: Option<StreamGuard>,
}

impl Subscription {
    /// A stream that is over: the task, and the end.
    pub(crate) fn over(view: TaskView, limits: Limits) -> Subscription {
        let id = EventId { fence: 0, n: 0 };
        let reader = Reader::new(limits, id, view.state);
        reader.put_snapshot(id, view);
        reader.end(End::Over);
        Subscription { live: None, reader, _open: None }
    }

    /// The next item; `None` after [`Item::End`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(taken) = self.reader.take() {
                return taken;
            }
            let changed = self.reader.changed();
            match &self.live {
                Some(live) if self.reader.unopened() => {
                    if tokio::time::timeout(INTRODUCE_AFTER, changed).await.is_err() {
                        live.introduce(&self.reader);
                    }
                }
                Some(_) | None => changed.await,
            }
        }
    }

    /// [`Subscription::next`] would return at once.
    pub fn ready(&self) -> bool {
        self.reader.ready()
    }

    /// For a heartbeat.
    pub fn load(&self) -> Load {
        self.reader.load()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(live) = &self.live {
            live.leave(&self.reader);
        }
    }
}

/// What is known of a failure beyond its reason. Kept with the record, so that a replay or a later GetTask tells the
/// same. Peer text: escaped and bounded, never to be read by a model as it is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Detail {
    /// The agent's own JSON-RPC error code.
    pub code: Option<i64>,
    /// The agent's own error message, or ours about the connection.
    pub message: Option<String>,
    /// The agent's own error data, as raw JSON.
    pub data: Option<Bytes>,
    /// The HTTP status that it came with.
    pub status: Option<u16>,
    /// The beginning of a body that could not be read as A2A.
    pub excerpt: Option<String>,
    /// The message was sent again, to an idempotent agent that may have had it before.
    pub resent: bool,
}

impl Detail {
    /// What is said of an attempt, after what was said before.
    pub(crate) fn after(self, before: Option<&Detail>) -> Detail {
        Detail { resent: self.resent || before.is_some_and(|before| before.resent), ..self }
    }
}

/// A task as everybody sees it: durable facts only.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// Its id.
    pub task: TaskId,
    /// Whose it is.
    pub principal: Principal,
    /// For whom.
    pub agent: AgentId,
    /// The agent that started it, if it was one.
    pub from: Option<AgentId>,
    /// The contextId that the caller sees.
    pub context: Arc<str>,
    /// Its state. It outranks the state inside `record`.
    pub state: TaskState,
    /// Our reason, if the state is our verdict.
    pub reason: Option<Reason>,
    /// What is known of the delivery.
    pub delivery: Delivery,
    /// How far a cancel has come.
    pub cancel: Cancel,
    /// A result that came after the verdict.
    pub late: Option<TaskState>,
    /// Task or lone message.
    pub reply: ReplyKind,
    /// Why it waits, while it waits.
    pub waiting_on: Option<Reason>,
    /// Its place in the agent's queue, where that was asked for.
    pub position: Option<u32>,
    /// When it was accepted.
    pub created: Time,
    /// When its state last changed.
    pub changed: Time,
    /// The current turn's number.
    pub turn: u32,
    /// Tries made for the current turn.
    pub attempts: u32,
    /// The agent's task id, for people who look into it.
    pub remote_task: Option<Arc<str>>,
    /// More about a failure.
    pub detail: Option<Arc<Detail>>,
    /// It is the answer to a message that was seen before.
    pub replay: bool,
    /// The delegation that this one repeats.
    pub redrives: Option<TaskId>,
    /// The delegation that repeats this one, where that was asked for.
    pub redriven_by: Option<TaskId>,
    /// The result is withheld (`result_too_large`, `result_rejected`): do not show the record's artifacts.
    pub withheld: bool,
    /// Status message, artifacts, history: what the agent said, reduced.
    pub record: Arc<Record>,
}

// ---- inside -------------------------------------------------------------------------------------------------------

/// Message bytes that are kept in memory beside the store's copy; what is above is read from there when it is sent.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Bytes of messages that wait to be accepted, or to be sent from memory. More is refused, and so is what would leave all
/// other agents less than one has: alone, it has half of it.
pub(crate) const MAX_PROPOSED_BYTES: usize = 256 << 20;

/// Counts a stream while it is open.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    count: Arc<AtomicUsize>,
    left: Arc<AtomicBool>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.left.store(true, Ordering::Relaxed);
    }
}

/// All that is live in one cell.
#[derive(Debug)]
pub(crate) struct Hub {
    limits: Limits,
    evictions: Arc<AtomicU64>,
    message_bytes: AtomicUsize,
    /// A reader has left, or somebody has looked: what was only here for that may rest again.
    left: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lives: BTreeMap<TaskId, Arc<Live>>,
    /// Those of them that only wait, and are held all the same.
    resting: BTreeSet<TaskId>,
    /// And those that are only here because somebody reads them, or did.
    tiring: BTreeSet<TaskId>,
    /// Whose the agents' task ids are.
    remotes: BTreeMap<(AgentId, Arc<str>), TaskId>,
    /// Messages that were proposed, until their line is answered or closed; in an order that tells two of them apart at once.
    proposed: BTreeMap<(Fingerprint, Key), Proposed>,
    lines: BTreeMap<LineId, (Fingerprint, Key)>,
    proposed_bytes: usize,
    /// The same by agent, with the messages that are kept in memory alone.
    held: BTreeMap<AgentId, usize>,
    /// Tasks with something to append to their stored record.
    dirty: BTreeSet<TaskId>,
    streams: BTreeMap<AgentId, Arc<AtomicUsize>>,
    /// No stream stays open any more, and why.
    closing: Option<End>,
}

#[derive(Debug)]
struct Proposed {
    message: Message,
    lines: usize,
}

/// There is no room for another message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// For one of this agent's: what is left is for the others'.
    Agent,
    /// For anybody's.
    Anybody,
}

impl State {
    /// An agent's messages take so many bytes more, and so many less.
    fn hold(&mut self, agent: &AgentId, more: usize, less: usize) {
        match self.held.get_mut(agent) {
            Some(held) => *held = (*held + more).saturating_sub(less),
            None => {
                self.held.insert(agent.clone(), more.saturating_sub(less));
            }
        }
    }
}

impl Hub {
    pub(crate) fn new(limits: Limits) -> Hub {
        Hub {
            limits,
            evictions: Arc::default(),
            message_bytes: AtomicUsize::new(0),
            left: Arc::default(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self, task: TaskId) -> Option<Arc<Live>> {
        self.lock().lives.get(&task).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Live>> {
        self.lock().lives.values().cloned().collect()
    }

    // ---- messages before they are accepted -----------------------------------------------------------------------

    pub(crate) fn propose(&self, line: LineId, key: Key, print: Fingerprint, message: Message) -> Result<(), NoRoom> {
        let mut state = self.lock();
        let bytes = message.params.as_bytes().len();
        let id = (print, key);
        if let Some(twin) = state.proposed.get_mut(&id) {
            twin.lines += 1;
        } else {
            let free =
                MAX_PROPOSED_BYTES.saturating_sub(state.proposed_bytes + self.message_bytes.load(Ordering::Relaxed));
            let held = state.held.get(&id.1.agent).copied().unwrap_or(0);
            if bytes > free {
                return Err(NoRoom::Anybody);
            }
            if held > 0 && held + bytes > free - bytes {
                return Err(NoRoom::Agent);
            }
            state.proposed_bytes += bytes;
            state.hold(&id.1.agent, bytes, 0);
            state.proposed.insert(id.clone(), Proposed { message, lines: 1 });
        }
        state.lines.insert(line, id);
        Ok(())
    }

    /// The line was answered or closed.
    pub(crate) fn withdraw(&self, line: LineId) {
        let mut state = self.lock();
        let Some(id) = state.lines.remove(&line) else { return };
        let Some(proposed) = state.proposed.get_mut(&id) else { return };
        proposed.lines -= 1;
        if proposed.lines == 0 {
            let bytes = proposed.message.params.as_bytes().len();
            state.proposed.remove(&id);
            state.proposed_bytes -= bytes;
            state.hold(&id.1.agent, 0, bytes);
        }
    }

    /// The delegation that took on what is asked on a line: as its first message, as a later one, or as a repeat.
    pub(crate) fn of_line(&self, line: LineId) -> Option<Arc<Live>> {
        let (_, key) = self.lock().lines.get(&line).cloned()?;
        self.all().into_iter().find(|live| live.took_on(&key))
    }

    /// The message of a row's turn, as long as somebody on a line waits for it to be accepted.
    pub(crate) fn proposed(&self, row: &Row) -> Option<Message> {
        let principal = row.principal.clone();
        let key = Key { principal, agent: row.agent.clone(), message_id: row.turn.message_id.clone() };
        self.lock().proposed.get(&(row.turn.fingerprint, key)).map(|proposed| proposed.message.clone())
    }

    /// Bytes of what is written with a row, about.
    pub(crate) fn weight(&self, waiting: &Waiting<'_>) -> usize {
        let message = if waiting.message { self.proposed(waiting.row) } else { None };
        let record = if waiting.record { self.live(waiting.row.task) } else { None };
        message.map_or(0, |message| message.params.as_bytes().len()) + record.map_or(0, |live| live.bytes())
    }

    // ---- delegations ---------------------------------------------------------------------------------------------

    /// The live delegation of a row; made from `stored` if it is not there yet.
    pub(crate) fn adopt(&self, row: &Row, fence: u64, stored: Stored) -> Arc<Live> {
        if let Some(live) = self.lock().stir(row.task) {
            return live;
        }
        let (record, detail) = kept::restore(row, stored);
        let live = Arc::new(Live::new(row, record, detail, fence, self.limits, self.evictions.clone()));
        self.lock().lives.insert(row.task, live.clone());
        if let Some(remote) = &row.remote_task {
            self.claim(&live, remote);
        }
        live
    }

    /// Keeps the message in memory until it is sent, if there is room; the store has it too.
    /// Where there is no other copy, in any case: there was room for it when it was proposed.
    pub(crate) fn keep_message(&self, live: &Live, turn: u32, message: &Message, only: bool) {
        let bytes = message.params.as_bytes().len();
        let room = only || self.message_bytes.load(Ordering::Relaxed) + bytes <= MAX_MESSAGE_BYTES;
        let freed = live.take_message(turn, message, room);
        let kept = if room { bytes } else { 0 };
        self.message_bytes.fetch_add(kept, Ordering::Relaxed);
        self.message_bytes.fetch_sub(freed, Ordering::Relaxed);
        if live.volatile {
            self.lock().hold(&live.agent, kept, freed);
        }
    }

    /// The turn is over: nobody sends its message again.
    pub(crate) fn drop_messages(&self, live: &Live) {
        let freed = live.drop_messages();
        self.message_bytes.fetch_sub(freed, Ordering::Relaxed);
        if live.volatile && freed > 0 {
            self.lock().hold(&live.agent, 0, freed);
        }
    }

    /// Whether this agent's task id may be this delegation's. From now on it is.
    pub(crate) fn claim(&self, live: &Live, remote: &Arc<str>) -> bool {
        let mut state = self.lock();
        let owner = state.remotes.get(&(live.agent.clone(), remote.clone())).copied().unwrap_or(live.task);
        // An attempt that is being stopped may still learn an id of a task that is gone: nobody would take it back.
        if owner == live.task && state.lives.contains_key(&live.task) {
            state.remotes.insert((live.agent.clone(), remote.clone()), live.task);
            live.claimed(remote);
        }
        owner == live.task
    }

    /// The store answers for it from now on.
    pub(crate) fn forget(&self, task: TaskId) {
        let mut state = self.lock();
        let Some(live) = state.lives.remove(&task) else { return };
        for remote in live.all_claimed() {
            state.remotes.remove(&(live.agent.clone(), remote));
        }
        state.dirty.remove(&task);
        state.resting.remove(&task);
        state.tiring.remove(&task);
        drop(state);
        self.drop_messages(&live);
        live.close(End::Over);
    }

    pub(crate) fn soil(&self, task: TaskId) {
        self.lock().dirty.insert(task);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.lock().dirty.is_empty()
    }

    pub(crate) fn take_dirty(&self) -> BTreeSet<TaskId> {
        std::mem::take(&mut self.lock().dirty)
    }

    // ---- readers -------------------------------------------------------------------------------------------------

    /// The stream of a send that was accepted.
    pub(crate) fn open(&self, task: TaskId, replay: bool) -> Option<Subscription> {
        let live = self.live(task)?;
        let reader = live.open(replay)?;
        Some(self.subscription(live, reader))
    }

    /// A stream that joins a live task.
    pub(crate) fn join(&self, live: Arc<Live>, after: Option<EventId>, now: Time) -> Option<Subscription> {
        let reader = live.join(after, now)?;
        Some(self.subscription(live, reader))
    }

    fn subscription(&self, live: Arc<Live>, reader: Arc<Reader>) -> Subscription {
        let mut state = self.lock();
        let count = state.streams.entry(live.agent.clone()).or_default().clone();
        let closing = state.closing;
        drop(state);
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(end) = closing {
            // It was asked for before the end and opened after it.
            reader.end(end);
        }
        let open = StreamGuard { count, left: self.left.clone() };
        Subscription { live: Some(live), reader, _open: Some(open) }
    }

    pub(crate) fn streams(&self, agent: &AgentId) -> u32 {
        let count = self.lock().streams.get(agent).map_or(0, |count| count.load(Ordering::Relaxed));
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Ends the streams that are open now.
    pub(crate) fn end_streams(&self, end: End) {
        for live in self.all() {
            live.close(end);
        }
    }

    /// Ends all streams, also those that are still to be opened.
    pub(crate) fn close_streams(&self, end: End) {
        self.lock().closing = Some(end);
        self.end_streams(end);
    }

    /// A view of what only the store has.
    pub(crate) fn view_stored(row: &Row, stored: Stored) -> TaskView {
        let (record, detail) = kept::restore(row, stored);
        view::view_of(row, Arc::new(record), detail.map(Arc::new))
    }
}

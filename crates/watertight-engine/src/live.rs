//! What the engine holds in memory of one delegation: its row, and what its current turn holds or waits for.
//!
//! ```text
//!            ┌── Lock ──┐  ┌── Backoff ─┐
//!  submitted ┤          ├──┤            ├── Line / Queue ── dispatched ── heard ── ended
//!            └──────────┘  └────────────┘                        │
//!                                                                └── cut: over for the caller, the agent not yet quiet
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use watertight_policy::breaker::ProbeId;
use watertight_policy::bulkhead::Ticket;
use watertight_policy::queue::Spot;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::hashed::Hash;
use crate::ids::{ContextKey, LineId};
use crate::input::Submission;
use crate::record::{Cancel, Durability, Phase, Row, Turn};

/// A caller on an open line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) id: LineId,
    /// `Some`: it waits for the turn's end until then. `None`: for its acceptance only.
    pub(crate) until: Option<Time>,
    /// The message was seen before.
    pub(crate) replay: bool,
}

/// Where a turn that has not started waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Nowhere: it runs, or is over.
    None,
    /// Behind another turn that holds its lock.
    Lock,
    /// For its not-before time.
    Backoff,
    /// In the bulkhead's short line.
    Line(Ticket),
    /// In the agent's queue, at this spot.
    Queue(Spot),
}

/// How a turn that finds no slot behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// It waits a moment and is refused: its caller can still degrade.
    Line,
    /// It is accepted and waits.
    Queue,
}

/// The timers that one delegation can have, at most one of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// The earliest end of a caller's wait.
    Wait,
    /// The end of the turn's budget, or of its time in the queue.
    Deadline,
    /// The end of a backoff.
    Retry,
    /// A caller's cancel has waited long enough for the agent.
    CancelWait,
    /// The agent has had its time to answer a cancel.
    CancelGiveUp,
    /// The context is given free although nobody knows what the agent still does in it.
    LockGrace,
    /// The caller has had its time to answer.
    Interrupted,
    /// The engine lets go of a terminal delegation.
    Linger,
    /// The one that it was started for was cut, and it goes along.
    TakenAlong,
}

impl Timer {
    /// All, in order.
    pub(crate) const ALL: [Timer; 9] = [
        Timer::Wait,
        Timer::Deadline,
        Timer::Retry,
        Timer::CancelWait,
        Timer::CancelGiveUp,
        Timer::LockGrace,
        Timer::Interrupted,
        Timer::Linger,
        Timer::TakenAlong,
    ];
}

/// A message to a task that waits until no other turn of it is under way. Nothing is kept of it but this.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) submission: Arc<Submission>,
    /// Its caller waits no longer than this.
    pub(crate) until: Time,
}

/// One delegation in memory.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) row: Row,
    /// The current turn is on its way to the store, or there.
    pub(crate) accepted: bool,
    /// The turn before an unaccepted follow-up: a refusal puts it back.
    pub(crate) previous: Option<Turn>,
    pub(crate) class: Class,
    pub(crate) place: Place,
    pub(crate) lines: Vec<Line>,
    pub(crate) cancel_lines: Vec<LineId>,
    /// The keys of its latest turns. Older ones are found in the store.
    pub(crate) keys: Vec<Hash>,
    /// Messages to this task that came while a turn was under way.
    pub(crate) behind: VecDeque<Behind>,
    /// Its place in the queue when it came there last: it is not later than that unless something more urgent comes.
    pub(crate) stood: u32,
    /// It may wait in the queue by its caller's wish or its agent's settings: the agent's word that it is busy sends it
    /// back there.
    pub(crate) queues: bool,
    /// How often the agent said so, one time after the other.
    pub(crate) busied: u32,
    /// It holds one of its agent's slots.
    pub(crate) slot: bool,
    /// It holds this lock.
    pub(crate) lock: Option<ContextKey>,
    pub(crate) probe: Option<ProbeId>,
    /// Since when it wants a slot.
    pub(crate) wants: Option<Time>,
    /// How long it waited for the slot of its last dispatch.
    pub(crate) waited: Span,
    pub(crate) dispatched: Option<Time>,
    /// The full time that its last dispatch started. It has it again if that turns out to have been none.
    pub(crate) floated: Option<Span>,
    /// The agent said something in the current attempt.
    pub(crate) heard: bool,
    /// An attempt is in flight: its end is still to be told.
    pub(crate) attempting: bool,
    /// A CancelTask is out, and its answer still to come.
    pub(crate) canceling: bool,
    /// Somebody may want to follow it by its events once it is over: it stays a while.
    pub(crate) lingers: bool,
    /// The commit that the latest save of this delegation is in.
    pub(crate) saved_in: u64,
    pub(crate) timers: [Option<Time>; Timer::ALL.len()],
}

impl Live {
    pub(crate) fn new(row: Row, class: Class) -> Live {
        Live {
            row,
            accepted: false,
            previous: None,
            class,
            place: Place::None,
            lines: Vec::new(),
            cancel_lines: Vec::new(),
            keys: Vec::new(),
            behind: VecDeque::new(),
            stood: 0,
            queues: class == Class::Queue,
            busied: 0,
            slot: false,
            lock: None,
            probe: None,
            wants: None,
            waited: Span::ZERO,
            dispatched: None,
            floated: None,
            heard: false,
            attempting: false,
            canceling: false,
            lingers: true,
            saved_in: 0,
            timers: [None; Timer::ALL.len()],
        }
    }

    /// The turn is over for its caller, but the agent is not known to be quiet.
    pub(crate) fn is_cut(&self) -> bool {
        self.row.state.is_terminal() && (self.attempting || self.canceling)
    }

    /// Nothing of it is ever written to disk.
    pub(crate) fn is_volatile(&self) -> bool {
        self.row.durability == Durability::Memory
    }

    /// Somebody works on it: what it would have had if nobody had begun is gone.
    pub(crate) fn begun(&mut self) {
        if self.is_offered() {
            self.row.turn.waiting_on = None;
            self.row.turn.runs_for = None;
        }
    }

    /// It was given to a worker, which has not begun with it: nothing has come of it, and somebody else may have it. Its row
    /// says so, whatever its agent is by the time that it is read.
    pub(crate) fn is_offered(&self) -> bool {
        self.row.turn.phase == Phase::Dispatching && self.row.turn.waiting_on == Some(Reason::NoWorker)
    }

    /// Something still has to happen for it, though it is over.
    pub(crate) fn is_owed(&self) -> bool {
        self.row.cancel == Cancel::Owed || self.is_cut() || self.lock.is_some() || self.row.holds_until().is_some()
    }

    /// Its row under its next version. A turn that may take the current one's place, and is not accepted, is left out.
    pub(crate) fn next_save(&mut self) -> Arc<Row> {
        self.row.version += 1;
        let mut row = self.row.clone();
        if let Some(turn) = &self.previous {
            row.turn.clone_from(turn);
        }
        Arc::new(row)
    }

    /// Nobody but its own caller may know of it: its first turn is not accepted.
    pub(crate) fn is_proposed(&self) -> bool {
        !self.accepted && self.previous.is_none()
    }

    /// It can take its next message now: it asked for it, and is not being canceled.
    pub(crate) fn takes_next(&self) -> bool {
        self.row.state.is_interrupted() && self.row.turn.phase == Phase::Ended && self.row.cancel != Cancel::Owed
    }

    /// Its turn should have been over by now, and the timer that ends it is about to be looked at.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.timers[Timer::Deadline as usize].is_some_and(|at| at <= now)
    }
}

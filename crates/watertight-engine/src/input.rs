//! Everything that can happen to a cell. Past tense: nothing here can be refused, only answered.

use std::sync::Arc;

use watertight_policy::acceptance::Measure;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::ids::{AgentId, Attempt, Fingerprint, LineId, Owner, Principal, RemoteId, TaskId};
use crate::record::{Delivery, Digest, Outbox, ReplyKind, TaskState};
use crate::settings::Settings;

/// See the module's header.
#[derive(Clone, Debug)]
pub enum Input {
    /// A caller sent a message.
    Submitted(Arc<Submission>),
    /// The caller of this line is gone, or its line is no longer held.
    LineClosed {
        /// Which.
        line: LineId,
    },
    /// The running attempt learnt the agent's ids, or saw its state change.
    Progressed {
        /// Whose.
        task: TaskId,
        /// Of which attempt.
        attempt: Attempt,
        /// What.
        progress: Progress,
    },
    /// The running attempt is over.
    Ended {
        /// Whose.
        task: TaskId,
        /// Which attempt.
        attempt: Attempt,
        /// How.
        outcome: Outcome,
    },
    /// A caller asked for a task's cancellation.
    CancelAsked {
        /// Who waits for the answer.
        line: LineId,
        /// Who asks.
        principal: Principal,
        /// Through whose door.
        agent: AgentId,
        /// What to cancel.
        task: TaskId,
    },
    /// An operator took a waiting turn out. Answered like a cancel: with the task, or that it cannot be.
    Dropped {
        /// Who waits for the answer.
        line: LineId,
        /// Which.
        task: TaskId,
    },
    /// A worker of an agent that fetches its work asked for some.
    WorkAsked {
        /// Where it waits for it.
        line: LineId,
        /// Whose worker it is.
        agent: AgentId,
        /// It waits until there is some, or its line is closed.
        waits: bool,
    },
    /// The agent answered a CancelTask, or did not.
    CancelAnswered {
        /// Whose.
        task: TaskId,
        /// What it said.
        answer: CancelAnswer,
    },
    /// The end of a turn was written to its caller's open line, or could not be. One for each answer with a receipt.
    Told {
        /// Whose.
        task: TaskId,
        /// Which turn's.
        turn: u32,
        /// It was.
        written: bool,
    },
    /// The owner of an outbox has read everything up to this number. A lower one than before changes nothing.
    Acknowledged {
        /// Who waits for the answer.
        line: LineId,
        /// Whose outbox.
        owner: Owner,
        /// Up to.
        up_to: u64,
    },
    /// What waits in outboxes since before then is dropped.
    OutboxesAged {
        /// When.
        before: Time,
    },
    /// New limits.
    Configured(Arc<Settings>),
    /// An operator lets traffic through to an agent again.
    BreakerReset {
        /// Which agent.
        agent: AgentId,
    },
    /// We ourselves stood still for this long: it is nobody else's silence.
    Stalled {
        /// How long.
        gap: Span,
    },
    /// Nothing new starts any more.
    ShuttingDown,
}

/// What a caller waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// The turn's end; at `until` at the latest the task as it is then.
    Reply {
        /// The end of the caller's wait.
        until: Time,
    },
    /// Likewise, and it waits in the queue for a slot, like what is only to be accepted.
    Result {
        /// The end of the caller's wait.
        until: Time,
    },
    /// Only that it runs: a stream follows by itself. It is refused, not queued, when there is no slot.
    Stream,
    /// Only that it is accepted: it may wait in the queue.
    Accepted,
}

impl Want {
    /// The end of the caller's wait for the turn's end; `None` if it does not wait for that.
    pub(crate) fn until(self) -> Option<Time> {
        match self {
            Want::Reply { until } | Want::Result { until } => Some(until),
            Want::Stream | Want::Accepted => None,
        }
    }

    /// The caller may come back for what it has not seen of it.
    pub(crate) fn may_follow(self) -> bool {
        match self {
            Want::Reply { .. } | Want::Result { .. } => false,
            Want::Stream | Want::Accepted => true,
        }
    }
}

/// A message, measured. Its body stays outside, under (task, turn).
#[derive(Clone, Debug)]
pub struct Submission {
    /// Who waits.
    pub line: LineId,
    /// For what.
    pub want: Want,
    /// The id that the delegation will have if it is a new one.
    pub task: TaskId,
    /// Who calls.
    pub principal: Principal,
    /// Whom.
    pub agent: AgentId,
    /// What the message is known by if it is sent again: the caller's messageId, or the key that it gave in its place.
    pub message_id: Arc<str>,
    /// See [`Fingerprint`].
    pub fingerprint: Fingerprint,
    /// The task that the message names.
    pub names: Option<Named>,
    /// The contextId that the caller named, or one minted for it.
    pub context: Arc<str>,
    /// The caller named that contextId itself.
    pub context_named: bool,
    /// What stands for it toward the agent: known from before, or minted for a context that the caller named first.
    /// `None`: the agent mints its own.
    pub remote_context: Option<RemoteId>,
    /// An older use of this messageId, from the store.
    pub known: Option<KnownKey>,
    /// When it came in. What the caller said that it has left counts from then, however long the message waits for its
    /// turn, and also when it is offered again to a restored cell.
    pub arrived: Time,
    /// The budget on the wire: remaining time, depth, fan-out; what is missing gets the defaults.
    pub budget: WireBudget,
    /// What the caller wants for the time in which it waits for a slot.
    pub queue: WireQueue,
    /// The delegation that this one is started for, if the caller says so. Nobody vouches for that, so it can only make
    /// the budget smaller.
    pub parent: Option<TaskId>,
    /// The delegation that this one repeats, at somebody's wish.
    pub redrives: Option<TaskId>,
    /// Where its caller wants word of its end.
    pub outbox: Outbox,
    /// The message's size and digest.
    pub digest: Option<Digest>,
    /// What else is known of where it comes from.
    pub claims: Claims,
}

/// Where a message comes from, beside what the caller itself says in `x-budget`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// The agent that the caller is, from its credential.
    pub from: Option<AgentId>,
    /// Our own token, whole: the delegation that its holder works on.
    pub held: Option<Held>,
    /// What the message refers to, as it is written: our ids, or the calling agent's own.
    pub references: Vec<RemoteId>,
}

/// What the token says that an agent is given with each message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The delegation.
    pub task: TaskId,
    /// The agent that it was given to.
    pub holder: AgentId,
}

/// What came in `x-queue`, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireQueue {
    /// 0 to 100; normal if nothing is said.
    pub priority: Option<u8>,
    /// How long it may wait for its start; the agent's own limit if nothing is said.
    pub ttl: Option<Span>,
}

/// What came in `x-budget`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WireBudget {
    /// Seconds that the calling node still has.
    pub remaining_s: Option<f64>,
    /// Hops that it may still make.
    pub depth: Option<u32>,
    /// Children that it may still start.
    pub fanout: Option<u32>,
}

/// A task named by a message, and what the store knew of it when it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// The task.
    pub task: TaskId,
    /// It is the caller's own task with this agent, and it is terminal.
    pub terminal: bool,
}

/// An older use of a messageId.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownKey {
    /// The task that it started or continued.
    pub task: TaskId,
    /// What its body hashed to.
    pub fingerprint: Fingerprint,
    /// The task failed before any byte was sent: the same key may try again, as a new delegation.
    pub never_sent: bool,
}

/// What an attempt saw on its way.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The agent's task id.
    pub remote_task: Option<RemoteId>,
    /// The agent's context id.
    pub remote_context: Option<RemoteId>,
    /// The state it reported.
    pub state: Option<TaskState>,
    /// The relay's number of the event, given back with [`crate::output::Output::Publish`].
    pub seq: u64,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// By the agent's word: a terminal or interrupted state, or a lone message.
    Replied(Reply),
    /// Without one.
    Failed(Fault),
    /// It was not made: whether the message may be sent cannot be said for now. It waits, and has spent nothing.
    Withheld,
}

/// The agent's word, measured.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The state it reported. Not `Submitted` or `Working`.
    pub state: TaskState,
    /// Task or lone message.
    pub kind: ReplyKind,
    /// Sizes and checks.
    pub measure: Measure,
    /// The size and digest of what it said in the end.
    pub digest: Option<Digest>,
    /// The agent's ids, if it gave them.
    pub remote_task: Option<RemoteId>,
    /// Likewise.
    pub remote_context: Option<RemoteId>,
    /// The relay's number of the last event.
    pub seq: u64,
}

/// Why there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// From the one vocabulary.
    pub reason: Reason,
    /// What is known of the delivery.
    pub delivery: Delivery,
    /// The agent asked to be left alone for this long.
    pub retry_after: Option<Span>,
    /// The agent said itself that it is busy and did not take the message.
    pub busy: bool,
}

/// What came of a CancelTask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelAnswer {
    /// The agent's work has ended, in this state.
    Ended(TaskState),
    /// It goes on, or the agent cannot cancel.
    GoesOn,
    /// The agent does not know the task.
    NotFound,
    /// No answer, or none that could be read. It will be asked again while time is left.
    Failed,
}

//! What must survive a crash: the rows that the engine saves and is restored from. No message text: bodies are kept by
//! the store under (task, turn) and (task, record); the engine only says when they have to be written.

use std::sync::Arc;

use watertight_policy::budget::Budget;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::ids::{AgentId, Attempt, ContextKey, Fingerprint, Key, Owner, Principal, RemoteId, TaskId};

/// A task's state, as A2A names it. A state that we do not know counts as `Working`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TaskState {
    /// Accepted, not yet known to the agent.
    Submitted,
    /// The agent has it.
    Working,
    /// The agent asks back.
    InputRequired,
    /// The agent needs a credential.
    AuthRequired,
    /// Done: the only success.
    Completed,
    /// Failed, by the agent's word or by our verdict (then `reason` says which).
    Failed,
    /// Canceled.
    Canceled,
    /// The agent declined. Only ever the agent's word.
    Rejected,
}

impl TaskState {
    /// All states, in order.
    pub const ALL: [TaskState; 8] = [
        TaskState::Submitted,
        TaskState::Working,
        TaskState::InputRequired,
        TaskState::AuthRequired,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::Rejected,
    ];

    /// Written once; nothing follows.
    pub fn is_terminal(self) -> bool {
        match self {
            TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected => true,
            TaskState::Submitted | TaskState::Working | TaskState::InputRequired | TaskState::AuthRequired => false,
        }
    }

    /// The caller has to do something before the agent goes on.
    pub fn is_interrupted(self) -> bool {
        matches!(self, TaskState::InputRequired | TaskState::AuthRequired)
    }

    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Submitted => "TASK_STATE_SUBMITTED",
            TaskState::Working => "TASK_STATE_WORKING",
            TaskState::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            TaskState::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
            TaskState::Completed => "TASK_STATE_COMPLETED",
            TaskState::Failed => "TASK_STATE_FAILED",
            TaskState::Canceled => "TASK_STATE_CANCELED",
            TaskState::Rejected => "TASK_STATE_REJECTED",
        }
    }
}

/// What is known of whether the agent got the turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Delivery {
    /// No byte of the request reached the kernel, or the peer refused the stream.
    #[default]
    NotSent,
    /// Everything in between, 502 and 504 too.
    MaybeDelivered,
    /// A valid A2A reply or event came back.
    Delivered,
}

impl Delivery {
    /// The word in errors, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Delivery::NotSent => "not_sent",
            Delivery::MaybeDelivered => "maybe_delivered",
            Delivery::Delivered => "delivered",
        }
    }
}

/// Where the current turn stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Not started; `waiting_on` says why.
    Waiting,
    /// The commit before the send says this. A restart reads it as "maybe delivered".
    Dispatching,
    /// The agent answered something: its task id is known, or it is being watched.
    Running,
    /// Over: the task is terminal, or waits for the caller's next message.
    Ended,
}

/// How far a cancel toward the agent has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Cancel {
    /// None wanted.
    #[default]
    None,
    /// Wanted, and owed until the agent answers or it is given up. At least once.
    Owed,
    /// The agent confirmed that the work ended.
    Confirmed,
    /// The agent said no, or said that it goes on.
    Refused,
    /// It never said.
    Unknown,
}

impl Cancel {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Cancel::None => "none",
            Cancel::Owed => "owed",
            Cancel::Confirmed => "confirmed",
            Cancel::Refused => "refused",
            Cancel::Unknown => "unknown",
        }
    }
}

/// What the agent answered with. A lone Message is kept as one, and shown as a COMPLETED task to who asks by id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ReplyKind {
    /// A task.
    #[default]
    Task,
    /// A message, with no task on the agent's side.
    Message,
}

/// Where a delegation is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Durability {
    /// On disk, before anybody is told of it.
    #[default]
    Durable,
    /// In this process' memory alone: nothing waits for the disk, and it is gone with the process.
    Memory,
}

impl Durability {
    /// The word in configuration, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Durable => "durable",
            Durability::Memory => "memory",
        }
    }
}

/// Where word of a delegation's end is left for whoever asked for it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Outbox {
    /// Nowhere: its caller waits, follows, or asks.
    #[default]
    None,
    /// In its caller's own outbox.
    Caller,
    /// In the outbox of the agent that its caller is.
    Agent(AgentId),
}

impl Outbox {
    /// Whose it is, of a caller's.
    pub fn owner(&self, caller: &Principal) -> Option<Owner> {
        match self {
            Outbox::None => None,
            Outbox::Caller => Some(Owner::Caller(caller.clone())),
            Outbox::Agent(agent) => Some(Owner::Agent(caller.tenant.clone(), agent.clone())),
        }
    }
}

/// That a turn has ended: in a terminal state, or because the agent asks for something. Written in the transaction that
/// ends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Whose outbox it is in.
    pub owner: Owner,
    /// Its number there: 1, 2, …
    pub seq: u64,
    /// The delegation.
    pub task: TaskId,
    /// Which of its turns.
    pub turn: u32,
    /// Who worked on it.
    pub agent: AgentId,
    /// The contextId that the caller sees.
    pub context: Arc<str>,
    /// How it ended.
    pub state: TaskState,
    /// Our reason, if that is our verdict.
    pub reason: Option<Reason>,
    /// When.
    pub at: Time,
}

/// One message to a delegation, with its own dedupe, wait and attempts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// 1, 2, …
    pub no: u32,
    /// The caller's messageId, never rewritten.
    pub message_id: Arc<str>,
    /// See [`Fingerprint`].
    pub fingerprint: Fingerprint,
    /// See [`Phase`].
    pub phase: Phase,
    /// Why it waits, while it waits.
    pub waiting_on: Option<Reason>,
    /// Not to be started before (backoff, or the agent's own Retry-After). Of a task that is over: until then nobody else gets the
    /// session in which its agent may still be at work on it.
    pub not_before: Time,
    /// A turn that has not started by then has expired.
    pub expires: Time,
    /// What this turn and everything below it may still spend.
    pub budget: Budget,
    /// The budget's time starts when the turn does, and is this long: a queued turn whose caller set no deadline.
    pub runs_for: Option<Span>,
    /// Tries made for this turn.
    pub attempts: u32,
    /// 0 to 100: of what waits for the same agent, more goes first. [`NORMAL_PRIORITY`] if the caller said nothing.
    pub priority: u8,
    /// When what happened to it.
    pub times: Times,
    /// Its message.
    pub request: Option<Digest>,
    /// What the agent said in the end.
    pub result: Option<Digest>,
}

/// A text's size and SHA-256: what can be checked by whoever has the text, and says nothing to anybody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Bytes.
    pub bytes: u64,
    /// SHA-256.
    pub sha256: [u8; 32],
}

impl Turn {
    /// A message that waits, with nothing wished for.
    pub fn new(no: u32, message_id: Arc<str>, fingerprint: Fingerprint, budget: Budget) -> Turn {
        Turn {
            no,
            message_id,
            fingerprint,
            phase: Phase::Waiting,
            waiting_on: None,
            not_before: Time::ZERO,
            expires: Time::FAR,
            budget,
            runs_for: None,
            attempts: 0,
            priority: NORMAL_PRIORITY,
            times: Times::default(),
            request: None,
            result: None,
        }
    }

    /// Nothing of it was ever sent, as far as is known: what ends its wait is its time to live.
    pub(crate) fn is_untried(&self) -> bool {
        self.attempts == 0 && self.times.sent.is_none()
    }
}

/// The priority of a message whose caller asked for none.
pub const NORMAL_PRIORITY: u8 = 50;

/// Of one turn. Accepted is not sent, sent is not received, received is not at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Its last attempt began.
    pub sent: Option<Time>,
    /// The agent said anything for the first time.
    pub answered: Option<Time>,
    /// It said something new for the last time.
    pub advanced: Option<Time>,
}

impl Times {
    /// The agent said something.
    pub(crate) fn heard(&mut self, now: Time) {
        self.answered = self.answered.or(Some(now));
        self.advanced = Some(now);
    }
}

/// One delegation. `version` counts its saves: the store refuses a save that is not the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its id.
    pub task: TaskId,
    /// 1 on the first save.
    pub version: u64,
    /// Whose it is.
    pub principal: Principal,
    /// For whom.
    pub agent: AgentId,
    /// Where it is kept, from its beginning to its end.
    pub durability: Durability,
    /// Where word of its end is left.
    pub outbox: Outbox,
    /// The contextId that the caller sees.
    pub context: Arc<str>,
    /// The agent's own ids, once known.
    pub remote_task: Option<RemoteId>,
    /// The contextId used toward the agent.
    pub remote_context: Option<RemoteId>,
    /// The tree that it belongs to: itself, for a root.
    pub root: TaskId,
    /// The delegation that it was started for.
    pub parent: Option<TaskId>,
    /// Edges up to the root.
    pub depth: u32,
    /// The agents further up, from the root's caller (if that is an agent) to the one that started this.
    pub chain: Arc<[AgentId]>,
    /// Delegations that were started for this one.
    pub children: u32,
    /// The delegation that this one repeats, at somebody's wish.
    pub redrives: Option<TaskId>,
    /// Its state.
    pub state: TaskState,
    /// Our reason, if the state is our verdict; of a task that asks, why the last answer to it was not sent.
    pub reason: Option<Reason>,
    /// What is known of the delivery of the current turn.
    pub delivery: Delivery,
    /// The cancel owed, or how it went.
    pub cancel: Cancel,
    /// Task or lone message.
    pub reply: ReplyKind,
    /// A result that came after the verdict. It is kept beside it, and changes nothing.
    pub late: Option<TaskState>,
    /// In which state it waited for the message of its current turn. It is in it again if that surely was never sent. Nothing
    /// once the turn is over.
    pub asked: Option<TaskState>,
    /// When it was accepted.
    pub created: Time,
    /// When its state last changed.
    pub changed: Time,
    /// The last attempt made.
    pub attempt: Attempt,
    /// The current turn.
    pub turn: Turn,
}

impl Row {
    /// One that is just taken on: for itself alone, and its agent never heard of it.
    pub fn new(task: TaskId, principal: Principal, agent: AgentId, context: Arc<str>, now: Time, turn: Turn) -> Row {
        Row {
            task,
            version: 0,
            principal,
            agent,
            durability: Durability::Durable,
            outbox: Outbox::None,
            context,
            remote_task: None,
            remote_context: None,
            root: task,
            parent: None,
            depth: 0,
            chain: [].into(),
            children: 0,
            redrives: None,
            state: TaskState::Submitted,
            reason: None,
            delivery: Delivery::NotSent,
            cancel: Cancel::None,
            reply: ReplyKind::Task,
            late: None,
            asked: None,
            created: now,
            changed: now,
            attempt: Attempt(0),
            turn,
        }
    }

    /// Since when its current turn waits, while it waits. It keeps that through every try.
    pub fn waits_since(&self) -> Time {
        if self.turn.no == 1 { self.created } else { self.changed }
    }

    /// Whose outbox is told of its end.
    pub fn owner(&self) -> Option<Owner> {
        self.outbox.owner(&self.principal)
    }

    /// It is in the engine's hands: not over, or something is owed for it.
    pub fn is_live(&self) -> bool {
        !self.state.is_terminal() || self.cancel == Cancel::Owed || self.holds_until().is_some()
    }

    /// It is over, and its agent may still be at work on it in the one session that it has.
    pub(crate) fn holds_until(&self) -> Option<Time> {
        (self.state.is_terminal() && self.turn.not_before > Time::ZERO).then_some(self.turn.not_before)
    }

    /// This turn is over, and no byte of its message was ever sent: its messageId may be used again.
    pub fn never_sent(&self, turn: u32) -> bool {
        let failed = match self.state {
            TaskState::Failed => turn == 1,
            TaskState::InputRequired | TaskState::AuthRequired => self.reason.is_some(),
            TaskState::Submitted
            | TaskState::Working
            | TaskState::Completed
            | TaskState::Canceled
            | TaskState::Rejected => false,
        };
        failed && self.turn.no == turn && self.delivery == Delivery::NotSent
    }
}

/// One thing to write. All saves of a commit are written in one transaction, under the cell's fence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Save {
    /// Insert (version 1) or update (version n over n − 1; anything else is refused, and so is a second terminal state).
    Delegation {
        /// The row as it is now.
        row: Arc<Row>,
        /// The body of this turn's message has to be written with it.
        message: bool,
        /// The task's record (status, artifacts, history) has to be written with it.
        record: bool,
    },
    /// The dedupe key of a turn. The window starts when the task is terminal; the store prunes.
    Key {
        /// The key; a second insert for another turn replaces it.
        key: Key,
        /// What it compares.
        fingerprint: Fingerprint,
        /// The task it belongs to.
        task: TaskId,
        /// And the turn.
        turn: u32,
    },
    /// Which contextId stands for which toward the agent.
    Context {
        /// As the caller knows it.
        key: ContextKey,
        /// As the agent knows it.
        remote: RemoteId,
    },
    /// Something for somebody's outbox. In the same commit as the row that it tells of.
    Notice(Arc<Notice>),
    /// What waits under these numbers does not wait any more: it was read, told on an open line, or dropped.
    Taken {
        /// In whose outbox.
        owner: Owner,
        /// From this one,
        first: u64,
        /// to this one.
        last: u64,
        /// How many were dropped by now, of all that ever were in it.
        lost: u64,
    },
}

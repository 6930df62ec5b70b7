//! Everything that a cell asks for. Imperative. Each leaves the cell only when the commit that it stands on is durable;
//! what stands on a delegation that is kept in memory alone, behind the [`Output::Keep`] of it.
//!
//! Classes: `Send` at most once (the commit before it says `dispatching`); `Cancel` at least once, until answered or
//! given up; `Wake` at least once, until somebody answers; `Answer` at most once (the record stands); the rest is local.

use watertight_policy::budget::Budget;
use watertight_policy::rate;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::ids::{AgentId, Attempt, LineId, RemoteId, TaskId};
use crate::outbox;
use crate::record::{Save, TaskState};

/// Saves to be written in one transaction. Numbers count up by one per commit, from 1 in each engine's life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Its number.
    pub n: u64,
    /// What to write.
    pub saves: Vec<Save>,
}

/// See the module's header.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Keep this in memory: it is of a delegation of which nothing is written to disk. Comes before everything that stands
    /// on it.
    Keep(Save),
    /// Tell the caller.
    Answer {
        /// On this line.
        line: LineId,
        /// This.
        answer: Answer,
    },
    /// Deliver a turn to the agent, and watch it until it ends.
    Send(Dispatch),
    /// Do not send: the agent has it already. Find out how it stands, and watch it until it ends.
    Watch(Dispatch),
    /// Ask the agent to stop.
    Cancel {
        /// Our id.
        task: TaskId,
        /// Whom to ask.
        agent: AgentId,
        /// Its id.
        remote_task: RemoteId,
        /// Give up at.
        until: Time,
    },
    /// Wake the agent: nobody answers there, and so many turns wait. More than once is harmless, and so is one that is left
    /// out while another is under way: there will be a next one as long as somebody waits.
    Wake {
        /// Whom.
        agent: AgentId,
        /// How many.
        waiting: u32,
    },
    /// Abandon the attempt: close its connection.
    Stop {
        /// Whose.
        task: TaskId,
        /// Which.
        attempt: Attempt,
    },
    /// Its row is durable and it only waits for a slot: nothing else has to be held of it in memory until its next save.
    Rests {
        /// Which.
        task: TaskId,
    },
    /// The event with this number, and what waits behind it, may be shown.
    Publish {
        /// Whose.
        task: TaskId,
        /// Up to.
        seq: u64,
        /// The state that is durable now.
        state: TaskState,
    },
    /// The turn is over and its record durable: show it, end the streams.
    Settled {
        /// Whose.
        task: TaskId,
        /// Terminal or interrupted.
        state: TaskState,
        /// Our reason, if it is our verdict.
        reason: Option<Reason>,
        /// From the last dispatch on; `None` if it was never sent.
        took: Option<Span>,
        /// Before that, for a slot.
        waited: Span,
    },
    /// An outbox has changed.
    Outbox(outbox::View),
    /// The cell has let go of it: the store answers for it from now on.
    Forget {
        /// Which.
        task: TaskId,
    },
}

/// What to deliver, and how long it may take.
#[derive(Clone, PartialEq, Debug)]
pub struct Dispatch {
    /// Our id.
    pub task: TaskId,
    /// Which turn's message.
    pub turn: u32,
    /// Comes back with every input about it.
    pub attempt: Attempt,
    /// To whom.
    pub agent: AgentId,
    /// The agent's task id, for a follow-up or a resumed watch.
    pub remote_task: Option<RemoteId>,
    /// The contextId toward the agent.
    pub remote_context: Option<RemoteId>,
    /// The tree that it belongs to.
    pub root: TaskId,
    /// The child's budget: what goes on the wire.
    pub budget: Budget,
    /// When the engine will stop it.
    pub deadline: Time,
}

/// What a caller is told.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// The task as its record has it: accepted, over, or as it was when the wait ended.
    Task {
        /// Which.
        task: TaskId,
        /// The messageId was seen before: this is the first one's task.
        replay: bool,
        /// The turn with this number has ended, and this is how its caller hears of it. Whether it was written to the caller
        /// has to be said ([`crate::input::Input::Told`]); until then its notice is held back.
        receipt: Option<u32>,
    },
    /// Not taken on. No attempt was spent, no dedupe key kept.
    Refused(Refusal),
    /// The messageId was used before with another body.
    Conflict {
        /// By this task.
        first: TaskId,
    },
    /// No such task, or not the caller's: the same answer.
    NotFound,
    /// The task named is terminal; a message needs a new one.
    TaskTerminal,
    /// The contextId named is not the task's.
    ContextMismatch,
    /// The task is terminal and not canceled.
    NotCancelable,
    /// Work for a worker. Its [`Output::Send`] came before this.
    Work {
        /// Which.
        task: TaskId,
        /// What all that the worker says of it has to name.
        attempt: Attempt,
    },
    /// There is none for it now.
    NoWork,
    /// The outbox is read up to there.
    Acknowledged {
        /// The last number that was given out.
        last: u64,
        /// How many wait behind what was acknowledged.
        waiting: usize,
    },
    /// Nothing with that number was ever in the outbox.
    NotThatFar {
        /// The last number that was given out.
        last: u64,
    },
}

/// Why not, and when to come again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// From the one vocabulary.
    pub reason: Reason,
    /// Whose wall it was.
    pub agent: AgentId,
    /// Not worth trying before.
    pub again: Option<Time>,
    /// What else there is to say beside the reason.
    pub cause: Option<Box<Cause>>,
}

/// How many may wait in queues, of whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// All of one agent's.
    Agent(usize),
    /// One caller's of one agent's.
    Caller(usize),
    /// One tenant's, of all agents.
    Tenant(usize),
}

impl Bound {
    /// So many.
    pub fn limit(self) -> usize {
        match self {
            Bound::Agent(limit) | Bound::Caller(limit) | Bound::Tenant(limit) => limit,
        }
    }
}

/// Which limit it was, and whose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The chain of agents that would have become a cycle: from the first one to the one that was called.
    Chain(Vec<AgentId>),
    /// The budget that was in force.
    Budget(InForce),
    /// The delegation that has ended.
    Ended(TaskId),
    /// So many in such a time, from this agent.
    Rate(AgentId, rate::Params),
    /// As many wait as may.
    Full(Bound),
}

/// A budget that did not suffice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InForce {
    /// Where the part of it that ran out came from.
    pub origin: Origin,
    /// Hops that were left.
    pub depth: u32,
    /// Children that were left.
    pub fanout: u32,
    /// Time that was left.
    pub remaining: Span,
    /// Of a parent's: how deep its tree may be, from the root's caller on.
    pub hops: u32,
    /// Of a parent's: how many children it has started.
    pub children: u32,
}

/// Where a limit came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The message's own budget.
    Message,
    /// The agent's configured default or maximum.
    Configured,
    /// The delegation that it is for.
    Parent(TaskId),
    /// The delegation that it seems to be for: its caller did not say.
    Guessed(TaskId),
}

//! One cell: the engine, its disk, and what the process around it knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use watertight_engine::cell::Cell;
use watertight_engine::ids::{Attempt, Fingerprint, Key, LineId, Principal, RemoteId, TaskId};
use watertight_engine::input::Input;
use watertight_engine::record::TaskState;
use watertight_engine::settings::Settings;
use watertight_policy::rng::Rng;
use watertight_policy::time::Time;

use crate::disk::Disk;

/// What a line asks for.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// Which message's caller waits.
    pub(crate) message: u64,
    pub(crate) asks: Asks,
}

#[derive(Clone, Debug)]
pub(crate) enum Asks {
    /// To take a message on.
    Takes { proposed: TaskId, key: Key, fingerprint: Fingerprint, parent: Option<TaskId>, follows: bool },
    /// To cancel its task.
    Cancels,
    /// To cancel somebody else's.
    Meddles,
    /// What is in its outbox.
    Reads,
}

/// What the world knows of a delegation, beside its row.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) message: u64,
    pub(crate) agent: usize,
    pub(crate) parent: Option<TaskId>,
    pub(crate) given_out: bool,
    pub(crate) volatile: bool,
    /// The terminal state that somebody was told.
    pub(crate) told: Option<TaskState>,
    /// The turn, and how often the agent got it.
    pub(crate) reached: Vec<(u32, u32)>,
    /// Ids that its agent has for it.
    pub(crate) works: Vec<RemoteId>,
    pub(crate) keys: Vec<Key>,
    /// Messages that its agent sends for it.
    pub(crate) kids: Vec<u64>,
    /// What it may start, and has started, in its first turn.
    pub(crate) fanout: u32,
    pub(crate) children: u32,
    /// Children that were asked for, and are not answered.
    pub(crate) asked: u32,
    /// The cell has had its whole life in memory: nothing of it was lost with a process.
    pub(crate) unbroken: bool,
    pub(crate) turn: u32,
    pub(crate) state: TaskState,
    pub(crate) canceled: bool,
    pub(crate) owed_since: Option<Time>,
    /// It waits for the end of its retention.
    pub(crate) leaving: bool,
}

pub(crate) struct Node {
    pub(crate) cell: Cell,
    pub(crate) disk: Disk,
    pub(crate) settings: Arc<Settings>,
    pub(crate) principals: Vec<Principal>,
    /// Which life of the process this is.
    pub(crate) life: u64,
    /// Nothing is taken, and nothing done, before this.
    pub(crate) down_until: Option<Time>,
    /// Since when this engine lives.
    pub(crate) up_since: Time,
    /// News that came while the store was away.
    pub(crate) backlog: Vec<Input>,
    pub(crate) running: BTreeMap<(TaskId, Attempt), usize>,
    /// Attempts under way, by agent.
    pub(crate) busy: Vec<u32>,
    pub(crate) lines: BTreeMap<LineId, Open>,
    /// Whose callers left while an answer was on its way to the disk.
    pub(crate) left: BTreeSet<LineId>,
    pub(crate) tracked: BTreeMap<TaskId, Tracked>,
    /// Delegations that the current step had to do with.
    pub(crate) touched: BTreeSet<TaskId>,
    pub(crate) leaving: VecDeque<(Time, TaskId)>,
    /// News that waits for the restored engine.
    pub(crate) salvaged: Vec<Input>,
    /// What slots may be taken after a limit was lowered, by agent.
    pub(crate) ceiling: Vec<u32>,
    /// Agents that were not configured at some time: a restored engine knows none of their limits.
    pub(crate) forgotten: Vec<bool>,
    /// Agents that were drained at some time: what they dropped then may have an unknown outcome.
    pub(crate) drained: Vec<bool>,
    pub(crate) rng: Rng,
    /// The disk is slow until then.
    pub(crate) slow_until: Time,
    /// The next transaction fails.
    pub(crate) fails_next: bool,
    /// It has something to decide about.
    pub(crate) stirred: bool,
    pub(crate) shutting_down: bool,
}

impl Node {
    pub(crate) fn new(n: usize, settings: Arc<Settings>, callers: u64, seed: u64, now: Time) -> Node {
        let tenant: Arc<str> = format!("tenant-{n}").into();
        let caller = |n| Principal { tenant: tenant.clone(), caller: format!("caller-{n}").into() };
        let agents = settings.agents.len();
        Node {
            cell: Cell::new(settings.clone(), seed),
            disk: Disk::default(),
            principals: (0..callers.max(1)).map(caller).collect(),
            settings,
            life: 0,
            down_until: None,
            up_since: now,
            backlog: Vec::new(),
            running: BTreeMap::new(),
            busy: vec![0; agents],
            lines: BTreeMap::new(),
            left: BTreeSet::new(),
            tracked: BTreeMap::new(),
            touched: BTreeSet::new(),
            leaving: VecDeque::new(),
            salvaged: Vec::new(),
            ceiling: vec![0; agents],
            drained: vec![false; agents],
            forgotten: vec![false; agents],
            rng: Rng::new(seed).split(&format!("cell {n}")),
            slow_until: Time::ZERO,
            fails_next: false,
            stirred: false,
            shutting_down: false,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.down_until.is_none()
    }

    pub(crate) fn offer(&mut self, input: Input) {
        match self.is_up() {
            true => self.cell.offer(input),
            false => self.backlog.push(input),
        }
        self.stirred = true;
    }

    pub(crate) fn begins(&mut self, task: TaskId, attempt: Attempt, agent: usize) {
        if self.running.insert((task, attempt), agent).is_none() {
            self.busy[agent] += 1;
        }
    }

    /// False if it was over already.
    pub(crate) fn ends(&mut self, task: TaskId, attempt: Attempt) -> bool {
        let Some(agent) = self.running.remove(&(task, attempt)) else { return false };
        self.busy[agent] -= 1;
        true
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.rng.below(n) == 0
    }
}

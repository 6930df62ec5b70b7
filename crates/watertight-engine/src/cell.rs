//! A cell: the engine, its mailbox, and the gate that holds outputs back until their commit is durable.
//! (Signatures first; the decisions follow.)

use std::collections::BTreeSet;
use std::sync::Arc;

use watertight_policy::breaker;
use watertight_policy::time::{Span, Time};

use crate::ids::{AgentId, Attempt, TaskId};
use crate::input::Input;
use crate::output::{Commit, Output};
use crate::record::Row;
use crate::settings::Settings;

/// One agent's walls at a moment.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// Its name.
    pub agent: AgentId,
    /// Slots taken.
    pub in_flight: u32,
    /// Slots there are.
    pub max_in_flight: u32,
    /// Callers waiting for a slot.
    pub waiting: u32,
    /// Accepted turns waiting.
    pub queued: u32,
    /// The breaker.
    pub breaker: breaker::Snapshot,
    /// The agent asked to be left alone until then.
    pub pacing_until: Option<Time>,
}

/// See the module's header.
pub struct Cell {}

impl Cell {
    /// An empty cell.
    pub fn new(_settings: Arc<Settings>, _seed: u64) -> Cell {
        Cell {}
    }
    /// A cell as its rows say. `alive`: attempts that still run in this process (after a panic or a failed commit);
    /// all others are picked up by watching, or their outcome is unknown.
    pub fn restore(_s: Arc<Settings>, _seed: u64, _rows: Vec<Row>, _alive: &BTreeSet<(TaskId, Attempt)>, _now: Time) -> Cell {
        Cell {}
    }
    /// Puts an input into the mailbox.
    pub fn offer(&mut self, _input: Input) {}
    /// Takes at most 256 inputs and 512 due timers, and decides. `room`: the store takes another commit; without it
    /// nothing is lost, what has to be written waits for the next step.
    pub fn step(&mut self, _now: Time, _room: bool) -> Option<Commit> {
        None
    }
    /// All commits up to this one are durable.
    pub fn committed(&mut self, _n: u64) {}
    /// The next output whose commit is durable.
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }
    /// When to step again without an input. In the past: at once.
    pub fn wake(&self) -> Option<Time> {
        None
    }
    /// The delegation that the current step is working on; after a panic, the one to blame.
    pub fn touching(&self) -> Option<TaskId> {
        None
    }
    /// The inputs whose effects are not durable, in order.
    pub fn salvage(self) -> Vec<Input> {
        Vec::new()
    }
    /// Ends a delegation that a step cannot handle (`input_parked`).
    pub fn park(&mut self, _task: TaskId, _now: Time) {}
    /// A live delegation's row.
    pub fn row(&self, _task: TaskId) -> Option<&Row> {
        None
    }
    /// The agents' walls.
    pub fn agents(&self, _now: Time) -> Vec<AgentView> {
        Vec::new()
    }
    /// How long the cell has been behind.
    pub fn backlog(&self) -> Span {
        Span::ZERO
    }
}

//! What a run came to.

use std::collections::BTreeMap;

use watertight_policy::time::Span;

/// One agent, over all cells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Messages that reached it.
    pub sent: u64,
    /// Delegations that ended as it said.
    pub by_its_word: BTreeMap<String, u64>,
    /// Delegations that ended by our verdict, by reason.
    pub by_our_verdict: BTreeMap<String, u64>,
    /// Those that were ended while it was at work.
    pub cut: u64,
    /// Messages that were refused before they reached it, by reason.
    pub refused: BTreeMap<String, u64>,
    /// CancelTasks that reached it.
    pub cancels: u64,
    /// Accepted delegations that waited for it at once at most, in one cell.
    pub max_queued: u64,
}

/// See the module's header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What should not have happened; empty if all is well.
    pub broken: Vec<Broken>,
    /// Terminal tasks by state and reason.
    pub outcomes: BTreeMap<String, u64>,
    /// Answers that were refusals, by reason, and those that were none, by what they said.
    pub refusals: BTreeMap<String, u64>,
    /// Agents by name.
    pub agents: BTreeMap<String, Tally>,
    /// What happened to us, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Delegations accepted, those that agents started among them.
    pub accepted: u64,
    /// Those that were started for another.
    pub children: u64,
    /// Durable commits of the first cell.
    pub commits: u64,
    /// Inputs that the engines were given.
    pub inputs: u64,
    /// Steps of the engines.
    pub steps: u64,
    /// Messages that reached an agent.
    pub executions: u64,
    /// CancelTasks that reached an agent.
    pub cancels: u64,
    /// Wake hooks that were called.
    pub wakes: u64,
    /// Messages whose agent was asked what became of them, and knew.
    pub found: u64,
    /// Delegations in one engine's memory at once at most.
    pub held: u64,
    /// Virtual time that passed.
    pub took: Span,
    /// How each message ended for its caller, in order: what two runs are compared by.
    pub fates: BTreeMap<u64, String>,
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// At which step.
    pub step: u64,
    /// Which cell's.
    pub cell: usize,
    /// Of which delegation, if it is one's.
    pub task: Option<String>,
    /// What.
    pub what: String,
    /// The last events of the delegation, oldest first.
    pub events: Vec<String>,
}

impl Report {
    pub(crate) fn count(counts: &mut BTreeMap<String, u64>, what: &str) {
        match counts.get_mut(what) {
            Some(times) => *times += 1,
            None => drop(counts.insert(what.to_owned(), 1)),
        }
    }
}

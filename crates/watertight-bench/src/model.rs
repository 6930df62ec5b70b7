//! What a run found, as it is written and read again. Times are milliseconds, memory is bytes.

use serde::{Deserialize, Serialize};

use crate::figures::median;
use crate::route::Kind;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) about: About,
    pub(crate) cells: Vec<Cell>,
    pub(crate) sqlite: Vec<Sqlite>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) footprint: Vec<Footprint>,
    pub(crate) list: Option<List>,
    #[serde(default)]
    pub(crate) backlog: Option<Backlog>,
    #[serde(default)]
    pub(crate) waiting: Option<Waiting>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
}

/// Where and how it was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) commit: String,
    pub(crate) profile: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) nginx: String,
    /// The machine's load average when it began: what ran beside, or had just run.
    pub(crate) load: f64,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

/// One path at one number of connections, once a round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) path: Kind,
    pub(crate) conns: usize,
    pub(crate) rounds: Vec<Round>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Calls a second.
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// CPU seconds, user and system, of what is measured, for a thousand calls.
    pub(crate) cpu: f64,
    /// Of what is measured, at the end.
    pub(crate) resident: u64,
    /// Answers that were not the completed task that was asked for, and connections that broke.
    pub(crate) errors: u64,
}

/// SQLite alone: calls a second, once a round, with so many calls in each transaction.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sqlite {
    pub(crate) fold: usize,
    pub(crate) rates: Vec<f64>,
}

/// Refusals of an agent whose slots are full, asked for one at a time, once a round.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) callers: usize,
    pub(crate) idle: Vec<Quantiles>,
    pub(crate) loaded: Vec<Quantiles>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) count: usize,
}

/// A gateway that has just started, on a store with so many tasks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Footprint {
    pub(crate) tasks: usize,
    /// From exec to the line that says where it listens.
    pub(crate) starts: Vec<f64>,
    /// Half a second later.
    pub(crate) resident: Vec<u64>,
}

/// Walks through all pages of ListTasks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct List {
    pub(crate) tasks: usize,
    pub(crate) page: usize,
    pub(crate) walks: Vec<Quantiles>,
}

/// So many accepted tasks before an agent that takes nothing.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Backlog {
    pub(crate) tasks: usize,
    /// Accepted a second, while it filled.
    pub(crate) rates: Vec<f64>,
    /// Once all of them waited.
    pub(crate) resident: Vec<u64>,
    pub(crate) threads: usize,
    /// Killed, and started again: from exec to the first `/readyz` that says so.
    pub(crate) ready: Vec<f64>,
}

/// So many callers, each with a request that is held until a result is there for it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) callers: usize,
    /// Seconds that a request is held at most.
    pub(crate) held: u64,
    /// Memory that each of them takes.
    pub(crate) each: Vec<f64>,
    /// Share of one core, while nothing comes.
    pub(crate) cpu: Vec<f64>,
    /// From the message to an agent that answers at once, to the result at who waits.
    pub(crate) arrives: Vec<Quantiles>,
}

impl Cell {
    pub(crate) fn median(&self, what: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(what)).unwrap_or_default()
    }
}

impl Report {
    pub(crate) fn cell(&self, path: Kind, conns: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.path == path && cell.conns == conns)
    }

    pub(crate) fn sqlite(&self, fold: usize) -> Option<&Sqlite> {
        self.sqlite.iter().find(|it| it.fold == fold)
    }
}

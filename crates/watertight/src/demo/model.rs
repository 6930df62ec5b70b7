//! What the demo is made of, and what it writes down: agents, phases, calls and trips.
//!
//! All times are durations on one `Clock`, except where a field says otherwise.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// Trips come evenly spaced, whether or not earlier ones have been answered.
pub(super) const TRIP_EVERY: Duration = Duration::from_millis(250);
pub(super) const TRIPS_PER_SECOND: u64 = 4;
/// What a trip has, from its arrival to its answer.
pub(super) const TRIP_BUDGET: Duration = Duration::from_secs(6);
/// What a node keeps of its budget for merging and answering; the gateway's default.
pub(super) const RESERVE: Duration = Duration::from_millis(300);
/// A trip stops waiting for its calls here, so that the answer itself is inside the budget.
pub(super) const GIVE_UP: Duration = Duration::from_millis(5_900);
/// The hotels agent during the fault.
pub(super) const SLOW: Duration = Duration::from_secs(30);
/// The one pool of the run without walls.
pub(super) const POOL: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Agent {
    Flights,
    Hotels,
    Fx,
}

impl Agent {
    pub(super) const ALL: [Agent; 3] = [Agent::Flights, Agent::Hotels, Agent::Fx];

    pub(super) fn name(self) -> &'static str {
        match self {
            Agent::Flights => "flights",
            Agent::Hotels => "hotels",
            Agent::Fx => "fx",
        }
    }

    pub(super) fn what(self) -> &'static str {
        match self {
            Agent::Flights => "flights",
            Agent::Hotels => "hotel rooms",
            Agent::Fx => "exchange rates",
        }
    }

    pub(super) fn normal_latency(self) -> Duration {
        match self {
            Agent::Flights => Duration::from_millis(400),
            Agent::Hotels => Duration::from_millis(1_500),
            Agent::Fx => Duration::from_millis(200),
        }
    }

    pub(super) fn bulkhead(self) -> Bulkhead {
        match self {
            Agent::Flights | Agent::Hotels => {
                Bulkhead { max_in_flight: 8, max_waiting: 16, max_wait: Duration::from_millis(500) }
            }
            Agent::Fx => Bulkhead { max_in_flight: 4, max_waiting: 8, max_wait: Duration::from_millis(200) },
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Agent {
    type Err = String;

    fn from_str(s: &str) -> Result<Agent, String> {
        let found = Agent::ALL.into_iter().find(|agent| agent.name() == s);
        found.ok_or_else(|| "expected flights, hotels or fx".to_owned())
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Bulkhead {
    pub(super) max_in_flight: u64,
    pub(super) max_waiting: u64,
    pub(super) max_wait: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    Before,
    During,
    After,
}

impl Phase {
    pub(super) const ALL: [Phase; 3] = [Phase::Before, Phase::During, Phase::After];

    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Before => "before",
            Phase::During => "during",
            Phase::After => "after",
        }
    }
}

/// When the phases begin and end, counted in trips. A trip belongs to the phase in which it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) trips: u64,
    pub(super) fault_from: u64,
    pub(super) fault_to: u64,
}

impl Schedule {
    pub(super) fn phase(&self, trip: u64) -> Phase {
        match trip {
            t if t < self.fault_from => Phase::Before,
            t if t < self.fault_to => Phase::During,
            _ => Phase::After,
        }
    }

    pub(super) fn at(trip: u64) -> Duration {
        TRIP_EVERY * u32::try_from(trip).unwrap_or(u32::MAX)
    }
}

/// How a call ended, as the trip saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    /// The gateway would not pass it on; the reason is the gateway's word.
    Refused(String),
    /// The gateway ended it at the call's deadline.
    Cut,
    Failed(String),
    /// Nothing came before the trip had to answer.
    Unanswered,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) agent: Agent,
    pub(super) phase: Phase,
    /// When the call was made.
    pub(super) made: Duration,
    /// When its trip had arrived.
    pub(super) trip: Duration,
    /// When it ended for the trip, whatever the outcome.
    pub(super) ended: Duration,
    pub(super) outcome: Outcome,
}

impl Call {
    pub(super) fn took(&self) -> Duration {
        self.ended.saturating_sub(self.made)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Full,
    Partial,
    Nothing,
}

#[derive(Debug, Clone)]
pub(super) struct Trip {
    pub(super) phase: Phase,
    pub(super) arrived: Duration,
    pub(super) answered: Duration,
    pub(super) answer: Answer,
}

impl Trip {
    pub(super) fn took(&self) -> Duration {
        self.answered.saturating_sub(self.arrived)
    }
}

/// An exchange as small as a refusal, with a process that does nothing else: what it takes on this machine, at this moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    pub(super) made: Duration,
    pub(super) took: Duration,
}

/// Everything that happened, in the order in which it ended.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) calls: Vec<Call>,
    pub(super) trips: Vec<Trip>,
    pub(super) plain: Vec<Plain>,
    pub(super) last_answer: String,
}

//! Failure isolation as values: time and randomness in, verdicts out.
//!
//! What keeps one agent's failure from sinking the others, as plain data structures. Nothing here waits, spawns, logs,
//! reads a clock or draws from the system's randomness; there are no dependencies. The same code decides in a gateway,
//! in a simulator in virtual time, and in your orchestrator.
//!
//! | module | decides |
//! |---|---|
//! | [`bulkhead`] | how many calls may be in flight to one agent, and how many may wait |
//! | [`breaker`] | when an agent gets no traffic, and which trial brings it back |
//! | [`budget`] | what a tree of delegations may still spend: time, depth, fan-out |
//! | [`backoff`] | how long to wait, by our own ladder or by the agent's `Retry-After` |
//! | [`retry_budget`] | whether one more retry is covered by traffic |
//! | [`access`] | which agents a caller may call: tenants, lists, the tree of agents |
//! | [`acceptance`] | whether what an agent returned is a result |
//! | [`address`] | which addresses a stranger may name |
//! | [`boundary`] | how what a peer wrote is shown to a model |
//! | [`queue`] | which of what waits for an agent goes next: priority, fair turns, age |
//! | [`latency`], [`load`] | how long turns took and waited lately, how many came |
//! | [`sizing`] | how many slots an agent needs: Little's law |
//! | [`cell`] | which cell a tenant lives in |
//! | [`reason`] | the closed vocabulary of all refusals, failures and waits |
//! | [`time`], [`rng`] | time and randomness as arguments |
//!
//! They look alike: `Params` say what is allowed, with a documented meaning for zero and for the maximum of each
//! field; methods take `now`; a refusal says why, and when to come again where that is known; a wake-up lies ahead or
//! is `None`. Impossible calls (a release too many, a stale trial) are survived, not panicked at. Numbers saturate.
//!
//! # One call, three walls
//!
//! Ask from the cheapest to the dearest: budget, breaker, bulkhead. Call. Then tell each what came of it.
//!
//! ```
//! use watertight_policy::breaker::{Breaker, Gate, Sample};
//! use watertight_policy::budget;
//! use watertight_policy::bulkhead::{self, Admission, Bulkhead};
//! use watertight_policy::{Span, Time};
//!
//! // One bulkhead and one breaker per agent, kept for as long as the agent is known.
//! let mut bulkhead = Bulkhead::new(bulkhead::Params::try_new(8, 16, Span::from_millis(500))?);
//! let mut breaker = Breaker::new(Default::default());
//! let budgets = budget::Params::default();
//!
//! // 1. A trip arrives with six seconds, two hops and four delegations to spend.
//! let now = Time::from_millis(1_767_225_600_000); // your clock, read once
//! let mut trip = budgets.arrive(now, Some(6.0), Some(2), Some(4));
//!
//! // 2. It wants hotels. The child gets less, and the trip has one delegation less to give.
//! let hotels = trip.child(now, &budgets).expect("enough of everything");
//! assert_eq!((hotels.remaining(now), hotels.depth, trip.fanout), (Span::from_millis(5_700), 1, 3));
//!
//! // 3. May the agent be called, and is there a slot? Neither question can hang.
//! assert_eq!(breaker.gate(now), Gate::Open);
//! match bulkhead.admit(now, Some(hotels.deadline)) {
//!     Admission::Granted => {}
//!     Admission::Waiting { .. } => unreachable!("sleep until `next_wake`, then `expire` and `grant`"),
//!     Admission::Refused { .. } => unreachable!("answer without hotels"),
//! }
//!
//! // 4. Call it, with the rest of the time on the wire and as the local timeout. It takes all of it.
//! let sent = hotels.to_wire(now);
//! assert_eq!((sent.remaining_s, sent.depth), (5.7, 1));
//! let (begun, now) = (now, hotels.deadline);
//!
//! // 5. Give the slot back, and tell the breaker who asked and how long the agent had.
//! bulkhead.release();
//! let caller = 7;
//! let change = breaker.record(now, caller, Sample::Cut { waited: now.since(begun) }, None);
//! assert_eq!(change, None); // one failure ejects nobody; the fifth in a row would
//!
//! // 6. The time held back is left for the answer.
//! assert_eq!(trip.remaining(now), Span::from_millis(300));
//! # Ok::<(), bulkhead::InvalidParams>(())
//! ```
//!
//! Where [`breaker::Breaker::gate`] says `Probe`, call [`breaker::Breaker::begin_probe`] after the slot was granted
//! and hand its id to `record`; if the call is never made, [`breaker::Breaker::abandon_probe`].
#![warn(missing_docs)]

pub mod acceptance;
pub mod access;
pub mod address;
pub mod backoff;
pub mod boundary;
pub mod breaker;
pub mod budget;
pub mod bulkhead;
pub mod cell;
pub mod latency;
pub mod load;
pub mod queue;
pub mod rate;
pub mod reason;
pub mod retry_budget;
pub mod rng;
pub mod sizing;
pub mod time;

pub use reason::Reason;
pub use rng::Rng;
pub use time::{Span, Time};

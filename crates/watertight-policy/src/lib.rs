//! Failure isolation as values: time and randomness in, verdicts out.
#![warn(missing_docs)]

pub mod acceptance;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod bulkhead;
pub mod cell;
pub mod reason;
pub mod retry_budget;
pub mod rng;
pub mod sizing;
pub mod time;

pub use reason::Reason;
pub use rng::Rng;
pub use time::{Span, Time};

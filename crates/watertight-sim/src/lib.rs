//! The real engine in virtual time: the same [`watertight_engine::cell::Cell`] that the gateway drives, before agents
//! that answer, ask back, fail, refuse and hang, and on a disk that is slow and forgets what it has not acknowledged.
//!
//! A run is a function of its [`Scenario`]: same scenario, same transcript. The invariants are checked after every
//! step; [`sweep`] makes a scenario exhaustive rather than lucky: a crash after every commit in turn, a reload of the
//! engine after every commit in turn, every at-least-once effect twice.
//!
//! Left out so far: more than one cell, and what only sockets can do (half-open connections, partial writes).

mod agent;
mod disk;
mod scenario;
pub mod sweep;
mod world;

pub use agent::{Behaviour, Model};
pub use scenario::{Fault, Scenario};
pub use world::{Report, run};

//! The real engine in virtual time: the same [`watertight_engine::cell::Cell`] that the gateway drives, before agents
//! that answer, delegate, ask back, fail, refuse, hang and lie, on disks that are slow, fail, and forget what they have
//! not acknowledged, in processes that die.
//!
//! A run is a function of its [`Scenario`]: same scenario, same run. The invariants are checked after every step for
//! what it touched, and for everything now and then; what broke is played again, to tell the events of the delegation
//! that it happened to. [`sweep`] makes a scenario exhaustive rather than lucky: a crash before and after every commit
//! in turn, a reload of the engine after every commit in turn, every at-least-once effect twice.
//!
//! Left out: message bodies, and what only sockets can do (half-open connections, partial writes).

mod agent;
mod callers;
mod chaos;
mod check;
mod disk;
mod node;
mod report;
mod scenario;
pub mod sweep;
mod wire;
mod world;

pub use agent::{Behaviour, Model, Obedience};
pub use report::{Broken, Report, Tally};
pub use scenario::{Fault, Faults, Player, Scenario};
pub use world::{run, run_watched};

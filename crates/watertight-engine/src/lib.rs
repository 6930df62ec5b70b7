//! The delegation engine: pure and deterministic. It holds ids, times, sizes and outcomes, never a message's text, a
//! socket, a clock or SQL.
//!
//! The contract of a driver, in numbered steps (the gateway and the simulator drive the same [`cell::Cell`]):
//!
//! 1. [`cell::Cell::offer`] every input that is ready.
//! 2. [`cell::Cell::step`] with the time; hand the commit it gives, if any, to the store.
//! 3. [`cell::Cell::committed`] when the store says that a commit is durable.
//! 4. [`cell::Cell::poll_output`] until `None`, and carry out each output.
//! 5. Sleep until [`cell::Cell::wake`], an input, or a durable commit; go to 1.
//!
//! If a commit fails, or a step panics: take [`cell::Cell::salvage`], drop the cell, load the rows from the store,
//! [`cell::Cell::restore`], offer what was salvaged, each submission with what the store knows of it now, go on. Truth that
//! is not in the store is in the salvaged inputs; what was taken for lost may be in it all the same.

mod agent;
mod audit;
mod cancel;
pub mod cell;
mod dormant;
mod drain;
mod engine;
mod fetch;
mod follow;
mod former;
mod hashed;
pub mod ids;
pub mod input;
mod live;
pub mod outbox;
pub mod output;
mod queue;
pub mod record;
mod refuse;
mod restore;
mod run;
pub mod settings;
mod submit;
pub mod tree;
mod wake;

//! The engine as a story: inputs and times in, a transcript of commits and outputs out.

mod access;
mod anything;
mod budget;
mod calls;
mod cancel;
mod drain;
mod durability;
mod fetch;
mod native;
mod outbox;
mod pairs;
mod queue;
mod trees;
mod turns;
mod wake;
mod walls;
mod world;

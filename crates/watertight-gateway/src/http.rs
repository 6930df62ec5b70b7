//! The HTTP faces: who comes in, what they ask for, and how they are answered.
//!
//! [`server`] accepts and bounds connections, [`workers`] serve them; [`live`] has the configuration in force, and for it a router, which turns
//! a request into a call and the call's outcome into a response. Below the router nothing knows of HTTP. Assumes that the handle behind it is cheap to clone and answers
//! everything, also while the gateway drains; every limit of its own is in [`crate::config::Server`].

pub mod auth;
pub mod body;
pub mod live;
mod mcp;
pub mod server;
pub mod sse;
pub mod workers;
mod workspaces;

pub(crate) use render::whole as task_json;

pub(crate) mod api;
mod audit;
mod cards;
mod delegations;
mod doors;
mod drain;
mod inbox;
mod line;
mod outbox;
mod public;
mod push;
mod queue;
mod redrive;
mod registry;
mod reload;
mod render;
mod reply;
mod rest;
mod router;
mod rpc;

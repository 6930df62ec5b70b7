//! The HTTP faces: who comes in, what they ask for, and how they are answered.
//!
//! [`server`] accepts and bounds connections; [`router`] turns a request into a call and the call's outcome into a
//! response. Below the router nothing knows of HTTP. Assumes that the handle behind it is cheap to clone and answers
//! everything, also while the gateway drains; every limit of its own is in [`crate::config::Server`].

pub mod auth;
pub mod body;
pub mod router;
pub mod server;
pub mod sse;

mod api;
mod cards;
mod render;
mod rpc;

use watertight_a2a::event::TaskState as Wire;
use watertight_engine::record::TaskState;

/// A wire state as the engine knows it. What is not known counts as working.
fn state_of(state: &Wire) -> TaskState {
    match state {
        Wire::Submitted => TaskState::Submitted,
        Wire::Working | Wire::Unspecified | Wire::Unknown(_) => TaskState::Working,
        Wire::Completed => TaskState::Completed,
        Wire::Failed => TaskState::Failed,
        Wire::Canceled => TaskState::Canceled,
        Wire::InputRequired => TaskState::InputRequired,
        Wire::Rejected => TaskState::Rejected,
        Wire::AuthRequired => TaskState::AuthRequired,
    }
}

/// The engine's state on the wire.
fn wire_state(state: TaskState) -> Wire {
    Wire::of_name(state.as_str())
}

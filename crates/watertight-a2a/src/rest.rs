//! The HTTP+JSON binding: operations as paths, queries and bare JSON bodies.
//!
//! Assumes that a body has been read and bounded by somebody else. [`inbound`] turns a request into the same
//! [`crate::call::Call`] that JSON-RPC gives; [`outbound`] writes a request for an agent and reads its answer. Errors
//! are written by [`crate::error::Error::to_http`].

pub mod inbound;
pub mod outbound;
pub mod query;

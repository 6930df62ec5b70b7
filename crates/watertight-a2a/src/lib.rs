//! The A2A wire, and nothing else: bytes in, bytes out.
//!
//! Assumes that a body has been read, bounded, by somebody else. Never waits, reads no clock, opens no socket,
//! knows no agent. Peers' JSON is kept as they wrote it ([`json::Json`]); decisions read a narrow peek of it
//! ([`call`], [`event`]), and ids are spliced in place ([`edit`]), so unknown members, number texts and
//! `"data": null` survive the passage. No function here panics on any bytes, and every one is linear in them.

#![warn(missing_docs)]

pub mod call;
pub mod canonical;
pub mod card;
pub mod edit;
pub mod error;
pub mod event;
pub mod json;
pub mod jsonrpc;
pub mod record;
pub mod reply;
pub mod served;
pub mod sse;
pub mod text;
pub mod time;
pub mod traceparent;
pub mod version;

mod params;
mod splice;

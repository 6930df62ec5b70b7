//! The A2A wire, and nothing else: bytes in, bytes out.
//!
//! Assumes that a body has been read, bounded, by somebody else. Never waits, reads no clock, opens no socket,
//! knows no agent. Peers' JSON is kept as they wrote it ([`json::Json`]); decisions read a narrow peek of it
//! ([`call`], [`event`]), and ids are spliced in place ([`edit`]), so unknown members, number texts and
//! `"data": null` survive the passage. No function here panics on any bytes, and every one is linear in them.
//!
//! A call comes in: [`jsonrpc::parse_request`], then [`call::Call::parse`]. It goes out: [`edit::send_params`], then
//! [`jsonrpc::write_request`]. What comes back, whole or as the data of an event that [`sse::Reader`] framed, goes
//! through [`reply::read_reply`], [`event::Event`] and [`event::Event::with_ids`] into a [`record::Record`], which
//! renders what the caller reads.
//!
//! ```
//! use watertight_a2a::{call::Call, edit, event::Event, json::Limits, jsonrpc, record, reply};
//!
//! let body = br#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":
//!     {"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"a room, please"}]}}}"#;
//! let request = jsonrpc::parse_request(body.to_vec().into(), &Limits::default()).unwrap();
//! let Call::Send(send) = Call::parse(request.method, request.params).unwrap() else { panic!() };
//!
//! let settings = edit::SendEdit { return_immediately: Some(true), ..Default::default() };
//! let out = jsonrpc::write_request("w-1", request.method, edit::send_params(&send.params, &settings).as_bytes());
//! assert!(out.ends_with(br#""configuration":{"returnImmediately":true}}}"#));
//!
//! let answer = br#"{"jsonrpc":"2.0","id":"w-1","result":{"task":{"id":"theirs","status":{"state":"TASK_STATE_WORKING"}}}}"#;
//! let head = reply::Head { status: 200, content_type: Some("application/json") };
//! let raw = reply::read_reply(answer.to_vec().into(), head, "w-1", &Limits::default()).unwrap();
//! let event = Event::read_send_result(&raw.result).unwrap();
//!
//! let mut record = record::Record::new("ours", "ctx", 0);
//! record.add_client_message(&send.message());
//! record.apply(&event.with_ids(&edit::Ids::new("ours", "ctx")).unwrap(), 0);
//! let task = record.render_task(&record::RenderOptions::default());
//! assert!(jsonrpc::write_result(&request.id, &task).starts_with(br#"{"jsonrpc":"2.0","id":1,"result":{"id":"ours","#));
//! ```

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
pub mod rest;
pub mod said;
pub mod served;
pub mod sse;
pub mod text;
pub mod time;
pub mod traceparent;
pub mod version;

mod params;
mod splice;

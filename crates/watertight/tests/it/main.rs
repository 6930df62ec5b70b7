//! The whole-process tests: the built binary, driven over sockets by callers and agents that behave, misbehave or vanish.
//!
//! One binary for all of them, so that they link once. `clock`, `http`, `peer`, `agent`, `gateway`, `client` and `command` are the kit; each other
//! module is a theme. A theme asserts what a caller or an agent can see, never how the gateway works inside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod agent;
mod client;
mod clock;
mod command;
mod gateway;
mod http;
mod peer;

mod access;
mod asks;
mod audit;
mod backlog;
mod bindings;
mod breaker;
mod cancel;
mod cards;
mod chaos;
mod check;
mod cli_agents;
mod cli_send;
mod cli_tasks;
mod crash;
mod dedupe;
mod disk;
mod doors;
mod faults;
mod fetch;
mod kit;
mod lifetimes;
mod limits;
mod lists;
mod memory;
mod outbox;
mod outbox_chaos;
mod proxies;
mod push;
mod queue;
mod recovery;
mod redrive;
mod registry;
mod relay;
mod reload;
mod reminder;
mod rest;
mod retention;
mod sdk;
mod shutdown;
mod stall;
mod streams;
mod tidy;
mod tokens;
mod tools;
mod trace;
mod trees;
mod wake;
mod walls;
mod workspaces;

//! What is worth saying about a configuration that is valid: settings without effect and why, and what will surprise.
//!
//! A setting is only said to be without effect if the file says it; defaults are nobody's mistake. Assumes nothing of
//! the world outside the file: agents, disks and permissions are looked at elsewhere, and told in the same shape.

mod agents;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use super::{Agent, Config, keys};

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// It will not work.
    Error,
    /// It works, and something about it is likely not meant.
    Warning,
    /// Something that was written has no effect.
    NoEffect,
    /// Worth knowing.
    Note,
}

impl Level {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::NoEffect => "no effect",
            Level::Note => "note",
        }
    }
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// The key or table that it is about, as it is written.
    pub at: String,
    /// Its line in the file, if it stands there.
    pub line: Option<usize>,
    /// What it is, and what to do.
    pub text: String,
}

/// Everything there is to say about the file alone.
pub fn advise(config: &Config) -> Vec<Finding> {
    let mut adviser = Adviser { config, found: Vec::new() };
    adviser.gateway();
    adviser.callers();
    for (name, agent) in &config.agents {
        agents::advise(&mut adviser, name.as_str(), agent);
    }
    adviser.same_url();
    let mut found = adviser.found;
    found.sort_by_key(|finding| (finding.level, finding.line));
    found
}

struct Adviser<'a> {
    config: &'a Config,
    found: Vec<Finding>,
}

impl Adviser<'_> {
    /// Says something about a key or table.
    fn say(&mut self, level: Level, path: &[&str], text: impl fmt::Display) {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        let line = self.config.places.line(&path);
        self.found.push(Finding { level, at: keys::dotted(&path), line, text: text.to_string() });
    }

    /// This has no effect, if the file says it.
    fn idle(&mut self, path: &[&str], why: impl fmt::Display) {
        if self.is_written(path) {
            self.say(Level::NoEffect, path, why);
        }
    }

    fn is_written(&self, path: &[&str]) -> bool {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        self.config.places.line(&path).is_some()
    }

    fn gateway(&mut self) {
        let config = self.config;
        if config.agents.is_empty() {
            self.say(Level::Warning, &["agents"], "no agent is configured: every call will be refused");
        }
        let secure = config.public_url.as_ref().is_some_and(|url| url.starts_with("https:"));
        if !config.listen.ip().is_loopback() && !secure {
            let text = "tokens and messages cross the network in the clear: put a proxy with TLS before it, and name \
                        the proxy's address in server.public_url";
            self.say(Level::Warning, &["listen"], text);
        }
        if config.is_open() {
            self.idle(&["key"], "the key hashes callers' tokens, and there are no callers");
        }
        if !config.push.enabled {
            self.idle(&["push", "allow"], "push.enabled is false, and nothing is pushed");
        }
        if config.public_url.is_some() {
            self.idle(
                &["server", "trusted_proxies"],
                "public_url is set, and what proxies say of the way in is not asked for",
            );
        }
        let server = &config.server;
        if server.max_buffered_bytes < server.max_request_bytes {
            let text = "it is less than max_request_bytes, and one request must fit: that is the limit";
            self.idle(&["server", "max_buffered_bytes"], text);
        }
        self.connections();
        self.delegations();
    }

    /// Over HTTP/1.1, who is answered, waits or reads a stream holds a connection each.
    fn connections(&mut self) {
        let places = self.config.server.max_connections as u64;
        let held = |agent: &Agent| {
            let bulkhead = &agent.settings.bulkhead;
            u64::from(bulkhead.max_in_flight) + u64::from(bulkhead.max_waiting)
        };
        let all: u64 = self.config.agents.values().map(held).sum();
        let alone = self.config.agents.iter().filter(|(_, agent)| held(agent) >= places);
        for (name, agent) in alone.collect::<Vec<_>>() {
            let text = format!(
                "alone it can fill the front door: {} slots and {} places to wait, and max_connections is {places}; \
                 raise that, or lower these",
                agent.settings.bulkhead.max_in_flight, agent.settings.bulkhead.max_waiting
            );
            self.say(Level::Warning, &["agents", name.as_str()], text);
        }
        if all > places {
            let text = format!(
                "all agents together have {all} slots and places to wait; with every caller on a connection of its own \
                 {places} are not enough, and callers of a healthy agent are turned away at the door"
            );
            self.say(Level::Warning, &["server", "max_connections"], text);
        }
    }

    /// What is accepted and not over counts for the whole cell.
    fn delegations(&mut self) {
        let limit = self.config.max_delegations as u64;
        let can = |agent: &Agent| u64::from(agent.settings.bulkhead.max_in_flight) + agent.settings.max_queued as u64;
        for (name, agent) in self.config.agents.iter().filter(|(_, agent)| can(agent) >= limit).collect::<Vec<_>>() {
            let text = format!(
                "its {} slots and {} places in the queue are all of server.max_delegations, {limit}: when it stops \
                 working, nobody's delegations are taken",
                agent.settings.bulkhead.max_in_flight, agent.settings.max_queued
            );
            self.say(Level::Warning, &["agents", name.as_str(), "max_queued"], text);
        }
        let all: u64 = self.config.agents.values().map(can).sum();
        if all > limit {
            let text = format!(
                "the slots and queues of all agents hold {all}, more than this: with several agents away the whole \
                 gateway refuses (cell_overloaded)"
            );
            self.say(Level::Note, &["server", "max_delegations"], text);
        }
    }

    fn callers(&mut self) {
        let config = self.config;
        let callers = &config.callers;
        for caller in callers {
            if caller.agents.as_ref().is_some_and(Vec::is_empty) {
                let (level, text) = match caller.operator {
                    true => (Level::Note, "it may call no agent, only operate"),
                    false => (Level::Warning, "its list is empty: it may call no agent at all"),
                };
                self.say(level, &["callers", &caller.name, "agents"], text);
            }
        }
        let rules = config.rules();
        for caller in callers {
            for agent in
                caller.agents.iter().flatten().filter(|agent| !rules.exists(&caller.as_asked(&caller.only()), agent))
            {
                let tenant = rules.place(agent).and_then(|place| place.tenant.as_deref()).unwrap_or_default();
                let text = format!(
                    "agent `{agent}` is of tenant `{tenant}`, and this caller of `{}`: to it, there is no such agent",
                    caller.tenant
                );
                self.say(Level::Warning, &["callers", &caller.name, "agents"], text);
            }
        }
        // Who holds a token may be an operator, and may call what no caller of the file may.
        if callers.is_empty() || self.config.has_holders() {
            return;
        }
        if !callers.iter().any(|caller| caller.operator) {
            let text = "no caller is an operator: nobody can read /metrics or /v1, reset a breaker or reload over HTTP";
            self.say(Level::Note, &["callers"], text);
        }
        for name in self.config.agents.keys() {
            if !callers.iter().any(|caller| rules.judge(&caller.as_asked(&caller.only()), name).is_ok()) {
                self.say(Level::Warning, &["agents", name.as_str()], "no caller may call it");
            }
        }
    }

    fn same_url(&mut self) {
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for (name, agent) in &self.config.agents {
            let name = name.as_str();
            if agent.wire.fetches {
                continue;
            }
            match first.get(&agent.wire.url.to_string()) {
                Some(other) => {
                    let text = format!(
                        "it has the URL of `{other}`: what is behind it gets the slots of both, and each breaker sees \
                         only its own part"
                    );
                    self.say(Level::Warning, &["agents", name, "url"], text);
                }
                None => {
                    first.insert(agent.wire.url.to_string(), name);
                }
            }
        }
    }
}

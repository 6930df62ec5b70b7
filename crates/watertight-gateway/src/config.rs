//! The configuration: one TOML file, turned into what it means, at the start and at every reload.
//!
//! Two stages. [`written`] is the file's shape and refuses unknown keys, which [`mend`] reads past; [`meant`] resolves
//! units, secrets and rules. Together they find every mistake, not only the first. After that nothing reads configuration. Secrets are never in the
//! file: it says `env:NAME` or `file:PATH`. Environment variables are read through a function that the binary gives.

mod advice;
mod compare;
mod key;
pub mod keys;
mod meant;
mod mend;
mod net;
mod places;
mod reference;
mod relations;
mod report;
mod sample;
mod schema;
mod secret;
mod shape;
#[cfg(test)]
mod tests;
mod units;
mod without;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use watertight_engine::ids::{AgentId, Principal};
use watertight_engine::settings::AgentSettings;
use watertight_policy::access::{self, Access, Place, Rule};
use watertight_policy::rate;
use watertight_policy::time::Span;

use crate::access::Grants;
use crate::agents::AgentConfig;
use crate::http::auth::Who;
use crate::push;
use crate::registry::{self, Records};
use crate::tokens::Tokens;
use crate::wake::Hook;
use crate::{AgentSpec, CellLimits, InMemory, Kept, Started, StoreSpec, hub};

pub use advice::{Finding, Level, advise};
pub use compare::{changes, effective, waiting, written};
pub use key::InstanceKey;
pub(crate) use meant::enrolment;
pub use net::Net;
pub use places::Places;
pub use reference::reference;
pub use relations::{MayCall, may_call};
pub use report::Invalid;
pub use sample::{MARK, sample};
pub use schema::schema;
pub use secret::{Env, Secret};
pub use without::{Bound, Opens, Share, Told, Without, without};

/// Everything that the gateway is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens. Loopback, unless callers are configured.
    pub listen: SocketAddr,
    /// Where the instance key is, and whether the file says so itself.
    pub key: KeyFile,
    /// Where the tokens are that `watertight token` gives out.
    pub tokens: PathBuf,
    /// There were some when the file was read: then callers are more than the file says.
    pub has_tokens: bool,
    /// The store's place.
    pub store: PathBuf,
    /// How long what has ended is kept in it.
    pub kept: Kept,
    /// The base of every URL that it gives out, without a slash at the end; what the client used, if there is none.
    pub public_url: Option<String>,
    /// The proxies whose word about the way in counts.
    pub trusted_proxies: Vec<Net>,
    /// The front door's limits.
    pub server: Server,
    /// How long a drain may take.
    pub drain: Duration,
    /// Accepted delegations that are not terminal.
    pub max_delegations: usize,
    /// Turns that wait behind another one of their context or task.
    pub max_behind: usize,
    /// Accepted turns of one tenant that may wait for slots.
    pub max_queued_per_tenant: usize,
    /// Notices that may wait in one outbox.
    pub max_outbox: usize,
    /// Whether this machine's own users have an outbox.
    pub local_outbox: bool,
    /// What decides which agents an agent may call, beside tenants and lists.
    pub access: Rule,
    /// Whether news of tasks is pushed, and where to.
    pub push: push::Settings,
    /// How often one agent may send another messages in one conversation.
    pub rate: rate::Params,
    /// Who may call. None: this machine's own users, over loopback.
    pub callers: Vec<Caller>,
    /// Who may register agents.
    pub enrolments: Vec<Enrolment>,
    /// Whom they may call: the file's agents, and those that registered.
    pub agents: BTreeMap<AgentId, Agent>,
    /// Those that registered.
    pub registered: Records,
    /// Names of those which the file has too: there the file's agent is the one that counts.
    pub overruled: BTreeSet<AgentId>,
    /// Which keys the file says, and where.
    pub places: Places,
}

/// What [`Config::files`] gives.
#[derive(Debug)]
pub struct Files {
    /// The instance key.
    pub key: KeyFile,
    /// The tokens.
    pub tokens: PathBuf,
    /// The agents that are configured, and those that registered.
    pub agents: Vec<String>,
}

/// Where the instance key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// Its path.
    pub path: PathBuf,
    /// It was configured, so it has to be there.
    pub required: bool,
}

/// The front door's limits.
#[derive(Debug, Clone)]
pub struct Server {
    /// Connections at once. One more is told so and closed.
    pub max_connections: usize,
    /// HTTP/2 streams per connection.
    pub max_streams_per_connection: u32,
    /// All headers of a request.
    pub max_header_bytes: usize,
    /// One request's body.
    pub max_request_bytes: usize,
    /// All request bodies that are being read or handled at the same time.
    pub max_buffered_bytes: usize,
    /// From the connection's first byte, or the last answer, to the end of the headers.
    pub header_timeout: Duration,
    /// From the headers to the end of the body.
    pub body_timeout: Duration,
    /// How long a write may make no progress before the reader is given up on.
    pub write_stall: Duration,
    /// Events that wait for one slow reader of a stream.
    pub max_outbound_events: usize,
    /// Their bytes.
    pub max_outbound_bytes: usize,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            max_connections: 4_096,
            max_streams_per_connection: 128,
            max_header_bytes: 16 << 10,
            max_request_bytes: 16 << 20,
            max_buffered_bytes: 256 << 20,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            write_stall: Duration::from_secs(30),
            max_outbound_events: 128,
            max_outbound_bytes: 4 << 20,
        }
    }
}

/// Somebody with a token.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Its name: what keys, logs and metrics say.
    pub name: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// Its bearer token.
    pub token: Secret,
    /// The agents that it may call; `None`: all.
    pub agents: Option<Vec<AgentId>>,
    /// The agent that it is, if it is one.
    pub agent: Option<AgentId>,
    /// It may see metrics and change the walls.
    pub operator: bool,
    /// How many of its waiting turns go when it is its turn.
    pub weight: u32,
    /// Whether it has an outbox; if nothing is said, agents have one.
    pub outbox: Option<bool>,
}

impl Caller {
    /// Its list, as the rules take it.
    pub(crate) fn only(&self) -> Option<BTreeSet<AgentId>> {
        self.agents.as_ref().map(|agents| agents.iter().cloned().collect())
    }

    /// It, before the rules.
    fn as_asked<'a>(&'a self, only: &'a Option<BTreeSet<AgentId>>) -> access::Caller<'a, AgentId> {
        access::Caller { tenant: &self.tenant, agent: self.agent.as_ref(), only: only.as_ref() }
    }
}

/// Somebody who may register agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// Its name.
    pub name: String,
    /// What is shown to register.
    pub secret: Secret,
    /// The tenant of its agents.
    pub tenant: String,
    /// The agent under which they stand.
    pub parent: Option<AgentId>,
    /// How many there may be.
    pub max_agents: u32,
    /// Where they may be, beside the public internet.
    pub allow: Vec<Net>,
}

/// One agent behind the gateway.
#[derive(Debug, Clone)]
pub struct Agent {
    /// How it is talked to.
    pub wire: AgentConfig,
    /// Who may call it, and whom it may call.
    pub place: Place<AgentId>,
    /// How long a blocking caller holds the line. `None`: as long as the budget lasts.
    pub wait: Option<Span>,
    /// What is kept of its ended delegations, where they are kept in memory alone.
    pub memory: InMemory,
    /// How it is woken when nobody answers there.
    pub wake: Hook,
    /// It is told by a message that results wait for it.
    pub told: bool,
    /// Where it fetches its work, a worker has to say something of what it has within this time.
    pub lease: Duration,
    /// Between two of those, at least.
    pub told_cooldown: Span,
    /// Its walls.
    pub settings: AgentSettings,
}

impl Config {
    /// Reads and judges a file. Paths in it are relative to its directory. `listen` outranks the file's.
    pub fn load(path: &Path, listen: Option<SocketAddr>, env: Env<'_>) -> Result<Config, Invalid> {
        let name = path.display().to_string();
        let source = read(path)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        Config::parse(&name, &source, dir, listen, env)
    }

    /// The same for a text; `name` stands in errors.
    pub fn parse(
        name: &str,
        source: &str,
        dir: &Path,
        listen: Option<SocketAddr>,
        env: Env<'_>,
    ) -> Result<Config, Invalid> {
        let invalid = |problems: Vec<report::Problem>| report::render(name, source, &problems);
        let mut mended = mend::read(source).map_err(invalid)?;
        let judged = meant::config(std::mem::take(&mut mended.file), dir, listen, env);
        let config = match judged {
            Ok(config) if mended.problems.is_empty() => config,
            Ok(_) => return Err(invalid(mended.with(Vec::new()))),
            Err(problems) => return Err(invalid(mended.with(problems))),
        };
        Ok(Config { places: Places::of(source), ..config })
    }

    /// Where the instance key and the tokens are, and the agents' names: for who makes a token. Nothing else of the file
    /// is judged, and no secret is looked for.
    pub fn files(path: &Path) -> Result<Files, Invalid> {
        let (name, source) = (path.display().to_string(), read(path)?);
        let invalid = |problems: &[report::Problem]| report::render(&name, &source, problems);
        let mended = mend::read(&source).map_err(|problems| invalid(&problems))?;
        if !mended.problems.is_empty() {
            return Err(invalid(&mended.problems));
        }
        let file = mended.file;
        let dir = path.parent().unwrap_or(Path::new(""));
        // Who is registered matters to who names one; a file that cannot be read is the gateway's affair.
        let registered = registry::read(&registry::place(&meant::store(&file, dir))).unwrap_or_default();
        let registered = registered.keys().map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
        Ok(Files {
            key: meant::key(&file, dir),
            tokens: meant::tokens(&file, dir),
            agents: file.agents.into_keys().map(toml::Spanned::into_inner).chain(registered).collect(),
        })
    }

    /// Nobody is asked for a token: this machine's users may call, and no others.
    pub fn is_open(&self) -> bool {
        self.callers.is_empty() && self.enrolments.is_empty() && !self.has_tokens
    }

    /// Callers are more than the file says: some hold tokens, or will.
    pub fn has_holders(&self) -> bool {
        self.has_tokens || !self.enrolments.is_empty()
    }

    /// Whether this agent registered itself, and counts.
    pub fn is_registered(&self, agent: &AgentId) -> bool {
        self.registered.contains_key(agent) && !self.overruled.contains(agent)
    }

    /// The token of an agent that registered counts as long as the agent is registered, with this one.
    pub(crate) fn stands(&self, who: &Who) -> bool {
        let Some(token) = &who.enrolled else { return true };
        let registered = who.agent.as_ref().filter(|agent| self.is_registered(agent));
        registered.and_then(|agent| self.registered.get(agent)).is_some_and(|record| record.token == *token)
    }

    /// The same with others registered.
    pub(crate) fn with_registered(mut self, records: &Records) -> Result<Config, String> {
        let overruled = &self.overruled;
        self.agents.retain(|name, _| !self.registered.contains_key(name) || overruled.contains(name));
        self.overruled = enrolment::merge(&mut self.agents, records, &self.enrolments, &self.callers)?;
        self.registered = records.clone();
        Ok(self)
    }

    /// What the cell may hold over all agents.
    pub fn cell(&self) -> CellLimits {
        let weighty = self.callers.iter().filter(|caller| caller.weight > 1);
        let named =
            |caller: &Caller| Principal { tenant: caller.tenant.as_str().into(), caller: caller.name.as_str().into() };
        CellLimits {
            max_delegations: self.max_delegations,
            max_behind: self.max_behind,
            max_queued_per_tenant: self.max_queued_per_tenant,
            max_outbox: self.max_outbox,
            weights: weighty.map(|caller| (named(caller), caller.weight)).collect(),
            rate: self.rate,
        }
    }

    /// Who may call whom.
    pub fn rules(&self) -> Access<AgentId> {
        let places = self.agents.iter().map(|(name, agent)| (name.clone(), agent.place.clone()));
        Access::new(self.access, places.collect())
    }

    /// The agents.
    pub fn specs(&self) -> Vec<AgentSpec> {
        let spec = |(name, agent): (&AgentId, &Agent)| AgentSpec {
            name: name.clone(),
            engine: agent.settings.clone(),
            wire: Arc::new(agent.wire.clone()),
            place: agent.place.clone(),
            wait: agent.wait,
            memory: agent.memory,
            wake: Some(agent.wake.clone()).filter(Hook::is_some),
            lease: agent.wire.fetches.then_some(agent.lease),
            results: agent.told.then_some(agent.told_cooldown),
        };
        self.agents.iter().map(spec).collect()
    }

    /// What the gateway behind the door is started with.
    pub fn started(&self, key: InstanceKey, tokens: Arc<Tokens>) -> Started {
        Started {
            grants: Grants::of(self, tokens),
            store: StoreSpec::File(self.store.clone()),
            kept: self.kept,
            agents: self.specs(),
            cell: self.cell(),
            push: self.push.clone(),
            key,
            streams: hub::Limits {
                max_outbound_events: self.server.max_outbound_events,
                max_outbound_bytes: self.server.max_outbound_bytes,
                ..hub::Limits::default()
            },
        }
    }
}

/// Whether this may be the name of an agent, a caller or a tenant; if not, what may be.
pub fn name(text: &str) -> Result<(), &'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    let dots = text.bytes().all(|b| b == b'.');
    let fits = !text.is_empty() && text.len() <= 64 && !dots && text.bytes().all(plain);
    if fits { Ok(()) } else { Err("1 to 64 of a-z, 0-9, `-`, `_` and `.`") }
}

/// A length of time as it is written in the configuration: `90d`, `12h`.
pub fn length_of_time(text: &str) -> Result<Span, String> {
    units::span(text)
}

fn read(path: &Path) -> Result<String, Invalid> {
    fs::read_to_string(path).map_err(|e| {
        Invalid::plain(format!("the configuration cannot be read: {}: {e}; watertight init makes one", path.display()))
    })
}

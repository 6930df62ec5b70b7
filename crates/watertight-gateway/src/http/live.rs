//! The configuration in force, and how another takes its place while requests run.
//!
//! A [`Router`] is made for one configuration and never changes. A reload makes the next one; a request keeps the one
//! that it came in by, so nothing that runs sees half a change. Agents that are no longer configured stay known to
//! those who could call them, so that their tasks can be read and canceled to the end; they take nothing new.
//!
//! Assumes that the limits of the listener and the store are given once: keys that only they use are compared with
//! what the process began with, and named as waiting for a restart.

pub(super) mod enrol;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use watertight_engine::ids::AgentId;
use watertight_policy::time::Time;

use super::body::{Body, Intake};
use super::router::Router;
use super::server::Service;
use crate::access::Grants;
use crate::agents::Guard;
use crate::config::{Agent, Caller, Config, InstanceKey, changes, effective, enrolment, waiting};
use crate::handle::Handle;
use crate::registry::{self, Formers};
use crate::tokens::Tokens;

/// Reads the configuration again, from where it came from. It may take its time.
pub type Source = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// What every router of this process has in common.
#[derive(Clone)]
pub struct Common {
    /// What callers' tokens are hashed with.
    pub key: InstanceKey,
    /// Those that are given out and taken back meanwhile.
    pub tokens: Arc<Tokens>,
    /// What is behind the door.
    pub handle: Handle,
    /// What clients are sent to when they do not say which host they mean.
    pub listening: String,
    /// Since when it serves, for cards.
    pub since: SystemTime,
    /// It takes nothing new any more.
    pub draining: CancellationToken,
}

/// The door's service: the router of the configuration in force.
pub struct Live {
    router: RwLock<Arc<Router>>,
    state: Mutex<State>,
    /// One reload at a time; the second sees what the first has done.
    turn: tokio::sync::Mutex<()>,
    source: Arc<Source>,
    common: Common,
    me: Weak<Live>,
    /// Agents that registered and left, and by which enrolment they came.
    left: Mutex<BTreeMap<AgentId, String>>,
    /// Likewise, since ever: whose names they are.
    former: Mutex<Formers>,
    /// For those who are registering.
    seats: Arc<Semaphore>,
    /// For lookups of where they are.
    names: Arc<Semaphore>,
}

/// Registrations at once; one more is refused. Name lookups at once; those take a thread each.
const SEATS: usize = 64;
const LOOKUPS: usize = 4;

#[derive(Clone)]
struct State {
    /// What the process began with: the keys that need a restart are still these.
    began: Arc<Config>,
    /// What was read last and taken.
    current: Arc<Config>,
    /// How often one was taken; the first is 1.
    generation: u64,
    taken: Time,
    /// Agents that are no longer configured.
    leaving: BTreeMap<AgentId, Agent>,
    /// The callers with the leaving agents that they could call.
    callers: Vec<Caller>,
    /// Why the last reload changed nothing, and when.
    refused: Option<(Time, String)>,
}

/// What a reload did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// The number of the configuration that is now in force.
    pub generation: u64,
    /// The keys that differ from the one before, with names in their paths.
    pub changed: Vec<String>,
    /// Agents that are new.
    pub added: Vec<String>,
    /// Agents that are gone: they finish what they have.
    pub removed: Vec<String>,
    /// Keys that differ from what the process began with and only count after a restart.
    pub pending_restart: Vec<String>,
}

impl Live {
    /// Serves by this configuration, until another is read from the source. `draining` turns readiness off.
    pub fn new(config: Config, source: Source, common: Common) -> Arc<Live> {
        told_overruled(&config);
        let config = Arc::new(config);
        let state = State {
            began: config.clone(),
            current: config.clone(),
            generation: 1,
            taken: common.handle.now(),
            leaving: BTreeMap::new(),
            callers: config.callers.clone(),
            refused: None,
        };
        // Who is registered was read from there a moment ago.
        let former = registry::read_all(&registry::place(&config.store)).map(|(_, former)| former).unwrap_or_default();
        Arc::new_cyclic(|me| Live {
            router: RwLock::new(Arc::new(Router::new(
                &config,
                &config.callers,
                &BTreeMap::new(),
                intake(&config),
                &common,
                me.clone(),
            ))),
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::new(()),
            source: Arc::new(source),
            common,
            me: me.clone(),
            left: Mutex::default(),
            former: Mutex::new(former),
            seats: Arc::new(Semaphore::new(SEATS)),
            names: Arc::new(Semaphore::new(LOOKUPS)),
        })
    }

    /// Reads the configuration again and lets it take the place of the one in force; if it cannot, that one stays, and
    /// the error says why. `by` is for the log.
    pub async fn reload(&self, by: &str) -> Result<Reloaded, String> {
        let _turn = self.turn.lock().await;
        let taken = self.take_next().await;
        match &taken {
            Ok(done) => tracing::info!(
                by,
                generation = done.generation,
                changed = done.changed.join(" "),
                added = done.added.join(" "),
                removed = done.removed.join(" "),
                pending_restart = done.pending_restart.join(" "),
                "configuration reloaded"
            ),
            Err(why) => {
                tracing::error!(by, error = why, "configuration not reloaded: the one before stays in force");
                self.locked().refused = Some((self.common.handle.now(), why.clone()));
            }
        }
        taken
    }

    async fn take_next(&self) -> Result<Reloaded, String> {
        let source = self.source.clone();
        let mut next = tokio::task::spawn_blocking(move || source()).await.map_err(|e| e.to_string())??;
        let state = self.state();
        if next.store != state.began.store {
            // Those of the store that the next start will have are not registered here.
            next = next.with_registered(&state.current.registered)?;
        }
        told_overruled(&next);
        self.forget_left(&next);
        self.put(Arc::new(next)).await
    }

    /// Lets it take the place of the one in force.
    async fn put(&self, next: Arc<Config>) -> Result<Reloaded, String> {
        let before = self.state();
        // First the cell, then the door: whoever is let in finds the walls that it is told of.
        self.common.handle.limit(next.cell());
        self.common.handle.keep(next.kept);
        self.common.handle.push(next.push.clone());
        let after = before.after(next.clone(), self.common.handle.now());
        self.common.handle.grant(Grants::with(&next, &after.callers, self.common.tokens.clone()));
        if let Err(why) = self.common.handle.configure(next.specs()).await {
            // What comes next must not count half of this one.
            self.common.handle.grant(Grants::with(&before.current, &before.callers, self.common.tokens.clone()));
            return Err(why.to_string());
        }
        let intake = self.intake_for(&before.current, &next);
        let router = Router::new(&next, &after.callers, &after.leaving, intake, &self.common, self.me.clone());
        *self.router.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(router);
        let names = |of: &Config, not_in: &Config| {
            let gone = of.agents.keys().filter(|name| !not_in.agents.contains_key(*name));
            gone.map(|name| name.as_str().to_owned()).collect()
        };
        let done = Reloaded {
            generation: after.generation,
            changed: changes(&before.current, &next),
            added: names(&next, &before.current),
            removed: names(&before.current, &next),
            pending_restart: waiting(&after.began, &next),
        };
        *self.locked() = after;
        Ok(done)
    }

    /// What is in force, without secrets.
    pub(super) fn shown(&self) -> Value {
        let (state, now) = (self.state(), self.common.handle.now());
        let refused =
            state.refused.as_ref().map(|(at, why)| json!({"ageMs": now.since(*at).as_millis(), "error": why}));
        json!({
            "generation": state.generation,
            "loadedAgeMs": now.since(state.taken).as_millis(),
            "pendingRestart": waiting(&state.began, &state.current),
            "refused": refused,
            "registered": state.current.registered.keys().filter(|name| state.current.is_registered(name))
                .map(AgentId::as_str).collect::<Vec<_>>(),
            "overruled": state.current.overruled.iter().map(AgentId::as_str).collect::<Vec<_>>(),
            "leaving": state.leaving.keys().map(AgentId::as_str).collect::<Vec<_>>(),
            "config": effective(&state.began, &state.current),
        })
    }

    /// A place for one that registers, if there is one.
    pub(super) fn seat(&self) -> Option<OwnedSemaphorePermit> {
        self.seats.clone().try_acquire_owned().ok()
    }

    pub(super) fn names(&self) -> &Arc<Semaphore> {
        &self.names
    }

    /// Where an agent may be that comes by this enrolment, or is there.
    pub(super) fn guard(&self, by: Option<&str>, agent: &AgentId) -> Guard {
        let config = self.state().current;
        let by = by.or_else(|| config.registered.get(agent).map(|record| record.enrolment.as_str()));
        Guard::of_agents(enrolment::allowed(&config.enrolments, by.unwrap_or("")))
    }

    pub(super) fn router(&self) -> Arc<Router> {
        self.router.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> State {
        self.locked().clone()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bodies that are being read hold their part of the room, so it stays the same as long as its size does.
    fn intake_for(&self, before: &Config, next: &Config) -> Intake {
        let of = |c: &Config| (c.server.max_request_bytes, c.server.max_buffered_bytes, c.server.body_timeout);
        if of(before) == of(next) { self.router().intake().clone() } else { intake(next) }
    }
}

impl Service for Live {
    async fn call(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        let router = self.router();
        router.call(request, peer).await
    }

    fn panicked(&self, uri: &Uri) -> Response<Body> {
        self.router().panicked(uri)
    }
}

impl State {
    fn after(&self, next: Arc<Config>, now: Time) -> State {
        let mut leaving = self.leaving.clone();
        leaving.extend(self.current.agents.iter().map(|(name, agent)| (name.clone(), agent.clone())));
        leaving.retain(|name, _| !next.agents.contains_key(name));
        let callers = next.callers.iter().map(|caller| self.with_leaving(caller, &leaving)).collect();
        State {
            began: self.began.clone(),
            current: next,
            generation: self.generation + 1,
            taken: now,
            leaving,
            callers,
            refused: None,
        }
    }

    /// A caller may go on with what it had at an agent that leaves.
    fn with_leaving(&self, caller: &Caller, leaving: &BTreeMap<AgentId, Agent>) -> Caller {
        let before = self.callers.iter().find(|old| old.name == caller.name && old.tenant == caller.tenant);
        let could = |agent: &&AgentId| match before.map(|old| &old.agents) {
            Some(Some(agents)) => agents.contains(agent),
            Some(None) => true,
            None => false,
        };
        let agents = caller
            .agents
            .as_ref()
            .map(|agents| agents.iter().chain(leaving.keys().filter(could)).cloned().collect::<Vec<_>>());
        Caller { agents, ..caller.clone() }
    }
}

/// Whoever reads the log learns why an agent that registered is not called.
fn told_overruled(config: &Config) {
    for agent in &config.overruled {
        tracing::warn!(%agent, "it registered, and is in the configuration too: that one counts, and its token opens nothing");
    }
}

fn intake(config: &Config) -> Intake {
    let server = &config.server;
    Intake::new(server.max_request_bytes, server.body_timeout, server.max_buffered_bytes)
}

//! What is to be played.

use std::collections::BTreeMap;
use std::sync::Arc;

use watertight_engine::ids::AgentId;
use watertight_engine::record::Durability;
use watertight_engine::settings::{AgentSettings, Settings};
use watertight_policy::time::Span;

use crate::agent::Model;

/// What goes wrong with ourselves, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process dies right after this commit is durable, before anyone is told. Its connections are gone.
    CrashAfter(u64),
    /// The engine alone is replaced right after this commit is durable. Connections live on.
    ReloadAfter(u64),
}

/// One run, up to its seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Of everything random in the run.
    pub seed: u64,
    /// Messages sent by callers.
    pub delegations: u64,
    /// Callers that send them.
    pub callers: u64,
    /// Mean time between two messages.
    pub every: Span,
    /// One message in this many is cancelled by its caller; 0 = none.
    pub cancel_one_in: u64,
    /// One message in this many is sent twice; 0 = none.
    pub twin_one_in: u64,
    /// One message in this many only asks to be accepted; 0 = none.
    pub queued_one_in: u64,
    /// What a caller's budget is.
    pub budget: Span,
    /// The longest that a commit takes.
    pub disk: Span,
    /// Our own faults.
    pub faults: Vec<Fault>,
    /// Every cancel is sent twice.
    pub twice: bool,
    /// The agents, and their walls.
    pub agents: BTreeMap<String, (Model, AgentSettings)>,
}

impl Scenario {
    /// Three agents: one well, one that fails and asks back, one that hangs and refuses.
    pub fn small(seed: u64, delegations: u64) -> Scenario {
        let settings = AgentSettings { attempts: 3, ..AgentSettings::default() };
        let agents = [("well", Model::well()), ("moody", Model::moody()), ("dead", Model::dead())];
        Scenario {
            seed,
            delegations,
            callers: 5,
            every: Span::from_millis(40),
            cancel_one_in: 9,
            twin_one_in: 7,
            queued_one_in: 3,
            budget: Span::from_secs(6),
            disk: Span::from_millis(4),
            faults: Vec::new(),
            twice: false,
            agents: agents.into_iter().map(|(name, model)| (name.into(), (model, settings.clone()))).collect(),
        }
    }

    /// The same, but what the moody one and the dead one are asked is kept in memory alone.
    pub fn mixed(seed: u64, delegations: u64) -> Scenario {
        let mut scenario = Scenario::small(seed, delegations);
        for name in ["moody", "dead"] {
            if let Some((_, settings)) = scenario.agents.get_mut(name) {
                settings.durability = Durability::Memory;
            }
        }
        scenario
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        let agents = self.agents.iter().map(|(name, (_, settings))| (AgentId::new(name), settings.clone()));
        Arc::new(Settings { agents: agents.collect(), ..Settings::default() })
    }
}

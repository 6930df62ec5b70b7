//! What is to be played.

use std::sync::Arc;

use watertight_engine::ids::AgentId;
use watertight_engine::record::Durability;
use watertight_engine::settings::{AgentSettings, Serialize, Settings};
use watertight_policy::bulkhead;
use watertight_policy::time::Span;

use crate::agent::{Model, Obedience};

/// What goes wrong with ourselves at one commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process dies while this commit is on its way, which is lost. Its connections are gone.
    CrashBefore(u64),
    /// The process dies right after this commit is durable, before anyone is told. Its connections are gone.
    CrashAfter(u64),
    /// The engine alone is replaced right after this commit is durable. Connections live on.
    ReloadAfter(u64),
}

/// How often something goes wrong by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Faults {
    /// Never: only the agents misbehave.
    #[default]
    None,
    /// Every twenty seconds in each cell.
    Some,
    /// Every half second in each cell.
    Many,
}

impl Faults {
    pub(crate) fn every(self) -> Option<Span> {
        match self {
            Faults::None => None,
            Faults::Some => Some(Span::from_secs(20)),
            Faults::Many => Some(Span::from_millis(500)),
        }
    }
}

/// One agent of a scenario.
#[derive(Clone, Debug)]
pub struct Player {
    /// Its name.
    pub name: String,
    /// What it does.
    pub model: Model,
    /// Its walls, in every cell.
    pub settings: AgentSettings,
}

/// One run, up to its seed. Where something is said to be one in so many, 0 is none.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Of everything random in the run.
    pub seed: u64,
    /// Messages sent by callers. Agents that delegate send more.
    pub delegations: u64,
    /// Cells, each with its own tenants, walls and disk.
    pub cells: usize,
    /// Callers of each cell.
    pub callers: u64,
    /// Mean time between two messages.
    pub every: Span,
    /// One message in this many is cancelled by its caller, at some moment.
    pub cancel_one_in: u64,
    /// One message in this many is sent twice.
    pub twin_one_in: u64,
    /// One message in this many is followed by another with the same messageId.
    pub conflict_one_in: u64,
    /// One message in this many only asks to be accepted.
    pub queued_one_in: u64,
    /// One message in this many is followed by another to its task, whatever that is at.
    pub follow_one_in: u64,
    /// One line in this many is given up by its caller.
    pub hang_up_one_in: u64,
    /// One task in this many is asked for by somebody else.
    pub stranger_one_in: u64,
    /// One question of an agent in this many is never answered.
    pub silent_one_in: u64,
    /// One delivery in this many is not made: its caller may not send it any more, or nobody can say whether it may.
    pub gate_one_in: u64,
    /// What a caller's budget is.
    pub budget: Span,
    /// One message in this many names no budget at all.
    pub unbudgeted_one_in: u64,
    /// The longest that a commit takes.
    pub disk: Span,
    /// Commits take few rows; otherwise as many as there are, mostly.
    pub small_commits: bool,
    /// How late the cell is at most: what comes meanwhile is decided about together.
    pub late: Span,
    /// All is looked at every so many steps; what a step touched, in every one.
    pub audit_every: u64,
    /// How long a task is kept once the cell has let go of it.
    pub retention: Span,
    /// Our own faults at commits of the first cell.
    pub faults: Vec<Fault>,
    /// Faults of all kinds, at random moments.
    pub chaos: Faults,
    /// Every cancel is sent twice.
    pub twice: bool,
    /// Half of what agents send for a delegation comes with the token that they were given, and not only with its id.
    pub signed: bool,
    /// How each message ended is in the report.
    pub compare: bool,
    /// The agents.
    pub agents: Vec<Player>,
}

impl Scenario {
    /// Three agents: one well, one that fails and asks back, one that hangs and refuses.
    pub fn small(seed: u64, delegations: u64) -> Scenario {
        let settings = AgentSettings { attempts: 3, ..AgentSettings::default() };
        let agents = [("dead", Model::dead()), ("moody", Model::moody()), ("well", Model::well())];
        Scenario {
            seed,
            delegations,
            cells: 1,
            callers: 5,
            every: Span::from_millis(40),
            cancel_one_in: 9,
            twin_one_in: 7,
            conflict_one_in: 0,
            queued_one_in: 3,
            follow_one_in: 0,
            hang_up_one_in: 0,
            stranger_one_in: 0,
            silent_one_in: 0,
            gate_one_in: 0,
            budget: Span::from_secs(6),
            unbudgeted_one_in: 0,
            disk: Span::from_millis(4),
            small_commits: true,
            late: Span::ZERO,
            audit_every: 7,
            retention: Span::MAX,
            faults: Vec::new(),
            chaos: Faults::None,
            twice: false,
            signed: false,
            compare: true,
            agents: agents.map(|(name, model)| player(name.into(), model, settings.clone())).into(),
        }
    }

    /// The same, but what the moody one and the dead one are asked is kept in memory alone.
    pub fn mixed(seed: u64, delegations: u64) -> Scenario {
        let mut scenario = Scenario::small(seed, delegations);
        for player in scenario.agents.iter_mut().filter(|player| player.name != "well") {
            player.settings.durability = Durability::Memory;
        }
        scenario
    }

    /// A planner that delegates to the others and asks back, with everything that callers do: for sweeps over a whole
    /// cycle of delegating, running, answering, following up and cancelling.
    pub fn cycle(seed: u64, delegations: u64) -> Scenario {
        let mut scenario = Scenario::small(seed, delegations);
        let settings = AgentSettings { attempts: 2, ..AgentSettings::default() };
        scenario.agents = vec![
            player("lying".into(), Model::lying(), settings.clone()),
            player("moody".into(), Model::moody(), settings.clone()),
            player("planner".into(), Model::planning(), settings),
        ];
        Scenario {
            cancel_one_in: 4,
            follow_one_in: 6,
            conflict_one_in: 9,
            stranger_one_in: 9,
            gate_one_in: 12,
            ..scenario
        }
    }

    /// Room for everything and no walls in the way: how a message ends does not depend on the others, so that two runs
    /// can be compared message by message.
    pub fn roomy(seed: u64, delegations: u64) -> Scenario {
        let mut scenario = Scenario::small(seed, delegations);
        for player in &mut scenario.agents {
            player.settings.bulkhead = bulkhead::Params { max_in_flight: 10_000, ..bulkhead::Params::default() };
            player.settings.breaker.consecutive_failures = 0;
            player.settings.breaker.failure_rate_bp = 0;
            player.settings.breaker.slow_rate_bp = 0;
            player.settings.serialize = Serialize::None;
            player.settings.attempts = 1;
            player.model.behaviours.retain(|(_, behaviour)| *behaviour != crate::Behaviour::Paces);
        }
        Scenario { cancel_one_in: 0, every: Span::from_millis(97), ..scenario }
    }

    /// Everything at once: agents of every kind, callers of every kind, several cells, faults of ours.
    pub fn world(seed: u64, delegations: u64, agents: usize, cells: usize, chaos: Faults) -> Scenario {
        let players: Vec<Player> = (0..agents.max(1)).map(of_kind).collect();
        // A smaller world stays what it was, so that its seeds do.
        let signed = players.len() > 12;
        // A little more than the agents can take.
        let per_second = (players.len() * cells.max(1)) as u64 * 30;
        Scenario {
            cells: cells.max(1),
            callers: 40,
            every: Span::from_micros(1_000_000 / per_second.max(1)),
            conflict_one_in: 40,
            follow_one_in: 30,
            hang_up_one_in: 25,
            stranger_one_in: 50,
            silent_one_in: 8,
            gate_one_in: if signed { 150 } else { 0 },
            cancel_one_in: 11,
            unbudgeted_one_in: 10,
            budget: Span::from_secs(20),
            small_commits: false,
            late: Span::from_millis(2),
            audit_every: 1_000,
            retention: Span::from_secs(30),
            chaos,
            signed,
            compare: false,
            agents: players,
            ..Scenario::small(seed, delegations)
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        let agents = self.agents.iter().map(|player| (AgentId::new(&player.name), player.settings.clone()));
        Arc::new(Settings { agents: agents.collect(), ..Settings::default() })
    }
}

fn player(name: String, model: Model, settings: AgentSettings) -> Player {
    Player { name, model, settings }
}

/// The nth agent of a world: fifteen kinds, again and again.
fn of_kind(n: usize) -> Player {
    let mut settings = AgentSettings {
        attempts: 3,
        max_queued: 40,
        queue_ttl: Span::from_secs(60),
        interrupted_max: Span::from_secs(20),
        ..AgentSettings::default()
    };
    let (kind, model) = match n % 15 {
        0 => ("well", Model::well()),
        1 => ("planner", Model::planning()),
        2 => ("slow", Model::slow()),
        3 => ("moody", Model::moody()),
        4 => ("dead", Model::dead()),
        5 => ("flapping", Model::flapping()),
        6 => ("lying", Model::lying()),
        7 => ("busy", Model::busy()),
        8 => {
            settings.durability = Durability::Memory;
            ("volatile", Model::moody())
        }
        9 => {
            settings.serialize = Serialize::Agent;
            settings.queue_overflow = true;
            ("serial", Model::well())
        }
        10 => {
            settings.idempotent = true;
            ("idempotent", Model::dead())
        }
        11 => {
            settings.serialize = Serialize::None;
            ("deaf", Model { obeys: Obedience::Deaf, ..Model::slow() })
        }
        12 => {
            settings.wake = Some(Span::from_secs(2));
            ("asleep", Model::asleep())
        }
        13 => {
            settings.lookup = true;
            ("findable", Model::findable())
        }
        _ => {
            settings.native_session = true;
            settings.serialize = Serialize::Agent;
            settings.queue_overflow = true;
            settings.bulkhead.max_in_flight = 1;
            // Longer than anything that it does.
            settings.context_grace = Span::from_secs(1);
            ("session", Model::session())
        }
    };
    player(format!("{kind}-{}", n / 15), model, settings)
}

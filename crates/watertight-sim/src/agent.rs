//! How agents behave. What an agent has begun goes on without us: it is found again by its id.

use std::collections::BTreeMap;

use watertight_engine::ids::RemoteId;
use watertight_engine::input::CancelAnswer;
use watertight_engine::record::TaskState;
use watertight_policy::reason::Reason;
use watertight_policy::rng::Rng;
use watertight_policy::time::{Span, Time};

/// What an agent does with one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behaviour {
    /// Works and completes.
    Completes,
    /// Works and says that it failed.
    Fails,
    /// Asks back. The next message of the task gets another behaviour.
    Asks,
    /// Answers with a lone message, without a task.
    Message,
    /// Declines.
    Rejects,
    /// Takes it, gives its id, and never says another word. Answers cancels.
    HangsKnown,
    /// Takes it and never says a word.
    HangsSilent,
    /// Refuses the connection.
    Refuses,
    /// Takes it and resets the connection; runs it all the same.
    Resets,
    /// Answers garbage.
    Garbles,
    /// Says 429, come back in a second.
    Paces,
}

/// An agent: how often it does what, how long it takes, and whether it obeys a cancel.
#[derive(Clone, Debug)]
pub struct Model {
    /// Behaviours by weight.
    pub behaviours: Vec<(u64, Behaviour)>,
    /// Shortest and longest work.
    pub takes: (Span, Span),
    /// It stops when asked to. Otherwise it says that it goes on.
    pub obeys: bool,
}

impl Model {
    /// Completes everything.
    pub fn well() -> Model {
        Model {
            behaviours: vec![(8, Behaviour::Completes), (1, Behaviour::Message)],
            takes: (Span::from_millis(50), Span::from_millis(400)),
            obeys: true,
        }
    }

    /// Completes, fails, asks, declines, garbles, paces; does not obey.
    pub fn moody() -> Model {
        Model {
            behaviours: vec![
                (6, Behaviour::Completes),
                (1, Behaviour::Fails),
                (2, Behaviour::Asks),
                (1, Behaviour::Rejects),
                (1, Behaviour::Garbles),
                (1, Behaviour::Paces),
            ],
            takes: (Span::from_millis(100), Span::from_secs(2)),
            obeys: false,
        }
    }

    /// Hangs, refuses, resets.
    pub fn dead() -> Model {
        Model {
            behaviours: vec![
                (3, Behaviour::HangsKnown),
                (2, Behaviour::HangsSilent),
                (2, Behaviour::Refuses),
                (1, Behaviour::Resets),
                (1, Behaviour::Completes),
            ],
            takes: (Span::from_millis(200), Span::from_secs(4)),
            obeys: true,
        }
    }

    pub(crate) fn choose(&self, rng: &mut Rng) -> Behaviour {
        let total: u64 = self.behaviours.iter().map(|(weight, _)| weight).sum();
        let mut at = rng.below(total.max(1));
        for (weight, behaviour) in &self.behaviours {
            if at < *weight {
                return *behaviour;
            }
            at -= weight;
        }
        Behaviour::Completes
    }

    pub(crate) fn duration(&self, rng: &mut Rng) -> Span {
        let (least, most) = self.takes;
        least + Span::from_micros(rng.below((most - least).as_micros().max(1)))
    }
}

/// Work that an agent has taken on.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// When it ends by itself, and how; `None`: never.
    pub(crate) ends: Option<(Time, TaskState)>,
    pub(crate) canceled: bool,
}

/// The agent's side of the wire: what it has taken on, by its own ids.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) works: BTreeMap<RemoteId, Work>,
    next: u64,
    /// CancelTasks received, by id.
    pub(crate) cancels: BTreeMap<RemoteId, u64>,
}

impl Side {
    pub(crate) fn mint(&mut self, name: &str) -> RemoteId {
        self.next += 1;
        format!("{name}-{}", self.next).into()
    }

    /// How a task stands at a time: its state, and when to ask again.
    pub(crate) fn state(&self, id: &RemoteId, now: Time) -> Option<TaskState> {
        let work = self.works.get(id)?;
        Some(match work.ends {
            _ if work.canceled => TaskState::Canceled,
            Some((at, state)) if at <= now => state,
            Some(_) | None => TaskState::Working,
        })
    }

    pub(crate) fn cancel(&mut self, id: &RemoteId, obeys: bool, now: Time) -> CancelAnswer {
        *self.cancels.entry(id.clone()).or_default() += 1;
        match (self.state(id, now), self.works.get_mut(id)) {
            (Some(state), _) if state.is_terminal() => CancelAnswer::Ended(state),
            (Some(_), Some(work)) if obeys => {
                work.canceled = true;
                CancelAnswer::Ended(TaskState::Canceled)
            }
            (Some(_), _) => CancelAnswer::GoesOn,
            (None, _) => CancelAnswer::NotFound,
        }
    }
}

/// Why a garbled, refused or reset exchange failed.
pub(crate) fn fault_of(behaviour: Behaviour) -> Option<Reason> {
    match behaviour {
        Behaviour::Refuses => Some(Reason::AgentConnectRefused),
        Behaviour::Resets => Some(Reason::AgentReset),
        Behaviour::Garbles => Some(Reason::AgentMalformed),
        Behaviour::Paces => Some(Reason::AgentRateLimited),
        Behaviour::Completes
        | Behaviour::Fails
        | Behaviour::Asks
        | Behaviour::Message
        | Behaviour::Rejects
        | Behaviour::HangsKnown
        | Behaviour::HangsSilent => None,
    }
}

//! How agents behave. What an agent has begun goes on without us: it is found again by its id.

use std::collections::BTreeMap;

use watertight_engine::ids::{RemoteId, TaskId};
use watertight_engine::input::CancelAnswer;
use watertight_engine::record::TaskState;
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
    /// Completes, and starts children meanwhile, with what is left of its budget.
    Delegates,
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
    /// Says that it is busy and did not take it.
    Busy,
    /// Gives an id that belongs to another of its tasks.
    Borrows,
    /// Changes its id on the way.
    Renames,
    /// Says that it completed, and a moment later that it failed.
    EndsTwice,
    /// Says that it works, that it was only submitted, and that it works.
    GoesBack,
}

/// What an agent makes of a CancelTask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obedience {
    /// Stops.
    Stops,
    /// Says that it goes on, and does.
    GoesOn,
    /// Does not answer.
    Deaf,
    /// Says that it stopped, and completes.
    Lies,
}

/// An agent: how often it does what, how long it takes, and whether it obeys a cancel.
#[derive(Clone, Debug)]
pub struct Model {
    /// Behaviours by weight.
    pub behaviours: Vec<(u64, Behaviour)>,
    /// Shortest and longest work.
    pub takes: (Span, Span),
    /// One in this many takes twenty times as long; 0 = none.
    pub tail_one_in: u64,
    /// See [`Obedience`].
    pub obeys: Obedience,
    /// It is there for this long, and then away for as long, again and again.
    pub flaps: Option<Span>,
    /// More than this many at once, over all cells, and it says that it is busy.
    pub capacity: Option<u32>,
    /// Nobody is there until it is woken, and again when nothing has come for so long.
    pub sleeps: Option<Span>,
}

impl Model {
    fn of(behaviours: &[(u64, Behaviour)], least: u64, most: u64) -> Model {
        Model {
            behaviours: behaviours.to_vec(),
            takes: (Span::from_millis(least), Span::from_millis(most)),
            tail_one_in: 0,
            obeys: Obedience::Stops,
            flaps: None,
            capacity: None,
            sleeps: None,
        }
    }

    /// Completes everything.
    pub fn well() -> Model {
        Model::of(&[(8, Behaviour::Completes), (1, Behaviour::Message)], 50, 400)
    }

    /// Completes, fails, asks, declines, garbles, paces; does not obey.
    pub fn moody() -> Model {
        use Behaviour::{Asks, Completes, Fails, Garbles, Paces, Rejects};
        let behaviours = [(6, Completes), (1, Fails), (2, Asks), (1, Rejects), (1, Garbles), (1, Paces)];
        Model { obeys: Obedience::GoesOn, ..Model::of(&behaviours, 100, 2_000) }
    }

    /// Hangs, refuses, resets.
    pub fn dead() -> Model {
        use Behaviour::{Completes, HangsKnown, HangsSilent, Refuses, Resets};
        Model::of(&[(3, HangsKnown), (2, HangsSilent), (2, Refuses), (1, Resets), (1, Completes)], 200, 4_000)
    }

    /// Completes, sometimes much later than usual.
    pub fn slow() -> Model {
        Model { tail_one_in: 12, ..Model::of(&[(1, Behaviour::Completes)], 100, 900) }
    }

    /// There for a while, away for a while.
    pub fn flapping() -> Model {
        Model { flaps: Some(Span::from_secs(7)), ..Model::of(&[(1, Behaviour::Completes)], 50, 300) }
    }

    /// Other tasks' ids, second ends, states that go back; says that it stopped, and completes.
    pub fn lying() -> Model {
        use Behaviour::{Asks, Borrows, Completes, EndsTwice, GoesBack, Renames};
        let behaviours = [(4, Completes), (1, Borrows), (1, Renames), (2, EndsTwice), (2, GoesBack), (1, Asks)];
        Model { obeys: Obedience::Lies, ..Model::of(&behaviours, 50, 600) }
    }

    /// Takes no more than two at once.
    pub fn busy() -> Model {
        Model { capacity: Some(2), obeys: Obedience::Deaf, ..Model::of(&[(1, Behaviour::Completes)], 50, 300) }
    }

    /// Hibernates.
    pub fn asleep() -> Model {
        let behaviours = [(8, Behaviour::Completes), (1, Behaviour::Asks)];
        Model { sleeps: Some(Span::from_secs(4)), ..Model::of(&behaviours, 50, 400) }
    }

    /// Breaks connections, and can be asked what became of a message.
    pub fn findable() -> Model {
        use Behaviour::{Asks, Completes, HangsSilent, Resets};
        Model::of(&[(8, Completes), (4, Resets), (1, HangsSilent), (1, Asks)], 100, 900)
    }

    /// One session, which does one thing after the other.
    pub fn session() -> Model {
        use Behaviour::{Asks, Completes, Fails, Resets};
        Model::of(&[(8, Completes), (1, Fails), (1, Asks), (1, Resets)], 20, 120)
    }

    /// Delegates what it is asked.
    pub fn planning() -> Model {
        use Behaviour::{Asks, Completes, Delegates, HangsKnown};
        Model::of(&[(6, Delegates), (1, Completes), (1, Asks), (1, HangsKnown)], 300, 2_500)
    }

    pub(crate) fn choose(&self, rng: &mut Rng, now: Time) -> Behaviour {
        if let Some(span) = self.flaps
            && (now.as_micros() / span.as_micros().max(1)) % 2 == 1
        {
            return [Behaviour::Refuses, Behaviour::Resets, Behaviour::HangsSilent][rng.below(3) as usize];
        }
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
        let takes = least + Span::from_micros(rng.below((most - least).as_micros().max(1)));
        let long = self.tail_one_in > 0 && rng.below(self.tail_one_in) == 0;
        if long { takes.mul(20) } else { takes }
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
    /// Its latest id: what a liar gives out once more.
    pub(crate) latest: Option<RemoteId>,
    /// Which of its tasks, or none that can be named, each message began or went to.
    pub(crate) by_message: BTreeMap<(TaskId, u32), RemoteId>,
    /// What it was given last by each cell, and calls so.
    pub(crate) at: BTreeMap<usize, (TaskId, RemoteId)>,
    /// Somebody is there until then, if it sleeps at all.
    pub(crate) awake_until: Time,
    /// When it last started anew.
    pub(crate) restarted: Option<Time>,
}

impl Side {
    pub(crate) fn mint(&mut self, name: &str) -> RemoteId {
        self.next += 1;
        format!("{name}-{}", self.next).into()
    }

    /// How a task stands at a time.
    pub(crate) fn state(&self, id: &RemoteId, now: Time) -> Option<TaskState> {
        let work = self.works.get(id)?;
        Some(match work.ends {
            _ if work.canceled => TaskState::Canceled,
            Some((at, state)) if at <= now => state,
            Some(_) | None => TaskState::Working,
        })
    }

    pub(crate) fn cancel(&mut self, id: &RemoteId, obeys: Obedience, now: Time) -> CancelAnswer {
        let state = self.state(id, now);
        let Some((state, work)) = state.zip(self.works.get_mut(id)) else { return CancelAnswer::NotFound };
        match obeys {
            Obedience::Deaf => CancelAnswer::Failed,
            _ if state.is_terminal() => CancelAnswer::Ended(state),
            Obedience::GoesOn => CancelAnswer::GoesOn,
            Obedience::Lies => CancelAnswer::Ended(TaskState::Canceled),
            Obedience::Stops => {
                work.canceled = true;
                CancelAnswer::Ended(TaskState::Canceled)
            }
        }
    }

    /// It starts anew, and knows nothing of what it had not finished.
    pub(crate) fn restart(&mut self, now: Time) {
        self.restarted = Some(now);
        self.works.retain(|_, work| work.canceled || work.ends.is_some_and(|(at, _)| at <= now));
    }
}

//! Work for the workers of an agent that fetches it, and what they say of it.
//!
//! Assumes that whoever asks was found to be of that agent.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use watertight_engine::ids::{AgentId, Attempt, TaskId};
use watertight_engine::input::Input;
use watertight_engine::record::TaskState;
use watertight_policy::reason::Reason;

use super::{Declined, Handle};
use crate::driver::lines::Told;
use crate::fetch::{Parts, Said, Unheard, Until, Work};
use crate::late;

/// The store has had its time to write what a worker said.
const DURABLE_WITHIN: Duration = Duration::from_secs(10);

/// What a worker that was heard is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    /// The task's state, where it is in memory.
    pub(crate) state: Option<TaskState>,
    /// Nobody wants it any more: the worker is to stop, and to say so.
    pub(crate) cancel: bool,
}

/// Why one was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotHeard {
    /// There is no such task of this agent's.
    NotFound,
    /// It is not this worker's any more; how the task is, where that is known.
    Gone(Option<TaskState>),
    /// It has to begin first.
    NotBegun,
    /// What it said is not what can be said.
    Malformed,
    /// It may not be kept: it has to be said again.
    Unsure(Reason),
}

impl Handle {
    /// Whether there is such an agent, and it fetches its work.
    pub(crate) fn fetches(&self, agent: &AgentId) -> bool {
        self.shared.known(agent).is_some_and(|known| !known.removed && known.spec.lease.is_some())
    }

    /// A turn for one of this agent's workers; until then, one is waited for. A wait that ends gives back nothing, and costs
    /// nothing meanwhile.
    pub(crate) async fn fetch_work(
        &self,
        agent: &AgentId,
        until: Option<Instant>,
        draining: &CancellationToken,
    ) -> Result<Option<Work>, Declined> {
        loop {
            let line = self.shared.lines.mint();
            let input = Input::WorkAsked { line, agent: agent.clone(), waits: until.is_some() };
            let asked = self.ask(line, agent, TaskId(0), false, input);
            let told = match until {
                None => asked.await?,
                Some(until) => tokio::select! {
                    told = asked => told?,
                    () = sleep_until(until) => return Ok(None),
                    () = draining.cancelled() => return Ok(None),
                },
            };
            match told {
                Told::Work { task, attempt } => {
                    if let Some(work) = self.shared.fetching.take(task, attempt).await {
                        return Ok(Some(work));
                    }
                    // It was taken back a moment ago. There may be another one.
                }
                Told::NoWork => return Ok(None),
                told
                @ (Told::Task { .. } | Told::Acknowledged { .. } | Told::NotThatFar { .. } | Told::Declined(_)) => {
                    return Err(super::declined(told));
                }
            }
        }
    }

    /// A worker says something of what it was given. When this returns, a begin or an end is durable.
    pub(crate) async fn hear(
        &self,
        agent: &AgentId,
        task: TaskId,
        fence: Attempt,
        said: Said,
    ) -> Result<Heard, NotHeard> {
        let fetching = &self.shared.fetching;
        if fetching.has(agent, task, fence).is_none() {
            let why = self.whose(agent, task).await;
            return match (why, said) {
                (NotHeard::Gone(_), Said::Finish(state, parts)) => self.too_late(task, fence, state, parts, why).await,
                (why, _) => Err(why),
            };
        }
        let until = match &said {
            Said::Start => Some(Until::Begun),
            Said::Ask(_) | Said::Finish(..) => Some(Until::Over),
            Said::Extend | Said::Progress(_) | Said::Partial(_) => None,
        };
        let begun = self.state(task).is_some_and(|state| state == TaskState::Working);
        let ends = until == Some(Until::Over);
        // What is cut is over whatever its worker still says; that is noted, and changes nothing.
        let late = self.state(task).is_some_and(|state| state.is_terminal());
        let shown = until.filter(|_| !late).map(|until| fetching.durable(task, until));
        fetching.say(task, fence, said).await.map_err(|unheard| match unheard {
            Unheard::Gone => NotHeard::Gone(self.state(task)),
            Unheard::NotBegun => NotHeard::NotBegun,
            Unheard::Malformed => NotHeard::Malformed,
        })?;
        if late {
            return Err(NotHeard::Gone(self.state(task)));
        }
        if let Some(shown) = shown.filter(|_| ends || !begun) {
            match timeout(DURABLE_WITHIN, shown).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(NotHeard::Gone(self.state(task))),
                Err(_) => return Err(NotHeard::Unsure(Reason::StoreUnavailable)),
            }
        }
        let cancel = fetching.has(agent, task, fence).unwrap_or(!ends);
        Ok(Heard { state: self.state(task), cancel })
    }

    /// Work that is done too late is refused; what was said is kept, if it was its worker who said it, and durable once it
    /// is refused.
    async fn too_late(
        &self,
        task: TaskId,
        fence: Attempt,
        state: TaskState,
        parts: Option<Parts>,
        why: NotHeard,
    ) -> Result<Heard, NotHeard> {
        let store = self.shared.store.clone();
        let row = self.blocking(move || store.task(task)).await.map_err(NotHeard::Unsure)?;
        // An end by our verdict, of which its worker has not heard. What ended by its own word has been said.
        let cut = row.is_some_and(|row| {
            row.state.is_terminal() && row.reason.is_some() && (1..=row.attempt.0).contains(&fence.0)
        });
        if cut {
            let text = parts.map(|parts| parts.into_text()).unwrap_or_default();
            if !late::keep(&self.shared, task, state, text).await.unwrap_or(false) {
                return Err(NotHeard::Unsure(Reason::StoreUnavailable));
            }
        }
        Err(why)
    }

    fn state(&self, task: TaskId) -> Option<TaskState> {
        Some(self.shared.hub.live(task)?.view()?.state)
    }

    /// Why its word is not wanted: the task is over, or another worker's; or there is none.
    async fn whose(&self, agent: &AgentId, task: TaskId) -> NotHeard {
        let live = self.shared.hub.live(task);
        if let Some(view) = live.filter(|live| live.agent == *agent).and_then(|live| live.view()) {
            return NotHeard::Gone(Some(view.state));
        }
        if let Some(row) = self.shared.shelf.row(task).filter(|row| row.agent == *agent) {
            return NotHeard::Gone(Some(row.state));
        }
        let store = self.shared.store.clone();
        match self.blocking(move || store.task(task)).await {
            Ok(row) => {
                row.filter(|row| row.agent == *agent).map_or(NotHeard::NotFound, |row| NotHeard::Gone(Some(row.state)))
            }
            Err(reason) => NotHeard::Unsure(reason),
        }
    }
}

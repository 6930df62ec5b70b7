//! An agent that is drained for its restart. Nothing new is delivered; what runs goes on. What the agent drops meanwhile
//! is its restart's doing and nobody's failure: a task that it is known to have is watched again when it is back, what
//! it never had waits, and of what it may have had nobody knows the outcome, unless it is idempotent.
//!
//! That an agent is drained is a setting, so that a cell that is loaded again goes on like the one before it. How long
//! what runs was given is for people to see: nothing is cut when that is over, since only a budget ends work.

use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::engine::Engine;
use crate::ids::{AgentId, TaskId};
use crate::input::Fault;
use crate::live::{Class, Timer};
use crate::output::Output;
use crate::record::{Delivery, Phase, TaskState, Times};
use crate::run::LOST;

impl Engine {
    pub(crate) fn is_draining(&self, task: TaskId) -> bool {
        let agent = self.live.get(&task).and_then(|live| self.agents.get(&live.row.agent));
        agent.is_some_and(|agent| agent.settings.drain.is_some())
    }

    /// An attempt was lost while its agent is drained: true if that is all there was to it.
    pub(crate) fn dropped(&mut self, task: TaskId, fault: Fault) -> bool {
        if !self.is_draining(task) || !LOST.contains(&fault.reason) {
            return false;
        }
        let Some(live) = self.live.get(&task) else { return false };
        let idempotent = self.agents.get(&live.row.agent).is_some_and(|agent| agent.settings.idempotent);
        match (live.row.delivery, live.row.remote_task.is_some()) {
            (Delivery::NotSent, _) => self.put_back(task, Time::ZERO),
            (Delivery::MaybeDelivered | Delivery::Delivered, true) => {
                self.suspend(task);
                let id = self.live.get(&task).map(|live| live.row.agent.clone());
                id.into_iter().for_each(|id| self.pump(&id));
            }
            (Delivery::MaybeDelivered, false) if idempotent => self.put_back(task, Time::ZERO),
            (Delivery::MaybeDelivered | Delivery::Delivered, false) => {
                self.settle(task, TaskState::Failed, Some(Reason::OutcomeUnknown));
                self.release_unsure(task);
            }
        }
        true
    }

    /// The turn waits again as if the attempt had not been made: it spends none of its attempts, and has its full time
    /// again if that began with it. Its context stays its own, so that nothing overtakes it there; a lock on the whole agent
    /// goes to whom the queue says.
    pub(crate) fn put_back(&mut self, task: TaskId, not_before: Time) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let turn = &mut live.row.turn;
        turn.phase = Phase::Waiting;
        turn.not_before = not_before;
        turn.attempts = turn.attempts.saturating_sub(1);
        if live.row.delivery == Delivery::NotSent && turn.attempts == 0 {
            turn.times = Times::default();
        }
        turn.runs_for = live.floated.take().filter(|_| turn.is_untried());
        let end = if turn.is_untried() { turn.expires } else { turn.budget.deadline };
        live.class = Class::Queue;
        let id = live.row.agent.clone();
        self.save(task);
        self.note_work(task);
        self.set_timer(task, Timer::Deadline, Some(end));
        self.release_slot(task);
        self.release_agent_lock(task);
        self.advance(task);
        self.pump(&id);
    }

    /// The agent has it, and cannot be asked about it now: it is watched again when the agent is back, or its budget ends
    /// it. It holds its context, and no slot.
    pub(crate) fn suspend(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        live.attempting = false;
        live.row.turn.phase = Phase::Running;
        live.row.turn.waiting_on = Some(Reason::AgentDraining);
        if let Some(agent) = self.agents.get_mut(&live.row.agent) {
            agent.suspended.insert(task);
        }
        self.save(task);
        self.release_slot(task);
    }

    /// The agent is back: what it had is looked for.
    pub(crate) fn watch_suspended(&mut self, id: &AgentId) {
        let now = self.now;
        let Some(agent) = self.agents.get_mut(id).filter(|agent| agent.settings.drain.is_none()) else { return };
        for task in std::mem::take(&mut agent.suspended) {
            let Some(live) = self.live.get_mut(&task) else { continue };
            if live.row.turn.phase != Phase::Running || live.row.state.is_terminal() {
                continue;
            }
            live.attempting = true;
            live.dispatched = Some(now);
            live.row.turn.waiting_on = None;
            live.slot = self.agents.get_mut(id).is_some_and(|agent| agent.bulkhead.try_acquire());
            self.save(task);
            if let Some(dispatch) = self.dispatch_of(task) {
                self.emit(task, Output::Watch(dispatch));
            }
        }
    }
}

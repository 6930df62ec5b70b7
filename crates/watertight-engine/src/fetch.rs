//! An agent that fetches its work. Its walls are those of any other, and one more: nothing leaves its queue before a worker
//! asks for work, on a line that is answered with what it is given. A turn that was given and not begun with is `dispatching`
//! like any that may be on its way, and its row says beside that what it is (`no_worker`): it is offered again, by this engine
//! or by the next one, and has spent nothing. From the worker's first word on it is like any that an agent has.

use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::engine::Engine;
use crate::ids::{AgentId, LineId, TaskId};
use crate::live::Class;
use crate::output::{Answer, Output};
use crate::record::{Phase, Times};

/// Workers of one agent that may wait. One more is told that there is no work.
const MAX_WORKERS: usize = 1_024;

impl Engine {
    pub(crate) fn work_asked(&mut self, line: LineId, id: &AgentId, waits: bool) {
        let Some(agent) = self.agents.get_mut(id).filter(|agent| agent.settings.fetches && !agent.removed) else {
            return self.answer(line, Answer::NotFound);
        };
        if self.shutting_down || agent.workers.len() >= MAX_WORKERS {
            return self.answer(line, Answer::NoWork);
        }
        agent.workers.insert(line);
        self.pump(id);
        let unserved = self.agents.get_mut(id).is_some_and(|agent| !waits && agent.workers.remove(&line));
        if unserved {
            self.answer(line, Answer::NoWork);
        }
    }

    /// What is dispatched is for the worker that has waited longest.
    pub(crate) fn give(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task).filter(|live| live.is_offered()) else { return };
        let attempt = live.row.attempt;
        let worker = self.agents.get_mut(&live.row.agent).and_then(|agent| agent.workers.pop_first());
        if let Some(line) = worker {
            self.emit(task, Output::Answer { line, answer: Answer::Work { task, attempt } });
        }
    }

    /// The line may have been a worker's.
    pub(crate) fn worker_left(&mut self, line: LineId) {
        for agent in self.agents.values_mut() {
            if agent.workers.remove(&line) {
                return;
            }
        }
    }

    /// It does not fetch its work any more.
    pub(crate) fn send_workers_home(&mut self, id: &AgentId) {
        let Some(agent) = self.agents.get_mut(id).filter(|agent| agent.removed || !agent.settings.fetches) else {
            return;
        };
        for line in std::mem::take(&mut agent.workers) {
            self.answer(line, Answer::NoWork);
        }
    }

    /// What nobody has begun with is taken from its worker: it waits again, for whatever is about to become of it.
    pub(crate) fn withdraw_offer(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task).filter(|live| live.is_offered()) else { return };
        let attempt = live.row.attempt;
        live.attempting = false;
        self.emit(task, Output::Stop { task, attempt });
        self.wait_again(task);
        self.release_slot(task);
        self.release_agent_lock(task);
    }

    /// Given to a worker of a life before, which had not begun with it.
    pub(crate) fn offer_again(&mut self, task: TaskId) {
        self.wait_again(task);
        self.save(task);
    }

    fn wait_again(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        let turn = &mut live.row.turn;
        turn.phase = Phase::Waiting;
        turn.not_before = Time::ZERO;
        turn.attempts = turn.attempts.saturating_sub(1);
        if turn.attempts == 0 {
            turn.times = Times::default();
        }
        turn.waiting_on = Some(Reason::NoWorker);
        live.class = Class::Queue;
        self.note_work(task);
    }
}

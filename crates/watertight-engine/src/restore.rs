//! An engine from its rows: it continues like the one that saved them. What waited waits again; what an attempt still
//! runs for goes on; what the agent is known to have is watched; of what may have reached it nobody knows the outcome,
//! unless the agent is idempotent. What is owed is owed.

use std::collections::BTreeSet;

use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::agent::Agent;
use crate::engine::{Engine, KeyUse, context_key};
use crate::ids::{Attempt, Key, TaskId};
use crate::live::{Class, Live, Timer};
use crate::output::Output;
use crate::record::{Cancel, Delivery, Phase, Row, TaskState};

impl Engine {
    pub(crate) fn restore(&mut self, mut rows: Vec<Row>, alive: &BTreeSet<(TaskId, Attempt)>, now: Time) {
        self.now = now;
        rows.sort_by_key(|row| (row.created, row.task));
        let tasks: Vec<TaskId> = rows.iter().map(|row| row.task).collect();
        // What is only now found to be over holds nothing for anybody.
        let cut: Vec<TaskId> = rows.iter().filter(|row| row.state.is_terminal()).map(|row| row.task).collect();
        for row in rows {
            self.adopt(row);
        }
        self.restore_tree(&tasks);
        // What holds slots and locks comes before what waits for them, and what runs before what is over but for its
        // cancel.
        for task in &tasks {
            self.touching = Some(*task);
            self.resume_running(*task, alive);
        }
        for task in &cut {
            self.touching = Some(*task);
            self.resume_cut(*task, alive);
        }
        for task in &tasks {
            self.touching = Some(*task);
            self.resume_waiting(*task);
        }
        self.touching = None;
        self.doze_all();
    }

    fn adopt(&mut self, row: Row) {
        let task = row.task;
        // An agent that is not configured any more ends what it has, like one that is removed while we run.
        if !self.agents.contains_key(&row.agent) {
            let walls = self.settings.removed.get(&row.agent).cloned().unwrap_or_default();
            self.agents.insert(row.agent.clone(), Agent::removed(walls));
        }
        let context = self.contexts.of(&context_key(&row.principal, &row.agent, &row.context));
        context.refs += 1;
        context.remote = row.remote_context.clone().or(context.remote.take());
        let key =
            Key { principal: row.principal.clone(), agent: row.agent.clone(), message_id: row.turn.message_id.clone() };
        let key = self.keys.hash(&key);
        self.keys.insert(key, KeyUse { task, turn: row.turn.no, fingerprint: row.turn.fingerprint });
        let mut live = Live::new(row, Class::Queue);
        live.accepted = true;
        live.keys.push(key);
        if !live.row.state.is_terminal() {
            self.accepted += 1;
        }
        self.live.insert(task, Box::new(live));
    }

    fn resume_running(&mut self, task: TaskId, alive: &BTreeSet<(TaskId, Attempt)>) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&task) else { return };
        let attempt = live.row.attempt;
        let runs_here = alive.contains(&(task, attempt));
        if live.row.state.is_terminal() {
            return;
        }
        match live.row.turn.phase {
            Phase::Waiting => {}
            Phase::Ended => {
                self.await_caller(task);
                self.resume_cancel(task);
            }
            Phase::Dispatching if live.is_offered() && !runs_here => self.offer_again(task),
            Phase::Dispatching | Phase::Running => {
                live.dispatched = Some(now);
                live.heard = live.row.delivery == Delivery::Delivered;
                live.attempting = true;
                let deadline = live.row.turn.budget.deadline;
                let known = live.row.remote_task.is_some() && live.row.turn.phase == Phase::Running;
                // Inside a context of its own it is looked for by its message.
                let named = live.row.remote_context.is_some() && live.row.cancel == Cancel::None;
                let agent = self.agents.get(&live.row.agent).map(|agent| &agent.settings);
                let known = known || named && agent.is_some_and(|settings| settings.lookup);
                let guess = !runs_here && live.row.delivery == Delivery::NotSent;
                if guess {
                    live.row.delivery = Delivery::MaybeDelivered;
                }
                if guess {
                    self.save(task);
                }
                self.hold(task);
                self.note_work(task);
                self.set_timer(task, Timer::Deadline, Some(deadline));
                if !runs_here && known && self.is_draining(task) {
                    self.suspend(task);
                } else if !runs_here && known {
                    if let Some(dispatch) = self.dispatch_of(task) {
                        self.emit(task, Output::Watch(dispatch));
                    }
                } else if !runs_here {
                    self.outcome_unknown(task);
                }
                self.resume_cancel(task);
            }
        }
    }

    /// It is over for its caller; the agent is still to be told.
    fn resume_cut(&mut self, task: TaskId, alive: &BTreeSet<(TaskId, Attempt)>) {
        let Some(live) = self.live.get_mut(&task).filter(|live| live.row.state.is_terminal()) else { return };
        if live.canceling {
            // Cut a moment ago, because nobody knows the outcome.
            return;
        }
        live.attempting = alive.contains(&(task, live.row.attempt));
        if let Some(until) = live.row.holds_until().filter(|_| live.row.cancel != Cancel::Owed && !live.attempting) {
            self.hold(task);
            self.release_slot(task);
            self.set_timer(task, Timer::LockGrace, Some(until));
            return self.linger(task);
        }
        if live.row.cancel != Cancel::Owed && !live.attempting {
            // It is here for its children alone.
            return self.linger(task);
        }
        self.hold(task);
        self.resume_cancel(task);
    }

    fn resume_waiting(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        if live.row.turn.phase == Phase::Waiting && !live.row.state.is_terminal() {
            let turn = &live.row.turn;
            let at = if turn.is_untried() { turn.expires } else { turn.budget.deadline };
            self.set_timer(task, Timer::Deadline, Some(at));
            self.advance(task);
        }
    }

    /// A cancel that was owed is owed again, with its full time.
    fn resume_cancel(&mut self, task: TaskId) {
        let now = self.now;
        let Some(live) = self.live.get(&task) else { return };
        let terminal = live.row.state.is_terminal();
        if live.row.cancel == Cancel::Owed {
            let grace = self.agents.get(&live.row.agent).map(|agent| agent.settings.cancel_grace);
            self.set_timer(task, Timer::CancelGiveUp, grace.map(|grace| now + grace));
            if !terminal {
                let wait = self.live.get(&task).and_then(|live| self.agents.get(&live.row.agent));
                let at = wait.map(|agent| now + agent.settings.cancel_wait);
                self.set_timer(task, Timer::CancelWait, at);
            }
            self.cancel_if_owed(task);
        }
        if terminal {
            self.quiet_if_done(task);
            self.linger(task);
        }
    }

    /// A running turn holds its slot and its lock again. After limits were lowered there may be no slot left; then it
    /// runs without one.
    fn hold(&mut self, task: TaskId) {
        let key = self.lock_key(task);
        let Some(live) = self.live.get_mut(&task) else { return };
        if let Some(agent) = self.agents.get_mut(&live.row.agent) {
            live.slot = agent.bulkhead.try_acquire();
        }
        if let Some(key) = key {
            let context = self.contexts.of(&key);
            if context.holder.is_none() {
                context.holder = Some(task);
                live.lock = Some(key);
            }
        }
    }

    /// It may have been delivered, and the agent gave no id to ask by.
    fn outcome_unknown(&mut self, task: TaskId) {
        let Some(live) = self.live.get_mut(&task) else { return };
        live.attempting = false;
        live.row.delivery = live.row.delivery.max(Delivery::MaybeDelivered);
        let idempotent = self.agents.get(&live.row.agent).is_some_and(|agent| agent.settings.idempotent);
        if idempotent && live.row.cancel == Cancel::None {
            live.row.turn.phase = Phase::Waiting;
            live.row.turn.waiting_on = Some(Reason::OutcomeUnknown);
            self.note_work(task);
            self.release_slot(task);
            self.release_agent_lock(task);
            return self.save(task);
        }
        if live.row.remote_task.is_some() {
            return self.cut(task, TaskState::Failed, Reason::OutcomeUnknown);
        }
        self.settle(task, TaskState::Failed, Some(Reason::OutcomeUnknown));
        self.release_unsure(task);
    }
}

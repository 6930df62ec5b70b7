//! Delegations that only wait. Of the first ones everything is held; beyond those the store alone has what there is to show,
//! and it is read when somebody asks, or when their turn comes.
//!
//! Assumes that such a one has a durable row and nothing but the message that it began with: no agent has heard of it. What
//! is brought back without that message is *hollow*: nobody is shown it until the message is there, which it is before the
//! agent can say a word.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use watertight_a2a::record::Record;
use watertight_engine::ids::{Attempt, TaskId};
use watertight_engine::record::{Delivery, Durability, Phase, Row, TaskState};

use super::Live;
use crate::hub::kept::{self, Message, Stored};
use crate::hub::view::millis;
use crate::hub::{Hub, State};

/// Waiting delegations that are held whole: those that come next, as a rule.
const MAX_RESTING: usize = 1_024;

/// Larger ones are not.
const MAX_RESTING_BYTES: usize = 16 << 10;

/// Nobody but its caller has said anything about it: what is stored is its row and its first message.
pub(crate) fn only_waits(row: &Row) -> bool {
    let turn = &row.turn;
    let untried = turn.no == 1 && turn.phase == Phase::Waiting && row.attempt == Attempt(0);
    let unheard = row.state == TaskState::Submitted && row.delivery == Delivery::NotSent && row.remote_task.is_none();
    untried && unheard && row.durability == Durability::Durable
}

impl State {
    /// It is in use from now on, if it is here.
    pub(in crate::hub) fn stir(&mut self, task: TaskId) -> Option<Arc<Live>> {
        let live = self.lives.get(&task)?;
        self.resting.remove(&task);
        self.tiring.remove(&task);
        Some(live.clone())
    }
}

impl Hub {
    /// The live delegation of a row that is written again; hollow, if only the store has what belongs to it.
    pub(crate) fn stir(&self, row: &Row, fence: u64) -> Arc<Live> {
        let mut state = self.lock();
        if let Some(live) = state.stir(row.task) {
            return live;
        }
        let record = Record::new(&row.task.to_string(), &row.context, millis(row.created));
        let live = Live::new(row, record, None, fence, self.limits, self.evictions.clone());
        live.lock().hollow = true;
        let live = Arc::new(live);
        state.lives.insert(row.task, live.clone());
        live
    }

    /// It only waits from now on.
    pub(crate) fn rest(&self, task: TaskId) {
        let mut state = self.lock();
        let Some(live) = state.lives.get(&task).filter(|live| !live.volatile).cloned() else { return };
        let has_room = state.resting.len() < MAX_RESTING && live.bytes() <= MAX_RESTING_BYTES;
        if state.resting.contains(&task) || has_room && state.resting.insert(task) {
            state.tiring.remove(&task);
            return;
        }
        if !live.vacate() {
            state.tiring.insert(task);
            return;
        }
        state.lives.remove(&task);
        state.tiring.remove(&task);
        drop(state);
        self.drop_messages(&live);
    }

    /// Those whose readers have left rest again. What is written has been stirred, and is not among them.
    pub(crate) fn rest_again(&self) {
        if !self.left.swap(false, Ordering::Relaxed) {
            return;
        }
        let tiring: Vec<TaskId> = self.lock().tiring.iter().copied().collect();
        tiring.into_iter().for_each(|task| self.rest(task));
    }

    /// What the store has of a live delegation; taken if it is not here, or hollow. The row is the durable one.
    pub(crate) fn recall(&self, row: &Row, fence: u64, stored: Stored) -> Arc<Live> {
        match self.live(row.task) {
            Some(live) => {
                live.fill(|| kept::restore(row, stored).0);
                live
            }
            None => {
                let live = self.adopt(row, fence, stored);
                if only_waits(row) {
                    self.lock().tiring.insert(row.task);
                    self.left.store(true, Ordering::Relaxed);
                }
                live
            }
        }
    }
}

impl Live {
    /// What it began with is not here.
    pub(crate) fn is_hollow(&self) -> bool {
        self.lock().hollow
    }

    /// Nothing of it is needed here any more. `false`: somebody reads it, or there is something that only it has.
    fn vacate(&self) -> bool {
        let mut inner = self.lock();
        let idle = inner.readers.is_empty() && inner.pending.is_empty() && inner.deltas.is_empty();
        let bare = inner.detail.is_none() && inner.claimed.is_empty() && inner.staged.is_none();
        inner.hollow |= idle && bare;
        inner.hollow
    }

    fn fill(&self, record: impl FnOnce() -> Record) {
        let mut inner = self.lock();
        if inner.hollow && !inner.is_over() {
            inner.shown = Arc::new(record());
            inner.hollow = false;
        }
    }

    /// The message that it began with, as the attempt that sends it has read it.
    pub(crate) fn fill_with(&self, message: &Message) {
        let mut inner = self.lock();
        if !inner.hollow || inner.is_over() {
            return;
        }
        if let Some(said) = message.params.value().get("message") {
            let said = message.params.part(said);
            Arc::make_mut(&mut inner.shown).add_client_message(&said);
        }
        inner.hollow = false;
    }
}

impl super::Inner {
    /// What there is to write of it while it is hollow: the store has the message.
    pub(super) fn hollow_record(&self) -> Bytes {
        kept::hollow(self.detail.as_deref())
    }

    /// Its state is terminal.
    pub(super) fn is_over(&self) -> bool {
        [&self.row, &self.staged].into_iter().flatten().any(|row| row.state.is_terminal())
    }
}

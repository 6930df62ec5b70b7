//! What waits in outboxes, for whoever waits for it: a reader that is asleep costs nothing until something comes, and then
//! hears of it at once.
//!
//! Assumes that the driver puts each change here after its commit. Leaves out what the results are: the store has the
//! notices, hub, shelf and store the records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use watertight_engine::ids::{Owner, TaskId};
use watertight_engine::outbox::View;

use crate::driver::shared::Shared;

/// The outboxes as they are.
#[derive(Default)]
pub(crate) struct Outboxes {
    of: Mutex<BTreeMap<Owner, watch::Sender<Arc<View>>>>,
}

impl Outboxes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, watch::Sender<Arc<View>>>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One is so now.
    pub(crate) fn put(&self, view: View) {
        let mut of = self.lock();
        match of.get(&view.owner) {
            Some(sender) => {
                let (owner, lost) = (view.owner.clone(), view.lost);
                let before = sender.send_replace(Arc::new(view)).lost;
                if lost > before {
                    tracing::warn!(?owner, dropped = lost - before, "results were dropped that nobody had read");
                }
            }
            None => drop(of.insert(view.owner.clone(), watch::Sender::new(Arc::new(view)))),
        }
    }

    /// All that anything was ever put into, or that somebody asked for.
    pub(crate) fn all(&self) -> Vec<Arc<View>> {
        self.lock().values().map(|sender| sender.borrow().clone()).collect()
    }

    /// How one is, and every change of it.
    pub(crate) fn follow(&self, owner: &Owner) -> watch::Receiver<Arc<View>> {
        let mut of = self.lock();
        let sender = of.entry(owner.clone()).or_insert_with(|| watch::Sender::new(Arc::new(empty(owner))));
        sender.subscribe()
    }

    /// How one is.
    pub(crate) fn view(&self, owner: &Owner) -> Arc<View> {
        let of = self.lock();
        of.get(owner).map_or_else(|| Arc::new(empty(owner)), |sender| sender.borrow().clone())
    }
}

/// Nothing was ever put into it.
fn empty(owner: &Owner) -> View {
    View { owner: owner.clone(), last: 0, lost: 0, waiting: 0, newest: 0, oldest: None }
}

/// How a caller with an outbox hears of a turn's end on its open line. Whoever writes the answer says so; one that is
/// dropped says that nobody heard it, and the notice waits like any other.
pub struct Receipt {
    shared: Option<Arc<Shared>>,
    task: TaskId,
    turn: u32,
}

impl Receipt {
    pub(crate) fn new(shared: &Arc<Shared>, task: TaskId, turn: u32) -> Receipt {
        Receipt { shared: Some(shared.clone()), task, turn }
    }

    /// The answer was handed to the caller's connection.
    pub fn written(mut self) {
        self.say(true);
    }

    fn say(&mut self, written: bool) {
        if let Some(shared) = self.shared.take() {
            shared.told(self.task, self.turn, written);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.say(false);
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Receipt({}, turn {})", self.task, self.turn)
    }
}

//! Who waits for the cell's answers, each on a line of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use watertight_engine::ids::{AgentId, Attempt, LineId, TaskId};

use crate::handle::Declined;
use crate::hub::{Subscription, TaskView};
use crate::outbox::Receipt;

/// What is told on a line.
#[derive(Debug)]
pub(crate) enum Told {
    /// The task, as it was when the answer was given; `None` if only the store still knows it.
    Task {
        task: TaskId,
        replay: bool,
        view: Option<Box<TaskView>>,
        /// Its place when it came to wait for a slot, if it does.
        position: Option<u32>,
        stream: Option<Subscription>,
        receipt: Option<Receipt>,
    },
    /// Work for a worker of an agent that fetches it.
    Work {
        task: TaskId,
        attempt: Attempt,
    },
    /// There is none now.
    NoWork,
    /// The outbox is read so far: its last number, and how many wait.
    Acknowledged {
        last: u64,
        waiting: usize,
    },
    /// Nothing with that number was ever in it; its last number.
    NotThatFar {
        last: u64,
    },
    Declined(Declined),
}

/// A caller that waits.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) to: oneshot::Sender<Told>,
    pub(crate) agent: AgentId,
    /// The id that was proposed with the message, or the task to cancel.
    pub(crate) task: TaskId,
    pub(crate) stream: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Lines {
    next: AtomicU64,
    open: Mutex<BTreeMap<LineId, Line>>,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LineId, Line>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mint(&self) -> LineId {
        LineId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn open(&self, id: LineId, line: Line) {
        self.lock().insert(id, line);
    }

    /// Takes a line to answer it, or because its caller is gone.
    pub(crate) fn take(&self, id: LineId) -> Option<Line> {
        self.lock().remove(&id)
    }

    /// All that are open, up to this one.
    pub(crate) fn open_up_to(&self, last: LineId) -> Vec<LineId> {
        self.lock().range(..=last).map(|(id, _)| *id).collect()
    }

    pub(crate) fn take_all(&self) -> BTreeMap<LineId, Line> {
        std::mem::take(&mut self.lock())
    }

    pub(crate) fn is_open(&self, id: LineId) -> bool {
        self.lock().contains_key(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

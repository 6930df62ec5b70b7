//! A caller's outbox: what came of what it delegated, from the first that it has not acknowledged on.
//!
//! Assumes that whoever asks has been found to be the owner. Of what is told, the numbers are the store's, and the
//! results those of the tasks as they are now.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use watertight_engine::ids::{AgentId, Owner, TaskId};
use watertight_engine::input::Input;
use watertight_engine::outbox::View;
use watertight_engine::record::Notice;
use watertight_policy::reason::Reason;
use watertight_store::ReadError;

use super::{Declined, Handle, list};
use crate::driver::lines::Told;
use crate::driver::shared::{Health, Shared};
use crate::hub::TaskView;

/// A cell that was not picked up by then is asked for again.
const LOADED_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of results in one reading, about. A single one may be larger.
const READ_BYTES: usize = 4 << 20;

/// What came of one turn.
#[derive(Debug)]
pub struct Arrived {
    /// What was left in the outbox.
    pub notice: Notice,
    /// The task as it is now; `None`: it is not kept any more.
    pub view: Option<TaskView>,
}

/// Some of what waits.
#[derive(Debug)]
pub struct Reading {
    /// In order.
    pub results: Vec<Arrived>,
    /// The number asked from was never given out here: this begins with the first that is not acknowledged.
    pub reset: bool,
    /// The outbox.
    pub outbox: Arc<View>,
}

/// An acknowledgement that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// The last number that was given out.
    pub last: u64,
    /// How many wait behind it.
    pub waiting: usize,
}

/// Why one was not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotAcknowledged {
    /// Nothing with that number was ever in the outbox; its last one.
    NotThatFar(u64),
    /// It could not be written.
    Declined(Declined),
}

impl Handle {
    /// How an outbox is, and every change of it.
    pub fn follow_outbox(&self, owner: &Owner) -> watch::Receiver<Arc<View>> {
        self.shared.outboxes.follow(owner)
    }

    /// How an outbox is. Nothing is known of it before the cell has been picked up: that is waited for.
    pub async fn outbox(&self, owner: &Owner) -> Result<Arc<View>, Reason> {
        match self.shared.loaded(LOADED_WITHIN).await {
            true => Ok(self.shared.outboxes.view(owner)),
            false => Err(Reason::StoreUnavailable),
        }
    }

    /// How it is at this moment; `None` before that.
    pub fn outbox_now(&self, owner: &Owner) -> Option<Arc<View>> {
        (self.shared.health() != Health::Loading).then(|| self.shared.outboxes.view(owner))
    }

    /// What waits in an outbox behind this number; at most so many.
    pub async fn read_outbox(&self, owner: &Owner, after: u64, limit: usize) -> Result<Reading, Reason> {
        let outbox = self.outbox(owner).await?;
        let reset = after > outbox.last;
        let after = if reset { 0 } else { after };
        if outbox.newest <= after {
            return Ok(Reading { results: Vec::new(), reset, outbox });
        }
        let (shared, of, owner) = (self.shared.clone(), outbox.clone(), owner.clone());
        let results = self.blocking(move || read(&shared, &owner, &of, after, limit)).await?;
        Ok(Reading { results, reset, outbox })
    }

    /// Everything up to this number was read, and waits no longer.
    pub async fn acknowledge(&self, owner: Owner, up_to: u64) -> Result<Acknowledged, NotAcknowledged> {
        // No agent has to do with it.
        let nobody = AgentId::new("");
        if self.shared.health() == Health::NoStore {
            return Err(NotAcknowledged::Declined(self.refused(&nobody, Reason::StoreUnavailable)));
        }
        let line = self.shared.lines.mint();
        let input = Input::Acknowledged { line, owner, up_to };
        match self.ask(line, &nobody, TaskId(0), false, input).await.map_err(NotAcknowledged::Declined)? {
            Told::Acknowledged { last, waiting } => Ok(Acknowledged { last, waiting }),
            Told::NotThatFar { last } => Err(NotAcknowledged::NotThatFar(last)),
            told @ (Told::Task { .. } | Told::Declined(_) | Told::Work { .. } | Told::NoWork) => {
                Err(NotAcknowledged::Declined(super::declined(told)))
            }
        }
    }
}

fn read(shared: &Shared, owner: &Owner, of: &View, after: u64, limit: usize) -> Result<Vec<Arrived>, ReadError> {
    let notices = shared.store.notices(owner, after, limit)?;
    let (mut results, mut bytes) = (Vec::new(), 0);
    // What is being told on a line, and what came after it, is not read yet.
    for notice in notices.into_iter().take_while(|notice| notice.seq <= of.newest) {
        let view = view(shared, owner, notice.task)?;
        bytes += view.as_ref().map_or(0, |view| view.record.bytes());
        if bytes > READ_BYTES && !results.is_empty() {
            break;
        }
        results.push(Arrived { notice, view });
    }
    Ok(results)
}

/// The task, if it is still there. Its id came out of the owner's outbox.
fn view(shared: &Shared, owner: &Owner, task: TaskId) -> Result<Option<TaskView>, ReadError> {
    let live = shared.hub.live(task).and_then(|live| live.view()).or_else(|| shared.shelf.view(task));
    if live.is_some() {
        return Ok(live);
    }
    let row = shared.store.task(task)?.filter(|row| row.owner().as_ref() == Some(owner));
    row.map(|row| list::stored(&shared.store, &row)).transpose()
}

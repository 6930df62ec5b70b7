//! What only the store has: tasks that are not live, and live ones that only wait, brought back for somebody who asks.

use std::sync::Arc;
use std::time::Duration;

use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_policy::reason::Reason;

use super::{Declined, Handle, list};
use crate::driver::read_record;
use crate::driver::shared::Shared;
use crate::hub::{Live, Subscription, TaskView};

/// How often it is tried while what is read is overtaken, and how long it waits in between.
const TRIES: usize = 100;
const AGAIN: Duration = Duration::from_millis(5);

impl Handle {
    /// Does something with a delegation that is live, while nobody changes it. `None`: it is not live, or not any more. What
    /// cannot be said just now (the disk is slow, the cell is being loaded again) is an error, and never that there is none.
    pub(super) async fn recalled<T: Send + 'static>(
        &self,
        task: TaskId,
        then: impl FnOnce(&Shared, Arc<Live>) -> T + Send + 'static,
    ) -> Result<Option<T>, Reason> {
        let shared = self.shared.clone();
        let done = self.blocking(move || {
            let mut then = Some(then);
            for _ in 0..TRIES {
                // What is kept in memory alone is never left to the store.
                let row = match shared.shelf.row(task) {
                    Some(row) => Some((*row).clone()),
                    None => shared.store.task(task)?,
                };
                let Some(row) = row.filter(|row| !row.state.is_terminal()) else { return Ok(Ok(None)) };
                let stored = read_record(&shared.store, task)?;
                let inside = shared.clone();
                let done = shared.look_at(|driver| {
                    let live = driver.recall(&row, stored)?;
                    Some(then.take()?(&inside, live))
                });
                match done {
                    Some(Some(done)) => return Ok(Ok(Some(done))),
                    // A commit is on its way.
                    Some(None) => std::thread::sleep(AGAIN),
                    None if shared.is_gone() => return Ok(Err(Reason::ShuttingDown)),
                    None => break,
                }
            }
            Ok(Err(Reason::StoreUnavailable))
        });
        done.await?
    }

    /// A task that is not live, if it is this caller's with this agent.
    pub(super) async fn stored_view(
        &self,
        principal: &Principal,
        agent: &AgentId,
        task: TaskId,
    ) -> Result<TaskView, Declined> {
        if let Some(view) = self.shared.shelf.view(task) {
            let own = view.principal == *principal && view.agent == *agent;
            return if own { Ok(view) } else { Err(Declined::NotFound) };
        }
        let store = self.shared.store.clone();
        let (by, to) = (principal.clone(), agent.clone());
        let read = self.blocking(move || {
            let row = store.task(task)?.filter(|row| row.principal == by && row.agent == to);
            row.map(|row| list::stored(&store, &row)).transpose()
        });
        match read.await {
            Ok(Some(view)) => Ok(view),
            Ok(None) => Err(Declined::NotFound),
            Err(reason) => Err(self.refused(agent, reason)),
        }
    }

    /// The stream of a message that was seen before: of what is over, or waits.
    pub(super) async fn recalled_stream(&self, view: &TaskView) -> Result<Subscription, Declined> {
        let (limits, task) = (self.shared.hub.limits(), view.task);
        if view.state.is_terminal() {
            return Ok(Subscription::over(view.clone(), limits));
        }
        let joined = self.recalled(task, move |shared, live| shared.hub.join(live, None, shared.clock.now())).await;
        if let Some(joined) = joined.map_err(|reason| self.refused(&view.agent, reason))?.flatten() {
            return Ok(joined);
        }
        // It has ended meanwhile.
        let view = self.task(&view.principal, &view.agent, task).await?;
        Ok(Subscription::over(view, limits))
    }
}

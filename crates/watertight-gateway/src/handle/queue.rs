//! What waits for an agent, in its order, and taking one of it out. For operators.

use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::input::Input;
use watertight_engine::record::{Phase, Row};
use watertight_policy::reason::Reason;

use super::{Declined, Handle, Whose};
use crate::driver::lines::Told;
use crate::hub::{Detail, TaskView};

/// Some of what waits for an agent's slots.
#[derive(Debug, Default)]
pub struct Queued {
    /// In the order in which they go, as it stands, each with its place.
    pub rows: Vec<(usize, Row)>,
    /// How many wait there in all.
    pub total: usize,
}

impl Handle {
    /// What waits for this agent's slots, from the `skip`th on. Only what `whose` may see is told; what else waits keeps
    /// its place in the count.
    pub async fn queue(&self, whose: Whose, agent: &AgentId, skip: usize, limit: usize) -> Result<Queued, Reason> {
        let (shared, agent) = (self.shared.clone(), agent.clone());
        let looked = self.blocking(move || {
            Ok(shared.look(|cell| {
                let total = cell.queued(&agent);
                let tasks = cell.queue(&agent, skip, limit);
                let placed = (skip + 1..).zip(tasks);
                Queued { rows: placed.filter_map(|(place, task)| Some((place, cell.row(task)?))).collect(), total }
            }))
        });
        let mut queued = looked.await?.ok_or(Reason::StoreUnavailable)?;
        queued.rows.retain(|(_, row)| whose.sees(row));
        Ok(queued)
    }

    /// The place of a task in its agent's queue, now. `None`: it does not wait for a slot.
    pub async fn position(&self, task: TaskId) -> Option<usize> {
        let shared = self.shared.clone();
        self.blocking(move || Ok(shared.look(|cell| cell.position(task)))).await.ok().flatten().flatten()
    }

    /// Takes a waiting task out, for good: it is failed (`dropped`) with what the operator says, and its caller is told.
    pub async fn drop_queued(&self, whose: Whose, task: TaskId, text: &str) -> Result<TaskView, Declined> {
        let shared = self.shared.clone();
        let row = self.blocking(move || Ok(shared.look(|cell| cell.row(task)))).await.ok().flatten().flatten();
        let Some(row) = row.filter(|row| whose.sees(row)) else {
            let stored = self.delegation(whose, task).await.ok().flatten();
            return Err(if stored.is_some() { Declined::NotCancelable } else { Declined::NotFound });
        };
        if row.turn.phase != Phase::Waiting {
            return Err(Declined::NotCancelable);
        }
        // If it has begun by now, this is not heard, or is forgotten with the attempt.
        let message = Some(format!("an operator said: {text}"));
        let (attempt, detail) = (row.attempt, Detail { message, ..Detail::default() });
        let told = self.recalled(task, move |_, live| live.explain(attempt, detail)).await;
        told.map_err(|reason| self.refused(&row.agent, reason))?.ok_or(Declined::NotCancelable)?;
        let line = self.shared.lines.mint();
        let told = self.ask(line, &row.agent, task, false, Input::Dropped { line, task }).await?;
        match told {
            Told::Task { view: Some(view), .. } => Ok(*view),
            Told::Task { view: None, .. } => self.stored_view(&row.principal, &row.agent, task).await,
            Told::Declined(_)
            | Told::Acknowledged { .. }
            | Told::NotThatFar { .. }
            | Told::Work { .. }
            | Told::NoWork => Err(super::declined(told)),
        }
    }
}

//! A caller takes back what it asked for.

use watertight_a2a::json::Json;
use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::input::Input;
use watertight_engine::record::TaskState;
use watertight_policy::reason::Reason;

use super::{Declined, Handle};
use crate::driver::lines::Told;
use crate::driver::shared::Health;
use crate::hub::TaskView;

impl Handle {
    /// Cancels a task, and gives it as it is afterwards. `said`: metadata for the agent.
    pub async fn cancel(
        &self,
        principal: Principal,
        agent: AgentId,
        task: TaskId,
        said: Option<Json>,
    ) -> Result<TaskView, Declined> {
        let live = self.shared.hub.live(task).filter(|live| live.belongs_to(&principal, &agent));
        if live.as_ref().and_then(|live| live.view()).is_none() {
            let view = self.stored_view(&principal, &agent, task).await?;
            if view.state.is_terminal() {
                return if view.state == TaskState::Canceled { Ok(view) } else { Err(Declined::NotCancelable) };
            }
        }
        if self.shared.health() == Health::NoStore {
            return Err(self.refused(&agent, Reason::StoreUnavailable));
        }
        // If it is not here it only waits, and no agent will hear of it.
        if let Some(live) = live {
            live.along.cancel_with(said);
        }
        let line = self.shared.lines.mint();
        let (by, to) = (principal.clone(), agent.clone());
        let told =
            self.ask(line, &agent, task, false, Input::CancelAsked { line, principal: by, agent: to, task }).await?;
        match told {
            Told::Task { view: Some(view), .. } => Ok(*view),
            Told::Task { view: None, .. } => self.stored_view(&principal, &agent, task).await,
            Told::Declined(_)
            | Told::Acknowledged { .. }
            | Told::NotThatFar { .. }
            | Told::Work { .. }
            | Told::NoWork => Err(super::declined(told)),
        }
    }
}

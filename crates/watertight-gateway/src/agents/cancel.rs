//! Asking an agent to stop. One try; whatever the answer is, it becomes one of four words, and nothing else.

use std::time::Duration;

use tokio::time::timeout;
use watertight_a2a::error::A2a;
use watertight_a2a::event::Event;
use watertight_a2a::jsonrpc::{self, Method};
use watertight_engine::ids::RemoteId;
use watertight_engine::input::CancelAnswer;
use watertight_policy::time::Time;

use super::Agent;
use super::ask::Along;
use crate::states::state_of;

/// The longest that one try may take.
const LIMIT: Duration = Duration::from_secs(3);

impl Agent {
    /// Asks the agent to stop working on a task of its own; gives up at `until`, and after three seconds at the latest.
    pub async fn cancel(&self, remote_task: &RemoteId, until: Time) -> CancelAnswer {
        let left = Duration::from_micros(until.since(self.asker.clock.now()).as_micros());
        let answer = timeout(LIMIT.min(left), self.try_cancel(remote_task)).await.unwrap_or(CancelAnswer::Failed);
        tracing::debug!(agent = %self.asker.config.name, ?answer, "CancelTask");
        answer
    }

    async fn try_cancel(&self, remote_task: &RemoteId) -> CancelAnswer {
        let Ok(_place) = self.cancels.acquire().await else { return CancelAnswer::Failed };
        let endpoint = self.cards.endpoint();
        let params = jsonrpc::task_params(remote_task, endpoint.tenant.as_deref(), None);
        let asked = async |method| {
            let result = self.asker.ask(&endpoint.path, method, &params, &Along::default()).await?;
            Ok(Event::read_task_result(&result).ok().filter(|event| event.task_id() == Some(remote_task)))
        };
        let failure: super::fault::Failure = match asked(Method::CancelTask).await {
            Ok(event) => return judge(event, CancelAnswer::GoesOn),
            Err(failure) => failure,
        };
        match failure.kind {
            Some(A2a::TaskNotFound) => CancelAnswer::NotFound,
            // It is over already, or it cannot be stopped: only the task itself tells.
            Some(A2a::TaskNotCancelable) => match asked(Method::GetTask).await {
                Ok(event) => judge(event, CancelAnswer::GoesOn),
                Err(failure) if failure.kind == Some(A2a::TaskNotFound) => CancelAnswer::NotFound,
                Err(_) => CancelAnswer::Failed,
            },
            _ if failure.is_unsupported() => CancelAnswer::GoesOn,
            Some(_) | None => CancelAnswer::Failed,
        }
    }
}

fn judge(event: Option<Event>, active: CancelAnswer) -> CancelAnswer {
    let Some(state) = event.as_ref().and_then(Event::state).map(state_of) else { return CancelAnswer::Failed };
    if state.is_terminal() { CancelAnswer::Ended(state) } else { active }
}

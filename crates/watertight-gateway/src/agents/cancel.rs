//! Asking an agent to stop. One try; whatever the answer is, it becomes one of four words, and nothing else.

use std::time::Duration;

use tokio::time::timeout;
use watertight_a2a::error::A2a;
use watertight_a2a::event::Event;
use watertight_a2a::json::Json;
use watertight_a2a::rest::outbound::Operation;
use watertight_engine::ids::RemoteId;
use watertight_engine::input::CancelAnswer;
use watertight_policy::time::Time;

use super::ask::Along;
use super::endpoints::Endpoints;
use super::{Agent, Named};
use crate::states::state_of;

/// The longest that one try may take.
const LIMIT: Duration = Duration::from_secs(3);

impl Agent {
    /// Asks the agent to stop working on a task of its own; gives up at `until`, and after three seconds at the latest.
    pub async fn cancel(&self, remote_task: &RemoteId, named: &Named, until: Time) -> CancelAnswer {
        let left = Duration::from_micros(until.since(self.asker.clock.now()).as_micros());
        let (tenant, extensions) = (named.tenant.clone(), named.extensions.clone());
        let along = Along { tenant, extensions, ..Along::default() };
        let asked = timeout(LIMIT.min(left), self.try_cancel(remote_task, named.said.as_ref(), &along));
        let answer = asked.await.unwrap_or(CancelAnswer::Failed);
        tracing::debug!(agent = %self.asker.config.name, ?answer, "CancelTask");
        answer
    }

    async fn try_cancel(&self, remote_task: &RemoteId, said: Option<&Json>, along: &Along) -> CancelAnswer {
        let Ok(_place) = self.cancels.acquire().await else { return CancelAnswer::Failed };
        let endpoints = self.cards.endpoints();
        let answer = self.cancel_at(&endpoints, remote_task, said, along).await;
        match (answer, &endpoints.former) {
            // The card may have changed since the task began, and the task be known where the agent was before.
            (Ok(CancelAnswer::NotFound) | Err(_), Some(former)) => {
                match (answer, self.cancel_at(former, remote_task, said, along).await) {
                    (_, Ok(answer)) | (Ok(answer), Err(_)) | (Err(answer), Err(_)) => answer,
                }
            }
            (Ok(answer) | Err(answer), _) => answer,
        }
    }

    /// An error: nobody was there to be asked.
    async fn cancel_at(
        &self,
        endpoints: &Endpoints,
        remote_task: &RemoteId,
        said: Option<&Json>,
        along: &Along,
    ) -> Result<CancelAnswer, CancelAnswer> {
        let asked = async |operation: Operation<'_>| {
            let result = self.ask(endpoints, endpoints.first(), &operation, along).await.1?;
            Ok(Event::read_task_result(&result).ok().filter(|event| event.task_id() == Some(remote_task)))
        };
        let failure: super::fault::Failure = match asked(Operation::CancelTask(remote_task, said)).await {
            Ok(event) => return Ok(judge(event, CancelAnswer::GoesOn)),
            Err(failure) => failure,
        };
        let answer = match failure.kind {
            Some(A2a::TaskNotFound) => CancelAnswer::NotFound,
            // It is over already, or it cannot be stopped: only the task itself tells.
            Some(A2a::TaskNotCancelable) => match asked(Operation::GetTask(remote_task)).await {
                Ok(event) => judge(event, CancelAnswer::GoesOn),
                Err(failure) if failure.kind == Some(A2a::TaskNotFound) => CancelAnswer::NotFound,
                Err(_) => CancelAnswer::Failed,
            },
            _ if failure.is_unsupported() => CancelAnswer::GoesOn,
            Some(_) | None => CancelAnswer::Failed,
        };
        if failure.is_nowhere() { Err(answer) } else { Ok(answer) }
    }
}

fn judge(event: Option<Event>, active: CancelAnswer) -> CancelAnswer {
    let Some(state) = event.as_ref().and_then(Event::state).map(state_of) else { return CancelAnswer::Failed };
    if state.is_terminal() { CancelAnswer::Ended(state) } else { active }
}

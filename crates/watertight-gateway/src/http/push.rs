//! Push configurations, by whichever binding: what the handle is asked, and what comes of it.

use watertight_a2a::call::{PushConfig, PushList, PushRef, Send};
use watertight_a2a::error::{A2a, Error};
use watertight_a2a::json::Json;
use watertight_a2a::text::quote;
use watertight_engine::ids::TaskId;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::line::Line;
use crate::error::{Problem, first_sentence};
use crate::handle::NoPush;
use crate::push::{OF_ONE, Wrong};

impl Line<'_> {
    pub(super) async fn create_push(&self, config: PushConfig) -> Result<Vec<u8>, Problem> {
        let named = config.task_id.clone().unwrap_or_default();
        let task = task(&named)?;
        let kept = self.router.handle().create_push(&self.who.principal, &self.agent, task, config).await;
        kept.map(|config| config.as_bytes().to_vec()).map_err(|no| self.no_push(no, &named))
    }

    pub(super) async fn get_push(&self, named: &PushRef) -> Result<Vec<u8>, Problem> {
        let all = self.pushes(&named.task_id).await?;
        let found = all.into_iter().find(|(id, _)| *id == named.id);
        found.map(|(_, raw)| raw.as_bytes().to_vec()).ok_or_else(|| self.no_push(NoPush::NotFound, &named.task_id))
    }

    /// There are at most a few, so that one page has them all.
    pub(super) async fn list_push(&self, list: &PushList) -> Result<Vec<u8>, Problem> {
        if list.page_token.as_deref().is_some_and(|token| !token.is_empty()) {
            return Err(Error::invalid_params("pageToken", "is no token of this list").into());
        }
        let mut out = b"{\"configs\":[".to_vec();
        for (index, (_, raw)) in self.pushes(&list.task_id).await?.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(raw.as_bytes());
        }
        out.extend_from_slice(b"],\"nextPageToken\":");
        quote("", &mut out);
        out.push(b'}');
        Ok(out)
    }

    pub(super) async fn delete_push(&self, named: PushRef) -> Result<Vec<u8>, Problem> {
        let task = task(&named.task_id)?;
        let handle = self.router.handle();
        let dropped = handle.delete_push(&self.who.principal, &self.agent, task, named.id).await;
        dropped.map(|()| b"{}".to_vec()).map_err(|no| self.no_push(no, &named.task_id))
    }

    async fn pushes(&self, named: &str) -> Result<Vec<(String, Json)>, Problem> {
        let of = self.router.handle().pushes(&self.who.principal, &self.agent, task(named)?).await;
        of.map_err(|no| self.no_push(no, named))
    }

    /// The configuration that comes with a message: judged before there is a task.
    pub(super) fn inline_push(&self, send: &Send) -> Result<Option<PushConfig>, Problem> {
        let Some(config) = send.push_config()? else { return Ok(None) };
        self.router.handle().judge_push(&config).map_err(|no| self.no_push(no, ""))?;
        Ok(Some(config))
    }

    /// And kept when there is one.
    pub(super) async fn keep_push(&self, task: TaskId, config: Option<PushConfig>) -> Result<(), Problem> {
        let Some(config) = config else { return Ok(()) };
        let kept = self.router.handle().create_push(&self.who.principal, &self.agent, task, config).await;
        kept.map(drop).map_err(|no| {
            let mut problem = self.no_push(no, "");
            // The work goes on: whoever is told of the failure has to know of it.
            problem.error = problem.error.task_id(&task.to_string());
            problem
        })
    }

    fn no_push(&self, no: NoPush, task: &str) -> Problem {
        match no {
            NoPush::Off => Error::a2a(A2a::PushNotificationNotSupported).into(),
            NoPush::Task(declined) => self.declined(declined, Some(task)),
            NoPush::NotFound => Error::a2a(A2a::TaskNotFound).message("the task has no such push configuration").into(),
            NoPush::Wrong(Wrong::Field(field, why)) => Error::invalid_params(field, why).into(),
            NoPush::Wrong(Wrong::TooMany) => {
                let text = format!("the task has {OF_ONE} push configurations, or the gateway as many as it keeps");
                Problem::refusal(Reason::CellOverloaded, text)
            }
            NoPush::Wrong(Wrong::Store) => {
                let text = format!("the push configuration is not kept: {}", first_sentence(Reason::StoreUnavailable));
                Problem::refusal(Reason::StoreUnavailable, text).again(Some(Span::from_secs(1)))
            }
        }
    }
}

fn task(id: &str) -> Result<TaskId, Problem> {
    TaskId::parse(id).ok_or_else(|| Error::a2a(A2a::TaskNotFound).into())
}

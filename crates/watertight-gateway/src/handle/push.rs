//! Push configurations of a caller's tasks. A foreign task has none, like one that does not exist.

use std::sync::Arc;

use watertight_a2a::call::PushConfig;
use watertight_a2a::edit;
use watertight_a2a::json::Json;
use watertight_engine::ids::{AgentId, Principal, TaskId};

use super::{Declined, Handle, list};
use crate::clock::mint_context;
use crate::hub::TaskView;
use crate::push::{self, Settings, Target, Wrong};

/// Why not.
#[derive(Debug)]
pub(crate) enum NoPush {
    /// Nothing is pushed here.
    Off,
    /// The task is not there, or cannot be looked at.
    Task(Declined),
    /// There is no such configuration.
    NotFound,
    /// It cannot be as it is, or not now.
    Wrong(Wrong),
}

impl Handle {
    /// Other settings, from now on.
    pub fn push(&self, settings: Settings) {
        self.shared.pushes.set(settings);
    }

    /// Whether news of tasks is pushed.
    pub(crate) fn pushes_news(&self) -> bool {
        self.shared.pushes.settings().enabled
    }

    /// Judges a configuration, before there is a task.
    pub(crate) fn judge_push(&self, config: &PushConfig) -> Result<(), NoPush> {
        let settings = self.shared.pushes.settings();
        if !settings.enabled {
            return Err(NoPush::Off);
        }
        Target::of(config, &settings).map(drop).map_err(NoPush::Wrong)
    }

    /// Keeps one, and gives it as it is kept.
    pub(crate) async fn create_push(
        &self,
        principal: &Principal,
        agent: &AgentId,
        task: TaskId,
        mut config: PushConfig,
    ) -> Result<Json, NoPush> {
        self.judge_push(&config)?;
        self.task(principal, agent, task).await.map_err(NoPush::Task)?;
        let minted = || mint_context(self.now()).map(|id| id.to_string());
        let id = match config.id.take() {
            Some(id) => id,
            None => minted().map_err(|_| NoPush::Wrong(Wrong::Store))?,
        };
        let ids = [("taskId", Some(Json::string(&task.to_string()))), ("id", Some(Json::string(&id)))];
        config.raw = edit::set_members(&config.raw, &ids);
        let target = Target::of(&config, &self.shared.pushes.settings()).map_err(NoPush::Wrong)?;
        let shared = Arc::clone(&self.shared);
        let kept = tokio::task::spawn_blocking(move || push::keep(&shared, task, &id, target)).await;
        kept.unwrap_or(Err(Wrong::Store)).map_err(NoPush::Wrong)?;
        Ok(config.raw)
    }

    /// A task's, with their ids.
    pub(crate) async fn pushes(
        &self,
        principal: &Principal,
        agent: &AgentId,
        task: TaskId,
    ) -> Result<Vec<(String, Json)>, NoPush> {
        if !self.shared.pushes.settings().enabled {
            return Err(NoPush::Off);
        }
        self.task(principal, agent, task).await.map_err(NoPush::Task)?;
        Ok(self.shared.pushes.of(task))
    }

    /// Drops one.
    pub(crate) async fn delete_push(
        &self,
        principal: &Principal,
        agent: &AgentId,
        task: TaskId,
        id: String,
    ) -> Result<(), NoPush> {
        self.pushes(principal, agent, task).await?;
        let shared = Arc::clone(&self.shared);
        let dropped = tokio::task::spawn_blocking(move || push::drop_hook(&shared, task, &id)).await;
        match dropped.unwrap_or(Err(Wrong::Store)).map_err(NoPush::Wrong)? {
            true => Ok(()),
            false => Err(NoPush::NotFound),
        }
    }

    /// Whosever it is, if it is still there.
    pub(crate) async fn any_task(&self, task: TaskId) -> Option<TaskView> {
        let live = self.shared.hub.live(task).and_then(|live| live.view()).or_else(|| self.shared.shelf.view(task));
        if live.is_some() {
            return live;
        }
        let store = self.shared.store.clone();
        let read = self.blocking(move || store.task(task)?.map(|row| list::stored(&store, &row)).transpose());
        read.await.ok().flatten()
    }
}

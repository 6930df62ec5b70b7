//! A task that was delegated: how it stands, and taking it back.

use serde_json::{Map, Value, json};
use watertight_engine::ids::{AgentId, TaskId};
use watertight_policy::boundary::PeerText;
use watertight_policy::reason::Reason;

use super::arguments::{OneTask, read};
use super::{PREVIEW_BYTES, Said, Session, framed, not_found, task_id};
use crate::error::first_sentence;
use crate::handle::Whose;

impl Session {
    pub(super) async fn check_task(&self, arguments: Value) -> Result<Said, String> {
        let asked: OneTask = read(arguments)?;
        let (agent, task) = match self.named(&asked.task_id).await {
            Ok(found) => found,
            Err(said) => return Ok(said),
        };
        match self.desk.handle.task(&self.who.principal, &agent, task).await {
            Ok(view) => {
                let mut said = self.told(&view);
                if view.late.is_some() || view.reason.is_some() {
                    self.add_late(task, &mut said).await;
                }
                Ok(said)
            }
            Err(declined) => Ok(self.declined(declined, &agent, Some(&asked.task_id))),
        }
    }

    /// What the agent said after the verdict, which stands all the same.
    async fn add_late(&self, task: TaskId, said: &mut Said) {
        let Ok(Some(late)) = self.desk.handle.late(task).await else { return };
        let text = PeerText::new(late.text).preview(PREVIEW_BYTES);
        let Some(framed) = framed(super::what_of(late.state), &text) else { return };
        said.text.push_str(&format!(
            "\nToo late, it said that it is {} after all. That changes nothing of the above; it said:\n{framed}",
            super::word(late.state)
        ));
        let mut fields = Map::new();
        fields.insert("state".to_owned(), json!(super::word(late.state)));
        fields.insert("bytes".to_owned(), json!(late.bytes));
        fields.insert("text".to_owned(), json!(framed));
        said.fields.insert("late".to_owned(), Value::Object(fields));
    }

    pub(super) async fn cancel_task(&self, arguments: Value) -> Result<Said, String> {
        let asked: OneTask = read(arguments)?;
        let (agent, task) = match self.named(&asked.task_id).await {
            Ok(found) => found,
            Err(said) => return Ok(said),
        };
        match self.desk.handle.cancel(self.who.principal.clone(), agent.clone(), task, None).await {
            Ok(view) => {
                let mut said = self.told(&view);
                // It is what was wanted.
                said.failed = false;
                let how = if view.state.is_terminal() { "is taken back" } else { "is asked to stop" };
                said.text =
                    format!("CANCELED: task {task} of agent {agent} {how}; it is {} now.", super::word(view.state));
                Ok(said)
            }
            Err(declined) => Ok(self.declined(declined, &agent, Some(&asked.task_id))),
        }
    }

    /// A task of the caller's own, and whose work it is.
    async fn named(&self, id: &str) -> Result<(AgentId, TaskId), Said> {
        let task = task_id(id)?;
        let whose = Whose::Own(self.who.principal.clone());
        match self.desk.handle.delegation(whose, task).await {
            Ok(Some(row)) => Ok((row.agent, task)),
            Ok(None) => Err(not_found()),
            Err(reason) => Err(unavailable(reason)),
        }
    }
}

/// It cannot be looked up just now, whatever there is.
pub(super) fn unavailable(reason: Reason) -> Said {
    Said::refused(&format!("it cannot be looked up just now: {}.", first_sentence(reason)), reason.as_str())
}

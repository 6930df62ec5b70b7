//! Work for a model that is a worker of an agent that fetches its work. To take it is to begin with it: a model says nothing
//! in between.

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use watertight_a2a::json::Json;
use watertight_a2a::said;
use watertight_engine::ids::{AgentId, Attempt, TaskId};
use watertight_engine::record::TaskState;
use watertight_policy::boundary::{PeerText, What};
use watertight_policy::reason::Reason;

use super::arguments::{Reply, read};
use super::tasks::unavailable;
use super::{Said, Session, framed, not_found, word};
use crate::fetch::{self, Parts};
use crate::handle::NotHeard;

impl Session {
    pub(super) async fn check_inbox(&self) -> Said {
        let Some(agent) = &self.who.agent else { return not_found() };
        let work = match self.desk.handle.fetch_work(agent, None, &CancellationToken::new()).await {
            Ok(Some(work)) => work,
            Ok(None) => return said("none", "No work waits for you.".to_owned(), Map::new()),
            Err(declined) => return self.declined(declined, agent, None),
        };
        if let Err(why) = self.desk.handle.hear(agent, work.task, work.fence, fetch::Said::Start).await {
            return unheard(why);
        }
        let Some(request) = framed(What::Request, &asked(&work.params)) else { return unavailable(Reason::Internal) };
        let (id, fence, lease) = (work.task.to_string(), work.fence.0, work.lease.as_secs());
        let text = format!(
            "WORK: task {id}, fence {fence}. Answer it by reply with both, within {lease} s. What you are asked for:\n{request}"
        );
        let mut fields = Map::new();
        fields.insert("taskId".to_owned(), json!(id));
        fields.insert("fence".to_owned(), json!(fence));
        fields.insert("contextId".to_owned(), json!(work.context));
        fields.insert("turn".to_owned(), json!(work.turn));
        fields.insert("leaseS".to_owned(), json!(lease));
        fields.insert("text".to_owned(), json!(request));
        // Ours: what it shows to whom it delegates a part of it.
        let metadata = work.params.value().get("message").and_then(|message| message.get("metadata"));
        let token = metadata.and_then(|metadata| Some(metadata.get("x-delegation")?.as_str()?.into_owned()));
        fields.insert("delegation".to_owned(), json!(token));
        said("work", text, fields)
    }

    pub(super) async fn reply(&self, arguments: Value) -> Result<Said, String> {
        let reply: Reply = read(arguments)?;
        let Some(parts) = Parts::text(&reply.text) else { return Err("text cannot be written.".to_owned()) };
        let what = match (reply.asks, reply.failed) {
            (true, true) => return Err("asks and failed: one of the two.".to_owned()),
            (true, false) => fetch::Said::Ask(parts),
            (false, true) => fetch::Said::Finish(TaskState::Failed, Some(parts)),
            (false, false) => fetch::Said::Finish(TaskState::Completed, Some(parts)),
        };
        let (Some(agent), Some(task)) = (&self.who.agent, TaskId::parse(&reply.task_id)) else {
            return Ok(not_found());
        };
        Ok(self.replied(agent, task, Attempt(reply.fence), what).await)
    }

    async fn replied(&self, agent: &AgentId, task: TaskId, fence: Attempt, what: fetch::Said) -> Said {
        match self.desk.handle.hear(agent, task, fence, what).await {
            Ok(heard) => {
                let state = heard.state.map(word);
                let mut fields = Map::new();
                fields.insert("taskId".to_owned(), json!(task.to_string()));
                fields.insert("state".to_owned(), json!(state));
                let state = state.unwrap_or("over");
                said("replied", format!("REPLIED: task {task} is {state}. check_inbox gives you the next one."), fields)
            }
            Err(why) => unheard(why),
        }
    }
}

/// The text itself where the message is nothing else, byte by byte; else its parts, as their caller wrote them.
fn asked(params: &Json) -> PeerText {
    let content = said::request(params.value());
    if content.data().next().is_none() && content.files().next().is_none() {
        return PeerText::new(content.text());
    }
    let parts = params.value().get("message").and_then(|message| message.get("parts"));
    PeerText::new(parts.map_or(params.as_bytes(), |parts| parts.raw()))
}

fn said(kind: &str, text: String, mut fields: Map<String, Value>) -> Said {
    fields.insert("kind".to_owned(), json!(kind));
    Said { text, fields, failed: false, receipt: None }
}

fn unheard(why: NotHeard) -> Said {
    match why {
        NotHeard::NotFound => not_found(),
        NotHeard::Gone(_) | NotHeard::NotBegun => Said::refused(
            "this work is not yours any more: its lease or its time has ended, it was taken back, or it is over. Stop it.",
            "not_yours",
        ),
        NotHeard::Malformed => Said::refused("what was said is no message.", "invalid_arguments"),
        NotHeard::Unsure(reason) => unavailable(reason),
    }
}

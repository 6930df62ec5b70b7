//! Giving work to another agent.

use serde_json::{Value, json};
use watertight_engine::ids::AgentId;
use watertight_engine::input::WireQueue;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::arguments::{Delegate, MAX_WAIT_S, WAIT_S, read};
use super::{Said, Session};
use crate::delegate::{Wish, Wrong, call};
use crate::handle::Want;

impl Session {
    /// Waits for what comes of it, or only until it is accepted.
    pub(super) async fn delegate(&self, arguments: Value, waits: bool) -> Result<Said, String> {
        let asked: Delegate = read(arguments)?;
        let wait = match asked.wait_s {
            _ if !waits && asked.wait_s.is_some() => {
                return Err("wait_s means nothing here: delegate_task waits, delegate_task_async does not.".to_owned());
            }
            None => WAIT_S,
            Some(wait) if wait > 0.0 && wait <= MAX_WAIT_S => wait,
            Some(_) => return Err(format!("wait_s has to be above 0 and at most {MAX_WAIT_S}: seconds.")),
        };
        let agent = AgentId::new(&asked.agent);
        let answers = asked.answers.clone();
        let wish = Wish {
            task: asked.task,
            data: asked.data,
            context_id: asked.context_id,
            answers: asked.answers,
            key: asked.key,
            delegation: asked.delegation,
            queue: WireQueue::default(),
        };
        let want = if waits { Want::Result } else { Want::Accepted };
        let wait = Some(Span::from_micros((wait * 1e6) as u64));
        let call = match call(&self.who, &agent, &wish, want, wait, self.trace.clone()) {
            Ok(call) => call,
            Err(wrong @ Wrong::Itself) => {
                return Ok(Said::refused(&wrong.text(&agent), Reason::DelegationCycle.as_str()));
            }
            Err(wrong @ (Wrong::Empty | Wrong::Malformed(_))) => return Err(wrong.text(&agent)),
        };
        if self.agent(&agent).is_none() {
            let why = "there is no such agent for you; list_peers says which there are.";
            return Ok(Said::refused(why, Reason::AgentUnknown.as_str()));
        }
        match self.desk.handle.submit(call).await {
            Ok(accepted) => {
                let mut said = self.told(&accepted.view);
                said.receipt = accepted.receipt;
                if accepted.replay {
                    said.fields.insert("replay".to_owned(), json!(true));
                }
                Ok(said)
            }
            Err(declined) => Ok(self.declined(declined, &agent, answers.as_deref())),
        }
    }
}

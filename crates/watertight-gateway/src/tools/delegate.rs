//! Giving work to another agent.

use serde_json::{Value, json};
use watertight_a2a::call::{Call, KEY_RULE, is_key};
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::Method;
use watertight_engine::ids::AgentId;
use watertight_engine::input::{WireBudget, WireQueue};
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::arguments::{Delegate, MAX_WAIT_S, WAIT_S, read};
use super::{Said, Session};
use crate::clock;
use crate::handle::{NewCall, Want, idempotency_key};

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
        if asked.task.trim().is_empty() {
            return Err("task is empty: say in full what the agent is to do.".to_owned());
        }
        if asked.key.as_deref().is_some_and(|key| !is_key(key)) {
            return Err(format!("key {KEY_RULE}."));
        }
        let agent = AgentId::new(&asked.agent);
        if self.who.agent.as_ref() == Some(&agent) {
            let why = format!("you are agent {agent} yourself, and it would wait for itself.");
            return Ok(Said::refused(&why, Reason::DelegationCycle.as_str()));
        }
        if self.agent(&agent).is_none() {
            let why = "there is no such agent for you; list_peers says which there are.";
            return Ok(Said::refused(why, Reason::AgentUnknown.as_str()));
        }
        let params = params(&asked)?;
        let answers = asked.answers.clone();
        let Ok(Call::Send(send)) = Call::parse(Method::SendMessage, Some(Json::assume(params))) else {
            return Err(
                "the message cannot be sent as it is: context_id and answers have to be ids that you were given."
                    .to_owned(),
            );
        };
        let budget = send.peek.budget.clone().unwrap_or_default();
        let call = NewCall {
            principal: self.who.principal.clone(),
            who: Some(self.who.clone()),
            agent: agent.clone(),
            params: send.params.into_bytes(),
            peek: send.peek,
            want: if waits { Want::Result } else { Want::Accepted },
            wait: Some(Span::from_micros((wait * 1e6) as u64)),
            budget: WireBudget { remaining_s: budget.remaining_s, depth: budget.depth, fanout: budget.fanout },
            queue: WireQueue::default(),
            parent: None,
            from: self.who.agent.clone(),
            trace: self.trace.clone(),
            key: asked.key.as_deref().map(idempotency_key),
            redrives: None,
            outbox: self.who.outbox.clone(),
        };
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

/// The params of SendMessage.
fn params(asked: &Delegate) -> Result<Vec<u8>, String> {
    let id = clock::random::<16>().map_err(|_| "the system gives no random numbers; try again.".to_owned())?;
    let mut parts = vec![json!({"text": asked.task})];
    if let Some(data) = &asked.data {
        parts.push(json!({"data": data}));
    }
    let mut message = json!({
        "messageId": format!("tool-{:032x}", u128::from_be_bytes(id)),
        "role": "ROLE_USER",
        "parts": parts,
    });
    let mut put = |name: &str, value: Option<Value>| {
        if let (Some(value), Some(message)) = (value, message.as_object_mut()) {
            message.insert(name.to_owned(), value);
        }
    };
    put("contextId", asked.context_id.as_ref().map(|id| json!(id)));
    put("taskId", asked.answers.as_ref().map(|id| json!(id)));
    put("metadata", asked.delegation.as_ref().map(|token| json!({"x-delegation": token})));
    serde_json::to_vec(&json!({"message": message})).map_err(|error| error.to_string())
}

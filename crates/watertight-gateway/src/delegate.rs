//! Work handed to an agent by somebody who has a text and no A2A message: the one way for tools and for HTTP.
//!
//! Assumes that the caller is known. Leaves out whether it may call the agent, and what it is told.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use watertight_a2a::call::{Call, KEY_RULE, is_key};
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::Method;
use watertight_engine::ids::AgentId;
use watertight_engine::input::{WireBudget, WireQueue};
use watertight_policy::time::Span;

use crate::clock;
use crate::handle::{NewCall, Trace, Want, idempotency_key};
use crate::http::auth::Who;

/// What is wanted.
#[derive(Default)]
pub(crate) struct Wish {
    /// What the agent is to do.
    pub(crate) task: String,
    /// Structured input beside it.
    pub(crate) data: Option<Map<String, Value>>,
    /// The conversation to go on in.
    pub(crate) context_id: Option<String>,
    /// The task whose question this answers.
    pub(crate) answers: Option<String>,
    /// What it is known by, if it is wished for again.
    pub(crate) key: Option<String>,
    /// The `x-delegation` of what the caller works on.
    pub(crate) delegation: Option<String>,
    /// What is wanted for the time in which it waits.
    pub(crate) queue: WireQueue,
}

/// Why it cannot be handed over, whatever the agent's walls would say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// There is no text.
    Empty,
    /// The agent is the caller itself.
    Itself,
    /// It is no message; why.
    Malformed(String),
}

impl Wrong {
    /// For people and models: what is wrong with it.
    pub(crate) fn text(&self, agent: &AgentId) -> String {
        match self {
            Wrong::Empty => "task is empty: say in full what the agent is to do.".to_owned(),
            Wrong::Itself => format!("you are agent {agent} yourself, and it would wait for itself."),
            Wrong::Malformed(why) => why.clone(),
        }
    }
}

/// The call that carries it.
pub(crate) fn call(
    who: &Arc<Who>,
    agent: &AgentId,
    wish: &Wish,
    want: Want,
    wait: Option<Span>,
    trace: Trace,
) -> Result<NewCall, Wrong> {
    if wish.task.trim().is_empty() {
        return Err(Wrong::Empty);
    }
    if wish.key.as_deref().is_some_and(|key| !is_key(key)) {
        return Err(Wrong::Malformed(format!("key {KEY_RULE}.")));
    }
    if who.agent.as_ref() == Some(agent) {
        return Err(Wrong::Itself);
    }
    let params = params(wish).map_err(Wrong::Malformed)?;
    let Ok(Call::Send(send)) = Call::parse(Method::SendMessage, Some(Json::assume(params))) else {
        let why = "the message cannot be sent as it is: context_id and answers have to be ids that you were given.";
        return Err(Wrong::Malformed(why.to_owned()));
    };
    let budget = send.peek.budget.clone().unwrap_or_default();
    Ok(NewCall {
        principal: who.principal.clone(),
        who: Some(who.clone()),
        agent: agent.clone(),
        params: send.params.into_bytes(),
        peek: send.peek,
        want,
        wait,
        budget: WireBudget { remaining_s: budget.remaining_s, depth: budget.depth, fanout: budget.fanout },
        queue: wish.queue,
        parent: None,
        from: who.agent.clone(),
        trace,
        key: wish.key.as_deref().map(idempotency_key),
        redrives: None,
        outbox: who.outbox.clone(),
    })
}

/// A messageId of our own.
pub(crate) fn message_id() -> Result<String, String> {
    let id = clock::random::<16>().map_err(|_| "the system gives no random numbers; try again.".to_owned())?;
    Ok(format!("tool-{:032x}", u128::from_be_bytes(id)))
}

/// The params of SendMessage.
fn params(wish: &Wish) -> Result<Vec<u8>, String> {
    let mut parts = vec![json!({"text": wish.task})];
    if let Some(data) = &wish.data {
        parts.push(json!({"data": data}));
    }
    let mut message = json!({"messageId": message_id()?, "role": "ROLE_USER", "parts": parts});
    let mut put = |name: &str, value: Option<Value>| {
        if let (Some(value), Some(message)) = (value, message.as_object_mut()) {
            message.insert(name.to_owned(), value);
        }
    };
    put("contextId", wish.context_id.as_ref().map(|id| json!(id)));
    put("taskId", wish.answers.as_ref().map(|id| json!(id)));
    put("metadata", wish.delegation.as_ref().map(|token| json!({"x-delegation": token})));
    serde_json::to_vec(&json!({"message": message})).map_err(|error| error.to_string())
}

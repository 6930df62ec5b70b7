//! What comes with a message: the headers that go along, and what it says of where it comes from, as far as it can be
//! read (the caller's own identity, our token, what it refers to). What is made of that is the engine's.

use watertight_a2a::call::SendPeek;
use watertight_engine::ids::AgentId;
use watertight_engine::input::{Claims, Held};

use super::Handle;

/// Headers that go along to the agent, checked by the face.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// `traceparent`
    pub parent: Option<String>,
    /// `tracestate`
    pub state: Option<String>,
    /// `A2A-Extensions`
    pub extensions: Option<String>,
}

impl Handle {
    pub(super) fn claims(&self, to: &AgentId, from: Option<AgentId>, peek: &SendPeek) -> Claims {
        Claims {
            held: peek.delegation.as_deref().and_then(|token| self.held(to, token, from.as_ref())),
            from,
            references: peek.reference_task_ids.iter().map(|id| id.as_str().into()).collect(),
        }
    }

    /// What our token says. Another's, or one that is not whole, is no mistake: metadata may go through two gateways.
    fn held(&self, to: &AgentId, token: &str, from: Option<&AgentId>) -> Option<Held> {
        let held = self.shared.chain.read(token);
        let outcome = match &held {
            None => "foreign",
            Some(held) if from.is_some_and(|from| *from != held.holder) => "not_the_holder",
            Some(_) => "taken",
        };
        if outcome != "taken" {
            tracing::debug!(agent = %to, from = from.map(AgentId::as_str), outcome, "an x-delegation is not taken");
        }
        self.shared.metrics.delegation_token(outcome);
        held
    }
}

//! An agent is drained for its restart, and resumed.

use watertight_engine::ids::AgentId;
use watertight_engine::input::Input;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use super::Handle;

/// What an operator is told of an agent that is being drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// What runs was given until then.
    pub until: Time,
    /// It will be known after a restart of the gateway.
    pub kept: bool,
}

impl Handle {
    /// Delivers nothing to this agent from now on, until it is resumed. `None`: no such agent, or the cell is gone.
    pub async fn drain_agent(&self, agent: &AgentId, timeout: Span) -> Option<Drained> {
        let until = self.shared.clock.now() + timeout;
        let kept = self.set_drain(agent, Some(until)).await?;
        Some(Drained { until, kept })
    }

    /// Delivers to it again, and looks for what it had. `None`: no such agent. `false`: after a restart of the gateway it
    /// will be drained again.
    pub async fn resume_agent(&self, agent: &AgentId) -> Option<bool> {
        self.set_drain(agent, None).await
    }

    async fn set_drain(&self, agent: &AgentId, until: Option<Time>) -> Option<bool> {
        self.shared.known(agent).filter(|known| !known.removed)?;
        let (shared, of) = (self.shared.clone(), agent.clone());
        let set = tokio::task::spawn_blocking(move || shared.drains.set(&of, until)).await;
        let kept = match set {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%agent, %error, "a drain cannot be kept over a restart of the gateway");
                false
            }
            Err(_) => false,
        };
        self.shared.order(Input::Configured(self.shared.settings())).ok()?;
        Some(kept)
    }

    /// Why a turn waits, as it is now: what stands in its row is why it began to.
    pub(crate) fn waits_on(&self, agent: &AgentId, stored: Option<Reason>) -> Option<Reason> {
        let drained = self.shared.drains.of(agent).is_some();
        let walls = [Reason::BulkheadFull, Reason::BreakerOpen, Reason::AgentPacing];
        let reason = stored?;
        Some(if drained && walls.contains(&reason) {
            Reason::AgentDraining
        } else if !drained && reason == Reason::AgentDraining {
            Reason::BulkheadFull
        } else {
            reason
        })
    }
}

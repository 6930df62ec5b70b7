//! Who may call whom, as it is in force: asked at every door, and again before each delivery.
//!
//! The rules themselves are [`watertight_policy::access`]. Here they meet those who call: at a door a credential says who
//! that is, and it alone counts. Before a delivery, which may be hours and a restart later, there is only the principal in
//! the row; what its callers and tokens may do *now* counts, any of them, and an expired token like one that is not, since
//! what was accepted while it was good stays accepted. Of a principal that nobody stands for any more nothing is sent.
//! What cannot be said is not sent either, and waits.
//!
//! Assumes that a configuration gives rules, callers and agents together ([`Shared::set_known`]): half of one must not be
//! what something is refused for. Leaves out cycles, which are the engine's.
//!
//! [`Shared::set_known`]: crate::driver::shared::Shared::set_known

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_engine::ids::{AgentId, Principal};
use watertight_policy::access::{self, Access, Denied, Place, Rule};

use crate::config::{Caller, Config};
use crate::http::auth::{Who, of_caller, of_this_machine};
use crate::reminder;
use crate::tokens::{Scope, Tokens};

/// Who may call at all, and what decides beside tenants and lists. The agents are told apart from it.
#[derive(Clone, Debug)]
pub struct Grants {
    rule: Rule,
    vouched: Vouched,
}

/// Who stands for a principal.
#[derive(Clone, Debug)]
enum Vouched {
    /// Whoever has the handle: there is no door, and nobody to ask.
    Anybody,
    Known(Arc<Known>),
}

/// These callers, and whoever holds a token. With neither, and nobody who may register, this machine's users.
#[derive(Debug)]
struct Known {
    callers: BTreeMap<Principal, Arc<Who>>,
    tokens: Arc<Tokens>,
    /// The tokens of agents that registered, as long as they are.
    registered: BTreeMap<AgentId, String>,
    /// Somebody may register.
    enrols: bool,
    local: Arc<Who>,
}

impl Known {
    fn new(callers: BTreeMap<Principal, Arc<Who>>, tokens: Arc<Tokens>) -> Known {
        let local = Arc::new(of_this_machine());
        Known { callers, tokens, registered: BTreeMap::new(), enrols: false, local }
    }

    /// A token of an agent that registered counts as long as the agent is registered, with this one.
    fn stands(&self, who: &Who) -> bool {
        let Some(token) = &who.enrolled else { return true };
        who.agent.as_ref().and_then(|agent| self.registered.get(agent)) == Some(token)
    }

    /// Whoever may call as this principal, by what stands there now.
    fn stand_for(&self, principal: &Principal) -> Vec<Arc<Who>> {
        let open = self.callers.is_empty() && !self.enrols && self.tokens.is_open();
        let local = (open && self.local.principal == *principal).then(|| self.local.clone());
        let held = self.tokens.holders(principal).into_iter();
        let held = held.filter(|who| who.is(Scope::Caller) && self.stands(who));
        self.callers.get(principal).cloned().into_iter().chain(local).chain(held).collect()
    }

    /// Whoever may call as this agent.
    fn are(&self, agent: &AgentId) -> Vec<Arc<Who>> {
        let callers = self.callers.values().filter(|who| who.agent.as_ref() == Some(agent)).cloned();
        callers.chain(self.tokens.holders_of(agent).into_iter().filter(|who| self.stands(who))).collect()
    }
}

impl Grants {
    /// For a gateway without a door: whoever has the handle may call every agent.
    pub fn anybody() -> Grants {
        Grants { rule: Rule::Tenant, vouched: Vouched::Anybody }
    }

    /// Without callers and tokens: nobody but this machine's users.
    pub(crate) fn this_machine() -> Grants {
        Grants { rule: Rule::Tenant, vouched: Vouched::Known(Arc::new(Known::new(BTreeMap::new(), Tokens::none()))) }
    }

    /// As a configuration says.
    pub fn of(config: &Config, tokens: Arc<Tokens>) -> Grants {
        Grants::with(config, &config.callers, tokens)
    }

    /// Likewise, with other callers: who may go on with agents that leave.
    pub(crate) fn with(config: &Config, callers: &[Caller], tokens: Arc<Tokens>) -> Grants {
        let known = |caller: &Caller| {
            let who = of_caller(caller);
            (who.principal.clone(), Arc::new(who))
        };
        let registered = config.registered.iter().filter(|(name, _)| config.is_registered(name));
        let known = Known {
            registered: registered.map(|(name, record)| (name.clone(), record.token.clone())).collect(),
            enrols: !config.enrolments.is_empty(),
            ..Known::new(callers.iter().map(known).collect(), tokens)
        };
        Grants { rule: config.access, vouched: Vouched::Known(Arc::new(known)) }
    }

    /// With these agents.
    pub(crate) fn over(&self, places: BTreeMap<AgentId, Place<AgentId>>) -> Rules {
        Rules { access: Access::new(self.rule, places), vouched: self.vouched.clone() }
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Rules {
    access: Access<AgentId>,
    vouched: Vouched,
}

/// Why something is not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// By the rules.
    Denied {
        /// Which.
        why: Denied,
        /// The agent that calls, where that matters.
        from: Option<AgentId>,
    },
    /// Nobody stands for its caller any more.
    NobodyVouches,
}

impl Refused {
    /// What is not allowed, why another try cannot help, and what to do instead: for people and models. Without the last
    /// full stop.
    pub(crate) fn told(&self, agent: &AgentId) -> String {
        let from = |from: &Option<AgentId>| match from {
            Some(from) => format!("agent {from}"),
            None => "its caller".to_owned(),
        };
        match self {
            Refused::Denied { why: Denied::MayNotDelegate, from: itself } => {
                let (name, key) = (from(itself), itself.as_ref().map_or("NAME", |from| from.as_str()));
                format!(
                    "{name} may not delegate, to {agent} or to anybody else: agents.{key}.can_delegate is false. That holds at \
                     every door, and trying again cannot help. Do this part yourself, and say what you could not do"
                )
            }
            Refused::Denied { why: Denied::Unrelated, from: itself } => format!(
                "{} may not call agent {agent}: by server.access = \"hierarchy\" it calls those above it, those below it and \
                 those beside it under the same parent, and {agent} is none of them. Trying again cannot help. Choose one that \
                 list_peers names, or ask your parent",
                from(itself)
            ),
            Refused::Denied { why: Denied::Unknown, from: itself } => format!(
                "{} may not call agent {agent} any more: its tenant, or its list of agents, is another one now. Trying again \
                 cannot help. Choose another agent, or ask whoever runs the gateway",
                from(itself)
            ),
            Refused::Denied { why: Denied::Itself, .. } => format!(
                "its caller is agent {agent} itself by now, and it would wait for itself. Trying again cannot help. Do this \
                 part yourself"
            ),
            Refused::NobodyVouches => "its caller is no longer known: no caller and no token of this gateway stands for it any \
                                       more. Trying again cannot help. Send it as somebody who may, or ask whoever runs the \
                                       gateway"
                .to_owned(),
        }
    }
}

/// What becomes of something that is about to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Send,
    Refuse(Refused),
    /// It cannot be said, for now.
    Wait,
}

impl Rules {
    /// Where an agent stands.
    pub(crate) fn place(&self, agent: &AgentId) -> Option<&Place<AgentId>> {
        self.access.place(agent)
    }

    /// Whether there is this agent for who asks: what it has there may be followed, whether it may send more or not.
    pub(crate) fn exists(&self, who: &Who, agent: &AgentId) -> bool {
        self.access.exists(&who.asks(), agent)
    }

    /// Whether who asks may send this agent a message.
    pub(crate) fn judge(&self, who: &Who, agent: &AgentId) -> Result<(), Refused> {
        self.access.judge(&who.asks(), agent).map_err(|why| Refused::Denied { why, from: who.agent.clone() })
    }

    /// Whether who asks is shown its card: it is one to call, or the caller itself.
    pub(crate) fn shows(&self, who: &Who, agent: &AgentId) -> bool {
        matches!(self.access.judge(&who.asks(), agent), Ok(()) | Err(Denied::Itself))
    }

    pub(crate) fn can_delegate(&self, who: &Who) -> bool {
        self.access.can_delegate(&who.asks())
    }

    /// All that an agent may call, whichever of its callers and tokens it comes with; of one that comes with none, in its
    /// own tenant. `None`: every other agent that its caller's tenant may call.
    pub(crate) fn callable(&self, agent: &AgentId) -> Option<BTreeSet<AgentId>> {
        let all = match &self.vouched {
            Vouched::Anybody => Vec::new(),
            Vouched::Known(known) => known.are(agent),
        };
        let place = self.access.place(agent)?;
        let by_tenant = self.access.rule() == Rule::Tenant && place.can_delegate;
        if by_tenant && all.iter().all(|who| who.agents.is_none()) {
            return None;
        }
        let tenant = place.tenant.as_deref().unwrap_or_default();
        let alone = all.is_empty().then_some(access::Caller { tenant, agent: Some(agent), only: None });
        let asks: Vec<_> = all.iter().map(|who| who.asks()).chain(alone).collect();
        Some(asks.iter().flat_map(|caller| self.access.callable(caller)).cloned().collect())
    }

    /// Whether what waits for this principal may be sent now.
    pub(crate) fn verdict(&self, principal: &Principal, agent: &AgentId) -> Verdict {
        let Vouched::Known(known) = &self.vouched else { return Verdict::Send };
        if *principal.caller == *reminder::CALLER {
            // The gateway itself, which tells an agent of its own results.
            return Verdict::Send;
        }
        let mut refused = Refused::NobodyVouches;
        for who in known.stand_for(principal) {
            match self.judge(&who, agent) {
                Ok(()) => return Verdict::Send,
                Err(why) => refused = why,
            }
        }
        if known.tokens.is_unread() { Verdict::Wait } else { Verdict::Refuse(refused) }
    }
}

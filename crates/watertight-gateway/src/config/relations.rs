//! What agents and callers say of each other: parents, tenants. Judged over the whole file, since no table is wrong alone.
//!
//! And what comes of it: whom each caller may call. Assumes that names are judged elsewhere. Leaves out what is valid and has no effect; that is advice.

use std::collections::BTreeMap;
use std::ops::Range;

use watertight_engine::ids::AgentId;
use watertight_policy::access::{Access, Fault, MAX_LEVELS, Place, Rule};

use super::Config;
use super::report::Problem;
use super::written::{File, Text};
use crate::http::auth::{Who, of_caller, of_this_machine};
use crate::tokens;

/// Somebody who calls, and whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MayCall {
    /// Its name.
    pub caller: String,
    /// Its tenant.
    pub tenant: String,
    /// The agent that it is, if it is one.
    pub agent: Option<AgentId>,
    /// All that it may call.
    pub agents: Vec<AgentId>,
}

/// Every caller of the file and every token beside it, with what the rules leave it; without any, this machine's users.
pub fn may_call(config: &Config) -> Vec<MayCall> {
    let rules = config.rules();
    let mut all: Vec<Who> = config.callers.iter().map(of_caller).collect();
    let held = tokens::read(&config.tokens).unwrap_or_default();
    all.extend(held.iter().map(tokens::of_stored).filter(|who| config.stands(who)));
    if all.is_empty() && config.is_open() {
        all.push(of_this_machine());
    }
    let row = |who: Who| MayCall {
        agents: rules.callable(&who.asks()).cloned().collect(),
        caller: who.principal.caller.to_string(),
        tenant: who.principal.tenant.to_string(),
        agent: who.agent,
    };
    all.into_iter().map(row).collect()
}

/// Every mistake among them, each at the key that makes it.
pub(super) fn problems(file: &File) -> Vec<Problem> {
    let text = |text: &Option<Text>| text.as_ref().map(|text| text.as_ref().clone());
    let places: BTreeMap<String, Place<String>> = file
        .agents
        .iter()
        .map(|(name, agent)| {
            let place = Place { tenant: text(&agent.tenant), parent: text(&agent.parent), can_delegate: true };
            (name.as_ref().clone(), place)
        })
        .collect();
    let parent_at = |agent: &String| -> Range<usize> {
        let written = file.agents.iter().find(|(name, _)| name.as_ref() == agent);
        written.and_then(|(_, agent)| agent.parent.as_ref()).map_or(0..0, toml::Spanned::span)
    };
    let tenant_of = |agent: &String| places.get(agent).and_then(|place| place.tenant.clone()).unwrap_or_default();
    let access = Access::new(Rule::Hierarchy, places.clone());
    let mut out: Vec<Problem> = access.faults().iter().map(|fault| of_tree(fault, &parent_at, &tenant_of)).collect();
    for (name, caller) in &file.callers {
        let Some(tenant) = caller.agent.as_ref().and_then(|agent| places.get(agent.as_ref())?.tenant.as_ref()) else {
            continue;
        };
        let own = caller.tenant.as_ref().unwrap_or(name);
        if own.as_ref() != tenant {
            let agent = caller.agent.as_ref().map_or("", |agent| agent.as_ref());
            out.push(Problem {
                span: own.span(),
                message: format!(
                    "caller `{}` is of tenant `{}`, and its agent is of another: agents.{agent}.tenant is `{tenant}`",
                    name.as_ref(),
                    own.as_ref()
                ),
                help: Some("give callers.NAME.tenant and the tenant of its agent the same value"),
                hide: false,
            });
        }
    }
    out
}

fn of_tree(
    fault: &Fault<String>,
    parent_at: &impl Fn(&String) -> Range<usize>,
    tenant_of: &impl Fn(&String) -> String,
) -> Problem {
    let (span, message, help) = match fault {
        Fault::NoSuchParent { agent, parent } => {
            let text = format!("agents.{agent}.parent is `{parent}`, and no agent `{parent}` is configured");
            (parent_at(agent), text, None)
        }
        Fault::OtherTenant { agent, parent } => {
            let (own, its) = (tenant_of(agent), tenant_of(parent));
            let text = format!(
                "agents.{agent}.parent is `{parent}`, and the two are of different tenants: agents.{agent}.tenant is \
                 `{own}`, agents.{parent}.tenant is `{its}`"
            );
            (parent_at(agent), text, Some("neither could call the other: give both one tenant, or this one no parent"))
        }
        Fault::TooDeep { agent } => {
            let text = format!("agents.{agent}.parent puts it more than {MAX_LEVELS} levels below its root");
            (parent_at(agent), text, Some("nothing is looked up further than that: make the tree flatter"))
        }
        Fault::Ring(ring) => {
            let keys: Vec<String> = ring.iter().map(|agent| format!("agents.{agent}.parent")).collect();
            let way = ring.iter().chain(ring.first()).map(String::as_str).collect::<Vec<_>>().join(" → ");
            let text = format!("agents stand above each other in a ring, {way}: {}", keys.join(", "));
            (ring.first().map_or(0..0, parent_at), text, Some("take the parent from one of them: it is the root"))
        }
    };
    Problem { span, message, help, hide: false }
}

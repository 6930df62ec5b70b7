//! Who may call whom: the tenants of agents, lists that an operator wrote, and the tree in which agents stand.
//!
//! Three rules, each of which only takes away. An agent that belongs to a tenant is for that tenant's callers alone,
//! and to a caller with a list nothing else exists: what is refused by these two answers like an agent that there is
//! not ([`Denied::Unknown`]). Under [`Rule::Hierarchy`] a caller that is itself an agent, and has no list, may call
//! those that it is related to: above it, below it, or beside it under the same parent. A list takes the place of the
//! tree, since somebody wrote it by hand. Whoever is no agent stands outside the tree.
//!
//! Assumes that who calls was found by its credential. The tree is a configuration's, and [`Access::faults`] says what
//! is wrong with it; a tree with faults is judged all the same, within bounds, and never to more than the rules give.
//! Leaves out loops of calls, which depend on what is under way and not on who may.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

/// Levels that are looked up or down. A tree with more is a fault.
pub const MAX_LEVELS: usize = 32;

/// What decides beside tenants and lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// Nothing: a caller may call all agents of its tenant.
    #[default]
    Tenant,
    /// The tree, where the caller is an agent.
    Hierarchy,
}

impl Rule {
    /// The word in configuration and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::Tenant => "tenant",
            Rule::Hierarchy => "hierarchy",
        }
    }
}

/// Where an agent stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place<A> {
    /// The tenant that it belongs to. `None`: every tenant may call it.
    pub tenant: Option<String>,
    /// The agent above it. `None`: it is a root.
    pub parent: Option<A>,
    /// It may call other agents.
    pub can_delegate: bool,
}

impl<A> Default for Place<A> {
    /// For all tenants, under nobody, free to call others.
    fn default() -> Self {
        Place { tenant: None, parent: None, can_delegate: true }
    }
}

/// Who calls.
#[derive(Debug)]
pub struct Caller<'a, A> {
    /// The tenant that it belongs to.
    pub tenant: &'a str,
    /// The agent that it is, if it is one.
    pub agent: Option<&'a A>,
    /// The agents that it may call, where somebody wrote them down.
    pub only: Option<&'a BTreeSet<A>>,
}

impl<A> Clone for Caller<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Caller<'_, A> {}

/// Why a caller may not call an agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denied {
    /// To this caller there is no such agent.
    Unknown,
    /// The caller is an agent that may not call others.
    MayNotDelegate,
    /// It is the caller itself.
    Itself,
    /// It is neither above, nor below, nor beside the caller in the tree.
    Unrelated,
}

/// What is wrong with a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault<A> {
    /// Its parent is no agent.
    NoSuchParent {
        /// Whose.
        agent: A,
        /// The name that means nothing.
        parent: A,
    },
    /// These stand above each other in a ring, each below the next one, and the last one below the first.
    Ring(Vec<A>),
    /// It and its parent belong to different tenants, so neither may call the other.
    OtherTenant {
        /// Whose parent it is.
        agent: A,
        /// The parent.
        parent: A,
    },
    /// It stands deeper than [`MAX_LEVELS`] below its root.
    TooDeep {
        /// Which.
        agent: A,
    },
}

/// The rules in force.
#[derive(Clone, Debug)]
pub struct Access<A> {
    rule: Rule,
    places: BTreeMap<A, Place<A>>,
}

impl<A> Default for Access<A> {
    fn default() -> Self {
        Access { rule: Rule::default(), places: BTreeMap::new() }
    }
}

impl<A: Ord + Clone> Access<A> {
    /// By this rule, for these agents.
    pub fn new(rule: Rule, places: BTreeMap<A, Place<A>>) -> Self {
        Access { rule, places }
    }

    /// What decides beside tenants and lists.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Where an agent stands, if there is such an agent.
    pub fn place(&self, agent: &A) -> Option<&Place<A>> {
        self.places.get(agent)
    }

    /// Whether this caller may call this agent.
    pub fn judge(&self, caller: &Caller<'_, A>, agent: &A) -> Result<(), Denied> {
        if !self.exists(caller, agent) {
            return Err(Denied::Unknown);
        }
        if !self.can_delegate(caller) {
            return Err(Denied::MayNotDelegate);
        }
        let Some(itself) = caller.agent else { return Ok(()) };
        match self.rule {
            _ if itself == agent => Err(Denied::Itself),
            Rule::Hierarchy if caller.only.is_none() && !self.related(itself, agent) => Err(Denied::Unrelated),
            Rule::Hierarchy | Rule::Tenant => Ok(()),
        }
    }

    /// Whether there is this agent for this caller. What it may not call may still be named to it, and what it has there
    /// already may be followed.
    pub fn exists(&self, caller: &Caller<'_, A>, agent: &A) -> bool {
        let of_tenant = |place: &Place<A>| place.tenant.as_ref().is_none_or(|tenant| tenant == caller.tenant);
        let place = self.places.get(agent);
        // Whoever says that it is another tenant's agent is told of nobody.
        let is_it = caller.agent.and_then(|itself| self.places.get(itself)).is_none_or(of_tenant);
        is_it && place.is_some_and(of_tenant) && caller.only.is_none_or(|only| only.contains(agent))
    }

    /// Whether this caller may call anybody. Only an agent may be forbidden to.
    pub fn can_delegate(&self, caller: &Caller<'_, A>) -> bool {
        caller.agent.and_then(|itself| self.places.get(itself)).is_none_or(|place| place.can_delegate)
    }

    /// All that this caller may call, in order.
    pub fn callable<'a>(&'a self, caller: &'a Caller<'_, A>) -> impl Iterator<Item = &'a A> {
        self.places.keys().filter(move |agent| self.judge(caller, agent).is_ok())
    }

    /// What is wrong with the tree: each agent's own faults in order, each ring once.
    pub fn faults(&self) -> Vec<Fault<A>> {
        let mut out = Vec::new();
        let mut in_rings = BTreeSet::new();
        for (agent, place) in &self.places {
            let Some(parent) = &place.parent else { continue };
            let Some(above) = self.places.get(parent) else {
                out.push(Fault::NoSuchParent { agent: agent.clone(), parent: parent.clone() });
                continue;
            };
            if let (Some(own), Some(its)) = (&place.tenant, &above.tenant)
                && own != its
            {
                out.push(Fault::OtherTenant { agent: agent.clone(), parent: parent.clone() });
            }
            if in_rings.contains(agent) {
                continue;
            }
            let mut path = vec![agent];
            while let Some(next) = self.parent(path[path.len() - 1]) {
                if next == agent {
                    in_rings.extend(path.iter().map(|one| (*one).clone()));
                    out.push(Fault::Ring(path.into_iter().cloned().collect()));
                    break;
                }
                if path.contains(&next) {
                    // It hangs below a ring, which is told of itself.
                    break;
                }
                path.push(next);
            }
            let ringed = in_rings.contains(agent);
            if !ringed && self.above(agent).count() == MAX_LEVELS && self.deeper(agent) {
                out.push(Fault::TooDeep { agent: agent.clone() });
            }
        }
        out
    }

    /// There is more above it than is looked up, and it ends somewhere.
    fn deeper(&self, agent: &A) -> bool {
        let mut at = agent;
        for _ in 0..self.places.len() {
            match self.parent(at) {
                Some(next) => at = next,
                None => return self.above(agent).last() != Some(at),
            }
        }
        false
    }

    fn parent(&self, agent: &A) -> Option<&A> {
        let parent = self.places.get(agent)?.parent.as_ref()?;
        self.places.contains_key(parent).then_some(parent)
    }

    /// The agents above one, the nearest first.
    fn above<'a>(&'a self, agent: &'a A) -> impl Iterator<Item = &'a A> {
        std::iter::successors(self.parent(agent), |at| self.parent(at)).take(MAX_LEVELS)
    }

    fn related(&self, a: &A, b: &A) -> bool {
        let beside = self.parent(a).is_some() && self.parent(a) == self.parent(b);
        // Who stands in no tree is nobody's relation.
        let known = self.places.contains_key(a) && self.places.contains_key(b);
        known && (beside || self.above(a).any(|above| above == b) || self.above(b).any(|above| above == a))
    }
}

//! Pages of what is in memory. A page costs what it shows: every state of a pair is in order by itself, and counted.

use std::cmp::Reverse;
use std::ops::Bound;

use watertight_engine::ids::{AgentId, ContextKey, Principal, TaskId};
use watertight_engine::record::TaskState;
use watertight_policy::time::Time;

use super::shelf::Shelf;
use crate::words::{ListQuery, Page};

impl Shelf {
    pub(super) fn list(&self, query: &ListQuery) -> Page {
        let until = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut found, mut total) = (Vec::new(), 0);
        for agent in self.agents_of(query) {
            match &query.context {
                Some(context) => {
                    let all = self.in_context(query, &agent, context);
                    total += all.len();
                    found.extend(all.into_iter().filter(|at| query.after.is_none_or(|after| *at < after)));
                }
                None => {
                    let Some(states) = self.pairs.get(&(query.principal.clone(), agent)) else { continue };
                    let wanted = TaskState::ALL.into_iter().filter(|state| query.wants(*state));
                    for state in wanted.map(|state| &states[state as usize]) {
                        let from = Bound::Included((query.changed_after.unwrap_or_default(), TaskId(0)));
                        total += match query.changed_after {
                            Some(_) => state.range((from, Bound::Unbounded)).count(),
                            None => state.len(),
                        };
                        if query.after.is_none_or(|after| after.0 >= query.changed_after.unwrap_or_default()) {
                            found.extend(state.range((from, until)).rev().take(query.limit).copied());
                        }
                    }
                }
            }
        }
        found.sort_unstable_by_key(|at| Reverse(*at));
        let rows = found.iter().take(query.limit).filter_map(|(_, task)| self.row(*task)).cloned().collect();
        Page { rows, total: total as u64 }
    }

    pub(super) fn callers(&self, tenant: &str, limit: usize) -> Vec<Principal> {
        let mut callers: Vec<Principal> = Vec::new();
        for (principal, _) in self.pairs.keys().filter(|(principal, _)| *principal.tenant == *tenant) {
            if callers.len() < limit && callers.last() != Some(principal) {
                callers.push(principal.clone());
            }
        }
        callers
    }

    fn agents_of(&self, query: &ListQuery) -> Vec<AgentId> {
        if let Some(agent) = &query.agent {
            return vec![agent.clone()];
        }
        let first = (query.principal.clone(), AgentId::new(""));
        let own = self.pairs.range(first..).take_while(|((principal, _), _)| *principal == query.principal);
        own.map(|((_, agent), _)| agent.clone()).collect()
    }

    fn in_context(&self, query: &ListQuery, agent: &AgentId, context: &str) -> Vec<(Time, TaskId)> {
        let (principal, agent) = (query.principal.clone(), agent.clone());
        let members = self.members.get(&ContextKey { principal, agent, context: context.into() });
        let rows = members.into_iter().flatten().filter_map(|task| self.row(*task));
        let matching =
            rows.filter(|row| query.wants(row.state) && row.changed >= query.changed_after.unwrap_or_default());
        matching.map(|row| (row.changed, row.task)).collect()
    }
}

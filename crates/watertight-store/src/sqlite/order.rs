//! What is fresh, in the order of lists, so that a page costs what it shows however much is on its way to the tables.
//!
//! Of every row that is fresh it knows two places: the one that it has now, and the one that the tables still show. A
//! list is the tables' without the second, and with the first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::record::{Row, TaskState};
use watertight_policy::time::Time;

use crate::words::ListQuery;

/// What the tables say of a task, as far as lists go by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) state: TaskState,
    pub(super) changed: Time,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    pairs: BTreeMap<(Principal, AgentId), Pair>,
    /// By context and principal: most contexts differ in their names already.
    contexts: BTreeMap<(Arc<str>, Principal), BTreeSet<TaskId>>,
}

#[derive(Debug, Default)]
struct Pair {
    fresh: States,
    stale: States,
    /// In both together.
    count: usize,
}

/// Tasks in each state, by when they came into it.
type States = [Places; TaskState::ALL.len()];
type Places = BTreeSet<Place>;
type Place = (Time, TaskId);

impl Order {
    /// A fresh row takes its place, and the one before it leaves its own; without one, that of the tables is stale.
    pub(super) fn put(&mut self, row: &Row, before: Option<&Row>, tables: Option<Listed>) {
        let pair = self.pairs.entry((row.principal.clone(), row.agent.clone())).or_default();
        match (before.map(listed), tables) {
            (Some(before), _) => pair.count -= usize::from(remove(&mut pair.fresh, before, row.task)),
            (None, Some(tables)) => pair.count += usize::from(add(&mut pair.stale, tables, row.task)),
            (None, None) => {}
        }
        pair.count += usize::from(add(&mut pair.fresh, listed(row), row.task));
        if before.is_none() {
            self.contexts.entry((row.context.clone(), row.principal.clone())).or_default().insert(row.task);
        }
    }

    /// The row that had this place is fresh no more.
    pub(super) fn remove(&mut self, row: &Row, tables: Option<Listed>) {
        let names = (row.principal.clone(), row.agent.clone());
        if let Some(pair) = self.pairs.get_mut(&names) {
            pair.count -= usize::from(remove(&mut pair.fresh, listed(row), row.task));
            pair.count -= tables.map_or(0, |tables| usize::from(remove(&mut pair.stale, tables, row.task)));
            if pair.count == 0 {
                self.pairs.remove(&names);
            }
        }
        let context = (row.context.clone(), row.principal.clone());
        if let Some(tasks) = self.contexts.get_mut(&context) {
            tasks.remove(&row.task);
            if tasks.is_empty() {
                self.contexts.remove(&context);
            }
        }
    }

    /// What the tables have of it is not known any more.
    pub(super) fn doubt(&mut self, row: &Row, tables: Listed) {
        if let Some(pair) = self.pairs.get_mut(&(row.principal.clone(), row.agent.clone())) {
            pair.count -= usize::from(remove(&mut pair.stale, tables, row.task));
        }
    }

    /// Whose fresh rows are of a tenant.
    pub(super) fn callers(&self, tenant: &str) -> BTreeSet<Arc<str>> {
        let own = self.pairs.keys().filter(|(principal, _)| *principal.tenant == *tenant);
        own.map(|(principal, _)| principal.caller.clone()).collect()
    }

    /// Whether anybody has something fresh in a context of this name.
    pub(super) fn has_context(&self, context: &str) -> bool {
        let nobody = Principal { tenant: "".into(), caller: "".into() };
        let mut from = self.contexts.range((context.into(), nobody)..);
        from.next().is_some_and(|((name, _), _)| **name == *context)
    }

    pub(super) fn in_context(&self, principal: &Principal, context: &str) -> impl Iterator<Item = TaskId> {
        self.contexts.get(&(context.into(), principal.clone())).into_iter().flatten().copied()
    }

    /// A page's fresh tasks, newest first, at most as many as it takes.
    pub(super) fn page(&self, query: &ListQuery) -> Vec<TaskId> {
        let Some(range) = range(query) else { return Vec::new() };
        let places = self.pairs(query).flat_map(|pair| wanted(&pair.fresh, query));
        let mut found: Vec<_> = places.flat_map(|places| places.range(range).rev().take(query.limit)).collect();
        found.sort_unstable_by_key(|place| Reverse(**place));
        found.into_iter().take(query.limit).map(|(_, task)| *task).collect()
    }

    /// What the tables show on the page or behind it, and should not. Nearly nothing, mostly: it is what was moved there,
    /// and has changed since.
    pub(super) fn stale(&self, query: &ListQuery) -> BTreeSet<TaskId> {
        let Some(range) = range(query) else { return BTreeSet::new() };
        let places = self.pairs(query).flat_map(|pair| wanted(&pair.stale, query));
        places.flat_map(|places| places.range(range)).map(|(_, task)| *task).collect()
    }

    /// How many there are over all pages: fresh ones, and such that the tables count and should not.
    pub(super) fn counts(&self, query: &ListQuery) -> (u64, u64) {
        let count = |places: &Places| match query.changed_after {
            Some(from) => places.range((from, TaskId(0))..).count(),
            None => places.len(),
        };
        let all = |states| wanted(states, query).map(|places| count(places) as u64).sum::<u64>();
        let both = self.pairs(query).map(|pair| (all(&pair.fresh), all(&pair.stale)));
        both.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    fn pairs(&self, query: &ListQuery) -> impl Iterator<Item = &Pair> {
        let first = (query.principal.clone(), query.agent.clone().unwrap_or_else(|| AgentId::new("")));
        let own = self.pairs.range(first..).take_while(|((principal, agent), _)| {
            *principal == query.principal && query.agent.as_ref().is_none_or(|wanted| agent == wanted)
        });
        own.map(|(_, pair)| pair)
    }
}

/// The places that are on the page or behind it; `None` if there are none.
fn range(query: &ListQuery) -> Option<(Bound<Place>, Bound<Place>)> {
    let from = (query.changed_after.unwrap_or_default(), TaskId(0));
    let until = query.after.map_or(Bound::Unbounded, Bound::Excluded);
    // Of a range that ends before it begins, the map would panic.
    query.after.is_none_or(|after| after > from).then_some((Bound::Included(from), until))
}

fn wanted<'a>(states: &'a States, query: &'a ListQuery) -> impl Iterator<Item = &'a Places> {
    TaskState::ALL.into_iter().filter(|state| query.wants(*state)).map(|state| &states[state as usize])
}

pub(super) fn listed(row: &Row) -> Listed {
    Listed { state: row.state, changed: row.changed }
}

fn add(states: &mut States, at: Listed, task: TaskId) -> bool {
    states[at.state as usize].insert((at.changed, task))
}

fn remove(states: &mut States, at: Listed, task: TaskId) -> bool {
    states[at.state as usize].remove(&(at.changed, task))
}

//! How many rows of the tables a list is about: a caller that turns the pages asks for the same again and again, and
//! counting costs more than a page.
//!
//! A count is kept up as rows move to the tables, so that it is made once, and not after every move. What is removed from
//! the tables makes all of them void.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use watertight_engine::ids::{AgentId, Principal};
use watertight_engine::record::Row;
use watertight_policy::time::Time;

use super::order::{Listed, listed};
use crate::codes;
use crate::words::ListQuery;

/// Principals whose counts are remembered, and the most of one.
const MOST: (usize, usize) = (256, 16);

#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    of: BTreeMap<Principal, BTreeMap<What, Count>>,
    tickets: u64,
}

/// The part of a query that its total depends on. Contexts are not among it: there are many, and each holds few.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct What {
    agent: Option<AgentId>,
    from: Time,
    mask: u32,
}

#[derive(Debug)]
struct Count {
    /// As it was counted; `None` while it is.
    base: Option<u64>,
    /// By how much it has changed since.
    moved: i64,
    ticket: u64,
}

/// What is known of a query's total in the tables.
pub(super) enum Found {
    Count(u64),
    /// Nothing yet. Who has this may count, and say how many there are.
    Ticket(u64),
}

impl Counts {
    /// As the tables are now: to be asked while they cannot change.
    pub(super) fn find(&self, query: &ListQuery) -> Found {
        let mut known = self.lock();
        let what = what(query);
        if let Some(count) = known.of.get(&query.principal).and_then(|own| own.get(&what))
            && let Some(base) = count.base
        {
            return Found::Count(base.saturating_add_signed(count.moved));
        }
        known.tickets += 1;
        let ticket = known.tickets;
        if known.of.len() >= MOST.0 && !known.of.contains_key(&query.principal) {
            known.of.pop_first();
        }
        let own = known.of.entry(query.principal.clone()).or_default();
        if own.len() >= MOST.1 && !own.contains_key(&what) {
            own.pop_first();
        }
        own.insert(what, Count { base: None, moved: 0, ticket });
        Found::Ticket(ticket)
    }

    /// So many were there when the ticket was given. It counts for nothing if somebody else has another since.
    pub(super) fn counted(&self, query: &ListQuery, ticket: u64, base: u64) {
        let mut known = self.lock();
        let count = known.of.get_mut(&query.principal).and_then(|own| own.get_mut(&what(query)));
        if let Some(count) = count.filter(|count| count.ticket == ticket) {
            count.base = Some(base);
        }
    }

    /// Rows have come to the tables, in the place of what was there.
    pub(super) fn moved<'a>(&self, rows: impl Iterator<Item = (&'a Row, Option<Listed>)>) {
        let mut known = self.lock();
        if known.of.is_empty() {
            return;
        }
        for (row, before) in rows {
            for (what, count) in known.of.get_mut(&row.principal).into_iter().flatten() {
                if what.agent.as_ref().is_none_or(|agent| row.agent == *agent) {
                    let counts = |at: Listed| what.from <= at.changed && what.mask >> codes::state(at.state) & 1 == 1;
                    count.moved += i64::from(counts(listed(row))) - i64::from(before.is_some_and(counts));
                }
            }
        }
    }

    /// The tables have changed in ways that are not followed.
    pub(super) fn forget(&self) {
        self.lock().of.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn what(query: &ListQuery) -> What {
    What { agent: query.agent.clone(), from: query.changed_after.unwrap_or_default(), mask: query.mask() }
}

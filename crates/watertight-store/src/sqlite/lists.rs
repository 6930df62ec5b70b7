//! Lists: pages of the tables, with what is fresh put in its place.
//!
//! What the tables say of a task with news does not count, neither on the page nor in the total. There are few of
//! those, so that each is looked up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};
use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::record::Row;

use super::overlay::Overlay;
use super::rows::Names;
use super::{SqliteStore, questions, row_of, rows};
use crate::error::ReadError;
use crate::words::{ListQuery, Page};

impl SqliteStore {
    pub(crate) fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let fresh = |overlay: &Overlay| {
            let own = overlay.rows().filter(|row| row.principal == query.principal);
            let own = own.map(|row| (row.clone(), overlay.get(row.task).is_some_and(|fresh| fresh.born)));
            (overlay.generation(), own.collect::<Vec<_>>())
        };
        self.both(fresh, |(generation, fresh), view| {
            let count = |pair, query: &ListQuery| {
                let of = Counted { pair, from: from_of(query), mask: query.mask() };
                // A context holds few, and there are many.
                match &query.context {
                    Some(_) => count_pair(view, query, pair),
                    None => self.counts.of(generation, of, || count_pair(view, query, pair)),
                }
            };
            list(view, query, fresh, count)
        })
    }

    pub(crate) fn callers(&self, tenant: &str, limit: usize) -> Result<Vec<Principal>, ReadError> {
        let fresh = |overlay: &Overlay| {
            let own = overlay.rows().filter(|row| *row.principal.tenant == *tenant);
            own.map(|row| row.principal.caller.clone()).collect::<BTreeSet<Arc<str>>>()
        };
        self.both(fresh, |mut callers, view| {
            let limited = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut stored = view.prepare_cached(questions::CALLERS)?;
            for caller in stored.query_map(params![tenant, limited], |row| row.get::<_, String>(0))? {
                callers.insert(caller?.into());
            }
            let tenant: Arc<str> = tenant.into();
            let named = callers.into_iter().map(|caller| Principal { tenant: tenant.clone(), caller });
            Ok(named.take(limit).collect())
        })
    }

    pub(crate) fn children(&self, parent: TaskId, limit: usize) -> Result<Vec<Row>, ReadError> {
        let fresh = |overlay: &Overlay| {
            let children = overlay.rows().filter(|row| row.parent == Some(parent));
            children.cloned().collect::<Vec<_>>()
        };
        self.both(fresh, |fresh, view| {
            let known: BTreeSet<TaskId> = fresh.iter().map(|row| row.task).collect();
            let limited = i64::try_from(limit.saturating_add(known.len())).unwrap_or(i64::MAX);
            let mut names = Names::default();
            let mut rows: Vec<Row> = view
                .prepare_cached(questions::CHILDREN)?
                .query_map(params![rows::id(parent), limited], |row| names.row(row))?
                .collect::<rusqlite::Result<_>>()?;
            rows.retain(|row| !known.contains(&row.task));
            rows.extend(fresh);
            rows.sort_unstable_by_key(|row| row.task);
            rows.truncate(limit);
            Ok(rows)
        })
    }
}

/// How many rows of the tables the latest lists were about: a caller that turns the pages asks for the same again and
/// again, and counting costs as much as a page.
#[derive(Default)]
pub(super) struct Counts(Mutex<(u64, BTreeMap<Counted, u64>)>);

/// The most that are remembered.
const MAX_COUNTS: usize = 1_024;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Counted {
    pair: i64,
    from: i64,
    mask: u32,
}

impl Counts {
    /// As it was counted in this generation of the tables, or as it is counted now.
    fn of(
        &self,
        generation: u64,
        what: Counted,
        count: impl FnOnce() -> rusqlite::Result<u64>,
    ) -> rusqlite::Result<u64> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Some(lock()).filter(|known| known.0 == generation).and_then(|known| known.1.get(&what).copied());
        if let Some(known) = known {
            return Ok(known);
        }
        let count = count()?;
        let mut known = lock();
        if known.0 < generation || known.1.len() >= MAX_COUNTS {
            *known = (generation, BTreeMap::new());
        }
        if known.0 == generation {
            known.1.insert(what, count);
        }
        Ok(count)
    }
}

fn list(
    view: &Connection,
    query: &ListQuery,
    fresh: Vec<(Row, bool)>,
    count: impl Fn(i64, &ListQuery) -> rusqlite::Result<u64>,
) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let known: BTreeSet<TaskId> = fresh.iter().map(|(row, _)| row.task).collect();
    let wider = ListQuery { limit: query.limit.saturating_add(known.len()), ..query.clone() };
    for pair in pairs(view, query)? {
        let rows = list_pair(view, &wider, pair)?;
        page.rows.extend(rows.into_iter().filter(|row| !known.contains(&row.task)));
        page.total += count(pair, query)?;
    }
    for (row, born) in fresh {
        let before = if born { None } else { row_of(view, row.task)? };
        page.total = page.total.saturating_sub(u64::from(before.is_some_and(|before| query.matches(&before))));
        if query.matches(&row) {
            page.total += 1;
            if query.after.is_none_or(|after| (row.changed, row.task) < after) {
                page.rows.push(row);
            }
        }
    }
    page.rows.sort_unstable_by_key(|row| Reverse((row.changed, row.task)));
    page.rows.truncate(query.limit);
    Ok(page)
}

fn pairs(view: &Connection, query: &ListQuery) -> rusqlite::Result<Vec<i64>> {
    let (principal, agent) = (&query.principal, query.agent.as_ref().map(AgentId::as_str));
    view.prepare_cached(questions::PAIRS)?
        .query_map(params![&*principal.tenant, &*principal.caller, agent], |row| row.get(0))?
        .collect()
}

fn from_of(query: &ListQuery) -> i64 {
    query.changed_after.map_or(i64::MIN, rows::time)
}

fn count_pair(view: &Connection, query: &ListQuery, pair: i64) -> rusqlite::Result<u64> {
    let count = if query.context.is_some() { questions::COUNT_OF_CONTEXT } else { questions::COUNT };
    let mut count = view.prepare_cached(count)?;
    count
        .query_row(params![pair, query.context, from_of(query), query.mask()], |row| row.get::<_, i64>(0))
        .map(|total| total as u64)
}

fn list_pair(view: &Connection, query: &ListQuery, pair: i64) -> rusqlite::Result<Vec<Row>> {
    let page = if query.context.is_some() { questions::PAGE_OF_CONTEXT } else { questions::PAGE };
    let from = from_of(query);
    // Longer than any id, and so behind all of them.
    let last = query.after.map_or_else(|| vec![0xff; 17], |(_, task)| rows::id(task).to_vec());
    let until = query.after.map_or(i64::MAX, |(changed, _)| rows::time(changed));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let mut names = Names::default();
    let rows = view
        .prepare_cached(page)?
        .query_map(params![pair, query.context, from, query.mask(), until, last, limit], |row| names.row(row))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}

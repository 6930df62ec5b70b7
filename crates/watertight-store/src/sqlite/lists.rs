//! Lists: pages of the tables, with what is fresh put in its place.
//!
//! What the tables say of a task with news does not count, neither on the page nor in the total. There are few of
//! those, so that each is looked up.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

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
            own.map(|row| (row.clone(), overlay.get(row.task).is_some_and(|fresh| fresh.born))).collect::<Vec<_>>()
        };
        self.both(fresh, |fresh, view| list(view, query, fresh))
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

fn list(view: &Connection, query: &ListQuery, fresh: Vec<(Row, bool)>) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let known: BTreeSet<TaskId> = fresh.iter().map(|(row, _)| row.task).collect();
    let wider = ListQuery { limit: query.limit.saturating_add(known.len()), ..query.clone() };
    for pair in pairs(view, query)? {
        let (rows, total) = list_pair(view, &wider, pair)?;
        page.rows.extend(rows.into_iter().filter(|row| !known.contains(&row.task)));
        page.total += total;
    }
    for (row, born) in fresh {
        let before = if born { None } else { row_of(view, row.task)? };
        page.total -= u64::from(before.is_some_and(|before| query.matches(&before)));
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

fn list_pair(view: &Connection, query: &ListQuery, pair: i64) -> rusqlite::Result<(Vec<Row>, u64)> {
    let (page, count) = match query.context {
        Some(_) => (questions::PAGE_OF_CONTEXT, questions::COUNT_OF_CONTEXT),
        None => (questions::PAGE, questions::COUNT),
    };
    let from = query.changed_after.map_or(i64::MIN, rows::time);
    // Longer than any id, and so behind all of them.
    let last = query.after.map_or_else(|| vec![0xff; 17], |(_, task)| rows::id(task).to_vec());
    let until = query.after.map_or(i64::MAX, |(changed, _)| rows::time(changed));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let total = view
        .prepare_cached(count)?
        .query_row(params![pair, query.context, from, query.mask()], |row| row.get::<_, i64>(0))?;
    let mut names = Names::default();
    let rows = view
        .prepare_cached(page)?
        .query_map(params![pair, query.context, from, query.mask(), until, last, limit], |row| names.row(row))?
        .collect::<rusqlite::Result<_>>()?;
    Ok((rows, total as u64))
}

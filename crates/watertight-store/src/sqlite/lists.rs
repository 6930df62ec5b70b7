//! Lists: pages of the tables, with what is fresh put in its place.
//!
//! A page costs what it shows. What the tables say of a task with news does not count, neither on the page nor in the
//! total; where that is, [`super::order`] knows. Only of rows that could not be written the tables have to be asked.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, params};
use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::record::Row;
use watertight_policy::time::Time;

use super::counts::{Counts, Found};
use super::order::{Listed, listed};
use super::overlay::{Fresh, Overlay, Tables};
use super::rows::{Id, Moment, Names};
use super::{SqliteStore, questions, row_of, rows};
use crate::error::ReadError;
use crate::words::{ListQuery, OverQuery, Page};

impl SqliteStore {
    pub(crate) fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.both(|overlay| News::of(overlay, query), |news, view| list(view, query, news))
    }

    pub(crate) fn callers(&self, tenant: &str, limit: usize) -> Result<Vec<Principal>, ReadError> {
        self.both(
            |overlay| overlay.order.callers(tenant),
            |mut callers, view| {
                let limited = i64::try_from(limit).unwrap_or(i64::MAX);
                let mut stored = view.prepare_cached(questions::CALLERS)?;
                for caller in stored.query_map(params![tenant, limited], |row| row.get::<_, String>(0))? {
                    callers.insert(caller?.into());
                }
                let tenant: Arc<str> = tenant.into();
                let named = callers.into_iter().map(|caller| Principal { tenant: tenant.clone(), caller });
                Ok(named.take(limit).collect())
            },
        )
    }

    /// See [`crate::Store::over`].
    pub(crate) fn over(&self, query: &OverQuery) -> Result<Vec<Row>, ReadError> {
        let fresh = |overlay: &Overlay| {
            let known: BTreeSet<TaskId> = overlay.rows().map(|row| row.task).collect();
            let rows: Vec<Row> = overlay.rows().filter(|row| query.matches(row)).cloned().collect();
            (known, rows)
        };
        self.both(fresh, |(known, mut rows), view| {
            let mut names = Names::default();
            let after = query.after.map_or((0, Vec::new()), |(at, task)| (rows::time(at), rows::id(task).to_vec()));
            let mut stored = view.prepare_cached(questions::OVER)?;
            let mut found = stored.query(params![&*query.tenant, after.0, after.1, rows::time(query.until)])?;
            let mut taken = 0;
            while taken < query.limit
                && let Some(row) = found.next()?
            {
                let row = names.row(row)?;
                // What is on its way is as it is there.
                if !known.contains(&row.task) {
                    taken += 1;
                    rows.push(row);
                }
            }
            rows.sort_unstable_by_key(|row| (row.changed, row.task));
            rows.truncate(query.limit);
            Ok(rows)
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

/// What is fresh of a page.
struct News {
    /// On it, as far as no older ones of the tables are, newest first.
    rows: Vec<Arc<Row>>,
    /// What the tables show on it or behind it, and should not.
    stale: BTreeSet<TaskId>,
    /// Fresh ones over all pages, and those that the tables count and should not.
    counts: (u64, u64),
    /// What the tables have of these has to be asked for.
    doubted: Vec<Arc<Row>>,
    /// What is known of the total in the tables; nothing, where it costs little.
    known: Option<(Arc<Counts>, Found)>,
}

impl News {
    fn of(overlay: &Overlay, query: &ListQuery) -> News {
        let doubted = overlay.doubted(&query.principal);
        if let Some(context) = &query.context {
            return News { doubted, ..News::of_context(overlay, query, context) };
        }
        let order = &overlay.order;
        let rows = order.page(query).into_iter().filter_map(|task| overlay.get(task)?.row.clone()).collect();
        let known = Some((overlay.counts.clone(), overlay.counts.find(query)));
        News { rows, stale: order.stale(query), counts: order.counts(query), doubted, known }
    }

    fn of_context(overlay: &Overlay, query: &ListQuery, context: &str) -> News {
        let fresh = overlay.order.in_context(&query.principal, context).filter_map(|task| overlay.get(task));
        let (mut rows, mut stale, mut counts) = (Vec::new(), BTreeSet::new(), (0, 0));
        for (row, tables) in fresh.filter_map(|fresh: &Fresh| Some((fresh.row.as_ref()?, fresh.tables()))) {
            if query.agent.as_ref().is_some_and(|agent| row.agent != *agent) {
                continue;
            }
            if shows(query, listed(row)) {
                counts.0 += 1;
                rows.extend(Some(row.clone()).filter(|row| is_behind(query, (row.changed, row.task))));
            }
            if let Tables::Row(listed) = tables
                && shows(query, listed)
            {
                counts.1 += 1;
                stale.insert(row.task);
            }
        }
        rows.sort_unstable_by_key(|row| Reverse((row.changed, row.task)));
        rows.truncate(query.limit);
        News { rows, stale, counts, doubted: Vec::new(), known: None }
    }
}

fn shows(query: &ListQuery, at: Listed) -> bool {
    query.wants(at.state) && query.changed_after.is_none_or(|from| at.changed >= from)
}

fn is_behind(query: &ListQuery, place: (Time, TaskId)) -> bool {
    query.after.is_none_or(|after| place < after)
}

fn list(view: &Connection, query: &ListQuery, mut news: News) -> rusqlite::Result<Page> {
    for row in &news.doubted {
        if row_of(view, row.task)?.is_some_and(|before| query.matches(&before)) {
            news.counts.1 += 1;
            news.stale.insert(row.task);
        }
    }
    let pairs = pairs(view, query)?;
    let mut places: Vec<(Time, TaskId, Place)> = Vec::new();
    for pair in &pairs {
        places_of(view, query, *pair, &news.stale, &mut places)?;
    }
    places.extend(news.rows.into_iter().map(|row| (row.changed, row.task, Place::Fresh(row))));
    places.sort_unstable_by_key(|(changed, task, _)| Reverse((*changed, *task)));
    let mut names = Names::default();
    let mut stored = view.prepare_cached(questions::ROW)?;
    let mut row = |place| match place {
        Place::Fresh(row) => Ok(Row::clone(&row)),
        Place::Stored(id) => stored.query_row([id], |row| names.row(row)),
    };
    let rows = places.into_iter().take(query.limit).map(|(.., place)| row(place)).collect::<rusqlite::Result<_>>()?;

    let count = || pairs.iter().map(|pair| count_pair(view, query, *pair)).sum::<rusqlite::Result<u64>>();
    let in_tables = match news.known {
        Some((_, Found::Count(count))) => count,
        Some((counts, Found::Ticket(ticket))) => {
            let count = count()?;
            counts.counted(query, ticket, count);
            count
        }
        None => count()?,
    };
    Ok(Page { rows, total: (in_tables + news.counts.0).saturating_sub(news.counts.1) })
}

/// Where a row of a page is.
enum Place {
    Fresh(Arc<Row>),
    Stored(i64),
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

/// Where a pair's part of the page is, as far as it is not stale.
fn places_of(
    view: &Connection,
    query: &ListQuery,
    pair: i64,
    stale: &BTreeSet<TaskId>,
    places: &mut Vec<(Time, TaskId, Place)>,
) -> rusqlite::Result<()> {
    let page = if query.context.is_some() { questions::PAGE_OF_CONTEXT } else { questions::PAGE };
    // Longer than any id, and so behind all of them.
    let last = query.after.map_or_else(|| vec![0xff; 17], |(_, task)| rows::id(task).to_vec());
    let until = query.after.map_or(i64::MAX, |(changed, _)| rows::time(changed));
    let mut page = view.prepare_cached(page)?;
    let mut found = page.query(params![pair, query.context, from_of(query), query.mask(), until, last])?;
    let mut left = query.limit;
    while left > 0
        && let Some(row) = found.next()?
    {
        let (changed, task) = (row.get::<_, Moment>(0)?.0, row.get::<_, Id>(1)?.task());
        if !stale.contains(&task) {
            places.push((changed, task, Place::Stored(row.get(2)?)));
            left -= 1;
        }
    }
    Ok(())
}

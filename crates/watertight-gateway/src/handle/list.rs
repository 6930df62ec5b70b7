//! A page of a caller's tasks, and its token. Waits for the disk.
//!
//! A page is bounded by its tasks' bytes as well as by their number: a hundred large records would be gigabytes, for one
//! small question. What does not fit is on the next page.

use watertight_engine::ids::TaskId;
use watertight_engine::record::Row;
use watertight_policy::time::Time;
use watertight_store::{ListQuery, ReadError, Store};

use super::Page;
use crate::driver::shared::Shared;
use crate::driver::{read_record, read_records};
use crate::hub::{Hub, TaskView};

/// Bytes of records on one page, about. A single one may be larger.
const PAGE_BYTES: usize = 8 << 20;

/// What these have together, up to the limit that they have in common. No task may be in two of them.
pub(super) fn page(shared: &Shared, queries: &[ListQuery]) -> Result<Page, ReadError> {
    let Shared { store, hub, shelf, .. } = shared;
    let limit = queries.first().map_or(0, |query| query.limit);
    let (mut rows, mut total): (Vec<Row>, u64) = (Vec::new(), 0);
    for query in queries {
        let page = store.list(query)?;
        let (kept, in_memory) = shelf.list(query);
        total += page.total + in_memory;
        rows.extend(page.rows);
        rows.extend(kept.iter().map(|row| Row::clone(row)));
    }
    rows.sort_unstable_by_key(|row| std::cmp::Reverse((row.changed, row.task)));
    rows.truncate(limit);
    let in_memory = |task| hub.live(task).and_then(|live| live.view()).or_else(|| shelf.view(task));
    let live: Vec<Option<TaskView>> = rows.iter().map(|row| in_memory(row.task)).collect();
    let rest = rows.iter().zip(&live).filter(|(_, live)| live.is_none());
    let rest: Vec<TaskId> = rest.map(|(row, _)| row.task).collect();
    let mut records = read_records(store, &rest, PAGE_BYTES)?.into_iter();
    let (mut tasks, mut bytes) = (Vec::with_capacity(rows.len()), 0);
    for (row, live) in rows.iter().zip(live) {
        let view = live.or_else(|| Some(Hub::view_stored(row, records.next()?)));
        let Some(view) = view else { break };
        bytes += view.record.bytes();
        if bytes > PAGE_BYTES && !tasks.is_empty() {
            break;
        }
        tasks.push(view);
    }
    let more = rows.len() == limit || tasks.len() < rows.len();
    let last = tasks.len().checked_sub(1).and_then(|last| rows.get(last)).filter(|_| more);
    let next = last.map(|row| token(row.changed, row.task));
    Ok(Page { tasks, next, total })
}

pub(super) fn stored(store: &Store, row: &Row) -> Result<TaskView, ReadError> {
    Ok(Hub::view_stored(row, read_record(store, row.task)?))
}

pub(crate) fn token(changed: Time, task: TaskId) -> String {
    format!("{:016x}{task}", changed.as_micros())
}

pub(crate) fn read_token(token: &str) -> Option<(Time, TaskId)> {
    let (changed, task) = token.split_at_checked(16)?;
    Some((Time::from_micros(u64::from_str_radix(changed, 16).ok()?), TaskId::parse(task)?))
}

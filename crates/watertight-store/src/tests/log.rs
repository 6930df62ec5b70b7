//! The way from the log to the tables: what is read on it, and what a crash anywhere on it leaves.

use std::path::Path;

use rusqlite::Connection;
use watertight_engine::ids::TaskId;
use watertight_engine::record::TaskState;
use watertight_policy::time::Span;

use super::*;
use crate::{ListQuery, Record};

fn inside(directory: &Path) -> Connection {
    Connection::open(directory.join("cell-0.sqlite")).unwrap()
}

fn count(directory: &Path, table: &str) -> i64 {
    inside(directory).query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
}

/// All that a store says of some tasks.
#[derive(PartialEq, Debug)]
struct Told {
    rows: Vec<Option<Row>>,
    bodies: Vec<(Option<Body>, Option<Record>)>,
    keys: Vec<bool>,
    contexts: Vec<bool>,
    live: usize,
    listed: Vec<TaskId>,
}

fn told(store: &Store, tasks: std::ops::RangeInclusive<u128>) -> Told {
    let each = || tasks.clone().map(TaskId);
    Told {
        rows: each().map(|task| store.task(task).unwrap()).collect(),
        bodies: each().map(|task| (store.message(task, 1).unwrap(), store.record(task).unwrap())).collect(),
        keys: tasks.clone().map(|n| store.key(&key_of(&row(n))).unwrap().is_some()).collect(),
        contexts: tasks.clone().map(|n| store.context(&context_of(&row(n))).unwrap().is_some()).collect(),
        live: store.load().unwrap().len(),
        listed: store.list(&ListQuery::of(row(1).principal)).unwrap().rows.iter().map(|row| row.task).collect(),
    }
}

/// Twelve tasks: some are only accepted, some over, some with deltas, some with large texts that replace each other.
fn story(store: &Store, fence: u64) {
    for n in 1..=12 {
        let first = row(n);
        let message = if n % 4 == 0 { bulk(100_000) } else { body(&format!("message {n}")) };
        let writes = vec![with_message(&first, message), save_key(&first), save_context(&first, "far")];
        assert_eq!(commit(store, fence, writes), Ok(()));
        if n % 3 == 0 {
            continue;
        }
        let second = next(&first, TaskState::Working);
        let record = if n % 2 == 0 { bulk(90_000) } else { body("half") };
        assert_eq!(commit(store, fence, vec![with_record(&second, record)]), Ok(()));
        store.append(first.task, fence, 1, body("delta"));
        store.append(first.task, fence, 2, bulk(70_000));
        if n % 5 == 0 {
            continue;
        }
        let third = Row { changed: at(1_000 + n as u64), ..next(&second, TaskState::Completed) };
        let record = if n % 4 == 0 { bulk(80_000) } else { body("whole") };
        assert_eq!(commit(store, fence, vec![with_record(&third, record)]), Ok(()));
    }
    assert_eq!(commit(store, fence, vec![]), Ok(()));
}

#[test]
fn what_is_read_does_not_depend_on_where_it_is() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    story(&store, lease.fence);
    let fresh = told(&store, 1..=13);
    let (memory, lease) = Store::memory();
    story(&memory, lease.fence);
    assert_eq!(fresh, told(&memory, 1..=13));
    store.settle();
    assert_eq!((count(home.path(), "log"), count(home.path(), "delegation")), (0, 12));
    assert_eq!(fresh, told(&store, 1..=13));
    assert_eq!(count(home.path(), "pending"), 0, "what was written ahead and replaced is gone");
    let all = "body WHERE first NOT IN (SELECT id FROM payload)";
    assert_eq!(count(home.path(), all), 0);
    let sizes = "payload WHERE id NOT IN (SELECT p.id FROM payload p, body b WHERE p.id >= b.first AND p.id < b.first + b.pieces)";
    assert_eq!(count(home.path(), sizes), 0, "no litter");
    store.close();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    assert_eq!(fresh, told(&store, 1..=13));
}

#[test]
fn a_task_is_written_to_its_place_once_and_not_at_every_commit() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    for n in 1..=200 {
        let first = row(n);
        assert_eq!(commit(&store, lease.fence, vec![save(&first), save_key(&first)]), Ok(()));
        let ended = next(&first, TaskState::Completed);
        assert_eq!(commit(&store, lease.fence, vec![with_record(&ended, body("done"))]), Ok(()));
    }
    assert_eq!(count(home.path(), "delegation"), 0, "others would wait for it");
    assert!(count(home.path(), "log") > 0);
    assert_eq!(store.list(&ListQuery::of(row(1).principal)).unwrap().total, 200);
    // When it is quiet, it is done.
    let patience = std::time::Duration::from_millis(20);
    let settled = (0..500).any(|_| {
        std::thread::sleep(patience);
        count(home.path(), "log") == 0
    });
    assert!(settled);
    assert_eq!(count(home.path(), "delegation"), 200);
}

/// The log is put back as it was before it was taken to the tables, from every row on: as after a crash that came when
/// only so much of it had been removed.
#[test]
fn to_take_the_same_to_the_tables_twice_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("0");
    let (store, lease) = Store::open(&directory, 0).unwrap();
    story(&store, lease.fence);
    let before = told(&store, 1..=13);
    inside(&directory).execute_batch("CREATE TABLE kept AS SELECT * FROM log").unwrap();
    let rows = count(&directory, "kept");
    assert!(rows > 20);
    store.close();
    assert_eq!((count(&directory, "log"), count(&directory, "delegation")), (0, 12));
    for from in 0..=rows {
        inside(&directory).execute_batch(&format!("INSERT INTO log SELECT * FROM kept WHERE seq > {from}")).unwrap();
        let (store, lease) = Store::open(&directory, 0).unwrap();
        assert_eq!(told(&store, 1..=13), before, "from {from}");
        let n = u128::try_from(from).unwrap() + 100;
        assert_eq!(commit(&store, lease.fence, vec![with_message(&row(n), bulk(100_000))]), Ok(()));
        assert_eq!(commit(&store, lease.fence, vec![save(&next(&row(n), TaskState::Failed))]), Ok(()));
        store.prune(at(1 << 40), Span::MAX, Span::MAX).unwrap();
        inside(&directory).execute_batch(&format!("DELETE FROM delegation WHERE hex(task) = '{n:032X}'")).unwrap();
        store.close();
    }
}

#[test]
fn what_was_removed_does_not_come_back_from_the_log() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    let old = |n| Row { state: TaskState::Completed, ..row(n) };
    let writes = (1..=300).flat_map(|n| [with_record(&old(n), body("old")), save_key(&old(n))]).collect();
    assert_eq!(commit(&store, lease.fence, writes), Ok(()));
    let live = Row { changed: at(9_000), ..row(1_000) };
    assert_eq!(commit(&store, lease.fence, vec![save(&live)]), Ok(()));
    inside(home.path()).execute_batch("CREATE TABLE kept AS SELECT * FROM log").unwrap();
    let pruned = store.prune(at(10_000), Span::from_secs(5), Span::from_secs(5)).unwrap();
    assert_eq!((pruned.tasks, pruned.keys), (300, 300));
    assert_eq!(store.task(TaskId(7)), Ok(None));
    assert_eq!(count(home.path(), "log"), 0);
    store.close();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    assert_eq!((store.load().unwrap(), store.key(&key_of(&old(7)))), (vec![live], Ok(None)));
}

#[test]
fn a_garbled_log_is_said() {
    let home = tempfile::tempdir().unwrap();
    drop(Store::open(home.path(), 0).unwrap());
    inside(home.path()).execute_batch("INSERT INTO log VALUES (7, x'0109')").unwrap();
    let text = Store::open(home.path(), 0).err().unwrap().to_string();
    assert!(text.contains("cell-0.sqlite") && text.contains("row 7 of the log makes no sense"), "{text}");
}

/// A directory as the first schema left it.
#[test]
fn a_store_of_the_first_schema_is_taken_over() {
    let home = tempfile::tempdir().unwrap();
    let connection = inside(home.path());
    connection.execute_batch(include_str!("../sqlite/schema/1.sql")).unwrap();
    let sql = "PRAGMA application_id = 2004117364; PRAGMA user_version = 1; PRAGMA journal_mode = WAL; \
        INSERT INTO meta VALUES (1, 0, 41, 5000, 0, 0); INSERT INTO pair VALUES (3, 'acme', 'planner', 'hotels'); \
        INSERT INTO delegation VALUES (1, x'00000000000000000000000000000001', 2, 3, 'ctx-1', 'theirs', NULL, \
          x'00000000000000000000000000000001', x'00000000000000000000000000000002', 1, 1, NULL, 2, 0, 0, NULL, 1, 1000, 2000, \
          1, 1, 'm-1', x'00000000000000000000000000000007', 2, NULL, 0, 9223372036854775807, 60000000, 4, 8, 1, NULL); \
        INSERT INTO body VALUES (x'00000000000000000000000000000001', 0, 1, 1, 1, 1, 5), \
          (x'00000000000000000000000000000001', 1, 0, 1, 2, 1, 4); \
        INSERT INTO payload VALUES (1, CAST('hello' AS BLOB)), (2, CAST('half' AS BLOB)); \
        INSERT INTO dedupe VALUES (1, 3, 'm-1', x'00000000000000000000000000000007', x'00000000000000000000000000000001', 1); \
        INSERT INTO context VALUES (3, 'ctx-1', 'far');";
    connection.execute_batch(sql).unwrap();
    drop(connection);
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(lease.fence, 42);
    let first = store.task(TaskId(1)).unwrap().unwrap();
    assert_eq!((first.version, first.state, first.parent), (2, TaskState::Working, Some(TaskId(2))));
    assert_eq!(store.load(), Ok(vec![first.clone()]));
    assert_eq!(store.message(TaskId(1), 1), Ok(Some(body("hello"))));
    assert_eq!(recorded(&store, TaskId(1)), Some((body("half"), vec![])));
    assert_eq!(store.key(&key_of(&row(1))).unwrap().map(|known| known.fingerprint), Some(7));
    assert_eq!(store.context(&context_of(&row(1))), Ok(Some("far".into())));
    assert_eq!(store.remote_task(&first.agent, "theirs"), Ok(Some(TaskId(1))));
    assert_eq!(store.children(TaskId(2), 9), Ok(vec![first.clone()]));
    let ended = next(&first, TaskState::Completed);
    assert_eq!(commit(&store, lease.fence, vec![with_record(&ended, body("whole"))]), Ok(()));
    store.settle();
    assert_eq!(recorded(&store, TaskId(1)), Some((body("whole"), vec![])));
    assert_eq!((store.load(), count(home.path(), "payload")), (Ok(vec![]), 2));
    assert_eq!(inside(home.path()).query_row("PRAGMA user_version", (), |row| row.get(0)), Ok(7));
}

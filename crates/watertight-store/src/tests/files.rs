//! What only a store on disk has: its files, its owner, its limits.

use std::path::Path;

use rusqlite::Connection;
use watertight_engine::ids::TaskId;
use watertight_engine::record::TaskState;
use watertight_policy::time::Span;

use super::newness::known;
use super::*;

fn refused(directory: &Path, cell: u32) -> String {
    Store::open(directory, cell).err().expect("it opened").to_string()
}

fn inside(directory: &Path) -> Connection {
    Connection::open(directory.join("cell-0.sqlite")).unwrap()
}

fn count(directory: &Path, sql: &str) -> i64 {
    inside(directory).query_row(sql, (), |row| row.get(0)).unwrap()
}

#[test]
fn everything_is_there_after_closing_and_opening() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(&home.path().join("made/here"), 3).unwrap();
    let first = full(1);
    let write = Write { record: Some(bulk(100_000)), ..with_message(&first, bulk(70_000)) };
    assert_eq!(commit(&store, lease.fence, vec![write, save_key(&first), save_context(&first, "far")]), Ok(()));
    store.append(first.task, lease.fence, 1, body("delta"));
    store.close();
    let (store, again) = Store::open(&home.path().join("made/here"), 3).unwrap();
    assert_eq!(again.fence, lease.fence + 1);
    assert!(again.now >= lease.now);
    assert_eq!(store.load(), Ok(vec![first.clone()]));
    assert_eq!(store.message(first.task, 2), Ok(Some(bulk(70_000))));
    assert_eq!(recorded(&store, first.task), Some((bulk(100_000), vec![body("delta")])));
    assert!(store.key(&key_of(&first)).unwrap().is_some());
    assert_eq!(commit(&store, lease.fence, vec![]), Err(CommitError::Fenced), "the lease of before is over");
    assert_eq!(commit(&store, again.fence, vec![with_record(&next(&first, TaskState::Failed), bulk(70_001))]), Ok(()));
    assert_eq!(recorded(&store, first.task), Some((bulk(70_001), vec![])));
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    let home = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    let text = refused(home.path(), 0);
    assert!(text.contains("cell-0.lock"), "{text}");
    assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
    assert!(Store::open(home.path(), 1).is_ok(), "another cell is another store");
    let clone = store.clone();
    drop(store);
    assert!(Store::open(home.path(), 0).is_err());
    drop(clone);
    assert!(Store::open(home.path(), 0).is_ok(), "the last handle lets go");
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    drop(Store::open(home.path(), 0).unwrap());
    inside(home.path()).execute_batch("PRAGMA user_version = 99").unwrap();
    let text = refused(home.path(), 0);
    assert!(text.contains("newer watertight (schema 99, this one knows 7)"), "{text}");

    std::fs::rename(home.path().join("cell-0.sqlite"), home.path().join("cell-5.sqlite")).unwrap();
    inside(home.path()).execute_batch("CREATE TABLE theirs (x)").unwrap();
    let text = refused(home.path(), 0);
    assert!(text.contains("another program made it"), "{text}");
    assert_eq!(count(home.path(), "PRAGMA user_version"), 0);

    Connection::open(home.path().join("cell-5.sqlite")).unwrap().execute_batch("PRAGMA user_version = 7").unwrap();
    let text = refused(home.path(), 5);
    assert!(text.contains("it is that of cell 0"), "{text}");

    std::fs::write(home.path().join("cell-6.sqlite"), "this is a letter, and not a database at all".repeat(99))
        .unwrap();
    let text = refused(home.path(), 6);
    assert!(text.contains("cell-6.sqlite") && text.contains("not a database"), "{text}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let text = refused(&file.join("below"), 0);
    assert!(text.starts_with(&format!("cannot create {}", file.join("below").display())), "{text}");

    let closed = home.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let mut rights = std::fs::metadata(&closed).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(&closed, rights).unwrap();
    // The superuser may write everywhere but into what the kernel shows.
    let closed = if std::fs::write(closed.join("probe"), "").is_ok() { Path::new("/proc/self").into() } else { closed };
    let text = refused(&closed, 0);
    assert!(text.starts_with(&format!("cannot open {}: ", closed.join("cell-0.lock").display())), "{text}");
}

#[cfg(unix)]
#[test]
fn the_files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("cells");
    let (store, lease) = Store::open(&directory, 0).unwrap();
    assert_eq!(commit(&store, lease.fence, vec![save(&row(1))]), Ok(()));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(files.iter().all(|it| mode(it) == 0o600), "{files:?}");
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing_half_written() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(commit(&store, lease.fence, vec![with_message(&row(1), body("hello"))]), Ok(()));
    store.limit_pages(60);
    let writes = (2..=60).map(|n| (lease.fence, vec![with_message(&row(n), bulk(60_000))]));
    let results: Vec<_> = commit_all(&store, writes).into_iter().collect();
    let first = results.iter().position(|(_, result)| result.is_err()).unwrap();
    let Err(CommitError::Unavailable(text)) = &results[first].1 else { panic!("{:?}", results[first]) };
    assert!(text.contains("cell-0.sqlite") && text.contains("full"), "{text}");
    assert!(results[first..].iter().all(|(_, result)| result.is_err()));
    assert_eq!(store.load().unwrap().len(), first + 1);
    let large = commit(&store, lease.fence, vec![with_message(&row(99), bulk(1_000_000))]);
    assert!(matches!(large, Err(CommitError::Unavailable(_))));

    store.limit_pages(100_000);
    let fence = store.relet().unwrap().fence;
    assert_eq!(commit(&store, fence, vec![with_message(&row(99), bulk(1_000_000))]), Ok(()));
    assert_eq!(store.message(TaskId(99), 1), Ok(Some(bulk(1_000_000))));
}

#[test]
fn large_payloads_go_ahead_in_pieces_and_leave_no_litter() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    let size = 5 * 1024 * 1024;
    assert_eq!(commit(&store, lease.fence, vec![with_message(&row(1), bulk(size))]), Ok(()));
    let stats = store.stats();
    assert_eq!((stats.transactions, stats.piece_transactions), (1, 5));
    store.settle();
    assert_eq!(count(home.path(), "SELECT max(length(bytes)) FROM payload"), 65_536);
    assert_eq!(count(home.path(), "SELECT count(*) FROM pending"), 0);

    let wrong = Row { version: 5, ..row(2) };
    let refused = commit(&store, lease.fence, vec![with_message(&wrong, bulk(size))]);
    assert_eq!(refused, Err(CommitError::Conflict { task: TaskId(2) }));
    assert_eq!(count(home.path(), "SELECT count(*) FROM payload"), 160);
    let fence = store.relet().unwrap().fence;
    assert_eq!(count(home.path(), "SELECT count(*) FROM payload"), 80, "what belongs to nothing is gone");

    let ended = next(&row(1), TaskState::Completed);
    assert_eq!(commit(&store, fence, vec![with_record(&ended, bulk(size))]), Ok(()));
    store.close();
    // As if the process had been killed between the pieces and their row.
    let sql = "INSERT INTO pending VALUES (1000, 40); \
               WITH RECURSIVE n(x) AS (SELECT 1000 UNION ALL SELECT x + 1 FROM n WHERE x < 1017) \
               INSERT INTO payload SELECT x, x'00' FROM n;";
    inside(home.path()).execute_batch(sql).unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(count(home.path(), "SELECT max(id) FROM payload WHERE id < 1000"), 240);
    assert_eq!(count(home.path(), "SELECT count(*) + (SELECT count(*) FROM pending) FROM payload WHERE id >= 1000"), 0);
    assert_eq!(store.message(TaskId(1), 1), Ok(Some(bulk(size))));
    assert_eq!(commit(&store, lease.fence, vec![with_message(&row(3), body("next"))]), Ok(()));
    assert_eq!(store.message(TaskId(3), 1), Ok(Some(body("next"))));

    store.prune(lease.now, Span::from_secs(1), Span::from_secs(1)).unwrap();
    let left = "SELECT count(*) FROM payload, (SELECT count(*) AS bodies FROM body) WHERE bodies = 1";
    assert_eq!(count(home.path(), left), 1, "only the running one's message is left");
}

#[test]
fn readers_see_what_was_answered_while_others_write() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..50 {
                    let rows = store.load().unwrap();
                    let tasks: Vec<u128> = rows.iter().map(|row| row.task.0).collect();
                    assert!(tasks.iter().copied().eq(1..=tasks.len() as u128), "reader {reader} sees a gap");
                }
            });
        }
        for n in 1..=300 {
            assert_eq!(commit(&store, lease.fence, vec![save(&row(n))]), Ok(()));
            assert!(store.task(TaskId(n)).unwrap().is_some());
        }
    });
}

#[test]
fn questions_are_answered_by_an_index() {
    let home = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    drop(store);
    let connection = inside(home.path());
    for (sql, index) in crate::sqlite::questions::ANSWERED_BY {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let nothing = rusqlite::params_from_iter(vec![rusqlite::types::Null; statement.parameter_count()]);
        let plan: Vec<String> = statement.query_map(nothing, |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        let plan = plan.join("; ");
        assert!(plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE") || sql.contains("d.context = ?2"), "{sql}: {plan}");
    }
}

#[test]
fn who_wrote_past_the_lock_is_obeyed() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    inside(home.path()).execute_batch("UPDATE meta SET fence = fence + 5").unwrap();
    let answers = commit_all(&store, (1..=3).map(|n| (lease.fence, vec![save(&row(n))])));
    assert!(answers.into_iter().all(|(_, result)| result == Err(CommitError::Fenced)));
    assert_eq!(store.load(), Ok(vec![]));
    let lease = store.relet().unwrap();
    assert_eq!(commit(&store, lease.fence, vec![save(&row(1))]), Ok(()));
}

#[test]
fn who_wrote_past_the_lock_keeps_what_it_wrote() {
    let home = tempfile::tempdir().unwrap();
    let (first, lease) = Store::open(home.path(), 0).unwrap();
    known(&first);
    let (one, two) = (row(1), row(2));
    assert_eq!(commit(&first, lease.fence, vec![save(&one), save_key(&one)]), Ok(()));
    // It is in the log of the first, and on its way to the tables, when somebody removes the lock and starts another.
    let gate = hold(&first, lease.fence);
    std::fs::remove_file(home.path().join("cell-0.lock")).unwrap();
    let (second, newer) = Store::open(home.path(), 0).unwrap();
    let ended = next(&one, TaskState::Completed);
    assert_eq!(commit(&second, newer.fence, vec![with_record(&ended, body("done"))]), Ok(()));
    assert_eq!(commit(&second, newer.fence, vec![save(&two), save_key(&two)]), Ok(()));
    second.settle();
    drop(gate);
    first.settle();
    assert_eq!(second.task(one.task), Ok(Some(ended.clone())), "what ended has not ended any more");
    assert_eq!(commit(&first, lease.fence, vec![save(&row(3))]), Err(CommitError::Fenced));
    drop(second);
    first.relet().unwrap();
    assert_eq!((first.task(one.task), first.task(two.task)), (Ok(Some(ended)), Ok(Some(two.clone()))));
    assert!(!first.is_new_key(&key_of(&two)), "the other one stored it");
}

#[test]
fn what_makes_no_sense_is_said_and_not_guessed() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(commit(&store, lease.fence, vec![with_message(&row(1), bulk(100_000))]), Ok(()));
    let garbled = |text: &str| store.task(TaskId(1)).is_err_and(|error| error.to_string().contains(text));
    store.settle();
    inside(home.path()).execute_batch("UPDATE delegation SET state = 9").unwrap();
    assert!(garbled("9"));
    inside(home.path()).execute_batch("UPDATE delegation SET state = 5, reason = 'bad_hair_day'").unwrap();
    assert!(garbled("no reason is called bad_hair_day"));
    inside(home.path()).execute_batch("DELETE FROM payload WHERE id = 2").unwrap();
    let error = store.message(TaskId(1), 1).unwrap_err();
    assert!(matches!(&error, crate::ReadError::Corrupt(text) if text.contains("not all there")), "{error}");
}

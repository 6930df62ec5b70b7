//! What is surely new: never said of what is stored, and mostly of what is not.

use std::time::Duration;

use watertight_engine::record::TaskState;
use watertight_policy::time::Span;

use super::*;

/// Waits until it is known; an empty store of a quiet machine needs milliseconds.
pub(super) fn known(store: &Store) {
    let unheard = key_of(&row(1 << 100));
    let knows = (0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        store.is_new_key(&unheard)
    });
    assert!(knows);
}

fn news(n: u128) -> Row {
    Row { remote_task: Some(format!("remote-{n}").as_str().into()), ..row(n) }
}

fn is_new(store: &Store, n: u128) -> [bool; 3] {
    let row = news(n);
    let remote = row.remote_task.clone().unwrap();
    [store.is_new_key(&key_of(&row)), store.is_new_context(&context_of(&row)), store.is_new_remote(&row.agent, &remote)]
}

#[test]
fn nothing_that_is_stored_is_ever_called_new() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    // From the first commit on, while it is not known yet too.
    for n in 1..=1_000 {
        let row = news(n);
        assert_eq!(commit(&store, lease.fence, vec![save(&row), save_key(&row), save_context(&row, "far")]), Ok(()));
        assert_eq!(is_new(&store, n), [false; 3], "{n}");
        if n == 500 {
            store.settle();
            known(&store);
        }
    }
    let wrong = (2_000..4_000).filter(|&n| is_new(&store, n) != [true; 3]).count();
    assert!(wrong < 20, "{wrong}");
    store.close();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(is_new(&store, 7), [false; 3], "what is not known yet is looked up");
    known(&store);
    assert!((1..=1_000).all(|n| is_new(&store, n) == [false; 3]));

    let ended = Row { changed: at(5_000), ..next(&news(7), TaskState::Completed) };
    assert_eq!(commit(&store, lease.fence, vec![save(&ended)]), Ok(()));
    store.prune(at(6_000), Span::MAX, Span::from_millis(500)).unwrap();
    assert_eq!(store.key(&key_of(&ended)), Ok(None), "its key is gone");
    store.close();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    known(&store);
    let [key, context, remote] = is_new(&store, 7);
    assert!(!context && !remote, "the task is there, and asked for by these");
    assert!(key || (1..=20).any(|_| store.is_new_key(&key_of(&ended))) || is_new(&store, 8) == [false; 3]);
}

#[test]
fn when_the_bits_are_full_new_ones_hold_all_that_is_stored() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    known(&store);
    // More than they have room for at first.
    let keys = |from: u128| (from..from + 400).map(|n| save_key(&row(n))).collect::<Vec<_>>();
    let answers = commit_all(&store, (0..350).map(|at| (lease.fence, keys(at * 400 + 1))));
    assert!(answers.into_iter().all(|(_, result)| result.is_ok()));
    known(&store);
    assert!((1..=140_000).step_by(7).all(|n| !store.is_new_key(&key_of(&row(n)))));
    let wrong = (1 << 90..(1 << 90) + 10_000).filter(|&n| !store.is_new_key(&key_of(&row(n)))).count();
    assert!(wrong < 100, "{wrong}");
}

/// The disk said that it was not written, and it was: a row of the log that nobody knows of.
#[test]
fn a_commit_that_was_taken_for_lost_is_not_new() {
    let home = tempfile::tempdir().unwrap();
    let (other, lease) = Store::open(&home.path().join("other"), 0).unwrap();
    assert_eq!(commit(&other, lease.fence, vec![save(&row(1)), save_key(&row(1))]), Ok(()));
    let file = |of: &str| rusqlite::Connection::open(home.path().join(of).join("cell-0.sqlite")).unwrap();
    let bytes: Vec<u8> = file("other").query_row("SELECT bytes FROM log", (), |row| row.get(0)).unwrap();
    let (store, _) = Store::open(&home.path().join("store"), 0).unwrap();
    known(&store);
    file("store").execute("INSERT INTO log VALUES (1, ?1)", [bytes]).unwrap();
    store.relet().unwrap();
    assert!(store.key(&key_of(&row(1))).unwrap().is_some());
    assert!(!store.is_new_key(&key_of(&row(1))));
}

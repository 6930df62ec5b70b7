//! Outboxes, the same in every kind of store: what was put in and not taken is there, in order, and numbers are not
//! forgotten when all is read.

use watertight_engine::ids::{AgentId, Owner, Principal};
use watertight_engine::outbox::Stored;
use watertight_engine::record::{Notice, Save, TaskState};

use super::*;

fn post(notice: &Notice) -> Write {
    Write::bare(Save::Notice(notice.clone().into()))
}

fn take(owner: &Owner, first: u64, last: u64, lost: u64) -> Write {
    Write::bare(Save::Taken { owner: owner.clone(), first, last, lost })
}

fn of_caller(seq: u64) -> Notice {
    let owner = Owner::Caller(Principal { tenant: "acme".into(), caller: "planner".into() });
    Notice { owner, reason: None, state: TaskState::InputRequired, ..notice(seq) }
}

fn numbers(store: &Store, owner: &Owner, after: u64, limit: usize) -> Vec<u64> {
    store.notices(owner, after, limit).unwrap().iter().map(|notice| notice.seq).collect()
}

/// Where what was written is: on its way, or in its place.
fn in_both_places(store: &Store, look: impl Fn()) {
    look();
    store.settle();
    look();
}

#[test]
fn what_was_put_in_is_there_in_order_until_it_is_taken() {
    both(|store, lease| {
        let owner = notice(1).owner;
        let all: Vec<Write> = (1..=9).map(|seq| post(&notice(seq))).chain([post(&of_caller(1))]).collect();
        assert_eq!(commit(&store, lease.fence, all), Ok(()));
        in_both_places(&store, || {
            assert_eq!(store.notices(&owner, 7, 9), Ok(vec![notice(8), notice(9)]));
            assert_eq!(numbers(&store, &owner, 0, 3), [1, 2, 3]);
            assert_eq!(numbers(&store, &owner, u64::MAX, 3), []);
            assert_eq!(store.notices(&of_caller(1).owner, 0, 9), Ok(vec![of_caller(1)]), "an agent is not its caller");
            let other = Owner::Agent("evil".into(), AgentId::new("planner"));
            assert_eq!(numbers(&store, &other, 0, 9), []);
        });
        let some = vec![take(&owner, 1, 3, 0), take(&owner, 6, 6, 0), post(&notice(10))];
        assert_eq!(commit(&store, lease.fence, some), Ok(()));
        in_both_places(&store, || {
            assert_eq!(numbers(&store, &owner, 0, 9), [4, 5, 7, 8, 9, 10]);
            assert_eq!(numbers(&store, &owner, 4, 2), [5, 7], "what is taken does not count");
            let waiting = [4, 5, 7, 8, 9, 10].map(|seq| (seq, at(seq))).to_vec();
            let stored = Stored { owner: owner.clone(), last: 10, lost: 0, waiting };
            assert_eq!(store.outboxes().unwrap()[0], stored);
        });
        assert_eq!(commit(&store, lease.fence, vec![take(&owner, 4, 10, 5)]), Ok(()));
        in_both_places(&store, || {
            assert_eq!(numbers(&store, &owner, 0, 9), []);
            let stored = Stored { owner: owner.clone(), last: 10, lost: 5, waiting: vec![] };
            assert_eq!(store.outboxes().unwrap()[0], stored, "no number is given out twice");
        });
    });
}

#[test]
fn what_is_told_before_it_is_in_its_place_never_gets_there() {
    both(|store, lease| {
        let owner = notice(1).owner;
        for seq in 1..=3 {
            assert_eq!(commit(&store, lease.fence, vec![post(&notice(seq))]), Ok(()));
            assert_eq!(commit(&store, lease.fence, vec![take(&owner, seq, seq, 0)]), Ok(()));
        }
        assert_eq!(commit(&store, lease.fence, vec![post(&notice(4))]), Ok(()));
        in_both_places(&store, || assert_eq!(numbers(&store, &owner, 0, 9), [4]));
    });
}

#[test]
fn a_restart_finds_what_was_on_its_way() {
    let home = tempfile::tempdir().unwrap();
    let owner = notice(1).owner;
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(commit(&store, lease.fence, (1..=3).map(|seq| post(&notice(seq))).collect()), Ok(()));
    store.settle();
    assert_eq!(commit(&store, lease.fence, vec![take(&owner, 1, 1, 1), post(&notice(4))]), Ok(()));
    // Loaded again, what is in the log is played over the tables.
    let lease = store.relet().unwrap();
    assert_eq!(numbers(&store, &owner, 0, 9), [2, 3, 4]);
    assert_eq!(commit(&store, lease.fence, vec![take(&owner, 2, 2, 1)]), Ok(()));
    store.close();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    let waiting = vec![(3, at(3)), (4, at(4))];
    assert_eq!(store.outboxes(), Ok(vec![Stored { owner, last: 4, lost: 1, waiting }]));
}

#[test]
fn a_directory_of_schema_3_is_taken_over() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(commit(&store, lease.fence, vec![save(&row(1))]), Ok(()));
    store.close();
    let inside = rusqlite::Connection::open(home.path().join("cell-0.sqlite")).unwrap();
    let back = "DROP INDEX delegation_over; ALTER TABLE delegation DROP COLUMN request; ALTER TABLE delegation DROP COLUMN result; DROP TABLE late; DROP TABLE hook; DROP TABLE notice; DROP TABLE outbox; ALTER TABLE delegation DROP COLUMN outbox; PRAGMA user_version = 3";
    inside.execute_batch(back).unwrap();
    drop(inside);
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    assert_eq!(store.load(), Ok(vec![row(1)]), "nobody had asked for word of its end");
    assert_eq!(commit(&store, lease.fence, vec![post(&notice(1))]), Ok(()));
    assert_eq!(numbers(&store, &notice(1).owner, 0, 9), [1]);
}

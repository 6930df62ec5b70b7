//! Writing: order, fences, compare and set, poisoning, group commit. Each story is told to both kinds of store.

use watertight_engine::ids::TaskId;
use watertight_engine::record::{Cancel, Save, TaskState};
use watertight_policy::time::Span;

use super::*;

#[test]
fn a_row_comes_back_as_it_was_saved() {
    both(|store, lease| {
        let plain = row(10);
        assert_eq!(commit(&store, lease.fence, vec![save(&plain)]), Ok(()));
        assert_eq!(store.task(plain.task), Ok(Some(plain.clone())));
        let changed = Row { version: 2, changed: at(99), created: plain.created, ..full(10) };
        let changed = Row { root: plain.root, parent: None, depth: 0, ..changed };
        assert_eq!(commit(&store, lease.fence, vec![save(&changed)]), Ok(()));
        assert_eq!(store.task(plain.task), Ok(Some(changed)));
        let full = full(11);
        assert_eq!(commit(&store, lease.fence, vec![save(&full)]), Ok(()));
        assert_eq!(store.task(full.task), Ok(Some(full)));
        assert_eq!(store.task(TaskId(12)), Ok(None));
    });
}

#[test]
fn answers_come_in_order_and_once() {
    both(|store, lease| {
        let answers = commit_all(&store, (1..=500).map(|n| (lease.fence, vec![save(&row(n))])));
        let all: Vec<_> = answers.into_iter().collect();
        assert_eq!(all, (1..=500).map(|n| (n, Ok(()))).collect::<Vec<_>>());
        assert_eq!((store.backlog(), store.load().unwrap().len()), (0, 500));
    });
}

#[test]
fn what_waits_is_one_transaction() {
    both(|store, lease| {
        let gate = hold(&store, lease.fence);
        let before = store.stats();
        let answers = commit_all(&store, (1..=100).map(|n| (lease.fence, vec![save(&row(n)), save_key(&row(n))])));
        assert_eq!(store.backlog(), 101 - 1, "the held one has its answer already");
        assert!(!store.room());
        drop(gate);
        assert!(answers.into_iter().all(|(_, result)| result.is_ok()));
        let after = store.stats();
        assert_eq!(after.transactions - before.transactions, 1);
        assert_eq!(after.commits - before.commits, 100);
        assert!(store.room());
    });
}

#[test]
fn a_transaction_takes_at_most_512_rows_and_a_mebibyte() {
    both(|store, lease| {
        let gate = hold(&store, lease.fence);
        let before = store.stats().transactions;
        let answers = commit_all(&store, (1..=1_100).map(|n| (lease.fence, vec![save(&row(n))])));
        drop(gate);
        assert_eq!(answers.into_iter().filter(|(_, result)| result.is_ok()).count(), 1_100);
        assert_eq!(store.stats().transactions - before, 3);

        let gate = hold(&store, lease.fence);
        let before = store.stats().transactions;
        let text = bulk(60_000);
        let fat = (2_001..=2_040).map(|n| (lease.fence, vec![with_message(&row(n), text.clone())]));
        let answers = commit_all(&store, fat);
        drop(gate);
        assert_eq!(answers.into_iter().filter(|(_, result)| result.is_ok()).count(), 40);
        assert_eq!(store.stats().transactions - before, 3, "17 of 60.5 kB each fit");
    });
}

#[test]
fn an_old_fence_writes_nothing_and_harms_nobody() {
    both(|store, old| {
        let new = store.relet().unwrap();
        assert!(new.fence > old.fence && new.now >= old.now);
        let gate = hold(&store, new.fence);
        let answers = commit_all(
            &store,
            [(new.fence, vec![save(&row(1))]), (old.fence, vec![save(&row(2))]), (new.fence, vec![save(&row(3))])],
        );
        drop(gate);
        let all: Vec<_> = answers.into_iter().collect();
        assert_eq!(all, [(1, Ok(())), (2, Err(CommitError::Fenced)), (3, Ok(()))]);
        assert_eq!(store.task(TaskId(2)), Ok(None));
        assert_eq!(commit(&store, new.fence + 1, vec![save(&row(4))]), Err(CommitError::Fenced));
    });
}

#[test]
fn a_row_follows_its_predecessor_or_not_at_all() {
    both(|store, lease| {
        let first = row(1);
        let conflict = Err(CommitError::Conflict { task: first.task });
        let mut fence = lease.fence;
        let mut refused = |wrong: &Row| {
            assert_eq!(commit(&store, fence, vec![save(wrong)]), conflict, "version {}", wrong.version);
            fence = store.relet().unwrap().fence;
            fence
        };
        let fence = refused(&Row { version: 2, ..first.clone() });
        assert_eq!(commit(&store, fence, vec![save(&first)]), Ok(()));
        refused(&first);
        refused(&Row { version: 3, ..first.clone() });
        refused(&Row { version: 0, ..first.clone() });
        assert_eq!(store.task(first.task), Ok(Some(first)));
    });
}

#[test]
fn a_terminal_state_is_written_once() {
    both(|store, lease| {
        let mut last = row(1);
        assert_eq!(commit(&store, lease.fence, vec![save(&last)]), Ok(()));
        last = Row { cancel: Cancel::Owed, ..next(&last, TaskState::Failed) };
        assert_eq!(commit(&store, lease.fence, vec![save(&last)]), Ok(()));
        last = Row { cancel: Cancel::Confirmed, late: Some(TaskState::Completed), ..next(&last, TaskState::Failed) };
        assert_eq!(commit(&store, lease.fence, vec![save(&last)]), Ok(()), "what is beside the state may change");
        let other = next(&last, TaskState::Completed);
        assert_eq!(commit(&store, lease.fence, vec![save(&other)]), Err(CommitError::Conflict { task: last.task }));
        assert_eq!(store.task(last.task), Ok(Some(last)));
    });
}

#[test]
fn a_commit_is_all_or_nothing_and_what_stands_on_it_fails() {
    both(|store, lease| {
        let gate = hold(&store, lease.fence);
        let before = store.stats().transactions;
        let halves =
            vec![save(&row(2)), save_key(&row(2)), save_context(&row(2), "far"), save(&Row { version: 9, ..row(3) })];
        let mut commits = vec![vec![save(&row(1))], halves, vec![save(&row(4))], vec![]];
        let answers = commit_all(&store, commits.drain(..).map(|writes| (lease.fence, writes)));
        drop(gate);
        let conflict = || Err(CommitError::Conflict { task: TaskId(3) });
        let all: Vec<_> = answers.into_iter().collect();
        assert_eq!(all, [(1, Ok(())), (2, conflict()), (3, conflict()), (4, conflict())]);
        assert_eq!(store.stats().transactions - before, 1);
        assert_eq!(commit(&store, lease.fence, vec![save(&row(5))]), conflict(), "until there is a new lease");
        let stored: Vec<_> = store.load().unwrap().into_iter().map(|row| row.task.0).collect();
        assert_eq!(stored, [1]);
        assert_eq!((store.key(&key_of(&row(2))), store.context(&context_of(&row(2)))), (Ok(None), Ok(None)));

        let fence = store.relet().unwrap().fence;
        assert_eq!(commit(&store, fence, vec![save(&row(2)), save_context(&row(2), "far")]), Ok(()));
        assert_eq!(store.context(&context_of(&row(2))), Ok(Some("far".into())));
    });
}

#[test]
fn several_saves_of_one_task_in_one_commit_follow_each_other() {
    both(|store, lease| {
        let first = row(1);
        let second = next(&first, TaskState::Working);
        let third = next(&second, TaskState::Completed);
        assert_eq!(commit(&store, lease.fence, vec![save(&first), save(&second), save(&third)]), Ok(()));
        assert_eq!(store.task(first.task), Ok(Some(third)));
    });
}

#[test]
fn a_message_that_is_promised_has_to_come() {
    both(|store, lease| {
        let save = Save::Delegation { row: row(1).into(), message: true, record: false };
        let incomplete = Err(CommitError::Incomplete { task: TaskId(1) });
        assert_eq!(commit(&store, lease.fence, vec![Write::bare(save)]), incomplete);
        assert_eq!(store.task(TaskId(1)), Ok(None));
    });
}

#[test]
fn a_broken_disk_fails_all_of_it_until_a_new_lease() {
    both(|store, lease| {
        assert_eq!(commit(&store, lease.fence, vec![save(&row(1))]), Ok(()));
        let gate = hold(&store, lease.fence);
        store.fail_after(0, 1);
        let answers = commit_all(&store, (2..=6).map(|n| (lease.fence, vec![save(&row(n)), save_key(&row(n))])));
        drop(gate);
        let failed = |result: &Result<(), CommitError>| matches!(result, Err(CommitError::Unavailable(_)));
        let all: Vec<_> = answers.into_iter().collect();
        assert_eq!(all.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(all.iter().all(|(_, result)| failed(result)), "{all:?}");
        assert!(failed(&commit(&store, lease.fence, vec![save(&row(7))])), "the disk is well, the engine is not");
        assert_eq!(store.load().unwrap().len(), 1);
        assert_eq!(store.key(&key_of(&row(2))), Ok(None));

        let fence = store.relet().unwrap().fence;
        assert_eq!(commit(&store, fence, vec![save(&row(2)), save_key(&row(2))]), Ok(()));
        assert!(store.key(&key_of(&row(2))).unwrap().is_some());
    });
}

#[test]
fn no_lease_is_given_out_by_a_broken_disk() {
    both(|store, lease| {
        store.fail_after(0, 2);
        assert!(matches!(store.relet(), Err(CommitError::Unavailable(_))));
        assert!(matches!(store.prune(at(1), Span::ZERO, Span::ZERO), Err(CommitError::Unavailable(_))));
        assert_eq!(commit(&store, lease.fence, vec![save(&row(1))]), Ok(()), "the old one still holds");
        assert_eq!(store.relet().unwrap().fence, lease.fence + 1);
    });
}

#[test]
fn a_lease_begins_after_everything_that_was_saved() {
    both(|store, lease| {
        let far = lease.now + Span::from_secs(3_600);
        assert_eq!(commit(&store, lease.fence, vec![save(&Row { changed: far, ..row(1) })]), Ok(()));
        assert_eq!(store.relet().unwrap().now, far);
    });
}

#[test]
fn relet_answers_what_was_handed_over_before() {
    both(|store, lease| {
        let gate = hold(&store, lease.fence);
        let answers = commit_all(&store, (1..=10).map(|n| (lease.fence, vec![save(&row(n))])));
        let other = store.clone();
        let waiting = std::thread::spawn(move || other.relet().unwrap());
        drop(gate);
        let new = waiting.join().unwrap();
        assert_eq!(answers.try_iter().filter(|(_, result)| result.is_ok()).count(), 10);
        assert_eq!((new.fence, store.load().unwrap().len()), (lease.fence + 1, 10));
    });
}

#[test]
fn close_writes_what_was_handed_over_and_refuses_the_rest() {
    both(|store, lease| {
        let gate = hold(&store, lease.fence);
        let answers = commit_all(&store, (1..=10).map(|n| (lease.fence, vec![save(&row(n))])));
        let other = store.clone();
        drop(gate);
        store.close();
        assert_eq!(answers.try_iter().filter(|(_, result)| result.is_ok()).count(), 10);
        let closed = commit(&other, lease.fence, vec![save(&row(11))]);
        assert_eq!(closed, Err(CommitError::Unavailable("it is closed".into())));
        assert!(other.relet().is_err() && other.prune(at(1), Span::ZERO, Span::ZERO).is_err());
        other.append(TaskId(1), lease.fence, 1, body("late"));
        other.close();
    });
}

#[test]
fn a_caller_that_panics_when_told_is_alone_with_it() {
    both(|store, lease| {
        store.commit(1, lease.fence, vec![save(&row(1))], Box::new(|_, _| panic!("a mistake of the one who is told")));
        assert_eq!(commit(&store, lease.fence, vec![save(&row(2))]), Ok(()));
        assert_eq!(store.backlog(), 0);
    });
}

#[test]
fn too_much_at_once_is_refused_in_its_place() {
    both(|store, lease| {
        let gate = hold(&store, lease.fence);
        let answers = commit_all(&store, (1..=8_200).map(|_| (lease.fence, vec![])));
        drop(gate);
        let all: Vec<_> = answers.into_iter().collect();
        assert!(all.is_sorted_by_key(|(n, _)| *n));
        let good = all.iter().take_while(|(_, result)| result.is_ok()).count();
        assert_eq!(good, 8_192);
        assert!(all.iter().skip(good).all(|(_, result)| matches!(result, Err(CommitError::Unavailable(_)))));
    });
}

//! Reading: bodies, keys, contexts, lists, and what pruning leaves.

use watertight_engine::ids::TaskId;
use watertight_engine::input::KnownKey;
use watertight_engine::record::{Cancel, Delivery, TaskState};
use watertight_policy::time::{Span, Time};

use super::*;
use crate::{ListQuery, Pruned};

#[test]
fn bodies_of_every_size_come_back_as_they_were() {
    both(|store, lease| {
        let sizes = [0, 1, 65_536, 65_537, 1_048_576, 5 * 1_048_576 + 17];
        for (n, size) in (1..).zip(sizes) {
            let (message, record) = (bulk(size), bulk(size / 2));
            let write = Write { record: Some(record.clone()), ..with_message(&row(n), message.clone()) };
            assert_eq!(commit(&store, lease.fence, vec![write]), Ok(()));
            assert_eq!(store.message(TaskId(n), 1), Ok(Some(message)), "{size}");
            assert_eq!(recorded(&store, TaskId(n)), Some((record, vec![])), "{size}");
        }
        assert_eq!((store.message(TaskId(1), 2), store.message(TaskId(99), 1)), (Ok(None), Ok(None)));
    });
}

#[test]
fn each_turn_has_its_message() {
    both(|store, lease| {
        let first = row(1);
        assert_eq!(commit(&store, lease.fence, vec![with_message(&first, body("one"))]), Ok(()));
        let mut second = next(&first, TaskState::Working);
        second.turn.no = 2;
        assert_eq!(commit(&store, lease.fence, vec![with_message(&second, body("two"))]), Ok(()));
        assert_eq!(store.message(first.task, 1), Ok(Some(body("one"))));
        assert_eq!(store.message(first.task, 2), Ok(Some(body("two"))));
    });
}

#[test]
fn deltas_follow_the_record_until_a_whole_one_replaces_them() {
    both(|store, lease| {
        let first = row(1);
        store.append(first.task, lease.fence, 1, body("for a task that is not there"));
        assert_eq!(commit(&store, lease.fence, vec![with_record(&first, body("whole"))]), Ok(()));
        for seq in [2, 3, 4] {
            store.append(first.task, lease.fence, seq, body(&format!("delta {seq}")));
        }
        store.append(first.task, lease.fence, 5, bulk(200_000));
        let second = next(&first, TaskState::Working);
        assert_eq!(commit(&store, lease.fence, vec![save(&second)]), Ok(()));
        let deltas = vec![body("delta 2"), body("delta 3"), body("delta 4"), bulk(200_000)];
        assert_eq!(recorded(&store, first.task), Some((body("whole"), deltas)));

        let third = next(&second, TaskState::Completed);
        assert_eq!(commit(&store, lease.fence, vec![with_record(&third, body("the end"))]), Ok(()));
        assert_eq!(recorded(&store, first.task), Some((body("the end"), vec![])));
    });
}

#[test]
fn after_a_lost_delta_nothing_is_read_that_does_not_fit() {
    both(|store, lease| {
        let first = row(1);
        assert_eq!(commit(&store, lease.fence, vec![with_record(&first, body("whole"))]), Ok(()));
        let gate = hold(&store, lease.fence);
        store.append(first.task, lease.fence, 1, body("lost"));
        store.fail_after(0, 1);
        drop(gate);
        let fence = store.relet().unwrap().fence;
        store.append(first.task, fence, 2, body("does not fit"));
        let second = next(&first, TaskState::Working);
        assert_eq!(commit(&store, fence, vec![save(&second)]), Ok(()));
        assert_eq!(recorded(&store, first.task), Some((body("whole"), vec![])));
        assert_eq!(store.stats().deltas_dropped, 2);

        let third = next(&second, TaskState::Working);
        assert_eq!(commit(&store, fence, vec![with_record(&third, body("again"))]), Ok(()));
        store.append(first.task, fence, 3, body("fits"));
        assert_eq!(commit(&store, fence, vec![]), Ok(()));
        assert_eq!(recorded(&store, first.task), Some((body("again"), vec![body("fits")])));
    });
}

#[test]
fn a_flood_of_deltas_makes_no_commit_wait_and_costs_no_other_task_its_own() {
    both(|store, lease| {
        let (flooded, calm) = (row(1), row(2));
        let whole = vec![with_record(&flooded, body("whole")), with_record(&calm, body("whole"))];
        assert_eq!(commit(&store, lease.fence, whole), Ok(()));
        let gate = hold(&store, lease.fence);
        for seq in 1..=10_000 {
            store.append(flooded.task, lease.fence, seq, body("one of very many"));
        }
        store.append(calm.task, lease.fence, 1, body("a word"));
        // A large one is too much beside others, and too much for its own task.
        store.append(calm.task, lease.fence, 2, bulk(5 << 20));
        assert!(store.room());
        assert_eq!(store.stats().deltas_dropped, 10_000 - 256 + 1);
        drop(gate);
        assert_eq!(commit(&store, lease.fence, vec![]), Ok(()));
        assert_eq!(recorded(&store, flooded.task).unwrap().1.len(), 256);
        assert_eq!(recorded(&store, calm.task), Some((body("whole"), vec![body("a word")])));

        let again = vec![with_record(&next(&calm, TaskState::Working), body("again"))];
        assert_eq!(commit(&store, lease.fence, again), Ok(()));
        store.append(calm.task, lease.fence, 3, bulk(5 << 20));
        assert_eq!(commit(&store, lease.fence, vec![]), Ok(()));
        assert_eq!(recorded(&store, calm.task).unwrap().1.len(), 1);
    });
}

#[test]
fn load_gives_what_is_not_over_in_order() {
    both(|store, lease| {
        let mut writes = Vec::new();
        for (n, state) in (1..).zip(TaskState::ALL) {
            writes.push(save(&Row { state, ..row(n) }));
            writes.push(save(&Row { state, cancel: Cancel::Owed, ..row(n + 100) }));
            writes.push(save(&Row { state, cancel: Cancel::Unknown, ..row(n + 50) }));
        }
        writes.reverse();
        assert_eq!(commit(&store, lease.fence, writes), Ok(()));
        let loaded: Vec<u128> = store.load().unwrap().into_iter().map(|row| row.task.0).collect();
        assert_eq!(loaded, [1, 2, 3, 4, 51, 52, 53, 54, 101, 102, 103, 104, 105, 106, 107, 108]);

        let settled = Row { cancel: Cancel::Confirmed, version: 2, state: TaskState::Failed, ..row(106) };
        assert_eq!(commit(&store, lease.fence, vec![save(&settled)]), Ok(()));
        assert!(store.load().unwrap().iter().all(|row| row.task.0 != 106));
    });
}

#[test]
fn keys_are_found_by_all_their_parts_and_know_what_came_of_them() {
    both(|store, lease| {
        let first = row(1);
        let known = |never_sent| Ok(Some(KnownKey { task: first.task, fingerprint: 7, never_sent }));
        assert_eq!(commit(&store, lease.fence, vec![save(&first), save_key(&first)]), Ok(()));
        assert_eq!(store.key(&key_of(&first)), known(false));
        let foreign = Principal { tenant: "other".into(), ..first.principal.clone() };
        assert_eq!(store.key(&Key { principal: foreign, ..key_of(&first) }), Ok(None));
        assert_eq!(store.key(&Key { agent: AgentId::new("flights"), ..key_of(&first) }), Ok(None));
        assert_eq!(store.key(&key_of(&row(2))), Ok(None));

        let failed = next(&first, TaskState::Failed);
        assert_eq!(commit(&store, lease.fence, vec![save(&failed)]), Ok(()));
        assert_eq!(store.key(&key_of(&first)), known(true));
        let reached = Row { delivery: Delivery::MaybeDelivered, ..next(&failed, TaskState::Failed) };
        assert_eq!(commit(&store, lease.fence, vec![save(&reached)]), Ok(()));
        assert_eq!(store.key(&key_of(&first)), known(false));

        let mut second = row(2);
        second.turn.message_id = first.turn.message_id.clone();
        assert_eq!(commit(&store, lease.fence, vec![save(&second), save_key(&second)]), Ok(()));
        let replaced = KnownKey { task: second.task, fingerprint: 14, never_sent: false };
        assert_eq!(store.key(&key_of(&first)), Ok(Some(replaced)));
    });
}

#[test]
fn contexts_and_remote_ids_are_found() {
    both(|store, lease| {
        let first = row(1);
        assert_eq!(commit(&store, lease.fence, vec![save(&first), save_context(&first, "far-1")]), Ok(()));
        assert_eq!(store.context(&context_of(&first)), Ok(Some("far-1".into())));
        assert_eq!(store.remote_task(&first.agent, "their-task"), Ok(None));
        let second = Row { remote_task: Some("their-task".into()), ..next(&first, TaskState::Working) };
        assert_eq!(commit(&store, lease.fence, vec![save(&second), save_context(&first, "far-2")]), Ok(()));
        assert_eq!(store.context(&context_of(&first)), Ok(Some("far-2".into())), "the agent's word replaces ours");
        assert_eq!(store.remote_task(&first.agent, "their-task"), Ok(Some(first.task)));
        assert_eq!(store.remote_task(&AgentId::new("flights"), "their-task"), Ok(None));
    });
}

/// 10,000 delegations: four in five with one agent, a thousand contexts, times that repeat.
fn crowd() -> Vec<Row> {
    let one = |n: u128| Row {
        agent: AgentId::new(if n.is_multiple_of(5) { "flights" } else { "hotels" }),
        context: format!("ctx-{}", n % 1_000).as_str().into(),
        state: TaskState::ALL[(n % 8) as usize],
        changed: at((n * 7_919 % 2_000) as u64),
        ..row(n)
    };
    (1..=10_000).map(one).collect()
}

#[test]
fn ten_thousand_are_listed_page_by_page_newest_first() {
    both(|store, lease| {
        let crowd = crowd();
        let stranger = Row { principal: Principal { tenant: "acme".into(), caller: "other".into() }, ..row(20_000) };
        let writes = crowd.chunks(400).map(|rows| (lease.fence, rows.iter().map(save).collect()));
        let answers = commit_all(&store, writes.chain([(lease.fence, vec![save(&stranger)])]));
        assert!(answers.into_iter().all(|(_, result)| result.is_ok()));

        let all = ListQuery::of(row(1).principal);
        let hotels = ListQuery { agent: Some(AgentId::new("hotels")), limit: 97, ..all.clone() };
        check(&store, &crowd, &ListQuery { limit: 333, ..all.clone() });
        check(&store, &crowd, &hotels);
        check(
            &store,
            &crowd,
            &ListQuery { states: Some(vec![TaskState::Failed, TaskState::Working]), ..hotels.clone() },
        );
        check(&store, &crowd, &ListQuery { states: Some(vec![]), ..hotels.clone() });
        check(&store, &crowd, &ListQuery { changed_after: Some(at(1_900)), ..hotels.clone() });
        check(&store, &crowd, &ListQuery { context: Some("ctx-7".into()), limit: 3, ..hotels.clone() });
        check(
            &store,
            &crowd,
            &ListQuery { context: Some("ctx-7".into()), changed_after: Some(at(500)), ..all.clone() },
        );
        check(&store, &crowd, &ListQuery { context: Some("nobody's".into()), ..all });
        let nobody = ListQuery::of(Principal { tenant: "none".into(), caller: "none".into() });
        assert_eq!(store.list(&nobody), Ok(crate::Page::default()));
    });
}

/// All pages of a query against a list made by hand.
pub(super) fn check(store: &Store, crowd: &[Row], query: &ListQuery) {
    let matches = |row: &&Row| {
        query.agent.as_ref().is_none_or(|agent| row.agent == *agent)
            && query.context.as_ref().is_none_or(|context| *row.context == **context)
            && query.states.as_ref().is_none_or(|states| states.contains(&row.state))
            && query.changed_after.is_none_or(|time| row.changed >= time)
    };
    let mut wanted: Vec<&Row> = crowd.iter().filter(matches).collect();
    wanted.sort_by_key(|row| std::cmp::Reverse((row.changed, row.task)));
    let mut query = query.clone();
    let mut got = Vec::new();
    loop {
        let page = store.list(&query).unwrap();
        assert_eq!(page.total, wanted.len() as u64, "{query:?}");
        assert!(page.rows.len() <= query.limit);
        let Some(last) = page.rows.last() else { break };
        query.after = Some((last.changed, last.task));
        got.extend(page.rows);
    }
    assert!(got.iter().eq(wanted.iter().copied()), "{query:?}");
}

#[test]
fn pruning_takes_what_is_old_and_over_and_all_that_belongs_to_it() {
    both(|store, lease| {
        let ended = |n: u128, millis| Row { state: TaskState::Completed, changed: at(millis), ..row(n) };
        let rows: Vec<Row> = (1..=1_000).map(|n| ended(n, if n <= 700 { 1_000 } else { 5_000 })).collect();
        let owed = Row { cancel: Cancel::Owed, ..ended(2_001, 1) };
        let running = Row { changed: at(1), ..row(2_002) };
        let sister = Row { context: running.context.clone(), ..ended(2_003, 1) };
        let large = Write { record: Some(bulk(300_000)), ..with_message(&ended(2_004, 2), body("hello")) };
        let kept = rows.iter().chain([&owed, &running, &sister]);
        let mut writes: Vec<Write> = kept.flat_map(|it| [save(it), save_key(it), save_context(it, "far")]).collect();
        writes.push(large);
        assert_eq!(commit(&store, lease.fence, writes), Ok(()));
        store.append(TaskId(2_004), lease.fence, 1, body("delta"));

        let before = store.stats();
        let pruned = store.prune(at(6_000), Span::MAX, Span::from_millis(3_000)).unwrap();
        assert_eq!(pruned, Pruned { tasks: 0, keys: 701 });
        assert_eq!(store.key(&key_of(&rows[3])), Ok(None));
        assert!(store.key(&key_of(&rows[800])).unwrap().is_some());
        assert!(store.key(&key_of(&owed)).unwrap().is_some());
        assert!(store.task(TaskId(4)).unwrap().is_some());

        let pruned = store.prune(at(6_000), Span::from_millis(3_000), Span::from_millis(3_000)).unwrap();
        assert_eq!(pruned.tasks, 702);
        assert_eq!(store.stats().failed, before.failed);
        assert_eq!(store.task(TaskId(4)), Ok(None));
        assert_eq!(store.context(&context_of(&rows[3])), Ok(None));
        assert_eq!((store.message(TaskId(2_004), 1), store.record(TaskId(2_004))), (Ok(None), Ok(None)));
        assert!(store.task(TaskId(800)).unwrap().is_some());
        assert!(store.task(owed.task).unwrap().is_some(), "it still owes a cancel");
        assert!(store.task(running.task).unwrap().is_some());
        assert_eq!(store.task(sister.task), Ok(None));
        assert!(store.context(&context_of(&running)).unwrap().is_some(), "its context has another task");
        assert_eq!(store.list(&ListQuery::of(running.principal)).unwrap().total, 302);

        assert_eq!(store.prune(at(6_000), Span::from_millis(3_000), Span::from_millis(3_000)), Ok(Pruned::default()));
        let rest = store.prune(at(6_000), Span::ZERO, Span::ZERO).unwrap();
        assert_eq!(rest, Pruned { tasks: 300, keys: 300 });
        assert_eq!(store.prune(Time::ZERO, Span::ZERO, Span::ZERO), Ok(Pruned::default()));
    });
}

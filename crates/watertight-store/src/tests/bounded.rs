//! What an agent that wants no durability may keep.

use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::record::{Cancel, TaskState};
use watertight_policy::time::Span;

use super::*;
use crate::{Bounds, ListQuery, Memory, Pruned};

fn of(agent: &str, n: u128, state: TaskState) -> Row {
    Row { agent: AgentId::new(agent), state, ..row(n) }
}

#[test]
fn beyond_the_bound_the_oldest_that_is_over_goes_with_all_that_is_its() {
    let memory = Memory::bounded(Bounds { tasks: 10, bytes: usize::MAX });
    let owed = Row { cancel: Cancel::Owed, ..of("hotels", 1, TaskState::Failed) };
    let running = of("hotels", 2, TaskState::Working);
    memory.put(vec![save(&owed), save_key(&owed), save(&running), save_key(&running)]).unwrap();
    for n in 3..=40 {
        let over = of("hotels", n, TaskState::Completed);
        let writes = vec![with_record(&over, body("done")), save_key(&over), save_context(&over, "far")];
        memory.put(writes).unwrap();
    }
    let own = ListQuery::of(owed.principal.clone());
    assert_eq!(memory.list(&own).total, 10);
    assert!(memory.task(owed.task).is_some() && memory.task(running.task).is_some(), "what is live stays");
    let gone = of("hotels", 32, TaskState::Completed);
    assert_eq!((memory.task(gone.task), memory.record(gone.task)), (None, None));
    assert_eq!((memory.key(&key_of(&gone)), memory.context(&context_of(&gone))), (None, None));
    assert!(memory.key(&key_of(&of("hotels", 33, TaskState::Completed))).is_some());

    // Another agent has bounds of its own.
    (50..=59).for_each(|n| memory.put(vec![save(&of("flights", n, TaskState::Completed))]).unwrap());
    assert_eq!(memory.list(&own).total, 20);
    let again = memory.put(vec![save(&of("flights", 50, TaskState::Completed))]);
    assert_eq!(again, Err(CommitError::Conflict { task: TaskId(50) }));

    // What is live counts, and is never pushed out.
    (60..=79).for_each(|n| memory.put(vec![save(&of("hotels", n, TaskState::Working))]).unwrap());
    assert_eq!(memory.load().len(), 22);
    assert_eq!(memory.list(&ListQuery { states: Some(vec![TaskState::Completed]), ..own.clone() }).total, 10);
    let ended = next(&of("hotels", 60, TaskState::Working), TaskState::Completed);
    memory.put(vec![save(&ended)]).unwrap();
    assert_eq!(memory.task(ended.task), None, "there is no room for it any more");
    assert_eq!(memory.prune(at(1_000), Span::ZERO, Span::ZERO), Pruned { tasks: 10, keys: 0 });
}

#[test]
fn bytes_are_bounded_too() {
    let memory = Memory::bounded(Bounds { tasks: usize::MAX, bytes: 1 << 20 });
    for n in 1..=50 {
        let over = of("hotels", n, TaskState::Completed);
        memory.put(vec![with_record(&over, bulk(100_000))]).unwrap();
    }
    let own = ListQuery::of(row(1).principal);
    assert_eq!(memory.list(&own).total, 10);
    memory.put(vec![with_message(&of("hotels", 60, TaskState::Working), bulk(10))]).unwrap();
    memory.append(TaskId(60), 1, bulk(500_000));
    assert_eq!(memory.list(&own).total, 6);
    memory.put(vec![with_record(&next(&of("hotels", 60, TaskState::Working), TaskState::Working), bulk(10))]).unwrap();
    memory.put(vec![with_record(&of("hotels", 61, TaskState::Completed), bulk(400_000))]).unwrap();
    assert_eq!(memory.list(&own).total, 7, "a whole record takes the place of its deltas");
    memory.append(TaskId(999), 1, bulk(10));
    assert_eq!(memory.record(TaskId(999)), None);
}

#[test]
fn behind_the_stores_thread_it_is_the_same() {
    let (store, lease) = Store::bounded(Bounds { tasks: 5, bytes: usize::MAX });
    for n in 1..=9 {
        assert_eq!(commit(&store, lease.fence, vec![save(&of("hotels", n, TaskState::Completed))]), Ok(()));
    }
    assert_eq!(store.list(&ListQuery::of(row(1).principal)).unwrap().total, 5);
    assert_eq!(store.task(TaskId(4)), Ok(None));
}

#[test]
fn children_are_found_by_their_parent() {
    both(|store, lease| {
        let child = |n, parent| Row { parent: Some(TaskId(parent)), root: TaskId(1), depth: 1, ..row(n) };
        let writes = vec![save(&row(1)), save(&child(3, 1)), save(&child(2, 1)), save(&child(4, 2))];
        assert_eq!(commit(&store, lease.fence, writes), Ok(()));
        store.settle();
        let later = vec![save(&next(&child(3, 1), TaskState::Working)), save(&child(9, 1))];
        assert_eq!(commit(&store, lease.fence, later), Ok(()));
        let ids = |limit| store.children(TaskId(1), limit).unwrap().iter().map(|it| it.task.0).collect::<Vec<_>>();
        assert_eq!((ids(10), ids(2)), (vec![2, 3, 9], vec![2, 3]));
        assert_eq!(store.children(TaskId(1), 10).unwrap()[1].state, TaskState::Working);
        assert_eq!(store.children(TaskId(9), 10), Ok(vec![]));
    });
}

//! Who started whom.

use watertight_engine::ids::TaskId;
use watertight_engine::record::TaskState;

use super::*;

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

//! Hooks, the same in every kind of store: as they were put last, until they are dropped or their task is gone.

use watertight_engine::record::TaskState;

use super::*;
use crate::{Hook, HookChange};

fn hook(task: u128, id: &str) -> Hook {
    Hook { task: TaskId(task), id: id.into(), sealed: vec![1, 2, 3], told: None }
}

#[test]
fn a_hook_is_there_until_it_is_dropped_or_its_task_goes() {
    both(|store, lease| {
        let all = || store.hooks().unwrap();
        for task in [1, 2] {
            let over = Row { state: TaskState::Completed, ..row(task) };
            assert_eq!(commit(&store, lease.fence, vec![save(&over)]), Ok(()));
        }
        for hook in [hook(1, "a"), hook(1, "b"), hook(2, "a")] {
            assert_eq!(store.change_hook(HookChange::Put(hook)), Ok(()));
        }
        assert_eq!(all(), [hook(1, "a"), hook(1, "b"), hook(2, "a")]);
        let told = Hook { told: Some((2, TaskState::InputRequired)), ..hook(1, "b") };
        assert_eq!(store.change_hook(HookChange::Put(told.clone())), Ok(()));
        assert_eq!(store.change_hook(HookChange::Drop(TaskId(1), "a".into())), Ok(()));
        assert_eq!(store.change_hook(HookChange::Drop(TaskId(9), "a".into())), Ok(()));
        assert_eq!(all(), [told, hook(2, "a")]);
        store.prune(at(10_000), Span::from_secs(1), Span::from_secs(1)).unwrap();
        assert_eq!(all(), []);
    });
}

#[test]
fn a_hook_survives() {
    let home = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    assert_eq!(store.change_hook(HookChange::Put(hook(7, "x"))), Ok(()));
    store.close();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    assert_eq!(store.hooks(), Ok(vec![hook(7, "x")]));
}

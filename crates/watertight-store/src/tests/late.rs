//! What agents said too late: the first is kept, as long as its task is.

use watertight_engine::record::TaskState;

use super::*;
use crate::Late;

fn late(task: u128, text: &str) -> Late {
    Late { task: TaskId(task), at: at(7), state: TaskState::Completed, bytes: 900, text: text.into() }
}

#[test]
fn the_first_is_kept_until_its_task_goes() {
    both(|store, lease| {
        let over = Row { state: TaskState::Failed, ..row(1) };
        assert_eq!(commit(&store, lease.fence, vec![save(&over)]), Ok(()));
        assert_eq!(store.late(TaskId(1)), Ok(None));
        for text in ["the rooms", "again"] {
            assert_eq!(store.keep_late(late(1, text)), Ok(()));
            assert_eq!(store.late(TaskId(1)), Ok(Some(late(1, "the rooms"))));
        }
        store.prune(at(10_000), Span::from_secs(1), Span::from_secs(1)).unwrap();
        assert_eq!(store.late(TaskId(1)), Ok(None));
    });
}

#[test]
fn it_survives() {
    let home = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    assert_eq!(store.keep_late(late(7, "x")), Ok(()));
    store.close();
    let (store, _) = Store::open(home.path(), 0).unwrap();
    assert_eq!(store.late(TaskId(7)), Ok(Some(late(7, "x"))));
}

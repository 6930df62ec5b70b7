//! What is over, in the order in which it ended.

use watertight_engine::ids::TaskId;
use watertight_engine::record::TaskState;

use super::*;
use crate::OverQuery;

/// Over at this time.
fn ended(n: u128, millis: u64, state: TaskState) -> Row {
    Row { changed: at(millis), ..next(&full(n), state) }
}

fn query(after: Option<(Time, TaskId)>, limit: usize) -> OverQuery {
    OverQuery { tenant: "acme".into(), after, until: at(10_000), limit }
}

/// All pages of this length, by their ids.
fn pages(store: &Store, limit: usize) -> Vec<u128> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let rows = store.over(&query(after, limit)).unwrap();
        after = rows.last().map(|row| (row.changed, row.task));
        all.extend(rows.iter().map(|row| row.task.0));
        if rows.len() < limit {
            return all;
        }
    }
}

#[test]
fn what_is_over_comes_in_the_order_in_which_it_ended_wherever_it_is() {
    both(|store, lease| {
        let begun: Vec<Write> = (1..=9).map(|n| save(&Row { version: 1, ..full(n) })).collect();
        assert_eq!(commit(&store, lease.fence, begun), Ok(()));
        store.settle();
        assert_eq!(pages(&store, 3), Vec::<u128>::new());
        // Two at one time, one that goes on, one of another tenant, one that ends too late, and one that is still owed something.
        let mut foreign = ended(4, 40, TaskState::Completed);
        foreign.principal.tenant = "other".into();
        let first = vec![
            save(&ended(3, 50, TaskState::Completed)),
            save(&ended(1, 50, TaskState::Failed)),
            save(&ended(2, 20, TaskState::Canceled)),
            save(&next(&full(5), TaskState::Working)),
            save(&ended(9, 10_000, TaskState::Rejected)),
        ];
        assert_eq!(commit(&store, lease.fence, first), Ok(()));
        assert_eq!((pages(&store, 1), pages(&store, 100)), (vec![2, 1, 3], vec![2, 1, 3]));
        store.settle();
        assert_eq!((pages(&store, 2), pages(&store, 100)), (vec![2, 1, 3], vec![2, 1, 3]));
        // What ended before others that are in their place already, and news of one that is over: it stands where it stood.
        let again = Row { cancel: Cancel::None, ..next(&ended(1, 50, TaskState::Failed), TaskState::Failed) };
        let later = vec![save(&ended(7, 30, TaskState::Rejected)), save(&again)];
        assert_eq!(commit(&store, lease.fence, later), Ok(()));
        for limit in [1, 2, 3, 100] {
            assert_eq!(pages(&store, limit), vec![2, 7, 1, 3], "{limit}");
        }
        let rows = store.over(&query(Some((at(50), TaskId(0))), 100)).unwrap();
        assert_eq!((rows.len(), &rows[0]), (2, &again));
        assert_eq!(rows[0].turn, full(1).turn);
        let foreign = OverQuery { tenant: "other".into(), ..query(None, 100) };
        assert_eq!(store.over(&foreign), Ok(vec![]));
    });
}

//! A store that is behind, and pages of large tasks.

use super::*;

/// A store whose thread is held up, so that it has no room; until the sender is dropped.
fn held_up(store: &watertight_store::Store) -> std::sync::mpsc::Sender<()> {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    store.commit(0, u64::MAX, Vec::new(), Box::new(move |_, _| _ = held.recv()));
    while store.room() {
        store.commit(0, u64::MAX, Vec::new(), Box::new(|_, _| {}));
    }
    hold
}

#[tokio::test]
async fn who_leaves_while_the_store_is_behind_costs_nobody_the_cell() {
    let agent = FakeAgent::start(|_, params| Does::Result(json!({ "task": done(&remote_of(params), "42") }))).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let hold = held_up(handle.store());
    for id in ["m-1", "m-2"] {
        // Accepted by the cell, and gone before the store could take it.
        let gone = handle.submit(call(message(id), Want::Accepted));
        assert!(timeout(Duration::from_millis(200), gone).await.is_err());
    }
    drop(hold);
    assert_eq!(sends(&handle, "m-3", Want::Reply).await.unwrap().view.state, TaskState::Completed);
    let page = handle.list(&alice(), Filter { limit: 10, ..Filter::default() }).await.unwrap();
    for task in page.tasks {
        until(&handle, task.task, |view| view.state == TaskState::Completed).await;
    }
    assert_eq!((page.total, agent.asked("SendMessage")), (3, 3));
    assert!(handle.metrics().contains("watertight_cell_reloads_total 0"), "{}", handle.metrics());
}

/// Too large to go together. Few: a busy machine takes long over each, and a store silent for three seconds counts as lost.
const MANY: usize = 8;

#[tokio::test]
async fn what_piled_up_while_the_store_was_behind_is_written_in_many_small_commits() {
    let agent = FakeAgent::start(|_, params| Does::Result(json!({ "task": done(&remote_of(params), "42") }))).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let hold = held_up(handle.store());
    let large = |n: usize| {
        let mut message = message(&format!("m-{n}"));
        message["parts"][0]["text"] = json!("x".repeat(600 << 10));
        let handle = handle.clone();
        tokio::spawn(async move { handle.submit(call(message, Want::Accepted)).await })
    };
    let sent: Vec<_> = (0..MANY).map(large).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = handle.store().stats().commits;
    drop(hold);
    for one in sent {
        let accepted = timeout(PATIENCE, one).await.unwrap().unwrap().unwrap();
        until(&handle, accepted.task, |view| view.state == TaskState::Completed).await;
    }
    assert!(handle.store().stats().commits - before >= MANY as u64);
    assert_eq!(agent.asked("SendMessage"), MANY);
    assert!(handle.metrics().contains("watertight_cell_reloads_total 0"));
}

#[tokio::test]
async fn a_page_of_large_tasks_is_bounded_by_their_bytes() {
    let agent =
        FakeAgent::start(|_, params| Does::Result(json!({ "task": done(&remote_of(params), &"x".repeat(3 << 20)) })))
            .await;
    let mut large = spec("fx", &agent, Mode::Blocking);
    large.engine.acceptance.max_result_bytes = 8 << 20;
    let handle = start(vec![large]).await;
    for n in 0..5 {
        sends(&handle, &format!("m-{n}"), Want::Reply).await.unwrap();
    }
    let (mut sizes, mut seen, mut after) = (Vec::new(), std::collections::BTreeSet::new(), None);
    loop {
        let page = handle.list(&alice(), Filter { limit: 100, after, ..Filter::default() }).await.unwrap();
        assert_eq!(page.total, 5);
        sizes.push(page.tasks.len());
        seen.extend(page.tasks.iter().map(|view| view.task));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((sizes, seen.len()), (vec![2, 2, 1], 5));
}

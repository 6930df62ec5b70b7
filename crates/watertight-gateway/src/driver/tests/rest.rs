//! Delegations that only wait, and are left to the store: what is said of them, and what of them is in memory.

use super::*;

/// One slot, and it is taken for good.
async fn busy() -> (Handle, FakeAgent) {
    let agent = FakeAgent::start(|_, _| Does::Hang).await;
    let mut one = spec("fx", &agent, Mode::Blocking);
    one.engine.bulkhead = bulkhead::Params { max_in_flight: 1, max_waiting: 64, max_wait: Span::from_secs(20) };
    one.engine.queue_overflow = true;
    let handle = start(vec![one]).await;
    sends(&handle, "first", Want::Accepted).await.unwrap();
    (handle, agent)
}

/// Too large to be held while it waits.
fn large(id: &str, want: Want) -> NewCall {
    let mut message = message(id);
    message["parts"][0]["text"] = json!("x".repeat(40 << 10));
    call(message, want)
}

async fn rests(handle: &Handle, task: TaskId) {
    let gone = async {
        while handle.hub().live(task).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("that the store alone has it");
}

async fn waiting(handle: &Handle, id: &str) -> TaskId {
    let task = timeout(PATIENCE, handle.submit(large(id, Want::Accepted))).await.unwrap().unwrap().task;
    rests(handle, task).await;
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_while_it_waited_rests_again() {
    let (handle, _agent) = busy().await;
    let fx = AgentId::new("fx");
    let task = waiting(&handle, "m-1").await;
    let mut stream = handle.subscribe(&alice(), &fx, task, None).await.unwrap();
    let Some(Item::Snapshot { view, .. }) = timeout(PATIENCE, stream.next()).await.unwrap() else { panic!("no task") };
    assert!(view.record.bytes() > 40 << 10, "with its message");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(handle.hub().live(task).is_some(), "it is read");
    drop(stream);
    rests(&handle, task).await;

    let sent = timeout(PATIENCE, handle.submit(large("m-2", Want::Stream))).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(handle.hub().live(sent.task).is_some(), "it is read");
    drop(sent.stream);
    rests(&handle, sent.task).await;
    assert_eq!(handle.task(&alice(), &fx, sent.task).await.unwrap().state, TaskState::Submitted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_is_no_reason_to_say_that_there_is_no_task() {
    let (handle, _agent) = busy().await;
    let fx = AgentId::new("fx");
    let task = waiting(&handle, "m-1").await;
    handle.store().hang(true);
    let (other, to) = (handle.clone(), fx.clone());
    let cancel = tokio::spawn(async move { other.cancel(alice(), to, task, None).await });
    while handle.store().backlog() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let told = timeout(PATIENCE, handle.subscribe(&alice(), &fx, task, None)).await.unwrap().unwrap_err();
    assert!(matches!(told, Declined::Refused { reason: Reason::StoreUnavailable, .. }), "{told:?}");
    handle.store().hang(false);
    assert_eq!(timeout(PATIENCE, cancel).await.unwrap().unwrap().unwrap().state, TaskState::Canceled);
    assert_eq!(handle.subscribe(&alice(), &fx, task, None).await.unwrap_err(), Declined::TaskTerminal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_again_and_waits_is_not_told_at_the_end_that_it_was_refused() {
    let (handle, _agent) = busy().await;
    let task = waiting(&handle, "m-1").await;
    let other = handle.clone();
    let again = tokio::spawn(async move { other.submit(large("m-1", Want::Result)).await });
    while handle.held_lines() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    timeout(PATIENCE, handle.drain(Span::from_millis(400))).await.expect("the end of the drain");
    let told = timeout(PATIENCE, again).await.unwrap().unwrap().unwrap();
    assert_eq!((told.task, told.replay, told.view.state), (task, true, TaskState::Submitted));
}

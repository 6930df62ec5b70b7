//! Whoever brings something steps the cell: nobody is left lying, and what goes wrong there is nobody's but the cell's.

use super::*;
use watertight_engine::record::Durability;

async fn both(agent: &FakeAgent) -> Handle {
    let walls = bulkhead::Params { max_in_flight: 64, max_waiting: 256, max_wait: Span::from_secs(20) };
    let of = |name: &str, durability| {
        let mut spec = spec(name, agent, Mode::Blocking);
        (spec.name, spec.engine.durability, spec.engine.bulkhead) = (AgentId::new(name), durability, walls);
        spec
    };
    start(vec![of("fx", Durability::Durable), of("brief", Durability::Memory)]).await
}

async fn answers() -> FakeAgent {
    FakeAgent::start(|_, params| Does::Result(json!({ "task": done(&remote_of(params), "42") }))).await
}

fn to(agent: &str, id: &str) -> NewCall {
    NewCall { agent: AgentId::new(agent), ..call(message(id), Want::Reply) }
}

/// Callers on several threads, each with one call after the other.
async fn crowd(handle: &Handle, callers: usize, calls: usize) -> Vec<Result<Accepted, Declined>> {
    let callers: Vec<_> = (0..callers)
        .map(|caller| {
            let handle = handle.clone();
            tokio::spawn(async move {
                let mut told = Vec::new();
                for n in 0..calls {
                    let agent = if (caller + n) % 2 == 0 { "fx" } else { "brief" };
                    let call = handle.submit(to(agent, &format!("m-{caller}-{n}")));
                    told.push(timeout(PATIENCE, call).await.expect("an answer, whatever it is"));
                }
                told
            })
        })
        .collect();
    let mut told = Vec::new();
    for caller in callers {
        told.extend(caller.await.unwrap());
    }
    told
}

async fn drained_slots(handle: &Handle) {
    let idle = async {
        while handle.agents().iter().any(|agent| agent.in_flight + agent.waiting > 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, idle).await.expect("that all slots are free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_crowd_everybody_is_answered_once() {
    let agent = answers().await;
    let handle = both(&agent).await;
    let told = crowd(&handle, 16, 20).await;
    assert!(told.iter().all(|told| told.as_ref().is_ok_and(|it| it.view.state == TaskState::Completed)), "{told:?}");
    assert_eq!((told.len(), agent.asked("SendMessage")), (320, 320));
    drained_slots(&handle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_panic_in_whoever_steps_is_not_that_callers() {
    let agent = answers().await;
    let handle = both(&agent).await;
    for steps in [3, 20, 50] {
        handle.panic_in(steps);
        let calls = crowd(&handle, 8, 6);
        for told in calls.await {
            // What was being told in that moment may be lost, and is said to be.
            assert!(matches!(told, Ok(_) | Err(Declined::Refused { reason: Reason::Internal, .. })), "{told:?}");
            if let Ok(accepted) = told {
                assert_eq!(accepted.view.state, TaskState::Completed);
            }
        }
        drained_slots(&handle).await;
        handle.panic_in(0);
    }
    assert!(handle.metrics().contains("watertight_cell_reloads_total"));
    assert!(agent.asked("SendMessage") <= 48);
}

#[tokio::test]
async fn who_finds_the_seat_taken_for_long_is_served_all_the_same() {
    let agent = answers().await;
    let handle = both(&agent).await;
    let other = handle.clone();
    let held = std::thread::spawn(move || other.sit_for(Duration::from_millis(400)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    for name in ["fx", "brief"] {
        let told = timeout(PATIENCE, handle.submit(to(name, "m-1"))).await.expect("an answer").unwrap();
        assert_eq!(told.view.state, TaskState::Completed);
    }
    held.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drain_in_the_middle_of_a_crowd_answers_everybody() {
    let agent = answers().await;
    let handle = both(&agent).await;
    let (ending, calling) = (handle.clone(), handle.clone());
    let crowd = tokio::spawn(async move { crowd(&calling, 12, 40).await });
    while agent.asked("SendMessage") < 20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    timeout(PATIENCE, ending.drain(Span::from_secs(5))).await.expect("the end of the drain");
    for told in crowd.await.unwrap() {
        assert!(matches!(told, Ok(_) | Err(Declined::Refused { reason: Reason::ShuttingDown, .. })), "{told:?}");
    }
}

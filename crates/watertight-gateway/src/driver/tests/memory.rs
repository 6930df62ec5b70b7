//! Agents of both kinds in one cell: what is kept in memory outlives the cell, not the process, and is listed with the rest.

use super::*;
use watertight_engine::record::Durability;

fn in_memory(agent: &FakeAgent, mode: Mode) -> AgentSpec {
    let mut spec = spec("fx", agent, mode);
    spec.engine.durability = Durability::Memory;
    spec
}

async fn settled() -> FakeAgent {
    FakeAgent::start(|_, params| Does::Result(json!({ "task": done(&remote_of(params), "42") }))).await
}

#[tokio::test]
async fn nothing_of_it_is_written_and_nothing_of_it_waits_for_the_disk() {
    let agent = settled().await;
    let handle = start(vec![in_memory(&agent, Mode::Blocking)]).await;
    handle.store().hang(true);
    for n in 0..3 {
        let accepted = sends(&handle, &format!("m-{n}"), Want::Reply).await.unwrap();
        assert_eq!((accepted.view.state, accepted.replay), (TaskState::Completed, false));
        let view = handle.task(&alice(), &AgentId::new("fx"), accepted.task).await.unwrap();
        assert_eq!(view.record.said().into_content().text(), "42");
    }
    assert_eq!(handle.store().backlog(), 0);
    handle.store().hang(false);
    assert_eq!(handle.store().stats().commits, 0);
    assert!(sends(&handle, "m-1", Want::Reply).await.unwrap().replay);
    assert_eq!(agent.asked("SendMessage"), 3);
}

#[tokio::test]
async fn whichever_step_panics_it_is_done_once_and_not_forgotten() {
    let agent = FakeAgent::start(|method, params| match method {
        "SendStreamingMessage" => {
            let id = remote_of(params);
            let working = json!({ "task": task(&id, "WORKING") });
            Does::Events(vec![working, chunk(&id, "x"), status(&id, "COMPLETED")], None)
        }
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![in_memory(&agent, Mode::Stream)]).await;
    for steps in 1..8 {
        handle.panic_in(steps);
        let want = if steps % 2 == 0 { Want::Reply } else { Want::Stream };
        let accepted = sends(&handle, &format!("m-{steps}"), want).await.unwrap();
        assert!(!accepted.replay);
        if let Some(mut stream) = accepted.stream {
            let seen = whole(&mut stream).await;
            assert_eq!(seen.iter().filter(|item| item.contains("COMPLETED")).count(), 1, "{steps}: {seen:?}");
        }
        let view = until(&handle, accepted.task, |view| view.state.is_terminal()).await;
        assert_eq!((view.state, view.record.said().into_content().text().as_str()), (TaskState::Completed, "x"));
        handle.panic_in(0);
        assert_eq!(agent.asked("SendStreamingMessage"), steps);
        assert!(sends(&handle, &format!("m-{steps}"), Want::Reply).await.unwrap().replay, "{steps}");
    }
    let page = handle.list(&alice(), Filter { limit: 100, ..Filter::default() }).await.unwrap();
    assert_eq!((page.tasks.len(), page.total), (7, 7));
}

#[tokio::test]
async fn a_question_in_memory_outlives_a_failed_commit() {
    let agent = FakeAgent::start(|_, params| {
        let id = params["message"]["taskId"].as_str().map_or_else(|| remote_of(params), str::to_owned);
        match params["message"]["taskId"].is_string() {
            true => Does::Result(json!({ "task": done(&id, "booked") })),
            false => Does::Result(json!({ "task": super::agent::task(&id, "INPUT_REQUIRED") })),
        }
    })
    .await;
    let mut safe = spec("safe", &agent, Mode::Blocking);
    safe.name = AgentId::new("safe");
    let handle = start(vec![in_memory(&agent, Mode::Blocking), safe]).await;
    let asked = sends(&handle, "m-1", Want::Reply).await.unwrap();
    assert_eq!(asked.view.state, TaskState::InputRequired);
    // Housekeeping, which comes when it comes, may meet the fault first; then the next commit gets one.
    for n in 0..9 {
        handle.store().fail_after(0, 1);
        let mut other = call(message(&format!("m-2-{n}")), Want::Reply);
        other.agent = AgentId::new("safe");
        handle.submit(other).await.unwrap();
        if !handle.metrics().contains("watertight_cell_reloads_total 0") {
            break;
        }
    }
    assert!(handle.metrics().contains("watertight_cell_reloads_total 1"), "{}", handle.metrics());
    let mut answer = message("m-3");
    answer["taskId"] = json!(asked.task.to_string());
    let view = timeout(PATIENCE, handle.submit(call(answer, Want::Reply))).await.unwrap().unwrap().view;
    assert_eq!((view.task, view.state), (asked.task, TaskState::Completed));
}

#[tokio::test]
async fn pages_go_through_both_kinds_in_order() {
    let agent = settled().await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let mut sent = Vec::new();
    for n in 0..6 {
        let kind = if n % 2 == 0 { in_memory(&agent, Mode::Blocking) } else { spec("fx", &agent, Mode::Blocking) };
        handle.configure(vec![kind]).await.unwrap();
        sent.push(sends(&handle, &format!("m-{n}"), Want::Reply).await.unwrap().task);
    }
    assert!(handle.store().stats().commits > 0);
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let filter = Filter { limit: 2, after: after.take(), ..Filter::default() };
        let page = handle.list(&alice(), filter).await.unwrap();
        assert_eq!(page.total, 6);
        listed.extend(page.tasks.iter().map(|view| view.task));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    sent.reverse();
    assert_eq!(listed, sent);
    let again = sends(&handle, "m-0", Want::Reply).await.unwrap();
    assert!(again.replay, "a key in memory counts for a durable agent too");
}

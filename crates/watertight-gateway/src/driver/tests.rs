//! The real cell, a real store, agents on real sockets; no HTTP face.

mod access;
mod agent;
mod limits;
mod memory;
mod rest;
mod seat;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use watertight_a2a::call::Call;
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::Method;
use watertight_engine::ids::{AgentId, Principal, TaskId};
use watertight_engine::input::{WireBudget, WireQueue};
use watertight_engine::record::{Cancel, Delivery, TaskState};
use watertight_engine::settings::AgentSettings;
use watertight_policy::bulkhead;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::agents::{AgentConfig, Mode};
use crate::handle::{Accepted, Declined, Filter, Handle, NewCall, Trace, Want};
use crate::hub::{End, EventKind, Item, Limits, Subscription, TaskView};
use crate::{AgentSpec, CellLimits, Gateway, InMemory, Kept, Started, StoreSpec};

use agent::{Does, FakeAgent, chunk, done, status, task};

/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn spec(name: &str, agent: &FakeAgent, mode: Mode) -> AgentSpec {
    let mut wire = AgentConfig::new(name, agent.url.clone());
    wire.mode = mode;
    wire.card_wait = Duration::from_millis(1);
    let engine = AgentSettings { cancel_wait: Span::from_millis(300), ..AgentSettings::default() };
    AgentSpec {
        name: AgentId::new(name),
        engine,
        wire: Arc::new(wire),
        place: Default::default(),
        wait: None,
        memory: InMemory::default(),
        wake: None,
        lease: None,
        results: None,
    }
}

async fn start_in(store: StoreSpec, agents: Vec<AgentSpec>) -> Handle {
    let started = Started {
        store,
        kept: Kept::default(),
        agents,
        cell: CellLimits { max_delegations: 1_000, max_behind: 8, ..CellLimits::default() },
        streams: Limits::default(),
        push: Default::default(),
        key: crate::config::InstanceKey::generate().unwrap(),
        grants: crate::access::Grants::anybody(),
    };
    let handle = Gateway::start(started).await.unwrap().handle;
    while !handle.ready() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    handle
}

async fn start(agents: Vec<AgentSpec>) -> Handle {
    start_in(StoreSpec::Memory, agents).await
}

fn alice() -> Principal {
    Principal { tenant: "t".into(), caller: "alice".into() }
}

fn call(message: Value, want: Want) -> NewCall {
    let params = Json::assume(json!({ "message": message }).to_string());
    let Ok(Call::Send(send)) = Call::parse(Method::SendMessage, Some(params)) else { panic!("not a message") };
    NewCall {
        principal: alice(),
        who: None,
        agent: AgentId::new("fx"),
        params: send.params.into_bytes(),
        peek: send.peek,
        want,
        wait: None,
        budget: WireBudget::default(),
        queue: WireQueue::default(),
        parent: None,
        key: None,
        redrives: None,
        outbox: Default::default(),
        from: None,
        trace: Trace::default(),
    }
}

fn message(id: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": format!("do {id}") }] })
}

/// A task id of the agent's own for each message.
fn remote_of(params: &Value) -> String {
    format!("r-{}", params["message"]["messageId"].as_str().unwrap_or_default())
}

async fn sends(handle: &Handle, id: &str, want: Want) -> Result<Accepted, Declined> {
    timeout(PATIENCE, handle.submit(call(message(id), want))).await.expect("an answer, whatever it is")
}

async fn until(handle: &Handle, id: TaskId, what: impl Fn(&TaskView) -> bool) -> TaskView {
    let wait = async {
        loop {
            let view = handle.task(&alice(), &AgentId::new("fx"), id).await.expect("the task");
            if what(&view) {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("that it comes to this")
}

/// All of a stream in short, until its end.
async fn whole(stream: &mut Subscription) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(item) = timeout(PATIENCE, stream.next()).await.expect("an item or an end") {
        seen.push(match item {
            Item::Snapshot { view, .. } => format!("snapshot {}", view.state.as_str()),
            Item::Event(event) => match (event.kind, event.state) {
                (EventKind::Artifact, _) => "artifact".to_owned(),
                (kind, state) => format!("{kind:?} {}", state.map_or("", TaskState::as_str)),
            },
            Item::End(end) => format!("end {end:?}"),
        });
    }
    seen
}

#[tokio::test]
async fn a_call_is_answered_and_its_task_can_be_asked_for() {
    let agent = FakeAgent::start(|_, _| Does::Result(json!({ "task": done("r-1", "42") }))).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let accepted = sends(&handle, "m-1", Want::Reply).await.unwrap();
    assert_eq!((accepted.view.state, accepted.replay), (TaskState::Completed, false));
    assert_eq!(accepted.view.record.said().into_content().text(), "42");
    assert_eq!(accepted.view.remote_task.as_deref(), Some("r-1"));
    let body = String::from_utf8(accepted.view.record.render_task(&Default::default())).unwrap();
    assert!(
        body.contains(&accepted.task.to_string()) && !body.contains("r-1") && !body.contains("remote-ctx"),
        "{body}"
    );

    // The same message is the same task; the same id with another text is a conflict; nobody else sees it.
    let again = sends(&handle, "m-1", Want::Reply).await.unwrap();
    assert_eq!((again.task, again.replay), (accepted.task, true));
    let mut other = message("m-1");
    other["parts"][0]["text"] = json!("something else");
    let conflict = handle.submit(call(other, Want::Reply)).await.unwrap_err();
    assert_eq!(conflict, Declined::Conflict { first: accepted.task });
    assert_eq!(agent.asked("SendMessage"), 1);
    let mallory = Principal { tenant: "t".into(), caller: "mallory".into() };
    let fx = AgentId::new("fx");
    assert_eq!(handle.task(&mallory, &fx, accepted.task).await.unwrap_err(), Declined::NotFound);
    assert_eq!(handle.task(&alice(), &AgentId::new("other"), accepted.task).await.unwrap_err(), Declined::NotFound);
    assert_eq!(handle.cancel(mallory.clone(), fx.clone(), accepted.task, None).await.unwrap_err(), Declined::NotFound);
    assert_eq!(handle.subscribe(&mallory, &fx, accepted.task, None).await.unwrap_err(), Declined::NotFound);
    assert_eq!(handle.subscribe(&alice(), &fx, accepted.task, None).await.unwrap_err(), Declined::TaskTerminal);
    assert_eq!(handle.cancel(alice(), fx.clone(), accepted.task, None).await.unwrap_err(), Declined::NotCancelable);

    let page = handle.list(&alice(), Filter { limit: 10, ..Filter::default() }).await.unwrap();
    assert_eq!((page.total, page.tasks.len(), page.next), (1, 1, None));
    assert!(handle.list(&mallory, Filter { limit: 10, ..Filter::default() }).await.unwrap().tasks.is_empty());
    let text = handle.metrics();
    assert!(text.contains("watertight_outcomes_total{agent=\"fx\",outcome=\"completed\",reason=\"none\"} 1"), "{text}");
}

#[tokio::test]
async fn a_stream_is_passed_on_whole_and_get_task_is_never_behind_it() {
    let agent = FakeAgent::start(|method, params| match method {
        "SendStreamingMessage" => {
            let id = remote_of(params);
            let mut events = vec![json!({ "task": task(&id, "WORKING") })];
            events.extend((0..500).map(|_| chunk(&id, "x")));
            events.push(status(&id, "COMPLETED"));
            Does::Events(events, None)
        }
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Stream)]).await;
    for round in 0..20 {
        let accepted = sends(&handle, &format!("m-{round}"), Want::Stream).await.unwrap();
        let mut stream = accepted.stream.unwrap();
        let seen = whole(&mut stream).await;
        assert_eq!(seen.len(), 503, "{:?}", seen.last());
        assert_eq!((seen[0].as_str(), seen[502].as_str()), ("Task TASK_STATE_WORKING", "end Over"));
        let view = handle.task(&alice(), &AgentId::new("fx"), accepted.task).await.unwrap();
        assert_eq!(view.state, TaskState::Completed);
        assert_eq!(view.record.said().into_content().text().len(), 500);
    }
}

#[tokio::test]
async fn a_dead_agent_is_told_truthfully() {
    let agent = FakeAgent::start(|_, _| Does::Error(-32050, "out of rates")).await;
    let mut dead = spec("fx", &agent, Mode::Blocking);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    dead.wire = Arc::new(AgentConfig { url, mode: Mode::Blocking, ..(*dead.wire).clone() });
    dead.engine.attempts = 1;
    let handle = start(vec![dead]).await;
    let view = sends(&handle, "m-1", Want::Reply).await.unwrap().view;
    assert_eq!((view.state, view.reason), (TaskState::Failed, Some(Reason::AgentConnectRefused)));
    assert_eq!(view.delivery, Delivery::NotSent);
    assert!(view.record.said().into_content().text().contains("agent_connect_refused"));

    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let view = sends(&handle, "m-1", Want::Reply).await.unwrap().view;
    assert_eq!((view.state, view.reason), (TaskState::Failed, Some(Reason::AgentError)));
    let detail = view.detail.unwrap();
    assert_eq!((detail.code, detail.message.as_deref()), (Some(-32050), Some("out of rates")));
}

#[tokio::test]
async fn an_unknown_agent_and_an_unknown_task_are_refused() {
    let agent = FakeAgent::start(|_, _| Does::Hang).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let mut lost = call(message("m"), Want::Reply);
    lost.agent = AgentId::new("nobody");
    let declined = handle.submit(lost).await.unwrap_err();
    assert!(matches!(declined, Declined::Refused { reason: Reason::AgentUnknown, .. }));
    for named in ["0123456789abcdef0123456789abcdef", "made-up"] {
        let mut follow_up = message("m-2");
        follow_up["taskId"] = json!(named);
        assert_eq!(handle.submit(call(follow_up, Want::Reply)).await.unwrap_err(), Declined::NotFound);
    }
}

#[tokio::test]
async fn a_question_is_answered_in_the_same_task() {
    let agent = FakeAgent::start(|_, params| match params["message"]["taskId"].as_str() {
        None => Does::Result(json!({ "task": task("r-1", "INPUT_REQUIRED") })),
        Some("r-1") => Does::Result(json!({ "task": done("r-1", "thanks") })),
        Some(other) => panic!("{other} is not my task"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let asked = sends(&handle, "m-1", Want::Reply).await.unwrap();
    assert_eq!(asked.view.state, TaskState::InputRequired);
    let mut watcher = handle.subscribe(&alice(), &AgentId::new("fx"), asked.task, None).await.unwrap();
    let mut follow_up = message("m-2");
    follow_up["taskId"] = json!(asked.task.to_string());
    let answered = handle.submit(call(follow_up, Want::Reply)).await.unwrap();
    assert_eq!((answered.task, answered.view.state, answered.view.turn), (asked.task, TaskState::Completed, 2));
    let seen = whole(&mut watcher).await;
    assert_eq!(seen, ["snapshot TASK_STATE_INPUT_REQUIRED", "Task TASK_STATE_COMPLETED", "end Over"]);
    let task = String::from_utf8(answered.view.record.render_task(&Default::default())).unwrap();
    assert!(task.contains("do m-1") && task.contains("do m-2"), "{task}");
}

#[tokio::test]
async fn a_cancel_reaches_the_agent_and_both_callers_hear_of_it() {
    let agent = FakeAgent::start(|method, params| match method {
        "SendStreamingMessage" => {
            Does::Events(vec![json!({ "task": task("r-1", "WORKING") })], Some(Arc::new(Semaphore::new(0))))
        }
        "CancelTask" => Does::Result(task(params["id"].as_str().unwrap_or_default(), "CANCELED")),
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Stream)]).await;
    let accepted = sends(&handle, "m-1", Want::Accepted).await.unwrap();
    until(&handle, accepted.task, |view| view.state == TaskState::Working).await;
    let mut watcher = handle.subscribe(&alice(), &AgentId::new("fx"), accepted.task, None).await.unwrap();
    let canceled = handle.cancel(alice(), AgentId::new("fx"), accepted.task, None).await.unwrap();
    assert_eq!((canceled.state, canceled.cancel), (TaskState::Canceled, Cancel::Confirmed));
    assert_eq!(agent.asked("CancelTask"), 1);
    let seen = whole(&mut watcher).await;
    assert_eq!(seen, ["snapshot TASK_STATE_WORKING", "Status TASK_STATE_CANCELED", "end Over"]);
    // Canceled is canceled, however often it is asked for.
    assert!(handle.cancel(alice(), AgentId::new("fx"), accepted.task, None).await.is_ok());
}

#[tokio::test]
async fn a_full_agent_turns_away_and_who_leaves_the_line_is_not_served() {
    let agent = FakeAgent::start(|_, _| Does::Hang).await;
    let mut one = spec("fx", &agent, Mode::Blocking);
    one.engine.bulkhead = bulkhead::Params { max_in_flight: 1, max_waiting: 1, max_wait: Span::from_secs(30) };
    let handle = start(vec![one]).await;
    let first = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(call(message("m-1"), Want::Reply)).await }
    });
    while agent.asked("SendMessage") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(call(message("m-2"), Want::Reply)).await }
    });
    while handle.agents()[0].waiting == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let third = sends(&handle, "m-3", Want::Reply).await.unwrap_err();
    assert!(matches!(third, Declined::Refused { reason: Reason::BulkheadFull, .. }), "{third:?}");
    second.abort();
    while handle.agents()[0].waiting > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.abort();
    assert_eq!(agent.asked("SendMessage"), 1);
    assert!(handle.metrics().contains("watertight_refusals_total{agent=\"fx\",reason=\"bulkhead_full\"} 1"));
}

#[tokio::test]
async fn a_store_that_hangs_is_waited_for_by_who_came_before_and_by_nobody_else() {
    let agent = FakeAgent::start(|_, _| Does::Result(json!({ "task": done("r-1", "42") }))).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    handle.store().hang(true);
    let first = tokio::spawn({
        let handle = handle.clone();
        async move { sends(&handle, "m-1", Want::Reply).await }
    });
    while handle.ready() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(agent.asked("SendMessage"), 0, "nothing is sent before its commit");
    let declined = sends(&handle, "m-2", Want::Reply).await.unwrap_err();
    assert!(matches!(declined, Declined::Refused { reason: Reason::StoreUnavailable, .. }), "{declined:?}");
    handle.store().hang(false);
    assert_eq!(first.await.unwrap().unwrap().view.state, TaskState::Completed);
    while !handle.ready() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What was refused left nothing behind: the same message is a new one.
    assert!(!sends(&handle, "m-2", Want::Accepted).await.unwrap().replay);
}

#[tokio::test]
async fn without_a_store_callers_are_told_and_with_it_again_all_is_well() {
    let agent = FakeAgent::start(|_, _| Does::Result(json!({ "task": done("r-1", "42") }))).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    // A single bad transaction is ridden out: the caller does not notice, and the agent is called once.
    handle.store().fail_after(0, 1);
    let view = sends(&handle, "m-1", Want::Reply).await.unwrap().view;
    assert_eq!(view.state, TaskState::Completed);
    assert_eq!(agent.asked("SendMessage"), 1);
    // A disk that stays broken is said, not waited for, and what was refused is not done later.
    handle.store().fail_after(0, 1_000_000);
    let declined = sends(&handle, "m-2", Want::Reply).await.unwrap_err();
    assert!(matches!(declined, Declined::Refused { reason: Reason::StoreUnavailable, .. }), "{declined:?}");
    assert!(!handle.ready());
    handle.store().fail_after(u64::MAX, 0);
    while !handle.ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(agent.asked("SendMessage"), 1);
    assert_eq!(handle.task(&alice(), &AgentId::new("fx"), view.task).await.unwrap().state, TaskState::Completed);
}

#[tokio::test]
async fn a_drain_ends_streams_resumably_and_the_next_process_watches_on() {
    let directory = tempfile::tempdir().unwrap();
    let held = Arc::new(Semaphore::new(0));
    let hold = held.clone();
    let agent = FakeAgent::start(move |method, params| match method {
        "SendStreamingMessage" => {
            let mut events = vec![json!({ "task": task("r-1", "WORKING") })];
            events.push(chunk("r-1", "half"));
            Does::Events(events, Some(hold.clone()))
        }
        "SubscribeToTask" => Does::Events(vec![json!({ "task": done("r-1", "whole") })], None),
        "GetTask" => Does::Result(done(params["id"].as_str().unwrap_or_default(), "whole")),
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let at = |path: &Path| StoreSpec::File(path.to_owned());
    let handle = start_in(at(directory.path()), vec![spec("fx", &agent, Mode::Stream)]).await;
    let accepted = sends(&handle, "m-1", Want::Stream).await.unwrap();
    let mut stream = accepted.stream.unwrap();
    until(&handle, accepted.task, |view| view.record.said().into_content().text() == "half").await;
    let begun = std::time::Duration::from_secs(3);
    timeout(begun, handle.drain(Span::from_secs(2))).await.expect("the end of the drain");
    let seen = whole(&mut stream).await;
    assert_eq!(seen.last().unwrap(), &format!("end {:?}", End::ShuttingDown));
    let refused = sends(&handle, "m-2", Want::Reply).await.unwrap_err();
    assert!(matches!(refused, Declined::Refused { reason: Reason::ShuttingDown, .. }));
    drop(handle);

    let handle = start_in(at(directory.path()), vec![spec("fx", &agent, Mode::Stream)]).await;
    let view = until(&handle, accepted.task, |view| view.state.is_terminal()).await;
    assert_eq!((view.state, view.record.said().into_content().text().as_str()), (TaskState::Completed, "whole"));
    assert_eq!(agent.asked("SendStreamingMessage"), 1);
    handle.drain(Span::from_secs(2)).await;
}

#[tokio::test]
async fn a_wait_that_ends_first_gives_the_task_and_the_work_goes_on() {
    let held = Arc::new(Semaphore::new(0));
    let hold = held.clone();
    let agent = FakeAgent::start(move |method, params| match method {
        "SendStreamingMessage" => Does::Events(vec![json!({ "task": task("r-1", "WORKING") })], Some(hold.clone())),
        "GetTask" => Does::Result(done(params["id"].as_str().unwrap_or_default(), "late")),
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Stream)]).await;
    let mut short = call(message("m-1"), Want::Reply);
    short.wait = Some(Span::from_millis(300));
    let accepted = timeout(PATIENCE, handle.submit(short)).await.unwrap().unwrap();
    assert_eq!(accepted.view.state, TaskState::Working);
    held.add_permits(1);
    let view = until(&handle, accepted.task, |view| view.state.is_terminal()).await;
    assert_eq!((view.state, view.record.said().into_content().text().as_str()), (TaskState::Completed, "late"));
}

#[tokio::test]
async fn whichever_commit_fails_the_call_is_made_once_and_ends_once() {
    let agent = FakeAgent::start(|method, params| match method {
        "SendStreamingMessage" => {
            let id = remote_of(params);
            let working = json!({ "task": task(&id, "WORKING") });
            Does::Events(vec![working, chunk(&id, "x"), status(&id, "COMPLETED")], None)
        }
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Stream)]).await;
    for good in 0..6 {
        handle.store().fail_after(good, 1);
        let want = if good % 2 == 0 { Want::Reply } else { Want::Stream };
        let accepted = sends(&handle, &format!("m-{good}"), want).await.unwrap();
        assert!(!accepted.replay);
        if let Some(mut stream) = accepted.stream {
            let seen = whole(&mut stream).await;
            assert_eq!(seen.iter().filter(|item| item.contains("COMPLETED")).count(), 1, "{good}: {seen:?}");
            assert_eq!(seen.last().map(String::as_str), Some("end Over"));
        }
        let view = until(&handle, accepted.task, |view| view.state.is_terminal()).await;
        assert_eq!((view.state, view.reason), (TaskState::Completed, None), "after {good} good transactions");
        assert_eq!(view.record.said().into_content().text(), "x");
        assert_eq!(agent.asked("SendStreamingMessage"), good as usize + 1);
    }
    handle.store().fail_after(u64::MAX, 0);
    assert!(handle.metrics().contains("watertight_cell_reloads_total"));
}

#[tokio::test]
async fn whichever_step_panics_the_call_is_made_once_and_ends_once() {
    let agent = FakeAgent::start(|method, params| match method {
        "SendStreamingMessage" => {
            let id = remote_of(params);
            let working = json!({ "task": task(&id, "WORKING") });
            Does::Events(vec![working, chunk(&id, "x"), status(&id, "COMPLETED")], None)
        }
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Stream)]).await;
    for steps in 1..10 {
        handle.panic_in(steps);
        let accepted = sends(&handle, &format!("m-{steps}"), Want::Stream).await.unwrap();
        assert!(!accepted.replay);
        let seen = whole(&mut accepted.stream.unwrap()).await;
        assert_eq!(seen.iter().filter(|item| item.contains("COMPLETED")).count(), 1, "{steps}: {seen:?}");
        assert_eq!(seen.last().map(String::as_str), Some("end Over"));
        let view = until(&handle, accepted.task, |view| view.state.is_terminal()).await;
        assert_eq!((view.state, view.record.said().into_content().text().as_str()), (TaskState::Completed, "x"));
        assert_eq!(agent.asked("SendStreamingMessage"), steps);
    }
}

#[tokio::test]
async fn whatever_panics_outside_a_step_every_caller_is_told_and_nothing_is_sent_twice() {
    let agent = FakeAgent::start(|method, params| match method {
        "SendStreamingMessage" => {
            let id = remote_of(params);
            let working = json!({ "task": task(&id, "WORKING") });
            Does::Events(vec![working, chunk(&id, "x"), status(&id, "COMPLETED")], None)
        }
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Stream)]).await;
    for times in 1..10 {
        handle.act_panic_in(times);
        // The answer itself may be what is lost; the record stands.
        let want = if times % 2 == 0 { Want::Reply } else { Want::Stream };
        match sends(&handle, &format!("m-{times}"), want).await {
            Ok(accepted) => {
                if let Some(mut stream) = accepted.stream {
                    let seen = whole(&mut stream).await;
                    let ends = |item: &String| item.contains("COMPLETED") || item.contains("FAILED");
                    assert_eq!(seen.iter().filter(|item| ends(item)).count(), 1, "{times}: {seen:?}");
                }
                until(&handle, accepted.task, |view| view.state.is_terminal()).await;
            }
            Err(declined) => assert!(matches!(declined, Declined::Refused { reason: Reason::Internal, .. })),
        }
        handle.act_panic_in(0);
        assert_eq!(sends(&handle, &format!("n-{times}"), Want::Reply).await.unwrap().view.state, TaskState::Completed);
        assert!(agent.asked("SendStreamingMessage") <= 2 * times);
    }
    let page = handle.list(&alice(), Filter { limit: 100, ..Filter::default() }).await.unwrap();
    assert!(page.tasks.iter().all(|view| view.state.is_terminal()));
    let idle = async {
        while handle.agents().iter().any(|agent| agent.in_flight > 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, idle).await.expect("that all slots are free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_sent_fifty_times_at_once_is_one_call() {
    let agent = FakeAgent::start(|_, params| Does::Result(json!({ "task": done(&remote_of(params), "42") }))).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    let sent: Vec<_> = (0..50)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(
                async move { handle.submit(call(message("m-1"), Want::Reply)).await.map(|accepted| accepted.task) },
            )
        })
        .collect();
    let mut tasks = std::collections::BTreeSet::new();
    for one in sent {
        tasks.insert(timeout(PATIENCE, one).await.unwrap().unwrap().unwrap());
    }
    assert_eq!((tasks.len(), agent.asked("SendMessage")), (1, 1));
}

#[tokio::test]
async fn an_agent_may_not_answer_with_another_delegations_task() {
    let agent = FakeAgent::start(|_, _| Does::Result(json!({ "task": done("r-1", "42") }))).await;
    let handle = start(vec![spec("fx", &agent, Mode::Blocking)]).await;
    assert_eq!(sends(&handle, "m-1", Want::Reply).await.unwrap().view.state, TaskState::Completed);
    let view = sends(&handle, "m-2", Want::Reply).await.unwrap().view;
    assert_eq!((view.state, view.reason), (TaskState::Failed, Some(Reason::AgentMalformed)));
    // Also when only the store remembers the first one.
    handle.hub().forget(sends(&handle, "m-1", Want::Reply).await.unwrap().task);
    let view = sends(&handle, "m-3", Want::Reply).await.unwrap().view;
    assert_eq!((view.state, view.reason), (TaskState::Failed, Some(Reason::AgentMalformed)));
}

#[tokio::test]
async fn a_removed_agent_takes_nothing_new_and_finishes_what_it_has() {
    let held = Arc::new(Semaphore::new(0));
    let hold = held.clone();
    let agent = FakeAgent::start(move |method, params| match method {
        "SendStreamingMessage" => Does::Events(vec![json!({ "task": task("r-1", "WORKING") })], Some(hold.clone())),
        "GetTask" => Does::Result(done(params["id"].as_str().unwrap_or_default(), "done")),
        "CancelTask" => Does::Result(task("r-1", "CANCELED")),
        _ => Does::Error(-32601, "no"),
    })
    .await;
    let handle = start(vec![spec("fx", &agent, Mode::Stream)]).await;
    let accepted = sends(&handle, "m-1", Want::Accepted).await.unwrap();
    until(&handle, accepted.task, |view| view.state == TaskState::Working).await;
    handle.configure(Vec::new()).await.unwrap();
    let refused = sends(&handle, "m-2", Want::Reply).await.unwrap_err();
    assert!(matches!(refused, Declined::Refused { reason: Reason::AgentDraining, .. }));
    let canceled = handle.cancel(alice(), AgentId::new("fx"), accepted.task, None).await.unwrap();
    assert_eq!((canceled.state, canceled.cancel), (TaskState::Canceled, Cancel::Confirmed));
}

//! What a start finds in the store: everything that can go on does so at once, whatever else there is.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use serde_json::json;
use watertight_engine::ids::{AgentId, Attempt, Principal, TaskId};
use watertight_engine::record::{Delivery, Phase, Row, Save, TaskState, Turn};
use watertight_policy::budget::Budget;
use watertight_policy::time::Time;
use watertight_store::{Body, Dialect, Store, Write};

use crate::client::{message, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::Config;
use crate::peer::{After, Card, Peer};

/// A task that an agent is known to be working on.
fn running(n: u64, agent: &str) -> Write {
    let began = Time::from_millis(1_700_000_000_000 + n);
    let task = TaskId(u128::from(began.as_millis()) << 80 | u128::from(n));
    let principal = Principal { tenant: "local".into(), caller: "local".into() };
    let [context, message_id, remote, there] =
        ["context-", "message-", "r", "c"].map(|what| Arc::<str>::from(format!("{what}{n}")));
    let budget = Budget { deadline: Time::FAR, depth: 4, fanout: 8 };
    let turn = Turn::new(1, message_id, n.into(), budget);
    let row = Row {
        version: 1,
        remote_task: Some(remote),
        remote_context: Some(there),
        state: TaskState::Working,
        delivery: Delivery::Delivered,
        attempt: Attempt(1),
        turn: Turn { phase: Phase::Running, attempts: 1, ..turn.clone() },
        ..Row::new(task, principal, AgentId::new(agent), context, began, turn)
    };
    let said = json!({"params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "work"}]}}});
    let message = Body { dialect: Dialect::V1, bytes: said.to_string().into() };
    Write {
        save: Save::Delegation { row: row.into(), message: true, record: false },
        message: Some(message),
        record: None,
    }
}

fn fill(directory: &Path) {
    let (store, lease) = Store::open(directory, 0).unwrap();
    let gone = (0..1_000).map(|n| running(n, "gone"));
    let all: Vec<Write> = gone.chain((1_000..1_010).map(|n| running(n, "here"))).collect();
    let (sender, answers) = channel();
    for chunk in all.chunks(400) {
        let sender = sender.clone();
        store.commit(0, lease.fence, chunk.to_vec(), Box::new(move |_, result| sender.send(result).unwrap()));
    }
    drop(sender);
    assert!(answers.into_iter().all(|result| result.is_ok()));
    store.close();
}

#[test]
fn a_thousand_tasks_of_an_agent_that_is_gone_keep_nobody_elses_waiting() {
    let agent = Peer::start(Card::Plain, |request, wire| match request.method() {
        "GetTask" => {
            let id = request.params()["id"].clone();
            let context = id.as_str().unwrap_or("").replace('r', "c");
            wire.ok(&json!({"id": id, "contextId": context, "status": {"state": "TASK_STATE_COMPLETED"}}))
        }
        _ => wire.error(-32601, "no such method"),
    });
    let gateway = Config::new().agent("here", &agent.url(), &[]).start_on(fill);
    let start = now();
    let client = gateway.client();
    eventually(ms(10_000), "all ten are recovered", || {
        let tasks = client.list("here");
        (tasks.len() == 10 && tasks.iter().all(|task| state(task) == "COMPLETED")).then_some(())
    });
    // Each was asked about once: there is no second round for what the first one left out.
    assert_eq!(agent.count("GetTask"), 10, "after {:?}", start.elapsed());
    let page = client.http("GET", "/v1/delegations?agent=gone&state=TASK_STATE_FAILED&limit=1", &[], b"").unwrap();
    let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(page["total"], 1_000, "{page}");
}

#[test]
fn a_context_that_was_held_at_a_kill_is_free_after_it() {
    let agent = Peer::start(Card::Missing, |request, wire| match (request.executes(), request.text()) {
        (true, "hold") => {
            wire.hold(Duration::from_secs(60));
            After::Close
        }
        (true, _) => {
            wire.ok(&json!({"task": {"id": "r", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}))
        }
        (false, _) => wire.error(-32001, "no such task"),
    });
    let mut gateway = Config::new().agent("desk", &agent.url(), &[]).start();
    let client = gateway.client();
    let with = |text: &str| {
        let mut message = message(text);
        message["contextId"] = json!("conversation");
        json!({ "message": message })
    };
    let (blocking, hold) = (client.clone(), with("hold"));
    let held = thread::spawn(move || blocking.call("desk", "SendMessage", &hold, &[]).is_err());
    eventually(ms(5000), "it is sent", || (agent.executions() == 1).then_some(()));
    gateway.kill();
    assert!(held.join().unwrap());
    gateway.start();
    let start = now();
    let next = gateway.client().rpc("desk", "SendMessage", &with("next")).unwrap();
    assert_eq!(state(&next["task"]), "COMPLETED");
    assert!(start.elapsed() < ms(5000), "it waited {:?}", start.elapsed());
}

//! A caller's tasks, page by page: all of them, in order, once, however many there are and whatever happens meanwhile.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::channel;

use serde_json::{Value, json};
use watertight_engine::ids::{AgentId, Attempt, Principal, TaskId};
use watertight_engine::record::{Delivery, Phase, Row, Save, TaskState, Turn};
use watertight_policy::budget::Budget;
use watertight_policy::time::Time;
use watertight_store::{Body, Dialect, Store, Write};

use crate::agent::{Agent, slow};
use crate::client::{Client, fresh, id, state};
use crate::clock::ms;
use crate::gateway::Config;
use crate::peer::{Card, Peer};

/// In each second three of them ended.
const TASKS: u64 = 10_000;
const EPOCH: u64 = 1_700_000_000;

fn task(n: u64, caller: &str, agent: &str) -> Write {
    let ended = Time::from_millis((EPOCH + n / 3) * 1_000);
    let task = TaskId(u128::from(ended.as_millis()) << 80 | u128::from(n));
    let principal = Principal { tenant: "local".into(), caller: caller.into() };
    let (context, message_id) = (format!("context-{}", n % 500), format!("message-{n}"));
    let budget = Budget { deadline: Time::FAR, depth: 4, fanout: 8 };
    let turn = Turn::new(1, message_id.as_str().into(), n.into(), budget);
    let row = Row {
        version: 1,
        state: if n % 100 == 7 { TaskState::Rejected } else { TaskState::Completed },
        delivery: Delivery::Delivered,
        attempt: Attempt(1),
        turn: Turn { phase: Phase::Ended, attempts: 1, ..turn.clone() },
        ..Row::new(task, principal, AgentId::new(agent), context.as_str().into(), ended, turn)
    };
    let said = json!({"params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": format!("ask {n}")}]}}});
    let message = Body { dialect: Dialect::V1, bytes: said.to_string().into() };
    Write {
        save: Save::Delegation { row: row.into(), message: true, record: false },
        message: Some(message),
        record: None,
    }
}

fn fill(directory: &Path) {
    let (store, lease) = Store::open(directory, 0).unwrap();
    let own = (0..TASKS).map(|n| task(n, "local", "any"));
    let others = (0..300).flat_map(|n| [task(TASKS + n, "another", "any"), task(2 * TASKS + n, "local", "other")]);
    let all: Vec<Write> = own.chain(others).collect();
    let (sender, answers) = channel();
    for chunk in all.chunks(400) {
        let sender = sender.clone();
        store.commit(0, lease.fence, chunk.to_vec(), Box::new(move |_, result| sender.send(result).unwrap()));
    }
    drop(sender);
    assert!(answers.into_iter().all(|result| result.is_ok()));
    store.close();
}

/// All pages, and the totals that they told.
fn pages(client: &Client, mut query: Value, mut between: impl FnMut(usize)) -> (Vec<Value>, BTreeSet<u64>) {
    let (mut tasks, mut totals) = (Vec::new(), BTreeSet::new());
    for page in 0.. {
        let answer = client.rpc("any", "ListTasks", &query).expect("a page");
        totals.insert(answer["totalSize"].as_u64().expect("a total"));
        tasks.extend(answer["tasks"].as_array().expect("tasks").iter().cloned());
        let next = answer["nextPageToken"].as_str().unwrap_or_default();
        if next.is_empty() {
            break;
        }
        query["pageToken"] = json!(next);
        between(page);
    }
    (tasks, totals)
}

#[test]
fn ten_thousand_are_paged_in_order_and_once_while_new_ones_come() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(0)));
    let config = Config::new().store("retention = \"100000h\"").agent("any", &agent.url(), &[]);
    let gateway = config.agent("other", &agent.url(), &[]).start_on(fill);
    let client = gateway.client();
    let mut new = Vec::new();
    let (tasks, totals) = pages(&client, json!({"pageSize": 100}), |page| {
        if page % 25 == 3 {
            new.push(client.send("any", "meanwhile").expect("an answer"));
        }
    });
    assert_eq!(new.len(), 4);
    assert_eq!(totals, (TASKS..=TASKS + 4).collect());
    assert_eq!(tasks.len() as u64, TASKS, "those that came later stand before the first page");
    assert_eq!(tasks.iter().map(id).collect::<BTreeSet<_>>().len() as u64, TASKS);
    let times: Vec<&str> = tasks.iter().map(|task| task["status"]["timestamp"].as_str().expect("a time")).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older));
    let history = client.rpc("any", "ListTasks", &json!({"pageSize": 5, "historyLength": 1})).expect("a page");
    assert_eq!(id(&history["tasks"][0]), id(&new[3]), "now they are first");
    assert_eq!(history["tasks"][4]["history"][0]["parts"][0]["text"], "ask 9999", "what a task began with is told");

    let one = |query: Value| pages(&client, query, |_| {});
    let (tasks, totals) = one(json!({"pageSize": 30, "status": "TASK_STATE_REJECTED"}));
    assert!(tasks.iter().all(|task| state(task) == "REJECTED"));
    assert_eq!((tasks.len(), totals), (100, BTreeSet::from([100])));
    let (tasks, totals) = one(json!({"pageSize": 7, "contextId": "context-123"}));
    assert!(tasks.iter().all(|task| task["contextId"] == "context-123"));
    assert_eq!((tasks.len(), totals), (20, BTreeSet::from([20])));
    let (tasks, totals) = one(json!({"pageSize": 50, "statusTimestampAfter": "2023-11-14T23:00:00Z"}));
    // 2800 seconds after the first one, less what is older.
    assert_eq!((tasks.len(), totals), (1_600 + 4, BTreeSet::from([1_604])));
}

#[test]
fn what_is_shown_is_what_is_sorted_and_filtered_by() {
    // An agent whose clock is all over the place.
    let agent = Peer::start(Card::Missing, |request, wire| match request.method() {
        "SendMessage" => {
            let status = json!({"state": "TASK_STATE_COMPLETED", "timestamp": request.text()});
            wire.ok(&json!({"task": {"id": fresh("t"), "contextId": "c", "status": status}}))
        }
        _ => wire.error(-32001, "no such task"),
    });
    let gateway = Config::new().agent("any", &agent.url(), &[]).start();
    let client = gateway.client();
    let clocks =
        ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "2021-01-01T00:00:00.123456Z", "1999-01-01T00:00:00Z"];
    let sent: Vec<Value> = clocks.iter().map(|clock| client.send("any", clock).expect("an answer")).collect();
    let time = |task: &Value| task["status"]["timestamp"].as_str().expect("a time").to_owned();
    let rest = |query: &str| {
        let page = client.http("GET", &format!("/agents/any/tasks?{query}"), &[("a2a-version", "1.0")], b"");
        page.unwrap().bare().expect("a page")["tasks"].as_array().expect("tasks").clone()
    };
    let listed = client.list("any");
    assert_eq!(listed.iter().map(id).collect::<Vec<_>>(), sent.iter().rev().map(id).collect::<Vec<_>>());
    assert!(listed.iter().map(time).collect::<Vec<_>>().is_sorted_by(|newer, older| newer >= older), "{listed:?}");
    assert!(listed.iter().map(time).all(|time| time.starts_with("20") && time.as_str() < "2090"), "{listed:?}");
    assert_eq!(rest(""), listed, "in either binding");
    for (at, task) in sent.iter().rev().enumerate() {
        assert_eq!(time(task), time(&listed[at]), "the answer to a send shows the same");
        assert_eq!(time(task), time(&client.get("any", id(task)).expect("a task")));
        let since = time(task);
        let rpc = client.rpc("any", "ListTasks", &json!({"statusTimestampAfter": since})).expect("a page");
        for page in [rpc["tasks"].as_array().unwrap().clone(), rest(&format!("statusTimestampAfter={since}"))] {
            assert!(page.len() > at && page.iter().all(|task| time(task) >= since), "{since}: {page:?}");
        }
    }
}

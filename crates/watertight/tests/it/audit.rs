//! The record of each delegation: who, whom, when, how it ended, sizes and hashes; durable with the end itself.

use std::collections::BTreeSet;
use std::thread;

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::client::{Client, answer_text, id, message, state};
use crate::clock::{eventually, ms};
use crate::command::watertight;
use crate::disk::limit_files;
use crate::gateway::{Config, Gateway};
use crate::peer::Card;

/// Of `[{"text":"count"}]` and of `[{"text":"done: count"}]`.
const ASKED: &str = "9a81667a823fc84d6aef437598ce09bb5513a611dc917714ad0c51c283c0e9c8";
const ANSWERED: &str = "59f4ec2d3131bf13c20da05d94a728a7ccf9994daedf379c56f9a01f36388d14";

fn worker() -> Agent {
    Agent::start(Card::Plain, |text| match text {
        "fail" => vec![Step::Chunk("half".into()), Step::End("FAILED")],
        "ask" => vec![Step::Ask("which day?")],
        "slow" => slow(text, ms(60_000)),
        "soon" => slow(text, ms(1_500)),
        text => vec![Step::Chunk(format!("done: {text}")), Step::End("COMPLETED")],
    })
}

fn config(worker: &str) -> Config {
    let callers = "[callers.lead-token]\ntoken = \"file:lead\"\ntenant = \"t\"\nagent = \"lead\"\n\
                   [callers.ops]\ntoken = \"file:ops\"\ntenant = \"t\"\noperator = true\n\
                   [callers.far]\ntoken = \"file:far\"\ntenant = \"far\"\noperator = true\n";
    let config = Config::new()
        .agent("work", worker, &["max_in_flight = 50"])
        .agent("lead", "http://127.0.0.1:9/", &[])
        .tables(callers);
    ["lead", "ops", "far"].into_iter().fold(config, |config, name| config.with_file(name, &format!("token-of-{name}")))
}

fn get(gateway: &Gateway, who: &str, path: &str) -> (u16, Value) {
    let bearer = format!("Bearer token-of-{who}");
    let answer = gateway.client().http("GET", path, &[("authorization", &bearer)], b"").unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

fn delegate(client: &Client, task: &str) -> String {
    let headers = [("authorization", "Bearer token-of-lead")];
    let body = json!({"target_id": "work", "task": task}).to_string();
    let answer = client.http("POST", "/workspaces/lead/delegate", &headers, body.as_bytes()).unwrap();
    let told: Value = serde_json::from_slice(&answer.body).unwrap();
    told["delegation_id"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned()
}

/// All records, in pages of this length, once there are so many.
fn all(gateway: &Gateway, who: &str, limit: usize, count: usize) -> Vec<Value> {
    eventually(ms(15_000), "the records are there", || {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let (status, page) = get(gateway, who, &format!("/v1/audit?limit={limit}{next}"));
            assert_eq!(status, 200, "{page}");
            all.extend(page["records"].as_array().unwrap().clone());
            if page["more"] == false {
                break (all.len() == count).then_some(all);
            }
            next = format!("&after={}", page["next"].as_str().unwrap());
        }
    })
}

fn ids(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["task"].as_str().unwrap()).collect()
}

#[test]
fn each_end_is_recorded_once_with_sizes_and_hashes_and_without_a_word() {
    let agent = worker();
    let mut gateway = config(&agent.url()).start();
    let client = gateway.client();
    let first = delegate(&client, "count");
    let failed = delegate(&client, "fail");
    let (asks, slow) = (delegate(&client, "ask"), delegate(&client, "slow"));
    let records = all(&gateway, "ops", 100, 2);
    assert_eq!(ids(&records).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([first.as_str(), failed.as_str()]));
    let record = records.iter().find(|record| record["task"] == json!(first)).unwrap();
    assert_eq!(
        (&record["request"], &record["result"]),
        (&json!({"bytes": 18, "sha256": ASKED}), &json!({"bytes": 24, "sha256": ANSWERED}),),
        "{record}"
    );
    for (name, value) in [
        ("tenant", "t"),
        ("caller", "lead-token"),
        ("from", "lead"),
        ("agent", "work"),
        ("state", "TASK_STATE_COMPLETED"),
        ("delivery", "delivered"),
    ] {
        assert_eq!(record[name], value, "{name}: {record}");
    }
    let times: Vec<&str> = ["created", "sent", "ended"].iter().map(|name| record[*name].as_str().unwrap()).collect();
    assert!(times.is_sorted() && record["attempts"] == 1 && record["redrives"].is_null(), "{record}");
    let failure = records.iter().find(|record| record["task"] == json!(failed)).unwrap();
    assert!(failure["state"] == "TASK_STATE_FAILED" && failure["result"]["bytes"].as_u64() > Some(2), "{failure}");
    let text = Value::from(records.clone()).to_string();
    assert!(!text.contains("count") && !text.contains("half"), "{text}");
    // What is not over has its message's hash in its row all the same, and no record.
    let (_, row) = get(&gateway, "ops", &format!("/v1/delegations/{asks}"));
    assert!(row["request"]["bytes"] == 16 && row["result"]["bytes"].as_u64() > Some(2), "{row}");
    let (_, row) = get(&gateway, "ops", &format!("/v1/delegations/{slow}"));
    assert!(row["request"]["bytes"] == 17 && row["result"].is_null(), "{row}");

    // It is the row's, and outlives the process; only its tenant's operators read it.
    gateway.kill();
    gateway.start();
    let again = all(&gateway, "ops", 1, 2);
    assert_eq!(again, records);
    assert_eq!(get(&gateway, "lead", "/v1/audit").0, 403);
    assert_eq!(gateway.client().http("GET", "/v1/audit", &[], b"").unwrap().status, 401);
    assert_eq!(get(&gateway, "far", "/v1/audit"), (200, json!({"records": [], "more": false, "next": null})));
    for query in ["limit=0", "limit=1001", "after=x", "since=yesterday", "unheard=1"] {
        assert_eq!(get(&gateway, "ops", &format!("/v1/audit?{query}")).0, 400, "{query}");
    }
}

#[test]
fn an_export_goes_on_where_the_one_before_ended() {
    let agent = worker();
    let gateway = config(&agent.url()).start();
    let client = gateway.client();
    let token = gateway.file("ops");
    let export = |more: &[&str]| {
        let mut args = vec!["audit"];
        args.extend(more);
        args.extend(["--token-file", token.to_str().unwrap()]);
        watertight(&gateway, &args)
    };
    let first: BTreeSet<String> = (0..30).map(|n| delegate(&client, &format!("job {n}"))).collect();
    let begun = all(&gateway, "ops", 7, 30);
    let ended = |records: &[Value]| -> Vec<(String, String)> {
        let text = |record: &Value, name: &str| record[name].as_str().unwrap().to_owned();
        records.iter().map(|record| (text(record, "ended"), text(record, "task"))).collect()
    };
    assert!(ended(&begun).is_sorted_by_key(|(ended, _)| ended.clone()), "{begun:?}");
    let exported = export(&[]);
    let lines = exported.json();
    assert_eq!((lines.len(), ended(&lines)), (30, ended(&begun)));
    let cursor = exported.err.split("--after ").nth(1).unwrap().trim().to_owned();

    let second: BTreeSet<String> = (0..5).map(|n| delegate(&client, &format!("more {n}"))).collect();
    all(&gateway, "ops", 100, 35);
    let rest = export(&["--after", &cursor]).json();
    assert_eq!(rest.iter().map(|one| one["task"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>(), second);
    assert!(first.is_disjoint(&second));
    let since = rest[0]["ended"].as_str().unwrap();
    let from = export(&["--since", since]).json();
    assert!(from.len() >= 5 && from.iter().all(|one| one["ended"].as_str().unwrap() >= since), "{from:?}");
    let until = export(&["--until", since]).json();
    assert!(until.len() + from.len() == 35 && until.iter().all(|one| one["ended"].as_str().unwrap() < since));
}

#[test]
fn what_cannot_be_recorded_is_not_told_as_done() {
    let agent = worker();
    let gateway = Config::new().agent("work", &agent.url(), &[]).start();
    let client = gateway.client();
    let waiting = client.clone();
    let blocked = thread::spawn(move || waiting.rpc("work", "SendMessage", &json!({"message": message("soon")})));
    eventually(ms(5_000), "the agent has it", || (agent.running() == 1).then_some(()));
    limit_files(&gateway, "4096");
    let told = blocked.join().unwrap();
    let done = |task: &Value| state(task) == "COMPLETED";
    assert!(told.as_ref().is_ok_and(|told| !done(&told["task"])) || told.is_err(), "{told:?}");
    let none = client.http("GET", "/v1/audit", &[], b"").unwrap();
    assert!(!String::from_utf8_lossy(&none.body).contains("COMPLETED"));
    limit_files(&gateway, "unlimited");
    let task = told.map_or_else(|fault| fault.task, |told| id(&told["task"]).to_owned());
    let ended = eventually(ms(20_000), "it ends", || client.get("work", &task).ok().filter(done));
    assert!(answer_text(&ended).starts_with("done"), "{ended}");
    let records = eventually(ms(15_000), "its record", || {
        let answer = client.http("GET", "/v1/audit", &[], b"").ok()?;
        let page: Value = serde_json::from_slice(&answer.body).ok()?;
        page["records"].as_array().cloned().filter(|all| !all.is_empty())
    });
    assert_eq!((ids(&records), &records[0]["state"]), (vec![task.as_str()], &json!("TASK_STATE_COMPLETED")));
    assert!(records[0]["result"]["bytes"].as_u64() > Some(2), "{records:?}");
}

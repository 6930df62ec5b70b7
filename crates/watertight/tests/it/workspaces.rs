//! Agents as workspaces: `/workspaces/{agent}/a2a`, `/delegate` and `/delegations`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::client::{Client, answer_text, fresh, message, state};
use crate::clock::{eventually, ms};
use crate::disk::limit_files;
use crate::gateway::{Config, Gateway};
use crate::peer::{Card, Peer};

const LONG: usize = 2 << 20;

/// Two agents that call each other, a third, and a caller that is no agent.
fn config(worker: &str) -> Config {
    let caller =
        |name: &str, more: &str| format!("[callers.{name}-token]\ntoken = \"file:{name}\"\ntenant = \"t\"\n{more}\n");
    let callers = [
        caller("lead", "agent = \"lead\""),
        caller("work", "agent = \"work\""),
        caller("other", "agent = \"other\""),
        caller("person", ""),
        "[callers.far-token]\ntoken = \"file:far\"\ntenant = \"far\"\nagent = \"lead\"\n".to_owned(),
        "[callers.narrow-token]\ntoken = \"file:narrow\"\ntenant = \"t\"\nagent = \"other\"\nagents = [\"lead\"]\n"
            .to_owned(),
    ];
    let config = Config::new()
        .agent("lead", "http://127.0.0.1:9/", &[])
        .agent("work", worker, &["max_in_flight = 50", "queue_ttl_max = \"1h\"", "max_result_bytes = \"8MiB\""])
        .agent("other", "http://127.0.0.1:9/", &[])
        .tables(&callers.concat());
    ["lead", "work", "other", "person", "far", "narrow"]
        .into_iter()
        .fold(config, |config, name| config.with_file(name, &format!("token-of-{name}")))
}

fn worker() -> Agent {
    Agent::start(Card::Plain, |text| match text {
        "ask" => vec![Step::Work("thinking"), Step::Ask("which day?")],
        "fail" => vec![Step::Chunk("half a room".into()), Step::End("FAILED")],
        "long" => vec![Step::Chunk("é".repeat(LONG / 2)), Step::End("COMPLETED")],
        "slow" => slow(text, ms(60_000)),
        text => vec![Step::Chunk(format!("done: {text}")), Step::End("COMPLETED")],
    })
}

struct As {
    client: Client,
    bearer: String,
}

impl As {
    fn new(gateway: &Gateway, name: &str) -> As {
        As { client: gateway.client(), bearer: format!("Bearer token-of-{name}") }
    }

    fn raw(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let answer = self.client.http(method, path, &[("authorization", &self.bearer)], body).unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    fn delegate(&self, body: &Value) -> (u16, Value) {
        self.raw("POST", "/workspaces/lead/delegate", body.to_string().as_bytes())
    }

    fn id(&self, task: &str) -> String {
        let (status, body) = self.delegate(&json!({"target_id": "work", "task": task}));
        assert_eq!(status, 202, "{body}");
        body["delegation_id"].as_str().unwrap().to_owned()
    }

    fn one(&self, agent: &str, id: &str) -> (u16, Value) {
        self.raw("GET", &format!("/workspaces/{agent}/delegations/{id}"), b"")
    }

    fn comes_to(&self, id: &str, status: &str) -> Value {
        eventually(ms(10_000), status, || {
            let (code, one) = self.one("lead", id);
            assert_eq!(code, 200, "{one}");
            (one["status"] == status).then_some(one)
        })
    }
}

fn three_parts(body: &Value, reason: &str) {
    let text = |name: &str| body[name].as_str().is_some_and(|text| !text.trim().is_empty());
    assert!(text("error") && text("hint") && body["reason"] == reason, "{body}");
}

#[test]
fn work_is_handed_over_and_its_whole_result_is_read() {
    let agent = worker();
    let mut gateway = config(&agent.url()).start();
    let lead = As::new(&gateway, "lead");
    let (status, taken) = lead.delegate(&json!({"target": "work", "task": "count", "ttl_seconds": 60, "priority": 9}));
    assert_eq!((status, &taken["status"], &taken["target_id"]), (202, &json!("delegated"), &json!("work")), "{taken}");
    let id = taken["delegation_id"].as_str().unwrap().to_owned();
    let done = lead.comes_to(&id, "completed");
    assert_eq!(
        (&done["result"], &done["task"], &done["direction"]),
        (&json!("done: count"), &json!("count"), &json!("sent"))
    );
    assert_eq!((&done["source_id"], &done["target_id"]), (&json!("lead"), &json!("work")));

    let long = lead.id("long");
    let (asks, fails, slow) = (lead.id("ask"), lead.id("fail"), lead.id("slow"));
    assert_eq!(lead.comes_to(&asks, "input_required")["question"], "which day?");
    let failed = lead.comes_to(&fails, "failed");
    assert!(failed.get("result").is_none() && failed["error"] == "half a room", "{failed}");
    let at_work = lead.comes_to(&slow, "in_progress");
    assert!(["result", "question", "error"].iter().all(|name| at_work.get(name).is_none()), "{at_work}");
    lead.comes_to(&long, "completed");

    // After a restart it is all there, byte for byte; in a list only the beginnings are, and say that they are.
    gateway.kill();
    gateway.start();
    let lead = As::new(&gateway, "lead");
    let (_, whole) = lead.one("lead", &long);
    assert_eq!(
        (whole["result"].as_str().unwrap(), &whole["result_bytes"]),
        ("é".repeat(LONG / 2).as_str(), &json!(LONG))
    );
    let mut seen = Vec::new();
    let mut next = String::new();
    loop {
        let (status, page) = lead.raw("GET", &format!("/workspaces/lead/delegations?limit=2{next}"), b"");
        assert_eq!((status, &page["total"]), (200, &json!(5)), "{page}");
        seen.extend(page["delegations"].as_array().unwrap().clone());
        match page["next_page_token"].as_str() {
            Some(token) => next = format!("&page_token={token}"),
            None => break,
        }
    }
    let ids: BTreeSet<&str> = seen.iter().filter_map(|item| item["delegation_id"].as_str()).collect();
    assert_eq!((seen.len(), ids.len()), (5, 5), "{seen:?}");
    let cut = seen.iter().find(|item| item["delegation_id"] == json!(long)).unwrap();
    assert_eq!(cut["response_preview"].as_str().unwrap(), "é".repeat(150));
    assert_eq!((&cut["response_preview_bytes"], &cut["response_preview_truncated"]), (&json!(LONG), &json!(true)));
    let short = seen.iter().find(|item| item["delegation_id"] == json!(id)).unwrap();
    assert_eq!((&short["summary"], &short["response_preview"]), (&json!("count"), &json!("done: count")));
    assert_eq!((&short["summary_truncated"], &short["response_preview_truncated"]), (&json!(false), &json!(false)));
}

#[test]
fn only_both_ends_of_a_delegation_see_it() {
    let agent = worker();
    let gateway = config(&agent.url()).start();
    let (lead, work, other) = (As::new(&gateway, "lead"), As::new(&gateway, "work"), As::new(&gateway, "other"));
    let (person, far) = (As::new(&gateway, "person"), As::new(&gateway, "far"));
    let id = lead.id("count");
    lead.comes_to(&id, "completed");
    let (status, seen) = work.one("work", &id);
    assert_eq!((status, &seen["direction"], &seen["source_id"]), (200, &json!("received"), &json!("lead")), "{seen}");
    let list = |who: &As, agent: &str, query: &str| {
        let (status, page) = who.raw("GET", &format!("/workspaces/{agent}/delegations{query}"), b"");
        assert_eq!(status, 200, "{page}");
        page["delegations"].as_array().unwrap().len()
    };
    assert_eq!((list(&work, "work", ""), list(&work, "work", "?direction=received")), (1, 1));
    assert_eq!((list(&work, "work", "?direction=sent"), list(&lead, "lead", "?direction=received")), (0, 0));
    assert_eq!((list(&other, "other", ""), list(&far, "lead", "")), (0, 0));

    // Whatever one may not see is not there, and nobody speaks for another.
    let never = other.one("other", &"0".repeat(32));
    assert_eq!(never.0, 404);
    three_parts(&never.1, "task_not_found");
    for no in [other.one("other", &id), other.one("other", "nonsense"), far.one("lead", &id)] {
        assert_eq!(no, never);
    }
    for (who, agent) in [(&other, "lead"), (&person, "lead"), (&work, "lead"), (&lead, "nobody")] {
        for (method, path) in
            [("GET", "delegations".to_owned()), ("GET", format!("delegations/{id}")), ("POST", "delegate".into())]
        {
            let (status, body) =
                who.raw(method, &format!("/workspaces/{agent}/{path}"), br#"{"target_id":"work","task":"x"}"#);
            assert_eq!(status, 403, "{body}");
            three_parts(&body, "forbidden");
        }
    }
    let nobody = gateway.client().http("POST", "/workspaces/lead/delegate", &[], b"{}").unwrap();
    assert_eq!(nobody.status, 401);
    three_parts(&serde_json::from_slice(&nobody.body).unwrap(), "unauthenticated");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn what_cannot_be_delegated_is_refused_at_once_in_three_parts() {
    let agent = worker();
    let gateway = config(&agent.url()).top("server.max_request_bytes = \"64KiB\"").start();
    let (lead, narrow) = (As::new(&gateway, "lead"), As::new(&gateway, "narrow"));
    let oversized = "x".repeat(64 << 10);
    for (body, status, reason, says) in [
        (json!({"target_id": "lead", "task": "x"}), 400, "delegation_cycle", "itself"),
        (json!({"target_id": "nobody", "task": "x"}), 404, "agent_unknown", "no such agent"),
        (json!({"target_id": "work", "task": ""}), 400, "invalid_arguments", "empty"),
        (json!({"target_id": "work", "task": " \n"}), 400, "invalid_arguments", "max_request_bytes"),
        (json!({"target_id": "work", "task": oversized}), 413, "too_large", "65536"),
        (json!({"target_id": "work"}), 400, "invalid_arguments", "task"),
        (json!({"target_id": "work", "task": 5}), 400, "invalid_arguments", "string"),
        (json!({"target_id": "work", "task": "x", "prio": 1}), 400, "invalid_arguments", "prio"),
        (json!({"target_id": "work", "target": "work", "task": "x"}), 400, "invalid_arguments", "duplicate"),
        (json!({"target_id": "work", "task": "x", "idempotency_key": " "}), 400, "invalid_arguments", "printable"),
        (json!({"target_id": "work", "task": "x", "ttl_seconds": 0}), 400, "invalid_arguments", "at least 1"),
        (json!({"target_id": "work", "task": "x", "ttl_seconds": -5}), 400, "invalid_arguments", "at least 1"),
        (json!({"target_id": "work", "task": "x", "ttl_seconds": 1.5}), 400, "invalid_arguments", "whole number"),
        (json!({"target_id": "work", "task": "x", "ttl_seconds": "9"}), 400, "invalid_arguments", "whole number"),
        (json!({"target_id": "work", "task": "x", "ttl_seconds": 7200}), 400, "invalid_arguments", "3600"),
        (json!([]), 400, "invalid_arguments", "not what this takes"),
    ] {
        let (is, told) = lead.delegate(&body);
        assert_eq!(is, status, "{told}");
        three_parts(&told, reason);
        let said = told.to_string();
        assert!(said.contains(says), "{says}: {said}");
    }
    let (status, told) = lead.raw("POST", "/workspaces/lead/delegate", b"{\"target_id\":\"work\",\"task\":\"\xff\"}");
    assert_eq!(status, 400, "{told}");
    three_parts(&told, "invalid_arguments");
    let (status, told) = narrow.raw("POST", "/workspaces/other/delegate", br#"{"target_id":"work","task":"x"}"#);
    assert_eq!(status, 404, "{told}");

    // An agent that is taken away: known to those who could call it, and gone.
    gateway.rewrite("[agents.work]", "[agents.work2]");
    gateway.rewrite("[agents.work.breaker]", "[agents.work2.breaker]");
    gateway.rewrite("agent = \"work\"", "agent = \"work2\"");
    gateway.hang_up();
    let gone = eventually(ms(5_000), "the agent is gone", || {
        let (status, told) = lead.delegate(&json!({"target_id": "work", "task": ""}));
        let (gone, more) = lead.delegate(&json!({"target_id": "work", "task": "x", "idempotency_key": "k"}));
        assert_eq!(status, 400, "{told}");
        (gone == 410).then_some(more)
    });
    three_parts(&gone, "agent_unknown");
}

#[test]
fn a_key_is_one_piece_of_work_until_that_has_failed() {
    let well = Arc::new(AtomicBool::new(true));
    let mood = well.clone();
    let peer =
        Peer::start(Card::Missing, move |request, wire| match (request.executes(), mood.load(Ordering::SeqCst)) {
            (false, _) => wire.error(-32001, "no such task"),
            (true, false) => wire.error(-32050, "not today"),
            (true, true) => {
                let artifacts = json!([{"artifactId": "a", "parts": [{"text": format!("done: {}", request.text())}]}]);
                let status = json!({"state": "TASK_STATE_COMPLETED"});
                wire.ok(
                    &json!({"task": {"id": fresh("r"), "contextId": "c", "status": status, "artifacts": artifacts}}),
                )
            }
        });
    let mut gateway = config(&peer.url()).start();
    let lead = As::new(&gateway, "lead");
    let ask = json!({"target_id": "work", "task": "pay", "idempotency_key": "k1"});
    let all: Vec<(u16, Value)> = thread::scope(|scope| {
        let all: Vec<_> = (0..20).map(|_| scope.spawn(|| lead.delegate(&ask))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let ids: BTreeSet<&str> = all.iter().filter_map(|(_, body)| body["delegation_id"].as_str()).collect();
    assert_eq!((ids.len(), all.iter().filter(|(status, _)| *status == 202).count()), (1, 1), "{all:?}");
    let first = ids.into_iter().next().unwrap().to_owned();
    lead.comes_to(&first, "completed");
    let (status, hit) = lead.delegate(&ask);
    let expected = json!({"delegation_id": first, "status": "completed", "target_id": "work", "idempotent_hit": true});
    assert_eq!((status, hit), (200, expected));
    let (status, other) = lead.delegate(&json!({"target_id": "work", "task": "pay more", "idempotency_key": "k1"}));
    assert_eq!((status, &other["delegation_id"]), (409, &json!(first)), "{other}");
    three_parts(&other, "message_id_conflict");
    assert_eq!(peer.executions(), 1);

    // What failed is run again under the same key, once, and what it repeats stays as it was.
    well.store(false, Ordering::SeqCst);
    let ask = json!({"target_id": "work", "task": "book", "idempotency_key": "k2"});
    let (_, taken) = lead.delegate(&ask);
    let failed = taken["delegation_id"].as_str().unwrap().to_owned();
    lead.comes_to(&failed, "failed");
    gateway.kill();
    gateway.start();
    let lead = As::new(&gateway, "lead");
    well.store(true, Ordering::SeqCst);
    let (status, again) = lead.delegate(&ask);
    assert_eq!((status, &again["redrives"]), (202, &json!(failed)), "{again}");
    let second = again["delegation_id"].as_str().unwrap().to_owned();
    assert_ne!(second, failed);
    let done = lead.comes_to(&second, "completed");
    assert_eq!((&done["result"], &done["redrives"]), (&json!("done: book"), &json!(failed)));
    assert_eq!(lead.one("lead", &failed).1["status"], "failed");
    let (status, hit) = lead.delegate(&ask);
    assert_eq!((status, &hit["delegation_id"], &hit["status"]), (200, &json!(second), &json!("completed")), "{hit}");
    let (status, _) = lead.delegate(&json!({"target_id": "work", "task": "book it", "idempotency_key": "k2"}));
    assert_eq!((status, peer.executions()), (409, 3));
}

#[test]
fn without_a_disk_nothing_is_taken_on() {
    let agent = worker();
    let gateway = config(&agent.url()).start();
    let lead = As::new(&gateway, "lead");
    lead.comes_to(&lead.id("count"), "completed");
    limit_files(&gateway, "4096");
    let (status, told) = lead.delegate(&json!({"target_id": "work", "task": "x"}));
    assert_eq!(status, 503, "{told}");
    three_parts(&told, "store_unavailable");
    assert!(told["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{told}");
    limit_files(&gateway, "unlimited");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn the_a2a_door_is_the_agents_own_and_opens_without_an_envelope() {
    let agent = Agent::echo();
    let gateway = config(&agent.url()).start();
    let person = As::new(&gateway, "person");
    let post = |path: &str, body: &Value, version: bool| {
        let mut headers = vec![("authorization", person.bearer.as_str()), ("content-type", "application/json")];
        headers.extend(version.then_some(("a2a-version", "1.0")));
        let answer = person.client.http("POST", path, &headers, body.to_string().as_bytes()).unwrap();
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let rpc = json!({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": message("a")}});
    for (path, body) in [
        ("/workspaces/work/a2a", rpc.clone()),
        ("/workspaces/work/a2a", json!({"message": message("a")})),
        ("/workspaces/work/a2a", json!({"params": {"message": message("a")}})),
    ] {
        let (status, answer) = post(path, &body, true);
        assert_eq!((status, answer_text(&answer["result"]["task"])), (200, "echo: a".into()), "{answer}");
    }
    let (status, answer) = post("/workspaces/work/a2a/message:send", &json!({"message": message("b")}), true);
    assert_eq!((status, state(&answer["task"])), (200, "COMPLETED"), "{answer}");
    let (status, card) = person.raw("GET", "/workspaces/work/a2a/.well-known/agent-card.json", b"");
    assert!(status == 200 && card["name"].is_string(), "{card}");

    // A tool's envelope goes along as it is, and is known again by its id; it says nothing of A2A, and needs no version.
    let envelope = json!({"task": "c", "delegation_id": "d-77", "n": 1});
    for _ in 0..2 {
        let (status, answer) = post("/workspaces/work/a2a", &envelope, false);
        assert_eq!((status, &answer["id"]), (200, &json!("d-77")), "{answer}");
        assert!(answer_text(&answer["result"]["task"]).starts_with("echo: c"), "{answer}");
    }
    let sent = agent.peer.received().into_iter().filter(|r| r.executes()).map(|r| r.params()["message"].clone());
    let sent: Vec<Value> = sent.filter(|message| message["messageId"] == "d-77").collect();
    assert_eq!((sent.len(), &sent[0]["parts"]), (1, &json!([{"text": "c"}, {"data": envelope}])));

    // What is neither is JSON-RPC's to refuse; so is anything at the agent's other door.
    for body in [
        json!({"task": "c", "message": message("d")}),
        json!({"task": 5}),
        json!({}),
        json!([]),
        json!({"task": "c", "id": 1}),
    ] {
        let (_, answer) = post("/workspaces/work/a2a", &body, true);
        assert!(answer["error"]["code"].is_i64(), "{answer}");
    }
    let (_, answer) = post("/agents/work", &envelope, true);
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let (_, answer) = post("/workspaces/work/a2a", &json!({"message": message("e")}), false);
    assert_eq!(answer["error"]["code"], -32009, "{answer}");
    let (status, _) = post("/workspaces/nobody/a2a", &envelope, false);
    assert_eq!(status, 404);
}

#[test]
fn where_nobody_has_a_credential_nobody_is_taken_at_his_word() {
    let agent = worker();
    let gateway = Config::new().agent("work", &agent.url(), &[]).agent("lead", "http://127.0.0.1:9/", &[]).start();
    let answer =
        gateway.client().http("POST", "/workspaces/lead/delegate", &[], br#"{"target_id":"work","task":"x"}"#).unwrap();
    assert_eq!(answer.status, 403);
    let told: Value = serde_json::from_slice(&answer.body).unwrap();
    three_parts(&told, "forbidden");
    assert!(told["hint"].as_str().unwrap().contains("callers.NAME.agent"), "{told}");
}

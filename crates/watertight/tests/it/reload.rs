//! Reloads: another configuration takes the place of the one in force, and nothing that runs is dropped.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Client, answer_text, id, state};
use crate::clock::{eventually, ms};
use crate::gateway::{Config, Gateway};
use crate::peer::Card;

/// POSTs the reload, and gives the status and what was answered.
fn reload(client: &Client, headers: &[(&str, &str)]) -> (u16, Value) {
    let answer = client.http("POST", "/v1/config/reload", headers, b"").unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

fn shown(client: &Client, headers: &[(&str, &str)]) -> Value {
    let answer = client.http("GET", "/v1/config", headers, b"").unwrap();
    assert_eq!(answer.status, 200);
    serde_json::from_slice(&answer.body).unwrap()
}

#[track_caller]
fn logged(gateway: &Gateway, part: &str) {
    eventually(ms(5000), part, || gateway.log().contains(part).then_some(()));
}

#[test]
fn slots_are_taken_away_and_given_back_while_calls_run() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1500)));
    let gateway = Config::new().agent("fx", &agent.url(), &["max_in_flight = 4", "max_waiting = 0"]).start();
    let client = gateway.client();
    thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(|| client.send("fx", "kept"))).collect();
        eventually(ms(5000), "four run", || (agent.running() == 4).then_some(()));
        gateway.rewrite("max_in_flight = 4", "max_in_flight = 1");
        let (status, done) = reload(&client, &[]);
        assert_eq!((status, &done["changed"]), (200, &json!(["agents.fx.max_in_flight"])), "{done}");
        assert_eq!((&done["generation"], &done["pendingRestart"]), (&json!(2), &json!([])), "{done}");
        for call in running {
            assert_eq!(answer_text(&call.join().unwrap().unwrap()), "done: kept");
        }
    });
    thread::scope(|scope| {
        let one = scope.spawn(|| client.send("fx", "the only one"));
        eventually(ms(5000), "one runs", || (agent.running() == 1).then_some(()));
        assert_eq!(client.send("fx", "one too many").unwrap_err().reason, "bulkhead_full");
        // Given back in the middle of it.
        gateway.rewrite("max_in_flight = 1", "max_in_flight = 3");
        gateway.hang_up();
        logged(&gateway, "generation=3");
        assert!(client.send("fx", "beside it").is_ok());
        assert!(one.join().unwrap().is_ok());
    });
    assert_eq!(shown(&client, &[])["config"]["agents"]["fx"]["max_in_flight"], 3);
}

#[test]
fn a_call_waits_on_and_gets_the_slot_that_a_reload_brings() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(text.len() as u64 * 100)));
    let limits = ["max_in_flight = 1", "max_waiting = 4", "max_wait = \"20s\""];
    let gateway = Config::new().agent("fx", &agent.url(), &limits).start();
    let client = gateway.client();
    thread::scope(|scope| {
        let long = scope.spawn(|| client.send("fx", &"x".repeat(60)));
        eventually(ms(5000), "one runs", || (agent.running() == 1).then_some(()));
        let waiting = scope.spawn(|| client.send("fx", "y"));
        eventually(ms(5000), "one waits", || (gateway.metric("waiting", "fx") == Some(1.0)).then_some(()));
        gateway.rewrite("max_in_flight = 1", "max_in_flight = 2");
        assert_eq!(reload(&client, &[]).0, 200);
        assert!(waiting.join().unwrap().is_ok());
        assert_eq!(agent.running(), 1, "the first one is still at work: it was not waited for");
        assert!(long.join().unwrap().is_ok());
    });
}

#[test]
fn agents_come_and_go_while_calls_run() {
    let (old, new) = (Agent::start(Card::Streaming, |text| slow(text, ms(1500))), Agent::echo());
    let gateway = Config::new().agent("old", &old.url(), &[]).start();
    let client = gateway.client();
    thread::scope(|scope| {
        let held = scope.spawn(|| client.send("old", "to the end"));
        let task = client.submit("old", "to the end too").unwrap();
        eventually(ms(5000), "both run", || (old.running() == 2).then_some(()));
        let text = fs::read_to_string(gateway.config()).unwrap();
        let (top, _) = text.split_once("[agents.old]").unwrap();
        fs::write(gateway.config(), format!("{top}[agents.new]\nurl = \"{}\"\n", new.url())).unwrap();
        let (status, done) = reload(&client, &[]);
        assert_eq!((status, &done["agents"]), (200, &json!({"added": ["new"], "removed": ["old"]})), "{done}");

        assert_eq!(answer_text(&client.send("new", "hello").unwrap()), "echo: hello");
        let refused = client.send("old", "more").unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.delivery.as_str()), ("agent_draining", "not_sent"), "{refused:?}");
        let card = client.http("GET", "/agents/old/.well-known/agent-card.json", &[], b"").unwrap();
        assert_eq!(card.status, 404, "nobody is sent to an agent that takes nothing new");

        // What it had goes on, and can be followed and canceled.
        assert_eq!(answer_text(&held.join().unwrap().unwrap()), "done: to the end");
        assert_eq!(answer_text(&client.ended("old", id(&task), ms(10_000))), "done: to the end too");
        let (_, again) = reload(&client, &[]);
        assert_eq!((&again["changed"], &again["agents"]["removed"]), (&json!([]), &json!([])), "{again}");
        assert_eq!(shown(&client, &[])["leaving"], json!(["old"]));
        assert_eq!(state(&client.get("old", id(&task)).unwrap()), "COMPLETED");
    });
    assert_eq!((old.peer.executions(), new.peer.executions()), (2, 1));
}

#[test]
fn a_file_with_mistakes_changes_nothing() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("fx", &agent.url(), &["max_in_flight = 4"]).start();
    let client = gateway.client();
    let whole = fs::read_to_string(gateway.config()).unwrap();
    let wrong = whole.replace("max_in_flight = 4", "max_in_flight = 0\nmax_wate = \"1s\"");
    fs::write(gateway.config(), wrong).unwrap();
    let (status, told) = reload(&client, &[]);
    let text = told["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(status, 400, "{told}");
    assert!(text.contains("did you mean `max_wait`?") && text.contains("watertight.toml:"), "{text}");

    let wrong = "\nmax_in_flight = 0\nmax_wait = \"5\"\nheaders = { \"x-key\" = \"sesame\" }\n";
    fs::write(gateway.config(), whole.replace("\nmax_in_flight = 4\n", wrong)).unwrap();
    gateway.hang_up();
    logged(&gateway, "by=\"SIGHUP\"");
    let shown_now = shown(&client, &[]);
    let told = shown_now["refused"]["error"].as_str().unwrap();
    for part in ["0 is too few", "`5` is no length of time", "a secret is written here"] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    assert_eq!(
        (&shown_now["generation"], &shown_now["config"]["agents"]["fx"]["max_in_flight"]),
        (&json!(1), &json!(4))
    );
    assert!(client.send("fx", "still here").is_ok());
    for text in [gateway.log(), shown_now.to_string()] {
        assert!(!text.contains("sesame"), "a secret is shown: {text}");
    }

    fs::remove_file(gateway.config()).unwrap();
    assert_eq!(reload(&client, &[]).0, 400, "the file is gone");
    fs::write(gateway.config(), whole).unwrap();
    let (status, done) = reload(&client, &[]);
    assert_eq!((status, &done["changed"], &done["generation"]), (200, &json!([]), &json!(2)));
    assert_eq!(shown(&client, &[])["refused"], Value::Null);
}

#[test]
fn a_token_is_changed_while_the_gateway_runs() {
    let agent = Agent::echo();
    let tokens = tempfile::tempdir().unwrap();
    let file = |name: &str| tokens.path().join(name);
    fs::write(file("alice"), "first\n").unwrap();
    fs::write(file("ops"), "operator\n").unwrap();
    let callers = format!(
        "[callers.alice]\ntoken = \"file:{}\"\nagents = [\"fx\"]\n[callers.ops]\ntoken = \"file:{}\"\noperator = true\n",
        file("alice").display(),
        file("ops").display()
    );
    let gateway = Config::new().agent("fx", &agent.url(), &[]).tables(&callers).start();
    let client = gateway.client();
    let card = |token: &str| {
        let bearer = format!("Bearer {token}");
        let path = "/agents/fx/.well-known/agent-card.json";
        client.http("GET", path, &[("authorization", &bearer)], b"").unwrap().status
    };
    let alice = [("authorization", "Bearer first")];
    let ops = [("authorization", "Bearer operator")];
    assert_eq!((card("first"), card("second")), (200, 401));
    assert_eq!((reload(&client, &alice).0, reload(&client, &[]).0), (403, 401), "only an operator may");

    fs::write(file("alice"), "second\n").unwrap();
    assert_eq!(card("first"), 200, "not before it is read again");
    let (status, done) = reload(&client, &ops);
    assert_eq!((status, &done["changed"]), (200, &json!(["callers.alice.token"])), "{done}");
    assert_eq!((card("first"), card("second")), (401, 200));

    // An operator who takes the right away from itself is told so the next time.
    gateway.rewrite("operator = true", "operator = false");
    assert_eq!(reload(&client, &ops).0, 200);
    assert_eq!(reload(&client, &ops).0, 403);
    let text = gateway.log();
    assert!(!text.contains("second") && !text.contains("Bearer"), "{text}");
}

#[test]
fn what_needs_a_restart_is_named_and_waits_for_it() {
    let agent = Agent::echo();
    let config = Config::new().agent("fx", &agent.url(), &[]).top("server.max_connections = 100");
    let mut gateway = config.top("server.public_url = \"http://one.example\"").start();
    let client = gateway.client();
    gateway.rewrite("max_connections = 100", "max_connections = 200");
    gateway.rewrite("one.example", "two.example");
    let (_, done) = reload(&client, &[]);
    assert_eq!(done["changed"], json!(["server.public_url", "server.max_connections"]), "{done}");
    assert_eq!(done["pendingRestart"], json!(["server.max_connections"]), "{done}");
    let shown_now = shown(&client, &[]);
    assert_eq!(shown_now["pendingRestart"], json!(["server.max_connections"]));
    assert_eq!(shown_now["config"]["server"]["max_connections"], 100, "what is in force");
    assert_eq!(shown_now["config"]["server"]["public_url"], "http://two.example/".trim_end_matches('/'));
    assert!(shown_now["loadedAgeMs"].as_u64().is_some_and(|age| age < 60_000), "{shown_now}");
    logged(&gateway, "pending_restart=\"server.max_connections\"");

    gateway.terminate();
    gateway.ended(Duration::from_secs(30));
    gateway.start();
    let shown_now = shown(&gateway.client(), &[]);
    assert_eq!((&shown_now["pendingRestart"], &shown_now["generation"]), (&json!([]), &json!(1)));
    assert_eq!(shown_now["config"]["server"]["max_connections"], 200);
}

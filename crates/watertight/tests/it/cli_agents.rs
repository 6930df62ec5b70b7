//! What operators see of the agents, and what they can do about a breaker.

use std::io::{BufRead, BufReader};
use std::thread;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::clock::{eventually, ms};
use crate::command::{in_terminal, interrupt, start, watertight};
use crate::gateway::Config;
use crate::peer::{After, Card, Peer};

const EJECTED: &[&str] =
    &["breaker.consecutive_failures = 2", "breaker.ejection_base = \"60s\"", "breaker.ejection_max = \"90s\""];

#[test]
fn slots_that_are_missing_and_slots_that_are_stranded() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(400)));
    let tight = ["max_in_flight = 2", "max_waiting = 20", "max_wait = \"5s\""];
    let gateway = Config::new()
        .agent("tight", &agent.peer.url(), &tight)
        .agent("roomy", &agent.peer.url(), &["max_in_flight = 64"])
        .start();
    let client = gateway.client();
    let fresh = watertight(&gateway, &["agents", "roomy", "--json"]).only_json();
    assert_eq!(fresh["agents"][0]["lately"]["turns"], json!({"count": 0, "p50Ms": null, "p99Ms": null}));

    // Thirty calls in less than ten seconds, each of 0.4 s: three a second need two slots, and a third for headroom.
    thread::scope(|scope| {
        for n in 0..30 {
            let client = &client;
            scope.spawn(move || client.send(if n % 2 == 0 { "tight" } else { "roomy" }, "hello").unwrap());
        }
    });
    let lately = |name: &str| {
        let shown = watertight(&gateway, &["agents", name, "--json"]).only_json();
        assert_eq!(shown["agents"].as_array().map(Vec::len), Some(1));
        shown["agents"][0].clone()
    };
    let (tight, roomy) = (lately("tight"), lately("roomy"));
    for agent in [&tight, &roomy] {
        assert_eq!((&agent["state"], &agent["lately"]["turns"]["count"]), (&json!("admitting"), &json!(15)), "{agent}");
        let p50 = agent["lately"]["turns"]["p50Ms"].as_f64().unwrap();
        assert!((380.0..4_000.0).contains(&p50), "{agent}");
    }
    assert_eq!((&tight["lately"]["peakInFlight"], &tight["lately"]["strandedSlots"]), (&json!(2), &json!(0)));
    assert!(tight["lately"]["slotWait"]["p99Ms"].as_f64().unwrap() > 1_000.0, "{tight}");
    let peak = roomy["lately"]["peakInFlight"].as_u64().unwrap();
    assert!((1..=15).contains(&peak), "{roomy}");
    assert_eq!(roomy["lately"]["strandedSlots"], 64 - peak);
    assert_eq!(roomy["lately"]["advice"]["verdict"], "enough");

    let table = watertight(&gateway, &["agents"]);
    assert_eq!((table.code, table.err.as_str()), (0, ""));
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(lines[0].starts_with("AGENT  STATE      CARD"), "{}", table.out);
    assert!(lines[1].starts_with("roomy  admitting") && lines[2].starts_with("tight  admitting"), "{}", table.out);
    let advice = roomy["lately"]["advice"]["text"].as_str().unwrap();
    assert!(advice.ends_with(&format!("has 64: {} stranded", 64 - peak)), "{advice}");
    assert!(table.out.contains(&format!("\nroomy: {advice}\n")), "{}", table.out);
    assert!(!table.out.contains('\u{1b}'), "no color where no terminal is");

    gateway.counts("slots_peak", "tight", 2.0);
    gateway.counts("slot_wait_seconds_count", "tight", 15.0);
}

#[test]
fn an_ejected_agent_is_shown_and_let_in_again() {
    let agent = Peer::start(Card::Missing, |request, wire| match request.executes() {
        true if request.text() != "well" => After::Reset,
        _ => wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "fine"}]}})),
    });
    let gateway = Config::new().agent("moody", &agent.url(), EJECTED).start();
    let client = gateway.client();
    while client.send("moody", "hello").expect_err("it resets").reason != "breaker_open" {}

    let shown = eventually(ms(5_000), "the ejection is shown", || {
        let shown = watertight(&gateway, &["agents"]);
        shown.out.contains("moody  ejected, trial in ").then_some(shown)
    });
    assert!(shown.out.contains("moody: kept from traffic by its breaker"), "{}", shown.out);
    let shown = watertight(&gateway, &["agents", "moody"]);
    assert!(
        shown.out.contains("\nbreaker      2 calls, 2 failed, 0 slow; 2 failures in a row; 1 ejections\n"),
        "{shown:?}"
    );

    let reset = watertight(&gateway, &["breaker", "reset", "moody"]);
    assert_eq!((reset.code, reset.out.as_str()), (0, "moody: the breaker is reset, and traffic flows\n"));
    eventually(ms(2_000), "traffic flows", || client.send("moody", "well").is_ok().then_some(()));
    assert!(watertight(&gateway, &["agents"]).out.contains("moody  admitting"));
}

#[test]
fn who_asks_for_an_agent_that_is_not_there_is_told_which_are() {
    let gateway = Config::new().agent("hotels", "http://127.0.0.1:9/", &[]).start();
    let none = watertight(&gateway, &["agents", "hotel\u{1b}s"]);
    assert_eq!((none.code, none.out.as_str()), (3, ""));
    assert_eq!(none.err, "watertight: there is no agent hotel\\u{1b}s; known: hotels\n");
    let none = watertight(&gateway, &["breaker", "reset", "trains"]);
    assert!(none.code == 3 && none.err.contains("[agent_unknown]"), "{none:?}");
    assert_eq!(watertight(&gateway, &["breaker", "reset", "../x"]).code, 2);
    assert_eq!(watertight(&gateway, &["agents", "--watch", "0"]).code, 2);
    assert_eq!(watertight(&gateway, &["agents", "--url", "http://127.0.0.1:9"]).code, 4);
}

#[test]
fn a_watch_goes_on_until_it_is_stopped_and_outlives_the_gateway() {
    let mut gateway = Config::new().agent("hotels", "http://127.0.0.1:9/", &[]).start();
    let mut child = start(&gateway, &["agents", "--watch", "1", "--json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    for _ in 0..2 {
        assert_eq!(next()["agents"][0]["agent"], "hotels");
    }
    gateway.kill();
    let told = (0..3).map(|_| next()).find(|line| line["error"]["message"].is_string());
    assert!(told.is_some_and(|line| line["error"]["message"].as_str().unwrap().contains("cannot be reached")));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn tables_fit_the_terminal() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(0)));
    let gateway = Config::new()
        .agent("hotels", &agent.peer.url(), &[])
        .agent("dead-with-a-long-name", "http://127.0.0.1:9/", EJECTED)
        .start();
    let client = gateway.client();
    client.send("hotels", "hello").unwrap();
    while client.send("dead-with-a-long-name", "hello").expect_err("nobody is there").reason != "breaker_open" {}
    client.submit("hotels", "hello").unwrap();
    eventually(ms(5_000), "what the agents' page shows is what happened", || {
        let shown = watertight(&gateway, &["agents", "--json"]).only_json();
        let agents = shown["agents"].as_array().unwrap();
        let settled =
            |agent: &Value| agent["inFlight"] == 0 && (agent["agent"] == "hotels" || agent["state"] == "ejected");
        agents.iter().all(settled).then_some(())
    });
    for (columns, args) in [80, 60, 100, 300].into_iter().flat_map(|columns| {
        [&["agents"][..], &["agents", "hotels"], &["tasks", "list"], &["tasks", "list", "--all"]]
            .map(|args| (columns, args))
    }) {
        let shown = in_terminal(&gateway, columns, args);
        let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= usize::from(columns), "{columns} {args:?}:\n{shown}");
        let words = match args[0] {
            "tasks" => &["TASK", "STATE", "AGENT", "REASON", "COMPLETED"][..],
            _ if args.len() == 2 => &["advice"],
            _ => &["AGENT", "STATE", "SLOTS", "FAILED", "hotels", "ejected", "0/16"],
        };
        assert!(words.iter().all(|word| shown.contains(word)), "{columns} {args:?}:\n{shown}");
    }
    let config = gateway.file("watertight.toml");
    let cost = in_terminal(&gateway, 80, &["check", "--config", config.to_str().unwrap(), "--without", "hotels"]);
    assert!(cost.lines().all(|line| line.chars().count() <= 80) && cost.contains("What callers are told"), "{cost}");
    let wide = in_terminal(&gateway, 300, &["agents"]);
    assert_eq!(wide.lines().next(), watertight(&gateway, &["agents"]).out.lines().next(), "nothing is left out");
    let narrow = in_terminal(&gateway, 80, &["agents"]);
    assert!(narrow.contains("dead-with-a-long-name  ejected, trial in "), "what matters is whole: {narrow}");
}

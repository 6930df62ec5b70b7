//! Tokens: given out and taken back while the gateway runs, with scopes, agents and an end. Nothing secret is written anywhere.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Answer, message};
use crate::clock::{eventually, ms};
use crate::command::{Ran, watertight};
use crate::gateway::{Config, Gateway};
use crate::peer::Card;

/// Longer than a gateway takes to see a change of the file.
const SEEN: Duration = Duration::from_secs(8);

fn gateway(agent: &Agent) -> Gateway {
    let config = Config::new().agent("fx", &agent.peer.url(), &[]).agent("hotels", &agent.peer.url(), &[]);
    config.start()
}

fn token(gateway: &Gateway, args: &[&str]) -> Ran {
    let config = gateway.file("watertight.toml");
    let mut all = vec!["token"];
    all.extend(args);
    all.extend(["--config", config.to_str().unwrap()]);
    watertight(gateway, &all)
}

/// A new token, and its id.
fn make(gateway: &Gateway, args: &[&str]) -> (String, String) {
    let mut all = vec!["new"];
    all.extend(args);
    all.push("--json");
    let made = token(gateway, &all).only_json();
    (made["token"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned())
}

fn call(gateway: &Gateway, agent: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let params = json!({"message": message("hello")});
    gateway.client().call(agent, "SendMessage", &params, &[("authorization", &bearer)]).unwrap()
}

fn get(gateway: &Gateway, path: &str, token: &str) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let answer = gateway.client().http("GET", path, &[("authorization", &bearer)], b"").unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
}

fn reason(answer: &Answer) -> (u16, String) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    (answer.status, body["error"]["data"][0]["reason"].as_str().unwrap_or("").to_owned())
}

/// Until then a gateway without tokens lets this machine in, whatever it says.
fn wait_until_it_asks(gateway: &Gateway) {
    eventually(SEEN, "the gateway asks for a token", || (call(gateway, "fx", "wt_none").status == 401).then_some(()));
}

#[test]
fn a_token_opens_the_gateway_and_revoking_it_closes_it() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1)));
    let gateway = gateway(&agent);
    assert!(gateway.client().send("fx", "open").is_ok(), "without tokens this machine may call");

    let made = token(&gateway, &["new", "trips", "--tenant", "acme"]);
    let secret = made.out.trim().to_owned();
    assert!(made.code == 0 && secret.starts_with("wt_") && secret.len() == 46, "{made:?}");
    assert!(made.err.contains("of trips in tenant acme, scopes caller, good until it is revoked"), "{}", made.err);
    assert!(made.err.contains("It is the first"), "{}", made.err);
    wait_until_it_asks(&gateway);
    assert_eq!(call(&gateway, "fx", &secret).status, 200);
    assert_eq!(reason(&call(&gateway, "fx", "wt_nonsense")), (401, "unauthenticated".into()));
    assert_eq!(gateway.client().send("fx", "without").unwrap_err().reason, "unauthenticated");

    let listed = token(&gateway, &["list"]);
    let rows: Vec<&str> = listed.out.lines().collect();
    assert!(
        rows.len() == 2 && rows[0].starts_with("ID        NAME   TENANT  SCOPES  AGENTS  CREATED"),
        "{}",
        listed.out
    );
    assert!(rows[1].contains("  trips  acme    caller  all     20") && rows[1].ends_with("never"), "{}", listed.out);
    let id = &rows[1][..8];
    assert_eq!(token(&gateway, &["revoke", "no\u{1b}ne"]).code, 3);
    let revoked = token(&gateway, &["revoke", id]);
    assert_eq!((revoked.code, revoked.out), (0, format!("token {id} of trips is revoked\n")));
    eventually(SEEN, "it opens no more", || (call(&gateway, "fx", &secret).status == 401).then_some(()));
    assert_eq!(gateway.client().send("fx", "without").unwrap_err().reason, "unauthenticated", "it does not open again");

    let file = fs::read_to_string(gateway.file("tokens.json")).unwrap();
    for text in [&file, &gateway.log(), &listed.out, &made.err] {
        assert!(!text.contains(&secret[3..]), "{text}");
    }
}

#[test]
fn scopes_agents_and_an_end() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1)));
    let gateway = gateway(&agent);
    let (limited, _) = make(&gateway, &["limited", "--agents", "fx"]);
    let (ops, _) = make(&gateway, &["ops", "--tenant", "acme", "--scope", "operator"]);
    let (both, _) = make(&gateway, &["both", "--scope", "operator", "--scope", "caller"]);
    wait_until_it_asks(&gateway);
    eventually(SEEN, "all tokens open", || (get(&gateway, "/v1/agents", &both).0 == 200).then_some(()));
    let (brief, _) = make(&gateway, &["brief", "--expires", "4s"]);
    eventually(SEEN, "so does the brief one", || (call(&gateway, "fx", &brief).status == 200).then_some(()));

    assert_eq!(call(&gateway, "fx", &limited).status, 200);
    assert_eq!(reason(&call(&gateway, "hotels", &limited)), (404, "agent_unknown".into()));
    assert_eq!(get(&gateway, "/metrics", &limited).0, 403);
    let (status, refused) = get(&gateway, "/v1/agents", &limited);
    assert_eq!((status, &refused["error"]["details"][0]["reason"]), (403, &json!("forbidden")));
    assert_eq!(get(&gateway, "/v1/agents", &ops).0, 200);
    assert_eq!(reason(&call(&gateway, "fx", &ops)), (403, "forbidden".into()));
    assert_eq!(get(&gateway, "/metrics", &both).0, 200);
    eventually(SEEN, "it has an end", || (call(&gateway, "fx", &brief).status == 401).then_some(()));
    assert!(token(&gateway, &["list"]).out.contains("expired"));

    for (wrong, said) in [
        (&["new", "x", "--agents", "trains"][..], "no agent trains is configured; known: fx, hotels"),
        (&["new", "X"], "1 to 64 of a-z"),
        (&["new", "x", "--scope", "root"], "possible values: caller, operator, admin"),
        (&["new", "x", "--expires", "90"], "no length of time"),
        (&["new", "x", "--expires", "100000d"], "at most ten years"),
    ] {
        let ran = token(&gateway, wrong);
        assert!(ran.code == 2 && ran.err.contains(said), "{wrong:?}: {ran:?}");
    }
}

#[test]
fn a_broken_file_keeps_the_tokens_and_a_gateway_does_not_start_on_it() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1)));
    let mut gateway = gateway(&agent);
    let (secret, _) = make(&gateway, &["trips"]);
    wait_until_it_asks(&gateway);
    assert_eq!(call(&gateway, "fx", &secret).status, 200);
    let file: PathBuf = gateway.file("tokens.json");
    let good = fs::read(&file).unwrap();
    fs::write(&file, b"{\"version\": 1, \"tokens\": [").unwrap();
    eventually(SEEN, "it is logged", || gateway.log().contains("the token file cannot be read").then_some(()));
    assert_eq!(call(&gateway, "fx", &secret).status, 200);
    fs::remove_file(&file).unwrap();
    eventually(SEEN, "it is logged", || gateway.log().contains("the token file is gone").then_some(()));
    assert_eq!(call(&gateway, "fx", &secret).status, 200);
    assert_eq!(gateway.client().send("fx", "without").unwrap_err().reason, "unauthenticated");
    assert_eq!(token(&gateway, &["list"]).err, "there are no tokens\n");

    // With its tokens it may listen where others can reach it; on a broken file it does not start at all.
    let serve = |gateway: &Gateway| {
        let config = gateway.file("watertight.toml");
        watertight(gateway, &["serve", "--config", config.to_str().unwrap(), "--listen", "0.0.0.0:1"])
    };
    gateway.kill();
    gateway.start();
    let open = serve(&gateway);
    assert!(open.code == 2 && open.err.contains("there are no callers and no tokens"), "{open:?}");
    fs::write(&file, b"nonsense").unwrap();
    let broken = serve(&gateway);
    assert!(broken.code == 2 && broken.err.contains("the token file cannot be read"), "{broken:?}");
    fs::write(&file, good).unwrap();
    let listens = serve(&gateway);
    assert!(listens.code != 2, "the configuration is fine; the port or the store is another's: {listens:?}");
}

/// Only the credential says who calls. A header that says something else is not believed, and not passed over either.
#[test]
fn who_says_that_it_is_another_agent_is_refused() {
    let worker = crate::outbox::worker();
    let gateway = crate::outbox::config(&worker).start();
    let client = gateway.client();
    let asks = |token: &str, claim: &str| {
        let bearer = format!("Bearer token-of-{token}");
        let headers = [("authorization", bearer.as_str()), ("x-workspace-id", claim)];
        let sent = client.call("work", "SendMessage", &json!({"message": message("hello")}), &headers).unwrap();
        let outbox = client.http("GET", "/v1/outbox/pending", &headers, b"").unwrap();
        (sent.status, outbox.status)
    };
    assert_eq!(asks("lead-1", "lead"), (200, 200));
    for (token, claim) in [("lead-1", "work"), ("lead-1", "nobody"), ("lead-1", ""), ("script", "lead")] {
        assert_eq!(asks(token, claim), (401, 401), "{token} as {claim}");
    }
    for claim in ["system:cron", "webhook:x", "watertight:results"] {
        assert_eq!(asks("lead-1", claim), (403, 403), "{claim}");
    }
    assert_eq!(asks("of-nobody", "lead"), (401, 401));
    assert_eq!(worker.peer.executions(), 1);
}

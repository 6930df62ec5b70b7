//! A lead agent made with the official SDKs: it delegates, its turn ends, it is woken, folds what came of it into what it knows, and
//! acknowledges. One that is killed in the middle is woken again, for the same.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Agent, Binding, Sdk, program, python, started};
use crate::client::{answer_text, message};
use crate::clock::{eventually, ms};
use crate::gateway::{Config, Gateway};
use crate::peer::Peer;

fn lead(gateway: &Gateway, state: &Path, port: &str) -> Agent {
    let mut command = program(&python(), &["python/lead.py"]);
    command.arg(state).args([port, &format!("http://{}", gateway.addr()), "token-of-lead"]);
    started(&mut command)
}

fn knows(state: &Path) -> Value {
    let kept = fs::read(state).ok().and_then(|text| serde_json::from_slice(&text).ok());
    kept.unwrap_or_else(|| json!({"delegated": [], "read": [], "folded": {}}))
}

#[test]
fn a_lead_that_sleeps_is_woken_folds_results_in_and_acknowledges_whoever_kills_it_between() {
    let clerk = Agent::start(Sdk::Python, &[Binding::JsonRpc]);
    let url = Peer::closed_port();
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    let tables = "[callers.lead]\ntoken = \"file:lead\"\nagent = \"lead\"\nagents = [\"clerk\"]\n\
                  [callers.user]\ntoken = \"file:user\"\nagents = [\"lead\"]\n";
    let gateway = Config::new()
        .agent("clerk", &clerk.url, &[])
        .agent("lead", &url, &["results = \"wake\"", "results_cooldown = \"300ms\""])
        .tables(tables)
        .with_file("lead", "token-of-lead")
        .with_file("user", "token-of-user")
        .start();
    let state = gateway.file("knows.json");
    let client = gateway.client();
    let ask = |text: &str| {
        let params = json!({"message": message(text)});
        let headers = [("authorization", "Bearer token-of-user")];
        answer_text(&client.call("lead", "SendMessage", &params, &headers).unwrap().outcome().unwrap()["message"])
    };
    let pending = || {
        let headers = [("authorization", "Bearer token-of-lead")];
        let told = client.http("GET", "/v1/outbox/pending", &headers, b"").unwrap();
        serde_json::from_slice::<Value>(&told.body).unwrap()["pending"].as_u64().unwrap()
    };

    let mut first = lead(&gateway, &state, port);
    fs::write(gateway.file("knows.json.die"), b"").unwrap();
    assert_eq!(ask("plan"), "delegated");
    // It is woken, reads, and is gone.
    let ended = eventually(ms(20_000), "it dies in the middle of that turn", || first.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(9));
    let before = knows(&state);
    let read = before["read"][0].as_array().unwrap();
    assert!(!read.is_empty() && before["folded"] == json!({}), "{before}");
    assert!(pending() > 0, "what it has not acknowledged is still there");

    let mut second = lead(&gateway, &state, port);
    let then = eventually(Duration::from_secs(60), "both are folded in, and acknowledged", || {
        let now = knows(&state);
        (now["folded"].as_object().unwrap().len() == 2 && pending() == 0).then_some(now)
    });
    let readings = then["read"].as_array().unwrap();
    assert!(readings[1].as_array().unwrap().starts_with(read), "the same comes again, under the same numbers: {then}");
    assert_eq!(then["delegated"].as_array().unwrap().len(), 2, "nothing was delegated twice: {then}");
    let mut seen: Vec<(u64, &str)> = readings[1..]
        .iter()
        .flat_map(|reading| reading.as_array().unwrap())
        .map(|one| (one[0].as_u64().unwrap(), one[1].as_str().unwrap()))
        .collect();
    let times = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), times), (2, 2), "and each once only: {then}");
    assert!(
        then["delegated"].as_array().unwrap().iter().all(|task| seen.iter().any(|(_, seen)| task == seen)),
        "{then}"
    );
    let answer = ask("what do you know?");
    assert!(answer.contains("slow but done") && answer.contains("echo: a room"), "{answer}");
    std::thread::sleep(ms(900));
    assert_eq!(knows(&state)["read"], then["read"], "nothing waits, and it is left alone");
    second.assert_alive();
}

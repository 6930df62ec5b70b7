//! `watertight check` and `watertight init` as commands: what they say, what they end with, and that they change nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::agent::Agent;
use crate::clock::{ms, now};
use crate::peer::{After, Card, Peer};

fn watertight(args: &[&str], dir: &Path) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_watertight")).args(args).current_dir(dir).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn file(text: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("watertight.toml"), text).unwrap();
    dir
}

fn table(name: &str, url: &str, more: &str) -> String {
    format!("[agents.{name}]\nurl = \"{url}\"\n{more}\n")
}

#[test]
fn agents_that_answer_are_shown_and_all_is_well() {
    let agent = Agent::echo();
    let dir = file(&table("fx", &agent.url(), "max_in_flight = 3"));
    let (code, out, err) = watertight(&["check", "--strict"], dir.path());
    assert_eq!(code, 0, "{out}{err}");
    for part in [
        "max_in_flight                 3                                 line 3",
        "default",
        "its card",
        "JSONRPC at /",
    ] {
        assert!(out.contains(part), "missing: {part}\nin: {out}");
    }
    assert!(
        out.contains("watertight.toml: valid; 1 agent, 0 callers; errors 0, warnings 0, without effect 0"),
        "{out}"
    );
    assert_eq!(agent.peer.executions(), 0, "no message is sent");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is written");
}

#[test]
fn mistakes_are_told_as_serve_tells_them() {
    let dir = file("[agents.fx]\nurl = \"ftp://x/\"\nmax_in_flight = 0\n");
    let (code, _, err) = watertight(&["check"], dir.path());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("watertight.toml:2:7") && err.contains("watertight.toml:3:17"), "{err}");
    let (code, served, _) = watertight(&["check", "--json"], dir.path());
    let told: Value = serde_json::from_str(&served).unwrap();
    assert_eq!((code, &told["valid"]), (2, &Value::Bool(false)));
    let (code, _, serve) = watertight(&["serve"], dir.path());
    assert_eq!((code, serve), (2, err));
}

#[test]
fn agents_that_are_away_mute_or_strange_fail_the_check() {
    let mute = Peer::start(Card::Silent, |_, wire| {
        wire.hold(ms(30_000));
        After::Close
    });
    let text = table("gone", &Peer::closed_port(), "") + &table("mute", &mute.url(), "");
    let dir = file(&text);
    let start = now();
    let (code, out, _) = watertight(&["check", "--json"], dir.path());
    assert!(start.elapsed() < ms(50_000), "an agent that says nothing is waited for ten seconds, with all others");
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1, "{told:#}");
    let findings = told["findings"].as_array().unwrap();
    for (at, word) in [("agents.gone", "agent_connect_refused"), ("agents.mute", "agent_no_answer")] {
        let one = findings.iter().find(|one| one["at"] == at).unwrap_or_else(|| panic!("{at}: {told:#}"));
        assert!(one["level"] == "error" && one["text"].as_str().unwrap().contains(word), "{one}");
    }
    // Nobody is asked offline.
    let (code, out, err) = watertight(&["check", "--offline"], dir.path());
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn what_has_no_effect_is_said_and_fails_only_if_asked_to() {
    let dir = file(&table("fx", "http://127.0.0.1:1/", "max_waiting = 0\nmax_wait = \"2s\""));
    let (code, out, _) = watertight(&["check", "--offline"], dir.path());
    assert_eq!(code, 0);
    assert!(out.contains("no effect: agents.fx.max_wait, line 4: max_waiting is 0: nobody waits"), "{out}");
    assert_eq!(watertight(&["check", "--offline", "--strict"], dir.path()).0, 1);
}

#[test]
fn a_key_that_others_can_read_fails_the_check_as_it_fails_serve() {
    let dir = file(&table("fx", "http://127.0.0.1:1/", ""));
    let key = dir.path().join("watertight.key");
    fs::write(&key, "watertight-key 1\n1 00\n").unwrap();
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (code, out, _) = watertight(&["check", "--offline"], dir.path());
    assert!(code == 1 && out.contains("chmod 600") && out.contains("serve will not start"), "{code} {out}");
}

#[test]
fn what_one_agent_s_failure_costs_is_worked_out() {
    let text = "[server]\nmax_delegations = 50\n".to_owned()
        + &table("fx", "http://127.0.0.1:1/", "max_in_flight = 2\nmax_queued = 100")
        + &table("hotels", "http://127.0.0.1:2/", "");
    let dir = file(&text);
    let (code, out, err) = watertight(&["check", "--without", "fx"], dir.path());
    assert_eq!(code, 0, "{err}");
    for part in [
        "Without fx",
        "connections of their own): hotels",
        "server.max_delegations      50 of 50  ALL OF IT",
        "2 slots + max_queued 100 = 102",
        "warning: it can exhaust server.max_delegations",
        "breaker_open",
    ] {
        assert!(out.contains(part), "missing: {part}\nin: {out}");
    }
    let (code, out, _) = watertight(&["check", "--without", "fx", "--json", "--strict"], dir.path());
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &told["notAffected"][0], &told["breakerOpens"]["refusing"]["tries"]),
        (1, &"hotels".into(), &5.into())
    );
    let (code, out, _) =
        watertight(&["check", "--without", "hotels", "--strict"], file(&table("hotels", "http://a/", "")).path());
    assert!(code == 0 && !out.contains("warning"), "the defaults leave enough to others: {out}");
    let (code, _, err) = watertight(&["check", "--without", "nobody"], dir.path());
    assert!(code == 2 && err.contains("known: fx, hotels"), "{err}");
}

#[test]
fn a_new_configuration_can_be_served_and_nothing_is_overwritten() {
    let agent = Agent::echo();
    let dir = TempDir::new().unwrap();
    let (code, out, err) = watertight(&["init", "here", "--agent", &format!("fx={}", agent.url())], dir.path());
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("here/watertight.toml") && err.contains("watertight serve --config here/watertight.toml"),
        "{err}"
    );
    let before = fs::read_to_string(dir.path().join("here/watertight.toml")).unwrap();
    let (code, out, _) = watertight(&["check", "--strict", "--config", "here/watertight.toml"], dir.path());
    assert_eq!(code, 0, "{out}");
    assert_eq!(watertight(&["init", "here", "--agent", "fx=http://x/"], dir.path()).0, 2);
    assert_eq!(fs::read_to_string(dir.path().join("here/watertight.toml")).unwrap(), before);
    let (code, schema, _) = watertight(&["config", "schema"], dir.path());
    assert!(code == 0 && serde_json::from_str::<Value>(&schema).is_ok());
}

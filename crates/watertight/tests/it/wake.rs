//! Agents that are not always there, and their wake hooks.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{id, state};
use crate::clock::{eventually, ms};
use crate::command::watertight;
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer};

fn shown(gateway: &Gateway, name: &str) -> Value {
    watertight(gateway, &["agents", name, "--json"]).only_json()["agents"][0].clone()
}

/// Something that is told to wake agents.
fn waker() -> Peer {
    Peer::start(Card::Missing, |_, wire| wire.answer(202, "text/plain", b"on it"))
}

/// The agent, at last.
fn awake_at(url: &str) -> Peer {
    let addr = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    Peer::start_at(addr, Card::Missing, |request, wire| match request.executes() {
        true => wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "awake"}]}})),
        false => wire.error(-32001, "no such task"),
    })
}

#[test]
fn a_hibernated_agent_is_woken_and_its_messages_are_kept() {
    let (url, hook) = (Peer::closed_port(), waker());
    let wake = format!("wake = {{ url = \"{}nap\", cooldown = \"200ms\" }}", hook.url());
    let settings = [wake.as_str(), "breaker.consecutive_failures = 1", "wait = \"600ms\""];
    let mut gateway = Config::new().agent("nap", &url, &settings).start();
    let client = gateway.client();
    let first = client.submit("nap", "first").unwrap();
    eventually(ms(5000), "the hook is called", || (!hook.received().is_empty()).then_some(()));
    let called = hook.received()[0].clone();
    assert_eq!((called.path(), &called.rpc["agent"]), ("/nap", &json!("nap")));
    assert!(called.rpc["waiting"].as_u64().unwrap() >= 1, "{}", called.body);
    let task = client.get("nap", id(&first)).unwrap();
    assert_eq!((state(&task), &task["metadata"]["watertight"]["waitingOn"]), ("SUBMITTED", &json!("agent_asleep")));
    // Who holds the line waits on it, and gets the task.
    let second = client.send("nap", "second").unwrap();
    assert_eq!(state(&second), "SUBMITTED");
    eventually(ms(5000), "it is shown", || (shown(&gateway, "nap")["wake"]["ok"] == true).then_some(()));
    let agent = shown(&gateway, "nap");
    assert_eq!((&agent["state"], &agent["wake"]["said"]), (&json!("asleep"), &json!("its URL answered 202")));
    assert_eq!(agent["breaker"]["failures"], 0);
    gateway.counts("asleep", "nap", 1.0);

    // The wake that is owed survives.
    gateway.kill();
    let before = hook.received().len();
    gateway.start();
    eventually(ms(5000), "the hook is called again", || (hook.received().len() > before).then_some(()));
    let peer = awake_at(&url);
    let client = gateway.client();
    for task in [&first, &second] {
        let ended = client.ended("nap", id(task), ms(10_000));
        assert_eq!(state(&ended), "COMPLETED", "{ended}");
    }
    assert_eq!(peer.executions(), 2);
    eventually(ms(5000), "it is seen to be awake", || (shown(&gateway, "nap")["state"] == "admitting").then_some(()));
    let calls = hook.received().len();
    client.send("nap", "third").unwrap();
    assert_eq!(hook.received().len(), calls, "nobody wakes who is awake");
}

#[test]
fn a_command_wakes_it_and_one_that_hangs_is_killed() {
    let url = Peer::closed_port();
    let good =
        "wake = { command = [\"/bin/sh\", \"-c\", \"echo $WATERTIGHT_AGENT $HOME > woken\"], cooldown = \"100ms\" }";
    let bad = "wake = { command = [\"/bin/sh\", \"-c\", \"echo $$ > hangs; sleep 60 & wait\"], timeout = \"300ms\" }";
    let gateway = Config::new().agent("good", &url, &[good]).agent("bad", &Peer::closed_port(), &[bad]).start();
    let client = gateway.client();
    let task = client.submit("good", "hello").unwrap();
    client.submit("bad", "hello").unwrap();
    // It knows whom to wake, and nothing of the gateway's environment.
    let said = eventually(ms(5000), "the command ran", || {
        fs::read_to_string(gateway.file("woken")).ok().filter(|s| !s.is_empty())
    });
    assert_eq!(said.trim(), "good");
    let peer = awake_at(&url);
    assert_eq!((state(&client.ended("good", id(&task), ms(10_000))), peer.executions()), ("COMPLETED", 1));

    let hung = eventually(ms(5000), "the other hangs", || {
        fs::read_to_string(gateway.file("hangs")).ok()?.trim().parse::<u32>().ok()
    });
    eventually(ms(5000), "it is killed", || {
        let alive = fs::read_to_string(format!("/proc/{hung}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        (!alive).then_some(())
    });
    let last = eventually(ms(5000), "it is told", || {
        Some(shown(&gateway, "bad")["wake"].clone()).filter(|w| w["ok"] == false)
    });
    assert!(last["said"].as_str().unwrap().contains("was killed"), "{last}");
    std::thread::sleep(Duration::from_millis(50));
    assert!(gateway.metric("wakes_total", "bad").unwrap() >= 1.0);
}

/// The connection is broken before the agent's id of the task is known. `listed`: what ListTasks answers.
fn forgetful(listed: bool) -> Peer {
    let broken = std::sync::Mutex::new(None::<Value>);
    Peer::start(Card::Missing, move |request, wire| {
        let task = |message: &Value, state: &str| {
            let id = format!("r-{}", message["messageId"].as_str().unwrap_or(""));
            json!({"id": id, "contextId": message["contextId"], "status": {"state": format!("TASK_STATE_{state}")},
                "history": [message], "artifacts": [{"artifactId": "a", "parts": [{"text": "found"}]}]})
        };
        match request.method() {
            "SendMessage" => {
                *broken.lock().unwrap() = Some(request.params()["message"].clone());
                if request.text() == "hold" {
                    wire.hold(Duration::from_secs(60));
                }
                After::Reset
            }
            "ListTasks" if listed => {
                let message = broken.lock().unwrap().clone().unwrap_or_default();
                wire.ok(&json!({"tasks": [task(&message, "COMPLETED")], "nextPageToken": "", "pageSize": 1, "totalSize": 1}))
            }
            "ListTasks" => wire.ok(&json!({"tasks": [], "nextPageToken": "", "pageSize": 1, "totalSize": 0})),
            "GetTask" => {
                let message = broken.lock().unwrap().clone().unwrap_or_default();
                wire.ok(&task(&message, "COMPLETED"))
            }
            _ => wire.error(-32601, "no such method"),
        }
    })
}

#[test]
fn a_task_whose_id_was_lost_is_found_by_its_message() {
    let peer = forgetful(true);
    let mut gateway = Config::new().agent("lists", &peer.url(), &["lookup = true", "mode = \"poll\""]).start();
    // The connection broke.
    let done = gateway.client().send("lists", "broken").unwrap();
    assert_eq!((state(&done), crate::client::answer_text(&done)), ("COMPLETED", "found".into()));
    // The gateway was killed in the window.
    let client = gateway.client();
    let held = client.submit("lists", "hold").unwrap();
    eventually(ms(5000), "it was sent", || (peer.executions() == 2).then_some(()));
    gateway.kill();
    gateway.start();
    let ended = gateway.client().ended("lists", id(&held), ms(10_000));
    assert_eq!((state(&ended), peer.executions()), ("COMPLETED", 2), "{ended}");
}

#[test]
fn a_task_that_is_not_found_is_unknown_or_sent_again_where_that_is_harmless() {
    for idempotent in [false, true] {
        let peer = forgetful(false);
        let flag = format!("idempotent = {idempotent}");
        let mut gateway = Config::new()
            .agent("lists", &peer.url(), &["lookup = true", &flag, "attempts = 1", "mode = \"poll\""])
            .start();
        let held = gateway.client().submit("lists", "hold").unwrap();
        eventually(ms(5000), "it was sent", || (peer.executions() == 1).then_some(()));
        gateway.kill();
        gateway.start();
        if idempotent {
            eventually(ms(10_000), "it is sent again", || (peer.executions() == 2).then_some(()));
            let task = gateway.client().get("lists", id(&held)).unwrap();
            assert!(["SUBMITTED", "WORKING"].contains(&state(&task)), "{task}");
        } else {
            let ended = gateway.client().ended("lists", id(&held), ms(10_000));
            assert_eq!((state(&ended), peer.executions()), ("FAILED", 1));
            assert_eq!(ended["metadata"]["watertight"]["reason"], "outcome_unknown", "{ended}");
        }
        assert!(peer.count("ListTasks") >= 1);
    }
}

#[test]
fn what_was_sent_again_says_so() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let peer = Peer::start(Card::Missing, move |request, wire| match request.executes() {
        true if first.swap(false, std::sync::atomic::Ordering::SeqCst) => After::Reset,
        true => {
            let status = json!({"state": "TASK_STATE_COMPLETED"});
            wire.ok(&json!({"task": {"id": "r1", "contextId": "c", "status": status}}))
        }
        false => wire.error(-32001, "no such task"),
    });
    let mut gateway = Config::new()
        .agent("twice", &peer.url(), &["idempotent = true", "attempts = 3", "retry_budget = \"100%\""])
        .start();
    let task = gateway.client().submit("twice", "hello").unwrap();
    let ended = gateway.client().ended("twice", id(&task), ms(10_000));
    assert_eq!((state(&ended), &ended["metadata"]["watertight"]["resent"]), ("COMPLETED", &json!(true)), "{ended}");
    gateway.kill();
    gateway.start();
    let kept = gateway.client().get("twice", id(&task)).unwrap();
    assert_eq!(kept["metadata"]["watertight"]["resent"], true, "{kept}");
}

//! What is sent from the command line, how its answer comes, and what is left when somebody stops waiting.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::clock::{eventually, ms};
use crate::command::{end, interrupt, start, watertight};
use crate::gateway::{Config, Gateway};
use crate::peer::{Card, Peer};

fn fine(said: &'static str) -> Peer {
    Peer::start(Card::Missing, move |request, wire| match request.executes() {
        true => wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": said}]}})),
        false => wire.error(-32001, "no such task"),
    })
}

#[test]
fn parts_are_sent_in_order_with_what_goes_with_them() {
    let agent = fine("\u{1b}[31mred\nand blue");
    let gateway = Config::new().agent("fx", &agent.url(), &[]).start();
    let (picture, data) = (gateway.file("map.PNG"), gateway.file("trip.json"));
    fs::write(&picture, b"\x89PNG\x00\xff").unwrap();
    fs::write(&data, b"{\"nights\": 2}").unwrap();
    let (picture, data) = (picture.to_str().unwrap(), data.to_str().unwrap());
    let sent = watertight(
        &gateway,
        &[
            "send",
            "fx",
            "look",
            "--file",
            picture,
            "--data",
            "[1.50]",
            "and",
            "--data-file",
            data,
            "--context",
            "c-1",
            "--message-id",
            "m-1",
            "--budget",
            "7.5",
            "--depth",
            "2",
            "--fanout",
            "3",
        ],
    );
    assert_eq!((sent.code, sent.out.as_str(), sent.err.as_str()), (0, "\\u{1b}[31mred\nand blue\n", ""));
    let received = agent.received();
    let message = received.iter().find(|one| one.executes()).unwrap().params()["message"].clone();
    assert_eq!(
        message["parts"],
        json!([
            {"text": "look"},
            {"raw": "iVBORwD/", "mediaType": "image/png", "filename": "map.PNG"},
            {"data": [1.50], "mediaType": "application/json"},
            {"text": "and"},
            {"data": {"nights": 2}, "mediaType": "application/json"},
        ])
    );
    assert_eq!(message["messageId"], "m-1");
    let budget = &message["metadata"]["x-budget"];
    assert!(budget["remaining_s"].as_f64().is_some_and(|left| left < 7.5 && left > 3.0), "{budget}");
    assert_eq!((&budget["depth"], &budget["fanout"]), (&json!(1), &json!(3)));

    // The same message again joins the first one's task.
    let again = watertight(&gateway, &["send", "fx", "other words", "--message-id", "m-1"]);
    assert!(again.code == 3 && again.err.contains("[message_id_conflict]"), "{again:?}");
    assert_eq!(agent.executions(), 1);
}

#[test]
fn what_cannot_be_sent_is_said_before_it_is_sent() {
    let agent = fine("fine");
    let gateway = Config::new().agent("fx", &agent.url(), &[]).start();
    let big = gateway.file("big.bin");
    fs::File::create(&big).unwrap().set_len(13 << 20).unwrap();
    let big = big.to_str().unwrap();
    for (args, said) in [
        (&["send", "fx"][..], "required"),
        (&["send", "fx", "--file", "/nonexistent/x"], "--file /nonexistent/x: No such file"),
        (&["send", "fx", "--file", "/"], "it is a directory"),
        (&["send", "fx", "--file", big], "too large. All parts together may be 16 MiB"),
        (&["send", "fx", "--data", "{"], "--data is no JSON"),
        (&["send", "fx", "hi", "--budget", "-1"], "a number of seconds above zero"),
    ] {
        let ran = watertight(&gateway, args);
        assert!(ran.code == 2 && ran.err.contains(said) && ran.out.is_empty(), "{args:?}: {ran:?}");
    }
    assert_eq!(agent.executions(), 0);
}

#[test]
fn who_stops_waiting_is_told_what_goes_on() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(30_000)));
    let gateway = Config::new().agent("fx", &agent.url(), &[]).start();
    for args in [&["send", "fx", "long"][..], &["send", "fx", "long", "--stream"]] {
        let before = agent.running();
        let child = start(&gateway, args);
        eventually(ms(5_000), "it is at work", || (agent.running() > before).then_some(()));
        thread::sleep(ms(300));
        interrupt(&child);
        let left = end(child);
        assert_eq!((left.code, left.out.as_str()), (130, ""), "{left:?}");
        let (_, after) = left.err.split_once("watertight tasks cancel ").expect("how to cancel it");
        let task = after.split(' ').next().unwrap();
        assert!(left.err.contains(&format!("task {task} goes on")), "{left:?}");
        assert!(agent.running() > before);
        assert_eq!(watertight(&gateway, &["tasks", "cancel", task]).code, 0);
    }
}

#[test]
fn a_stream_that_breaks_is_joined_again() {
    let agent = Agent::start(Card::Streaming, |_| {
        let mut steps: Vec<Step> = Vec::new();
        for n in 1..=8 {
            steps.extend([Step::Chunk(format!("{n} ")), Step::Take(ms(400))]);
        }
        steps.push(Step::End("COMPLETED"));
        steps
    });
    let gateway = Config::new().agent("fx", &agent.url(), &[]).start();
    let between = Between::new(gateway.addr());
    let child = Command::new(env!("CARGO_BIN_EXE_watertight"))
        .args(["send", "fx", "count", "--stream", "--url", &format!("http://{}", between.addr)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..2 {
        thread::sleep(ms(1_000));
        between.cut();
    }
    let ended = end(child);
    assert_eq!((ended.code, ended.out.as_str()), (0, "1 2 3 4 5 6 7 8 \n"), "{ended:?}");
    assert!(ended.err.contains("the connection broke; joining again"), "{ended:?}");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn completions_and_manual_pages_know_the_commands() {
    let gateway: Gateway = Config::new().start();
    for shell in ["bash", "zsh", "fish"] {
        let script = watertight(&gateway, &["completions", shell]);
        assert!(script.code == 0 && script.out.contains("breaker") && script.out.contains("revoke"), "{shell}");
    }
    let dir = gateway.file("man");
    let pages = watertight(&gateway, &["man", "--dir", dir.to_str().unwrap()]);
    assert_eq!(pages.code, 0, "{pages:?}");
    for page in ["watertight.1", "watertight-send.1", "watertight-tasks-tree.1", "watertight-token-new.1"] {
        let text = fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS") && pages.out.contains(page), "{page}");
    }
    assert!(watertight(&gateway, &["man"]).out.contains(".TH watertight 1"));
}

#[test]
fn json_is_one_value_a_line() {
    let agent = Agent::echo();
    let gateway = Config::new().agent("fx", &agent.url(), &[]).start();
    let sent = watertight(&gateway, &["send", "fx", "hello", "--json"]).only_json();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let events = watertight(&gateway, &["send", "fx", "hello", "--stream", "--json"]).json();
    let last: &Value = events.last().unwrap();
    let state = last["statusUpdate"]["status"]["state"].as_str().or(last["task"]["status"]["state"].as_str());
    assert!(state == Some("TASK_STATE_COMPLETED"), "{events:?}");
    let refused = watertight(&gateway, &["send", "nobody", "hello", "--json"]);
    assert_eq!((refused.code, &refused.only_json()["error"]["data"][0]["reason"]), (3, &json!("agent_unknown")));
}

/// A proxy on the way that can be cut.
struct Between {
    addr: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Between {
    fn new(to: SocketAddr) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, open) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let kept = open.clone();
        thread::spawn(move || {
            for here in listener.incoming().map_while(Result::ok) {
                let Ok(there) = TcpStream::connect(to) else { continue };
                for (from, into) in [(&here, &there), (&there, &here)] {
                    let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                    thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(n @ 1..) = from.read(&mut bytes) {
                            if into.write_all(&bytes[..n]).is_err() {
                                break;
                            }
                        }
                        into.shutdown(Shutdown::Both).ok();
                    });
                }
                kept.lock().unwrap().extend([here, there]);
            }
        });
        Between { addr, open }
    }

    /// Everything that is open ends now. New connections are let through.
    fn cut(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            socket.shutdown(Shutdown::Both).ok();
        }
    }
}

#[test]
fn who_is_asked_something_is_told_how_to_answer() {
    let agent = Agent::start(Card::Streaming, |text| match text {
        "a trip" => vec![Step::Ask("which day?")],
        _ => vec![Step::Chunk(format!("on {text}")), Step::End("COMPLETED")],
    });
    let gateway = Config::new().agent("fx", &agent.url(), &[]).start();
    for stream in [&[][..], &["--stream"]] {
        let asked = watertight(&gateway, &[&["send", "fx", "a trip"], stream].concat());
        assert_eq!((asked.code, asked.out.as_str()), (5, "which day?\n"), "{asked:?}");
        let hint = asked.err.lines().last().unwrap();
        let task = hint.strip_prefix("to answer: watertight send fx --task ").and_then(|rest| rest.split_once(' '));
        let task = task.unwrap_or_else(|| panic!("{asked:?}")).0;
        let answered = watertight(&gateway, &["send", "fx", "--task", task, "Monday"]);
        assert_eq!((answered.code, answered.out.as_str()), (0, "on Monday\n"), "{answered:?}");
    }
}

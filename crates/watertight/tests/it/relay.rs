//! Results as a file: whoever dies between two steps, the reader gets each at least once, under one number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;

use serde_json::Value;

use crate::clock::{eventually, ms, now};
use crate::command::{end, start, watertight};
use crate::gateway::Gateway;
use crate::outbox::{As, config, worker};

/// A relay that is killed when it goes out of sight.
struct Relay(Child);

impl Relay {
    fn start(gateway: &Gateway, file: &Path, more: &[&str]) -> Relay {
        let token = gateway.file("lead-1");
        let mut args = vec!["relay", "--file", file.to_str().unwrap(), "--token-file", token.to_str().unwrap()];
        args.extend(more);
        Relay(start(gateway, &args))
    }

    fn signal(&self, name: &str) {
        let sent = std::process::Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.0.id())).status();
        assert!(sent.unwrap().success());
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Takes the file away, as its reader does; what was in it.
fn take(file: &Path, n: usize) -> Option<String> {
    let taken = file.with_extension(format!("taken-{n}"));
    fs::rename(file, &taken).ok()?;
    Some(fs::read_to_string(taken).unwrap())
}

/// Waits until it appears, and takes it.
fn next(file: &Path, n: usize) -> String {
    eventually(ms(10_000), "the file appears", || take(file, n))
}

/// The results in a file for programs.
fn results(text: &str) -> Vec<(u64, String)> {
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let up_to = lines.next().unwrap()["upTo"].as_u64().unwrap();
    let all: Vec<_> = lines.map(|r| (r["seq"].as_u64().unwrap(), r["taskId"].as_str().unwrap().to_owned())).collect();
    assert_eq!(all.last().unwrap().0, up_to, "the first line says up to which");
    all
}

fn place(gateway: &Gateway) -> PathBuf {
    let directory = gateway.file("reader");
    fs::create_dir(&directory).unwrap();
    directory.join("results")
}

#[test]
fn results_come_as_a_file_that_its_reader_takes_away() {
    let worker = worker();
    let gateway = config(&worker).start();
    let (lead, file) = (As::new(&gateway, "lead-1"), place(&gateway));
    let relay = Relay::start(&gateway, &file, &["--agent", "lead"]);
    let task = lead.delegate("find a room");
    let text = next(&file, 1);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "watertight-results upTo=1");
    assert!(lines[3].starts_with(&format!("[1] COMPLETED from agent work, task {task}, ")), "{text}");
    assert!(lines[4].starts_with("<<<peer-text ") && lines[5] == "done: find a room", "{text}");
    assert!(lines[6].starts_with("peer-text ") && lines[6].ends_with(">>>"), "{text}");
    eventually(ms(5_000), "what was taken is acknowledged", || (lead.pending() == 0).then_some(()));

    // What comes while a file waits is in the next one.
    lead.delegate("one");
    eventually(ms(5_000), "the file appears", || file.exists().then_some(()));
    lead.delegate("two");
    lead.waits(2);
    thread::sleep(ms(300));
    assert_eq!(lead.pending(), 2, "a file that nobody took is not acknowledged");
    assert!(next(&file, 2).starts_with("watertight-results upTo=2\n"));
    assert!(next(&file, 3).starts_with("watertight-results upTo=3\n"));

    let other = end(Relay::start(&gateway, &file, &[]).take());
    assert!(other.code == 1 && other.err.contains("another relay keeps"), "{other:?}");
    drop(relay);
    let wrong = end(Relay::start(&gateway, &file, &["--agent", "work"]).take());
    assert!(wrong.code == 3 && wrong.err.contains("not one of agent work"), "{wrong:?}");
    fs::write(&file, "a letter").unwrap();
    let strange = end(Relay::start(&gateway, &file, &[]).take());
    assert!(strange.code == 1 && strange.err.contains("no file of results"), "{strange:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "a letter");
}

impl Relay {
    /// To be waited for elsewhere.
    fn take(mut self) -> Child {
        let child = std::mem::replace(&mut self.0, std::process::Command::new("true").spawn().unwrap());
        drop(self);
        child
    }
}

#[test]
fn nothing_is_lost_whichever_step_it_dies_at() {
    let worker = worker();
    let gateway = config(&worker).start();
    let (lead, file) = (As::new(&gateway, "lead-1"), place(&gateway));
    let jsonl = ["--format", "jsonl"];
    let first = lead.delegate("first");
    lead.waits(1);
    // It died with half a file written: nobody ever sees that half.
    fs::write(file.with_extension("part"), "{\"upTo\": 9}\n{\"seq\": 9, \"taskId\": \"half").unwrap();
    let relay = Relay::start(&gateway, &file, &jsonl);
    eventually(ms(10_000), "the file appears", || file.exists().then_some(()));
    // It dies with the file there: the next one waits for it to be taken, and acknowledges it then.
    relay.kill();
    assert_eq!(lead.pending(), 1);
    let relay = Relay::start(&gateway, &file, &jsonl);
    thread::sleep(ms(300));
    assert_eq!(results(&next(&file, 1)), [(1, first)]);
    eventually(ms(5_000), "it is acknowledged", || (lead.pending() == 0).then_some(()));
    // It dies after the file was taken, and before it could say so: the same again, under the same number.
    let second = lead.delegate("second");
    eventually(ms(10_000), "the file appears", || file.exists().then_some(()));
    relay.signal("STOP");
    assert_eq!(results(&next(&file, 2)), [(2, second.clone())]);
    relay.kill();
    assert_eq!(lead.pending(), 1);
    let relay = Relay::start(&gateway, &file, &jsonl);
    assert_eq!(results(&next(&file, 3)), [(2, second)]);
    eventually(ms(5_000), "it is acknowledged", || (lead.pending() == 0).then_some(()));
    // The gateway dies when the file is taken: it is told when it is back.
    let mut gateway = gateway;
    lead.delegate("third");
    eventually(ms(10_000), "the file appears", || file.exists().then_some(()));
    relay.signal("STOP");
    gateway.kill();
    next(&file, 4);
    relay.signal("CONT");
    drop(relay);
    gateway.start();
    let lead = As::new(&gateway, "lead-1");
    let _relay = Relay::start(&gateway, &file, &jsonl);
    assert_eq!(results(&next(&file, 5))[0].0, 3);
    eventually(ms(5_000), "it is acknowledged", || (lead.pending() == 0).then_some(()));
}

#[test]
fn a_relay_that_is_killed_again_and_again_brings_everything() {
    let worker = worker();
    let gateway = config(&worker).start();
    let (lead, file) = (As::new(&gateway, "lead-1"), place(&gateway));
    let delegated: BTreeSet<String> = (0..40).map(|n| lead.delegate(&format!("job {n}"))).collect();
    let mut got: BTreeMap<u64, String> = BTreeMap::new();
    let (mut n, mut relay) = (0, Relay::start(&gateway, &file, &["--format", "jsonl", "--limit", "3"]));
    let started = now();
    while got.len() < delegated.len() || lead.pending() > 0 {
        assert!(started.elapsed() < ms(60_000), "{} of {}", got.len(), delegated.len());
        thread::sleep(ms([5, 40, 90, 130, 10][n % 5]));
        n += 1;
        if let Some(text) = take(&file, n) {
            for (seq, task) in results(&text) {
                assert_eq!(*got.entry(seq).or_insert_with(|| task.clone()), task, "one number, one result");
            }
        }
        if n % 4 == 0 {
            relay.kill();
            relay = Relay::start(&gateway, &file, &["--format", "jsonl", "--limit", "3"]);
        }
    }
    assert_eq!(got.keys().copied().collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
    assert_eq!(got.into_values().collect::<BTreeSet<_>>(), delegated);
}

#[test]
fn the_command_shows_results_and_says_that_they_were_read() {
    let worker = worker();
    let gateway = config(&worker).start();
    let (lead, token) = (As::new(&gateway, "lead-1"), gateway.file("lead-1"));
    let outbox = |args: &[&str]| {
        let mut all = vec!["outbox", "--token-file", token.to_str().unwrap()];
        all.extend(args);
        watertight(&gateway, &all)
    };
    assert_eq!(outbox(&[]).err, "nothing waits to be read\n");
    lead.delegate("a");
    lead.waits(1);
    lead.delegate("fail");
    lead.waits(2);
    let shown = outbox(&[]);
    assert!(shown.out.starts_with("[1] COMPLETED from agent work, task "), "{shown:?}");
    assert!(shown.out.contains("\n[2] FAILED from") && shown.err.contains("watertight outbox --ack 2"), "{shown:?}");
    let numbers: Vec<u64> = outbox(&["--json"]).json().iter().filter_map(|one| one["seq"].as_u64()).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(outbox(&["--after", "1", "--json"]).json().len(), 1);
    assert_eq!(outbox(&["--ack", "1", "--json"]).only_json()["pending"], 1);
    let refused = outbox(&["--ack", "9"]);
    assert!(refused.code == 3 && refused.err.contains("its last is 2"), "{refused:?}");
    let token = token.to_str().unwrap();
    let following = start(&gateway, &["outbox", "--follow", "--json", "--token-file", token]);
    lead.delegate("later on");
    lead.waits(2);
    thread::sleep(ms(300));
    crate::command::interrupt(&following);
    let followed = end(following);
    assert_eq!((followed.code, followed.json().len()), (130, 2), "{followed:?}");
}

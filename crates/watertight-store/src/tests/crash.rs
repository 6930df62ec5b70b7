//! A process that commits is killed in the middle; what it was told is durable has to be there.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use watertight_engine::ids::TaskId;

use super::*;

/// Every hundredth commit has a message that is written in pieces.
fn message(n: u64) -> Body {
    if n.is_multiple_of(100) { bulk(1_500_000) } else { body(&format!("message {n}")) }
}

/// The process that is killed. Started by the test below, which tells it where; a plain run of all tests passes it over.
#[test]
#[ignore = "started by the test that kills it"]
fn child() {
    let mut directory = String::new();
    std::io::stdin().read_line(&mut directory).unwrap();
    if directory.trim().is_empty() {
        return;
    }
    let (store, lease) = Store::open(Path::new(directory.trim()), 0).unwrap();
    for n in 1.. {
        while !store.room() {
            std::thread::yield_now();
        }
        let row = row(u128::from(n));
        let writes = vec![with_message(&row, message(n)), save_key(&row)];
        let told = |n, result: Result<(), CommitError>| {
            result.unwrap();
            // Not println, which the test harness would keep to itself.
            let mut out = std::io::stdout().lock();
            writeln!(out, "durable {n}").and_then(|()| out.flush()).unwrap();
        };
        store.commit(n, lease.fence, writes, Box::new(told));
    }
}

#[test]
fn after_a_kill_everything_that_was_answered_is_there() {
    let home = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..3 {
        let told = run_and_kill(&home.path().join(round.to_string()), 250 + round * 171);
        let (store, lease) = Store::open(&home.path().join(round.to_string()), 0).unwrap();
        let rows = store.load().unwrap();
        assert!(rows.len() as u64 >= told, "{} of {told}", rows.len());
        for (n, stored) in (1..).zip(&rows) {
            assert_eq!(*stored, row(u128::from(n)));
            assert_eq!(store.message(stored.task, 1), Ok(Some(message(n))));
            assert!(store.key(&key_of(stored)).unwrap().is_some());
        }
        let fresh = rows.len() as u128 + 1;
        assert_eq!(store.task(TaskId(fresh)), Ok(None));
        assert_eq!(commit(&store, lease.fence, vec![with_message(&row(fresh), body("goes on"))]), Ok(()));
        last = told;
    }
    assert!(last >= 250);
}

/// Kills the child when it was told of so many commits; gives the number of the last one that it was told of.
fn run_and_kill(directory: &Path, commits: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crash::child", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", directory.display()).unwrap();
    let mut told = 0;
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    for line in lines {
        let Some(n) = line.split("durable ").nth(1).and_then(|n| n.parse::<u64>().ok()) else { continue };
        assert_eq!(n, told + 1, "in order");
        told = n;
        if told == commits {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(told >= commits, "it ended by itself after {told}");
    told
}

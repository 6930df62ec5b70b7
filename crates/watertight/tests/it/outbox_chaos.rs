//! Many callers, every door to results at once, and a gateway that is killed again and again: each caller has each of its
//! results, in order, under one number, and none after it has acknowledged it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Client, fresh};
use crate::clock::{ms, now};
use crate::gateway::{Config, Gateway};
use crate::http::Body;
use crate::peer::Card;

const CALLERS: usize = 9;
const EACH: usize = 14;
const KILLS: usize = 6;

/// One caller, and what it knows.
struct Reader {
    name: String,
    client: Client,
    /// Results by their numbers.
    got: BTreeMap<u64, String>,
    floor: u64,
    begun: Instant,
}

impl Reader {
    fn ask(&self, method: &str, path: &str, body: &str) -> Option<Value> {
        let bearer = format!("Bearer token-of-{}", self.name);
        let answer = self.client.http(method, path, &[("authorization", &bearer)], body.as_bytes()).ok()?;
        (answer.status == 200).then(|| serde_json::from_slice(&answer.body).ok()).flatten()
    }

    /// It does not take for ever.
    fn hurry(&self) {
        assert!(self.begun.elapsed() < ms(60_000), "{}: {:?} so far", self.name, self.got);
    }

    fn take(&mut self, result: &Value) {
        let (seq, task) = (result["seq"].as_u64().unwrap(), result["taskId"].as_str().unwrap());
        assert!(seq > self.floor, "{}: {seq} comes again, and {} is acknowledged", self.name, self.floor);
        let newest = self.got.last_key_value().map_or(0, |(seq, _)| *seq);
        assert!(seq <= newest + 1, "{}: {seq} comes after {newest}", self.name);
        assert_eq!(self.got.entry(seq).or_insert_with(|| task.to_owned()), task, "{}: one number", self.name);
    }

    fn ack(&mut self) {
        let Some(up_to) = self.got.last_key_value().map(|(seq, _)| *seq) else { return };
        if self.ask("POST", "/v1/outbox/ack", &json!({ "upTo": up_to }).to_string()).is_some() {
            self.floor = up_to;
        }
    }

    /// By long-polls.
    fn poll(&mut self, all: usize) {
        while self.floor < all as u64 {
            self.hurry();
            let Some(page) = self.ask("GET", "/v1/outbox?wait=2&limit=5", "") else {
                thread::sleep(ms(30));
                continue;
            };
            page["results"].as_array().unwrap().iter().for_each(|result| self.take(result));
            self.ack();
        }
    }

    /// By events, until the stream breaks, and again from the last one on.
    fn stream(&mut self, all: usize) {
        let bearer = format!("Bearer token-of-{}", self.name);
        while self.floor < all as u64 {
            self.hurry();
            let last = self.got.last_key_value().map_or(0, |(seq, _)| *seq).to_string();
            let headers = [("authorization", bearer.as_str()), ("last-event-id", last.as_str())];
            let Ok((_, mut body)) = self.client.open("GET", "/v1/outbox/stream", &headers, b"") else {
                thread::sleep(ms(30));
                continue;
            };
            let mut text = String::new();
            while let Some(result) = event(&mut body, &mut text) {
                self.take(&result);
                self.ack();
                if self.floor == all as u64 {
                    return;
                }
            }
        }
    }

    /// By a file that a relay writes.
    fn file(&mut self, all: usize, gateway: &Path, url: &str) {
        let file = gateway.join(format!("results-of-{}", self.name));
        let token = gateway.join(&self.name);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_watertight"));
        command.args(["relay", "--format", "jsonl", "--limit", "4", "--url", url]);
        command.arg("--file").arg(&file).arg("--token-file").arg(&token);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut relay = command.spawn().unwrap();
        let mut n = 0;
        while self.got.len() < all {
            self.hurry();
            n += 1;
            let taken = file.with_extension(n.to_string());
            if fs::rename(&file, &taken).is_ok() {
                let text = fs::read_to_string(taken).unwrap();
                text.lines().skip(1).for_each(|line| self.take(&serde_json::from_str(line).unwrap()));
            } else {
                thread::sleep(ms(20));
            }
            if relay.try_wait().unwrap().is_some() {
                // It gives up if there is no gateway when it is started.
                relay = command.spawn().unwrap();
            }
        }
        relay.kill().unwrap();
        relay.wait().unwrap();
    }
}

fn event(body: &mut Body, text: &mut String) -> Option<Value> {
    loop {
        while let Some(at) = text.find("\n\n") {
            let block: String = text.drain(..at + 2).collect();
            if let Some(data) = block.lines().find_map(|line| line.strip_prefix("data: ")) {
                return serde_json::from_str(data).ok();
            }
        }
        text.push_str(&String::from_utf8(body.some().ok()??).unwrap());
    }
}

/// Delegates until the gateway says which task it is, whoever dies meanwhile.
fn delegate(client: &Client, name: &str, text: &str) -> String {
    let bearer = format!("Bearer token-of-{name}");
    let message = json!({"messageId": fresh("m"), "role": "ROLE_USER", "parts": [{"text": text}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let started = now();
    loop {
        let why = match client.call("work", "SendMessage", &params, &[("authorization", &bearer)]) {
            Ok(answer) => match answer.outcome() {
                Ok(result) => return result["task"]["id"].as_str().unwrap().to_owned(),
                // It was taken on, and its sending was cut off: that end is a result like any other.
                Err(fault) if !fault.task.is_empty() => return fault.task,
                Err(fault) => format!("{fault:?}"),
            },
            Err(why) => why.to_string(),
        };
        assert!(started.elapsed() < ms(20_000), "{name}: {text} is not taken on: {why}");
        thread::sleep(ms(20));
    }
}

#[test]
fn every_door_brings_everything_however_often_the_gateway_dies() {
    let worker = Agent::start(Card::Plain, |text| slow(text, ms(if text.ends_with('7') { 300 } else { 20 })));
    let mut config = Config::new().agent("work", &worker.url(), &["max_in_flight = 100", "fanout = 100"]);
    let names: Vec<String> = (0..CALLERS).map(|n| format!("caller-{n}")).collect();
    for name in &names {
        let table = format!("[callers.{name}]\ntoken = \"file:{name}\"\ntenant = \"t\"\noutbox = true\n");
        config = config.tables(&table).with_file(name, &format!("token-of-{name}"));
    }
    let mut gateway: Gateway = config.start();
    // It comes back where it was.
    gateway.rewrite("listen = \"127.0.0.1:0\"", &format!("listen = \"{}\"", gateway.addr()));
    let (client, url) = (gateway.client(), format!("http://{}", gateway.addr()));
    let directory = gateway.file("");
    let started = now();
    thread::scope(|scope| {
        let delegators: Vec<_> = names
            .iter()
            .map(|name| {
                let client = client.clone();
                scope.spawn(move || -> BTreeSet<String> {
                    (0..EACH)
                        .map(|n| {
                            thread::sleep(ms(60));
                            delegate(&client, name, &format!("job {n}"))
                        })
                        .collect()
                })
            })
            .collect();
        let readers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let (client, directory, url) = (client.clone(), directory.clone(), url.clone());
                scope.spawn(move || {
                    let mut reader =
                        Reader { name: name.clone(), client, got: BTreeMap::new(), floor: 0, begun: now() };
                    match n % 3 {
                        0 => reader.poll(EACH),
                        1 => reader.stream(EACH),
                        _ => reader.file(EACH, &directory, &url),
                    }
                    reader.got
                })
            })
            .collect();
        for kill in 0..KILLS {
            thread::sleep(ms(250 + 40 * kill as u64));
            gateway.kill();
            gateway.start();
        }
        for ((name, delegated), got) in names.iter().zip(delegators).zip(readers) {
            let (delegated, got) = (delegated.join().unwrap(), got.join().unwrap());
            assert_eq!(got.keys().copied().collect::<Vec<_>>(), (1..=EACH as u64).collect::<Vec<_>>(), "{name}");
            assert_eq!(got.into_values().collect::<BTreeSet<_>>(), delegated, "{name}");
        }
    });
    assert!(started.elapsed() < ms(60_000), "{:?}", started.elapsed());
}

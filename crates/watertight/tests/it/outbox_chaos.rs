//! Many callers, every door to results at once, and a gateway that is killed again and again: each caller has each of its
//! results, in order, under one number, and none after it has acknowledged it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Client, fresh, id, is_terminal, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::{Config, Gateway};
use crate::http::Body;
use crate::peer::{Card, Peer};

const CALLERS: usize = 20;
const EACH: usize = 25;
const KILLS: usize = 10;

/// How a caller comes by its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// Long-polls.
    Poll,
    /// Events.
    Stream,
    /// A file that a relay writes.
    File,
    /// The tool for models.
    Tool,
    /// It sleeps, and reads when a message tells it to.
    Wake,
    /// Push notifications.
    Hook,
    /// Push notifications to where nobody answers; it polls in the end.
    DeadHook,
}

const DOORS: [Door; 6] = [Door::Poll, Door::Stream, Door::File, Door::Tool, Door::Wake, Door::Hook];

fn door(caller: usize) -> Door {
    if caller == CALLERS - 1 { Door::DeadHook } else { DOORS[caller % DOORS.len()] }
}

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
        assert!(self.begun.elapsed() < ms(90_000), "{}: {:?} so far", self.name, self.got);
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

    /// By the tool, whose next call acknowledges what the last one brought.
    fn tool(&mut self, all: usize) {
        let bearer = format!("Bearer token-of-{}", self.name);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        while self.floor < all as u64 {
            self.hurry();
            let newest = self.got.last_key_value().map(|(seq, _)| *seq);
            let mut arguments = json!({"limit": 7});
            arguments.as_object_mut().unwrap().extend(newest.map(|seq| ("ack".to_owned(), json!(seq))));
            let params = json!({"name": "read_delegation_results", "arguments": arguments});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
            let answer = self.client.http("POST", "/mcp", &headers, call.as_bytes());
            let told = answer.ok().and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
            let fields = told.map(|told| told["result"]["structuredContent"].clone()).unwrap_or_default();
            let Some(results) = fields["results"].as_array() else {
                thread::sleep(ms(30));
                continue;
            };
            self.floor = newest.unwrap_or(self.floor);
            results.iter().for_each(|result| self.take(result));
            if results.is_empty() {
                thread::sleep(ms(50));
            }
        }
    }

    /// Once for each time that it is told.
    fn wake(&mut self, all: usize, own: &Agent) {
        let mut told = 0;
        while self.floor < all as u64 {
            self.hurry();
            let now = own.peer.executions();
            if now == told {
                thread::sleep(ms(10));
                continue;
            }
            told = now;
            let Some(page) = self.ask("GET", "/v1/outbox?limit=5", "") else { continue };
            page["results"].as_array().unwrap().iter().for_each(|result| self.take(result));
            self.ack();
        }
    }

    /// By events, until the stream breaks, and again from the last one on.
    fn stream(&mut self, all: usize) {
        let bearer = format!("Bearer token-of-{}", self.name);
        while self.floor < all as u64 {
            self.hurry();
            // The gateway may have died before it heard that the last one was read; nothing comes behind it.
            self.ack();
            if self.floor == all as u64 {
                return;
            }
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
fn delegate(client: &Client, name: &str, text: &str, hook: Option<&str>) -> String {
    let bearer = format!("Bearer token-of-{name}");
    let message = json!({"messageId": fresh("m"), "role": "ROLE_USER", "parts": [{"text": text}]});
    let mut params = json!({"message": message, "configuration": {"returnImmediately": true}});
    if let Some(url) = hook {
        params["configuration"]["taskPushNotificationConfig"] = json!({"id": "h", "url": url});
    }
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

/// The ends that a hook was told, with how often.
fn told(hook: &Peer) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::new();
    for request in hook.received() {
        let event: Value = serde_json::from_str(&request.body).unwrap();
        let task = &event["task"];
        assert!(is_terminal(state(task)), "nothing else is told: {event}");
        *told.entry(id(task).to_owned()).or_default() += 1;
    }
    told
}

#[test]
fn every_door_brings_everything_however_often_the_gateway_dies() {
    let worker = Agent::start(Card::Plain, |text| slow(text, ms(if text.ends_with('7') { 300 } else { 20 })));
    let names: Vec<String> = (0..CALLERS).map(|n| format!("caller-{n}")).collect();
    // Where those are called that sleep; where those are told that have a hook.
    let sleepers: BTreeMap<usize, Agent> =
        (0..CALLERS).filter(|n| door(*n) == Door::Wake).map(|n| (n, Agent::echo())).collect();
    let hooks: BTreeMap<usize, Peer> = (0..CALLERS)
        .filter_map(|n| match door(n) {
            Door::Hook => Some((n, Peer::start(Card::Missing, |_, wire| wire.answer(202, "text/plain", b"")))),
            Door::DeadHook => Some((n, Peer::hole())),
            Door::Poll | Door::Stream | Door::File | Door::Tool | Door::Wake => None,
        })
        .collect();
    let mut config = Config::new().agent("work", &worker.url(), &["max_in_flight = 100", "fanout = 1000"]);
    for (n, sleeper) in &sleepers {
        let settings = ["results = \"wake\"", "results_cooldown = \"100ms\"", "fanout = 1000"];
        config = config.agent(&format!("sleeper-{n}"), &sleeper.url(), &settings);
    }
    for (n, name) in names.iter().enumerate() {
        let who = match door(n) {
            Door::Wake => format!("agent = \"sleeper-{n}\""),
            Door::Poll | Door::Stream | Door::File | Door::Tool | Door::Hook | Door::DeadHook => "outbox = true".into(),
        };
        let table = format!("[callers.{name}]\ntoken = \"file:{name}\"\ntenant = \"t\"\n{who}\n");
        config = config.tables(&table).with_file(name, &format!("token-of-{name}"));
    }
    let config = config.last("[push]\nenabled = true\nallow = [\"127.0.0.1\"]\n");
    let mut gateway: Gateway = config.start();
    // It comes back where it was.
    gateway.rewrite("listen = \"127.0.0.1:0\"", &format!("listen = \"{}\"", gateway.addr()));
    let (client, url) = (gateway.client(), format!("http://{}", gateway.addr()));
    let directory = gateway.file("");
    let started = now();
    let mut hooked: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    thread::scope(|scope| {
        let delegators: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let (client, hook) = (client.clone(), hooks.get(&n).map(Peer::url));
                scope.spawn(move || -> BTreeSet<String> {
                    (0..EACH)
                        .map(|n| {
                            thread::sleep(ms(60));
                            delegate(&client, name, &format!("job {n}"), hook.as_deref())
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
                let (own, hook) = (sleepers.get(&n), hooks.get(&n));
                scope.spawn(move || {
                    let mut reader =
                        Reader { name: name.clone(), client, got: BTreeMap::new(), floor: 0, begun: now() };
                    match door(n) {
                        Door::Poll => reader.poll(EACH),
                        Door::Stream => reader.stream(EACH),
                        Door::File => reader.file(EACH, &directory, &url),
                        Door::Tool => reader.tool(EACH),
                        Door::Wake => reader.wake(EACH, own.unwrap()),
                        Door::Hook => {
                            // What its hook is told and what waits in its outbox are the same.
                            while told(hook.unwrap()).len() < EACH {
                                reader.hurry();
                                thread::sleep(ms(50));
                            }
                            reader.poll(EACH);
                        }
                        Door::DeadHook => reader.poll(EACH),
                    }
                    reader.got
                })
            })
            .collect();
        for kill in 0..KILLS {
            thread::sleep(ms(250 + 30 * kill as u64));
            gateway.kill();
            gateway.start();
        }
        for (n, ((name, delegated), got)) in names.iter().zip(delegators).zip(readers).enumerate() {
            let (delegated, got) = (delegated.join().unwrap(), got.join().unwrap());
            let how = door(n);
            assert_eq!(delegated.len(), EACH, "{name}: each is one");
            assert_eq!(
                got.keys().copied().collect::<Vec<_>>(),
                (1..=EACH as u64).collect::<Vec<_>>(),
                "{name}, {how:?}"
            );
            assert_eq!(got.into_values().collect::<BTreeSet<_>>(), delegated, "{name}, {how:?}");
            if how == Door::Hook {
                assert_eq!(told(&hooks[&n]).into_keys().collect::<BTreeSet<_>>(), delegated, "{name}: by its hook");
                hooked.insert(n, delegated);
            }
        }
    });
    assert!(started.elapsed() < ms(90_000), "{:?}", started.elapsed());

    // One hook has all its news before it still, and answers to none of it. The others hear of what is new at once.
    assert!(hooked.len() >= 3, "{hooked:?}");
    for (n, before) in &hooked {
        let (name, hook) = (&names[*n], &hooks[n]);
        // Milliseconds on a machine that has nothing else to do; two seconds are promised.
        let task = delegate(&client, name, "one more", Some(&hook.url()));
        eventually(ms(10_000), "the hook is told", || told(hook).contains_key(&task).then_some(()));
        assert!(!before.contains(&task), "{task}");
    }
}

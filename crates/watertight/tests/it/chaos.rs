//! Everything at once: callers of every kind, agents that answer, take their time, hang, cannot be asked and stand still, and a gateway
//! that is killed again and again. Whatever is promised one call at a time has to hold for all of them together.
//!
//! `make chaos` plays it in full, and prints the tally.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, length, slow};
use crate::client::{Client, fresh, is_terminal, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::{After, Card, Peer, Received, Wire};

const AGENTS: [&str; 5] = ["steady", "stuck", "frozen", "vague", "keen"];

/// Those that can be asked which task a message began.
const ASKABLE: [&str; 3] = ["steady", "stuck", "frozen"];

/// The callers of these want their task to end, and ask for that once.
fn is_canceled(message: &str) -> bool {
    let n: usize = message.trim_start_matches("chaos-").parse().unwrap();
    n / AGENTS.len() % 4 == 3
}

/// How much of it.
struct Size {
    delegations: usize,
    callers: usize,
    kills: usize,
    every: Duration,
    slots: usize,
}

/// What the callers know.
struct Known {
    size: Size,
    next: AtomicUsize,
    addr: Mutex<Option<SocketAddr>>,
    /// The ids that were given out, by agent and message.
    given: Mutex<BTreeMap<(&'static str, String), BTreeSet<String>>>,
    lost: AtomicUsize,
    refused: AtomicUsize,
}

impl Known {
    fn call(&self, agent: &'static str, method: &str, params: &Value) -> Option<Vec<Value>> {
        let addr = (*self.addr.lock().unwrap())?;
        let answer = Client::new(addr).call(agent, method, params, &[]).ok()?;
        let text = String::from_utf8(answer.body).ok()?;
        let lines =
            text.lines().filter_map(|line| line.strip_prefix("data: ").or(line.starts_with('{').then_some(line)));
        lines.map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Sends until there is an answer: the same message, as an SDK does whose connection was lost. One that is refused comes
    /// again.
    fn insists(&self, agent: &'static str, method: &str, message: &str, params: &Value) -> Vec<Value> {
        eventually(Duration::from_secs(90), &format!("an answer to {message}"), || {
            let answers = self.call(agent, method, params);
            if answers.is_none() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            let answers = answers?;
            let mut given = self.given.lock().unwrap();
            let mut taken = false;
            for answer in &answers {
                let task = &answer["result"]["task"]["id"];
                let failed = &answer["error"]["data"][0]["metadata"]["taskId"];
                if let Some(id) = task.as_str().or(failed.as_str()) {
                    taken = true;
                    given.entry((agent, message.to_owned())).or_default().insert(id.to_owned());
                }
            }
            // A stream without an end was cut off.
            let last = answers.last()?;
            if last["error"].is_object() && !taken {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let update = &last["result"]["statusUpdate"];
            let whole = method == "SendMessage" || last["error"].is_object() || is_terminal(state(update));
            (whole || is_terminal(state(&last["result"]["task"]))).then_some(answers)
        })
    }

    fn caller(&self) {
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.size.delegations {
                return;
            }
            let agent = AGENTS[n % AGENTS.len()];
            let message = format!("chaos-{n}");
            // In a context of its own, in which its agent can be asked for it.
            let said = json!({
                "messageId": message, "contextId": format!("talk-{n}"), "role": "ROLE_USER",
                "parts": [{"text": format!("take {}", n * 7 % 300)}],
            });
            let blocking = json!({"message": said});
            let at_once = json!({"message": said, "configuration": {"returnImmediately": true}});
            match n / AGENTS.len() % 4 {
                0 => drop(self.insists(agent, "SendMessage", &message, &blocking)),
                1 => drop(self.insists(agent, "SendStreamingMessage", &message, &blocking)),
                2 => drop(self.insists(agent, "SendMessage", &message, &at_once)),
                _ => {
                    let answers = self.insists(agent, "SendMessage", &message, &at_once);
                    let id = &answers[0]["result"]["task"]["id"];
                    self.call(agent, "CancelTask", &json!({"id": id}));
                }
            }
        }
    }
}

/// Answers with a task that is done, after a while, and knows nothing of it before or afterwards: what is cut off cannot be
/// asked about.
fn vague(request: &Received, wire: &mut Wire) -> After {
    if !request.executes() {
        return wire.error(-32001, "no such task");
    }
    thread::sleep(length(request.text()));
    let status = json!({"state": "TASK_STATE_COMPLETED"});
    wire.ok(&json!({"task": {"id": fresh("vague"), "contextId": fresh("context"), "status": status}}))
}

/// How often an agent was sent each message.
fn times(received: &[Received]) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for request in received.iter().filter(|request| request.executes()) {
        let message = request.params()["message"]["messageId"].as_str().unwrap_or_default();
        *times.entry(message.to_owned()).or_insert(0) += 1;
    }
    times
}

/// An agent in a process of its own, which can be stopped and continued. Dropping it ends that process, and no other.
struct Frozen {
    child: Child,
    url: String,
}

impl Frozen {
    fn start() -> Self {
        let own = std::env::current_exe().unwrap();
        let mut child = Command::new(own)
            .args(["--exact", "chaos::an_agent_in_a_process_of_its_own", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let url = said(&mut child, "agent at ");
        Self { child, url }
    }

    /// How often it was sent each message, and how many turns it is at.
    fn asked(&mut self) -> (BTreeMap<String, usize>, usize) {
        writeln!(self.child.stdin.as_mut().unwrap(), "times").unwrap();
        let said: Value = serde_json::from_str(&said(&mut self.child, "sent ")).unwrap();
        let times = said["times"].as_object().unwrap().iter();
        (
            times.map(|(id, n)| (id.clone(), n.as_u64().unwrap() as usize)).collect(),
            said["running"].as_u64().unwrap() as usize,
        )
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The rest of the next line that begins so, byte by byte: what comes behind it is another call's.
fn said(child: &mut Child, begin: &str) -> String {
    let mut stdout = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
    loop {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "the agent's process ended");
        if let Some((_, rest)) = line.split_once(begin) {
            return rest.trim().to_owned();
        }
    }
}

#[test]
#[ignore = "the agent that other tests here stop: it is their child, and ends with them"]
fn an_agent_in_a_process_of_its_own() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, length(text)));
    println!("agent at {}", agent.url());
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        println!("sent {}", json!({"times": times(&agent.peer.received()), "running": agent.running()}));
    }
}

/// Plays it, and checks what must hold. The tally is for people.
fn play(size: Size) -> String {
    let steady = Agent::start(Card::Streaming, |text| slow(text, length(text)));
    let stuck = Agent::start(Card::Streaming, |text| slow(text, Duration::from_secs(120)));
    let (vaguely, keenly) = (Peer::start(Card::Missing, vague), Peer::start(Card::Missing, vague));
    let mut frozen = Frozen::start();
    let urls = [steady.url(), stuck.url(), frozen.url.clone(), vaguely.url(), keenly.url()];
    let slots = format!("max_in_flight = {}", size.slots);
    let mut config = Config::new();
    for (name, url) in AGENTS.iter().zip(&urls) {
        let mut settings = vec!["queue_ttl = \"120s\"", "max_wait = \"5s\"", slots.as_str()];
        settings.push(if *name == "stuck" { "budget = \"2s\"" } else { "budget = \"30s\"" });
        if *name == "keen" {
            settings.extend(["idempotent = true", "attempts = 5"]);
        }
        if ASKABLE.contains(name) {
            settings.push("lookup = true");
        }
        config = config.agent(name, url, &settings);
    }
    let mut gateway = config.start();
    let known = Known {
        size,
        next: AtomicUsize::new(0),
        addr: Mutex::new(Some(gateway.addr())),
        given: Mutex::default(),
        lost: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
    };
    let mut kills = 0;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..known.size.callers).map(|_| scope.spawn(|| known.caller())).collect();
        let kept_still = scope.spawn(|| {
            // It stands still while the gateway is killed at least once, and goes on.
            thread::sleep(known.size.every / 2);
            frozen.signal(rustix::process::Signal::STOP);
            thread::sleep(known.size.every * 2);
            frozen.signal(rustix::process::Signal::CONT);
        });
        while kills < known.size.kills {
            thread::sleep(known.size.every);
            gateway.kill();
            gateway.start();
            *known.addr.lock().unwrap() = Some(gateway.addr());
            kills += 1;
        }
        kept_still.join().unwrap();
        callers.into_iter().for_each(|caller| caller.join().expect("a caller that was served"));
    });

    let client = gateway.client();
    let given = known.given.into_inner().unwrap();
    let (mut ended, mut unknown) = (BTreeMap::new(), BTreeMap::<&str, Vec<&str>>::new());
    for ((agent, message), tasks) in &given {
        assert_eq!(tasks.len(), 1, "{message} to {agent} has more than one task: {tasks:?}");
        for id in tasks {
            let task = client.ended(agent, id, Duration::from_secs(90));
            let metadata = &task["metadata"]["watertight"];
            let reason = metadata["reason"].as_str().unwrap_or("by its word").to_owned();
            if reason == "outcome_unknown" {
                assert_ne!(metadata["delivery"], "not_sent", "what was queued is not lost: {task}");
                // What may be sent again is, unless its caller wants it to end.
                assert!(*agent != "keen" || is_canceled(message), "{message} to keen is given up: {task}");
                unknown.entry(*agent).or_default().push(message);
            }
            *ended.entry((*agent, state(&task).to_owned(), reason)).or_insert(0) += 1;
        }
    }
    let (frozen_times, _) = frozen.asked();
    let sent = [
        ("steady", times(&steady.peer.received())),
        ("stuck", times(&stuck.peer.received())),
        ("frozen", frozen_times),
        ("vague", times(&vaguely.received())),
        ("keen", times(&keenly.received())),
    ];
    let mut tally = format!(
        "{} accepted, {kills} kills, {} connections lost, {} refusals\n",
        given.len(),
        known.lost.into_inner(),
        known.refused.into_inner()
    );
    for ((agent, state, reason), times) in &ended {
        writeln!(tally, "{times:>6}  {agent:<8} {state:<10} {reason}").unwrap();
    }
    let (delegations, in_flight) = (known.size.delegations, known.size.slots);
    assert_eq!(given.len(), delegations, "every one was taken on\n{tally}");
    for (name, times) in &sent {
        let most = times.values().max().copied().unwrap_or_default();
        writeln!(tally, "{:>6}  {name:<8} messages sent, each at most {most} times", times.len()).unwrap();
        assert!(most == 1 || *name == "keen", "{name} was sent something twice: {times:?}\n{tally}");
        // Of what was on its way when the gateway died, and has no name there, nobody knows; of nothing else.
        let nameless = unknown.get(name).cloned().unwrap_or_default();
        assert!(nameless.len() <= kills * in_flight, "{nameless:?} of {name} are unknown\n{tally}");
        // Who can be asked tells, unless the gateway died between its own word and the first byte.
        let told = |message: &str| ASKABLE.contains(name) && !is_canceled(message) && times.contains_key(message);
        let silent: Vec<&&str> = nameless.iter().filter(|message| told(message)).collect();
        assert!(silent.is_empty(), "{name} has {silent:?}, and was not asked well\n{tally}");
    }
    // What the gateway ended and the agent was at is stopped, unless nobody knows its name there.
    let nameless = |name| unknown.get(name).map_or(0, Vec::len);
    for (name, agent) in [("steady", &steady), ("stuck", &stuck)] {
        eventually(Duration::from_secs(20), &format!("{name} was told to stop"), || {
            (agent.running() <= nameless(name)).then_some(())
        });
    }
    eventually(Duration::from_secs(20), "frozen was told to stop", || {
        (frozen.asked().1 <= nameless("frozen")).then_some(())
    });
    for name in AGENTS {
        gateway.assert_drains(name, Duration::from_secs(20));
    }
    tally
}

#[test]
fn four_kills_lose_nothing_double_nothing_and_leave_nothing_behind() {
    println!("{}", play(Size { delegations: 150, callers: 8, kills: 4, every: ms(700), slots: 16 }));
}

#[test]
#[ignore = "takes minutes: make chaos"]
fn twenty_kills_lose_nothing_double_nothing_and_leave_nothing_behind() {
    println!("{}", play(Size { delegations: 1_000, callers: 24, kills: 20, every: ms(900), slots: 16 }));
}

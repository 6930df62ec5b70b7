//! Everything at once: callers of every kind, agents that answer, take their time and hang, and a gateway that is killed again and again.
//! Whatever is promised one call at a time has to hold for all of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, length, slow};
use crate::client::{Client, is_terminal, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::Card;

const DELEGATIONS: usize = 200;
const CALLERS: usize = 8;
const KILLS: usize = 4;

/// What the callers know.
#[derive(Default)]
struct Known {
    next: AtomicUsize,
    addr: Mutex<Option<SocketAddr>>,
    /// The ids that were given out, by agent and message.
    given: Mutex<BTreeMap<(&'static str, String), BTreeSet<String>>>,
    lost: AtomicUsize,
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

    /// Sends until there is an answer: the same message, as an SDK does whose connection was lost.
    fn insists(&self, agent: &'static str, method: &str, message: &str, params: &Value) -> Vec<Value> {
        eventually(Duration::from_secs(40), &format!("an answer to {message}"), || {
            let answers = self.call(agent, method, params);
            if answers.is_none() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            let answers = answers?;
            let mut given = self.given.lock().unwrap();
            for answer in &answers {
                let task = &answer["result"]["task"]["id"];
                let failed = &answer["error"]["data"][0]["metadata"]["taskId"];
                if let Some(id) = task.as_str().or(failed.as_str()) {
                    given.entry((agent, message.to_owned())).or_default().insert(id.to_owned());
                }
            }
            // A stream without an end was cut off.
            let last = answers.last()?;
            let update = &last["result"]["statusUpdate"];
            let whole = method == "SendMessage" || last["error"].is_object() || is_terminal(state(update));
            (whole || is_terminal(state(&last["result"]["task"]))).then_some(answers)
        })
    }

    fn caller(&self) {
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= DELEGATIONS {
                return;
            }
            let agent = ["quick", "steady", "stuck"][n % 3];
            let message = format!("chaos-{n}");
            let said = json!({"messageId": message, "role": "ROLE_USER", "parts": [{"text": format!("take {}", n * 7 % 300)}]});
            let blocking = json!({"message": said});
            let at_once = json!({"message": said, "configuration": {"returnImmediately": true}});
            match n / 3 % 4 {
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

#[test]
fn four_kills_lose_nothing_double_nothing_and_leave_nothing_behind() {
    let agents = [
        ("quick", Agent::echo()),
        ("steady", Agent::start(Card::Streaming, |text| slow(text, length(text)))),
        ("stuck", Agent::start(Card::Streaming, |text| slow(text, Duration::from_secs(120)))),
    ];
    let mut config = Config::new();
    for (name, agent) in &agents {
        config = config.agent(name, &agent.url(), &["budget = \"2s\"", "queue_ttl = \"20s\"", "max_wait = \"5s\""]);
    }
    let mut gateway = config.start();
    let known = Known::default();
    *known.addr.lock().unwrap() = Some(gateway.addr());
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(|| known.caller())).collect();
        for _ in 0..KILLS {
            thread::sleep(ms(700));
            gateway.kill();
            gateway.start();
            *known.addr.lock().unwrap() = Some(gateway.addr());
        }
        callers.into_iter().for_each(|caller| caller.join().expect("a caller that was served"));
    });

    let client = gateway.client();
    let given = known.given.into_inner().unwrap();
    let (mut ended, mut unknown) = (BTreeMap::new(), BTreeMap::new());
    for ((agent, message), tasks) in &given {
        assert_eq!(tasks.len(), 1, "{message} to {agent} has more than one task: {tasks:?}");
        for id in tasks {
            let task = client.ended(agent, id, Duration::from_secs(30));
            *ended.entry((*agent, state(&task).to_owned())).or_insert(0) += 1;
            if task["metadata"]["watertight"]["reason"] == "outcome_unknown" {
                *unknown.entry(*agent).or_insert(0) += 1;
            }
        }
    }
    println!("{} given out, {ended:?}, {} connections lost", given.len(), known.lost.into_inner());
    assert!(given.len() * 10 >= DELEGATIONS * 9, "nearly all were taken on: {}", given.len());
    for (name, agent) in &agents {
        let mut times = BTreeMap::new();
        for request in agent.peer.received().iter().filter(|request| request.executes()) {
            *times.entry(request.params()["message"]["messageId"].to_string()).or_insert(0) += 1;
        }
        assert!(times.values().all(|times| *times == 1), "{name} was sent something twice: {times:?}");
        // What the gateway ended and the agent was at is stopped, unless nobody knows its name there.
        let nameless = unknown.get(name).copied().unwrap_or(0);
        eventually(Duration::from_secs(15), &format!("{name} was told to stop"), || {
            (agent.running() <= nameless).then_some(())
        });
        gateway.assert_drains(name, Duration::from_secs(15));
    }
}

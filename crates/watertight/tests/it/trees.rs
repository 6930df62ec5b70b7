//! Agents that call agents through the gateway: who is charged, what loops end with, and what ends with what. The agents
//! here forward what they are asked along a route in the message's text, with or without what they were given.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, Fault, Outcome, answer_text, fresh, id, message, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer, Received, Wire};

/// What an agent passes on of what it was given.
#[derive(Clone, Copy, PartialEq, Debug)]
enum PassesOn {
    /// The token and the budget.
    All,
    /// The budget alone.
    Budget,
    Nothing,
}

/// The way back to the gateway, once it runs.
type Way = Arc<OnceLock<Client>>;

/// Sends the rest of its route to the next agent of it, and answers with what came of that. `hold` as the next one: it works until
/// it is canceled.
fn forwarder(name: &'static str, passes: PassesOn, way: &Way) -> Peer {
    let way = way.clone();
    Peer::start(Card::Plain, move |request, wire| match request.method() {
        "SendMessage" => {
            let route = request.text().to_owned();
            match route.split_once(' ').map_or((route.as_str(), ""), |(next, rest)| (next, rest)) {
                ("", _) => done(wire, "the end"),
                ("hold", _) => wire.ok(&json!({"task": task(request, "WORKING", "")})),
                ("odd", _) => odd(wire),
                (next, rest) => {
                    let answer = forward(&way, name, next, rest, request, passes);
                    let text = answer.map_or_else(
                        |fault| format!("{}: {}", fault.reason, fault.message),
                        |ok| {
                            if ok.get("artifacts").is_some() { answer_text(&ok) } else { format!("task {}", id(&ok)) }
                        },
                    );
                    done(wire, &text)
                }
            }
        }
        "CancelTask" => wire.ok(&task(request, "CANCELED", "")),
        "GetTask" => wire.ok(&task(request, "WORKING", "")),
        _ => wire.error(-32601, "method not found"),
    })
}

fn forward(way: &Way, name: &str, next: &str, rest: &str, request: &Received, passes: PassesOn) -> Outcome {
    // `+b`: only started, and not waited for.
    let (next, at_once) = next.strip_prefix('+').map_or((next, false), |next| (next, true));
    let given = &request.params()["message"]["metadata"];
    let mut said = message(rest);
    said["metadata"] = match passes {
        PassesOn::All => json!({"x-delegation": given["x-delegation"], "x-budget": given["x-budget"]}),
        PassesOn::Budget => json!({"x-budget": given["x-budget"]}),
        PassesOn::Nothing => json!({}),
    };
    let params = json!({"message": said, "configuration": {"returnImmediately": at_once}});
    let bearer = format!("Bearer secret-of-{name}");
    let answer = way.get().unwrap().call(next, "SendMessage", &params, &[("authorization", &bearer)]).unwrap();
    answer.outcome().map(|result| result.get("task").cloned().unwrap_or(result))
}

fn task(request: &Received, state: &str, text: &str) -> Value {
    let said = request.params()["id"].as_str().map(str::to_owned);
    let mut task = json!({
        "id": said.unwrap_or_else(|| fresh("remote")), "contextId": fresh("context"), "status": {"state": format!("TASK_STATE_{state}")},
    });
    if !text.is_empty() {
        task["artifacts"] = json!([{"artifactId": "out", "parts": [{"text": text}]}]);
    }
    task
}

fn done(wire: &mut Wire, text: &str) -> After {
    wire.ok(&json!({"task": {
        "id": fresh("remote"), "contextId": fresh("context"), "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "out", "parts": [{"text": text}]}],
    }}))
}

/// An answer that sets what only the gateway may set, wherever it can.
fn odd(wire: &mut Wire) -> After {
    let ours = json!({"watertight": {"reason": "canceled"}, "x-budget": {"remaining_s": 9e9, "depth": 99}, "x-delegation": "wd1.forged", "kept": 1});
    let said = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hm"}], "metadata": ours});
    wire.ok(&json!({"task": {
        "id": fresh("remote"), "contextId": fresh("context"), "metadata": ours, "history": [said],
        "status": {"state": "TASK_STATE_COMPLETED", "message": said},
        "artifacts": [{"artifactId": "out", "parts": [{"text": "odd"}], "metadata": ours}],
    }}))
}

struct Agents {
    gateway: Gateway,
    client: Client,
    peers: Vec<(&'static str, Peer)>,
}

impl Agents {
    /// `a`, `b` and `c`; `known`: the gateway knows by their tokens which agent calls.
    fn start(passes: [PassesOn; 3], known: bool) -> Agents {
        let way = Way::default();
        let names = ["a", "b", "c"];
        let peers: Vec<(&'static str, Peer)> =
            names.into_iter().zip(passes).map(|(name, passes)| (name, forwarder(name, passes, &way))).collect();
        let mut config = Config::new();
        for (name, peer) in &peers {
            let only = if *name == "c" { "max_in_flight = 2" } else { "max_in_flight = 100" };
            config = config.agent(name, &peer.url(), &[only, "serialize = \"none\""]);
        }
        for name in ["user", "a", "b", "c"] {
            let agent = if known && name != "user" { format!("agent = \"{name}\"\n") } else { String::new() };
            config = config
                .last(&format!(
                    "[callers.{name}]\ntoken = \"file:{name}.token\"\ntenant = \"acme\"\noperator = true\n{agent}"
                ))
                .with_file(&format!("{name}.token"), &format!("secret-of-{name}"));
        }
        let gateway = config.start();
        let client = gateway.client();
        way.set(client.clone()).unwrap();
        Agents { gateway, client, peers }
    }

    fn user(&self, agent: &str, params: &Value) -> Outcome {
        self.as_caller("user", agent, params)
    }

    fn as_caller(&self, caller: &str, agent: &str, params: &Value) -> Outcome {
        let bearer = format!("Bearer secret-of-{caller}");
        let answer = self.client.call(agent, "SendMessage", params, &[("authorization", &bearer)]).unwrap();
        answer.outcome().map(|result| result.get("task").cloned().unwrap_or(result))
    }

    /// A user's task for the first agent of a route.
    fn go(&self, route: &str, budget: Value) -> Outcome {
        let (first, rest) = route.split_once(' ').unwrap();
        let mut said = message(rest);
        if budget.is_object() {
            said["metadata"] = json!({ "x-budget": budget });
        }
        self.user(first, &json!({ "message": said }))
    }

    fn calls(&self) -> usize {
        self.peers.iter().map(|(_, peer)| peer.executions()).sum()
    }

    fn peer(&self, name: &str) -> &Peer {
        &self.peers.iter().find(|(known, _)| *known == name).unwrap().1
    }

    fn api(&self, path: &str) -> Value {
        let answer = self.client.http("GET", path, &[("authorization", "Bearer secret-of-user")], b"").unwrap();
        serde_json::from_slice(&answer.body).unwrap()
    }

    fn rows(&self) -> Vec<Value> {
        self.api("/v1/delegations?limit=100")["delegations"].as_array().unwrap().clone()
    }

    fn row(&self, task: &str) -> Value {
        self.api(&format!("/v1/delegations/{task}"))
    }

    fn cancel(&self, agent: &str, task: &str) -> Value {
        let bearer = "Bearer secret-of-user";
        let answer =
            self.client.call(agent, "CancelTask", &json!({ "id": task }), &[("authorization", bearer)]).unwrap();
        answer.outcome().unwrap()
    }
}

const ALL: [PassesOn; 3] = [PassesOn::All; 3];

#[test]
fn a_loop_ends_with_the_chain_in_the_error() {
    let agents = Agents::start(ALL, false);
    for (route, chain) in [("a a", "a → a"), ("a b a", "a → b → a"), ("a b c a b c", "a → b → c → a")] {
        let (start, before) = (now(), agents.calls());
        let told = answer_text(&agents.go(route, Value::Null).unwrap());
        assert!(told.starts_with("delegation_cycle: ") && told.contains(chain), "{route}: {told}");
        assert!(told.contains("cannot help") && start.elapsed() < ms(5_000), "{told}");
        assert_eq!(agents.calls() - before, chain.matches('→').count(), "{route}: nobody was called again");
    }
    assert_eq!(agents.rows().len(), 1 + 2 + 3, "nothing is stored of what was refused");
    let pays = agents.rows().into_iter().filter(|row| row["children"] == 1).count();
    assert_eq!(pays, 1 + 2, "nor paid for");
}

#[test]
fn an_agent_does_not_call_itself_even_on_its_own_account() {
    let agents = Agents::start(ALL, true);
    let bearer = ("authorization", "Bearer secret-of-a");
    let answer = agents.client.call("a", "SendMessage", &json!({"message": message("")}), &[bearer]).unwrap();
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let info = &body["error"]["data"][0];
    assert_eq!((&info["reason"], &info["metadata"]["chain"]), (&json!("delegation_cycle"), &json!("a → a")), "{body}");
    let task = agents.as_caller("a", "b", &json!({"message": message("")})).unwrap();
    let row = agents.row(id(&task));
    assert_eq!((&row["chain"], &row["parent"]), (&json!(["a"]), &Value::Null), "{row}");
    let shown = crate::command::watertight(
        &agents.gateway,
        &["tasks", "show", id(&task), "--token-file", agents.gateway.file("a.token").to_str().unwrap()],
    );
    assert!(shown.out.contains("chain      a → b"), "{shown:?}");
}

#[test]
fn a_loop_through_one_that_passes_nothing_on_ends() {
    for (passes, known) in [
        ([PassesOn::All, PassesOn::Nothing, PassesOn::All], true),
        (ALL, true),
        ([PassesOn::Budget; 3], false),
        ([PassesOn::Nothing; 3], true),
    ] {
        let agents = Agents::start(passes, known);
        let route = format!("a{}", " b c a".repeat(20));
        let told = answer_text(&agents.go(&route, Value::Null).unwrap());
        assert!(told.contains("delegation_cycle") || told.contains("depth_exhausted"), "{told}");
        assert!(agents.calls() <= 25, "{passes:?}: {} hops", agents.calls());
    }
}

#[test]
fn the_hop_too_many_is_told_at_once_and_names_the_limit() {
    let agents = Agents::start(ALL, true);
    let start = now();
    let told = answer_text(&agents.go("a b c", json!({"depth": 2})).unwrap());
    assert!(told.starts_with("depth_exhausted: ") && told.contains("2 hops deep"), "{told}");
    assert!(start.elapsed() < ms(5_000), "{:?}", start.elapsed());
    let fault = agents.go("a b", json!({"depth": 0})).unwrap_err();
    assert!(fault.message.contains("the message's own x-budget says depth 0"), "{}", fault.message);
    for odd in [json!(0), json!(-1), json!("6"), json!("NaN")] {
        let fault = agents.go("a b", json!({ "remaining_s": odd })).unwrap_err();
        assert_eq!((fault.code, fault.message.contains("remaining_s")), (-32602, true), "{odd}: {}", fault.message);
    }
}

/// A user's task that is at work, and what its agent was given to pass on.
fn at_work(agents: &Agents, agent: &str, budget: Value) -> (String, Value) {
    let mut said = message("hold");
    if budget.is_object() {
        said["metadata"] = json!({ "x-budget": budget });
    }
    let count = agents.peer(agent).executions();
    let task = agents.user(agent, &json!({"message": said, "configuration": {"returnImmediately": true}})).unwrap();
    let given = eventually(ms(5_000), "the agent has it", || {
        let all = agents.peer(agent).received();
        let sent: Vec<&Received> = all.iter().filter(|request| request.executes()).collect();
        sent.get(count).map(|request| request.params()["message"]["metadata"].clone())
    });
    (id(&task).to_owned(), given)
}

/// What the agent that works on it sends on its behalf.
fn child(agents: &Agents, by: &str, to: &str, text: &str, metadata: &Value) -> Outcome {
    let mut said = message(text);
    said["metadata"] = metadata.clone();
    agents.as_caller(by, to, &json!({"message": said, "configuration": {"returnImmediately": true}}))
}

#[test]
fn ten_calls_are_ten_calls() {
    let agents = Agents::start(ALL, true);
    let (root, given) = at_work(&agents, "a", json!({"fanout": 10}));
    let told: Vec<Outcome> = (0..30).map(|_| child(&agents, "a", "b", "", &given)).collect();
    assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 10);
    let last = told[29].clone().unwrap_err();
    assert_eq!(last.reason, "fanout_exhausted");
    assert!(last.message.contains("may start 10 delegations"), "{}", last.message);
    assert_eq!(agents.row(&root)["children"], 10);
}

#[test]
fn a_token_that_is_not_ours_is_as_good_as_none() {
    let agents = Agents::start(ALL, false);
    let (root, given) = at_work(&agents, "a", Value::Null);
    let token = given["x-delegation"].as_str().unwrap().to_owned();
    assert!(token.starts_with("wd1."), "{token}");
    let parent = |token: Value| {
        let task = child(&agents, "a", "b", "", &json!({ "x-delegation": token })).unwrap();
        agents.row(id(&task))["parent"].clone()
    };
    assert_eq!(parent(json!(token)), json!(root));
    let mut forged = token.clone();
    forged.replace_range(10..11, if &token[10..11] == "A" { "B" } else { "A" });
    for odd in [json!(token[..token.len() - 1]), json!(forged), json!("another gateway's"), json!(7), Value::Null] {
        assert_eq!(parent(odd.clone()), Value::Null, "{odd}");
    }
    let metrics = agents.client.http("GET", "/metrics", &[("authorization", "Bearer secret-of-user")], b"").unwrap();
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("watertight_delegation_tokens_total{outcome=\"foreign\"} 3"), "{metrics:.2000}");

    agents.cancel("a", &root);
    let late = child(&agents, "a", "b", "", &given).unwrap_err();
    assert_eq!((late.reason.as_str(), late.delivery.as_str()), ("parent_ended", "not_sent"));
}

#[test]
fn another_agents_token_is_not_taken() {
    let agents = Agents::start(ALL, true);
    let (_, given) = at_work(&agents, "a", Value::Null);
    let token = json!({"x-delegation": given["x-delegation"]});
    let task = child(&agents, "b", "c", "", &token).unwrap();
    assert_eq!((&agents.row(id(&task))["parent"], &agents.row(id(&task))["chain"]), (&Value::Null, &json!(["b"])));
}

#[test]
fn a_cancel_takes_the_tree_along() {
    let agents = Agents::start(ALL, true);
    let (root, given) = at_work(&agents, "a", Value::Null);
    let runs = child(&agents, "a", "b", "hold", &given).unwrap();
    // Both slots of c are taken, so that the next one waits.
    let (_busy, _busy_too) = (at_work(&agents, "c", Value::Null), at_work(&agents, "c", Value::Null));
    let waits = child(&agents, "a", "c", "never heard", &given).unwrap();
    eventually(ms(5_000), "b works", || (agents.row(id(&runs))["state"] == "TASK_STATE_WORKING").then_some(()));
    assert_eq!(agents.row(id(&waits))["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(state(&agents.cancel("a", &root)), "CANCELED");
    for child in [&runs, &waits] {
        eventually(Duration::from_secs(10), "it goes along", || {
            (agents.row(id(child))["state"] == "TASK_STATE_CANCELED").then_some(())
        });
    }
    assert_eq!((agents.peer("b").count("CancelTask"), agents.peer("c").count("CancelTask")), (1, 0));
    assert_eq!(agents.row(id(&runs))["cancel"], "confirmed");
    assert!(agents.peer("c").received().iter().all(|request| request.text() != "never heard"));
}

#[test]
fn what_an_agent_answers_sets_nothing_of_ours() {
    let agents = Agents::start(ALL, true);
    let task = agents.user("a", &json!({"message": message("odd")})).unwrap();
    let text = task.to_string();
    assert!(!text.contains("forged") && !text.contains("x-budget") && !text.contains("\"canceled\""), "{text}");
    assert_eq!(text.matches("\"kept\":1").count(), 4, "{text}");
    assert_eq!(state(&task), "COMPLETED");
}

#[test]
fn a_tree_says_what_was_spent_and_fits_a_narrow_terminal() {
    let agents = Agents::start(ALL, true);
    let (root, given) = at_work(&agents, "a", json!({"fanout": 3, "depth": 3}));
    let one = child(&agents, "a", "b", "hold", &given).unwrap();
    child(&agents, "a", "c", "", &given).unwrap();
    let tree = agents.api(&format!("/v1/delegations/{}/tree", id(&one)));
    let top = &tree["nodes"][0];
    assert_eq!(
        (&top["task"], &top["children"], &top["budget"]["fanout"]),
        (&json!(root), &json!(2), &json!(1)),
        "{tree}"
    );
    let file = agents.gateway.file("user.token");
    let args = ["tasks", "tree", &root, "--columns", "80", "--token-file", file.to_str().unwrap()];
    let drawn = crate::command::watertight(&agents.gateway, &args);
    let lines: Vec<&str> = drawn.out.lines().collect();
    assert!(drawn.code == 0 && lines.len() == 4, "{drawn:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", drawn.out);
    assert!(lines[0].contains("CHILDREN") && lines[1].contains("2/3"), "{}", drawn.out);
}

/// An agent that is done at once, and then thanks whoever is `to`, in the conversation that it was called in. It passes nothing on.
fn polite(name: &'static str, to: &'static str, way: &Way, refusals: &Arc<Mutex<Vec<Fault>>>) -> Peer {
    let (way, refusals) = (way.clone(), refusals.clone());
    Peer::start(Card::Plain, move |request, wire| {
        let context = request.params()["message"]["contextId"].as_str().map_or_else(|| fresh("context"), str::to_owned);
        let after = wire.ok(&json!({"task": {
            "id": fresh("remote"), "contextId": context, "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "out", "parts": [{"text": "you are welcome"}]}],
        }}));
        let (way, refusals) = (way.clone(), refusals.clone());
        thread::spawn(move || {
            // Its own turn is over by then.
            thread::sleep(ms(30));
            let mut said = message("thanks");
            said["contextId"] = json!(context);
            let bearer = format!("Bearer secret-of-{name}");
            let Some(client) = way.get() else { return };
            // The test may be over, and the gateway gone.
            let Ok(answer) = client.call(to, "SendMessage", &json!({"message": said}), &[("authorization", &bearer)])
            else {
                return;
            };
            refusals.lock().unwrap().extend(answer.outcome().err().map(|fault| *fault));
        });
        after
    })
}

#[test]
fn two_agents_do_not_thank_each_other_for_ever() {
    for known in [true, false] {
        let (way, refusals) = (Way::default(), Arc::<Mutex<Vec<Fault>>>::default());
        let peers = [("a", polite("a", "b", &way, &refusals)), ("b", polite("b", "a", &way, &refusals))];
        let mut config = Config::new().top("limits.agent_messages = 5");
        for (name, peer) in &peers {
            let agent = if known { format!("agent = \"{name}\"\n") } else { String::new() };
            config = config
                .agent(name, &peer.url(), &[])
                .last(&format!("[callers.{name}]\ntoken = \"file:{name}.token\"\ntenant = \"acme\"\n{agent}"))
                .with_file(&format!("{name}.token"), &format!("secret-of-{name}"));
        }
        let gateway = config
            .last("[callers.user]\ntoken = \"file:user.token\"\ntenant = \"acme\"")
            .with_file("user.token", "secret-of-user")
            .start();
        let client = gateway.client();
        way.set(client.clone()).unwrap();
        let user = [("authorization", "Bearer secret-of-user")];
        let hello = json!({"message": message("hello")});
        client.call("a", "SendMessage", &hello, &user).unwrap().outcome().unwrap();
        let fault = eventually(Duration::from_secs(10), "it stops", || refusals.lock().unwrap().first().cloned());
        assert_eq!((fault.reason.as_str(), fault.delivery.as_str()), ("rate_limited", "not_sent"), "{fault:?}");
        let calls = || peers.iter().map(|(_, peer)| peer.executions()).sum::<usize>();
        let stopped = calls();
        assert!((10..=12).contains(&stopped), "five thanks each way, and the hello: {stopped}");
        thread::sleep(ms(300));
        assert_eq!(calls(), stopped, "nobody goes on");
        // Others are not touched by it.
        let other = json!({"message": message("hello"), "configuration": {"returnImmediately": true}});
        client.call("b", "SendMessage", &other, &user).unwrap().outcome().unwrap();
    }
}

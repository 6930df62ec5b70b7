//! Who may call whom: relations in a tree, tenants, lists, agents that may call nobody. At every door, and again when what
//! waited is about to be sent.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Client, id, message, state};
use crate::clock::{eventually, ms};
use crate::command::watertight;
use crate::disk::limit_files;
use crate::gateway::{Config, Gateway};
use crate::peer::Card;
use crate::tools::{post, uses};

/// Agents by where they stand: each path but the first part's has the agent above it in front.
const TREES: [(&str, &str); 9] = [
    ("boss", "boss"),
    ("left", "boss/left"),
    ("right", "boss/right"),
    ("l1", "boss/left/l1"),
    ("l2", "boss/left/l2"),
    ("r1", "boss/right/r1"),
    ("chief", "chief"),
    ("aide", "chief/aide"),
    ("deputy", "chief/aide/deputy"),
];

/// By the paths alone: one is on the other's, or both end below the same one.
fn related(a: &str, b: &str) -> bool {
    let above = |path: &str| path.rsplit_once('/').map(|(above, _)| above.to_owned());
    let on = |a: &str, b: &str| b.starts_with(&format!("{a}/"));
    a != b && (on(a, b) || on(b, a) || above(a).is_some() && above(a) == above(b))
}

fn caller(config: Config, name: &str, more: &str) -> Config {
    let table = format!("[callers.{name}]\ntoken = \"file:{name}\"\n{more}\n");
    config.last(&table).with_file(name, &format!("token-of-{name}"))
}

/// The two trees and one agent of another tenant, each with a caller that is it; an operator and a stranger that are none.
fn trees(agent: &Agent) -> Config {
    let mut config = Config::new().last("[server]\naccess = \"hierarchy\"");
    for (name, path) in TREES {
        let above = path.rsplit('/').nth(1).map(|above| format!("parent = \"{above}\"")).unwrap_or_default();
        config = config.agent(name, &agent.url(), &["tenant = \"acme\"", above.as_str()]);
        config = caller(config, name, &format!("tenant = \"acme\"\nagent = \"{name}\""));
    }
    config = config.agent("alien", &agent.url(), &["tenant = \"other\""]);
    config = caller(config, "alien", "tenant = \"other\"\nagent = \"alien\"");
    config = caller(config, "operator", "tenant = \"acme\"\noperator = true");
    caller(config, "stranger", "tenant = \"other\"")
}

struct As {
    client: Client,
    bearer: String,
}

/// What came of a message: the status, the reason, the text of the error.
type Told = (u16, String, String);

impl As {
    fn new(gateway: &Gateway, name: &str) -> As {
        As { client: gateway.client(), bearer: format!("Bearer token-of-{name}") }
    }

    fn http(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers =
            [("authorization", self.bearer.as_str()), ("a2a-version", "1.0"), ("content-type", "application/json")];
        let answer = self.client.http(method, path, &headers, body.to_string().as_bytes()).unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    fn rpc(&self, agent: &str, method: &str, params: &Value) -> (u16, Value) {
        let answer = self.client.call(agent, method, params, &[("authorization", &self.bearer)]).unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    /// A blocking send.
    fn send(&self, agent: &str) -> Told {
        let (status, body) = self.rpc(agent, "SendMessage", &json!({"message": message("hello")}));
        told(status, &body)
    }

    /// One that is only to be accepted.
    fn submit(&self, agent: &str, text: &str) -> String {
        let params = json!({"message": message(text), "configuration": {"returnImmediately": true}});
        let (_, body) = self.rpc(agent, "SendMessage", &params);
        id(&body["result"]["task"]).to_owned()
    }

    fn get(&self, agent: &str, task: &str) -> Value {
        self.rpc(agent, "GetTask", &json!({"id": task})).1["result"].clone()
    }

    fn comes_to(&self, agent: &str, task: &str, wanted: &str) -> Value {
        eventually(ms(10_000), &format!("{task} is {wanted}"), || {
            Some(self.get(agent, task)).filter(|task| task["status"].is_object() && state(task) == wanted)
        })
    }

    fn peers(&self, gateway: &Gateway) -> BTreeSet<String> {
        let name = self.bearer.trim_start_matches("Bearer token-of-");
        let (_, _, told) = uses(gateway, name, "list_peers", &json!({}));
        told["peers"].as_array().unwrap().iter().map(|peer| peer["agent"].as_str().unwrap().to_owned()).collect()
    }

    /// The rows that an operator sees.
    fn rows(&self) -> Vec<Value> {
        let (_, page) = self.http("GET", "/v1/delegations?limit=100", &Value::Null);
        page["delegations"].as_array().unwrap().clone()
    }

    fn row(&self, task: &str) -> Value {
        self.http("GET", &format!("/v1/delegations/{task}"), &Value::Null).1
    }

    fn agent(&self, name: &str) -> Value {
        let (_, told) = self.http("GET", "/v1/agents", &Value::Null);
        told["agents"].as_array().unwrap().iter().find(|agent| agent["agent"] == name).unwrap().clone()
    }

    fn queued(&self, agent: &str, wanted: u64) {
        eventually(ms(10_000), &format!("{wanted} wait"), || (self.agent(agent)["queued"] == wanted).then_some(()));
    }

    fn reload(&self) {
        let (status, told) = self.http("POST", "/v1/config/reload", &Value::Null);
        assert_eq!(status, 200, "{told}");
    }
}

fn told(status: u16, body: &Value) -> Told {
    let error = &body["error"];
    let datum = error["data"].get(0).or_else(|| error["details"].get(0)).cloned().unwrap_or_default();
    let reason = datum["reason"].as_str().unwrap_or_default().to_owned();
    (status, reason, error["message"].as_str().unwrap_or_default().to_owned())
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_agent_reaches_those_above_below_and_beside_it_and_nobody_else() {
    let agent = Agent::echo();
    let gateway = trees(&agent).start();
    let operator = As::new(&gateway, "operator");
    let mut sent = 0;
    for (from, own) in TREES {
        let caller = As::new(&gateway, from);
        let expected: BTreeSet<String> =
            TREES.iter().filter(|(_, path)| related(own, path)).map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(caller.peers(&gateway), expected, "the peers of {from}");
        let access = operator.agent(from)["access"].clone();
        assert_eq!(access["mayCall"], json!(expected), "{access}");
        for (to, _) in TREES {
            let (status, reason, text) = caller.send(to);
            let card = caller.http("GET", &format!("/agents/{to}/.well-known/agent-card.json"), &Value::Null).0;
            match (from == to, expected.contains(to)) {
                (true, _) => {
                    assert_eq!((status, reason.as_str(), card), (409, "delegation_cycle", 200), "{from} {text}")
                }
                (false, true) => {
                    sent += 1;
                    assert_eq!((status, reason.as_str(), card), (200, "", 200), "{from} to {to}: {text}");
                }
                (false, false) => {
                    assert_eq!((status, reason.as_str(), card), (403, "forbidden", 404), "{from} to {to}: {text}");
                    let parts = [
                        &format!("agent {from} may not call agent {to}"),
                        "\"hierarchy\"",
                        "cannot help",
                        "list_peers",
                    ];
                    assert!(parts.iter().all(|part| text.contains(*part)), "{text}");
                }
            }
        }
        let (foreign, nobody) = (caller.send("alien"), caller.send("nobody"));
        assert_eq!((foreign.0, foreign.1.as_str()), (404, "agent_unknown"), "{from}");
        assert_eq!(foreign.2.replace("alien", "nobody"), nobody.2, "it answers like one that there is not");
        assert_eq!(caller.http("GET", "/agents/alien/.well-known/agent-card.json", &Value::Null).0, 404);
    }
    assert_eq!((operator.rows().len(), agent.peer.executions()), (sent, sent), "nothing else was stored or sent");
    // Who is no agent stands outside of the trees, and nobody reaches another tenant's.
    let all = names(&TREES.map(|(name, _)| name));
    assert_eq!(operator.peers(&gateway), all);
    assert_eq!(As::new(&gateway, "stranger").peers(&gateway), names(&["alien"]));
    for (to, _) in TREES {
        assert_eq!(operator.send(to).0, 200);
        for other in ["stranger", "alien"] {
            let (status, reason, _) = As::new(&gateway, other).send(to);
            assert_eq!((status, reason.as_str()), (404, "agent_unknown"), "{other} to {to}");
        }
    }
    assert_eq!((As::new(&gateway, "stranger").send("alien").0, agent.peer.executions()), (200, sent + 10));
    let file = gateway.config();
    let checked =
        watertight(&gateway, &["check", "--access", "--json", "--config", file.to_str().unwrap()]).only_json();
    let row =
        |name: &str| checked["callers"].as_array().unwrap().iter().find(|row| row["caller"] == name).unwrap().clone();
    assert_eq!((&row("l1")["mayCall"], &checked["access"]), (&json!(["boss", "l2", "left"]), &json!("hierarchy")));
    assert_eq!((&row("stranger")["mayCall"], &row("l1")["agent"]), (&json!(["alien"]), &json!("l1")));
    let checked = watertight(&gateway, &["check", "--access", "--config", file.to_str().unwrap()]);
    assert!(checked.out.contains("deputy    acme    deputy  aide, chief"), "{}", checked.out);
    let shown = watertight(&gateway, &["agents", "l1", "--token-file", gateway.file("operator").to_str().unwrap()]);
    assert!(shown.out.contains("parent       left") && shown.out.contains("may call     boss, l2, left"), "{shown:?}");
}

#[test]
fn a_list_takes_the_place_of_the_tree() {
    let agent = Agent::echo();
    let config = caller(trees(&agent), "l1-too", "tenant = \"acme\"\nagent = \"l1\"\nagents = [\"r1\", \"chief\"]");
    let gateway = config.start();
    let listed = As::new(&gateway, "l1-too");
    assert_eq!(listed.peers(&gateway), names(&["chief", "r1"]));
    assert_eq!((listed.send("r1").0, listed.send("chief").0), (200, 200));
    // Its own parent does not exist for it.
    let (status, reason, _) = listed.send("left");
    assert_eq!((status, reason.as_str()), (404, "agent_unknown"));
    let may_call = As::new(&gateway, "operator").agent("l1")["access"]["mayCall"].clone();
    assert_eq!(may_call, json!(["boss", "chief", "l2", "left", "r1"]), "what it may by either of its tokens");
}

#[test]
fn an_agent_that_may_not_delegate_is_refused_alike_at_every_door() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(1)));
    let gateway = trees(&agent).start();
    let (left, operator) = (As::new(&gateway, "left"), As::new(&gateway, "operator"));
    let before = left.submit("l1", "fails");
    left.comes_to("l1", &before, "COMPLETED");
    let tools = |name: &str| -> BTreeSet<String> {
        let listed = post(&gateway, name, "tools/list", &json!({}));
        listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = tools("left");
    gateway.rewrite(
        "parent = \"boss\"\n[agents.left.breaker]",
        "parent = \"boss\"\ncan_delegate = false\n[agents.left.breaker]",
    );
    operator.reload();
    let (rows, sent) = (operator.rows().len(), agent.peer.executions());
    let said = json!({"message": message("hello")});
    let mut texts = BTreeSet::new();
    for method in ["SendMessage", "SendStreamingMessage"] {
        let (status, body) = left.rpc("l1", method, &said);
        let (status, reason, text) = told(status, &body);
        assert_eq!((status, reason.as_str()), (403, "forbidden"), "{method}: {text}");
        texts.insert(text);
    }
    for verb in ["send", "stream"] {
        let (status, body) = left.http("POST", &format!("/agents/l1/message:{verb}"), &said);
        let (status, reason, text) = told(status, &body);
        assert_eq!((status, reason.as_str()), (403, "forbidden"), "{verb}: {text}");
        texts.insert(text);
    }
    for tool in ["delegate_task", "delegate_task_async"] {
        let (failed, text, fields) = uses(&gateway, "left", tool, &json!({"agent": "l1", "task": "hello"}));
        assert!(failed && text.starts_with("REFUSED (forbidden)"), "{text}");
        assert_eq!((&fields["kind"], &fields["reason"]), (&json!("refused"), &json!("forbidden")));
        texts.insert(fields["why"].as_str().unwrap().to_owned());
    }
    let (status, body) = left.http("POST", "/workspaces/l1/a2a", &json!({"task": "hello"}));
    assert!(status == 403 && body.to_string().contains("agents.left.can_delegate is false"), "{status} {body}");
    let asked = json!({"target_id": "l1", "task": "hello"});
    let (status, body) = left.http("POST", "/workspaces/left/delegate", &asked);
    assert!(status == 403 && body.to_string().contains("agents.left.can_delegate is false"), "{status} {body}");
    assert_eq!(texts.len(), 1, "one text: {texts:#?}");
    let text = texts.first().unwrap();
    let parts =
        ["agent left may not delegate", "agents.left.can_delegate is false", "cannot help", "Do this part yourself"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    assert_eq!((operator.rows().len(), agent.peer.executions()), (rows, sent), "nothing was stored or sent");
    let gone: BTreeSet<String> = all.difference(&tools("left")).cloned().collect();
    assert_eq!(gone, names(&["delegate_task", "delegate_task_async"]));
    assert_eq!(tools("l1"), all, "it is nobody else's matter");
    assert!(left.peers(&gateway).is_empty());
    // It reads what it has, and is called like any other.
    assert_eq!(state(&left.get("l1", &before)), "COMPLETED");
    assert_eq!(left.http("GET", "/v1/outbox", &Value::Null).0, 200);
    assert_eq!((As::new(&gateway, "l1").send("left").0, operator.send("left").0), (200, 200));
    assert_eq!(operator.agent("left")["access"]["canDelegate"], false);
}

/// One slot, taken by the operator's own task until that is canceled; and callers whose right to the agent can be taken away,
/// each in its own way.
fn narrowed(agent: &Agent) -> Config {
    let config = Config::new()
        .last("[server]\naccess = \"hierarchy\"")
        .agent(
            "work",
            &agent.url(),
            &["max_in_flight = 1", "tenant = \"acme\"", "parent = \"lead\"", "serialize = \"none\""],
        )
        .agent("lead", &agent.url(), &[])
        .agent("clerk", &agent.url(), &["parent = \"lead\""])
        .agent("spare", &agent.url(), &[]);
    let config = caller(config, "operator", "tenant = \"acme\"\noperator = true");
    let config = caller(config, "lead", "tenant = \"acme\"\nagent = \"lead\"");
    let config = caller(config, "clerk", "tenant = \"acme\"\nagent = \"clerk\"");
    let config = caller(config, "moved", "tenant = \"acme\"\noutbox = true");
    let config = caller(config, "listed", "tenant = \"acme\"\noutbox = true\nagents = [\"work\", \"spare\"]");
    let config = caller(config, "removed", "tenant = \"acme\"\noutbox = true");
    caller(config, "kept", "tenant = \"acme\"\noutbox = true")
}

const NARROWED: [&str; 5] = ["lead", "clerk", "moved", "listed", "removed"];

/// What takes each of them its right.
fn narrow(gateway: &Gateway) {
    gateway.rewrite("parent = \"lead\"\nserialize", "parent = \"spare\"\nserialize");
    gateway.rewrite("[agents.clerk.breaker]", "can_delegate = false\n[agents.clerk.breaker]");
    gateway.rewrite("file:moved\"\ntenant = \"acme\"", "file:moved\"\ntenant = \"elsewhere\"");
    gateway.rewrite("agents = [\"work\", \"spare\"]", "agents = [\"spare\"]");
    gateway.rewrite("[callers.removed]\ntoken = \"file:removed\"\ntenant = \"acme\"\noutbox = true", "");
}

/// Who has sent what is queued, and what it is.
fn queue_up(gateway: &Gateway, agent: &Agent) -> (String, Vec<(&'static str, String)>) {
    let operator = As::new(gateway, "operator");
    let blocking = operator.submit("work", "long");
    eventually(ms(5_000), "the slot is taken", || (agent.running() == 1).then_some(()));
    let queued = |name| (name, As::new(gateway, name).submit("work", &format!("of {name}")));
    let tasks: Vec<_> = NARROWED.into_iter().chain(["kept"]).map(queued).collect();
    operator.queued("work", tasks.len() as u64);
    (blocking, tasks)
}

fn only_the_kept_one_is_sent(gateway: &Gateway, agent: &Agent, tasks: &[(&'static str, String)]) {
    let operator = As::new(gateway, "operator");
    for (name, task) in tasks {
        let row = eventually(ms(10_000), &format!("{name}'s is over"), || Some(operator.row(task)).filter(is_over));
        if *name == "kept" {
            assert_eq!(row["state"], "TASK_STATE_COMPLETED", "{row}");
            continue;
        }
        assert_eq!((&row["reason"], &row["delivery"]), (&json!("forbidden"), &json!("not_sent")), "{name}: {row}");
    }
    assert_eq!(sent_to(agent), ["of kept"], "nobody else's reached it");
    // Each that can still ask is told why, where it looks for results and at its task: what it had is still its own.
    for (name, why) in [("lead", "is none of them"), ("clerk", "can_delegate is false"), ("listed", "any more")] {
        let caller = As::new(gateway, name);
        let (_, page) = caller.http("GET", "/v1/outbox", &Value::Null);
        let results = page["results"].as_array().unwrap_or_else(|| panic!("{name}: {page}"));
        assert!(results.len() == 1 && results[0]["reason"] == "forbidden", "{name}: {page}");
        let task = &tasks.iter().find(|(of, _)| *of == name).unwrap().1;
        assert_eq!(results[0]["taskId"], json!(task), "{page}");
        if name != "listed" {
            let told = caller.get("work", task);
            assert!(state(&told) == "FAILED" && told["status"]["message"].to_string().contains(why), "{name}: {told}");
        }
    }
    let work = operator.agent("work");
    assert_eq!((&work["breaker"]["failures"], &work["queued"]), (&json!(0), &json!(0)), "{work}");
    let drained = || (operator.agent("work")["inFlight"] == 0).then_some(());
    eventually(ms(5_000), "its slot is free", drained);
}

fn is_over(row: &Value) -> bool {
    ["TASK_STATE_FAILED", "TASK_STATE_COMPLETED"].iter().any(|state| row["state"] == *state)
}

/// What callers said whose work does not take up the slot.
fn sent_to(agent: &Agent) -> Vec<String> {
    let all = agent.peer.received().into_iter().filter(|request| request.executes());
    all.map(|request| request.text().to_owned()).filter(|text| text.starts_with("of ")).collect()
}

fn worker() -> Agent {
    Agent::start(Card::Plain, |text| slow(text, if text == "long" { ms(600_000) } else { ms(1) }))
}

#[test]
fn what_waits_when_a_reload_narrows_is_not_sent() {
    let agent = worker();
    let gateway = narrowed(&agent).start();
    let operator = As::new(&gateway, "operator");
    let (blocking, tasks) = queue_up(&gateway, &agent);
    narrow(&gateway);
    operator.reload();
    operator.rpc("work", "CancelTask", &json!({"id": blocking}));
    only_the_kept_one_is_sent(&gateway, &agent, &tasks);
    // Nor is what it failed with run again at anybody's wish.
    let removed = &tasks.iter().find(|(of, _)| *of == "removed").unwrap().1;
    let (status, body) = operator.http("POST", &format!("/v1/delegations/{removed}/redrive"), &Value::Null);
    assert_eq!(told(status, &body).1, "forbidden", "{body}");
    // Who is configured again finds what was his, and why nothing came of it.
    let again = "[callers.removed]\ntoken = \"file:removed\"\ntenant = \"acme\"\n[callers.kept]";
    gateway.rewrite("[callers.kept]", again);
    operator.reload();
    let told = As::new(&gateway, "removed").get("work", removed);
    assert!(told["status"]["message"].to_string().contains("its caller is no longer known"), "{told}");
    assert_eq!(operator.http("POST", &format!("/v1/delegations/{removed}/redrive"), &Value::Null).0, 200);
}

#[test]
fn what_waits_over_a_crash_is_judged_by_who_is_known_then() {
    let agent = worker();
    let mut gateway = narrowed(&agent).start();
    let (blocking, tasks) = queue_up(&gateway, &agent);
    gateway.kill();
    narrow(&gateway);
    gateway.start();
    let operator = As::new(&gateway, "operator");
    operator.rpc("work", "CancelTask", &json!({"id": blocking}));
    only_the_kept_one_is_sent(&gateway, &agent, &tasks);
}

#[test]
fn a_worker_is_not_given_what_may_not_be_sent_any_more() {
    let config = Config::new().tables("[agents.crew]\nfetches = true\n[agents.other]\nfetches = true\n");
    let config = caller(config, "worker", "tenant = \"acme\"\nagent = \"crew\"");
    let config = caller(config, "operator", "tenant = \"acme\"\noperator = true");
    let config = caller(config, "listed", "tenant = \"acme\"\nagents = [\"crew\"]");
    let gateway = config.start();
    let (operator, listed, worker) =
        (As::new(&gateway, "operator"), As::new(&gateway, "listed"), As::new(&gateway, "worker"));
    let (forbidden, kept) = (listed.submit("crew", "not to be done"), operator.submit("crew", "to be done"));
    operator.queued("crew", 2);
    gateway.rewrite("agents = [\"crew\"]", "agents = [\"other\"]");
    operator.reload();
    let (_, given) = worker.http("POST", "/v1/inbox/claim?wait=5", &Value::Null);
    assert_eq!(given["work"]["taskId"], json!(kept), "{given}");
    let row = operator.row(&forbidden);
    assert_eq!(
        (&row["state"], &row["reason"], &row["delivery"]),
        (&json!("TASK_STATE_FAILED"), &json!("forbidden"), &json!("not_sent"))
    );
    let (_, none) = worker.http("POST", "/v1/inbox/claim", &Value::Null);
    assert_eq!(none["work"], Value::Null);
}

fn token(gateway: &Gateway, args: &[&str]) -> Value {
    let config = gateway.config();
    let args: Vec<&str> =
        ["token"].iter().chain(args).chain(&["--config", config.to_str().unwrap(), "--json"]).copied().collect();
    watertight(gateway, &args).only_json()
}

#[test]
fn an_expired_token_loses_nothing_that_was_accepted_and_a_revoked_one_does() {
    let agent = worker();
    let config = Config::new().agent("work", &agent.url(), &["max_in_flight = 1", "serialize = \"none\""]);
    let gateway = caller(config, "operator", "tenant = \"acme\"\noperator = true").start();
    let operator = As::new(&gateway, "operator");
    let blocking = operator.submit("work", "long");
    let revoked = token(&gateway, &["new", "revoked", "--tenant", "acme"]);
    let expired = token(&gateway, &["new", "expired", "--tenant", "acme", "--expires", "3s"]);
    let of =
        |made: &Value| As { client: gateway.client(), bearer: format!("Bearer {}", made["token"].as_str().unwrap()) };
    let submit = |made: &Value, text: &str| {
        let opens = || (of(made).http("GET", "/v1/delegations", &Value::Null).0 == 200).then_some(());
        eventually(ms(8_000), "the token opens", opens);
        of(made).submit("work", text)
    };
    let tasks = [submit(&expired, "of expired"), submit(&revoked, "of revoked")];
    token(&gateway, &["revoke", revoked["id"].as_str().unwrap()]);
    for made in [&expired, &revoked] {
        let closed = || (of(made).send("work").0 == 401).then_some(());
        eventually(ms(8_000), "the token opens nothing any more", closed);
    }
    operator.rpc("work", "CancelTask", &json!({"id": blocking}));
    let ended = |task: &String| eventually(ms(10_000), "it is over", || Some(operator.row(task)).filter(is_over));
    let [expired, revoked] = tasks.each_ref().map(ended);
    assert_eq!((&expired["state"], &revoked["reason"]), (&json!("TASK_STATE_COMPLETED"), &json!("forbidden")));
    assert_eq!((sent_to(&agent), &revoked["delivery"]), (vec!["of expired".to_owned()], &json!("not_sent")));
}

#[test]
fn nobody_is_let_in_because_the_store_fails() {
    let agent = Agent::echo();
    let gateway = trees(&agent).start();
    let made = token(&gateway, &["new", "revoked", "--tenant", "acme"]);
    let revoked = As { client: gateway.client(), bearer: format!("Bearer {}", made["token"].as_str().unwrap()) };
    eventually(ms(8_000), "the token opens", || (revoked.send("boss").0 == 200).then_some(()));
    token(&gateway, &["revoke", made["id"].as_str().unwrap()]);
    eventually(ms(8_000), "it opens nothing any more", || (revoked.send("boss").0 == 401).then_some(()));
    let nobody = As { client: gateway.client(), bearer: String::new() };
    let wrong = As::new(&gateway, "nobody");
    let left = As::new(&gateway, "left");
    let sent = agent.peer.executions();
    let look = |store: &str| {
        for (what, caller) in [("none", &nobody), ("wrong", &wrong), ("revoked", &revoked)] {
            let (status, reason, _) = caller.send("boss");
            assert_eq!((status, reason.as_str()), (401, "unauthenticated"), "{what}, the store {store}");
            for (method, path) in [
                ("POST", "/agents/boss/message:send"),
                ("POST", "/mcp"),
                ("GET", "/v1/outbox"),
                ("POST", "/v1/inbox/claim"),
                ("GET", "/agents/boss/.well-known/agent-card.json"),
            ] {
                let body = json!({"message": message("hello")});
                assert_eq!(caller.http(method, path, &body).0, 401, "{what}, {path}, the store {store}");
            }
        }
        let (status, reason, _) = left.send("chief");
        assert_eq!((status, reason.as_str()), (403, "forbidden"), "the store {store}");
        assert_eq!((left.send("alien").0, left.send("nobody").0), (404, 404), "the store {store}");
    };
    look("is well");
    limit_files(&gateway, "4096");
    assert_eq!(left.send("l1").1, "store_unavailable", "what makes the gateway notice");
    look("fails");
    assert_eq!(agent.peer.executions(), sent);
    limit_files(&gateway, "unlimited");
    eventually(ms(10_000), "it works again", || (left.send("l1").0 == 200).then_some(()));
}

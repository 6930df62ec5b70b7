//! Agents that register themselves: let in by a secret, known by a token of their own, and never led where they must not.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::agent::{Agent, slow};
use crate::client::{Answer, Client, answer_text, id, message, state};
use crate::clock::{eventually, ms};
use crate::command::watertight;
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer};

const CREW: &str = "secret-of-the-crew";
const BOSS: &str = "token-of-the-boss";

/// One agent that is configured, a caller who is an operator, and an enrolment with these settings.
fn config(enrolment: &str) -> Config {
    let text = format!(
        "[agents.fixed]\nurl = \"http://127.0.0.1:9/\"\n\
         [callers.boss]\ntoken = \"file:boss.token\"\ntenant = \"acme\"\noperator = true\n\
         [enrolment.crew]\nsecret = \"file:crew.secret\"\ntenant = \"acme\"\n{enrolment}\n"
    );
    Config::new().tables(&text).with_file("boss.token", BOSS).with_file("crew.secret", CREW)
}

fn open() -> Gateway {
    config("allow = [\"127.0.0.1\"]").start()
}

/// Somebody with a bearer token.
#[derive(Clone)]
struct As {
    client: Client,
    bearer: String,
}

impl As {
    fn new(gateway: &Gateway, token: &str) -> As {
        As { client: gateway.client(), bearer: format!("Bearer {token}") }
    }

    fn http(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers = [("authorization", self.bearer.as_str())];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.client.http(method, path, &headers, body.as_bytes()).unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    fn register(&self, body: Value) -> (u16, Value) {
        self.http("POST", "/v1/agents", &body)
    }

    fn call(&self, agent: &str, method: &str, params: &Value) -> Answer {
        self.client.call(agent, method, params, &[("authorization", &self.bearer)]).unwrap()
    }

    fn says(&self, agent: &str, text: &str) -> Value {
        let done = self.call(agent, "SendMessage", &json!({"message": message(text)})).outcome().unwrap();
        done.get("task").or(done.get("message")).unwrap().clone()
    }

    /// The reason why a message was refused, or its task failed.
    fn refused(&self, agent: &str, text: &str) -> String {
        self.call(agent, "SendMessage", &json!({"message": message(text)})).outcome().unwrap_err().reason
    }

    /// What the list says of an agent: that is up to date a moment after the answer.
    fn comes(&self, name: &str, member: &str, value: impl Into<Value>) -> Value {
        let value = value.into();
        eventually(ms(5_000), &format!("{name}.{member} is {value}"), || {
            self.agent(name).filter(|agent| agent[member] == value)
        })
    }

    fn agent(&self, name: &str) -> Option<Value> {
        let (_, told) = self.http("GET", "/v1/agents", &Value::Null);
        told["agents"].as_array().unwrap().iter().find(|agent| agent["agent"] == name).cloned()
    }
}

/// Lets one in, and gives who it is then.
fn enter(gateway: &Gateway, body: Value) -> As {
    let (status, told) = As::new(gateway, CREW).register(body);
    assert_eq!(status, 201, "{told}");
    As::new(gateway, told["token"].as_str().unwrap())
}

fn reason(told: &Value) -> &str {
    told["error"]["details"][0]["reason"].as_str().unwrap_or("")
}

fn said(told: &Value) -> &str {
    told["error"]["message"].as_str().unwrap_or("")
}

#[test]
fn a_whole_round() {
    let (first, second) = (Agent::start(Card::Plain, |text| slow(text, ms(10))), Agent::echo());
    let gateway = open();
    let boss = As::new(&gateway, BOSS);
    let (status, told) =
        As::new(&gateway, CREW).register(json!({"id": "hotels", "url": first.url(), "max_in_flight": 3}));
    assert_eq!((status, &told["tenant"], &told["registered"]), (201, &json!("acme"), &json!(true)), "{told}");
    let hotels = As::new(&gateway, told["token"].as_str().unwrap());
    assert_eq!(answer_text(&boss.says("hotels", "a room")), "done: a room");

    // Another one that registered calls it.
    let planner = enter(&gateway, json!({"id": "planner", "fetches": true}));
    assert_eq!(answer_text(&planner.says("hotels", "for two")), "done: for two");
    let listed = boss.comes("hotels", "maxInFlight", 3);
    assert_eq!(
        (&listed["registered"], &listed["enrolment"], &listed["maxInFlight"]),
        (&json!(true), &json!("crew"), &json!(3))
    );
    boss.comes("fixed", "registered", false);
    let (_, shown) = boss.http("GET", "/v1/config", &Value::Null);
    assert_eq!(shown["registered"], json!(["hotels", "planner"]));
    assert_eq!(shown["config"]["agents"]["hotels"]["url"], first.url());
    assert_eq!(hotels.http("GET", "/v1/agents/hotels", &Value::Null).1["url"], first.url());
    assert_eq!(hotels.http("GET", "/v1/agents/planner", &Value::Null).0, 404, "only itself");
    assert_eq!(boss.http("GET", "/agents/hotels/.well-known/agent-card.json", &Value::Null).0, 200);

    // It was started again elsewhere, and says so; twice is as once.
    let there = json!({"id": "hotels", "url": second.url()});
    let (status, told) = hotels.register(there.clone());
    assert_eq!((status, &told["changed"], told.get("token")), (200, &json!(true), None), "{told}");
    let (status, told) = hotels.register(there);
    assert_eq!((status, &told["changed"]), (200, &json!(false)), "{told}");
    let before = first.peer.executions();
    assert_eq!(answer_text(&boss.says("hotels", "again")), "echo: again");
    assert_eq!(first.peer.executions(), before);
    // What is not said any more is as usual.
    boss.comes("hotels", "maxInFlight", 16);

    // A reload keeps it; it leaves, and its token opens nothing.
    assert_eq!(boss.http("POST", "/v1/config/reload", &Value::Null).1["agents"]["removed"], json!([]));
    assert_eq!(answer_text(&boss.says("hotels", "still")), "echo: still");
    assert_eq!(planner.http("DELETE", "/v1/agents/hotels", &Value::Null).0, 403, "another's token");
    assert_eq!(hotels.http("DELETE", "/v1/agents/hotels", &Value::Null).1["state"], "leaving");
    assert_eq!(hotels.http("DELETE", "/v1/agents/hotels", &Value::Null).0, 401);
    assert_eq!(boss.refused("hotels", "too late"), "agent_draining");
    assert_eq!(boss.http("DELETE", "/v1/agents/planner", &Value::Null).0, 200, "an admin lets go");
    assert_eq!(planner.http("GET", "/v1/agents/planner", &Value::Null).0, 401);
    let (status, told) = boss.http("DELETE", "/v1/agents/fixed", &Value::Null);
    assert!(status == 403 && said(&told).contains("is in the configuration"), "{told}");
    assert_eq!(boss.http("DELETE", "/v1/agents/nobody", &Value::Null).0, 404);
    // The name may be had again, by whoever has the secret.
    enter(&gateway, json!({"id": "hotels", "url": second.url()}));
    assert_eq!(answer_text(&boss.says("hotels", "anew")), "echo: anew");
}

#[test]
fn what_runs_goes_on_whoever_comes_and_leaves() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(1500)));
    let gateway = open();
    let boss = As::new(&gateway, BOSS);
    let slowly = enter(&gateway, json!({"id": "slowly", "url": agent.url()}));
    thread::scope(|scope| {
        let held = scope.spawn(|| boss.says("slowly", "to the end"));
        eventually(ms(5_000), "it runs", || (agent.running() == 1).then_some(()));
        let others: Vec<As> =
            (0..4).map(|n| enter(&gateway, json!({"id": format!("o{n}"), "fetches": true}))).collect();
        gateway.hang_up();
        others[0].http("DELETE", "/v1/agents/o0", &Value::Null);
        slowly.http("DELETE", "/v1/agents/slowly", &Value::Null);
        assert_eq!(boss.refused("slowly", "more"), "agent_draining");
        assert_eq!(answer_text(&held.join().unwrap()), "done: to the end");
    });
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn one_that_fetches_claims_with_the_token_that_it_got() {
    let gateway = open();
    let boss = As::new(&gateway, BOSS);
    let crew = enter(&gateway, json!({"id": "hands", "fetches": true, "lease": "40s"}));
    let params = json!({"message": message("dig"), "configuration": {"returnImmediately": true}});
    let task = id(&boss.call("hands", "SendMessage", &params).outcome().unwrap()["task"]).to_owned();
    let (status, told) = crew.http("POST", "/v1/inbox/claim?wait=5", &Value::Null);
    assert_eq!((status, &told["work"]["taskId"]), (200, &json!(task)), "{told}");
    assert_eq!(boss.comes("hands", "registered", true)["fetches"]["leaseMs"], 40_000);
    let fence = &told["work"]["fence"];
    assert_eq!(crew.http("POST", &format!("/v1/inbox/{task}/start"), &json!({"fence": fence})).0, 200);
    let done = json!({"fence": fence, "text": "a hole"});
    assert_eq!(crew.http("POST", &format!("/v1/inbox/{task}/finish"), &done).0, 200);
    let view = boss.call("hands", "GetTask", &json!({"id": task})).outcome().unwrap();
    assert_eq!((state(&view), answer_text(&view).as_str()), ("COMPLETED", "a hole"));
    // An operator takes the token back: the agent stays, and nobody speaks for it.
    let file = fs::read_to_string(gateway.file("tokens.json")).unwrap();
    let tokens: Value = serde_json::from_str(&file).unwrap();
    let of = tokens["tokens"].as_array().unwrap().iter().find(|token| token["name"] == "hands").unwrap().clone();
    assert_eq!((&of["agent"], &of["tenant"], &of["scopes"]), (&json!("hands"), &json!("acme"), &json!(["caller"])));
    let path = gateway.config();
    let args = ["token", "revoke", of["id"].as_str().unwrap(), "--config", path.to_str().unwrap()];
    assert_eq!(watertight(&gateway, &args).code, 0);
    eventually(ms(8_000), "it opens nothing", || {
        (crew.http("POST", "/v1/inbox/claim?wait=0", &Value::Null).0 == 401).then_some(())
    });
    assert_eq!(As::new(&gateway, CREW).register(json!({"id": "hands", "fetches": true})).0, 403);
}

#[test]
fn a_name_has_one_owner_and_nobody_is_told_who() {
    let gateway = open();
    let (crew, boss) = (As::new(&gateway, CREW), As::new(&gateway, BOSS));
    let one = enter(&gateway, json!({"id": "one", "fetches": true}));
    let mut texts = BTreeSet::new();
    // Registered by itself, configured, and a caller's own name: its tasks would be another's.
    for name in ["one", "fixed", "boss"] {
        for who in [&crew, &boss] {
            let (status, told) = who.register(json!({"id": name, "fetches": true}));
            assert_eq!((status, reason(&told)), (403, "forbidden"), "{name}: {told}");
            texts.insert(said(&told).replace(name, "X"));
        }
    }
    let two = enter(&gateway, json!({"id": "two", "fetches": true}));
    let (status, told) = two.register(json!({"id": "one", "url": "http://127.0.0.1:1/"}));
    assert_eq!(status, 403);
    texts.insert(said(&told).replace("one", "X"));
    assert_eq!(texts.len(), 1, "{texts:?}");
    // It is as it was.
    boss.comes("one", "url", Value::Null);
    assert_eq!(one.register(json!({"id": "one", "fetches": true})).1["changed"], false);

    for nobody in [As::new(&gateway, "wrong"), As::new(&gateway, &CREW[1..])] {
        let (status, told) = nobody.register(json!({"id": "x", "fetches": true}));
        assert_eq!((status, reason(&told)), (401, "unauthenticated"));
    }
    assert_eq!(gateway.client().http("POST", "/v1/agents", &[], b"{}").unwrap().status, 401);
    // The secret opens nothing else.
    assert_eq!(crew.http("GET", "/v1/agents", &Value::Null).0, 401);
    assert_eq!(crew.http("DELETE", "/v1/agents/one", &Value::Null).0, 401);
    assert_eq!(crew.call("one", "SendMessage", &json!({"message": message("x")})).status, 401);
}

#[test]
fn a_crash_right_after_the_answer_loses_neither_agent_nor_token() {
    let agent = Agent::echo();
    let mut gateway = open();
    let (hotels, gone) = (
        enter(&gateway, json!({"id": "hotels", "url": agent.url()})),
        enter(&gateway, json!({"id": "gone", "fetches": true})),
    );
    assert_eq!(gone.http("DELETE", "/v1/agents/gone", &Value::Null).0, 200);
    let last = As::new(&gateway, CREW).register(json!({"id": "last", "fetches": true, "results": "wake"})).1;
    gateway.kill();
    gateway.start();
    let again = |who: &As| As { client: gateway.client(), bearer: who.bearer.clone() };
    let boss = As::new(&gateway, BOSS);
    assert_eq!(answer_text(&boss.says("hotels", "hello")), "echo: hello");
    assert_eq!(again(&hotels).register(json!({"id": "hotels", "url": agent.url()})).1["changed"], false);
    let last = As::new(&gateway, last["token"].as_str().unwrap());
    assert_eq!(last.http("GET", "/v1/agents/last", &Value::Null).1["registered"], true);
    assert_eq!(again(&gone).http("GET", "/v1/agents/gone", &Value::Null).0, 401);
    assert_eq!(boss.agent("gone"), None);
}

#[test]
fn a_token_that_a_crash_left_alone_opens_nothing_and_keeps_no_name() {
    let mut gateway = open();
    let crew = enter(&gateway, json!({"id": "hands", "fetches": true}));
    // As if the process had died between its two files.
    gateway.kill();
    fs::remove_file(gateway.file("store/agents.json")).unwrap();
    gateway.start();
    let crew = As { client: gateway.client(), bearer: crew.bearer };
    assert_eq!(crew.http("GET", "/v1/outbox", &Value::Null).0, 401);
    let anew = enter(&gateway, json!({"id": "hands", "fetches": true}));
    assert_eq!(anew.http("GET", "/v1/agents/hands", &Value::Null).0, 200);
    assert_eq!(crew.http("GET", "/v1/agents/hands", &Value::Null).0, 401);
    let file = fs::read_to_string(gateway.file("tokens.json")).unwrap();
    assert_eq!(file.matches("\"hands\"").count(), 2, "its name and its agent, once: {file}");
}

#[test]
fn nothing_is_sent_where_no_agent_may_be() {
    let inside = Agent::echo();
    let port = inside.peer.addr().port();
    let gateway = config("").start();
    let crew = As::new(&gateway, CREW);
    for host in [
        "127.0.0.1",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "2130706433",
        "0x7f.1",
        "localhost.",
        "localhost",
        "user@127.0.0.1",
        "0.0.0.0",
        "10.0.0.1",
    ] {
        let (status, told) = crew.register(json!({"id": "x", "url": format!("http://{host}:{port}/")}));
        assert_eq!(status, 400, "{host}: {told}");
        assert!(said(&told).contains("url: "), "{host}: {told}");
    }
    // A name that is not there is not told apart from one that leads inside.
    let nowhere = crew.register(json!({"id": "x", "url": format!("http://nowhere.invalid:{port}/")})).1;
    let within = crew.register(json!({"id": "x", "url": format!("http://localhost:{port}/")})).1;
    assert_eq!(said(&nowhere), said(&within));
    assert_eq!((inside.peer.received().len(), inside.peer.cards().len()), (0, 0));
    assert_eq!(As::new(&gateway, BOSS).agent("x"), None);
}

#[test]
fn where_an_agent_may_be_is_judged_at_each_connection_and_no_redirect_is_followed() {
    let inside = Agent::echo();
    let target = inside.url();
    let turns = Peer::start(Card::Missing, move |_, wire| wire.answer_with(307, &[("location", &target)], b""));
    let agent = Agent::echo();
    let gateway = open();
    let boss = As::new(&gateway, BOSS);
    enter(&gateway, json!({"id": "turns", "url": turns.url()}));
    assert_eq!(boss.refused("turns", "go"), "agent_rejected_request");
    assert!(turns.executions() > 0);
    assert_eq!((inside.peer.received().len(), inside.peer.cards().len()), (0, 0));

    // The name stays, and where it leads is no longer allowed: as if it led elsewhere since.
    let named = format!("http://localhost:{}/", agent.peer.addr().port());
    let own = enter(&gateway, json!({"id": "named", "url": named}));
    assert_eq!(answer_text(&boss.says("named", "yes")), "echo: yes");
    gateway.rewrite("allow = [\"127.0.0.1\"]", "allow = [\"10.0.0.0/8\"]");
    assert_eq!(boss.http("POST", "/v1/config/reload", &Value::Null).0, 200);
    let (calls, cards) = (agent.peer.received().len(), agent.peer.cards().len());
    assert_eq!(boss.refused("named", "no"), "agent_connect_refused");
    assert_eq!((agent.peer.received().len(), agent.peer.cards().len()), (calls, cards));
    assert_eq!(own.register(json!({"id": "named", "url": named})).0, 400);
}

#[test]
fn what_an_agent_may_not_say_is_told_with_its_name() {
    let gateway = config("allow = [\"127.0.0.1\"]\nparent = \"fixed\"").start();
    let crew = As::new(&gateway, CREW);
    for (body, what) in [
        (json!([]), "no JSON object"),
        (json!({"url": "http://127.0.0.1:1/"}), "id: is missing"),
        (json!({"id": "../x", "fetches": true}), "id: is 1 to 64"),
        (json!({"id": "list", "fetches": true}), "is reserved"),
        (json!({"id": "x"}), "url: is missing"),
        (json!({"id": "x", "fetches": true, "tenant": "other"}), "unknown field `tenant`"),
        (json!({"id": "x", "fetches": true, "headers": {"a": "b"}}), "unknown field `headers`"),
        (json!({"id": "x", "fetches": true, "max_in_flight": 17}), "max_in_flight: is 1 to 16"),
        (json!({"id": "x", "fetches": true, "lease": "soon"}), "lease: `soon` is no length of time"),
        (json!({"id": "x", "fetches": true, "parent": "nobody"}), "parent: is no agent of this enrolment"),
        (json!({"id": "x", "url": "http://127.0.0.1:1/", "card": "http://127.0.0.1:2/card"}), "card: must be a path"),
    ] {
        let (status, told) = crew.register(body.clone());
        assert!(status == 400 && said(&told).contains(what), "{body}: {status} {told}");
    }
    let (status, told) = crew.register(json!({"id": "x", "url": "h".repeat(20_000)}));
    assert_eq!((status, reason(&told)), (413, "too_large"));
    let under = enter(&gateway, json!({"id": "x", "fetches": true}));
    let (_, shown) = As::new(&gateway, BOSS).http("GET", "/v1/config", &Value::Null);
    let placed = &shown["config"]["agents"]["x"];
    assert_eq!((&placed["parent"], &placed["tenant"]), (&json!("fixed"), &json!("acme")));
    assert_eq!(under.http("GET", "/v1/agents/x", &Value::Null).0, 200);
}

#[test]
fn without_an_enrolment_nobody_comes() {
    let caller = "[callers.boss]\ntoken = \"file:boss.token\"\n";
    let closed = Config::new().tables(caller).with_file("boss.token", BOSS);
    for gateway in [closed.start(), Config::new().agent("fixed", "http://127.0.0.1:9/", &[]).start()] {
        for token in [CREW, BOSS] {
            let (status, told) = As::new(&gateway, token).register(json!({"id": "x", "fetches": true}));
            assert!(status == 403 && said(&told).contains("[enrolment.NAME]"), "{told}");
        }
    }
}

#[test]
fn names_are_not_used_up_for_ever() {
    let gateway = config("max_agents = 1").start();
    let crew = As::new(&gateway, CREW);
    for n in 0..10 {
        let one = enter(&gateway, json!({"id": format!("a{n}"), "fetches": true}));
        assert_eq!(one.http("DELETE", &format!("/v1/agents/a{n}"), &Value::Null).0, 200);
    }
    let (status, told) = crew.register(json!({"id": "a10", "fetches": true}));
    assert!(status == 403 && said(&told).contains("10 agents have come and gone"), "{told}");
    assert_eq!(crew.register(json!({"id": "a3", "fetches": true})).0, 201, "a name that is known takes no more room");
}

#[test]
fn a_rush_is_let_in_up_to_the_limit() {
    let gateway = config("max_agents = 12").start();
    let tokens: Vec<(usize, Option<String>)> = thread::scope(|scope| {
        let come = |n: usize| {
            let crew = As::new(&gateway, CREW);
            scope.spawn(move || {
                let (status, told) = crew.register(json!({"id": format!("a{n}"), "fetches": true}));
                match status {
                    201 => (n, Some(told["token"].as_str().unwrap().to_owned())),
                    403 => {
                        assert!(said(&told).contains("there are 12 agents already"), "{told}");
                        (n, None)
                    }
                    other => panic!("{other}: {told}"),
                }
            })
        };
        let all: Vec<_> = (0..24).map(come).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (boss, crew) = (As::new(&gateway, BOSS), As::new(&gateway, CREW));
    let inside: Vec<(usize, As)> =
        tokens.iter().filter_map(|(n, token)| Some((*n, As::new(&gateway, token.as_deref()?)))).collect();
    assert_eq!(inside.len(), 12);
    for (n, agent) in &inside {
        assert_eq!(agent.http("GET", &format!("/v1/agents/a{n}"), &Value::Null).0, 200);
    }
    let (n, agent) = &inside[0];
    assert_eq!(agent.http("DELETE", &format!("/v1/agents/a{n}"), &Value::Null).0, 200);
    assert_eq!(crew.register(json!({"id": "one-more", "fetches": true})).0, 201);
    assert_eq!(crew.register(json!({"id": "too-many", "fetches": true})).0, 403);
    boss.comes("one-more", "registered", true);
}

#[test]
fn a_name_in_the_configuration_counts_more_than_one_that_registered() {
    let (own, configured) = (Agent::echo(), Agent::start(Card::Plain, |text| slow(text, ms(1))));
    let mut gateway = open();
    let boss = As::new(&gateway, BOSS);
    let hotels = enter(&gateway, json!({"id": "hotels", "url": own.url()}));
    assert_eq!(answer_text(&boss.says("hotels", "x")), "echo: x");
    let table = format!("[agents.hotels]\nurl = \"{}\"\n[callers.boss]", configured.url());
    gateway.rewrite("[callers.boss]", &table);
    assert_eq!(boss.http("POST", "/v1/config/reload", &Value::Null).0, 200);
    assert_eq!(answer_text(&boss.says("hotels", "y")), "done: y");
    let told = |gateway: &Gateway| {
        let boss = As::new(gateway, BOSS);
        let shown = boss.http("GET", "/v1/config", &Value::Null).1;
        assert_eq!((&shown["overruled"], &shown["registered"]), (&json!(["hotels"]), &json!([])));
        boss.comes("hotels", "registered", false);
    };
    told(&gateway);
    eventually(ms(5_000), "it is said", || gateway.log().contains("is in the configuration too").then_some(()));
    assert_eq!(hotels.http("GET", "/v1/agents/hotels", &Value::Null).0, 401, "it does not speak for that one");
    gateway.kill();
    gateway.start();
    told(&gateway);
    let (boss, hotels) = (As::new(&gateway, BOSS), As { client: gateway.client(), bearer: hotels.bearer });
    assert_eq!(answer_text(&boss.says("hotels", "z")), "done: z");
    // Taken out again, the one that registered is back.
    gateway.rewrite(&table, "[callers.boss]");
    assert_eq!(boss.http("POST", "/v1/config/reload", &Value::Null).0, 200);
    assert_eq!(answer_text(&boss.says("hotels", "back")), "echo: back");
    assert_eq!(hotels.http("GET", "/v1/agents/hotels", &Value::Null).0, 200);
}

#[test]
fn what_an_agent_of_the_configuration_has_never_comes_to_one_that_registers() {
    let gateway = open();
    let (crew, boss) = (As::new(&gateway, CREW), As::new(&gateway, BOSS));
    let reload = || assert_eq!(boss.http("POST", "/v1/config/reload", &Value::Null).0, 200);
    let once = enter(&gateway, json!({"id": "hands", "fetches": true}));
    assert_eq!(once.http("DELETE", "/v1/agents/hands", &Value::Null).0, 200);
    let table = "[agents.hands]\nfetches = true\n[callers.boss]";
    gateway.rewrite("[callers.boss]", table);
    reload();
    let params = json!({"message": message("secret"), "configuration": {"returnImmediately": true}});
    let task = id(&boss.call("hands", "SendMessage", &params).outcome().unwrap()["task"]).to_owned();
    gateway.rewrite(table, "[callers.boss]");
    reload();
    let (status, told) = crew.register(json!({"id": "hands", "fetches": true}));
    assert!(status == 403 && said(&told).contains("is taken"), "{told}");
    assert_eq!(state(&boss.call("hands", "GetTask", &json!({"id": task})).outcome().unwrap()), "SUBMITTED");
}

#[test]
fn while_nothing_can_be_written_nobody_is_let_in_and_tokens_stay() {
    let gateway = open();
    let (crew, boss) = (As::new(&gateway, CREW), As::new(&gateway, BOSS));
    let one = enter(&gateway, json!({"id": "one", "fetches": true}));
    let before = fs::read_to_string(gateway.file("tokens.json")).unwrap();
    for (blocked, change) in [("store/agents.json.new", true), ("tokens.json.new", false)] {
        let path = gateway.file(blocked);
        fs::create_dir(&path).unwrap();
        let (status, told) = crew.register(json!({"id": "two", "fetches": true}));
        assert_eq!((status, reason(&told)), (503, "store_unavailable"), "{blocked}: {told}");
        assert_eq!(boss.agent("two"), None);
        if change {
            assert_eq!(one.register(json!({"id": "one", "fetches": true, "lease": "9s"})).0, 503);
            assert_eq!(one.http("DELETE", "/v1/agents/one", &Value::Null).0, 503);
        }
        assert_eq!(one.http("GET", "/v1/agents/one", &Value::Null).1["fetches"]["leaseMs"], 30_000);
        assert_eq!(fs::read_to_string(gateway.file("tokens.json")).unwrap(), before, "no token is left");
        fs::remove_dir(&path).unwrap();
    }
    assert_eq!(crew.register(json!({"id": "two", "fetches": true})).0, 201);
    // A list that nobody can read is no empty one.
    fs::write(gateway.file("store/agents.json"), "nonsense").unwrap();
    let (status, told) = boss.http("POST", "/v1/config/reload", &Value::Null);
    assert!(status == 400 && said(&told).contains("the agents that registered cannot be read"), "{told}");
    assert_eq!(one.http("GET", "/v1/agents/one", &Value::Null).0, 200);
}

#[test]
fn by_hand_and_without_a_secret_anywhere() {
    let agent = Agent::echo();
    let gateway = open();
    let path = |name: &str| gateway.file(name).to_str().unwrap().to_owned();
    let run = |args: &[&str]| watertight(&gateway, args);
    let url = agent.url();
    let register = ["agents", "register", "--id", "hotels", "--agent-url", &url];
    let with = |more: &[&str]| -> Vec<String> { register.iter().chain(more).map(|&arg| arg.to_owned()).collect() };
    let run_all = |args: Vec<String>| run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let done = run_all(with(&["--secret-file", &path("crew.secret")]));
    let token = done.out.trim().to_owned();
    assert!(done.code == 0 && token.starts_with("wt_") && token.len() == 46, "{done:?}");
    assert!(done.err.contains("hotels is registered in tenant acme") && !done.err.contains(&token), "{}", done.err);
    fs::write(gateway.file("hotels.token"), &token).unwrap();
    let same = run_all(with(&["--token-file", &path("hotels.token")]));
    assert_eq!((same.code, same.out.as_str()), (0, "hotels: as it was\n"));
    let other = run_all(with(&["--token-file", &path("hotels.token"), "--max-in-flight", "2", "--json"]));
    assert_eq!(other.only_json()["changed"], true);
    assert_eq!(run(&register).code, 2, "a secret is needed");
    let refused = run_all(with(&["--secret-file", &path("crew.secret")]));
    assert!(refused.code == 3 && refused.err.contains("this name is taken"), "{refused:?}");
    let listed = run(&["agents", "list", "--token-file", &path("boss.token"), "--json"]).only_json();
    assert_eq!(listed["agents"].as_array().unwrap().len(), 2);
    let one = run(&["agents", "hotels", "--token-file", &path("boss.token")]);
    assert!(one.out.contains("by itself, let in by crew"), "{}", one.out);
    assert_eq!(answer_text(&As::new(&gateway, BOSS).says("hotels", "x")), "echo: x");
    let made = run(&["token", "new", "night", "--agent", "hotels", "--config", &path("watertight.toml"), "--json"]);
    assert_eq!(made.only_json()["agent"], "hotels", "a registered agent may have more tokens");

    let shown = As::new(&gateway, BOSS).http("GET", "/v1/config", &Value::Null).1.to_string();
    let list = run(&["token", "list", "--config", &path("watertight.toml")]).out;
    let removed = run(&["agents", "remove", "hotels", "--token-file", &path("hotels.token")]);
    assert!(removed.code == 0 && removed.out.starts_with("hotels: removed"), "{removed:?}");
    for text in [gateway.log(), shown, list] {
        assert!(!text.contains(&token[3..]) && !text.contains(CREW), "{text}");
    }
    let told_in = ["crew.secret", "hotels.token", "boss.token"];
    for secret in [&token[3..], CREW] {
        for file in files(gateway.config().parent().unwrap()) {
            let bytes = fs::read(&file).unwrap();
            let is_there = bytes.windows(secret.len()).any(|piece| piece == secret.as_bytes());
            assert!(!is_there || told_in.iter().any(|own| file.ends_with(own)), "{}", file.display());
        }
    }
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let inner = |entry: fs::DirEntry| match entry.path() {
        path if path.is_dir() => files(&path),
        path => vec![path],
    };
    fs::read_dir(dir).unwrap().flat_map(|entry| inner(entry.unwrap())).collect()
}

#[test]
fn an_agent_with_a_card_that_misleads_is_called_where_it_said() {
    let inside = Agent::echo();
    let target = inside.url();
    let agent = Peer::with_cards(
        move |_, wire| {
            wire.answer_with(302, &[("location", &target)], b"");
            After::Close
        },
        |request, wire| {
            wire.ok(&json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": request.text()}]}}))
        },
    );
    let gateway = open();
    enter(
        &gateway,
        json!({"id": "hotels", "url": agent.url(), "card": "/card", "binding": "jsonrpc", "mode": "blocking"}),
    );
    let boss = As::new(&gateway, BOSS);
    eventually(ms(5_000), "its card is asked for", || (!agent.cards().is_empty()).then_some(()));
    assert_eq!(answer_text(&boss.says("hotels", "here")), "here");
    assert_eq!((inside.peer.received().len(), inside.peer.cards().len()), (0, 0));
}

/// A name that somebody has used is nobody else's: what was asked for under it is still there.
#[test]
fn a_used_name_comes_to_nobody_else_whoever_is_let_go_and_whenever_the_gateway_starts() {
    let peer = Agent::echo();
    let more = "allow = [\"127.0.0.1\"]\n[enrolment.others]\nsecret = \"file:others.secret\"\ntenant = \"acme\"\n\
                [callers.alice]\ntoken = \"file:alice.token\"\ntenant = \"acme\"\n";
    let others = "secret-of-the-others";
    let config = config(more).with_file("others.secret", others).with_file("alice.token", "token-of-alice");
    let mut gateway = config.agent("work", &peer.url(), &[]).start();
    assert_eq!(answer_text(&As::new(&gateway, "token-of-alice").says("work", "a secret")), "echo: a secret");
    let helper = enter(&gateway, json!({"id": "helper", "fetches": true}));
    let (left, _) = helper.http("DELETE", "/v1/agents/helper", &Value::Null);
    assert_eq!(left, 200);

    // Her credential is gone, what she asked for is not.
    gateway.rewrite("[callers.alice]", "[callers.carol]");
    gateway.kill();
    gateway.start();
    let crew = |gateway: &Gateway| As::new(gateway, CREW);
    let (status, told) = crew(&gateway).register(json!({"id": "alice", "fetches": true}));
    assert_eq!((status, reason(&told)), (403, "forbidden"), "{told}");
    assert!(said(&told).contains("this name is taken"), "{told}");
    // One that left comes again by the way that it came before, and nobody else under its name.
    let (status, told) = As::new(&gateway, others).register(json!({"id": "helper", "fetches": true}));
    assert_eq!((status, reason(&told)), (403, "forbidden"), "{told}");
    let helper = enter(&gateway, json!({"id": "helper", "fetches": true}));

    // A caller of the file by that name is the same principal, so its token opens nothing from then on.
    gateway.rewrite("[callers.carol]", "[callers.helper]");
    gateway.kill();
    gateway.start();
    let helper = As { client: gateway.client(), bearer: helper.bearer };
    assert_eq!(helper.http("GET", "/v1/agents/helper", &Value::Null).0, 401);
    assert_eq!(answer_text(&As::new(&gateway, "token-of-alice").says("work", "as helper")), "echo: as helper");
}

/// A stream that began before does not go on with what comes to the next holder of the name.
#[test]
fn who_was_let_go_does_not_read_on() {
    let peer = Agent::echo();
    let gateway = config("allow = [\"127.0.0.1\"]").agent("work", &peer.url(), &[]).start();
    let body = json!({"id": "helper", "fetches": true});
    let first = enter(&gateway, body.clone());
    let headers = [("authorization", first.bearer.as_str())];
    let (head, mut stream) = first.client.open("GET", "/v1/outbox/stream", &headers, b"").unwrap();
    assert_eq!(head.status(), 200);
    let polls = {
        let first = first.clone();
        thread::spawn(move || first.http("GET", "/v1/outbox?wait=20", &Value::Null))
    };
    thread::sleep(ms(200));
    assert_eq!(first.http("DELETE", "/v1/agents/helper", &Value::Null).0, 200);
    let second = enter(&gateway, body);
    let params = json!({"message": message("a secret"), "configuration": {"returnImmediately": true}});
    second.call("work", "SendMessage", &params).outcome().unwrap();
    let (status, told) = polls.join().unwrap();
    assert_eq!(status, 401, "{told}");
    let rest = String::from_utf8(stream.all().unwrap()).unwrap();
    assert!(!rest.contains("secret") && !rest.contains("event: result"), "{rest}");
    let waits = || second.http("GET", "/v1/outbox", &Value::Null).1;
    eventually(ms(5_000), "its owner has it", || waits().to_string().contains("echo: a secret").then_some(()));
}

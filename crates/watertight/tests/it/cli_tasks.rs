//! Tasks from the command line: every caller's for an operator, trees, foreign ones, and what agents write shown harmless.

use serde_json::{Value, json};

use crate::agent::{Agent, OnCancel, Step, slow};
use crate::client::{Client, id, message};
use crate::clock::{eventually, ms};
use crate::command::{Ran, end, interrupt, start, watertight};
use crate::gateway::{Config, Gateway};
use crate::peer::Card;

const SECRETS: [&str; 4] = ["alice", "bob", "ops", "other"];

/// Alice and Bob of one tenant, an operator of theirs, one of another's.
fn closed(agent: &Agent) -> Gateway {
    let mut config = Config::new().agent("trips", &agent.url(), &[]).agent("hotels", &agent.url(), &[]);
    config = config.agent("taxis", &agent.url(), &[]);
    for name in SECRETS {
        let (tenant, operator) = (if name == "other" { "globex" } else { "acme" }, name == "ops" || name == "other");
        config = config.last(&format!(
            "[callers.{name}]\ntoken = \"file:{name}.token\"\ntenant = \"{tenant}\"\noperator = {operator}"
        ));
        config = config.with_file(&format!("{name}.token"), &format!("secret-of-{name}"));
    }
    config.start()
}

fn as_caller(gateway: &Gateway, name: &str, args: &[&str]) -> Ran {
    let file = gateway.file(&format!("{name}.token"));
    let mut all = args.to_vec();
    all.extend(["--token-file", file.to_str().unwrap()]);
    watertight(gateway, &all)
}

/// A task of this caller, for a task above it.
fn submit(client: &Client, name: &str, agent: &str, text: &str, above: Option<&str>) -> String {
    let mut said = message(text);
    if let Some(above) = above {
        said["metadata"] = json!({"x-budget": {"remaining_s": 60.0, "depth": 3, "fanout": 4, "task": above}});
    }
    let params = json!({"message": said, "configuration": {"returnImmediately": true}});
    let bearer = format!("Bearer secret-of-{name}");
    let answer = client.call(agent, "SendMessage", &params, &[("authorization", &bearer)]).unwrap();
    let task = answer.outcome().unwrap()["task"].clone();
    id(&task).to_owned()
}

#[test]
fn a_tree_is_shown_to_whom_it_belongs() {
    let agent = Agent::start(Card::Plain, |text| match text {
        "evil" => vec![Step::Chunk("\u{1b}[2Jwiped\nand more\u{202e}".into()), Step::End("COMPLETED")],
        _ => slow(text, ms(30_000)),
    });
    agent.on_cancel(OnCancel::Stop);
    let gateway = closed(&agent);
    let client = gateway.client();
    let top = submit(&client, "alice", "trips", "a trip", None);
    let left = submit(&client, "alice", "hotels", "two nights", Some(&top));
    let right = submit(&client, "alice", "hotels", "evil", Some(&top));
    let below = submit(&client, "alice", "taxis", "a taxi", Some(&left));
    let bobs = submit(&client, "bob", "trips", "alone", None);
    let own = as_caller(&gateway, "alice", &["tasks", "list"]);
    assert_eq!((own.code, own.err.as_str()), (0, ""), "a caller needs no operator's token to list its own");
    assert!([&top, &left, &right, &below].into_iter().all(|task| own.out.contains(task.as_str())), "{own:?}");
    assert!(!own.out.contains(&bobs), "{own:?}");
    let state = |task: &str, of: &str| {
        let row = as_caller(&gateway, "alice", &["tasks", "show", task, "--json"]).only_json();
        (row["status"]["state"] == format!("TASK_STATE_{of}")).then_some(())
    };
    eventually(ms(5_000), "the evil one is done", || state(&right, "COMPLETED"));
    eventually(ms(5_000), "the lowest one works", || state(&below, "WORKING"));

    for asked in [&top, &below] {
        let tree = as_caller(&gateway, "alice", &["tasks", "tree", asked]);
        let lines: Vec<&str> = tree.out.lines().collect();
        assert!(tree.code == 0 && lines.len() == 5, "{tree:?}");
        let mark = |task: &str| if task == asked.as_str() { " *" } else { "" };
        assert!(lines[0].starts_with("TASK ") && lines[0].ends_with("REASON"), "{}", tree.out);
        assert!(
            lines[1].starts_with(&format!("{top}{}", mark(&top))) && lines[1].contains("  trips   alice"),
            "{}",
            tree.out
        );
        assert!(lines[2].starts_with(&format!("├─ {left}")), "{}", tree.out);
        assert!(lines[3].starts_with(&format!("│  └─ {below}{}", mark(&below))), "{}", tree.out);
        assert!(
            lines[4].starts_with(&format!("└─ {right}")) && lines[4].contains("COMPLETED  delivered"),
            "{}",
            tree.out
        );
    }
    let tree = as_caller(&gateway, "ops", &["tasks", "tree", &left, "--json"]).only_json();
    let nodes: Vec<(&str, u64)> = tree["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| (n["task"].as_str().unwrap(), n["level"].as_u64().unwrap()))
        .collect();
    assert_eq!(nodes, [(top.as_str(), 0), (left.as_str(), 1), (below.as_str(), 2), (right.as_str(), 1)]);
    let node = &tree["nodes"][2];
    assert_eq!((&node["parent"], &node["root"], &node["caller"]), (&json!(left), &json!(top), &json!("alice")));
    assert!(node["budget"]["remainingMs"].as_u64().is_some_and(|left| left > 10_000 && left < 60_000), "{node}");

    // A foreign task and none at all are told apart by nobody.
    let none = "0".repeat(32);
    for (who, task) in [("bob", &top), ("other", &top), ("alice", &bobs), ("alice", &none)] {
        for args in [
            &["tasks", "tree", task][..],
            &["tasks", "show", task],
            &["tasks", "watch", task],
            &["tasks", "cancel", task],
        ] {
            let (foreign, missing) =
                (as_caller(&gateway, who, args), as_caller(&gateway, who, &[args[0], args[1], &none]));
            assert_eq!((foreign.code, foreign.out.as_str()), (3, ""), "{who} {args:?}");
            assert_eq!(foreign.err.replace(task.as_str(), "X"), missing.err.replace(&none, "X"), "{who} {args:?}");
        }
    }
    assert_eq!(as_caller(&gateway, "alice", &["tasks", "tree", "../../metrics"]).code, 2);

    let listed = |who: &str, args: &[&str]| {
        let mut all = vec!["tasks", "list", "--all", "--json"];
        all.extend(args);
        as_caller(&gateway, who, &all).only_json()
    };
    let tasks = |page: &Value| {
        page["delegations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["task"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!((tasks(&listed("ops", &[])).len(), tasks(&listed("alice", &[])).len()), (5, 4));
    assert_eq!(tasks(&listed("bob", &[])), [bobs.as_str()]);
    assert_eq!(tasks(&listed("other", &[])), [""; 0]);
    let (mut seen, mut page) = (Vec::new(), listed("ops", &["--limit", "2"]));
    loop {
        seen.extend(tasks(&page));
        let Some(next) = page["next"].as_str() else { break };
        page = listed("ops", &["--limit", "2", "--cursor", next]);
    }
    seen.sort();
    let mut all = vec![top.clone(), left.clone(), right.clone(), below.clone(), bobs.clone()];
    all.sort();
    assert_eq!(seen, all);
    assert_eq!(tasks(&listed("ops", &["--status", "completed"])), [right.as_str()]);
    assert_eq!(tasks(&listed("ops", &["--agent", "trips", "--status", "working"])).len(), 2);

    // An operator sees how another's task stands, and not what was said in it.
    let shown = as_caller(&gateway, "ops", &["tasks", "show", &right]);
    assert!(shown.code == 0 && shown.out.contains("state      COMPLETED") && !shown.out.contains("wiped"), "{shown:?}");
    let shown = as_caller(&gateway, "alice", &["tasks", "show", &right]);
    assert!(shown.out.contains("\\u{1b}[2Jwiped\nand more\\u{202e}") && !shown.out.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn a_task_is_watched_to_its_end_and_leaving_it_does_not_end_it() {
    let agent = Agent::start(Card::Streaming, |text| match text {
        "ask" => vec![Step::Ask("which day?")],
        "long" => slow(text, ms(30_000)),
        _ => vec![
            Step::Take(ms(800)),
            Step::Chunk("one ".into()),
            Step::Take(ms(300)),
            Step::Chunk("two".into()),
            Step::End("COMPLETED"),
        ],
    });
    let gateway = Config::new().agent("fx", &agent.url(), &[]).start();
    let submit = |text: &str| {
        let sent = watertight(&gateway, &["send", "fx", text, "--no-wait"]);
        assert_eq!((sent.code, sent.err.as_str()), (0, ""));
        sent.out.trim().to_owned()
    };
    let handed = watertight(&gateway, &["send", "fx", "short", "--no-wait", "--json"]);
    assert!(handed.code == 0 && handed.out.starts_with("{\"task\":{"), "it ends as without --json: {handed:?}");
    let task = submit("short");
    let watched = watertight(&gateway, &["tasks", "watch", &task]);
    assert_eq!((watched.code, watched.out.as_str()), (0, "one two\n"), "{watched:?}");
    assert!(watched.err.contains(&format!("task {task} COMPLETED")), "{watched:?}");
    let again = watertight(&gateway, &["tasks", "watch", &task, "--agent", "fx"]);
    assert_eq!((again.code, again.out.as_str()), (0, "one two\n"), "its stream is over, its answer is not: {again:?}");

    let asks = submit("ask");
    let asked = eventually(ms(5_000), "it asks", || {
        let asked = watertight(&gateway, &["tasks", "watch", &asks]);
        asked.out.contains("which day?").then_some(asked)
    });
    assert_eq!(asked.code, 5, "{asked:?}");
    let hint = format!("to answer: watertight send fx --task {asks} \"...\"\n");
    assert!(asked.err.ends_with(&hint), "{asked:?}");
    let shown = watertight(&gateway, &["tasks", "show", &asks]);
    assert!(shown.err.ends_with(&hint) && shown.out.contains("which day?"), "{shown:?}");

    let long = submit("long");
    let child = start(&gateway, &["tasks", "watch", &long]);
    eventually(ms(5_000), "it is at work", || (agent.running() == 1).then_some(()));
    std::thread::sleep(ms(500));
    interrupt(&child);
    let left = end(child);
    assert_eq!(left.code, 130);
    assert!(left.err.contains(&format!("task {long} goes on: watertight tasks watch {long}")), "{left:?}");
    assert_eq!(agent.running(), 1);
    let canceled = watertight(&gateway, &["tasks", "cancel", &long]);
    assert!(canceled.code == 0 && canceled.out.contains("state      CANCELED"), "{canceled:?}");
    eventually(ms(5_000), "the agent has stopped", || (agent.running() == 0).then_some(()));
}

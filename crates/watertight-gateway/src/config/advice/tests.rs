//! Each finding from a file that has it, and none from files that have not.

use std::path::Path;

use super::*;

fn advice(source: &str) -> Vec<Finding> {
    let env = |name: &str| Some(format!("secret-{name}"));
    let config = Config::parse("w.toml", source, Path::new(""), None, &env).unwrap_or_else(|e| panic!("{e}\n{source}"));
    advise(&config)
}

/// What is said about one key of one agent.
#[track_caller]
fn of_agent(lines: &str, key: &str) -> (Level, String) {
    let found = advice(&format!("[agents.fx]\nurl = \"http://127.0.0.1:1/\"\n{lines}\n"));
    let at = format!("agents.fx.{key}");
    let one = found.iter().find(|finding| finding.at == at);
    let one = one.unwrap_or_else(|| panic!("nothing about {at} in {found:?}"));
    assert!(one.line.is_some(), "it stands in the file: {one:?}");
    (one.level, one.text.clone())
}

#[test]
fn settings_without_effect() {
    for (lines, key, part) in [
        ("max_waiting = 0\nmax_wait = \"1s\"", "max_wait", "nobody waits"),
        ("max_wait = \"0s\"\nmax_waiting = 4", "max_waiting", "nobody waits"),
        ("overflow = \"queue\"\nmax_wait = \"1s\"", "max_wait", "is queued"),
        ("serialize = \"agent\"\nmax_in_flight = 4", "max_in_flight", "one slot is used"),
        ("serialize = \"none\"\ncontext_grace = \"1s\"", "context_grace", "no context is held"),
        ("max_queued = 0\nqueue_ttl = \"1h\"", "queue_ttl", "nothing is queued"),
        ("attempts = 1\nretry_budget = \"10%\"", "retry_budget", "nothing is tried again"),
        ("attempts = 1\nbackoff_base = \"1s\"", "backoff_base", "nothing is tried again"),
        ("backoff_base = \"0s\"\nbackoff_max = \"1s\"", "backoff_max", "no pause"),
        ("max_budget = \"5m\"\nwait = \"5m\"", "wait", "no task lasts longer than max_budget, 5m"),
        ("max_budget = \"5m\"\nidle_timeout = \"6m\"", "idle_timeout", "always ends first"),
        ("cancel_wait = \"11s\"", "cancel_wait", "after cancel_grace, 10s"),
        ("depth = 0\nfanout = 2", "fanout", "nothing is delegated"),
        ("max_result_bytes = \"65MiB\"", "max_result_bytes", "max_task_bytes, 64MiB"),
        ("results_cooldown = \"1s\"", "results_cooldown", "is not told"),
        ("results = \"wake\"", "results", "no caller is this agent"),
        ("breaker.slow_call = \"1s\"", "breaker.slow_call", "slow_call_rate is 0%"),
        ("breaker.slow_call_rate = \"5%\"\nbreaker.slow_call = \"0s\"", "breaker.slow_call_rate", "no call is slow"),
        ("breaker.failure_rate = \"0%\"\nbreaker.min_calls = 9", "breaker.min_calls", "no share is judged"),
        ("breaker.caller_share = \"40%\"", "breaker.caller_share", "from 3 callers on, and 1 may call"),
        ("max_budget = \"5m\"\nbreaker.probe_timeout = \"5m\"", "breaker.probe_timeout", "cut by its budget"),
    ] {
        let (level, text) = of_agent(lines, key);
        assert!(level == Level::NoEffect && text.contains(part), "{key}: {level:?} {text}");
    }
}

#[test]
fn what_is_likely_not_meant() {
    let off = "breaker.consecutive_failures = 0\nbreaker.failure_rate = \"0%\"\nbreaker.window = \"9s\"";
    assert_eq!(of_agent(off, "breaker").0, Level::Warning);
    assert_eq!(of_agent(off, "breaker.window"), (Level::NoEffect, "the breaker is off".to_owned()));
    let (level, text) =
        of_agent("breaker.consecutive_failures = 0\nmax_in_flight = 4\nbreaker.min_calls = 20", "breaker.min_calls");
    assert!(
        level == Level::Warning && text.contains("4 slots with calls of 5m (budget) end at most 4 times in 30s"),
        "{text}"
    );
    assert_eq!(of_agent("budget = \"2s\"\nbreaker.min_wait = \"3s\"", "breaker.min_wait").0, Level::Warning);
    assert_eq!(of_agent("overflow = \"queue\"\nmax_queued = 0", "overflow").0, Level::Warning);
    assert_eq!(of_agent("budget = \"1m\"\nwait = \"2m\"", "wait").0, Level::Note);
    let (level, text) = of_agent("max_queued = 100000", "max_queued");
    assert!(level == Level::Warning && text.contains("16 slots and 100000 places in the queue"), "{text}");
}

#[test]
fn callers_agents_and_the_door() {
    let found = advice(
        "listen = \"0.0.0.0:7420\"\n[server]\nmax_connections = 90\nmax_buffered_bytes = \"1MiB\"\n\
         public_url = \"http://gw.example\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
         [agents.a]\nurl = \"http://there.example/\"\nheaders = { X-Key = \"env:K\" }\n\
         [agents.b]\nurl = \"http://there.example/\"\n[agents.c]\nurl = \"http://c.example/\"\nmax_waiting = 80\n\
         [callers.one]\ntoken = \"env:ONE\"\nagents = [\"a\", \"b\"]\n[callers.two]\ntoken = \"env:TWO\"\nagents = []\n",
    );
    let said = |level: Level, at: &str, part: &str| {
        let there = found.iter().any(|one| one.level == level && one.at == at && one.text.contains(part));
        assert!(there, "missing: {level:?} {at} {part}\nin: {found:#?}");
    };
    said(Level::Warning, "listen", "in the clear");
    said(Level::Warning, "agents.a.headers", "go to there.example in the clear");
    said(Level::Warning, "agents.b.url", "it has the URL of `a`");
    said(Level::Warning, "agents.c", "no caller may call it");
    said(Level::Warning, "agents.c", "16 slots and 80 places to wait, and max_connections is 90");
    said(Level::Warning, "callers.two.agents", "it may call no agent");
    said(Level::Warning, "server.max_connections", "192 slots and places to wait");
    said(Level::NoEffect, "server.max_buffered_bytes", "one request must fit");
    said(Level::NoEffect, "server.trusted_proxies", "public_url is set");
    said(Level::Note, "callers", "no caller is an operator");
    assert!(found.is_sorted_by_key(|finding| finding.level), "what matters most comes first");
}

#[test]
fn nothing_is_said_about_what_is_usual() {
    assert_eq!(advice("[agents.fx]\nurl = \"http://127.0.0.1:1/\"\n"), []);
    let usual = "[agents.fx]\nurl = \"https://fx.example/\"\nmax_in_flight = 8\nmax_waiting = 16\nmax_wait = \"500ms\"\n\
                 wait = \"30s\"\nheaders = { Authorization = \"Bearer env:FX\" }\n[callers.a]\ntoken = \"env:A\"\noperator = true\n";
    assert_eq!(advice(usual), []);
}

#[test]
fn who_may_call_whom() {
    let agents = "[agents.a]\nurl = \"http://127.0.0.1:1/\"\ntenant = \"acme\"\n[agents.b]\nurl = \"http://127.0.0.1:2/\"\n\
                  parent = \"a\"\ncan_delegate = false\n";
    let found = |rest: &str| advice(&(agents.to_owned() + rest));
    let said = |found: &[Finding], level: Level, at: &str, part: &str| {
        found.iter().any(|one| one.level == level && one.at == at && one.text.contains(part))
    };
    let flat = found("[callers.x]\ntoken = \"env:X\"\ntenant = \"other\"\nagents = [\"a\"]\n");
    assert!(said(&flat, Level::NoEffect, "agents.b.parent", "server.access is \"tenant\""), "{flat:#?}");
    assert!(said(&flat, Level::NoEffect, "agents.b.can_delegate", "no caller is this agent"), "{flat:#?}");
    assert!(said(&flat, Level::Warning, "callers.x.agents", "agent `a` is of tenant `acme`"), "{flat:#?}");
    assert!(said(&flat, Level::Warning, "agents.a", "no caller may call it"), "{flat:#?}");
    let tree =
        found("[server]\naccess = \"hierarchy\"\n[callers.b]\ntoken = \"env:X\"\ntenant = \"acme\"\nagent = \"b\"\n");
    assert!(!tree.iter().any(|one| one.at.ends_with("parent") || one.at.ends_with("can_delegate")), "{tree:#?}");
    assert!(said(&tree, Level::Warning, "agents.b", "no caller may call it"), "not itself: {tree:#?}");
}

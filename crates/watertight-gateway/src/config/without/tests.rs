//! The arithmetic, on figures that can be worked out by hand.

use std::path::Path;

use super::*;

fn gone(agent: &str, more: &str) -> Without {
    let source = format!(
        "[agents.fx]\nurl = \"http://a/\"\n{agent}\n[agents.hotels]\nurl = \"http://b/\"\n[agents.flights]\nurl = \"http://c/\"\n{more}"
    );
    let env = |name: &str| Some(name.to_owned());
    let config = Config::parse("w.toml", &source, Path::new(""), None, &env).unwrap_or_else(|e| panic!("{e}"));
    without(&config, "fx").unwrap()
}

fn most<'a>(of: &'a Without, what: &str) -> &'a Bound {
    of.holds.iter().find(|bound| bound.what == what).unwrap()
}

fn share<'a>(of: &'a Without, what: &str) -> &'a Share {
    of.shared.iter().find(|share| share.what == what).unwrap()
}

#[test]
fn what_it_holds() {
    let of = gone("max_in_flight = 8\nmax_waiting = 16\nmax_wait = \"500ms\"\nbudget = \"20s\"\nmax_queued = 100", "");
    assert_eq!(most(&of, "slots").most, "8 calls, each for 30s");
    assert_eq!(most(&of, "callers in line").most, "16 callers, each for 500ms");
    assert!(most(&of, "callers in line").because.contains("= 8s of waiting"), "{of:?}");
    assert_eq!(most(&of, "places in the queue").most, "100 tasks, each for 1h");
    assert_eq!(most(&of, "memory of tasks at work").most, "512MiB");
    assert_eq!(of.untouched, ["flights", "hotels"]);
    let alone = gone("serialize = \"agent\"\noverflow = \"queue\"", "");
    assert_eq!(most(&alone, "slots").most, "1 calls, each for 310s");
    assert_eq!(most(&alone, "callers in line").most, "0 callers, each for 500ms");
}

#[test]
fn when_the_breaker_opens() {
    // Five fail in a row, eight slots: the first round is enough.
    let of = gone("max_in_flight = 8\nbudget = \"20s\"", "");
    assert_eq!((of.refuses.tries, of.refuses.after), (Some(5), None));
    assert_eq!((of.silent.tries, of.silent.after), (Some(5), Some(Span::from_secs(20))));
    // Two slots: three rounds of 20 s, and 10 s of cancel_grace between two.
    let of = gone("max_in_flight = 2\nbudget = \"20s\"", "");
    assert_eq!(of.silent.after, Some(Span::from_secs(80)));
    // By the share alone: 20 calls on 2 slots never end within 30 s of each other.
    let of = gone("max_in_flight = 2\nbudget = \"20s\"\nbreaker.consecutive_failures = 0", "");
    assert_eq!((of.refuses.tries, of.silent.tries, of.silent.after), (Some(20), None, None));
    let of = gone("max_in_flight = 20\nbudget = \"20s\"\nbreaker.consecutive_failures = 0", "");
    assert_eq!((of.silent.tries, of.silent.after), (Some(20), Some(Span::from_secs(20))));
    // What is cut too early does not count.
    let of = gone("budget = \"2s\"\nbreaker.min_wait = \"3s\"", "");
    assert_eq!(of.silent.tries, None);
    let off = gone("breaker.consecutive_failures = 0\nbreaker.failure_rate = \"0%\"", "");
    assert_eq!((off.refuses.tries, off.silent.tries), (None, None));
    assert!(!off.told.iter().any(|told| told.reason == "breaker_open"));
}

#[test]
fn what_it_can_take_of_what_is_shared() {
    let of = gone("max_in_flight = 8\nmax_queued = 100\nmax_waiting = 16", "[server]\nmax_request_bytes = \"1MiB\"\n");
    let delegations = share(&of, "server.max_delegations");
    assert_eq!((delegations.most.as_str(), delegations.all.as_str(), delegations.exhausts), ("108", "100000", false));
    assert_eq!(share(&of, "server.max_connections").most, "24");
    let messages = share(&of, "messages not yet accepted");
    assert_eq!((messages.most.as_str(), messages.all.as_str(), messages.exhausts), ("16MiB", "256MiB", false));
    let messages = share(&gone("", ""), "messages not yet accepted").clone();
    assert_eq!(
        (messages.most.as_str(), messages.exhausts),
        ("128MiB", false),
        "32 × 16MiB, and half of all at the most"
    );
    let all = gone(
        "max_in_flight = 8\nmax_queued = 100\noverflow = \"queue\"",
        "[server]\nmax_delegations = 100\nmax_connections = 50\n",
    );
    assert!(
        share(&all, "server.max_delegations").exhausts && share(&all, "server.max_connections").exhausts,
        "{all:?}"
    );
    assert_eq!(share(&all, "server.max_delegations").most, "100");
}

#[test]
fn who_is_hit() {
    let of = gone(
        "",
        "[callers.a]\ntoken = \"env:A\"\nagents = [\"fx\"]\n[callers.b]\ntoken = \"env:B\"\nagents = [\"hotels\"]\n[callers.c]\ntoken = \"env:C\"\n",
    );
    assert_eq!(of.callers, ["a", "c"]);
}

#[test]
fn an_agent_that_is_not_there() {
    let config = Config::parse("w.toml", "", Path::new(""), None, &|_| None).unwrap();
    assert_eq!(without(&config, "fx"), None);
}

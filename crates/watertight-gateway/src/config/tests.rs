//! Every error as a user sees it, and the defaults as they are promised.

use super::*;
use crate::agents::Mode;

const GOOD: &str = r#"
listen = "127.0.0.1:0"

[store]
path = "data/store.db"

[callers.ops]
token = "env:OPS"
operator = true

[callers.alice]
token = "env:ALICE"
tenant = "acme"
agents = ["hotels"]

[agents.hotels]
url = "http://127.0.0.1:9001/"
max_in_flight = 8
max_wait = "0.2s"
wait = "3s"
overflow = "queue"
serialize = "none"
backoff_base = "1m"
retry_budget = "20%"
headers = { "X-Api-Key" = "env:OPS", "authorization" = "Bearer env:ALICE" }

[agents.hotels.breaker]
failure_rate = "12.5%"
caller_share = "25%"
ejection_base = "2m"

[agents.fx]
url = "https://fx.example/a2a"
"#;

fn env(name: &str) -> Option<String> {
    match name {
        "OPS" => Some("ops-token".to_owned()),
        "ALICE" => Some("alice-token".to_owned()),
        _ => None,
    }
}

fn parse(source: &str) -> Result<Config, Invalid> {
    Config::parse("watertight.toml", source, Path::new("/etc/watertight"), None, &env)
}

#[track_caller]
fn wrong(source: &str) -> String {
    parse(source).expect_err("the configuration is wrong").to_string()
}

#[test]
fn a_whole_file() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.store, Path::new("/etc/watertight/data/store.db"));
    assert_eq!(config.key.path, Path::new("/etc/watertight/watertight.key"));
    let hotels = &config.agents[&AgentId::new("hotels")];
    assert_eq!(hotels.settings.breaker.caller_share_bp, 2_500);
    assert_eq!((hotels.settings.backoff.base, hotels.settings.backoff.max), (Span::from_secs(60), Span::from_secs(60)));
    assert_eq!(hotels.settings.retry_budget.ratio_bp, 2_000);
    assert_eq!(hotels.settings.bulkhead.max_in_flight, 8);
    assert_eq!(hotels.settings.bulkhead.max_waiting, 32);
    assert_eq!(hotels.settings.bulkhead.max_wait, Span::from_millis(200));
    assert_eq!(hotels.settings.breaker.failure_rate_bp, 1_250);
    assert_eq!(hotels.settings.breaker.ejection_max, Span::from_secs(120));
    assert_eq!(hotels.wait, Some(Span::from_secs(3)));
    assert!(hotels.settings.queue_overflow);
    let headers: Vec<(&str, &str)> =
        hotels.wire.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(headers, [("x-api-key", "ops-token"), ("authorization", "Bearer alice-token")]);
    let fx = &config.agents[&AgentId::new("fx")];
    assert_eq!(fx.settings.bulkhead.max_in_flight, 16);
    assert_eq!(fx.settings.bulkhead.max_wait, Span::from_millis(500));
    assert_eq!((fx.wire.connect_timeout, fx.wire.idle_timeout), (Duration::from_secs(2), Duration::from_secs(60)));
    assert_eq!((fx.wait, fx.wire.mode), (None, Mode::Auto));
    assert!(!format!("{hotels:?}").contains("ops-token"), "a secret is printed");
    let callers: Vec<(&str, &str, bool)> =
        config.callers.iter().map(|c| (c.name.as_str(), c.tenant.as_str(), c.operator)).collect();
    assert_eq!(callers, [("alice", "acme", false), ("ops", "ops", true)]);
    assert_eq!(config.specs().len(), 2);
}

#[test]
fn an_empty_file_listens_on_loopback() {
    let config = parse("").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7420");
    assert_eq!(config.server.max_request_bytes, 16 << 20);
    assert!(config.agents.is_empty() && config.callers.is_empty());
}

#[test]
fn an_unknown_key_is_pointed_at() {
    let text = wrong("[agents.a]\nurl = \"http://localhost/\"\nmax_inflight = 3\n");
    assert!(text.contains("unknown field `max_inflight`: did you mean `max_in_flight`?"), "{text}");
    assert!(text.contains("watertight.toml:3:1"), "{text}");
}

#[test]
fn a_wrong_shape_is_told_in_the_file_s_words() {
    let agent = |line: &str| wrong(&format!("[agents.a]\nurl = \"http://localhost/\"\n{line}\n"));
    for (text, part) in [
        (
            agent("max_in_flight = \"8\""),
            "a whole number belongs here, without quotes and sign, such as 8\n --> watertight.toml:3:17",
        ),
        (agent("max_in_flight = -1"), "a whole number belongs here"),
        (
            agent("max_wait = 500"),
            "times and sizes have a unit, such as \"500ms\" or \"16MiB\"\n --> watertight.toml:3:12",
        ),
        (agent("idempotent = \"yes\""), "true or false belongs here, without quotes"),
        (agent("[agents.a]"), "this name stands here for the second time\n --> watertight.toml:3:9"),
        (wrong("[agents.a]\nmax_in_flight = 3\n"), "`url` is missing\n --> watertight.toml:1:9"),
        (wrong("[[agents]]\nname = \"a\"\n"), "such as [agents.hotels]"),
        (wrong("[agents]\na = \"http://localhost/\"\n"), "a table belongs here"),
        (wrong("[callers.a]\ntoken = \"env:OPS\"\nagents = \"a\"\n"), "a list belongs here"),
    ] {
        assert!(text.contains(part), "missing: {part}\nin: {text}");
    }
}

#[test]
fn syntax_is_pointed_at() {
    let text = wrong("listen = \n");
    assert!(text.contains("watertight.toml:1:"), "{text}");
}

#[test]
fn a_misspelled_key_hides_no_other_mistake() {
    let text = wrong(
        "listn = \"x\"\nlisten = \"0.0.0.0:99999\"\n[callers.c]\nagents = [\"b\"]\n[agents.a]\nurl = 1\n\
         max_in_fligt = 3\nbudget = \"5\"\n[agents.b]\nmax_waiting = -1\n[serv]\nx = 1\n",
    );
    let parts = [
        (1, "did you mean `listen`?"),
        (2, "is no address"),
        (3, "`token` is missing"),
        (6, "a text in quotes belongs here"),
        (7, "did you mean `max_in_flight`?"),
        (8, "`5` is no length of time"),
        (9, "`url` is missing"),
        (10, "a whole number belongs here"),
        (11, "unknown field `serv`"),
    ];
    for (line, part) in parts {
        assert!(text.contains(part) && text.contains(&format!("watertight.toml:{line}:")), "{line} {part}: {text}");
    }
    assert_eq!(text.matches("error: ").count(), parts.len(), "{text}");
}

#[test]
fn every_mistake_is_told_at_once() {
    let text = wrong(
        r#"listen = "0.0.0.0:80"
[agents.Hotels]
url = "ftp://x/"
max_wait = "500"
max_in_flight = 0
mode = "push"
budget = "100ms"
reserve = "1s"
[agents.fx]
url = "http://user:pw@fx/"
max_result_bytes = "1 TB"
headers = { "host" = "env:OPS", "x-key" = "sesame" }
breaker.failure_rate = "200%"
[agents.dial]
url = "127.0.0.1:9001"
"#,
    );
    let golden = "error: an agent's name is 1 to 64 of a-z, 0-9, `-`, `_` and `.`
 --> watertight.toml:2:9
  |
2 | [agents.Hotels]
  |         ^^^^^^";
    assert!(text.contains(golden), "{text}");
    for part in [
        "`ftp://x/` is no http:// or https:// URL\n --> watertight.toml:3:7",
        "`127.0.0.1:9001` is no http:// or https:// URL: did you mean `http://127.0.0.1:9001`?",
        "`500` is no length of time: write a number and a unit, such as 500ms, 30s, 5m or 24h\n --> watertight.toml:4:12",
        "0 is too few: at least 1\n --> watertight.toml:5:17",
        "`push` is not one of \"auto\", \"stream\", \"poll\", \"blocking\"\n --> watertight.toml:6:8",
        "budget, 0.1s, is not longer than reserve, 1s: no time would be left\n --> watertight.toml:7:10",
        "url carries a user name or a password\n  --> watertight.toml:10:7",
        "`1 TB` is no size",
        "`host` is no header that can be set\n  --> watertight.toml:12:13",
        "a secret is written here\n  --> watertight.toml:12:43",
        "write env:NAME or file:PATH; secrets are never kept in the configuration",
        "`200%` is no share",
        "0.0.0.0:80 can be reached from other machines, and there are no callers and no tokens\n --> watertight.toml:1:10",
        "make one with watertight token new, or add a [callers.NAME] table, or listen on 127.0.0.1",
    ] {
        assert!(text.contains(part), "missing: {part}\nin: {text}");
    }
    assert!(!text.contains("sesame") && !text.contains("user:pw"), "a secret is shown: {text}");
}

#[test]
fn a_missing_variable_is_named() {
    let text = wrong("[callers.a]\ntoken = \"env:NOBODY_SET_THIS\"\n");
    assert!(text.contains("the environment variable NOBODY_SET_THIS is not set"), "{text}");
    assert!(text.contains("watertight.toml:2:9"), "{text}");
}

#[test]
fn callers_have_tokens_of_their_own_and_agents_that_exist() {
    let text = wrong("[callers.a]\ntoken = \"env:OPS\"\nagents = [\"nobody\"]\n[callers.b]\ntoken = \"env:OPS\"\n");
    assert!(
        text.contains("no agent `nobody` is configured") && text.contains("this is the token of `a` too"),
        "{text}"
    );
}

#[test]
fn the_command_line_outranks_the_file_and_is_judged_too() {
    let given: SocketAddr = "0.0.0.0:1".parse().unwrap();
    let load = |source| Config::parse("w.toml", source, Path::new(""), Some(given), &env);
    assert!(load("").unwrap_err().to_string().contains("can be reached from other machines"));
    assert_eq!(load("[callers.a]\ntoken = \"env:OPS\"\n").unwrap().listen, given);
}

#[test]
fn a_file_that_is_not_there() {
    let text = Config::load(Path::new("/nowhere/w.toml"), None, &env).unwrap_err().to_string();
    assert!(text.contains("/nowhere/w.toml") && text.contains("watertight init"), "{text}");
}

#[test]
fn an_agent_is_not_told_of_its_results_without_a_pause() {
    let text = wrong("[agents.a]\nurl = \"http://127.0.0.1:1/\"\nresults = \"wake\"\nresults_cooldown = \"0s\"\n");
    assert!(text.contains("is shorter than 0.1s: the agent would be told without a pause"), "{text}");
}

#[test]
fn a_backoff_that_ends_before_it_begins_is_wrong() {
    let text = wrong("[agents.a]\nurl = \"http://127.0.0.1:1/\"\nbackoff_base = \"5s\"\nbackoff_max = \"1s\"\n");
    assert!(text.contains("backoff_max, 1s, is shorter than backoff_base, 5s"), "{text}");
}

#[test]
fn who_stands_where_is_judged_over_the_whole_file() {
    let agents = |lines: &[(&str, &str)]| {
        let table =
            |(name, keys): &(&str, &str)| format!("[agents.{name}]\nurl = \"http://{name}.example/\"\n{keys}\n");
        lines.iter().map(table).collect::<String>()
    };
    let told = |lines: &[(&str, &str)], rest: &str| wrong(&(agents(lines) + rest));
    let alone = told(&[("a", "parent = \"b\"")], "");
    assert!(alone.contains("agents.a.parent is `b`, and no agent `b`") && alone.contains(":3:10"), "{alone}");
    let ring = told(&[("a", "parent = \"b\""), ("b", "parent = \"c\""), ("c", "parent = \"a\"")], "");
    assert!(ring.contains("a → b → c → a: agents.a.parent, agents.b.parent, agents.c.parent"), "{ring}");
    assert_eq!(ring.matches("error").count(), 1, "{ring}");
    assert!(told(&[("a", "parent = \"a\"")], "").contains("a → a: agents.a.parent"));
    let tenants = told(&[("a", "tenant = \"acme\""), ("b", "tenant = \"other\"\nparent = \"a\"")], "");
    assert!(tenants.contains("agents.b.tenant is `other`, agents.a.tenant is `acme`"), "{tenants}");
    let caller = "[callers.ops]\ntoken = \"env:OPS\"\nagent = \"a\"\n";
    let other = told(&[("a", "tenant = \"acme\"")], caller);
    assert!(
        other.contains("caller `ops` is of tenant `ops`") && other.contains("agents.a.tenant is `acme`"),
        "{other}"
    );
    assert!(parse(&(agents(&[("a", "tenant = \"acme\"")]) + caller + "tenant = \"acme\"")).is_ok());
    let levels: Vec<(String, String)> = (0..=33)
        .map(|n| (format!("l{n}"), if n == 0 { String::new() } else { format!("parent = \"l{}\"", n - 1) }))
        .collect();
    let levels: Vec<(&str, &str)> = levels.iter().map(|(name, keys)| (name.as_str(), keys.as_str())).collect();
    assert!(told(&levels, "").contains("agents.l33.parent puts it more than 32 levels below its root"));
    assert!(parse(&agents(&levels[..33])).is_ok());
    assert!(told(&[("a", "tenant = \"A b\"")], "").contains("a tenant's name is 1 to 64"));
    let config = parse(
        &(agents(&[("a", "parent = \"b\"\ncan_delegate = false"), ("b", "")]) + "[server]\naccess = \"hierarchy\""),
    )
    .unwrap();
    let (rules, a) = (config.rules(), AgentId::new("a"));
    assert_eq!((rules.rule(), rules.place(&a).map(|place| place.can_delegate)), (Rule::Hierarchy, Some(false)));
}

//! The table of keys against the parser, in both directions, and what is made from it.

use std::collections::BTreeSet;
use std::path::Path;

use watertight_engine::ids::AgentId;

use super::super::{Invalid, MARK, sample, units, written};
use super::*;

const LEAST: &str = "[agents.a]\nurl = \"http://localhost/\"\n[callers.a]\ntoken = \"env:A\"\n\
    [enrolment.crew]\nsecret = \"env:B\"\n";

fn parse(source: &str) -> Result<Config, Invalid> {
    Config::parse("w.toml", source, Path::new("/here"), None, &|name| Some(format!("secret of {name}")))
}

/// A file that says one key, in a place where that is valid.
fn saying(key: &Key, value: &str) -> String {
    let line = format!("{} = {value}", key.name());
    let needed = |own: &str, rest: &str| if key.name() == own { String::new() } else { rest.to_owned() };
    match key.section() {
        "" => format!("{line}\n"),
        // It has to be there, and the agent itself comes first.
        "agents.*" if key.name() == "parent" => {
            let above = format!("[agents.{}]\nurl = \"http://above/\"\n", value.trim_matches('"'));
            format!("[agents.a]\nurl = \"http://localhost/\"\n{line}\n{above}")
        }
        "agents.*" => format!("[agents.hotels]\n{}{line}\n", needed("url", "url = \"http://localhost/\"\n")),
        "callers.*" => format!(
            "[agents.hotels]\nurl = \"http://localhost/\"\n[callers.a]\n{}{line}\n",
            needed("token", "token = \"env:A\"\n")
        ),
        "enrolment.*" if key.name() == "parent" => {
            let above = format!("[agents.{}]\nurl = \"http://above/\"\n", value.trim_matches('"'));
            format!("{above}[enrolment.crew]\nsecret = \"env:A\"\n{line}\n")
        }
        "enrolment.*" => format!("[enrolment.crew]\n{}{line}\n", needed("secret", "secret = \"env:A\"\n")),
        section => {
            let agent =
                if section.starts_with("agents") { "[agents.hotels]\nurl = \"http://localhost/\"\n" } else { "" };
            format!("{agent}[{}]\n{line}\n", section.replace('*', "hotels"))
        }
    }
}

fn value(key: &Key, config: &Config) -> Value {
    let agent = config.agents.first_key_value().map(|(_, agent)| agent);
    let found = match key.read {
        Read::Gateway(read) => Some(read(config)),
        Read::Agent(read) => agent.map(read),
        Read::Caller(read) => config.callers.first().map(read),
        Read::Enrolment(read) => config.enrolments.first().map(read),
    };
    found.unwrap_or_else(|| panic!("nobody has {}", key.path))
}

#[test]
fn the_parser_takes_every_key_of_the_table() {
    for key in all() {
        let source = saying(key, key.shown());
        let config = parse(&source).unwrap_or_else(|e| panic!("{}: {e}\n{source}", key.path));
        assert_ne!(value(key, &config), Value::None, "{} is written and not read back", key.path);
    }
}

#[test]
fn the_table_has_every_key_of_the_parser() {
    for section in SECTIONS {
        let source = match section.path {
            "" => "zzz = 1\n".to_owned(),
            path => format!("[{}]\nzzz = 1\n", path.replace('*', "a")),
        };
        let said = toml::from_str::<written::File>(&source).unwrap_err().message().to_owned();
        let (_, known) = said.split_once("`, expected ").unwrap_or_else(|| panic!("{said}"));
        let known: BTreeSet<&str> = known.split('`').skip(1).step_by(2).collect();
        let keys = of(section.path).map(Key::name);
        // Tables within this one.
        let within = SECTIONS.iter().filter_map(|other| match section.path {
            "" => other.path.split('.').next().filter(|name| !name.is_empty()),
            path => other.path.strip_prefix(path)?.strip_prefix('.').filter(|rest| *rest != "*"),
        });
        assert_eq!(keys.chain(within).collect::<BTreeSet<_>>(), known, "[{}]", section.path);
    }
    assert_eq!(all().count(), all().map(|key| key.path).collect::<BTreeSet<_>>().len(), "a key stands there twice");
    assert_eq!(all().count(), SECTIONS.iter().map(|section| of(section.path).count()).sum::<usize>());
}

#[test]
fn the_defaults_are_what_is_told() {
    let without = parse(LEAST).unwrap();
    for key in all().filter(|key| !key.required) {
        let held = value(key, &without);
        match key.default {
            // The directory of the file goes before it.
            Some(default) if key.kind == Kind::Path => {
                assert_eq!(held.shown(), format!("/here/{}", default.trim_matches('"')), "{}", key.path);
            }
            Some(default) => assert_eq!(held.shown(), default.trim_matches('"'), "{}", key.path),
            None => assert!(!key.otherwise.is_empty(), "{}: what holds without it?", key.path),
        }
        if let Some(default) = key.default {
            let with = parse(&saying(key, default)).unwrap();
            assert_eq!(value(key, &with), held, "{}: writing the default changes it", key.path);
        }
    }
}

#[test]
fn what_is_written_is_what_is_in_force() {
    for key in all() {
        let (written, shown) = match key.kind {
            Kind::Duration => ("\"7s\"", "7s"),
            Kind::Size => ("\"48KiB\"", "48KiB"),
            Kind::Share => ("\"37.5%\"", "37.5%"),
            Kind::Count => ("7", "7"),
            Kind::Flag => ("true", "true"),
            Kind::Word(words) => {
                for word in words {
                    let config = parse(&saying(key, &format!("\"{word}\""))).unwrap();
                    assert_eq!(value(key, &config).shown(), *word, "{}", key.path);
                }
                assert!(parse(&saying(key, "\"zzz\"")).is_err(), "{}", key.path);
                continue;
            }
            Kind::Url => ("\"https://elsewhere.example/x\"", "https://elsewhere.example/x"),
            Kind::Address => ("\"127.0.0.1:99\"", "127.0.0.1:99"),
            Kind::Path => ("\"/elsewhere\"", "/elsewhere"),
            Kind::Name => ("\"acme\"", "acme"),
            Kind::Names => ("[\"hotels\"]", "[hotels]"),
            Kind::Command => ("[\"/bin/wake\", \"it\"]", "[/bin/wake, it]"),
            Kind::Nets => ("[\"10.0.0.0/8\", \"::1\"]", "[10.0.0.0/8, ::1]"),
            Kind::Secret => ("\"env:X\"", "(secret)"),
            Kind::Headers => ("{ X-Key = \"env:X\" }", "[x-key]"),
        };
        // Some are bounded by others.
        let source = match key.path {
            "agents.*.reserve" => saying(key, written).replace("reserve =", "budget = \"1m\"\nreserve ="),
            "agents.*.max_budget" => saying(key, written).replace("max_budget =", "budget = \"5s\"\nmax_budget ="),
            "callers.*.agent" => saying(key, written) + "\n[agents.acme]\nurl = \"http://127.0.0.1:1\"\n",
            "agents.*.queue_ttl_max" => {
                saying(key, written).replace("queue_ttl_max =", "queue_ttl = \"5s\"\nqueue_ttl_max =")
            }
            "store.retention" => saying(key, written).replace("retention =", "dedupe_window = \"1s\"\nretention ="),
            _ => saying(key, written),
        };
        let config = parse(&source).unwrap_or_else(|e| panic!("{}: {e}", key.path));
        assert_eq!(value(key, &config).shown(), shown, "{}", key.path);
    }
}

#[test]
fn the_bounds_are_kept() {
    for key in all() {
        let below = match (key.least, key.kind) {
            ("", _) => continue,
            (">0", Kind::Duration) => "\"0s\"".to_owned(),
            (">0", Kind::Size) => "\"0B\"".to_owned(),
            (">0", Kind::Share) => "\"0%\"".to_owned(),
            (least, Kind::Size) => {
                let least = units::size(least.trim_matches('"')).unwrap();
                assert!(parse(&saying(key, &format!("\"{least}B\""))).is_ok(), "{}", key.path);
                format!("\"{}B\"", least - 1)
            }
            (least, Kind::Count) => {
                assert!(parse(&saying(key, least)).is_ok(), "{}", key.path);
                (least.parse::<u32>().unwrap() - 1).to_string()
            }
            (least, _) => panic!("{}: what bound is {least}?", key.path),
        };
        let said = parse(&saying(key, &below)).expect_err(key.path).to_string();
        assert!(said.contains(key.name()) || said.contains("zero") || said.contains("few"), "{}: {said}", key.path);
    }
}

#[test]
fn the_sample_is_valid_as_it_is_and_with_everything_taken_in() {
    let as_it_is = parse(&sample(&[])).unwrap();
    assert!(as_it_is.agents.is_empty() && as_it_is.callers.is_empty());
    let own =
        [("my-agent".to_owned(), "http://127.0.0.1:1/a\"b".to_owned()), ("a.b".to_owned(), "https://x/".to_owned())];
    let own = &own[1..];
    let with = parse(&sample(own)).unwrap();
    assert_eq!(with.agents[&AgentId::new("a.b")].wire.url, "https://x/");
    for agents in [&[], own] {
        let text = sample(agents);
        let taken_in: Vec<&str> = text.lines().map(|line| line.strip_prefix(MARK).unwrap_or(line)).collect();
        let config = parse(&taken_in.join("\n")).unwrap();
        assert_eq!((config.agents.len(), config.callers.len()), (1 + agents.len(), 1));
        for key in all() {
            assert!(text.contains(&format!("{} = ", key.name())), "{} is missing", key.path);
        }
        for line in text.lines() {
            assert!(line.chars().count() <= 120, "too long: {line}");
        }
    }
}

#[test]
fn the_schema_knows_every_key() {
    let schema: serde_json::Value = serde_json::from_str(&super::super::schema()).unwrap();
    for key in all() {
        let mut at = &schema;
        for part in key.path.split('.') {
            at = if part == "*" { &at["additionalProperties"] } else { &at["properties"][part] };
        }
        assert!(at["description"].as_str().is_some_and(|text| text.starts_with(key.doc)), "{}: {at}", key.path);
        let default = key.default.map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
        assert_eq!(at.get("default"), default.as_ref(), "{}", key.path);
    }
}

#[test]
fn the_files_in_docs_are_made_from_the_table() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, made) in [("config.md", super::super::reference()), ("watertight.schema.json", super::super::schema())] {
        let path = docs.join(name);
        if update() {
            std::fs::write(&path, &made).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == made,
            "docs/{name} is not what the table of keys makes: run `make docs`, and look at the difference"
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a test that is told to write what it compares with")]
fn update() -> bool {
    std::env::var("UPDATE").is_ok_and(|set| set == "1")
}

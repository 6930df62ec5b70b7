//! Who stands for a principal, before a delivery.

use std::path::Path;

use super::*;
use crate::tokens::{Stored, edit};

const CALLERS: &str = "[callers.alice]\ntoken = \"env:ALICE\"\ntenant = \"t\"\nagents = [\"fx\"]\n";

fn config(callers: &str) -> Config {
    let source = format!(
        "[agents.fx]\nurl = \"http://127.0.0.1:1/\"\n[agents.hotels]\nurl = \"http://127.0.0.1:2/\"\n{callers}"
    );
    Config::parse("w.toml", &source, Path::new("/nowhere"), None, &|name| Some(format!("secret of {name}"))).unwrap()
}

fn rules(callers: &str, tokens: Arc<Tokens>) -> Rules {
    let config = config(callers);
    let places = config.agents.iter().map(|(name, agent)| (name.clone(), agent.place.clone())).collect();
    Grants::of(&config, tokens).over(places)
}

fn verdict(rules: &Rules, tenant: &str, caller: &str, agent: &str) -> Verdict {
    rules.verdict(&Principal { tenant: tenant.into(), caller: caller.into() }, &AgentId::new(agent))
}

fn nobody() -> Verdict {
    Verdict::Refuse(Refused::NobodyVouches)
}

fn unknown() -> Verdict {
    Verdict::Refuse(Refused::Denied { why: Denied::Unknown, from: None })
}

fn token(name: &str, agents: Option<&str>, scope: Scope, expires: Option<&str>) -> Stored {
    Stored {
        id: name.into(),
        name: name.into(),
        tenant: "t".into(),
        scopes: vec![scope],
        agents: agents.map(|agent| vec![agent.to_owned()]),
        agent: None,
        created: "2020-01-01T00:00:00.000Z".into(),
        expires: expires.map(str::to_owned),
        enrolment: None,
        hash: format!("{:064x}", name.len() + agents.map_or(100, str::len)),
    }
}

#[test]
fn a_configured_caller_may_what_it_may_now() {
    let rules = rules(CALLERS, Tokens::none());
    assert_eq!(verdict(&rules, "t", "alice", "fx"), Verdict::Send);
    assert_eq!(verdict(&rules, "t", "alice", "hotels"), unknown());
    assert_eq!(verdict(&rules, "t", "alice", "gone"), unknown());
    for (tenant, caller) in [("other", "alice"), ("t", "bob"), ("local", "local")] {
        assert_eq!(verdict(&rules, tenant, caller, "fx"), nobody(), "{tenant} {caller}");
    }
    assert_eq!(verdict(&rules, "t", reminder::CALLER, "fx"), Verdict::Send, "the gateway itself");
    assert!(crate::config::name(reminder::CALLER).is_err(), "nobody else can be called so");
}

#[test]
fn an_open_gateway_is_for_this_machine() {
    let rules = rules("", Tokens::none());
    assert_eq!(verdict(&rules, "local", "local", "fx"), Verdict::Send);
    assert_eq!(verdict(&rules, "t", "alice", "fx"), nobody(), "whose caller was taken out");
}

#[tokio::test]
async fn any_token_that_is_listed_stands_for_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.json");
    edit(&path, |all| {
        all.push(token("bob", Some("fx"), Scope::Caller, None));
        all.push(token("bob", Some("hotels"), Scope::Caller, None));
        all.push(token("carol", None, Scope::Caller, Some("2020-02-01T00:00:00.000Z")));
        all.push(token("operator", None, Scope::Operator, None));
        all.push(token("alice", Some("hotels"), Scope::Caller, None));
        Ok(())
    })
    .unwrap();
    let rules = rules(CALLERS, Tokens::follow(path));
    for agent in ["fx", "hotels"] {
        assert_eq!(verdict(&rules, "t", "bob", agent), Verdict::Send, "one of two");
        assert_eq!(verdict(&rules, "t", "carol", agent), Verdict::Send, "an expired one");
        assert_eq!(verdict(&rules, "t", "alice", agent), Verdict::Send, "a caller and a token");
        assert_eq!(verdict(&rules, "t", "operator", agent), nobody(), "one that calls nobody");
    }
    assert_eq!(verdict(&rules, "other", "bob", "fx"), nobody());
}

#[test]
fn where_somebody_may_register_this_machine_is_nobody() {
    let rules = rules("[enrolment.crew]\nsecret = \"env:S\"\n", Tokens::none());
    assert_eq!(verdict(&rules, "local", "local", "fx"), nobody());
}

#[tokio::test]
async fn the_token_of_an_agent_that_registered_stands_as_long_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.json");
    let enrolled =
        Stored { enrolment: Some("crew".into()), agent: Some("fx".into()), ..token("fx", None, Scope::Caller, None) };
    edit(&path, |all| {
        all.push(enrolled);
        Ok(())
    })
    .unwrap();
    let Grants { vouched: Vouched::Known(known), rule } = Grants::of(&config(""), Tokens::follow(path)) else {
        panic!("a door")
    };
    let registered = |token: &str| {
        let of = BTreeMap::from([(AgentId::new("fx"), token.to_owned())]);
        let known = Known { registered: of, ..Known::new(BTreeMap::new(), known.tokens.clone()) };
        let places = ["fx", "hotels"].map(|name| (AgentId::new(name), Place::default()));
        Grants { rule, vouched: Vouched::Known(Arc::new(known)) }.over(places.into())
    };
    assert_eq!(verdict(&registered("fx"), "t", "fx", "hotels"), Verdict::Send);
    assert_eq!(verdict(&registered("another"), "t", "fx", "hotels"), nobody(), "it came again, with another token");
    let gone = Grants { rule, vouched: Vouched::Known(known) }
        .over(BTreeMap::from([(AgentId::new("hotels"), Place::default())]));
    assert_eq!(verdict(&gone, "t", "fx", "hotels"), nobody(), "it has left");
}

#[tokio::test]
async fn where_tokens_cannot_be_read_nobody_is_taken_for_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.json");
    std::fs::write(&path, "no token file").unwrap();
    for callers in [CALLERS, ""] {
        let rules = rules(callers, Tokens::follow(path.clone()));
        for (tenant, caller) in [("t", "bob"), ("local", "local")] {
            assert_eq!(verdict(&rules, tenant, caller, "fx"), Verdict::Wait, "{tenant} {caller}");
        }
        let known = if callers.is_empty() { Verdict::Wait } else { Verdict::Send };
        assert_eq!(verdict(&rules, "t", "alice", "fx"), known);
        assert_eq!(verdict(&rules, "t", "alice", "hotels"), Verdict::Wait, "by a token it might");
    }
}

#[test]
fn whoever_is_refused_is_told_what_why_and_what_instead() {
    let from = Some(AgentId::new("left"));
    let denied = [Denied::Unknown, Denied::MayNotDelegate, Denied::Itself, Denied::Unrelated];
    let all = denied.map(|why| Refused::Denied { why, from: from.clone() });
    for refused in all.into_iter().chain([Refused::NobodyVouches]) {
        let text = refused.told(&AgentId::new("fx"));
        assert!(text.contains("rying again cannot help") && text.matches(". ").count() >= 2, "{text}");
        assert!(!text.contains("  ") && !text.ends_with('.'), "{text}");
    }
}

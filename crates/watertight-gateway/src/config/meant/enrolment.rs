//! Who may register agents, and what those that did mean as configuration.
//!
//! What an agent says of itself is judged by the rules of the file, with more of them: it may choose what concerns itself and
//! hurts nobody else. A name that the file has too is the file's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use http::Uri;
use toml::Spanned;
use watertight_engine::ids::AgentId;
use watertight_policy::access::{Fault, MAX_LEVELS, Place};

use super::super::report::Problem;
use super::super::written::{self, Text};
use super::super::{Agent, Caller, Config, Enrolment, Net, shape};
use super::Judge;
use crate::agents::{AgentConfig, Guard};
use crate::registry::{self, Record, Records, Wish};

/// Agents of one enrolment, where nothing is said.
const MAX_AGENTS: u32 = 100;

/// What would be taken for something else: this machine's users, and words of commands.
const RESERVED: [&str; 8] = ["local", "watertight", "list", "register", "remove", "drain", "resume", "me"];

/// Those that registered themselves, as they were found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) records: Records,
    /// The file has these names too.
    pub(super) overruled: BTreeSet<AgentId>,
}

/// What is wrong with what an agent says of itself: the member, and what.
pub(crate) type Flaw = (String, String);

impl Judge<'_> {
    pub(super) fn enrolments(
        &mut self,
        written: BTreeMap<Text, written::Enrolment>,
        callers: &[Caller],
        agents: &BTreeMap<AgentId, Agent>,
    ) -> Vec<Enrolment> {
        let mut all: Vec<Enrolment> = Vec::new();
        for (name, enrolment) in written {
            self.name(&name, "an enrolment's name");
            if let Some(tenant) = &enrolment.tenant {
                self.name(tenant, "a tenant's name");
            }
            let Some(place) = enrolment.secret else {
                self.missing::<()>(&name, "secret");
                continue;
            };
            let Some(secret) = self.secret(&place) else { continue };
            let other = all.iter().find(|other| other.secret == secret).map(|other| ("enrolment", &other.name));
            let caller = callers.iter().find(|caller| caller.token == secret).map(|caller| ("caller", &caller.name));
            if let Some((what, other)) = other.or(caller) {
                let message = format!("this is the secret of {what} `{other}` too, and a secret must tell who comes");
                self.say(&place, message);
            }
            let tenant = enrolment.tenant.map_or_else(|| name.as_ref().clone(), Spanned::into_inner);
            let parent = enrolment.parent.map(|parent| {
                let above = AgentId::new(parent.as_ref());
                match agents.get(&above).map(|agent| &agent.place.tenant) {
                    None => self.say(&parent, format!("no agent `{above}` is configured")),
                    Some(Some(its)) if *its != tenant => {
                        let message = format!("`{above}` is of tenant `{its}`, and these agents are of `{tenant}`");
                        self.say(&parent, message);
                    }
                    Some(_) => {}
                }
                above
            });
            all.push(Enrolment {
                tenant,
                parent,
                name: name.into_inner(),
                secret,
                max_agents: self.count(enrolment.max_agents.as_ref(), 1, MAX_AGENTS),
                allow: self.nets(enrolment.allow.as_deref().unwrap_or_default()),
            });
        }
        all
    }

    /// Adds those that registered themselves. A file that cannot be read must not mean that nobody did.
    pub(super) fn registered(
        &mut self,
        written: Option<&Text>,
        store: &Path,
        enrolments: &[Enrolment],
        agents: &mut BTreeMap<AgentId, Agent>,
        callers: &[Caller],
    ) -> Found {
        let path = registry::place(store);
        let records = match registry::read(&path) {
            Ok(records) => records,
            Err(e) => {
                let message = format!("the agents that registered cannot be read: {}: {e}", path.display());
                let span = written.map_or(0..0, Spanned::span);
                self.problems.push(Problem { span, message, help: None, hide: false });
                return Found::default();
            }
        };
        match merge(agents, &records, enrolments, callers) {
            Ok(overruled) => Found { records, overruled },
            Err(what) => {
                let message = format!("{}: {what}", path.display());
                let span = written.map_or(0..0, Spanned::span);
                self.problems.push(Problem { span, message, help: None, hide: false });
                Found::default()
            }
        }
    }
}

/// Adds those that registered to the file's agents. Gives the names that the file has too, as an agent's or a caller's.
pub(crate) fn merge(
    agents: &mut BTreeMap<AgentId, Agent>,
    records: &Records,
    enrolments: &[Enrolment],
    callers: &[Caller],
) -> Result<BTreeSet<AgentId>, String> {
    // A caller of the file by that name is the same principal, which must not be two.
    let caller = |name: &AgentId, record: &Record| {
        callers.iter().any(|caller| caller.tenant == record.tenant && caller.name == name.as_str())
    };
    let overruled = records.iter().filter(|(name, record)| agents.contains_key(*name) || caller(name, record));
    let overruled: BTreeSet<AgentId> = overruled.map(|(name, _)| name.clone()).collect();
    for (name, record) in records.iter().filter(|(name, _)| !overruled.contains(*name)) {
        // Where it is was judged when it came; if it may not be there any more, its sockets are not opened.
        let agent = meaning(name, record, enrolments).map_err(|(at, what)| format!("agent {name}: {at} {what}"))?;
        agents.insert(name.clone(), agent);
    }
    Ok(overruled)
}

/// Where the agent may be, beside the public internet. One whose enrolment is gone may be there alone.
pub(crate) fn allowed(enrolments: &[Enrolment], by: &str) -> Vec<Net> {
    let of = enrolments.iter().find(|enrolment| enrolment.name == by);
    of.map_or_else(Vec::new, |enrolment| enrolment.allow.clone())
}

/// Whether an agent that comes may have this name; if not, why.
pub(crate) fn name(text: &str) -> Result<(), String> {
    super::super::name(text).map_err(|rule| format!("is {rule}"))?;
    if RESERVED.contains(&text) {
        return Err(format!("`{text}` is reserved: choose another"));
    }
    Ok(())
}

/// Adds this one to a configuration, or changes it there, if it may be where it says and stand where it says. Walls are those
/// that agents have where nothing is said.
pub(crate) fn add(config: &mut Config, name: &AgentId, record: &Record) -> Result<(), Flaw> {
    if let Some(url) = &record.wish.url {
        let guard = Guard::of_agents(allowed(&config.enrolments, &record.enrolment));
        guard.url(url).map_err(|what| ("url".to_owned(), what))?;
    }
    let agent = meaning(name, record, &config.enrolments)?;
    if let Some(parent) = record.wish.parent.as_deref().map(AgentId::new)
        && !is_inside(config, &parent, record)
    {
        let what = "is no agent of this enrolment, and none under its own parent";
        return Err(("parent".to_owned(), what.to_owned()));
    }
    config.agents.insert(name.clone(), agent);
    config.registered.insert(name.clone(), record.clone());
    let is_at_fault = |fault: &Fault<AgentId>| match fault {
        Fault::Ring(ring) => ring.contains(name),
        Fault::NoSuchParent { agent, .. } | Fault::OtherTenant { agent, .. } | Fault::TooDeep { agent } => {
            agent == name
        }
    };
    match config.rules().faults().iter().any(is_at_fault) {
        true => Err(("parent".to_owned(), "cannot be above it: it would be its own, or too far down".to_owned())),
        false => Ok(()),
    }
}

/// Whether an agent is of the part of the tree that an enrolment may put agents into.
fn is_inside(config: &Config, agent: &AgentId, record: &Record) -> bool {
    let own = |agent: &AgentId| config.registered.get(agent).is_some_and(|one| one.enrolment == record.enrolment);
    if config.is_registered(agent) && own(agent) {
        return true;
    }
    let by = config.enrolments.iter().find(|enrolment| enrolment.name == record.enrolment);
    let Some(top) = by.and_then(|enrolment| enrolment.parent.as_ref()) else { return false };
    let above = |agent: &AgentId| config.agents.get(agent).and_then(|agent| agent.place.parent.clone());
    std::iter::successors(Some(agent.clone()), above).take(MAX_LEVELS).any(|one| one == *top)
}

fn meaning(name: &AgentId, record: &Record, enrolments: &[Enrolment]) -> Result<Agent, Flaw> {
    let wish = &record.wish;
    let by = enrolments.iter().find(|enrolment| enrolment.name == record.enrolment);
    let flaw = |member: &str, what: &str| (member.to_owned(), what.to_owned());
    let url: Option<Uri> = match (&wish.url, wish.fetches) {
        (Some(_), true) => return Err(flaw("fetches", "an agent that fetches its work has no url")),
        (None, false) => return Err(flaw("url", "is missing: say where it is called, or `fetches: true`")),
        (Some(url), false) => Some(url.parse().map_err(|_| flaw("url", "is no URL"))?),
        (None, true) => None,
    };
    for (member, said) in [("card", &wish.card), ("binding", &wish.binding), ("mode", &wish.mode)] {
        if said.is_some() && url.is_none() {
            return Err(flaw(member, "is of an agent that is called: this one fetches its work"));
        }
    }
    if wish.lease.is_some() && url.is_some() {
        return Err(flaw("lease", "is of an agent that fetches its work: this one is called"));
    }
    let card =
        match (&wish.card, &url) {
            (Some(card), Some(url)) => Some(card_at(card, url).ok_or_else(|| {
                flaw("card", "must be a path at the url's host, such as /.well-known/agent-card.json")
            })?),
            (Some(_), None) | (None, _) => None,
        };
    let agent = judged(name, wish)?;
    let most = default_slots(name)?;
    if agent.settings.bulkhead.max_in_flight > most {
        return Err(flaw("max_in_flight", &format!("is 1 to {most}, what agents have where nothing is said")));
    }
    let guard = url.is_some().then(|| Arc::new(Guard::of_agents(allowed(enrolments, &record.enrolment))));
    let parent = wish.parent.as_deref().map(AgentId::new);
    let parent = parent.or_else(|| by.and_then(|enrolment| enrolment.parent.clone()));
    let place = Place { tenant: Some(record.tenant.clone()), parent, ..Place::default() };
    Ok(Agent { wire: AgentConfig { card, guard, ..agent.wire }, place, ..agent })
}

/// By the rules of the file.
fn judged(name: &AgentId, wish: &Wish) -> Result<Agent, Flaw> {
    // The card is a path here, and a URL there.
    let wish = Wish { card: None, ..wish.clone() };
    let text = toml::to_string(&wish).map_err(|e| ("agent".to_owned(), e.to_string()))?;
    let written: written::Agent = toml::from_str(&text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        (member_at(&text, at), shape::in_words(e.message()))
    })?;
    let mut judge = Judge { env: &|_| None, dir: Path::new(""), problems: Vec::new() };
    let judged = judge.agent(Spanned::new(0..0, name.as_str().to_owned()), written);
    match (judge.problems.into_iter().next(), judged) {
        (Some(problem), _) => Err((member_at(&text, problem.span.start), problem.message)),
        (None, Some((_, agent))) => Ok(agent),
        (None, None) => Err(("agent".to_owned(), "makes no sense".to_owned())),
    }
}

/// The slots of an agent of which nothing is said.
fn default_slots(name: &AgentId) -> Result<u32, Flaw> {
    let nothing = Wish { fetches: true, ..Wish::default() };
    Ok(judged(name, &nothing)?.settings.bulkhead.max_in_flight)
}

/// The key of the line at this place.
fn member_at(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or("");
    let line = text.get(before.rfind('\n').map_or(0, |end| end + 1)..).unwrap_or("");
    line.split(" =").next().unwrap_or("agent").to_owned()
}

/// A card at the agent's own scheme, host and port.
fn card_at(card: &str, url: &Uri) -> Option<Uri> {
    let (scheme, authority) = (url.scheme_str()?, url.authority()?);
    let root = format!("{scheme}://{authority}");
    let path = card.strip_prefix(&root).unwrap_or(card);
    let plain = path.starts_with('/') && path.len() <= 2_048 && path.bytes().all(|byte| byte.is_ascii_graphic());
    format!("{root}{path}").parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[agents.top]\nurl = \"http://10.0.0.1/\"\n[agents.below]\nurl = \"http://10.0.0.1/\"\nparent = \"top\"\n\
        [agents.beside]\nurl = \"http://10.0.0.1/\"\n\
        [enrolment.ours]\nsecret = \"env:S\"\nallow = [\"10.0.0.0/8\"]\nparent = \"top\"\n\
        [enrolment.others]\nsecret = \"env:T\"\nallow = [\"10.0.0.0/8\"]\n";

    fn config() -> Config {
        let secret = |name: &str| Some(format!("secret of {name}"));
        Config::parse("w.toml", FILE, Path::new("/here"), None, &secret).unwrap()
    }

    fn record(by: &str, wish: &str) -> Record {
        Record {
            enrolment: by.to_owned(),
            tenant: by.to_owned(),
            token: "1".to_owned(),
            created: String::new(),
            wish: serde_json::from_str(wish).unwrap(),
        }
    }

    fn said(wish: &str) -> Result<Agent, Flaw> {
        let (mut config, name) = (config(), AgentId::new("crew"));
        add(&mut config, &name, &record("ours", wish))?;
        assert!(config.is_registered(&name));
        Ok(config.agents[&name].clone())
    }

    #[test]
    fn it_stands_under_its_enrolments_parent_or_further_down() {
        let mut config = config();
        let mut add = |name: &str, by: &str, parent: &str| {
            let wish = match parent {
                "" => r#"{"fetches":true}"#.to_owned(),
                parent => format!(r#"{{"fetches":true,"parent":"{parent}"}}"#),
            };
            let mut next = config.clone();
            add(&mut next, &AgentId::new(name), &record(by, &wish)).map_err(|(member, _)| member)?;
            config = next;
            Ok(config.agents[&AgentId::new(name)].place.parent.as_ref().map(|parent| parent.as_str().to_owned()))
        };
        let refused = Err("parent".to_owned());
        assert_eq!(add("a", "ours", ""), Ok(Some("top".to_owned())));
        assert_eq!(add("b", "ours", "below"), Ok(Some("below".to_owned())));
        assert_eq!(add("c", "ours", "a"), Ok(Some("a".to_owned())));
        for outside in ["beside", "nobody", "d"] {
            assert_eq!(add("d", "ours", outside), refused, "{outside}");
        }
        assert_eq!(add("a", "ours", "c"), refused, "a ring");
        assert_eq!(add("x", "others", ""), Ok(None));
        assert_eq!(add("y", "others", "top"), refused);
        assert_eq!(add("y", "others", "a"), refused);
        assert_eq!(add("y", "others", "x"), Ok(Some("x".to_owned())));
    }

    #[test]
    fn an_agent_says_what_concerns_itself() {
        let called = said(r#"{"url":"http://10.0.0.1:9/a2a","card":"/card","mode":"poll","max_in_flight":3}"#).unwrap();
        assert_eq!(called.wire.card.as_ref().unwrap(), "http://10.0.0.1:9/card");
        assert_eq!((called.settings.bulkhead.max_in_flight, called.wire.guard.is_some()), (3, true));
        let fetches = said(r#"{"fetches":true,"lease":"90s","results":"wake"}"#).unwrap();
        assert!(fetches.wire.fetches && fetches.told && fetches.wire.guard.is_none());
        assert_eq!(fetches.lease.as_secs(), 90);
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_name() {
        for (wish, member, what) in [
            ("{}", "url", "is missing"),
            (r#"{"url":"http://10.0.0.1/","fetches":true}"#, "fetches", "has no url"),
            (r#"{"url":"nowhere"}"#, "url", "must be an http or https URL"),
            (r#"{"url":"http://127.0.0.1/"}"#, "url", "neither public nor allowed"),
            (r#"{"url":"http://u@10.0.0.1/"}"#, "url", "without a user"),
            (r#"{"url":"http://10.0.0.1/","lease":"3s"}"#, "lease", "is of an agent that fetches"),
            (r#"{"url":"http://10.0.0.1/","card":"http://10.0.0.2/card"}"#, "card", "must be a path"),
            (r#"{"url":"http://10.0.0.1/","card":"card"}"#, "card", "must be a path"),
            (r#"{"url":"http://10.0.0.1/","mode":"fast"}"#, "mode", "`fast` is not one of"),
            (r#"{"fetches":true,"mode":"poll"}"#, "mode", "this one fetches"),
            (r#"{"fetches":true,"lease":"0s"}"#, "lease", "zero"),
            (r#"{"fetches":true,"lease":"soon"}"#, "lease", "no length of time"),
            (r#"{"fetches":true,"max_in_flight":0}"#, "max_in_flight", "too few"),
            (r#"{"fetches":true,"max_in_flight":17}"#, "max_in_flight", "is 1 to 16"),
            (r#"{"fetches":true,"results":"\n[breaker]\n"}"#, "results", "is not one of"),
        ] {
            let (member_said, why) = said(wish).unwrap_err();
            assert!(member_said == member && why.contains(what), "{wish}: {member_said}: {why}");
        }
    }

    #[test]
    fn some_names_are_not_given() {
        for good in ["hotels", "a.b-c_1"] {
            assert_eq!(name(good), Ok(()));
        }
        for bad in ["", "..", "Hotels", "a/b", "local", "list", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}

//! One configuration beside another: what differs, what only a restart brings, and what is in force.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::keys::{self, Key, Kind, Reload, Value};
use super::{Agent, Caller, Config, Enrolment};

/// The keys that differ, as they would be written. Of an agent or caller that is new or gone, only its table.
pub fn changes(before: &Config, after: &Config) -> Vec<String> {
    let mut out = Vec::new();
    for key in keys::all() {
        if key.of_gateway(before) != key.of_gateway(after) {
            out.push(key.path.to_owned());
        }
    }
    let agents = |config: &'_ Config| -> BTreeMap<String, Agent> {
        config.agents.iter().map(|(name, agent)| (name.as_str().to_owned(), agent.clone())).collect()
    };
    let callers = |config: &'_ Config| -> BTreeMap<String, Caller> {
        config.callers.iter().map(|caller| (caller.name.clone(), caller.clone())).collect()
    };
    let enrolments = |config: &'_ Config| -> BTreeMap<String, Enrolment> {
        config.enrolments.iter().map(|enrolment| (enrolment.name.clone(), enrolment.clone())).collect()
    };
    named(&mut out, "agents", &agents(before), &agents(after), agent_differs);
    named(&mut out, "callers", &callers(before), &callers(after), caller_differs);
    named(&mut out, "enrolment", &enrolments(before), &enrolments(after), enrolment_differs);
    out
}

/// The keys whose new value waits for a restart.
pub fn waiting(began: &Config, current: &Config) -> Vec<String> {
    let differs = |key: &&Key| key.reload == Reload::Restart && key.of_gateway(began) != key.of_gateway(current);
    keys::all().filter(differs).map(|key| key.path.to_owned()).collect()
}

/// Every value in force, in the shape of the file: what needs a restart is as the process began. No secrets.
pub fn effective(began: &Config, current: &Config) -> Json {
    let mut out = Map::new();
    for key in keys::all() {
        let config = if key.reload == Reload::Restart { began } else { current };
        if let Some(value) = key.of_gateway(config) {
            put(&mut out, &key.at(""), value.to_json());
        }
        for (name, agent) in &current.agents {
            if let Some(value) = key.of_agent(agent) {
                put(&mut out, &key.at(name.as_str()), value.to_json());
            }
        }
        for caller in &current.callers {
            if let Some(value) = key.of_caller(caller) {
                put(&mut out, &key.at(&caller.name), value.to_json());
            }
        }
        for enrolment in &current.enrolments {
            if let Some(value) = key.of_enrolment(enrolment) {
                put(&mut out, &key.at(&enrolment.name), value.to_json());
            }
        }
    }
    Json::Object(out)
}

/// Every key that the file says, as it would be written.
pub fn written(config: &Config) -> Vec<String> {
    let mut out = Vec::new();
    for key in keys::all() {
        let agents = config.agents.iter().map(|(name, agent)| (name.as_str(), key.of_agent(agent)));
        let callers = config.callers.iter().map(|caller| (caller.name.as_str(), key.of_caller(caller)));
        let enrolments = config.enrolments.iter().map(|one| (one.name.as_str(), key.of_enrolment(one)));
        let all = agents.chain(callers).chain(enrolments).chain([("", key.of_gateway(config))]);
        let paths = all.filter(|(_, value)| value.is_some()).map(|(name, _)| key.at(name));
        out.extend(paths.filter(|path| config.places.line(path).is_some()).map(|path| keys::dotted(&path)));
    }
    out
}

fn named<T>(
    out: &mut Vec<String>,
    table: &str,
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
    differs: fn(&Key, &T, &T) -> bool,
) {
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    out.extend(gone.map(|name| keys::dotted(&[table.to_owned(), name.clone()])));
    for (name, new) in after {
        match before.get(name) {
            None => out.push(keys::dotted(&[table.to_owned(), name.clone()])),
            Some(old) => {
                let keys = keys::all().filter(|key| differs(key, old, new));
                out.extend(keys.map(|key| keys::dotted(&key.at(name))));
            }
        }
    }
}

fn agent_differs(key: &Key, a: &Agent, b: &Agent) -> bool {
    match key.kind {
        // Of secrets, what is shown is the same.
        Kind::Headers => key.of_agent(a).is_some() && a.wire.headers != b.wire.headers,
        Kind::Duration
        | Kind::Size
        | Kind::Share
        | Kind::Count
        | Kind::Flag
        | Kind::Word(_)
        | Kind::Url
        | Kind::Address
        | Kind::Path
        | Kind::Name
        | Kind::Names
        | Kind::Command
        | Kind::Nets
        | Kind::Secret => key.of_agent(a) != key.of_agent(b),
    }
}

fn caller_differs(key: &Key, a: &Caller, b: &Caller) -> bool {
    if key.of_caller(a) == Some(Value::Secret) {
        return a.token != b.token;
    }
    key.of_caller(a) != key.of_caller(b)
}

fn enrolment_differs(key: &Key, a: &Enrolment, b: &Enrolment) -> bool {
    if key.of_enrolment(a) == Some(Value::Secret) {
        return a.secret != b.secret;
    }
    key.of_enrolment(a) != key.of_enrolment(b)
}

fn put(out: &mut Map<String, Json>, path: &[String], value: Json) {
    match path {
        [] => {}
        [name] => {
            out.insert(name.clone(), value);
        }
        [table, rest @ ..] => {
            let inner = out.entry(table.clone()).or_insert_with(|| Json::Object(Map::new()));
            if let Some(inner) = inner.as_object_mut() {
                put(inner, rest, value);
            }
        }
    }
}

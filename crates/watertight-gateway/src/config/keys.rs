//! Every key of the configuration, once: where it stands, what it means, what holds without it, and how its value is
//! read back from a configuration that was understood.
//!
//! The file of `watertight init`, the reference in `docs/config.md` and the JSON Schema are made from this table, and
//! so is what `check` and the API show as in force. Tests hold it against the parser in both directions: a key that
//! only one of them knows, a default that differs, a bound that is not kept, fails. Leaves out how values are parsed
//! and judged; that is [`super::meant`]'s.

mod agents;
mod breaker;
mod enrolment;
mod gateway;
#[cfg(test)]
mod tests;
mod value;
mod wake;

use super::{Agent, Caller, Config, Enrolment};

pub use value::Value;

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Where it stands, with `*` for a name that the user chooses: `agents.*.breaker.window`.
    pub path: &'static str,
    /// What is written there.
    pub kind: Kind,
    /// What holds without it, as it would be written in the file.
    pub default: Option<&'static str>,
    /// What holds without it, in words: where there is no default, or the default depends on another key.
    pub otherwise: &'static str,
    /// The file makes no sense without it.
    pub required: bool,
    /// The least it may be, as it would be written; `>0` for what may be anything but zero. Empty: no bound.
    pub least: &'static str,
    /// A value to show where the default would say nothing, as it would be written.
    pub example: &'static str,
    /// What it is, in one sentence.
    pub doc: &'static str,
    /// When to change it, and what it costs.
    pub more: &'static str,
    /// When a change of it takes effect.
    pub reload: Reload,
    /// How it is read back.
    pub read: Read,
}

/// What is written at a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A length of time: `"500ms"`.
    Duration,
    /// A size: `"16MiB"`.
    Size,
    /// A percentage: `"50%"`.
    Share,
    /// A whole number.
    Count,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An `http` or `https` URL.
    Url,
    /// `HOST:PORT`, the host as a number.
    Address,
    /// A file or directory, relative to the configuration's own.
    Path,
    /// A name: 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.
    Name,
    /// Names of agents.
    Names,
    /// A program and its arguments.
    Command,
    /// Addresses and networks.
    Nets,
    /// Where a secret is: `env:NAME` or `file:PATH`.
    Secret,
    /// Names of headers, each with the place of a secret.
    Headers,
}

/// When a change takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reload {
    /// With the next reload, without dropping anything.
    Live,
    /// When the process starts again.
    Restart,
}

/// How a value is read back, by what it belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    /// There is one.
    Gateway(fn(&Config) -> Value),
    /// Each caller has one.
    Caller(fn(&Caller) -> Value),
    /// Each of those who may register agents has one.
    Enrolment(fn(&Enrolment) -> Value),
    /// Each agent has one.
    Agent(fn(&Agent) -> Value),
}

/// A table of the file.
#[derive(Debug)]
pub struct Section {
    /// Its path, with `*` for a chosen name; empty for the top of the file.
    pub path: &'static str,
    /// What it is for.
    pub doc: &'static str,
}

/// The tables in the order in which they are shown.
pub const SECTIONS: &[Section] = &[
    Section { path: "", doc: "At the top of the file, before any table." },
    Section { path: "store", doc: "Where tasks are kept, and for how long." },
    Section {
        path: "agents.*",
        doc: "An agent. Callers reach it at /agents/NAME; its walls keep its trouble from everybody else.",
    },
    Section {
        path: "agents.*.breaker",
        doc: "When traffic is kept away from the agent, and for how long. It may also be written in the agent's own \
              table: `breaker.window = \"30s\"`.",
    },
    Section {
        path: "agents.*.wake",
        doc: "For an agent that is not always there: how it is woken when a message waits and nobody answers. It may also \
              be written in the agent's own table: `wake = { url = \"…\" }`.",
    },
    Section {
        path: "callers.*",
        doc: "Who may call. Without any caller this machine's users may, over loopback, and all of them are operators.",
    },
    Section {
        path: "enrolment.*",
        doc: "Who may register agents while the gateway runs, beside those of this file: `POST /v1/agents`, \
              `watertight agents register`. With one of these the gateway asks everybody for a token.",
    },
    Section { path: "server", doc: "The front door: its address for others, and what it takes on at once." },
    Section { path: "limits", doc: "What bounds agents that call agents." },
    Section { path: "push", doc: "Push notifications: news of a task, posted to where its caller says." },
    Section { path: "drain", doc: "How the gateway stops." },
];

/// Every key, in the order in which they are shown.
pub fn all() -> impl Iterator<Item = &'static Key> {
    [
        gateway::TOP,
        gateway::STORE,
        agents::KEYS,
        breaker::KEYS,
        wake::KEYS,
        gateway::CALLERS,
        enrolment::KEYS,
        gateway::SERVER,
        gateway::LIMITS,
        gateway::PUSH,
        gateway::DRAIN,
    ]
    .into_iter()
    .flatten()
}

/// The keys of one table.
pub fn of(section: &str) -> impl Iterator<Item = &'static Key> {
    all().filter(move |key| key.section() == section)
}

impl Key {
    /// Its own name, without the table's.
    pub fn name(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The table that it stands in.
    pub fn section(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// What to write to try it out: the example, else the default.
    pub fn shown(&self) -> &'static str {
        if self.example.is_empty() { self.default.unwrap_or("") } else { self.example }
    }

    /// Its path with the names that the user chose.
    pub fn at(&self, name: &str) -> Vec<String> {
        self.path.split('.').map(|part| if part == "*" { name } else { part }.to_owned()).collect()
    }

    /// Its value for the gateway, if there is one of it.
    pub fn of_gateway(&self, config: &Config) -> Option<Value> {
        match self.read {
            Read::Gateway(read) => Some(read(config)),
            Read::Caller(_) | Read::Enrolment(_) | Read::Agent(_) => None,
        }
    }

    /// Its value for one agent, if agents have it.
    pub fn of_agent(&self, agent: &Agent) -> Option<Value> {
        match self.read {
            Read::Agent(read) => Some(read(agent)),
            Read::Gateway(_) | Read::Caller(_) | Read::Enrolment(_) => None,
        }
    }

    /// Its value for one caller, if callers have it.
    pub fn of_caller(&self, caller: &Caller) -> Option<Value> {
        match self.read {
            Read::Caller(read) => Some(read(caller)),
            Read::Gateway(_) | Read::Enrolment(_) | Read::Agent(_) => None,
        }
    }

    /// Its value for one enrolment, if they have it.
    pub fn of_enrolment(&self, enrolment: &Enrolment) -> Option<Value> {
        match self.read {
            Read::Enrolment(read) => Some(read(enrolment)),
            Read::Gateway(_) | Read::Caller(_) | Read::Agent(_) => None,
        }
    }
}

/// The path of a key as it would be written in a file, with quotes where a name needs them.
pub fn dotted(path: &[String]) -> String {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    let quoted = |part: &String| if plain(part) { part.clone() } else { toml::Value::String(part.clone()).to_string() };
    path.iter().map(quoted).collect::<Vec<_>>().join(".")
}

/// The beginning of every entry: optional, without bound, applied by a reload.
const KEY: Key = Key {
    path: "",
    kind: Kind::Flag,
    default: None,
    otherwise: "",
    required: false,
    least: "",
    example: "",
    doc: "",
    more: "",
    reload: Reload::Live,
    read: Read::Gateway(|_| Value::None),
};

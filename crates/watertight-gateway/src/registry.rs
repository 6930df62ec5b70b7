//! Agents that registered themselves: what each said of itself, as whose it was let in, and which token it was given.
//!
//! They are in one small file beside the store, which is the truth: an agent is registered from the moment when it is in
//! there, and so long its token counts (the token file holds its hash, and a token of an agent that is not in here opens
//! nothing). A configuration is read together with this file, and they count as one ([`crate::config`]).
//!
//! Assumes the store's lock: one process writes. Leaves out what a record means as configuration, and who may write one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use watertight_engine::ids::AgentId;

use crate::replace::replace;

const FILE: &str = "agents.json";
const VERSION: u32 = 1;

/// More is a mistake, or an attack on our memory.
pub const MAX_AGENTS: usize = 10_000;
const MAX_BYTES: u64 = 32 << 20;

/// What an agent may choose: what concerns itself. Written as in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Where it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// It is not called: its workers ask for work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fetches: bool,
    /// How long one of those may say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Where its card is: a path at the URL's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// How it is spoken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// How it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether it is told of results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// Under which agent it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Fewer slots than agents have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
}

/// An agent that registered itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Which enrolment let it in.
    pub enrolment: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The id of its token.
    pub token: String,
    /// When it came, RFC 3339.
    pub created: String,
    /// What it said of itself, the last time.
    pub wish: Wish,
}

/// All of them, by name.
pub type Records = BTreeMap<AgentId, Record>;

/// An agent that registered once and left: what it asked for may still be there, and must not come to somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Former {
    /// Which enrolment had let it in; who comes by the same one is the same again.
    pub enrolment: String,
    /// When it left, RFC 3339.
    pub left: String,
}

/// Those, by name.
pub type Formers = BTreeMap<AgentId, Former>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<A, F> {
    version: u32,
    agents: A,
    #[serde(default)]
    former: F,
}

/// Where it is, beside a store.
pub fn place(store: &Path) -> PathBuf {
    store.join(FILE)
}

/// All that are registered; nobody, if the file is not there.
pub fn read(path: &Path) -> io::Result<Records> {
    Ok(read_all(path)?.0)
}

/// All that are, and those that were.
pub(crate) fn read_all(path: &Path) -> io::Result<(Records, Formers)> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        opened => opened?,
    };
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(wrong(format!("larger than {MAX_BYTES} bytes")));
    }
    let written: Written<BTreeMap<String, Record>, BTreeMap<String, Former>> =
        serde_json::from_str(&text).map_err(|e| wrong(format!("no list of agents: {e}")))?;
    match (written.version, written.agents.len()) {
        (VERSION, n) if n <= MAX_AGENTS => {
            let former = written.former.into_iter().map(|(name, former)| (AgentId::new(&name), former)).collect();
            Ok((written.agents.into_iter().map(|(name, record)| (AgentId::new(&name), record)).collect(), former))
        }
        (VERSION, n) => Err(wrong(format!("it holds {n} agents, and at most {MAX_AGENTS} are read"))),
        (version, _) => Err(wrong(format!("version {version} is not known here"))),
    }
}

/// Puts these in their place, durably. Of those that left, the latest are kept.
pub(crate) fn write(path: &Path, records: &Records, former: &Formers) -> io::Result<()> {
    let mut latest: Vec<(&AgentId, &Former)> = former.iter().collect();
    latest.sort_by(|(_, a), (_, b)| b.left.cmp(&a.left));
    latest.truncate(MAX_AGENTS);
    let former: BTreeMap<&str, &Former> = latest.into_iter().map(|(name, former)| (name.as_str(), former)).collect();
    let agents: BTreeMap<&str, &Record> = records.iter().map(|(name, record)| (name.as_str(), record)).collect();
    let mut text =
        serde_json::to_vec_pretty(&Written { version: VERSION, agents, former }).map_err(io::Error::other)?;
    text.push(b'\n');
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "it would be larger than {MAX_BYTES} bytes, and could not be read again"
        )));
    }
    replace(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Records {
        let wish = Wish { url: Some("http://10.0.0.1/".into()), ..Wish::default() };
        let record = Record {
            enrolment: "crew".into(),
            tenant: "acme".into(),
            token: "3f9a1c2b".into(),
            created: "2026-01-01T00:00:00.000Z".into(),
            wish,
        };
        Records::from([(AgentId::new("hotels"), record)])
    }

    #[test]
    fn what_is_written_is_read_and_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = place(dir.path());
        assert_eq!(read(&path).unwrap(), Records::new());
        let former = Former { enrolment: "crew".into(), left: "2026-01-02T00:00:00.000Z".into() };
        let formers = Formers::from([(AgentId::new("gone"), former)]);
        write(&path, &one(), &formers).unwrap();
        assert_eq!(read_all(&path).unwrap(), (one(), formers));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = place(dir.path());
        write(&path, &one(), &Formers::new()).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        for bad in [
            String::new(),
            "{}".into(),
            good.replace("\"version\": 1", "\"version\": 2"),
            good.replace("\"tenant\"", "\"tenants\""),
            good.replace("\"url\"", "\"uri\""),
        ] {
            std::fs::write(&path, bad).unwrap();
            assert!(read(&path).is_err());
        }
    }
}

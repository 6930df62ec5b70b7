//! Which agents are drained for their restart, and how long what runs was given. Kept in a small file beside the store, so
//! that a gateway which is itself started again meanwhile delivers nothing to them either.
//!
//! The file is a wish of an operator's and no truth about tasks: one that cannot be read is none, and one that cannot be
//! written is told to who asked.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use watertight_engine::ids::AgentId;
use watertight_policy::time::Time;

use crate::replace::replace;

const FILE: &str = "draining.json";

/// Agents are configured by hand; a file larger than this is none of ours.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Drains {
    file: Option<PathBuf>,
    until: Mutex<BTreeMap<AgentId, Time>>,
}

impl Drains {
    /// Those of a store in this directory; `None`: of one that is gone with the process.
    pub(crate) fn open(directory: Option<&Path>) -> Drains {
        let Some(file) = directory.map(|directory| directory.join(FILE)) else { return Drains::default() };
        let until = match read(&file) {
            Ok(until) => until,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "which agents were drained cannot be read: none is");
                BTreeMap::new()
            }
        };
        for agent in until.keys() {
            tracing::warn!(%agent, "this agent is drained since before the start: nothing is delivered until it is resumed");
        }
        Drains { file: Some(file), until: Mutex::new(until) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, Time>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of(&self, agent: &AgentId) -> Option<Time> {
        self.lock().get(agent).copied()
    }

    /// Counts at once. Waits for the disk; an error means that it will not be known after a restart.
    pub(crate) fn set(&self, agent: &AgentId, until: Option<Time>) -> io::Result<()> {
        let mut all = self.lock();
        match until {
            Some(until) => all.insert(agent.clone(), until),
            None => all.remove(agent),
        };
        // Under the lock: two writers would use the same name.
        self.file.as_deref().map_or(Ok(()), |file| write(file, &all))
    }
}

fn read(file: &Path) -> io::Result<BTreeMap<AgentId, Time>> {
    if fs::metadata(file)?.len() > MAX_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    let all: BTreeMap<String, u64> = serde_json::from_slice(&fs::read(file)?).map_err(io::Error::other)?;
    Ok(all.into_iter().map(|(agent, until)| (AgentId::new(&agent), Time::from_micros(until))).collect())
}

fn write(file: &Path, all: &BTreeMap<AgentId, Time>) -> io::Result<()> {
    let all: BTreeMap<&str, u64> = all.iter().map(|(agent, until)| (agent.as_str(), until.as_micros())).collect();
    replace(file, &serde_json::to_vec(&all).map_err(io::Error::other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_found_again_and_nonsense_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (fx, at) = (AgentId::new("fx"), Time::from_millis(1_700_000_000_000));
        let drains = Drains::open(Some(dir.path()));
        drains.set(&fx, Some(at)).unwrap();
        assert_eq!(Drains::open(Some(dir.path())).of(&fx), Some(at));
        drains.set(&fx, None).unwrap();
        assert_eq!(Drains::open(Some(dir.path())).of(&fx), None);
        fs::write(dir.path().join(FILE), "[1").unwrap();
        assert_eq!(Drains::open(Some(dir.path())).of(&fx), None);
        assert!(Drains::default().set(&fx, Some(at)).is_ok());
    }
}

//! What the machine says to a configuration: the key's file, the store's directory, the limit of open files.

use std::fs;
use std::io;
use std::path::Path;

use watertight_gateway::config::{Config, Finding, InstanceKey, Level};

/// Open files that are neither connections of callers nor calls of agents.
const OTHER_FILES: u64 = 64;

pub(super) fn look(config: &Config) -> Vec<Finding> {
    [key(config), store(&config.store), open_files(config)].into_iter().flatten().collect()
}

fn finding(level: Level, at: &str, text: String) -> Finding {
    Finding { level, at: at.to_owned(), line: None, text }
}

fn key(config: &Config) -> Option<Finding> {
    let path = &config.key.path;
    match InstanceKey::load(path) {
        Ok(_) => None,
        Err(e) if e.kind() == io::ErrorKind::NotFound && !config.key.required => {
            let text =
                format!("{} is missing: a key is made for each process; watertight init makes one", path.display());
            Some(finding(Level::Note, "key", text))
        }
        Err(e) => Some(finding(Level::Error, "key", format!("{}: {e}: serve will not start", path.display()))),
    }
}

/// Whether the store can be made or written, without touching what is in it.
fn store(path: &Path) -> Option<Finding> {
    let there = path.ancestors().find(|part| part.exists() || part.as_os_str().is_empty())?;
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let shown = there.display();
    if !there.is_dir() {
        return Some(finding(Level::Error, "store.path", format!("{shown} is not a directory")));
    }
    // A file without a name: it is gone when it is closed.
    if let Err(e) = tempfile::tempfile_in(there) {
        let what = if there == path { "cannot be written" } else { "cannot be written, so the store cannot be made" };
        return Some(finding(Level::Error, "store.path", format!("{shown} {what}: {e}")));
    }
    if there == path { owner(path) } else { None }
}

#[cfg(unix)]
fn owner(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt;
    let (own, theirs) = (rustix::process::geteuid().as_raw(), fs::metadata(path).ok()?.uid());
    (own != theirs).then(|| {
        let text = format!(
            "{} belongs to user {theirs}, and this is user {own}: the gateway should run as the store's owner",
            path.display()
        );
        finding(Level::Warning, "store.path", text)
    })
}

#[cfg(not(unix))]
fn owner(_path: &Path) -> Option<Finding> {
    None
}

#[cfg(unix)]
fn open_files(config: &Config) -> Option<Finding> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    let slots: u64 = config.agents.values().map(|agent| u64::from(agent.settings.bulkhead.max_in_flight)).sum();
    let connections = config.server.max_connections as u64;
    let need = connections + slots + OTHER_FILES;
    (limit < need).then(|| {
        let text = format!(
            "a process may open {limit} files here, and the gateway may need {need}: {connections} connections, {slots} \
             slots, {OTHER_FILES} others; raise the limit (ulimit -n, LimitNOFILE=) or lower this"
        );
        finding(Level::Warning, "server.max_connections", text)
    })
}

#[cfg(not(unix))]
fn open_files(_config: &Config) -> Option<Finding> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_be_written_is_told_before_it_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(store(&dir.path().join("data")), None);
        assert_eq!(store(dir.path()), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
        fs::write(dir.path().join("file"), "x").unwrap();
        let found = store(&dir.path().join("file/data")).unwrap();
        assert!(found.level == Level::Error && found.text.contains("is not a directory"), "{found:?}");
    }
}

//! Tokens that are given out and taken back while the gateway runs: `watertight token` writes their file, and a gateway
//! follows it.
//!
//! Assumes the instance key is secret: the file holds hashes under it, so that whoever reads the file can neither call
//! nor test guesses. A file that cannot be read, or is gone, leaves the tokens as they were, and is logged: a slip of an
//! editor must lock nobody out, and open nothing. Where there were tokens once, the gateway asks for one until it is
//! started again, even when the last one is revoked.

mod file;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use watertight_engine::ids::{AgentId, Principal};
use watertight_policy::time::Time;

use crate::clock;
use crate::config::InstanceKey;
use crate::http::auth::{Who, outbox_of};

pub use file::{Stored, edit, read};

/// A change of the file is seen within this time.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a token begins with, so that one that leaks is found by a scanner.
const PREFIX: &str = "wt_";

/// What a token is good for. None implies another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// It may call agents, and see its own tasks.
    Caller,
    /// It may see metrics, agents and all tasks of its tenant, and reset breakers.
    Operator,
    /// It may change the configuration.
    Admin,
}

impl Scope {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Caller => "caller",
            Scope::Operator => "operator",
            Scope::Admin => "admin",
        }
    }
}

/// A new token: 256 random bits. Its hash is all that is kept.
pub fn mint() -> Result<String, getrandom::Error> {
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(clock::random::<32>()?)))
}

/// An id to list and revoke a token by. It says nothing of the token.
pub fn mint_id() -> Result<String, getrandom::Error> {
    Ok(format!("{:08x}", u32::from_be_bytes(clock::random()?)))
}

/// What is stored of a token.
pub fn hash(key: &InstanceKey, token: &str) -> String {
    key.mac("bearer", token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tokens as they are at the moment.
#[derive(Debug)]
pub struct Tokens {
    known: RwLock<All>,
    /// There were tokens at some time since the start.
    closed: AtomicBool,
    /// There is a file, and it could not be read since the start.
    unread: AtomicBool,
    /// One read after the other: what is newer is never replaced by what is older.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct All {
    by_hash: BTreeMap<[u8; 32], Known>,
    /// Whoever holds one, by what is part of every key; those whose tokens have expired too.
    by_principal: BTreeMap<Principal, Vec<Arc<Who>>>,
}

#[derive(Debug, Clone)]
struct Known {
    who: Arc<Who>,
    expires: Time,
}

/// What a look at the file compares.
type Seen = Option<(SystemTime, u64, u64)>;

impl Tokens {
    /// None, and none will come.
    pub fn none() -> Arc<Tokens> {
        Arc::new(Tokens {
            known: RwLock::default(),
            closed: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            turn: Mutex::new(()),
        })
    }

    /// Those of the file, now and after each change of it. Must be called inside a runtime; following ends with the
    /// tokens.
    pub fn follow(path: PathBuf) -> Arc<Tokens> {
        let tokens = Tokens::none();
        let mut seen = look(&path);
        if seen.is_some() && !tokens.take(&path) {
            // Whoever wrote it did not mean that everybody may come in.
            tokens.closed.store(true, Ordering::Relaxed);
            tokens.unread.store(true, Ordering::Relaxed);
        }
        let followed = Arc::downgrade(&tokens);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(tokens) = followed.upgrade() else { return };
                let at = path.clone();
                let before = seen;
                let looked = tokio::task::spawn_blocking(move || {
                    let now = look(&at);
                    match (before, now) {
                        (before, now) if before == now => {}
                        (_, None) => tracing::warn!(
                            path = %at.display(), "the token file is gone; its tokens stay valid until there is one again"
                        ),
                        (_, Some(_)) => {
                            tokens.take(&at);
                        }
                    }
                    now
                });
                seen = looked.await.unwrap_or(before);
            }
        });
        tokens
    }

    /// There is no token, and never was one since the start.
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// Who holds the token with this hash. It is looked up, not compared in constant time against each: how long that
    /// takes tells of a hash that nobody can compute without the instance key, so it tells nothing of any token.
    pub fn holder(&self, hash: &[u8; 32], now: Time) -> Option<Arc<Who>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_hash.get(hash).filter(|known| now < known.expires).map(|known| known.who.clone())
    }

    /// Whoever holds, or held, a token of this principal that is still listed.
    pub(crate) fn holders(&self, principal: &Principal) -> Vec<Arc<Who>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_principal.get(principal).cloned().unwrap_or_default()
    }

    /// Likewise, of everybody who is this agent.
    pub(crate) fn holders_of(&self, agent: &AgentId) -> Vec<Arc<Who>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_principal.values().flatten().filter(|who| who.agent.as_ref() == Some(agent)).cloned().collect()
    }

    /// There are tokens, and nobody knows which: nothing can be said of who holds none.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire)
    }

    /// Reads the file now. Waits for the disk: not for an async thread.
    pub(crate) fn refresh(&self, path: &Path) {
        self.take(path);
    }

    /// `false`: the file cannot be read, and the tokens are as they were.
    fn take(&self, path: &Path) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match read(path) {
            Ok(stored) => {
                let count = stored.len();
                let mut all = All { by_hash: stored.iter().filter_map(known).collect(), ..All::default() };
                for known in all.by_hash.values() {
                    all.by_principal.entry(known.who.principal.clone()).or_default().push(known.who.clone());
                }
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = all;
                self.unread.store(false, Ordering::Release);
                // After the tokens, so that nobody is asked for one that is not there yet.
                if count > 0 {
                    self.closed.store(true, Ordering::Release);
                }
                tracing::info!(path = %path.display(), tokens = count, "tokens read");
                true
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the token file cannot be read; its tokens stay as they were");
                false
            }
        }
    }
}

/// Who holds it.
pub(crate) fn of_stored(stored: &Stored) -> Who {
    let agent = stored.agent.as_deref().map(AgentId::new);
    Who {
        principal: Principal { tenant: stored.tenant.as_str().into(), caller: stored.name.as_str().into() },
        agents: stored.agents.as_ref().map(|agents| agents.iter().map(|name| AgentId::new(name)).collect()),
        outbox: outbox_of(None, agent.as_ref()),
        agent,
        enrolled: stored.enrolment.as_ref().map(|_| stored.id.clone()),
        scopes: stored.scopes.iter().copied().collect(),
    }
}

fn known(stored: &Stored) -> Option<([u8; 32], Known)> {
    let who = of_stored(stored);
    let expires = stored.expires_ms().map_or(Time::FAR, Time::from_millis);
    Some((stored.hash()?, Known { who: Arc::new(who), expires }))
}

/// A file is renamed into place, so a new one has another number, if not another time.
fn look(path: &Path) -> Seen {
    let seen = |data: fs::Metadata| -> io::Result<(SystemTime, u64, u64)> {
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(&data);
        #[cfg(not(unix))]
        let number = 0;
        Ok((data.modified()?, data.len(), number))
    };
    fs::metadata(path).and_then(seen).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(key: &InstanceKey, token: &str, expires: Option<&str>) -> Stored {
        Stored {
            id: mint_id().unwrap(),
            name: "alice".into(),
            tenant: "acme".into(),
            scopes: vec![Scope::Caller],
            agents: Some(vec!["fx".into()]),
            agent: Some("hotels".into()),
            created: "2026-01-01T00:00:00.000Z".into(),
            expires: expires.map(str::to_owned),
            enrolment: None,
            hash: hash(key, token),
        }
    }

    #[test]
    fn a_token_is_long_random_and_says_what_it_is() {
        let (a, b) = (mint().unwrap(), mint().unwrap());
        assert!(a != b && a.starts_with("wt_") && a.len() == 46, "{a}");
        assert!(a.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{a}");
    }

    #[test]
    fn the_file_holds_no_token_and_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("tokens.json"), InstanceKey::generate().unwrap());
        assert_eq!(read(&path).unwrap(), []);
        let token = mint().unwrap();
        edit(&path, |all| {
            all.push(stored(&key, &token, None));
            Ok(())
        })
        .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"caller\"") && !text.contains(&token[3..]), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let refused = edit(&path, |all| {
            all.clear();
            Err::<(), _>(io::Error::other("no"))
        });
        assert!(refused.is_err() && read(&path).unwrap().len() == 1);
    }

    #[test]
    fn two_writers_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("tokens.json"), InstanceKey::generate().unwrap());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let new = stored(&key, &mint().unwrap(), None);
                    edit(&path, |all| {
                        all.push(new);
                        Ok(())
                    })
                    .unwrap();
                });
            }
        });
        assert_eq!(read(&path).unwrap().len(), 8);
    }

    #[test]
    fn what_is_no_token_file_is_refused_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("tokens.json"), InstanceKey::generate().unwrap());
        let tokens = Tokens::none();
        let token = mint().unwrap();
        let expires = Some("2026-02-01T00:00:00Z");
        edit(&path, |all| {
            all.push(stored(&key, &token, expires));
            Ok(())
        })
        .unwrap();
        assert!(tokens.take(&path));
        let holder = |at: &str| {
            let at = Time::from_millis(watertight_a2a::time::parse(at).unwrap() as u64);
            tokens.holder(&key.mac("bearer", token.as_bytes()), at)
        };
        let who = holder("2026-01-31T23:59:59Z").unwrap();
        assert_eq!(who.agent, Some(AgentId::new("hotels")));
        assert_eq!(who.agents, Some([AgentId::new("fx")].into()));
        assert_eq!(holder("2026-02-01T00:00:00Z"), None);
        assert_eq!(tokens.holders(&who.principal).len(), 1, "it stands for what was accepted while it was good");
        let good = fs::read_to_string(&path).unwrap();
        for bad in [
            String::new(),
            "{}".into(),
            good.replace("\"version\": 1", "\"version\": 2"),
            good.replace("\"caller\"", "\"root\""),
            good.replace("2026-02-01", "soon"),
            good.replace("\"hash\": \"", "\"hash\": \"x"),
        ] {
            fs::write(&path, bad).unwrap();
            assert!(!tokens.take(&path));
            assert!(holder("2026-01-31T00:00:00Z").is_some() && !tokens.is_open());
        }
        fs::write(&path, "{\"version\": 1, \"tokens\": []}").unwrap();
        assert!(tokens.take(&path) && holder("2026-01-31T00:00:00Z").is_none());
        assert!(!tokens.is_open(), "revoking the last one lets nobody in");
    }
}

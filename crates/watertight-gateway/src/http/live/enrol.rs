//! Agents that register themselves, change what they said, and leave: each a change of the configuration in force, like a
//! reload, and one after another with those.
//!
//! What is true is in the file beside the store, which is written before the change is made and before anybody is told. A
//! token counts as long as its agent is in there, so a crash at any point leaves an agent with its token or neither. The file
//! of the configuration is not read: what an operator is editing there does not come into force because an agent came.

use std::io;
use std::sync::Arc;

use watertight_a2a::time;
use watertight_engine::ids::AgentId;

use super::Live;
use crate::config::{Config, Enrolment, InstanceKey, enrolment};
use crate::registry::{self, Former, Formers, MAX_AGENTS, Record, Records, Wish};
use crate::tokens::{self, Scope, Stored};

/// How many times as many names as agents one enrolment may use up until the gateway is started again: those that left are
/// remembered until then, and so are their metrics.
const NAMES: usize = 10;

/// Why an agent is not let in, changed or let go.
#[derive(Debug)]
pub(in crate::http) enum Denial {
    /// The name is another's. Whose is never said.
    Taken,
    /// This member of what it said of itself cannot be.
    Flaw(String, String),
    /// The enrolment has as many as it may have, for this reason.
    Full(String),
    /// It is not registered.
    Unknown,
    /// It is in the configuration, and not here.
    Configured,
    /// It could not be written or put in force; nothing has changed.
    Unwritten(String),
}

/// What came of it.
#[derive(Debug)]
pub(in crate::http) struct Entered {
    pub(in crate::http) record: Record,
    /// Of a new one: shown once.
    pub(in crate::http) token: Option<String>,
    /// It is not as it was before.
    pub(in crate::http) changed: bool,
}

impl Live {
    /// Lets an agent in, with a token of its own.
    pub(in crate::http) async fn enter(&self, id: AgentId, wish: Wish, by: &str) -> Result<Entered, Denial> {
        let _turn = self.turn.lock().await;
        let (config, leaving) = {
            let state = self.locked();
            (state.current.clone(), state.leaving.contains_key(&id))
        };
        let enrolment = config.enrolments.iter().find(|enrolment| enrolment.name == by).cloned();
        // It may be gone since the secret was looked at.
        let enrolment = enrolment.ok_or_else(|| Denial::Full("it is no longer configured".to_owned()))?;
        if config.agents.contains_key(&id) || config.registered.contains_key(&id) {
            return Err(Denial::Taken);
        }
        // What an agent of that name had is being followed to its end, and must not come to somebody else.
        let was = self.left().get(&id).cloned();
        if leaving && was.as_ref() != Some(&enrolment.name) {
            return Err(Denial::Taken);
        }
        // Nor what somebody of that name asked for, in this life or one before.
        let former = self.former().get(&id).map(|former| former.enrolment.clone());
        let anothers = match &former {
            Some(by) => *by != enrolment.name,
            None => self.has_called(&enrolment.tenant, &id).await?,
        };
        if anothers {
            return Err(Denial::Taken);
        }
        if config.callers.iter().any(|caller| caller.tenant == enrolment.tenant && caller.name == id.as_str()) {
            return Err(Denial::Taken);
        }
        self.room(&config, &enrolment, &id)?;
        let created = time::write(i64::try_from(self.common.handle.now().as_millis()).unwrap_or(i64::MAX));
        let record = Record {
            enrolment: enrolment.name.clone(),
            tenant: enrolment.tenant.clone(),
            token: tokens::mint_id().map_err(|e| Denial::Unwritten(format!("no randomness: {e}")))?,
            created,
            wish,
        };
        let mut next = (*config).clone();
        enrolment::add(&mut next, &id, &record).map_err(|(at, why)| Denial::Flaw(at, why))?;
        let token = self.mint(&config, &id, &record).await?;
        if let Err(why) = self.change(&config, next).await {
            self.revoke(&id, &record.token).await;
            return Err(why);
        }
        self.left().remove(&id);
        tracing::info!(agent = %id, enrolment = enrolment.name, tenant = enrolment.tenant, "an agent registered");
        Ok(Entered { record, token: Some(token), changed: true })
    }

    /// What an agent says of itself from now on.
    pub(in crate::http) async fn renew(&self, id: AgentId, wish: Wish, token: &str) -> Result<Entered, Denial> {
        let _turn = self.turn.lock().await;
        let config = self.state().current;
        let record = config.registered.get(&id).filter(|_| config.is_registered(&id)).ok_or(Denial::Unknown)?;
        // It may have been let go, and another one come, since whoever asks came in.
        if record.token != token {
            return Err(Denial::Taken);
        }
        if record.wish == wish {
            return Ok(Entered { record: record.clone(), token: None, changed: false });
        }
        let record = Record { wish, ..record.clone() };
        let mut next = (*config).clone();
        enrolment::add(&mut next, &id, &record).map_err(|(at, why)| Denial::Flaw(at, why))?;
        self.change(&config, next).await?;
        tracing::info!(agent = %id, "a registered agent changed");
        Ok(Entered { record, token: None, changed: true })
    }

    /// Lets an agent go: what it has is followed to its end, and its token opens nothing any more.
    pub(in crate::http) async fn dismiss(&self, id: AgentId, by: &str, token: Option<&str>) -> Result<(), Denial> {
        let _turn = self.turn.lock().await;
        let config = self.state().current;
        let Some(record) = config.registered.get(&id) else {
            return Err(if config.agents.contains_key(&id) { Denial::Configured } else { Denial::Unknown });
        };
        if token.is_some_and(|token| record.token != token) {
            return Err(Denial::Unknown);
        }
        let mut next = (*config).clone();
        next.registered.remove(&id);
        // One that the file has too goes on as the file's.
        let overruled = next.overruled.remove(&id);
        if !overruled {
            next.agents.remove(&id);
        }
        let before = self.former().clone();
        if !overruled {
            let left = time::write(i64::try_from(self.common.handle.now().as_millis()).unwrap_or(i64::MAX));
            self.former().insert(id.clone(), Former { enrolment: record.enrolment.clone(), left });
        }
        if let Err(why) = self.change(&config, next).await {
            *self.former() = before;
            return Err(why);
        }
        if !overruled {
            self.left().insert(id.clone(), record.enrolment.clone());
        }
        self.revoke(&id, &record.token).await;
        tracing::info!(agent = %id, by, "a registered agent is let go");
        Ok(())
    }

    /// Whether a caller of that name has tasks here: it would be their owner.
    async fn has_called(&self, tenant: &str, id: &AgentId) -> Result<bool, Denial> {
        let called = self.common.handle.has_called(tenant, id.as_str()).await;
        called.map_err(|_| Denial::Unwritten("whose name that was cannot be looked up".to_owned()))
    }

    /// Whether there is room for one more.
    fn room(&self, config: &Config, enrolment: &Enrolment, id: &AgentId) -> Result<(), Denial> {
        let (most, name) = (enrolment.max_agents as usize, &enrolment.name);
        let now = config.registered.values().filter(|record| record.enrolment == *name).count();
        if now >= most || config.registered.len() >= MAX_AGENTS {
            return Err(Denial::Full(format!("there are {now} agents already, as many as there may be (max_agents)")));
        }
        let left = self.left();
        let gone = left.iter().filter(|(other, by)| *by == name && *other != id).count();
        if now + gone >= most * NAMES {
            let text =
                format!("{gone} agents have come and gone since the start, and their names are still remembered");
            return Err(Denial::Full(text));
        }
        Ok(())
    }

    /// Writes who is registered, and lets it come into force. If it cannot, all is as it was.
    async fn change(&self, before: &Config, next: Config) -> Result<(), Denial> {
        let path = registry::place(&self.began().store);
        if let Err(why) = self.write(path.clone(), next.registered.clone()).await {
            // It may be in its place all the same, and only the last sync have failed.
            let _told = self.write(path, before.registered.clone()).await;
            return Err(why);
        }
        match self.put(Arc::new(next)).await {
            Ok(_) => Ok(()),
            Err(why) => {
                tracing::error!(error = why, "who is registered could not be put in force");
                self.write(path, before.registered.clone()).await?;
                Err(Denial::Unwritten(why))
            }
        }
    }

    async fn write(&self, path: std::path::PathBuf, records: Records) -> Result<(), Denial> {
        let shown = path.display().to_string();
        let former = self.former().clone();
        let written = blocking(move || registry::write(&path, &records, &former)).await;
        written.map_err(|error| {
            tracing::error!(%error, path = shown, "who is registered cannot be written: nobody is let in or out");
            Denial::Unwritten("who is registered cannot be written".to_owned())
        })
    }

    /// A token in the file of tokens, as `watertight token` makes it. It counts when its agent is registered.
    async fn mint(&self, config: &Config, id: &AgentId, record: &Record) -> Result<String, Denial> {
        let (key, key_file, path) = (self.common.key.clone(), config.key.path.clone(), self.began().tokens.clone());
        let (name, record) = (id.as_str().to_owned(), record.clone());
        let tokens = self.common.tokens.clone();
        let known = config.registered.values().map(|record| record.token.clone()).collect::<Vec<_>>();
        let minted = blocking(move || {
            same_key(&key, &key_file)?;
            let token = tokens::mint().map_err(|e| io::Error::other(e.to_string()))?;
            let stored = Stored {
                id: record.token,
                name: name.clone(),
                tenant: record.tenant.clone(),
                scopes: vec![Scope::Caller],
                agents: None,
                agent: Some(name.clone()),
                created: record.created,
                expires: None,
                enrolment: Some(record.enrolment),
                hash: tokens::hash(&key, &token),
            };
            let added = tokens::edit(&path, |all| {
                // What a crash left between the two files: its agent never was registered.
                all.retain(|other| other.enrolment.is_none() || known.contains(&other.id));
                let taken = |other: &Stored| {
                    other.id == stored.id
                        || other.agent.as_ref() == Some(&name)
                        || (other.tenant == record.tenant && other.name == name)
                };
                if all.iter().any(taken) {
                    return Ok(false);
                }
                all.push(stored);
                Ok(true)
            })?;
            tokens.refresh(&path);
            Ok(added.then_some(token))
        });
        match minted.await {
            Ok(token) => token.ok_or(Denial::Taken),
            Err(error) => {
                tracing::error!(%error, "no token can be made: nobody is let in");
                Err(Denial::Unwritten("no token can be made".to_owned()))
            }
        }
    }

    /// Takes a token out of the file. It opens nothing already.
    async fn revoke(&self, agent: &AgentId, id: &str) {
        let (path, id, tokens) = (self.began().tokens.clone(), id.to_owned(), self.common.tokens.clone());
        let gone = blocking(move || {
            tokens::edit(&path, |all| {
                all.retain(|token| token.id != id);
                Ok(())
            })?;
            tokens.refresh(&path);
            Ok(())
        });
        if let Err(error) = gone.await {
            tracing::warn!(%agent, %error, "a token that opens nothing any more could not be taken out of the token file");
        }
    }

    /// Where the files are that this process uses, whatever a reload says of the next.
    fn began(&self) -> Arc<Config> {
        self.locked().began.clone()
    }

    /// A name that the file has had since is not theirs any more.
    pub(super) fn forget_left(&self, next: &Config) {
        self.left().retain(|name, _| !next.agents.contains_key(name));
    }

    fn former(&self) -> std::sync::MutexGuard<'_, Formers> {
        self.former.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn left(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<AgentId, String>> {
        self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A token that is hashed under a key which is gone with the process would be worth nothing after it.
fn same_key(key: &InstanceKey, path: &std::path::Path) -> io::Result<()> {
    let kept = InstanceKey::load(path)?;
    let probe = key.mac("probe", b"");
    match kept.macs("probe", b"").any(|other| other == probe) {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} holds another key than the one in use: restart", path.display()))),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

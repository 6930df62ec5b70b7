//! The token file: read whole, written whole under another name and renamed, so that a reader sees the old one or the
//! new one. Two writers wait for each other at a lock beside it. No token is in it, only hashes under the instance key.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::replace::{beside, private, replace};

/// More is a mistake, or an attack on our memory.
const MAX_TOKENS: usize = 10_000;
const MAX_BYTES: u64 = 8 << 20;
/// Another writer is done within a moment.
const PATIENCE: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// A token as it is stored: everything but itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// What it is listed and revoked by.
    pub id: String,
    /// Whose it is: what keys, logs and metrics say.
    pub name: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// What it is good for.
    pub scopes: Vec<Scope>,
    /// The agents that may be called with it; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The agent that calls with it; `None`: no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// From when on it is not good any more, RFC 3339; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Of an agent that registered itself: which enrolment let it in. It counts as long as the agent is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<String>,
    /// Its hash under the instance key, in hex.
    pub hash: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    tokens: Vec<Stored>,
}

/// All tokens in the file; none if it is not there.
pub fn read(path: &Path) -> io::Result<Vec<Stored>> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(wrong(format!("larger than {MAX_BYTES} bytes")));
    }
    let written: Written = serde_json::from_str(&text).map_err(|e| wrong(format!("no token file: {e}")))?;
    match (written.version, written.tokens.len()) {
        (1, n) if n <= MAX_TOKENS => {}
        (1, n) => return Err(wrong(format!("it holds {n} tokens, and at most {MAX_TOKENS} are read"))),
        (version, _) => return Err(wrong(format!("version {version} is not known here"))),
    }
    for token in &written.tokens {
        token.check().map_err(|what| wrong(format!("token {}: {what}", token.id)))?;
    }
    Ok(written.tokens)
}

/// Changes the file, alone. What `change` refuses leaves it as it was.
pub fn edit<T>(path: &Path, change: impl FnOnce(&mut Vec<Stored>) -> io::Result<T>) -> io::Result<T> {
    let _alone = lock(&beside(path, ".lock"))?;
    let mut tokens = read(path)?;
    let done = change(&mut tokens)?;
    if tokens.len() > MAX_TOKENS {
        return Err(wrong(format!("there are {MAX_TOKENS} tokens already; revoke some")));
    }
    let mut text = serde_json::to_vec_pretty(&Written { version: 1, tokens }).map_err(io::Error::other)?;
    text.push(b'\n');
    // A revocation must survive a loss of power too.
    replace(path, &text)?;
    Ok(done)
}

impl Stored {
    fn check(&self) -> Result<(), &'static str> {
        if self.hash().is_none() {
            return Err("its hash is not 64 hex digits");
        }
        match self.expires.as_deref().map(watertight_a2a::time::parse) {
            Some(None) => Err("its expiry is no RFC 3339 time"),
            Some(Some(_)) | None => Ok(()),
        }
    }

    /// The hash, as bytes.
    pub(super) fn hash(&self) -> Option<[u8; 32]> {
        let mut hash = [0; 32];
        if self.hash.len() != 64 || !self.hash.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(self.hash.get(at..at + 2)?, 16).ok()?;
        }
        Some(hash)
    }

    /// When it ends, in milliseconds since the epoch.
    pub fn expires_ms(&self) -> Option<u64> {
        let at = self.expires.as_deref().and_then(watertight_a2a::time::parse)?;
        Some(u64::try_from(at).unwrap_or(0))
    }
}

/// Held until it is dropped. The file stays: removing it would let two hold it.
fn lock(path: &Path) -> io::Result<File> {
    let file = private().truncate(false).open(path)?;
    for _ in 0..PATIENCE {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, format!("{} is held by another process", path.display())))
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

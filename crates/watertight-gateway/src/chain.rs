//! What an agent is given with each message, to show for which delegation it works: `metadata["x-delegation"]`.
//!
//! Opaque to agents: `wd1.PAYLOAD.MAC` in base64url; the payload is the tree's root, the task, and the agent that it was
//! given to, the MAC is HMAC-SHA256 under the instance key (either of two, while one is being replaced). Whoever has one
//! can charge that task and nothing else, so it is no credential, and may be passed on. Assumes that metadata may
//! have come through another gateway: what is not ours, or not whole, is as good as nothing. Leaves out what a
//! task is then charged with; that is the engine's.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;
use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::input::Held;

use crate::config::InstanceKey;

/// How a token begins: what it is, and its version.
const BEGIN: &str = "wd1.";
/// Keeps this use of the key apart from others.
const PURPOSE: &str = "x-delegation 1";
/// Longer than any that we make.
const MAX_BYTES: usize = 512;

/// Makes and reads tokens.
#[derive(Debug)]
pub(crate) struct Chain {
    key: InstanceKey,
}

impl Chain {
    pub(crate) const fn new(key: InstanceKey) -> Chain {
        Chain { key }
    }

    /// The token for an agent that is given this task.
    pub(crate) fn token(&self, root: TaskId, task: TaskId, holder: &AgentId) -> String {
        let mut payload = Vec::with_capacity(32 + holder.as_str().len());
        payload.extend_from_slice(&root.0.to_be_bytes());
        payload.extend_from_slice(&task.0.to_be_bytes());
        payload.extend_from_slice(holder.as_str().as_bytes());
        let mut text = BEGIN.to_owned();
        URL_SAFE_NO_PAD.encode_string(&payload, &mut text);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(self.key.mac(PURPOSE, &payload), &mut text);
        text
    }

    /// What a token says, if it is ours and whole.
    pub(crate) fn read(&self, text: &str) -> Option<Held> {
        let (payload, mac) = text.strip_prefix(BEGIN).filter(|_| text.len() <= MAX_BYTES)?.split_once('.')?;
        let (payload, mac) = (URL_SAFE_NO_PAD.decode(payload).ok()?, URL_SAFE_NO_PAD.decode(mac).ok()?);
        if !self.key.macs(PURPOSE, &payload).any(|ours| bool::from(ours.as_slice().ct_eq(&mac))) {
            return None;
        }
        let (ids, holder) = payload.split_at_checked(32)?;
        let task = u128::from_be_bytes(ids.get(16..)?.try_into().ok()?);
        Some(Held { task: TaskId(task), holder: AgentId::new(std::str::from_utf8(holder).ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ids: &[&str]) -> InstanceKey {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let lines: String = ids.iter().map(|id| format!("{id} {}\n", id.repeat(32))).collect();
        std::fs::write(&path, format!("watertight-key 1\n{lines}")).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        InstanceKey::load(&path).unwrap()
    }

    fn held(chain: &Chain) -> (String, Held) {
        let (task, holder) = (TaskId(7), AgentId::new("hotels"));
        (chain.token(TaskId(3), task, &holder), Held { task, holder })
    }

    #[test]
    fn what_is_made_is_read_and_fits_everywhere() {
        let chain = Chain::new(key(&["a1"]));
        let (token, held) = held(&chain);
        assert_eq!(chain.read(&token), Some(held));
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{token}");
        let longest = chain.token(TaskId(u128::MAX), TaskId(u128::MAX), &AgentId::new(&"x".repeat(64)));
        assert!(longest.len() < MAX_BYTES && chain.read(&longest).is_some());
    }

    #[test]
    fn two_keys_stand_while_one_is_replaced() {
        let (old, both, new) = (Chain::new(key(&["a1"])), Chain::new(key(&["b2", "a1"])), Chain::new(key(&["b2"])));
        let (token, held) = held(&old);
        assert_eq!(both.read(&token), Some(held.clone()));
        assert_eq!(new.read(&token), None);
        assert_eq!(new.read(&both.token(TaskId(3), held.task, &held.holder)), Some(held));
    }

    #[test]
    fn forged_truncated_and_foreign_ones_are_nothing() {
        let chain = Chain::new(key(&["a1"]));
        let (token, _) = held(&chain);
        for len in 0..token.len() {
            assert_eq!(chain.read(&token[..len]), None, "{len}");
            let mut other = token.clone().into_bytes();
            other[len] = if other[len] == b'A' { b'B' } else { b'A' };
            assert_eq!(chain.read(&String::from_utf8(other).unwrap()), None, "{len}");
        }
        let foreign = held(&Chain::new(key(&["c3"]))).0;
        let payload = token.split('.').nth(1).unwrap();
        for text in [foreign.as_str(), "", "wd1.", "wd1..", "wd2.x.y", &format!("wd1.{payload}."), &"x".repeat(100_000)]
        {
            assert_eq!(chain.read(text), None, "{}", &text[..text.len().min(80)]);
        }
    }
}

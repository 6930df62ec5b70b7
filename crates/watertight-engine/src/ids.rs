//! Names of things. Every id is minted outside (the OS is the only source of randomness for ids); the engine compares
//! and orders them, and never parses one.

use std::fmt;
use std::sync::Arc;

/// A delegation's id: the A2A task id that callers see. Time-ordered (48 bits of Unix milliseconds, then random bits),
/// so that the store appends; printed as 32 hex digits.
///
/// Aligned like a word: there are many of them beside words, in indexes of what waits, and no byte is lost between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))]
pub struct TaskId(pub u128);

impl TaskId {
    /// Reads what [`fmt::Display`] wrote. Anything else is `None`: an id that was never given out.
    pub fn parse(text: &str) -> Option<TaskId> {
        let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        plain.then(|| u128::from_str_radix(text, 16).ok().map(TaskId)).flatten()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every call writes several; the formatter's own way costs ten times as much.
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0.to_be_bytes()) {
            for (digit, half) in pair.iter_mut().zip([byte >> 4, byte & 0xf]) {
                *digit = b"0123456789abcdef"[usize::from(half)];
            }
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", { self.0 })
    }
}

/// A configured agent's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub Arc<str>);

impl AgentId {
    /// The agent of this name.
    pub fn new(name: &str) -> AgentId {
        AgentId(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who calls. It comes from the credential alone and is part of every key; scopes are judged before the engine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Principal {
    /// The tenant that the caller belongs to.
    pub tenant: Arc<str>,
    /// The caller's name inside its tenant.
    pub caller: Arc<str>,
}

/// Whose outbox it is: what comes of what an agent delegated is for the agent, whichever of its credentials it used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// An agent of this tenant.
    Agent(Arc<str>, AgentId),
    /// A caller that is no agent.
    Caller(Principal),
}

/// One open request of a caller that waits for an answer. Unique for the life of the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LineId(pub u64);

/// One try at delivering a turn: counts up over the whole life of a delegation, so that a late answer of an abandoned
/// attempt is told by comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attempt(pub u32);

/// An id that the agent gave (its task id or context id). Opaque.
pub type RemoteId = Arc<str>;

/// What dedupe compares: a hash over role, parts, taskId, contextId and referenceTaskIds.
pub type Fingerprint = u128;

/// (tenant, caller, agent, messageId).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// Whose message it is.
    pub principal: Principal,
    /// To whom.
    pub agent: AgentId,
    /// The caller's messageId, or the key that it gave in its place.
    pub message_id: Arc<str>,
}

/// (tenant, caller, agent, the contextId that the caller sees).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ContextKey {
    /// Whose context it is.
    pub principal: Principal,
    /// With whom.
    pub agent: AgentId,
    /// As the caller knows it.
    pub context: Arc<str>,
}

impl ContextKey {
    /// What stands for all work of one agent, whoever asked for it. No caller's context is called so.
    pub(crate) fn whole_agent(agent: &AgentId) -> ContextKey {
        let nobody: Arc<str> = "".into();
        let principal = Principal { tenant: nobody.clone(), caller: nobody.clone() };
        ContextKey { principal, agent: agent.clone(), context: nobody }
    }

    /// See [`ContextKey::whole_agent`].
    pub(crate) fn is_whole_agent(&self) -> bool {
        self.context.is_empty()
    }
}

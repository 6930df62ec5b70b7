//! Conversations that agents were called in lately: what an agent sends on in one, after its turn is over, is known by it as part
//! of the tree that it was called for. Two agents that thank each other for ever are found by nothing else: no call of theirs
//! is under way when the next one is made, and each is in a context of its own, since what one is called in the other never saw.
//!
//! Only ever says to which tree a message belongs, which counts for its rate, and costs nobody any budget. It is memory alone,
//! like the rates, and as short: a cell that is loaded again begins anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use watertight_policy::time::{Span, Time};

use crate::ids::{AgentId, RemoteId, TaskId};

/// Conversations that are remembered: about 8 MiB.
const MAX: usize = 1 << 16;

/// What an agent did in a context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Former {
    pub(crate) agent: AgentId,
    pub(crate) tenant: Arc<str>,
    pub(crate) root: TaskId,
    pub(crate) depth: u32,
    at: Time,
}

/// What agents did lately, by the contexts that they were called in.
#[derive(Debug, Default)]
pub(crate) struct Conversations {
    by_context: BTreeMap<RemoteId, Former>,
    /// In the order in which they were noted; what was noted again since stands there twice.
    order: VecDeque<(Time, RemoteId)>,
}

impl Conversations {
    /// A turn of this agent's is over.
    pub(crate) fn note(
        &mut self,
        now: Time,
        window: Span,
        context: &RemoteId,
        by: (&AgentId, &Arc<str>),
        of: (TaskId, u32),
    ) {
        let former = Former { agent: by.0.clone(), tenant: by.1.clone(), root: of.0, depth: of.1, at: now };
        self.by_context.insert(context.clone(), former);
        self.order.push_back((now, context.clone()));
        while let Some((at, oldest)) =
            self.order.front().filter(|(at, _)| self.order.len() > MAX || *at + window <= now)
        {
            if self.by_context.get(oldest).is_some_and(|former| former.at == *at) {
                self.by_context.remove(oldest);
            }
            self.order.pop_front();
        }
    }

    /// What was done in this context, by this agent if it is known who calls.
    pub(crate) fn of(&self, now: Time, window: Span, context: &RemoteId, agent: Option<&AgentId>) -> Option<&Former> {
        let former = self.by_context.get(context)?;
        (former.at + window > now && agent.is_none_or(|agent| *agent == former.agent)).then_some(former)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Span = Span::from_secs(120);

    fn noted(all: &mut Conversations, n: u64, context: &str) {
        let (agent, tenant) = (AgentId::new("a"), "acme".into());
        all.note(Time::from_millis(n), WINDOW, &context.into(), (&agent, &tenant), (TaskId(n.into()), 0));
    }

    fn root(all: &Conversations, now: u64, context: &str) -> Option<TaskId> {
        all.of(Time::from_millis(now), WINDOW, &context.into(), None).map(|former| former.root)
    }

    #[test]
    fn the_last_word_counts_and_is_forgotten_in_time() {
        let mut all = Conversations::default();
        noted(&mut all, 1, "x");
        noted(&mut all, 2, "y");
        noted(&mut all, 60_000, "x");
        noted(&mut all, 120_001, "z");
        assert_eq!(root(&all, 120_001, "x"), Some(TaskId(60_000)), "noted again since");
        assert_eq!(root(&all, 120_001, "y"), Some(TaskId(2)));
        noted(&mut all, 120_002, "z");
        assert_eq!((root(&all, 120_002, "y"), all.by_context.len()), (None, 2));
        assert_eq!(root(&all, 180_000, "x"), None);
        let another = AgentId::new("b");
        assert_eq!(all.of(Time::from_millis(120_003), WINDOW, &"z".into(), Some(&another)), None);
    }

    #[test]
    fn it_is_bounded() {
        let mut all = Conversations::default();
        for n in 0..MAX as u64 + 10 {
            noted(&mut all, 1, &n.to_string());
        }
        assert_eq!((all.by_context.len(), all.order.len()), (MAX, MAX));
    }
}

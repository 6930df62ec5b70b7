//! A delegation that failed is run again, as a new one with a link to the first. Nothing of the old one changes.
//!
//! Its messageId is fresh, so that an agent which knows messageIds takes it for the new wish that it is. Here it is known
//! by the task that it repeats: whoever asks twice gets one repetition, and who asks again after that has failed too gets
//! the next one, linked to the very first.

use std::sync::Arc;

use watertight_a2a::call::{Call, Send};
use watertight_a2a::edit;
use watertight_a2a::jsonrpc::Method;
use watertight_engine::ids::{AgentId, Key, Principal, TaskId};
use watertight_engine::input::WireBudget;
use watertight_engine::record::{Row, TaskState};
use watertight_policy::reason::Reason;

use super::{Declined, Handle, NewCall, Want, Whose};
use crate::clock::mint_context;
use crate::http::auth::Who;
use crate::hub::Message;

/// Repetitions of repetitions that are followed to the last one.
const MAX_CHAIN: usize = 256;

/// What came of a wish to run a delegation again.
#[derive(Clone, Debug)]
pub struct Redriven {
    /// The new delegation.
    pub task: TaskId,
    /// The very first one.
    pub first: TaskId,
    /// How it stands.
    pub state: TaskState,
    /// It was asked for before, and is under way.
    pub replay: bool,
}

/// Why it was not run again.
#[derive(Clone, Debug)]
pub enum NotRedriven {
    /// There is no such delegation, or it is not for who asks.
    NotFound,
    /// It is not over.
    GoesOn,
    /// It, or what was run in its place, came to a good end.
    Completed(TaskId),
    /// Its message is not kept any more, or never was.
    NoMessage,
    /// The walls did not take it on.
    Declined(AgentId, Declined),
    /// It could not be looked up.
    Unreadable(Reason),
}

/// What a message is known by that came with a key of its caller's. No messageId is mistaken for it.
pub fn key_of(given: &str) -> Arc<str> {
    format!("\u{1}key:{given}").into()
}

/// What the repetition of a task is known by.
fn redrive_of(task: TaskId) -> Arc<str> {
    format!("\u{1}redrive:{task}").into()
}

impl Handle {
    /// Runs a delegation again that is over and did not come to a good end, for the caller whose it is.
    pub async fn redrive(&self, whose: Whose, by: &Who, task: TaskId) -> Result<Redriven, NotRedriven> {
        if self.shared.shelf.row(task).is_some_and(|row| whose.sees(&row)) {
            return Err(NotRedriven::NoMessage);
        }
        let found = self.delegation(whose, task).await.map_err(NotRedriven::Unreadable)?;
        let mut last = found.ok_or(NotRedriven::NotFound)?;
        for _ in 0..MAX_CHAIN {
            let by = self.redriven_by(&last.principal, &last.agent, last.task).await;
            let Some(next) = by.map_err(NotRedriven::Unreadable)? else { break };
            let whose = Whose::Own(last.principal.clone());
            match self.delegation(whose, next).await.map_err(NotRedriven::Unreadable)? {
                Some(next) => last = next,
                None => break,
            }
        }
        let first = last.redrives.unwrap_or(task);
        if last.state == TaskState::Completed {
            return Err(NotRedriven::Completed(last.task));
        }
        if last.state.is_terminal() {
            return self.run_again(&last, first, by).await;
        }
        // Of the task itself that is told; what was run in its place is what was asked for.
        if last.task == task {
            return Err(NotRedriven::GoesOn);
        }
        Ok(Redriven { task: last.task, first, state: last.state, replay: true })
    }

    async fn run_again(&self, old: &Row, first: TaskId, by: &Who) -> Result<Redriven, NotRedriven> {
        let (store, task) = (self.shared.store.clone(), old.task);
        let read = self.blocking(move || store.message(task, 1)).await.map_err(NotRedriven::Unreadable)?;
        let message = read.and_then(|body| Message::from_bytes(body.bytes)).ok_or(NotRedriven::NoMessage)?;
        let minted = mint_context(self.now()).map_err(|_| NotRedriven::Unreadable(Reason::Internal))?;
        let params = edit::with_message_id(&message.params, &format!("redrive-{minted}"));
        let Ok(Call::Send(Send { mut peek, params })) = Call::parse(Method::SendMessage, Some(params)) else {
            return Err(NotRedriven::NoMessage);
        };
        // Whom it was for may be over; it is run for whoever asks now.
        peek.delegation = None;
        let call = NewCall {
            principal: old.principal.clone(),
            // Its own caller may what its credential allows; an operator asks for what its caller may.
            who: (by.principal == old.principal).then(|| Arc::new(by.clone())),
            agent: old.agent.clone(),
            params: params.into_bytes(),
            peek,
            want: Want::Accepted,
            wait: None,
            // Whatever it had is spent, and whoever started it may be over.
            budget: WireBudget::default(),
            queue: Default::default(),
            parent: None,
            from: None,
            trace: message.trace,
            key: Some(redrive_of(old.task)),
            redrives: Some(first),
            outbox: old.outbox.clone(),
        };
        let accepted = self.submit(call).await.map_err(|why| NotRedriven::Declined(old.agent.clone(), why))?;
        Ok(Redriven { task: accepted.task, first, state: accepted.view.state, replay: accepted.replay })
    }

    /// The delegation that was run in the place of this one, within the window in which messageIds are known.
    pub(crate) async fn redriven_by(
        &self,
        principal: &Principal,
        agent: &AgentId,
        task: TaskId,
    ) -> Result<Option<TaskId>, Reason> {
        let key = Key { principal: principal.clone(), agent: agent.clone(), message_id: redrive_of(task) };
        let store = self.shared.store.clone();
        if store.is_new_key(&key) {
            return Ok(None);
        }
        let found = self.blocking(move || store.key(&key)).await?;
        Ok(found.map(|known| known.task))
    }
}

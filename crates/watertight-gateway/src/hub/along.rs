//! What goes along with what an agent is asked about one task, beside the task itself.

use std::sync::{Mutex, OnceLock, PoisonError};

use watertight_a2a::json::Json;

use crate::agents::Named;

/// What callers said of a live task that is not part of any message.
#[derive(Debug, Default)]
pub(crate) struct Along {
    /// What the caller that began it named toward the agent, once an attempt has looked.
    named: OnceLock<Named>,
    /// The metadata of the last cancel. Only here: a cancel that is owed after a restart goes without it.
    canceled_with: Mutex<Option<Json>>,
}

impl Along {
    /// What was named, looked for at the first time.
    pub(crate) fn named_or(&self, look: impl FnOnce() -> Named) -> &Named {
        self.named.get_or_init(look)
    }

    pub(crate) fn named(&self) -> Option<&Named> {
        self.named.get()
    }

    /// A caller asks for a cancel, and says this with it.
    pub(crate) fn cancel_with(&self, said: Option<Json>) {
        *self.canceled_with.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    pub(crate) fn said_with_cancel(&self) -> Option<Json> {
        self.canceled_with.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

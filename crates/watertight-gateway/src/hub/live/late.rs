//! What an agent says after the verdict: gathered while its attempt is still listened to, shown to nobody here.

use watertight_a2a::event::Event as Heard;
use watertight_a2a::record::Record;
use watertight_engine::record::TaskState;
use watertight_policy::time::Time;

use super::{Inner, Live};
use crate::hub::view::millis;
use crate::states::state_of;

/// Bytes of it. What would be more is not taken, nor how it says that it ended with that.
const MAX_BYTES: usize = 1 << 20;

impl Live {
    /// How the agent says that it ended, and what it says then, if it has.
    pub(crate) fn take_late(&self) -> Option<(TaskState, String)> {
        let mut inner = self.lock();
        let said = inner.late.take_if(|late| state_of(late.state()).is_terminal())?;
        Some((state_of(said.state()), said.said().into_content().text()))
    }
}

impl Inner {
    /// An agent that does not stop must not fill the memory with what nobody waits for.
    pub(super) fn hear_late(&mut self, heard: &Heard, now: Time) {
        let (task, context) = (self.shown.task_id(), self.shown.context_id());
        let late = self.late.get_or_insert_with(|| Box::new(Record::new(task, context, millis(now))));
        if late.bytes() + heard.raw.as_bytes().len() <= MAX_BYTES {
            late.apply(heard, millis(now));
        }
    }
}

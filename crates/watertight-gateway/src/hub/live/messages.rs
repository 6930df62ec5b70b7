//! The callers' messages of one delegation, until they are sent.

use std::sync::Arc;

use super::Live;
use crate::hub::kept::Message;

impl Live {
    /// The caller's message of a turn becomes part of the history; it is kept for sending if `room`. How many bytes
    /// of older ones were dropped.
    pub(crate) fn take_message(&self, turn: u32, message: &Message, room: bool) -> usize {
        let mut inner = self.lock();
        if let Some(said) = message.params.value().get("message") {
            let said = message.params.part(said);
            Arc::make_mut(&mut inner.shown).add_client_message(&said);
            if let Some(ahead) = &mut inner.ahead {
                Arc::make_mut(ahead).add_client_message(&said);
            }
        }
        let old = inner.to_send.take();
        inner.to_send = room.then(|| (turn, message.clone()));
        old.map_or(0, |(_, old)| old.params.as_bytes().len())
    }

    pub(crate) fn message(&self, turn: u32) -> Option<Message> {
        self.lock().to_send.as_ref().filter(|(no, _)| *no == turn).map(|(_, message)| message.clone())
    }

    /// Where the caller of a turn is served.
    pub(crate) fn home(&self, turn: u32) -> Option<tokio::runtime::Handle> {
        self.lock().to_send.as_ref().filter(|(no, _)| *no == turn).and_then(|(_, message)| message.home.0.clone())
    }

    pub(crate) fn drop_messages(&self) -> usize {
        self.lock().to_send.take().map_or(0, |(_, old)| old.params.as_bytes().len())
    }
}

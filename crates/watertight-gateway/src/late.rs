//! What an agent says of a task after the verdict on it: kept for people, beside the task, and changes nothing.
//!
//! The first such word of a task counts. Leaves out what is kept in memory alone, which goes with the process.

use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};
use watertight_engine::ids::TaskId;
use watertight_engine::record::TaskState;
use watertight_store::Late;

use crate::driver::shared::Shared;

/// Bytes of its text that are kept.
const MAX_BYTES: usize = 256 << 10;

/// Keeps it. Whether that is durable is known when this has ended.
pub(crate) fn keep(shared: &Arc<Shared>, task: TaskId, state: TaskState, mut text: String) -> JoinHandle<bool> {
    let bytes = text.len() as u64;
    text.truncate(text.floor_char_boundary(MAX_BYTES));
    let late = Late { task, at: shared.clock.now(), state, bytes, text };
    let shared = shared.clone();
    spawn_blocking(move || match shared.store.keep_late(late) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%task, %error, "what the agent said too late could not be kept");
            false
        }
    })
}

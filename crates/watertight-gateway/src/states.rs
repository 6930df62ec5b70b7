//! Where the wire's task states and the engine's meet. What the engine does not know counts as at work.

use watertight_a2a::canonical;
use watertight_a2a::event::TaskState as Wire;
use watertight_engine::record::{Digest, TaskState};

/// A wire state as the engine knows it.
pub(crate) fn state_of(state: &Wire) -> TaskState {
    match state {
        Wire::Submitted => TaskState::Submitted,
        Wire::Working | Wire::Unspecified | Wire::Unknown(_) => TaskState::Working,
        Wire::Completed => TaskState::Completed,
        Wire::Failed => TaskState::Failed,
        Wire::Canceled => TaskState::Canceled,
        Wire::InputRequired => TaskState::InputRequired,
        Wire::Rejected => TaskState::Rejected,
        Wire::AuthRequired => TaskState::AuthRequired,
    }
}

/// The engine's state on the wire.
pub(crate) fn wire_state(state: TaskState) -> Wire {
    Wire::of_name(state.as_str())
}

/// A digest of the wire's, for the engine.
pub(crate) fn digest_of(digest: canonical::Digest) -> Digest {
    Digest { bytes: digest.bytes, sha256: digest.sha256 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_comes_back_as_itself() {
        for state in TaskState::ALL {
            assert_eq!(state_of(&wire_state(state)), state);
        }
        assert_eq!(state_of(&Wire::of_name("TASK_STATE_PAUSED")), TaskState::Working);
    }
}

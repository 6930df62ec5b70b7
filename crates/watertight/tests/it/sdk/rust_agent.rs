//! Clients of every SDK, and an agent made with the Rust one.

use super::{Deviation, Sdk, cells};

const AGENT: Sdk = Sdk::Rust;

/// What the SDK does otherwise than the protocol says, and the gateway makes good.
const DEVIATIONS: &[Deviation] = &[
    // Its lists are sorted by id.
    ("list", "not the newest first"),
    // It knows no task that waits for its caller.
    ("subscribe_input_required", "TaskNotFoundError"),
];

cells! {
    python_over_jsonrpc: Python over JsonRpc,
    python_over_rest: Python over Rest,
    js_over_jsonrpc: Js over JsonRpc,
    js_over_rest: Js over Rest,
}

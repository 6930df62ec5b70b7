//! Clients of every SDK, and an agent made with the JavaScript one.

use super::{Deviation, Sdk, cells};

const AGENT: Sdk = Sdk::Js;

const DEVIATIONS: &[Deviation] = &[];

cells! {
    python_over_jsonrpc: Python over JsonRpc,
    python_over_rest: Python over Rest,
    js_over_jsonrpc: Js over JsonRpc,
    js_over_rest: Js over Rest,
}

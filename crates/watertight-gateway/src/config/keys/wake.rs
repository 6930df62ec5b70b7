//! The keys of an agent's wake hook.

use super::{KEY, Key, Kind, Read, Value};
pub(super) const KEYS: &[Key] = &[
    Key {
        path: "agents.*.wake.url",
        kind: Kind::Url,
        otherwise: "none",
        example: "\"http://127.0.0.1:9100/wake\"",
        doc: "Posted to with `{\"agent\": NAME, \"waiting\": N}`.",
        more: "It wakes the agent, or asks somebody who does. What waits meanwhile waits with `agent_asleep`.",
        read: Read::Agent(|a| Value::text(a.wake.url.as_ref())),
        ..KEY
    },
    Key {
        path: "agents.*.wake.command",
        kind: Kind::Command,
        otherwise: "none",
        example: "[\"/usr/bin/systemctl\", \"start\", \"hotels\"]",
        doc: "Run as it is written, without a shell and with an environment of its own.",
        more: "It finds WATERTIGHT_AGENT, WATERTIGHT_WAITING and a PATH there. At its timeout it is killed, with all that it \
               started and did not let go.",
        read: Read::Agent(|a| Value::list(&a.wake.command)),
        ..KEY
    },
    Key {
        path: "agents.*.wake.cooldown",
        kind: Kind::Duration,
        default: Some("\"30s\""),
        doc: "Between two calls of the hook, at least.",
        more: "About as long as the agent takes to start. It is looked at meanwhile, after 0.5 s, 1 s, 2 s and so on.",
        read: Read::Agent(|a| Value::Span(a.wake.cooldown)),
        ..KEY
    },
    Key {
        path: "agents.*.wake.timeout",
        kind: Kind::Duration,
        default: Some("\"10s\""),
        least: ">0",
        doc: "How long the hook may take.",
        more: "It only has to begin to wake the agent.",
        read: Read::Agent(|a| Value::time(a.wake.timeout)),
        ..KEY
    },
];

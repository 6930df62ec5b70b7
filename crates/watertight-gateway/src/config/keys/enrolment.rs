//! The keys of those who may register agents.

use super::{KEY, Key, Kind, Read, Value};

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "enrolment.*.secret",
        kind: Kind::Secret,
        required: true,
        example: "\"env:CREW_SECRET\"",
        doc: "What an agent shows to register: it gets a token of its own for it.",
        more: "Whoever has it may register agents, and do nothing else. Another secret lets nobody in by the old one; \
               those that are registered stay.",
        read: Read::Enrolment(|_| Value::Secret),
        ..KEY
    },
    Key {
        path: "enrolment.*.tenant",
        kind: Kind::Name,
        otherwise: "the enrolment's own name",
        example: "\"travel\"",
        doc: "The tenant that its agents belong to.",
        more: "Those that are registered keep the one that they came with.",
        read: Read::Enrolment(|e| Value::Text(e.tenant.clone())),
        ..KEY
    },
    Key {
        path: "enrolment.*.parent",
        kind: Kind::Name,
        otherwise: "they stand under nobody",
        example: "\"hotels\"",
        doc: "The agent of this file under which its agents stand, where `server.access` is \"hierarchy\".",
        more: "One that registers may name another parent that is under this one, or was let in by the same enrolment.",
        read: Read::Enrolment(|e| Value::text(e.parent.as_ref())),
        ..KEY
    },
    Key {
        path: "enrolment.*.max_agents",
        kind: Kind::Count,
        default: Some("100"),
        least: "1",
        doc: "Agents that may be registered by it at once; one more is refused.",
        more: "An agent that leaves makes room, up to ten times as many names until the gateway is started again.",
        read: Read::Enrolment(|e| Value::Count(e.max_agents.into())),
        ..KEY
    },
    Key {
        path: "enrolment.*.allow",
        kind: Kind::Nets,
        otherwise: "none",
        example: "[\"10.0.0.0/8\"]",
        doc: "Networks where its agents may be beside the public internet.",
        more: "Strangers choose these URLs, so each connection's own address is judged, whatever its name led to before. \
               Redirects are not followed.",
        read: Read::Enrolment(|e| Value::list(&e.allow)),
        ..KEY
    },
];

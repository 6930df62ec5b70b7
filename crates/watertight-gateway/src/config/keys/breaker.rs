//! The keys of an agent's breaker.

use super::{KEY, Key, Kind, Read, Value};

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "agents.*.breaker.consecutive_failures",
        kind: Kind::Count,
        default: Some("5"),
        doc: "Failures in a row that stop traffic; 0 does not count them.",
        more: "Five chance failures in a row are rare, and a dead agent is found within seconds.",
        read: Read::Agent(|a| Value::Count(a.settings.breaker.consecutive_failures.into())),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.failure_rate",
        kind: Kind::Share,
        default: Some("\"50%\""),
        doc: "The share of failures in the window that stops traffic; 0% does not judge it.",
        more: "Lower for an agent whose failures are dear.",
        read: Read::Agent(|a| Value::Share(a.settings.breaker.failure_rate_bp)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.slow_call_rate",
        kind: Kind::Share,
        default: Some("\"0%\""),
        doc: "The share of slow calls in the window that stops traffic; 0% does not judge it.",
        more: "Agents are slow by nature, and the slots bound what that costs: for agents with a promise of speed only.",
        read: Read::Agent(|a| Value::Share(a.settings.breaker.slow_rate_bp)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.slow_call",
        kind: Kind::Duration,
        default: Some("\"10s\""),
        doc: "From which length on a good call is slow.",
        more: "Without effect while `slow_call_rate` is 0%.",
        read: Read::Agent(|a| Value::Span(a.settings.breaker.slow_call)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.window",
        kind: Kind::Duration,
        default: Some("\"30s\""),
        least: ">0",
        doc: "Over how long the shares are judged.",
        more: "Long enough to hold `min_calls` in usual traffic, short enough to forget.",
        read: Read::Agent(|a| Value::Span(a.settings.breaker.window)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.min_calls",
        kind: Kind::Count,
        default: Some("20"),
        doc: "Calls that the window must hold before a share is judged.",
        more: "Fewer for an agent that is called rarely; two of three is no statistic.",
        read: Read::Agent(|a| Value::Count(a.settings.breaker.min_calls.into())),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.min_wait",
        kind: Kind::Duration,
        default: Some("\"1s\""),
        doc: "A call that was cut after less time than this does not count as a failure.",
        more: "About what the agent needs when it is well, so that impatient callers cannot stop its traffic.",
        read: Read::Agent(|a| Value::Span(a.settings.breaker.min_wait)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.caller_share",
        kind: Kind::Share,
        default: Some("\"50%\""),
        least: ">0",
        doc: "Of the failures that count, the most that one caller may have, once three callers are seen.",
        more: "100% turns it off: then one caller can stop the agent's traffic for all.",
        read: Read::Agent(|a| Value::Share(a.settings.breaker.caller_share_bp)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.ejection_base",
        kind: Kind::Duration,
        default: Some("\"5s\""),
        least: ">0",
        doc: "How long traffic is stopped first; each failed trial doubles it.",
        more: "About what a restart of the agent takes.",
        read: Read::Agent(|a| Value::Span(a.settings.breaker.ejection_base)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.ejection_max",
        kind: Kind::Duration,
        default: Some("\"60s\""),
        otherwise: "or `ejection_base`, if that is longer",
        least: ">0",
        doc: "The longest that it is stopped between two trials.",
        more: "An agent that is well again waits no longer than this for its traffic.",
        read: Read::Agent(|a| Value::Span(a.settings.breaker.ejection_max)),
        ..KEY
    },
    Key {
        path: "agents.*.breaker.probe_timeout",
        kind: Kind::Duration,
        default: Some("\"30s\""),
        least: ">0",
        doc: "How long a trial may take before another may begin.",
        more: "Longer than the agent's slowest good answer.",
        read: Read::Agent(|a| Value::Span(a.settings.breaker.probe_timeout)),
        ..KEY
    },
];

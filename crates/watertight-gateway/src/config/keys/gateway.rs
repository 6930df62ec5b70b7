//! The keys of the gateway itself: its address, its store, its callers, its front door.

use super::{KEY, Key, Kind, Read, Reload, Value};

pub(super) const TOP: &[Key] = &[
    Key {
        path: "listen",
        kind: Kind::Address,
        default: Some("\"127.0.0.1:7420\""),
        doc: "Where it listens; another address than loopback needs callers or tokens.",
        more: "`localhost:PORT` means 127.0.0.1. Port 0 takes any free one, and the line that `serve` prints says which. \
               `serve --listen` outranks it.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::Text(c.listen.to_string())),
        ..KEY
    },
    Key {
        path: "key",
        kind: Kind::Path,
        default: Some("\"watertight.key\""),
        otherwise: "a key for this process alone, if the file is missing",
        doc: "The instance key, which hashes tokens; `watertight init` makes one.",
        more: "If it is named here, it has to be there. Nobody but its owner may read it.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::Text(c.key.path.display().to_string())),
        ..KEY
    },
    Key {
        path: "tokens",
        kind: Kind::Path,
        default: Some("\"tokens.json\""),
        doc: "The tokens that `watertight token` gives out and takes back.",
        more: "It holds hashes only. A running gateway sees a change within a second. Where there are tokens, the gateway \
               asks every caller for one.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::Text(c.tokens.display().to_string())),
        ..KEY
    },
];

pub(super) const STORE: &[Key] = &[
    Key {
        path: "store.path",
        kind: Kind::Path,
        default: Some("\"data\""),
        doc: "The directory of the store; it is made if it is missing.",
        more: "One process at a time has it. It should be on a disk that keeps what it acknowledged.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::Text(c.store.display().to_string())),
        ..KEY
    },
    Key {
        path: "store.retention",
        kind: Kind::Duration,
        default: Some("\"7d\""),
        doc: "How long a task that is over is kept.",
        more: "After that it is unknown. A task that is not over is never removed.",
        read: Read::Gateway(|c| Value::Span(c.kept.retention)),
        ..KEY
    },
    Key {
        path: "store.dedupe_window",
        kind: Kind::Duration,
        default: Some("\"24h\""),
        doc: "How long after its end a repetition of a task's messageId gets that task.",
        more: "At most `retention`. Longer than the longest time after which a caller may repeat itself.",
        read: Read::Gateway(|c| Value::Span(c.kept.dedupe_window)),
        ..KEY
    },
];

pub(super) const CALLERS: &[Key] = &[
    Key {
        path: "callers.*.token",
        kind: Kind::Secret,
        required: true,
        example: "\"env:TRAVEL_TOKEN\"",
        doc: "Where its bearer token is.",
        more: "`file:PATH` is read again at a reload, so that a token can be changed while the gateway runs; an \
               environment variable cannot. No two callers may have the same.",
        read: Read::Caller(|_| Value::Secret),
        ..KEY
    },
    Key {
        path: "callers.*.tenant",
        kind: Kind::Name,
        otherwise: "the caller's own name",
        example: "\"travel\"",
        doc: "The tenant that it belongs to.",
        more: "Part of every key of a task; callers of one tenant still do not see each other's tasks.",
        read: Read::Caller(|c| Value::Text(c.tenant.clone())),
        ..KEY
    },
    Key {
        path: "callers.*.agents",
        kind: Kind::Names,
        otherwise: "all",
        example: "[\"hotels\"]",
        doc: "The agents that it may call; to it, no others exist.",
        more: "An empty list lets it call none: for an operator that only looks.",
        read: Read::Caller(|c| match &c.agents {
            Some(agents) => Value::List(agents.iter().map(|agent| agent.as_str().to_owned()).collect()),
            None => Value::None,
        }),
        ..KEY
    },
    Key {
        path: "callers.*.weight",
        kind: Kind::Count,
        default: Some("1"),
        least: "1",
        doc: "How many of its waiting tasks go when it is its turn, among those of equal priority.",
        more: "Callers take turns at an agent's queue; one with weight 3 gets three slots where another gets one.",
        read: Read::Caller(|c| Value::Count(c.weight.into())),
        ..KEY
    },
    Key {
        path: "callers.*.agent",
        kind: Kind::Name,
        otherwise: "it is no agent",
        example: "\"hotels\"",
        doc: "The agent that calls with this token.",
        more: "What it sends is then known to come from that agent: cycles are found, and its own work is charged, \
               even if it passes nothing on of what it was given.",
        read: Read::Caller(|c| Value::text(c.agent.as_ref())),
        ..KEY
    },
    Key {
        path: "callers.*.outbox",
        kind: Kind::Flag,
        otherwise: "true for a caller with `agent`, else false",
        example: "true",
        doc: "Whether word of what it delegated is left in an outbox until it has read it.",
        more: "With `agent` it is that agent's, and all its callers' of one tenant; otherwise the caller's own. Each end of \
               a turn is then one more small entry in the same write.",
        read: Read::Caller(|c| Value::Flag(c.outbox.unwrap_or(c.agent.is_some()))),
        ..KEY
    },
    Key {
        path: "callers.*.operator",
        kind: Kind::Flag,
        default: Some("false"),
        doc: "Whether it may see /metrics and /v1, reset breakers and reload.",
        more: "Metrics name every agent, and the API shows their addresses.",
        read: Read::Caller(|c| Value::Flag(c.operator)),
        ..KEY
    },
];

pub(super) const SERVER: &[Key] = &[
    Key {
        path: "server.public_url",
        kind: Kind::Url,
        otherwise: "the host that the client asked",
        example: "\"https://agents.example.com\"",
        doc: "The base of every URL that it gives out, in cards above all.",
        more: "Set it behind a proxy, or where clients reach the gateway by another name than the one they send.",
        read: Read::Gateway(|c| Value::text(c.public_url.as_ref())),
        ..KEY
    },
    Key {
        path: "server.trusted_proxies",
        kind: Kind::Nets,
        otherwise: "none",
        example: "[\"127.0.0.1\", \"10.0.0.0/8\"]",
        doc: "The proxies whose Forwarded and X-Forwarded-Proto, -Host and -Prefix count, where there is no public_url.",
        more: "They decide which URLs callers are given, so name only proxies that overwrite what callers send.",
        read: Read::Gateway(|c| Value::list(&c.trusted_proxies)),
        ..KEY
    },
    Key {
        path: "server.max_delegations",
        kind: Kind::Count,
        default: Some("100000"),
        least: "1",
        doc: "Accepted delegations that are not over, of all agents; one more is refused (cell_overloaded).",
        more: "It bounds memory: some kilobytes each, and their bodies.",
        read: Read::Gateway(|c| Value::count(c.max_delegations)),
        ..KEY
    },
    Key {
        path: "server.max_behind",
        kind: Kind::Count,
        default: Some("64"),
        doc: "Messages that wait behind another one of their context or task; one more is refused.",
        more: "0: a busy task or context refuses at once (task_busy, context_queue_full).",
        read: Read::Gateway(|c| Value::count(c.max_behind)),
        ..KEY
    },
    Key {
        path: "server.max_queued_per_tenant",
        kind: Kind::Count,
        default: Some("100000"),
        least: "1",
        doc: "Accepted tasks of one tenant that may wait for slots, at all agents; one more is refused (queue_full).",
        more: "Less than `max_delegations` where one tenant must not take all of those.",
        read: Read::Gateway(|c| Value::count(c.max_queued_per_tenant)),
        ..KEY
    },
    Key {
        path: "server.outbox",
        kind: Kind::Flag,
        default: Some("false"),
        doc: "Whether this machine's own users have an outbox, where no callers are configured.",
        more: "What they delegated is told there until it has been read: see `callers.NAME.outbox`.",
        read: Read::Gateway(|c| Value::Flag(c.local_outbox)),
        ..KEY
    },
    Key {
        path: "server.access",
        kind: Kind::Word(&["tenant", "hierarchy"]),
        default: Some("\"tenant\""),
        doc: "Which agents a caller that is an agent may call: all of its tenant, or those that it is related to.",
        more: "`hierarchy` goes by `agents.NAME.parent`. A list (`callers.NAME.agents`) takes its place, and whoever is no agent \
               may call all of its tenant.",
        read: Read::Gateway(|c| Value::Text(c.access.as_str().to_owned())),
        ..KEY
    },
    Key {
        path: "server.max_outbox",
        kind: Kind::Count,
        default: Some("10000"),
        least: "1",
        doc: "Entries that may wait in one outbox; one more drops the oldest, and that is counted.",
        more: "Those that have waited for `store.retention` are dropped too: what they tell of is gone then.",
        read: Read::Gateway(|c| Value::count(c.max_outbox)),
        ..KEY
    },
    Key {
        path: "server.max_request_bytes",
        kind: Kind::Size,
        default: Some("\"16MiB\""),
        least: ">0",
        doc: "One request's body; a larger one is refused (too_large).",
        more: "Large content is better sent as a reference.",
        read: Read::Gateway(|c| Value::bytes(c.server.max_request_bytes)),
        ..KEY
    },
    Key {
        path: "server.max_buffered_bytes",
        kind: Kind::Size,
        default: Some("\"256MiB\""),
        least: ">0",
        doc: "All request bodies that are being read at the same time; more are refused (cell_overloaded).",
        more: "Never less than one request's limit.",
        read: Read::Gateway(|c| Value::bytes(c.server.max_buffered_bytes)),
        ..KEY
    },
    Key {
        path: "server.body_timeout",
        kind: Kind::Duration,
        default: Some("\"60s\""),
        least: ">0",
        doc: "How long a request's body may take, from the end of its headers.",
        more: "Longer where clients send large bodies over slow lines.",
        read: Read::Gateway(|c| Value::time(c.server.body_timeout)),
        ..KEY
    },
    Key {
        path: "server.max_connections",
        kind: Kind::Count,
        default: Some("4096"),
        least: "1",
        doc: "Connections at once; one more is told so and closed.",
        more: "A blocking call and a stream hold one each over HTTP/1.1. The limit of open files must allow it.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::count(c.server.max_connections)),
        ..KEY
    },
    Key {
        path: "server.max_streams_per_connection",
        kind: Kind::Count,
        default: Some("128"),
        least: "1",
        doc: "HTTP/2 requests at once on one connection.",
        more: "A client that multiplexes hundreds of blocking calls over one connection needs more.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::Count(c.server.max_streams_per_connection.into())),
        ..KEY
    },
    Key {
        path: "server.max_header_bytes",
        kind: Kind::Size,
        default: Some("\"16KiB\""),
        least: "\"8KiB\"",
        doc: "All headers of one request.",
        more: "More where a proxy adds long ones.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::bytes(c.server.max_header_bytes)),
        ..KEY
    },
    Key {
        path: "server.header_timeout",
        kind: Kind::Duration,
        default: Some("\"60s\""),
        least: ">0",
        doc: "How long headers may take, and how long an idle connection is kept.",
        more: "Longer than the keep-alive of a proxy before it, so that the proxy closes first.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::time(c.server.header_timeout)),
        ..KEY
    },
    Key {
        path: "server.write_stall",
        kind: Kind::Duration,
        default: Some("\"30s\""),
        least: ">0",
        doc: "A reader that takes nothing for so long is given up on.",
        more: "Its tasks go on, and it may join them again.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::time(c.server.write_stall)),
        ..KEY
    },
    Key {
        path: "server.max_outbound_events",
        kind: Kind::Count,
        default: Some("128"),
        least: "1",
        doc: "Events that wait for one slow reader of a stream, before it is closed (reader_lagged).",
        more: "A reader that is closed joins again where it was.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::count(c.server.max_outbound_events)),
        ..KEY
    },
    Key {
        path: "server.max_outbound_bytes",
        kind: Kind::Size,
        default: Some("\"4MiB\""),
        least: ">0",
        doc: "Their bytes.",
        more: "It bounds what one slow reader costs in memory.",
        reload: Reload::Restart,
        read: Read::Gateway(|c| Value::bytes(c.server.max_outbound_bytes)),
        ..KEY
    },
];

pub(super) const DRAIN: &[Key] = &[Key {
    path: "drain.limit",
    kind: Kind::Duration,
    default: Some("\"20s\""),
    least: ">0",
    doc: "How long the gateway may take to stop.",
    more: "Less than what the supervisor allows before it kills. What is accepted is kept in any case.",
    reload: Reload::Restart,
    read: Read::Gateway(|c| Value::time(c.drain)),
    ..KEY
}];

pub(super) const LIMITS: &[Key] = &[
    Key {
        path: "limits.agent_messages",
        kind: Kind::Count,
        default: Some("30"),
        doc: "Messages that one agent may send another in one conversation within the window; one more is refused \
              (rate_limited).",
        more: "It ends two agents that thank each other for ever. A conversation is a contextId, else a tree. 0: no limit. \
               Callers that are no agents, and work for none, are not counted.",
        read: Read::Gateway(|c| Value::Count(c.rate.limit.into())),
        ..KEY
    },
    Key {
        path: "limits.agent_messages_window",
        kind: Kind::Duration,
        default: Some("\"2m\""),
        doc: "That window.",
        more: "It slides: there are never more in any time of this length. 0: no limit.",
        read: Read::Gateway(|c| Value::Span(c.rate.window)),
        ..KEY
    },
];

pub(super) const PUSH: &[Key] = &[
    Key {
        path: "push.enabled",
        kind: Kind::Flag,
        default: Some("false"),
        doc: "Whether callers may have news of their tasks pushed.",
        more: "Callers then choose where this gateway sends requests to. Their secrets are sealed in the store under the \
               instance key.",
        read: Read::Gateway(|c| Value::Flag(c.push.enabled)),
        ..KEY
    },
    Key {
        path: "push.allow",
        kind: Kind::Nets,
        otherwise: "none",
        example: "[\"10.0.0.0/8\"]",
        doc: "Networks to which news may be pushed beside the public internet.",
        more: "Each connection's own address is judged, whatever its name led to before. Redirects are not followed.",
        read: Read::Gateway(|c| Value::list(&c.push.allow)),
        ..KEY
    },
];

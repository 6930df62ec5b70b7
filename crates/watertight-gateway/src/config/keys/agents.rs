//! The keys of an agent: how it is spoken to, and its walls. Its breaker's are beside it.

use watertight_engine::settings::Serialize;

use super::{KEY, Key, Kind, Read, Value};
use crate::agents::{Binding, Mode, NOWHERE};

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "agents.*.url",
        kind: Kind::Url,
        otherwise: "none, with `fetches`; else it has to be there",
        example: "\"http://127.0.0.1:9001/\"",
        doc: "Its address; its card is read below it.",
        more: "`http` or `https`, without a user name or a password.",
        read: Read::Agent(|a| Value::text(Some(&a.wire.url).filter(|url| **url != NOWHERE))),
        ..KEY
    },
    Key {
        path: "agents.*.tenant",
        kind: Kind::Name,
        otherwise: "callers of every tenant may call it",
        example: "\"travel\"",
        doc: "The tenant that it belongs to: to callers of others, it does not exist.",
        more: "It holds under each `server.access`, and for lists too (`callers.NAME.agents`). What waits is judged again before \
               it is sent.",
        read: Read::Agent(|a| Value::text(a.place.tenant.as_ref())),
        ..KEY
    },
    Key {
        path: "agents.*.parent",
        kind: Kind::Name,
        otherwise: "it stands under nobody",
        example: "\"itinerary\"",
        doc: "The agent above it, where `server.access` is \"hierarchy\".",
        more: "An agent may call those above and below it at any depth (32 levels at most), and those under the same parent. \
               The parent is an agent of this file and of no other tenant.",
        read: Read::Agent(|a| Value::text(a.place.parent.as_ref())),
        ..KEY
    },
    Key {
        path: "agents.*.can_delegate",
        kind: Kind::Flag,
        default: Some("true"),
        doc: "Whether this agent may send others messages, as the caller that it is (`callers.NAME.agent`).",
        more: "false: whatever it sends is refused (forbidden), and its model has no tools to delegate with. It may still \
               answer, read and cancel what it has.",
        read: Read::Agent(|a| Value::Flag(a.place.can_delegate)),
        ..KEY
    },
    Key {
        path: "agents.*.card",
        kind: Kind::Url,
        otherwise: "`.well-known/agent-card.json` below the URL, then at the host's root",
        example: "\"http://127.0.0.1:9001/.well-known/agent-card.json\"",
        doc: "Where its card is.",
        more: "For an agent that keeps its card elsewhere.",
        read: Read::Agent(|a| Value::text(a.wire.card.as_ref())),
        ..KEY
    },
    Key {
        path: "agents.*.binding",
        kind: Kind::Word(&["auto", "jsonrpc", "http+json"]),
        default: Some("\"auto\""),
        doc: "How it is spoken to: as its card prefers, or always so.",
        more: "`auto` takes the first interface of the card that is on the host of `url` and works, and JSON-RPC where there \
               is no card.",
        read: Read::Agent(|a| {
            Value::Text(
                match a.wire.binding {
                    Binding::Auto => "auto",
                    Binding::JsonRpc => "jsonrpc",
                    Binding::HttpJson => "http+json",
                }
                .to_owned(),
            )
        }),
        ..KEY
    },
    Key {
        path: "agents.*.mode",
        kind: Kind::Word(&["auto", "stream", "poll", "blocking"]),
        default: Some("\"auto\""),
        doc: "How it is asked: by what its card says, or always so.",
        more: "`auto` streams if the card says that the agent can, else it polls. `blocking` is for an agent that knows \
               nothing but SendMessage.",
        read: Read::Agent(|a| {
            Value::Text(
                match a.wire.mode {
                    Mode::Auto => "auto",
                    Mode::Stream => "stream",
                    Mode::Poll => "poll",
                    Mode::Blocking => "blocking",
                }
                .to_owned(),
            )
        }),
        ..KEY
    },
    Key {
        path: "agents.*.headers",
        kind: Kind::Headers,
        otherwise: "none",
        example: "{ \"Authorization\" = \"Bearer env:HOTELS_TOKEN\" }",
        doc: "Headers sent to it with every request, and never anywhere else.",
        more: "Each value is where the secret is, with a scheme before it if one belongs there.",
        read: Read::Agent(|a| Value::List(a.wire.headers.iter().map(|(name, _)| name.to_string()).collect())),
        ..KEY
    },
    Key {
        path: "agents.*.max_in_flight",
        kind: Kind::Count,
        default: Some("16"),
        least: "1",
        doc: "Slots: calls at once. Calls per second times usual seconds, and a quarter more.",
        more: "Size it for the agent when it is well: what a slow agent would need is what the wall refuses.",
        read: Read::Agent(|a| Value::Count(a.settings.bulkhead.max_in_flight.into())),
        ..KEY
    },
    Key {
        path: "agents.*.max_waiting",
        kind: Kind::Count,
        default: Some("32"),
        doc: "Callers that may wait for a slot; one more is refused at once (bulkhead_full).",
        more: "Twice the slots is usual. 0: nobody waits.",
        read: Read::Agent(|a| Value::Count(a.settings.bulkhead.max_waiting.into())),
        ..KEY
    },
    Key {
        path: "agents.*.max_wait",
        kind: Kind::Duration,
        default: Some("\"500ms\""),
        doc: "How long a caller waits for a slot before it is refused.",
        more: "Short, so that a caller who is turned away can still answer in part. 0s: nobody waits.",
        read: Read::Agent(|a| Value::Span(a.settings.bulkhead.max_wait)),
        ..KEY
    },
    Key {
        path: "agents.*.budget",
        kind: Kind::Duration,
        default: Some("\"5m\""),
        least: ">0",
        doc: "The time of a task that brings none of its own; then it is cut and canceled.",
        more: "The longest that a slot can be held by a caller who says nothing. Longer for agents that work for hours.",
        read: Read::Agent(|a| Value::Span(a.settings.budget.remaining)),
        ..KEY
    },
    Key {
        path: "agents.*.max_budget",
        kind: Kind::Duration,
        default: Some("\"24h\""),
        otherwise: "or `budget`, if that is longer",
        least: ">0",
        doc: "The most time that a task may bring; more is cut to this.",
        more: "The longest that any slot of this agent can be held.",
        read: Read::Agent(|a| Value::Span(a.settings.budget.max_remaining)),
        ..KEY
    },
    Key {
        path: "agents.*.reserve",
        kind: Kind::Duration,
        default: Some("\"300ms\""),
        otherwise: "or a tenth of `budget`, if that is shorter",
        doc: "Time held back at each hop, so that whoever delegated can still answer.",
        more: "More where merging results takes long.",
        read: Read::Agent(|a| Value::Span(a.settings.budget.reserve)),
        ..KEY
    },
    Key {
        path: "agents.*.wait",
        kind: Kind::Duration,
        otherwise: "as long as the budget",
        example: "\"30s\"",
        doc: "How long a blocking caller is held; then it gets the task as it is, and the work goes on.",
        more: "Set it to less than the shortest timeout between the callers and here.",
        read: Read::Agent(|a| a.wait.map_or(Value::None, Value::Span)),
        ..KEY
    },
    Key {
        path: "agents.*.depth",
        kind: Kind::Count,
        default: Some("4"),
        doc: "Hops that a chain of delegations may still make.",
        more: "0: what arrives is served, and may delegate nothing.",
        read: Read::Agent(|a| Value::Count(a.settings.budget.depth.into())),
        ..KEY
    },
    Key {
        path: "agents.*.fanout",
        kind: Kind::Count,
        default: Some("16"),
        doc: "Delegations that one task may start.",
        more: "Its children may start at most four each.",
        read: Read::Agent(|a| Value::Count(a.settings.budget.fanout.into())),
        ..KEY
    },
    Key {
        path: "agents.*.overflow",
        kind: Kind::Word(&["reject", "queue"]),
        default: Some("\"reject\""),
        doc: "What becomes of a blocking call without a slot: it is refused, or queued.",
        more: "`queue` for callers that would rather wait than answer without the agent.",
        read: Read::Agent(|a| Value::Text(if a.settings.queue_overflow { "queue" } else { "reject" }.to_owned())),
        ..KEY
    },
    Key {
        path: "agents.*.max_queued",
        kind: Kind::Count,
        default: Some("1000"),
        doc: "Accepted tasks that may wait for a slot; one more is refused (queue_full).",
        more: "Slots times `queue_ttl` over usual seconds is what can be worked off in time.",
        read: Read::Agent(|a| Value::count(a.settings.max_queued)),
        ..KEY
    },
    Key {
        path: "agents.*.max_queued_per_caller",
        kind: Kind::Count,
        otherwise: "`max_queued`",
        least: "1",
        example: "200",
        doc: "Of those, one caller's; one more is refused (queue_full).",
        more: "Less than `max_queued` where one caller must not fill the queue for the others.",
        read: Read::Agent(|a| Value::count(a.settings.max_queued_per_caller)),
        ..KEY
    },
    Key {
        path: "agents.*.queue_ttl",
        kind: Kind::Duration,
        default: Some("\"1h\""),
        doc: "How long an accepted task may wait for a slot before it has expired, if its caller does not say.",
        more: "A task's own budget may end it earlier.",
        read: Read::Agent(|a| Value::Span(a.settings.queue_ttl)),
        ..KEY
    },
    Key {
        path: "agents.*.queue_ttl_max",
        kind: Kind::Duration,
        default: Some("\"24h\""),
        otherwise: "or `queue_ttl`, if that is longer",
        doc: "The longest that a caller may say (`x-queue`); more is refused.",
        more: "Longer for work that may as well be done next week.",
        read: Read::Agent(|a| Value::Span(a.settings.queue_ttl_max)),
        ..KEY
    },
    Key {
        path: "agents.*.ageing",
        kind: Kind::Duration,
        default: Some("\"5m\""),
        doc: "A task that has waited so long goes before all that is more urgent.",
        more: "Longer where priorities must hold over a long backlog; 0s: priorities mean nothing.",
        read: Read::Agent(|a| Value::Span(a.settings.queue.ageing)),
        ..KEY
    },
    Key {
        path: "agents.*.attempts",
        kind: Kind::Count,
        default: Some("2"),
        least: "1",
        doc: "Tries per message, as long as nothing of it was sent; 1 is no retry.",
        more: "What may have reached the agent is tried again only if it is `idempotent`.",
        read: Read::Agent(|a| Value::Count(a.settings.attempts.into())),
        ..KEY
    },
    Key {
        path: "agents.*.backoff_base",
        kind: Kind::Duration,
        default: Some("\"200ms\""),
        doc: "The longest pause before the second try; it doubles with each further one, with full jitter.",
        more: "About one round trip of an agent in trouble.",
        read: Read::Agent(|a| Value::Span(a.settings.backoff.base)),
        ..KEY
    },
    Key {
        path: "agents.*.backoff_max",
        kind: Kind::Duration,
        default: Some("\"10s\""),
        otherwise: "or `backoff_base`, if that is longer",
        doc: "The longest pause between two tries.",
        more: "After that the breaker decides, not the pauses.",
        read: Read::Agent(|a| Value::Span(a.settings.backoff.max)),
        ..KEY
    },
    Key {
        path: "agents.*.retry_budget",
        kind: Kind::Share,
        default: Some("\"10%\""),
        doc: "Retries, as a share of all calls.",
        more: "It keeps retries from making an outage worse.",
        read: Read::Agent(|a| Value::Share(a.settings.retry_budget.ratio_bp)),
        ..KEY
    },
    Key {
        path: "agents.*.idempotent",
        kind: Kind::Flag,
        default: Some("false"),
        doc: "The agent does a message that is sent twice once, so it may be tried again after it was sent.",
        more: "Only if the agent itself recognises a messageId; otherwise work is done twice.",
        read: Read::Agent(|a| Value::Flag(a.settings.idempotent)),
        ..KEY
    },
    Key {
        path: "agents.*.lookup",
        kind: Kind::Flag,
        default: Some("false"),
        doc: "It answers ListTasks by context with the messages in the history, so that a task whose id was lost is found.",
        more: "After a crash, or a connection that broke before the id was known, it is asked for the task that has the \
               message, instead of `outcome_unknown`. Every task is then begun in a contextId that is made here.",
        read: Read::Agent(|a| Value::Flag(a.settings.lookup)),
        ..KEY
    },
    Key {
        path: "agents.*.serialize",
        kind: Kind::Word(&["context", "agent", "none"]),
        default: Some("\"context\""),
        doc: "What must not overlap: turns of one context, of the whole agent, or nothing.",
        more: "`agent` for one that can do a single thing at a time; `none` for one without conversations.",
        read: Read::Agent(|a| {
            Value::Text(
                match a.settings.serialize {
                    Serialize::Context => "context",
                    Serialize::Agent => "agent",
                    Serialize::None => "none",
                }
                .to_owned(),
            )
        }),
        ..KEY
    },
    Key {
        path: "agents.*.native_session",
        kind: Kind::Flag,
        default: Some("false"),
        doc: "It owns one session that goes on and on: one turn at a time, and nobody is refused because it is busy.",
        more: "Stands for one slot, `serialize = \"agent\"` and `overflow = \"queue\"`. After a cut, and where nobody knows \
               what came of a message, nothing is sent for `context_grace`, 5m if that is not set.",
        read: Read::Agent(|a| Value::Flag(a.settings.native_session)),
        ..KEY
    },
    Key {
        path: "agents.*.durability",
        kind: Kind::Word(&["durable", "memory"]),
        default: Some("\"durable\""),
        doc: "Where its tasks are kept: on disk before anybody is told of them, or in memory alone.",
        more: "With `memory` nothing waits for the disk; all of it is gone when the gateway ends, and messageIds are \
               forgotten. For quick questions that may as well be asked again.",
        read: Read::Agent(|a| Value::Text(a.settings.durability.as_str().to_owned())),
        ..KEY
    },
    Key {
        path: "agents.*.memory_max_tasks",
        kind: Kind::Count,
        default: Some("10000"),
        least: "1",
        doc: "Ended tasks that are kept in memory; the oldest goes first.",
        more: "Only with `durability = \"memory\"`. It is also how long a messageId is known.",
        read: Read::Agent(|a| Value::Count(a.memory.max_tasks as u64)),
        ..KEY
    },
    Key {
        path: "agents.*.memory_max_bytes",
        kind: Kind::Size,
        default: Some("\"64MiB\""),
        doc: "The bytes of those tasks, likewise.",
        more: "Only with `durability = \"memory\"`.",
        read: Read::Agent(|a| Value::Size(a.memory.max_bytes as u64)),
        ..KEY
    },
    Key {
        path: "agents.*.connect_timeout",
        kind: Kind::Duration,
        default: Some("\"2s\""),
        least: ">0",
        doc: "Resolving its name, connecting and the TLS handshake, together.",
        more: "Longer for an agent far away.",
        read: Read::Agent(|a| Value::time(a.wire.connect_timeout)),
        ..KEY
    },
    Key {
        path: "agents.*.idle_timeout",
        kind: Kind::Duration,
        default: Some("\"60s\""),
        least: ">0",
        doc: "The longest silence inside an answer or a stream; comments count as life.",
        more: "Longer than the agent's own heartbeat.",
        read: Read::Agent(|a| Value::time(a.wire.idle_timeout)),
        ..KEY
    },
    Key {
        path: "agents.*.unreachable_after",
        kind: Kind::Duration,
        default: Some("\"60s\""),
        least: ">0",
        doc: "An agent that has a task and answers nothing for so long, over three questions, is given up on.",
        more: "Longer than a restart of the agent, if it keeps its tasks over one.",
        read: Read::Agent(|a| Value::time(a.wire.unreachable_after)),
        ..KEY
    },
    Key {
        path: "agents.*.max_result_bytes",
        kind: Kind::Size,
        default: Some("\"256KiB\""),
        doc: "The largest result; a larger one is withheld whole (result_too_large).",
        more: "More than a model can read is of no use to one; files need more.",
        read: Read::Agent(|a| Value::Size(a.settings.acceptance.max_result_bytes)),
        ..KEY
    },
    Key {
        path: "agents.*.max_task_bytes",
        kind: Kind::Size,
        default: Some("\"64MiB\""),
        doc: "The largest task, with its history and everything that was streamed.",
        more: "It bounds what one task of this agent can cost in memory and in the store.",
        read: Read::Agent(|a| Value::Size(a.settings.acceptance.max_task_bytes)),
        ..KEY
    },
    Key {
        path: "agents.*.cancel_wait",
        kind: Kind::Duration,
        default: Some("\"1s\""),
        doc: "How long a caller's cancel waits for the agent's word.",
        more: "After it the task is canceled here, whatever the agent does.",
        read: Read::Agent(|a| Value::Span(a.settings.cancel_wait)),
        ..KEY
    },
    Key {
        path: "agents.*.cancel_grace",
        kind: Kind::Duration,
        default: Some("\"10s\""),
        doc: "How long a cancel is tried, and the slot of a cut call held for it.",
        more: "Shorter gives slots back sooner, to an agent that may still be busy.",
        read: Read::Agent(|a| Value::Span(a.settings.cancel_grace)),
        ..KEY
    },
    Key {
        path: "agents.*.context_grace",
        kind: Kind::Duration,
        default: Some("\"30s\""),
        otherwise: "or 5m, with `native_session`",
        doc: "How much longer a context is held when nobody knows whether the agent's work in it has ended.",
        more: "Without effect where `serialize` is \"none\".",
        read: Read::Agent(|a| Value::Span(a.settings.context_grace)),
        ..KEY
    },
    Key {
        path: "agents.*.interrupted_max",
        kind: Kind::Duration,
        default: Some("\"24h\""),
        doc: "How long a task may wait for its caller's answer.",
        more: "For people who answer the next working day, longer.",
        read: Read::Agent(|a| Value::Span(a.settings.interrupted_max)),
        ..KEY
    },
    Key {
        path: "agents.*.fetches",
        kind: Kind::Flag,
        default: Some("false"),
        doc: "It has no address: its workers ask for work (`/v1/inbox`), and what comes waits until one does.",
        more: "For an agent behind a firewall, or one that runs now and then. Its workers are callers with `agent` (or a \
               token with `--agent`) that is this one.",
        read: Read::Agent(|a| Value::Flag(a.wire.fetches)),
        ..KEY
    },
    Key {
        path: "agents.*.lease",
        kind: Kind::Duration,
        default: Some("\"30s\""),
        least: ">0",
        doc: "How long a worker may say nothing of its work: then that is given to another, or, once begun, given up.",
        more: "Only with `fetches`. A worker that works for longer extends it, at a third of this.",
        read: Read::Agent(|a| Value::time(a.lease)),
        ..KEY
    },
    Key {
        path: "agents.*.results",
        kind: Kind::Word(&["wait", "wake"]),
        default: Some("\"wait\""),
        doc: "Whether this agent is told, by a message to itself, that results of what it delegated wait in its outbox.",
        more: "`wake` for one that sleeps until it is called. It needs a caller with `agent` (or a token with `--agent`) that \
               is this one.",
        read: Read::Agent(|a| Value::Text(if a.told { "wake" } else { "wait" }.to_owned())),
        ..KEY
    },
    Key {
        path: "agents.*.results_cooldown",
        kind: Kind::Duration,
        default: Some("\"60s\""),
        doc: "Between two of those messages, at least; 100ms or more.",
        more: "It is doubled each time that nothing new came and nothing was acknowledged, up to 32 times as long.",
        read: Read::Agent(|a| Value::Span(a.told_cooldown)),
        ..KEY
    },
];

//! What a refusal says of the limit that it met: whose it was, and what is to be done instead. For people in the text,
//! for programs in the metadata.

use watertight_a2a::error::Error;
use watertight_engine::ids::AgentId;
use watertight_engine::output::{Bound, Cause, InForce, Origin};
use watertight_policy::reason::Reason;

/// The part of the text that stands in brackets.
pub(super) fn text(reason: Reason, cause: &Cause) -> String {
    match cause {
        Cause::Chain(chain) => {
            format!("{}; sending it again cannot help: answer with what is there, or ask another agent", drawn(chain))
        }
        Cause::Budget(budget) => in_force(reason, budget),
        Cause::Ended(task) => format!("task {task} has ended"),
        Cause::Rate(from, rate) => format!("from {from}: {} messages in {} are the limit", rate.limit, rate.window),
        Cause::Full(Bound::Agent(limit)) => format!("{limit} wait for it already: max_queued"),
        Cause::Full(Bound::Caller(limit)) => {
            format!("{limit} of this caller's wait for it already: max_queued_per_caller")
        }
        Cause::Full(Bound::Tenant(limit)) => {
            format!("{limit} of this tenant's wait for agents already: max_queued_per_tenant")
        }
    }
}

/// The same as members of the error's metadata.
pub(super) fn told(error: Error, cause: &Cause) -> Error {
    match cause {
        Cause::Chain(chain) => error.with("chain", drawn(chain)),
        Cause::Budget(budget) => match budget.origin {
            Origin::Parent(task) | Origin::Guessed(task) => error.with("parent", task.to_string()),
            Origin::Message | Origin::Configured => error,
        },
        Cause::Ended(task) => error.with("parent", task.to_string()),
        Cause::Rate(from, rate) => error.with("from", from.as_str()).with("limit", rate.limit.to_string()),
        Cause::Full(_) => error,
    }
}

fn drawn(chain: &[AgentId]) -> String {
    chain.iter().map(AgentId::as_str).collect::<Vec<_>>().join(" → ")
}

fn in_force(reason: Reason, budget: &InForce) -> String {
    let InForce { origin, depth, fanout, remaining, hops, children } = *budget;
    let (deep, wide) = (reason == Reason::DepthExhausted, reason == Reason::FanoutExhausted);
    let left = if deep {
        format!("depth {depth}")
    } else if wide {
        format!("fanout {fanout}")
    } else {
        format!("{remaining} left")
    };
    match origin {
        Origin::Message => format!("the message's own x-budget says {left}"),
        Origin::Configured => format!("the agent's configuration says {left}"),
        Origin::Parent(task) if deep => format!("it is for task {task}, whose tree may be {hops} hops deep and is"),
        Origin::Parent(task) if wide => {
            format!("it is for task {task}, which may start {children} delegations and has")
        }
        Origin::Parent(task) => format!("it is for task {task}, which has {left}"),
        Origin::Guessed(task) => {
            format!("its agent is at work on task {task}, whose tree may be {hops} hops deep and is")
        }
    }
}

//! What fails when one agent does, worked out from the configuration alone: who is hit, what it can hold at the most,
//! when its breaker opens, what callers are told, and what it can take of the things that all agents share.
//!
//! Every figure is a bound for the worst load there can be, all slots taken all the time, with the arithmetic that
//! gives it. Assumes an agent that refuses every connection, or one that takes every call and never says a word.
//! Leaves out what the operating system adds, and callers who do something else than what they are told.

#[cfg(test)]
mod tests;

use watertight_engine::settings::Serialize;
use watertight_policy::time::Span;

use super::{Agent, Config, units};
use crate::hub::MAX_PROPOSED_BYTES;

/// The most that one agent can hold of what is given out so that as much is left to the others.
const SHARE: u64 = MAX_PROPOSED_BYTES as u64 / 2;

/// What one agent's failure costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Without {
    /// The agent.
    pub agent: String,
    /// Who may call it, and so is hit. Empty: nobody may.
    pub callers: Vec<String>,
    /// What it can hold, at the most.
    pub holds: Vec<Bound>,
    /// Until its breaker opens, if it refuses every connection.
    pub refuses: Opens,
    /// Likewise, if it takes every call and says nothing.
    pub silent: Opens,
    /// What callers are told, in order.
    pub told: Vec<Told>,
    /// The other agents.
    pub untouched: Vec<String>,
    /// What all agents share.
    pub shared: Vec<Share>,
}

/// The most of something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Of what.
    pub what: &'static str,
    /// So much.
    pub most: String,
    /// Why.
    pub because: String,
}

/// When a breaker opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opens {
    /// After so many failed tries; `None`: never.
    pub tries: Option<u64>,
    /// After so long under full load; `None`: as fast as tries fail, or never.
    pub after: Option<Span>,
    /// Why.
    pub because: String,
}

/// What callers are told in one phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// When, and who.
    pub when: String,
    /// The reason, of the closed vocabulary.
    pub reason: &'static str,
}

/// Something shared, and how much of it the agent can take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// What.
    pub what: &'static str,
    /// All there is, in words.
    pub all: String,
    /// The most that this agent can take of it, in words.
    pub most: String,
    /// How that comes about.
    pub because: String,
    /// It is all, or more: others are hit.
    pub exhausts: bool,
}

/// Works it out. `None`: there is no such agent.
pub fn without(config: &Config, name: &str) -> Option<Without> {
    let (id, agent) = config.agents.iter().find(|(id, _)| id.as_str() == name)?;
    let rules = config.rules();
    let may = |caller: &&super::Caller| rules.judge(&caller.as_asked(&caller.only()), id).is_ok();
    let mut callers: Vec<String> = config.callers.iter().filter(may).map(|caller| caller.name.clone()).collect();
    if config.has_holders() {
        callers.push("who holds a token for it (watertight token list)".to_owned());
    } else if config.is_open() {
        callers.push("everybody on this machine (no callers are configured)".to_owned());
    }
    let case = Case::of(agent);
    let (refuses, silent) = (case.refuses(), case.silent());
    Some(Without {
        agent: name.to_owned(),
        callers,
        holds: case.holds(config),
        told: case.told(&refuses, &silent),
        refuses,
        silent,
        untouched: config.agents.keys().filter(|other| *other != id).map(|other| other.as_str().to_owned()).collect(),
        shared: case.shared(config),
    })
}

/// The figures that everything follows from.
struct Case<'a> {
    agent: &'a Agent,
    /// Slots that can be in use.
    slots: u64,
    /// Callers that can stand in line.
    line: u64,
    /// Places in the queue.
    queue: u64,
}

impl Case<'_> {
    fn of(agent: &Agent) -> Case<'_> {
        let settings = &agent.settings;
        let slots = match settings.serialize {
            Serialize::Agent => 1,
            Serialize::Context | Serialize::None => u64::from(settings.bulkhead.max_in_flight),
        };
        let waits = !settings.queue_overflow && !settings.bulkhead.max_wait.is_zero();
        let line = if waits { u64::from(settings.bulkhead.max_waiting) } else { 0 };
        Case { agent, slots, line, queue: settings.max_queued as u64 }
    }

    fn holds(&self, config: &Config) -> Vec<Bound> {
        let settings = &self.agent.settings;
        let (budget, most, grace) = (settings.budget.remaining, settings.budget.max_remaining, settings.cancel_grace);
        let waits = settings.bulkhead.max_wait;
        let task = settings.acceptance.max_task_bytes;
        let request = config.server.max_request_bytes as u64;
        vec![
            Bound {
                what: "slots",
                most: format!("{} calls, each for {}", self.slots, shown(budget + grace)),
                because: format!(
                    "budget {} and cancel_grace {}; callers who bring more time, up to max_budget {}, hold theirs longer",
                    shown(budget),
                    shown(grace),
                    shown(most)
                ),
            },
            Bound {
                what: "callers in line",
                most: format!("{} callers, each for {}", self.line, shown(waits)),
                because: match (settings.queue_overflow, self.line) {
                    (true, _) => "overflow is \"queue\": they are queued instead".to_owned(),
                    (false, 0) => "nobody waits: one more than the slots is refused at once".to_owned(),
                    (false, line) => format!(
                        "max_waiting {line} × max_wait {} = {} of waiting in all, then bulkhead_full",
                        shown(waits),
                        shown(waits.mul(u32::try_from(line).unwrap_or(u32::MAX)))
                    ),
                },
            },
            Bound {
                what: "places in the queue",
                most: format!("{} tasks, each for {}", self.queue, shown(settings.queue_ttl)),
                because: "max_queued and queue_ttl; then the task has expired, or queue_full before it is taken"
                    .to_owned(),
            },
            Bound {
                what: "memory of tasks at work",
                most: size(self.slots.saturating_mul(task)),
                because: format!("{} slots × max_task_bytes {}", self.slots, size(task)),
            },
            Bound {
                what: "memory of callers in line",
                most: size(self.line.saturating_mul(request).min(SHARE)),
                because: format!(
                    "{} callers × server.max_request_bytes {}, and never more than is left to all others: half of {}",
                    self.line,
                    size(request),
                    size(MAX_PROPOSED_BYTES as u64)
                ),
            },
        ]
    }

    /// The fewest failures that open the breaker.
    fn tries(&self) -> Option<u64> {
        let breaker = &self.agent.settings.breaker;
        let run = Some(u64::from(breaker.consecutive_failures)).filter(|run| *run > 0);
        let rate = (breaker.failure_rate_bp > 0).then_some(u64::from(breaker.min_calls).max(1));
        run.into_iter().chain(rate).min()
    }

    fn refuses(&self) -> Opens {
        let breaker = &self.agent.settings.breaker;
        match self.tries() {
            Some(tries) => Opens {
                tries: Some(tries),
                after: None,
                because: format!(
                    "each failed try counts ({} per call at the most): consecutive_failures {}, or failure_rate {} of at \
                     least min_calls {}",
                    self.agent.settings.attempts,
                    breaker.consecutive_failures,
                    units::write_share(breaker.failure_rate_bp),
                    breaker.min_calls
                ),
            },
            None => never("consecutive_failures and failure_rate are off".to_owned()),
        }
    }

    fn silent(&self) -> Opens {
        let settings = &self.agent.settings;
        let (breaker, budget) = (&settings.breaker, settings.budget.remaining);
        if breaker.min_wait > budget {
            return never(format!(
                "calls are cut after budget {}, before min_wait {}, and such cuts do not count",
                shown(budget),
                shown(breaker.min_wait)
            ));
        }
        // Every slot is taken, and all calls end together; then the slot is held until the cancel is given up on.
        let round = budget + settings.cancel_grace;
        let after = |tries: u64| {
            let rounds = tries.div_ceil(self.slots.max(1));
            let more = u32::try_from(rounds.saturating_sub(1)).unwrap_or(u32::MAX);
            (rounds, budget + round.mul(more))
        };
        let run = Some(u64::from(breaker.consecutive_failures)).filter(|run| *run > 0);
        let by_run = run.map(|tries| (tries, after(tries), "consecutive_failures"));
        let calls = u64::from(breaker.min_calls).max(1);
        // A share is judged only of what ended within one window.
        let fits = after(calls).1 - budget <= breaker.window;
        let by_rate = (breaker.failure_rate_bp > 0 && fits).then(|| (calls, after(calls), "failure_rate of min_calls"));
        let first = by_run.into_iter().chain(by_rate).min_by_key(|(_, (_, after), _)| *after);
        match first {
            Some((tries, (rounds, after), what)) => Opens {
                tries: Some(tries),
                after: Some(after),
                because: format!(
                    "{what} {tries}: {} slots fill, and every call is cut after budget {}; {rounds} round{} of that, with \
                     cancel_grace {} between two",
                    self.slots,
                    shown(budget),
                    if rounds == 1 { "" } else { "s" },
                    shown(settings.cancel_grace)
                ),
            },
            None => never(format!(
                "consecutive_failures is off, and {} slots never end min_calls {} within window {}",
                self.slots,
                breaker.min_calls,
                shown(breaker.window)
            )),
        }
    }

    fn told(&self, refuses: &Opens, silent: &Opens) -> Vec<Told> {
        let settings = &self.agent.settings;
        let breaker = &settings.breaker;
        let mut out = vec![
            Told { when: "it refuses connections: each call, at once".to_owned(), reason: "agent_connect_refused" },
            Told {
                when: format!("it is silent: the callers that hold a slot, after {}", shown(settings.budget.remaining)),
                reason: "agent_no_answer",
            },
        ];
        let (when, reason) = match (settings.queue_overflow, self.line) {
            (true, _) => ("everybody else is queued; at once when the queue is full".to_owned(), "queue_full"),
            (false, 0) => ("everybody else, at once".to_owned(), "bulkhead_full"),
            (false, _) => (
                format!(
                    "everybody else, after {} in line, or at once when the line is full",
                    shown(settings.bulkhead.max_wait)
                ),
                "bulkhead_full",
            ),
        };
        out.push(Told { when, reason });
        if let Some(wait) = self.agent.wait.filter(|wait| *wait < settings.budget.remaining) {
            let when = format!("blocking callers get their task back unfinished after {} (wait)", shown(wait));
            out.push(Told { when, reason: "none: the task goes on" });
        }
        if refuses.tries.is_some() || silent.tries.is_some() {
            let when = format!(
                "once the breaker is open, everybody at once; one trial after {}, doubling to {}, lets them back in",
                shown(breaker.ejection_base),
                shown(breaker.ejection_max)
            );
            out.push(Told { when, reason: "breaker_open" });
        }
        out
    }

    fn shared(&self, config: &Config) -> Vec<Share> {
        let settings = &self.agent.settings;
        let (delegations, connections) = (config.max_delegations as u64, config.server.max_connections as u64);
        let accepted = self.slots.saturating_add(self.queue);
        let queued = if settings.queue_overflow { self.queue } else { 0 };
        let held = self.slots.saturating_add(self.line).saturating_add(queued);
        let request = config.server.max_request_bytes as u64;
        let proposed = self.line.saturating_mul(request);
        let disk = self.slots.saturating_mul(settings.acceptance.max_task_bytes);
        let disk = disk.saturating_add(accepted.saturating_mul(request));
        vec![
            Share {
                what: "server.max_delegations",
                all: delegations.to_string(),
                most: accepted.min(delegations).to_string(),
                because: format!(
                    "{} slots + max_queued {} = {accepted}. Tasks that wait for their caller's answer count too, up to {} \
                     each: an agent that asks back about everything is bounded by this limit alone",
                    self.slots,
                    self.queue,
                    shown(settings.interrupted_max)
                ),
                exhausts: accepted >= delegations,
            },
            Share {
                what: "server.max_connections",
                all: connections.to_string(),
                most: held.min(connections).to_string(),
                because: format!(
                    "{} slots + {} in line{} = {held}, with every caller on a connection of its own. Streams that only \
                     read a task come on top",
                    self.slots,
                    self.line,
                    if queued > 0 { format!(" + {queued} blocking callers in the queue") } else { String::new() }
                ),
                exhausts: held >= connections,
            },
            Share {
                what: "server.max_buffered_bytes",
                all: size(config.server.max_buffered_bytes as u64),
                most: "0B".to_owned(),
                because: "a body takes room only while it is read from its caller, however long the agent takes"
                    .to_owned(),
                exhausts: false,
            },
            Share {
                what: "messages not yet accepted",
                all: size(MAX_PROPOSED_BYTES as u64),
                most: size(proposed.min(SHARE)),
                because: format!(
                    "{} in line × server.max_request_bytes {} = {}, for {} each; never more than is left to all others",
                    self.line,
                    size(request),
                    size(proposed),
                    shown(settings.bulkhead.max_wait)
                ),
                exhausts: false,
            },
            Share {
                what: "the disk",
                all: "what is free".to_owned(),
                most: size(disk),
                because: format!(
                    "{} slots × max_task_bytes {} + {accepted} messages × server.max_request_bytes {}, at one time; what has \
                     ended is kept for store.retention {}",
                    self.slots,
                    size(settings.acceptance.max_task_bytes),
                    size(request),
                    shown(config.kept.retention)
                ),
                exhausts: false,
            },
        ]
    }
}

fn never(because: String) -> Opens {
    Opens { tries: None, after: None, because }
}

fn shown(span: Span) -> String {
    units::write_span(span)
}

fn size(bytes: u64) -> String {
    units::write_size(bytes)
}

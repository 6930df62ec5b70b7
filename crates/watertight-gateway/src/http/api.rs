//! The gateway's own API, as far as operating it needs: the agents and their walls.

use http::{Response, StatusCode};
use serde_json::{Value, json};
use watertight_engine::ids::AgentId;
use watertight_policy::breaker;
use watertight_policy::latency::Histogram;
use watertight_policy::sizing::{self, Advice, Need};
use watertight_policy::time::{Span, Time};

use super::body::Body;
use super::reply::{json_response, plain, unknown};
use super::router::Router;
use crate::handle::AgentStats;

/// `GET /v1/agents`
pub(super) fn agents(router: &Router) -> Response<Body> {
    let now = router.handle().now();
    let agents: Vec<Value> = router.handle().agents().iter().map(|stats| one(router, stats, now)).collect();
    json_response(StatusCode::OK, json!({ "agents": agents }).to_string())
}

/// `POST /v1/agents/{agent}/breaker/reset`
pub(super) async fn reset_breaker(router: &Router, agent: &AgentId) -> Response<Body> {
    if !router.handle().breaker_reset(agent).await {
        return plain(&unknown(agent));
    }
    tracing::info!(%agent, "breaker reset by an operator");
    json_response(StatusCode::OK, json!({"agent": agent.as_str(), "breaker": {"state": "admitting"}}).to_string())
}

pub(super) fn one(router: &Router, stats: &AgentStats, now: Time) -> Value {
    let breaker = &stats.breaker;
    let mut out = json!({
        "agent": stats.agent.as_str(),
        "state": state_of(stats),
        "inFlight": stats.in_flight,
        "maxInFlight": stats.max_in_flight,
        "waiting": stats.waiting,
        "queued": stats.queued,
        "oldestQueuedMs": stats.oldest.map(millis),
        "streams": stats.streams,
        "pacingMs": stats.pacing.map(millis),
        "drain": stats.drain.map(|left| json!({"leftMs": millis(left), "suspended": stats.suspended})),
        "breaker": {
            "state": state(breaker.state),
            "untilMs": breaker.until.map(|until| millis(until.since(now))),
            "ejections": breaker.ejections,
            "calls": breaker.calls,
            "failures": breaker.failures,
            "slow": breaker.slow,
            "consecutiveFailures": breaker.consecutive,
        },
        "lately": lately(stats),
    });
    if let (Some(out), Some(last)) = (out.as_object_mut(), &stats.woken) {
        let ago = millis(now.since(last.at));
        out.insert("wake".to_owned(), json!({"agoMs": ago, "ok": last.ok, "said": last.said}));
    }
    let rules = router.handle().rules();
    if let (Some(out), Some(place)) = (out.as_object_mut(), rules.place(&stats.agent)) {
        let may_call = rules.callable(&stats.agent);
        let may_call = may_call.map(|all| all.iter().map(|agent| agent.as_str().to_owned()).collect::<Vec<_>>());
        let access = json!({
            "tenant": place.tenant,
            "parent": place.parent.as_ref().map(AgentId::as_str),
            "canDelegate": place.can_delegate,
            "mayCall": may_call,
        });
        out.insert("access".to_owned(), access);
    }
    if let Some(out) = out.as_object_mut() {
        let enrolment = router.enrolment(&stats.agent);
        out.insert("registered".to_owned(), json!(enrolment.is_some()));
        out.extend(enrolment.map(|by| ("enrolment".to_owned(), json!(by))));
    }
    let configured = router.agent(&stats.agent);
    if let (Some(out), Some(agent)) = (out.as_object_mut(), configured) {
        let (bulkhead, budget) = (&agent.settings.bulkhead, &agent.settings.budget);
        let url = (!agent.wire.fetches).then(|| agent.wire.url.to_string());
        out.insert("url".to_owned(), json!(url));
        if let Some(workers) = stats.workers {
            let lease = u64::try_from(agent.lease.as_millis()).unwrap_or(u64::MAX);
            out.insert("fetches".to_owned(), json!({"workers": workers, "leaseMs": lease}));
        }
        out.insert("card".to_owned(), card(router, &stats.agent));
        let interface = router.handle().interface(&stats.agent).filter(|_| !agent.wire.fetches);
        out.insert(
            "interface".to_owned(),
            json!(interface.map(|(binding, path)| json!({"binding": binding, "path": path}))),
        );
        let limits = json!({
            "maxWaiting": bulkhead.max_waiting,
            "maxWaitMs": millis(bulkhead.max_wait),
            "budgetMs": millis(budget.remaining),
            "waitMs": agent.wait.map(millis),
            "depth": budget.depth,
            "fanout": budget.fanout,
            "maxQueued": agent.settings.max_queued,
            "maxQueuedPerCaller": agent.settings.max_queued_per_caller,
            "queueTtlMs": millis(agent.settings.queue_ttl),
            "queueTtlMaxMs": millis(agent.settings.queue_ttl_max),
            "ageingMs": millis(agent.settings.queue.ageing),
            "attempts": agent.settings.attempts,
            "connectTimeoutMs": agent.wire.connect_timeout.as_millis(),
            "idleTimeoutMs": agent.wire.idle_timeout.as_millis(),
            "maxResultBytes": agent.settings.acceptance.max_result_bytes,
            "maxTaskBytes": agent.settings.acceptance.max_task_bytes,
        });
        out.insert("durability".to_owned(), json!(agent.settings.durability.as_str()));
        if let Some((tasks, bytes)) = stats.in_memory {
            let limits = agent.memory;
            let kept = json!({
                "tasks": tasks, "maxTasks": limits.max_tasks, "bytes": bytes, "maxBytes": limits.max_bytes,
            });
            out.insert("memory".to_owned(), kept);
        }
        out.insert("limits".to_owned(), limits);
    }
    out
}

/// What traffic meets.
pub(crate) fn state_of(stats: &AgentStats) -> &'static str {
    match (stats.removed || stats.drain.is_some(), stats.breaker.state, stats.pacing) {
        (true, _, _) => "draining",
        (false, breaker::State::Admitting, _) if stats.asleep => "asleep",
        (false, breaker::State::Admitting, Some(_)) => "pacing",
        (false, breaker, _) => state(breaker),
    }
}

/// What was asked of it in the last minutes, and what that says about its slots.
fn lately(stats: &AgentStats) -> Value {
    let seen = &stats.seen;
    json!({
        "overMs": millis(seen.over),
        "callsPerSecond": rounded(seen.rate_per_s()),
        "turns": times(&seen.turns),
        "slotWait": times(&seen.waits),
        "turnedAway": seen.turned_away,
        "peakInFlight": seen.peak,
        "strandedSlots": stats.stranded(),
        "advice": advice(stats),
    })
}

fn times(all: &Histogram) -> Value {
    let at = |share| all.quantile(share).map(|span| rounded(span.as_secs_f64() * 1e3));
    json!({ "count": all.count(), "p50Ms": at(5_000), "p99Ms": at(9_900) })
}

/// To the hundredth: what stands behind it is no more exact.
fn rounded(number: f64) -> f64 {
    (number * 1e2).round() / 1e2
}

fn advice(stats: &AgentStats) -> Value {
    let (verdict, need) = match stats.advice {
        None => ("kept_away", None),
        Some(Advice::TooFew { .. }) => ("too_few", None),
        Some(Advice::Unwell) => ("unwell", None),
        Some(Advice::Raise(need)) => ("raise", Some(need)),
        Some(Advice::Bursts(need)) => ("bursts", Some(need)),
        Some(Advice::Enough(need)) => ("enough", Some(need)),
    };
    let latency = need.map(|need| rounded(need.latency.as_secs_f64() * 1e3));
    json!({ "verdict": verdict, "slots": need.map(|need| need.slots), "latencyMs": latency, "text": in_words(stats) })
}

fn in_words(stats: &AgentStats) -> String {
    let has = stats.max_in_flight;
    match stats.advice {
        None => "kept from traffic by its breaker: no advice meanwhile".to_owned(),
        Some(Advice::TooFew { answered }) => format!("too few calls to say: {answered} answered lately"),
        Some(Advice::Unwell) => "most turns fail or are slow: more slots would not help".to_owned(),
        Some(Advice::Raise(need)) => {
            format!("needs {}; has {has}: raise max_in_flight to {}", needs(&need), need.slots)
        }
        Some(Advice::Bursts(need)) => {
            let away = stats.seen.turned_away;
            format!(
                "needs {}; has {has}, but {away} calls were turned away in bursts: raise max_in_flight, or max_waiting",
                needs(&need)
            )
        }
        Some(Advice::Enough(need)) => match stats.stranded() {
            0 => format!("needs {}; has {has}", needs(&need)),
            stranded => format!("needs {}; has {has}: {stranded} stranded", needs(&need)),
        },
    }
}

/// `7 slots (3.1 calls/s × 1.8 s, and a quarter more)`
fn needs(need: &Need) -> String {
    let plural = if need.slots == 1 { "slot" } else { "slots" };
    let load = format!("{} calls/s × {} s", short(need.rate_per_s), short(need.latency.as_secs_f64()));
    match sizing::advice(need.rate_per_s, need.latency) {
        by_load if by_load < need.slots => format!("{} {plural} (as many were taken at once; {load})", need.slots),
        _ => format!("{} {plural} ({load}, and a quarter more)", need.slots),
    }
}

/// Two figures of a number that is not large.
fn short(number: f64) -> String {
    let digits = match number {
        n if n >= 9.95 => 0,
        n if n >= 0.095 || n == 0.0 => 1,
        n if n >= 0.0095 => 2,
        _ => 3,
    };
    format!("{number:.digits$}")
}

/// The agent's card as last seen; null if it was never seen.
fn card(router: &Router, agent: &AgentId) -> Value {
    let Some(card) = router.handle().card(agent) else { return Value::Null };
    json!({
        "name": card.view.name,
        "version": card.view.version,
        "streaming": card.view.streaming,
        "stale": card.stale,
        "fetchedAgoMs": card.fetched.elapsed().as_millis(),
        "source": card.source.to_string(),
        "elsewhere": card.elsewhere,
    })
}

fn state(state: breaker::State) -> &'static str {
    match state {
        breaker::State::Admitting => "admitting",
        breaker::State::Ejected => "ejected",
        breaker::State::Probing => "probing",
    }
}

fn millis(span: Span) -> u64 {
    span.as_millis()
}

#[cfg(test)]
mod tests {
    use watertight_policy::load::{End, Load};

    use super::*;

    #[test]
    fn advice_in_words() {
        let mut load = Load::new(Time::ZERO);
        (0..310).for_each(|_| load.ended(Time::ZERO, End::Answered, Span::from_millis(1_800), Span::ZERO));
        load.in_flight(Time::ZERO, 6);
        let seen = load.seen(Time::ZERO + Span::from_secs(100));
        let stats = |max_in_flight| AgentStats {
            agent: AgentId::new("hotels"),
            in_flight: 0,
            max_in_flight,
            waiting: 0,
            queued: 0,
            oldest: None,
            breaker: breaker::Breaker::new(breaker::Params::default()).snapshot(),
            pacing: None,
            streams: 0,
            removed: false,
            drain: None,
            suspended: 0,
            asleep: false,
            workers: None,
            woken: None,
            in_memory: None,
            advice: Some(Advice::of(&seen, max_in_flight, Span::MAX)),
            seen: seen.clone(),
        };
        let needs = "needs 7 slots (3.1 calls/s × 1.8 s, and a quarter more); has ";
        for (slots, rest) in [(16, "16: 9 stranded"), (7, "7"), (4, "4: raise max_in_flight to 7")] {
            assert_eq!(in_words(&stats(slots)), format!("{needs}{rest}"));
        }
    }

    #[test]
    fn numbers_have_as_many_figures_as_they_are_worth() {
        let said: Vec<String> = [0.0, 0.004, 0.03, 0.1, 3.16, 9.97, 120.4].into_iter().map(short).collect();
        assert_eq!(said, ["0.0", "0.004", "0.03", "0.1", "3.2", "10", "120"]);
    }
}

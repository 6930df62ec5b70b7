//! What the demo claims, each claim held against what was measured.
//!
//! With walls: a slow hotels agent costs its own callers something bounded, and nobody else anything. Without walls:
//! the same fault takes everything down. Claims about time allow for how late this machine was with what was due,
//! and a refusal is held against a bare exchange between two processes, made beside it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use watertight_policy::reason::Reason;

use super::Mode;
use super::model::{Agent, Answer, Call, Outcome, Phase, RESERVE, TRIP_BUDGET, Trip};
use super::report::{Facts, HotelsLog, Work, round, show};
use super::stats::{Samples, most_at_once};

/// Scheduling of three processes on a busy machine, on top of what the gateway promises.
const SLACK: Duration = Duration::from_millis(50);
const NEIGHBOUR_SLACK: Duration = Duration::from_millis(30);
const SLOTS_FULL_WITHIN: Duration = Duration::from_secs(2);
/// On top of what the smallest exchange with an idle process takes here: four calls a second find every cache cold.
const REFUSED_WITHIN: Duration = Duration::from_millis(5);
/// By now the shared pool holds nothing but hotels calls.
pub(super) const COLLAPSED_AFTER: Duration = Duration::from_secs(16);

#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) id: &'static str,
    pub(super) pass: bool,
    pub(super) claim: String,
    pub(super) measured: String,
    /// Seconds, counts or shares, by name.
    figures: BTreeMap<&'static str, f64>,
}

impl Verdict {
    fn new(id: &'static str, claim: impl Into<String>) -> Verdict {
        let measured = "not measured".to_owned();
        Verdict { id, pass: false, claim: claim.into(), measured, figures: BTreeMap::new() }
    }

    fn measured(mut self, pass: bool, measured: String, figures: &[(&'static str, f64)]) -> Verdict {
        (self.pass, self.measured) = (pass, measured);
        self.figures.extend(figures.iter().copied());
        self
    }
}

pub(super) fn judge(facts: &Facts) -> Vec<Verdict> {
    match facts.mode {
        Mode::WithoutWalls => vec![collapse(facts)],
        Mode::Walls | Mode::Direct => vec![
            neighbour(facts, Agent::Flights),
            neighbour(facts, Agent::Fx),
            slots_full(facts),
            refused_by_bulkhead(facts),
            refused_by_breaker(facts),
            cut_at_deadline(facts),
            cancelled(facts),
            answered(facts),
            probes(facts),
            readmitted(facts),
        ],
    }
}

fn neighbour(facts: &Facts, agent: Agent) -> Verdict {
    let id = if agent == Agent::Flights { "flights_unchanged" } else { "fx_unchanged" };
    let verdict = Verdict::new(id, format!("{agent} does not notice: p99 at most 10 % or 30 ms higher, every call ok"));
    let calls = |phase| facts.records.calls.iter().filter(move |c| c.agent == agent && c.phase == phase);
    let p99 = |phase| calls(phase).map(Call::took).collect::<Samples>().quantile(99);
    let (Some(before), Some(during)) = (p99(Phase::Before), p99(Phase::During)) else { return verdict };
    let (all, ok) = (calls(Phase::During).count(), calls(Phase::During).filter(|c| c.outcome == Outcome::Ok).count());
    let allowed = NEIGHBOUR_SLACK.max(before / 10) + facts.late.p99;
    let text = format!("p99 {} before, {} during the fault; {ok} of {all} ok", show(before), show(during));
    let figures = [("before_s", round(before)), ("during_s", round(during)), ("calls", all as f64), ("ok", ok as f64)];
    verdict.measured(during <= before + allowed && ok == all, text, &figures)
}

fn slots_full(facts: &Facts) -> Verdict {
    let slots = Agent::Hotels.bulkhead().max_in_flight;
    let verdict = Verdict::new("slots_full", format!("the {slots} hotels slots are full within 2 s of the fault"));
    let Some(at) = facts.slots_full else { return verdict };
    let after = at.saturating_sub(facts.fault_from);
    verdict.measured(
        after <= SLOTS_FULL_WITHIN + facts.late.most,
        format!("after {}", show(after)),
        &[("after_s", round(after))],
    )
}

fn refused_by_bulkhead(facts: &Facts) -> Verdict {
    let limit = Agent::Hotels.bulkhead().max_wait + SLACK;
    let claim = format!("a hotels call without a slot is refused within {}", show(limit));
    // A call that waits for a slot when the breaker opens is refused by the breaker, but it had waited for the slot.
    let opened = ejected_from(facts).unwrap_or(Duration::MAX);
    let waiting = refusals(facts, Reason::BreakerOpen).filter(|call| call.made < opened);
    let waits: Samples = refusals(facts, Reason::BulkheadFull).chain(waiting).map(Call::took).collect();
    let verdict = Verdict::new("refused_by_bulkhead", claim);
    let Some(longest) = waits.max() else { return verdict };
    let text = format!("{} refused, the longest waited {}", waits.len(), show(longest));
    verdict.measured(
        longest <= limit + facts.late.most,
        text,
        &[("refused", waits.len() as f64), ("longest_s", round(longest))],
    )
}

fn refused_by_breaker(facts: &Facts) -> Verdict {
    let within = show(REFUSED_WITHIN);
    let claim = format!("once the breaker is open, refusal takes at most {within} more than a bare exchange (p99)");
    let verdict = Verdict::new("refused_by_breaker", claim);
    let Some(opened) = ejected_from(facts) else { return verdict };
    let arrived_later = refusals(facts, Reason::BreakerOpen).filter(|call| call.made >= opened);
    let (first, last) = arrived_later
        .clone()
        .fold((Duration::MAX, Duration::ZERO), |(first, last), call| (first.min(call.made), last.max(call.ended)));
    let waits: Samples = arrived_later.map(Call::took).collect();
    let meanwhile = facts.records.plain.iter().filter(|plain| (first..=last).contains(&plain.made));
    let plain: Samples = meanwhile.map(|plain| plain.took).collect();
    let quantiles = |of: &Samples| Some((of.quantile(50)?, of.quantile(99)?));
    let (Some((p50, p99)), Some((plain_p50, plain_p99))) = (quantiles(&waits), quantiles(&plain)) else {
        return verdict;
    };
    let opened = opened.saturating_sub(facts.fault_from);
    let text = format!(
        "open after {}; {} refused, p50 {}, p99 {}; bare p50 {}, p99 {}",
        show(opened),
        waits.len(),
        show(p50),
        show(p99),
        show(plain_p50),
        show(plain_p99)
    );
    let figures = [
        ("opened_after_s", round(opened)),
        ("refused", waits.len() as f64),
        ("p50_s", round(p50)),
        ("p99_s", round(p99)),
        ("bare_p50_s", round(plain_p50)),
        ("bare_p99_s", round(plain_p99)),
    ];
    verdict.measured(p99 <= plain_p99 + REFUSED_WITHIN + facts.late.p99, text, &figures)
}

fn cut_at_deadline(facts: &Facts) -> Verdict {
    let deadline = TRIP_BUDGET - RESERVE;
    let claim = format!("a hotels call in flight is cut at its own deadline, {} into the trip", show(deadline));
    let at: Samples = cuts(facts).map(|call| call.ended.saturating_sub(call.trip)).collect();
    let verdict = Verdict::new("cut_at_deadline", claim);
    let (Some(first), Some(last)) = (at.min(), at.max()) else { return verdict };
    let text = format!("{} cut, between {:.3} s and {:.3} s", at.len(), first.as_secs_f64(), last.as_secs_f64());
    let pass = first >= deadline - SLACK && last <= deadline + 2 * SLACK + facts.late.most;
    let figures = [("cut", at.len() as f64), ("earliest_s", round(first)), ("latest_s", round(last))];
    verdict.measured(pass, text, &figures)
}

fn cancelled(facts: &Facts) -> Verdict {
    let verdict = Verdict::new("cancelled", "the agent receives CancelTask for every call cut, and stops the work");
    let cut = cuts(facts).count() as u64;
    // Whose trip was over before the cut could be told does not know of it.
    let untold = hotels(facts).filter(|call| call.outcome == Outcome::Unanswered).count() as u64;
    let HotelsLog { canceled, still_running, .. } = &facts.hotels;
    let text = format!("{cut} cut, {canceled} cancelled, {still_running} still running at the end");
    let figures = [("cut", cut as f64), ("cancelled", *canceled as f64), ("still_running", *still_running as f64)];
    let all = (cut..=cut + untold).contains(canceled);
    verdict.measured(cut > 0 && all && *still_running == 0, text, &figures)
}

fn answered(facts: &Facts) -> Verdict {
    let verdict = Verdict::new("answered", "every trip has an answer inside its 6 s, with what there is");
    let trips = &facts.records.trips;
    let Some(slowest) = trips.iter().map(Trip::took).max() else { return verdict };
    let nothing = trips.iter().filter(|trip| trip.answer == Answer::Nothing).count();
    let text = format!("slowest of {} trips {:.3} s; {nothing} got nothing", trips.len(), slowest.as_secs_f64());
    let figures = [("trips", trips.len() as f64), ("slowest_s", round(slowest)), ("nothing", nothing as f64)];
    verdict.measured(slowest <= TRIP_BUDGET + facts.late.most && nothing == 0, text, &figures)
}

fn probes(facts: &Facts) -> Verdict {
    let verdict =
        Verdict::new("one_probe_at_a_time", "while hotels is ejected, it sees one probe at a time and no more");
    let (Some(from), Some(readmitted)) = (ejected_from(facts), readmission(facts)) else { return verdict };
    // The probe that re-admits ends at `readmitted`; what the agent starts after it is ordinary work again.
    let during = facts.hotels.work.iter().filter(|work| from <= work.started && work.started < readmitted);
    let spans: Vec<_> = during.map(|work| (work.started, work.ended.unwrap_or(Duration::MAX))).collect();
    let most = most_at_once(&spans);
    let text = format!("{} probes in {}, at most {most} at once", spans.len(), show(readmitted.saturating_sub(from)));
    let figures = [("probes", spans.len() as f64), ("most_at_once", most as f64)];
    verdict.measured(most == 1, text, &figures)
}

fn readmitted(facts: &Facts) -> Verdict {
    let verdict = Verdict::new("readmitted", "after the fault a single probe brings hotels back");
    let Some(at) = readmission(facts) else { return verdict };
    let succeeded = |call: &&Call| call.agent == Agent::Hotels && call.made > at;
    let later: Vec<_> = facts.records.calls.iter().filter(succeeded).collect();
    let ok = later.iter().filter(|call| call.outcome == Outcome::Ok).count();
    let fresh = |work: &&Work| facts.fault_to <= work.started && work.started < at;
    let probes = facts.hotels.work.iter().filter(fresh).count();
    let after = at.saturating_sub(facts.fault_to);
    let text = format!("after {} and {probes} probe(s); then {ok} of {} calls ok", show(after), later.len());
    let figures =
        [("after_s", round(after)), ("probes", probes as f64), ("later", later.len() as f64), ("later_ok", ok as f64)];
    verdict.measured(probes == 1 && ok == later.len() && ok > 0, text, &figures)
}

fn collapse(facts: &Facts) -> Verdict {
    let verdict = Verdict::new("collapse", "without walls, from 16 s into the fault 9 in 10 trips get nothing at all");
    let from = facts.fault_from + COLLAPSED_AFTER;
    let late = |trip: &&Trip| trip.phase == Phase::During && trip.arrived >= from;
    let late: Vec<_> = facts.records.trips.iter().filter(late).collect();
    if late.is_empty() {
        return verdict;
    }
    let nothing = late.iter().filter(|trip| trip.answer == Answer::Nothing).count();
    let share = nothing as f64 / late.len() as f64;
    let full = facts.pool_full.map(|at| at.saturating_sub(facts.fault_from));
    let full_text = full.map_or_else(|| "never".to_owned(), |after| format!("after {}", show(after)));
    let text = format!("{nothing} of {} trips got nothing ({:.0} %); pool full {full_text}", late.len(), share * 100.0);
    let mut verdict = verdict.measured(
        share >= 0.9,
        text,
        &[("trips", late.len() as f64), ("nothing", nothing as f64), ("share", share)],
    );
    verdict.figures.extend(full.map(|after| ("pool_full_after_s", round(after))));
    verdict
}

fn hotels(facts: &Facts) -> impl Iterator<Item = &Call> + Clone {
    facts.records.calls.iter().filter(|call| call.agent == Agent::Hotels)
}

fn cuts(facts: &Facts) -> impl Iterator<Item = &Call> {
    hotels(facts).filter(|call| call.outcome == Outcome::Cut)
}

fn refusals(facts: &Facts, why: Reason) -> impl Iterator<Item = &Call> + Clone {
    hotels(facts).filter(move |call| matches!(&call.outcome, Outcome::Refused(word) if word == why.as_str()))
}

/// When the breaker was first met.
fn ejected_from(facts: &Facts) -> Option<Duration> {
    refusals(facts, Reason::BreakerOpen).map(|call| call.ended).min()
}

/// When the first call since the ejection came back good.
fn readmission(facts: &Facts) -> Option<Duration> {
    let from = ejected_from(facts)?;
    hotels(facts).filter(|call| call.outcome == Outcome::Ok && call.made >= from).map(|call| call.ended).min()
}

#[cfg(test)]
mod tests;

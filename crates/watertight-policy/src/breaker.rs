//! Breaker: stops traffic to an agent that fails, and lets single trials through until one succeeds.
//!
//! The states are named by what traffic meets:
//!
//! ```text
//!              enough failures                    ejection over, begin_probe
//!  Admitting ───────────────────▶ Ejected ─────────────────────────────────▶ Probing
//!      ▲                            ▲   ▲                                     │ │ │
//!      │                            │   └── trial failed: ejected, longer ────┘ │ │
//!      │                            └────── trial told nothing: try again ──────┘ │
//!      └─────────────────────────────────── trial succeeded ──────────────────────┘
//! ```
//!
//! A trial that hangs is given up after `probe_timeout` and another may begin, so there is always another trial.
//! Results of calls begun before the ejection neither extend nor end it, and those begun before the return do not
//! count after it.
//!
//! **One caller cannot open it for all.** A caller that allows an agent a tenth of a second sees failures that nobody
//! else sees. Once [`CALLERS_FOR_CAP`] callers are in the window, failures of one caller count for at most
//! `share / (1 − share)` times what all others failed: with the default of one half, for at most as many. The excess
//! is left out of the calls, too, as if it had never happened. The same holds for failures in a row. The price: an
//! agent that dies while only one of three recent callers still calls it is noticed by failure counts up to one
//! window late.
//!
//! Assumes that failures which are the caller's fault (4xx, unknown task, cancel) are recorded as [`Sample::Neutral`],
//! or as [`Sample::Success`] where the answer shows the agent to be well. Leaves out retries, which inputs are poison,
//! and what a call is. Memory is bounded: 16 buckets of 16 callers each.

use crate::time::{Span, Time};

mod params;
#[cfg(test)]
mod tests;
mod window;

pub use params::{InvalidParams, Params};
use window::{Counts, Run, Window};

/// How many different callers must be in the window before one caller's share of the failures is capped. With two, a
/// cap would let either of them hide from the other that the agent is down.
pub const CALLERS_FOR_CAP: usize = 3;

/// What traffic meets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Calls pass and are counted.
    Admitting,
    /// No calls pass, until a time.
    Ejected,
    /// One call passes and decides.
    Probing,
}

/// What a call may do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// Go.
    Open,
    /// One call may go as a trial: [`Breaker::begin_probe`] first.
    Probe,
    /// Refuse.
    Closed {
        /// When a trial may begin; `None` while one is under way, whose end nobody knows.
        until: Option<Time>,
    },
}

/// A trial call. Never reused within one breaker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProbeId(u64);

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sample {
    /// The agent did what it should.
    Success {
        /// How long it took. At `slow_call` and above it counts as slow.
        took: Span,
    },
    /// It failed, and not by the caller's fault.
    Failure,
    /// We stopped waiting. A failure if the agent had at least `min_wait`, otherwise nothing is known.
    Cut {
        /// How long the agent had.
        waited: Span,
    },
    /// It says nothing about the agent's health. A trial that ends so is abandoned.
    Neutral,
}

/// Why traffic was stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// So many failures in a row.
    Consecutive,
    /// Such a share of failures in the window.
    FailureRate,
    /// Such a share of slow calls in the window.
    SlowRate,
    /// The trial failed.
    Trial,
}

/// A change of state worth telling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// Traffic stops.
    Ejected {
        /// When the next trial may begin.
        until: Time,
        /// What did it.
        cause: Cause,
    },
    /// Traffic flows again.
    Admitted,
}

/// The breaker at one moment, for people and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// What traffic meets. An ejection that is over stays `Ejected` until a trial begins.
    pub state: State,
    /// When the ejection is over, or the trial is given up.
    pub until: Option<Time>,
    /// Ejections in a row, without a good trial between them.
    pub ejections: u32,
    /// Calls in the window, as of the last sample.
    pub calls: u64,
    /// Failures among them, before any cap.
    pub failures: u64,
    /// Slow calls among them, before any cap.
    pub slow: u64,
    /// Failures in a row, before any cap.
    pub consecutive: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Admitting,
    Ejected { until: Time },
    Probing { probe: ProbeId, since: Time },
}

/// One agent's breaker.
#[derive(Clone, Debug)]
pub struct Breaker {
    params: Params,
    phase: Phase,
    /// When traffic was last let in: what began before does not count.
    admitted: Time,
    ejections: u32,
    next_probe: u64,
    window: Window,
    run: Run,
}

impl Breaker {
    /// A breaker that has seen nothing and lets traffic pass.
    pub const fn new(params: Params) -> Self {
        Self {
            params,
            phase: Phase::Admitting,
            admitted: Time::ZERO,
            ejections: 0,
            next_probe: 0,
            window: Window::new(),
            run: Run::new(),
        }
    }

    /// What a call may do at `now`. Changes nothing.
    pub fn gate(&self, now: Time) -> Gate {
        match self.phase {
            Phase::Admitting => Gate::Open,
            Phase::Ejected { until } if now < until => Gate::Closed { until: Some(until) },
            Phase::Probing { since, .. } if now < since + self.params.probe_timeout => Gate::Closed { until: None },
            Phase::Ejected { .. } | Phase::Probing { .. } => Gate::Probe,
        }
    }

    /// Begins a trial, where [`Breaker::gate`] says `Probe`. Elsewhere it changes nothing, and the id it gives is one
    /// that no result counts for. A trial that hung is replaced: its late result no longer counts.
    pub fn begin_probe(&mut self, now: Time) -> ProbeId {
        let probe = ProbeId(self.next_probe);
        self.next_probe += 1;
        match self.gate(now) {
            Gate::Probe => self.phase = Phase::Probing { probe, since: now },
            Gate::Open | Gate::Closed { .. } => {}
        }
        probe
    }

    /// The trial told nothing (it was never sent, say): another may begin at once.
    pub fn abandon_probe(&mut self, probe: ProbeId) {
        match self.phase {
            Phase::Probing { probe: running, since } if running == probe => {
                self.phase = Phase::Ejected { until: since }
            }
            Phase::Admitting | Phase::Ejected { .. } | Phase::Probing { .. } => {}
        }
    }

    /// Takes note of how a call ended, and says what that changed.
    ///
    /// `caller` is any stable number for who asked; `probe` is the trial that this call was, if it was one. Of a
    /// failure without a duration it is not known when the call began: use [`Breaker::record_begun`] where it is.
    pub fn record(&mut self, now: Time, caller: u64, sample: Sample, probe: Option<ProbeId>) -> Option<Transition> {
        let took = match sample {
            Sample::Success { took } => took,
            Sample::Cut { waited } => waited,
            Sample::Failure | Sample::Neutral => Span::ZERO,
        };
        self.record_begun(now, now - took, caller, sample, probe)
    }

    /// Like [`Breaker::record`], for a call that is known to have begun at `begun`: one from before the last return
    /// of traffic says nothing about the agent as it is now, and is left out.
    pub fn record_begun(
        &mut self,
        now: Time,
        begun: Time,
        caller: u64,
        sample: Sample,
        probe: Option<ProbeId>,
    ) -> Option<Transition> {
        let outcome = self.outcome(sample);
        match (self.phase, probe) {
            (Phase::Admitting, None) if begun >= self.admitted => self.count(now, caller, outcome),
            (Phase::Probing { probe: running, since }, Some(probe)) if running == probe => {
                self.conclude(now, since, outcome)
            }
            (Phase::Admitting | Phase::Ejected { .. } | Phase::Probing { .. }, _) => None,
        }
    }

    /// Lets traffic in and forgets everything: an operator knows better. Trials under way no longer count.
    pub fn reset(&mut self, now: Time) {
        self.phase = Phase::Admitting;
        self.admitted = self.admitted.max(now);
        self.ejections = 0;
        self.window.clear();
        self.run.clear();
    }

    /// Moves the window, the ejection and the trial by an outage of our own, in which the agent could show nothing.
    pub fn shift(&mut self, by: Span) {
        self.window.shift(by);
        self.phase = match self.phase {
            Phase::Admitting => Phase::Admitting,
            Phase::Ejected { until } => Phase::Ejected { until: until + by },
            Phase::Probing { probe, since } => Phase::Probing { probe, since: since + by },
        };
    }

    /// When the gate turns to `Probe` by itself, which may have passed already; see [`Breaker::wake_after`].
    pub fn next_wake(&self) -> Option<Time> {
        let at = match self.phase {
            Phase::Admitting => return None,
            Phase::Ejected { until } => until,
            Phase::Probing { since, .. } => since + self.params.probe_timeout,
        };
        (at < Time::FAR).then_some(at)
    }

    /// When the gate turns to `Probe` by itself, if that is still ahead: what to set a timer to.
    pub fn wake_after(&self, now: Time) -> Option<Time> {
        self.next_wake().filter(|at| *at > now)
    }

    /// The breaker as it stands.
    pub fn snapshot(&self) -> Snapshot {
        let total = self.window.total();
        Snapshot {
            state: self.state(),
            until: self.next_wake(),
            ejections: self.ejections,
            calls: total.calls,
            failures: total.failures,
            slow: total.slow,
            consecutive: self.run.len(),
        }
    }

    /// Different callers in the window, as of the last sample; those beyond what is tracked are one. Walks over the
    /// window, which a [`Breaker::snapshot`] does not.
    pub fn callers(&self) -> usize {
        self.window.callers()
    }

    /// What traffic meets.
    pub const fn state(&self) -> State {
        match self.phase {
            Phase::Admitting => State::Admitting,
            Phase::Ejected { .. } => State::Ejected,
            Phase::Probing { .. } => State::Probing,
        }
    }

    /// The limits in force.
    pub const fn params(&self) -> Params {
        self.params
    }

    /// New limits from now on. An ejection under way keeps its end; a trial under way gets the new timeout.
    pub const fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    fn outcome(&self, sample: Sample) -> Outcome {
        match sample {
            Sample::Success { took } if !self.params.slow_call.is_zero() && took >= self.params.slow_call => {
                Outcome::Slow
            }
            Sample::Success { .. } => Outcome::Good,
            Sample::Cut { waited } if waited < self.params.min_wait => Outcome::Silent,
            Sample::Failure | Sample::Cut { .. } => Outcome::Bad,
            Sample::Neutral => Outcome::Silent,
        }
    }

    /// Counts a call while traffic flows.
    fn count(&mut self, now: Time, caller: u64, outcome: Outcome) -> Option<Transition> {
        let counts = match outcome {
            Outcome::Silent => return None,
            Outcome::Good => Counts { calls: 1, failures: 0, slow: 0 },
            Outcome::Slow => Counts { calls: 1, failures: 0, slow: 1 },
            Outcome::Bad => Counts { calls: 1, failures: 1, slow: 0 },
        };
        self.window.add(now, self.params.window, caller, counts);
        match outcome {
            Outcome::Bad => self.run.add(caller),
            Outcome::Good | Outcome::Slow | Outcome::Silent => self.run.clear(),
        }
        let cause = self.verdict(outcome)?;
        Some(self.eject(now, cause))
    }

    /// Whether what was counted is enough. A good call never ejects, even where it makes up the minimum of calls.
    fn verdict(&self, outcome: Outcome) -> Option<Cause> {
        match outcome {
            Outcome::Good | Outcome::Silent => None,
            Outcome::Slow => self.too_many(self.params.slow_rate_bp, |counts| counts.slow).then_some(Cause::SlowRate),
            Outcome::Bad if self.too_many_in_a_row() => Some(Cause::Consecutive),
            Outcome::Bad => {
                self.too_many(self.params.failure_rate_bp, |counts| counts.failures).then_some(Cause::FailureRate)
            }
        }
    }

    fn too_many_in_a_row(&self) -> bool {
        let limit = u64::from(self.params.consecutive_failures);
        if limit == 0 || self.run.len() < limit {
            return false;
        }
        self.window.callers() < CALLERS_FOR_CAP || self.run.capped(self.params.caller_share_bp) >= limit
    }

    fn too_many(&self, rate_bp: u32, of: impl Fn(&Counts) -> u64) -> bool {
        let enough = |bad: u64, calls: u64| {
            calls >= u64::from(self.params.min_calls)
                && bad > 0
                && u128::from(bad) * 10_000 >= u128::from(calls) * u128::from(rate_bp)
        };
        let total = self.window.total();
        if rate_bp == 0 || !enough(of(&total), total.calls) {
            return false;
        }
        if self.window.callers() < CALLERS_FOR_CAP {
            return true;
        }
        let excess = self.window.excess(self.params.caller_share_bp, &of);
        enough(of(&total) - excess, total.calls - excess)
    }

    /// Ends a trial.
    fn conclude(&mut self, now: Time, since: Time, outcome: Outcome) -> Option<Transition> {
        match outcome {
            Outcome::Silent => {
                self.phase = Phase::Ejected { until: since };
                None
            }
            Outcome::Bad => Some(self.eject(now, Cause::Trial)),
            Outcome::Slow if self.params.slow_rate_bp > 0 => Some(self.eject(now, Cause::Trial)),
            Outcome::Good | Outcome::Slow => {
                self.reset(now);
                Some(Transition::Admitted)
            }
        }
    }

    fn eject(&mut self, now: Time, cause: Cause) -> Transition {
        self.ejections = self.ejections.saturating_add(1);
        let until = now + self.params.ejection(self.ejections);
        self.phase = Phase::Ejected { until };
        Transition::Ejected { until, cause }
    }
}

/// A sample as the breaker counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Good,
    Slow,
    Bad,
    Silent,
}

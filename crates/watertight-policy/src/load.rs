//! What one agent was asked for over the last five minutes: how long turns took, how long they waited for a slot, how
//! many came, how many slots they took at most.
//!
//! Fixed in size (six slices, about 17 kB) and cheap to feed. Assumes that time does not go backwards; what is older than
//! the window is forgotten by slices of fifty seconds. Leaves out what to make of it: [`crate::sizing`].

use crate::latency::Histogram;
use crate::time::{Span, Time};

const SLICES: u64 = 6;
const SLICE: Span = Span::from_secs(50);
/// What was seen for less than this is taken as seen for this long, so that the first calls are no flood.
const AT_LEAST: Span = Span::from_secs(10);

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By the agent's own word, whatever it was.
    Answered,
    /// By a fault, or cut by us.
    Unanswered,
}

#[derive(Clone, Debug, Default)]
struct Slice {
    /// Which, counted from the epoch.
    no: u64,
    answered: Histogram,
    unanswered: Histogram,
    waits: Histogram,
    turned_away: u64,
    peak: u32,
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Load {
    since: Time,
    slices: Vec<Slice>,
}

/// What was seen.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    /// For how long.
    pub over: Span,
    /// Turns that ended by the agent's word, by how long they took.
    pub answered: Histogram,
    /// All turns that ended, likewise.
    pub turns: Histogram,
    /// How long turns waited for their slot.
    pub waits: Histogram,
    /// Calls that were refused for want of a slot.
    pub turned_away: u64,
    /// Slots taken at once, at most.
    pub peak: u32,
}

impl Load {
    /// Nothing seen yet.
    pub fn new(now: Time) -> Self {
        Self { since: now, slices: Vec::new() }
    }

    /// A turn ended that took so long from its last dispatch on, after it had waited so long for its slot.
    pub fn ended(&mut self, now: Time, end: End, took: Span, waited: Span) {
        let slice = self.slice(now);
        match end {
            End::Answered => slice.answered.add(took),
            End::Unanswered => slice.unanswered.add(took),
        }
        slice.waits.add(waited);
    }

    /// A call found neither a slot nor a place to wait, or waited for one in vain.
    pub fn turned_away(&mut self, now: Time) {
        let slice = self.slice(now);
        slice.turned_away = slice.turned_away.saturating_add(1);
    }

    /// So many slots are, or were a moment ago, taken at once.
    pub fn in_flight(&mut self, now: Time, slots: u32) {
        let slice = self.slice(now);
        slice.peak = slice.peak.max(slots);
    }

    /// Everything of the last minutes.
    pub fn seen(&self, now: Time) -> Seen {
        let current = number(now);
        let oldest = current.saturating_sub(SLICES - 1);
        let from = Time::from_micros(oldest.saturating_mul(SLICE.as_micros())).max(self.since);
        let mut seen = Seen {
            over: now.since(from).max(AT_LEAST),
            answered: Histogram::default(),
            turns: Histogram::default(),
            waits: Histogram::default(),
            turned_away: 0,
            peak: 0,
        };
        for slice in self.slices.iter().filter(|slice| (oldest..=current).contains(&slice.no)) {
            seen.answered.merge(&slice.answered);
            seen.turns.merge(&slice.answered);
            seen.turns.merge(&slice.unanswered);
            seen.waits.merge(&slice.waits);
            seen.turned_away += slice.turned_away;
            seen.peak = seen.peak.max(slice.peak);
        }
        seen
    }

    /// The slice of now; the oldest one makes room for it.
    fn slice(&mut self, now: Time) -> &mut Slice {
        let no = number(now);
        let at = match self.slices.iter().position(|slice| slice.no == no) {
            Some(at) => at,
            None if self.slices.len() < SLICES as usize => {
                self.slices.push(Slice::default());
                self.slices.len() - 1
            }
            None => {
                let oldest = self.slices.iter().enumerate().min_by_key(|(_, slice)| slice.no);
                oldest.map_or(0, |(at, _)| at)
            }
        };
        let slice = &mut self.slices[at];
        if slice.no != no {
            *slice = Slice { no, ..Slice::default() };
        }
        slice
    }
}

impl Seen {
    /// Calls that asked for a slot, got or not, per second.
    pub fn rate_per_s(&self) -> f64 {
        (self.turns.count() + self.turned_away) as f64 / self.over.as_secs_f64()
    }
}

fn number(now: Time) -> u64 {
    now.as_micros() / SLICE.as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_millis(1_767_225_600_000);

    #[test]
    fn a_steady_load_is_told_as_it_was() {
        let mut load = Load::new(START);
        for n in 0..1_000 {
            let now = START + Span::from_millis(n * 250);
            load.ended(now, End::Answered, Span::from_millis(1_500), Span::from_millis(20));
            load.in_flight(now, 6);
        }
        let seen = load.seen(START + Span::from_secs(250));
        assert_eq!((seen.over, seen.turns.count(), seen.peak), (Span::from_secs(250), 1_000, 6));
        assert!((seen.rate_per_s() - 4.0).abs() < 1e-9);
        assert!(seen.turns.quantile(5_000).unwrap().as_millis().abs_diff(1_500) < 90);
        assert!(seen.waits.quantile(9_900).unwrap().as_millis().abs_diff(20) <= 1);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut load = Load::new(START);
        load.ended(START, End::Unanswered, Span::from_secs(30), Span::ZERO);
        load.in_flight(START, 16);
        for n in 1..=20 {
            let now = START + SLICE.mul(n);
            load.ended(now, End::Answered, Span::from_secs(1), Span::ZERO);
            load.turned_away(now);
            assert!(load.slices.len() <= SLICES as usize);
        }
        let now = START + SLICE.mul(20);
        let seen = load.seen(now);
        assert_eq!((seen.turns.count(), seen.answered.count(), seen.turned_away, seen.peak), (6, 6, 6, 0));
        assert!(seen.over <= SLICE.mul(6) && seen.over >= SLICE.mul(5), "{}", seen.over);
        let idle = load.seen(now + Span::from_secs(3_600));
        assert_eq!((idle.turns.count(), idle.turned_away, idle.rate_per_s()), (0, 0, 0.0));
    }

    #[test]
    fn the_first_calls_are_no_flood() {
        let mut load = Load::new(START);
        (0..10).for_each(|_| load.ended(START, End::Answered, Span::from_secs(1), Span::ZERO));
        assert!((load.seen(START).rate_per_s() - 1.0).abs() < 1e-9);
    }
}

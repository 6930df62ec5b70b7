//! How often something may happen: a sliding window per key.
//!
//! Made for calls between agents that answer each other without end: each (from, to, conversation) has a window of its
//! own, so that a loop is stopped and its neighbours never notice. Assumes that the caller chooses keys which a loop
//! cannot change at every turn. What it remembers is bounded: above [`MAX_HITS`] the key that has been quiet the longest
//! is forgotten, which lets it begin anew. Leaves out what a refusal is called.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::time::{Span, Time};

/// Times that are remembered over all keys: about 4 MiB.
pub const MAX_HITS: usize = 1 << 18;

/// How often, in how long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// So many in any window. Zero: there is no limit. Thirty by default: more than two agents need to settle something,
    /// less than a loop takes to cost real money.
    pub limit: u32,
    /// The window. Zero: there is no limit. Two minutes by default.
    pub window: Span,
}

/// 30 in 2 min.
impl Default for Params {
    fn default() -> Self {
        Self { limit: 30, window: Span::from_secs(120) }
    }
}

/// What happened lately, by key.
#[derive(Debug)]
pub struct Rates<K> {
    params: Params,
    by_key: BTreeMap<K, VecDeque<Time>>,
    /// Keys by their latest hit.
    order: BTreeSet<(Time, K)>,
    hits: usize,
}

impl<K: Ord + Clone> Rates<K> {
    /// Nothing has happened yet.
    pub fn new(params: Params) -> Self {
        Self { params, by_key: BTreeMap::new(), order: BTreeSet::new(), hits: 0 }
    }

    /// Other limits from now on. What happened counts against them.
    pub const fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    /// The limits in force.
    pub const fn params(&self) -> Params {
        self.params
    }

    /// Whether it may happen once more; if not, from when on. Nothing is counted.
    pub fn check(&self, now: Time, key: &K) -> Result<(), Time> {
        let Params { limit, window } = self.params;
        if limit == 0 || window == Span::ZERO {
            return Ok(());
        }
        let Some(hits) = self.by_key.get(key) else { return Ok(()) };
        let full = (hits.len() as u64).checked_sub(u64::from(limit));
        // The hit that has to leave the window before another one may come in.
        match full.and_then(|at| hits.get(usize::try_from(at).ok()?)).map(|hit| *hit + window) {
            Some(again) if again > now => Err(again),
            Some(_) | None => Ok(()),
        }
    }

    /// It happened.
    pub fn record(&mut self, now: Time, key: &K) {
        let Params { limit, window } = self.params;
        if limit == 0 || window == Span::ZERO {
            return;
        }
        let hits = self.by_key.entry(key.clone()).or_default();
        if let Some(latest) = hits.back() {
            self.order.remove(&(*latest, key.clone()));
        }
        hits.push_back(now);
        self.hits += 1;
        while hits.len() > limit as usize {
            hits.pop_front();
            self.hits -= 1;
        }
        self.order.insert((now, key.clone()));
        while let Some((latest, oldest)) = self.order.first().cloned() {
            if latest + window > now && self.hits <= MAX_HITS {
                break;
            }
            self.order.pop_first();
            self.hits -= self.by_key.remove(&oldest).map_or(0, |hits| hits.len());
        }
    }

    /// Keys that are remembered.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// None is.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_millis(1_000_000 + secs * 1_000)
    }

    fn hit(rates: &mut Rates<u64>, secs: u64, key: u64) -> bool {
        let allowed = rates.check(at(secs), &key).is_ok();
        if allowed {
            rates.record(at(secs), &key);
        }
        allowed
    }

    #[test]
    fn the_window_slides() {
        let mut rates = Rates::new(Params { limit: 3, window: Span::from_secs(10) });
        assert!([0, 4, 8].into_iter().all(|secs| hit(&mut rates, secs, 1)));
        assert_eq!(rates.check(at(9), &1), Err(at(10)), "when the first one leaves it");
        assert!(hit(&mut rates, 9, 2), "another key has its own");
        assert!(hit(&mut rates, 10, 1) && !hit(&mut rates, 13, 1) && hit(&mut rates, 14, 1));
    }

    #[test]
    fn thirty_in_two_minutes_and_never_more_in_any_two() {
        let mut rates = Rates::new(Params::default());
        let allowed: Vec<u64> = (0..600).filter(|secs| hit(&mut rates, *secs, 7)).collect();
        for from in 0..480 {
            let within = allowed.iter().filter(|secs| (from..from + 120).contains(*secs)).count();
            assert!(within <= 30, "{within} in the two minutes from {from} s");
        }
        assert!(allowed.len() >= 30 * 5, "{}", allowed.len());
    }

    #[test]
    fn zero_is_no_limit() {
        for params in [Params { limit: 0, ..Params::default() }, Params { window: Span::ZERO, ..Params::default() }] {
            let mut rates = Rates::new(params);
            assert!((0..1_000).all(|_| hit(&mut rates, 0, 1)) && rates.is_empty());
        }
    }

    #[test]
    fn other_limits_count_what_happened() {
        let mut rates = Rates::new(Params { limit: 10, window: Span::from_secs(100) });
        assert!((0..10).all(|secs| hit(&mut rates, secs, 1)));
        rates.set_params(Params { limit: 4, window: Span::from_secs(100) });
        assert_eq!(rates.check(at(10), &1), Err(at(106)));
        rates.set_params(Params { limit: 12, window: Span::from_secs(100) });
        assert!(hit(&mut rates, 11, 1) && hit(&mut rates, 12, 1) && !hit(&mut rates, 13, 1));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut rates = Rates::new(Params { limit: 2, window: Span::from_secs(60) });
        for key in 0..10_000 {
            hit(&mut rates, key / 100, key);
        }
        assert!(rates.len() <= 6_100, "what left its window is gone: {}", rates.len());
        let mut rates = Rates::new(Params { limit: 1, window: Span::from_secs(86_400) });
        for key in 0..(MAX_HITS as u64 + 50) {
            hit(&mut rates, 0, key);
        }
        assert!(rates.hits == MAX_HITS && rates.len() == MAX_HITS && rates.order.len() == MAX_HITS);
    }
}

//! What the breaker remembers: calls of the last while, and the present run of failures, both by caller.
//!
//! Assumes few callers per agent and survives many: each bucket names up to [`NAMED`] of them, those with the most
//! failures, and keeps the others' counts together. What was kept together is not capped, since it came from many.

use std::collections::{BTreeMap, VecDeque};

use crate::time::{Span, Time};

const BUCKETS: u64 = 16;
/// Callers counted by name, in each bucket and in the run.
pub(super) const NAMED: usize = 16;

/// What happened, to one caller or to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) failures: u64,
    pub(super) slow: u64,
}

impl Counts {
    const NONE: Self = Self { calls: 0, failures: 0, slow: 0 };

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.failures += other.failures;
        self.slow += other.slow;
    }

    fn subtract(&mut self, other: Self) {
        self.calls -= other.calls;
        self.failures -= other.failures;
        self.slow -= other.slow;
    }

    const fn harm(&self) -> u64 {
        self.failures + self.slow
    }
}

#[derive(Clone, Debug)]
struct Bucket {
    start: Time,
    named: BTreeMap<u64, Counts>,
    others: Counts,
}

impl Bucket {
    fn add(&mut self, caller: u64, counts: Counts) {
        if let Some(known) = self.named.get_mut(&caller) {
            known.add(counts);
        } else if self.named.len() < NAMED {
            self.named.insert(caller, counts);
        } else if counts.harm() == 0 {
            self.others.add(counts);
        } else {
            // Whoever did the least harm makes room, so that a caller with many failures is soon known by name.
            let least = self.named.iter().min_by_key(|(_, counts)| counts.harm()).map(|(caller, _)| *caller);
            if let Some(left) = least.and_then(|caller| self.named.remove(&caller)) {
                self.others.add(left);
            }
            self.named.insert(caller, counts);
        }
    }
}

/// The calls of the last while, in at most sixteen buckets.
#[derive(Clone, Debug)]
pub(super) struct Window {
    buckets: VecDeque<Bucket>,
    total: Counts,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { buckets: VecDeque::new(), total: Counts::NONE }
    }

    pub(super) fn add(&mut self, now: Time, window: Span, caller: u64, counts: Counts) {
        self.roll(now, window);
        let width = Span::from_micros(window.as_micros().div_ceil(BUCKETS));
        if self.buckets.back().is_none_or(|last| last.start + width <= now) {
            self.buckets.push_back(Bucket { start: now, named: BTreeMap::new(), others: Counts::NONE });
        }
        if let Some(last) = self.buckets.back_mut() {
            last.add(caller, counts);
            self.total.add(counts);
        }
    }

    pub(super) fn clear(&mut self) {
        self.buckets.clear();
        self.total = Counts::NONE;
    }

    pub(super) fn shift(&mut self, by: Span) {
        for bucket in &mut self.buckets {
            bucket.start = bucket.start + by;
        }
    }

    pub(super) const fn total(&self) -> Counts {
        self.total
    }

    /// How many different callers there are; those without a name are one.
    pub(super) fn callers(&self) -> usize {
        let (named, others) = self.by_caller();
        named.len() + usize::from(others.calls > 0)
    }

    /// How much of the harm is above any one caller's share.
    pub(super) fn excess(&self, share_bp: u32, of: impl Fn(&Counts) -> u64) -> u64 {
        let (named, _) = self.by_caller();
        above_share(share_bp, of(&self.total), named.values().map(&of))
    }

    fn by_caller(&self) -> (BTreeMap<u64, Counts>, Counts) {
        let (mut named, mut others) = (BTreeMap::<u64, Counts>::new(), Counts::NONE);
        for bucket in &self.buckets {
            others.add(bucket.others);
            for (caller, counts) in &bucket.named {
                named.entry(*caller).or_default().add(*counts);
            }
        }
        (named, others)
    }

    fn roll(&mut self, now: Time, window: Span) {
        while let Some(oldest) = self.buckets.pop_front_if(|oldest| oldest.start + window <= now) {
            oldest.named.values().for_each(|counts| self.total.subtract(*counts));
            self.total.subtract(oldest.others);
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.buckets.len(), self.buckets.iter().map(|bucket| bucket.named.len()).max().unwrap_or(0))
    }
}

/// Failures since the last success.
#[derive(Clone, Debug)]
pub(super) struct Run {
    named: BTreeMap<u64, u64>,
    len: u64,
}

impl Run {
    pub(super) const fn new() -> Self {
        Self { named: BTreeMap::new(), len: 0 }
    }

    pub(super) fn add(&mut self, caller: u64) {
        self.len = self.len.saturating_add(1);
        if !self.named.contains_key(&caller)
            && self.named.len() >= NAMED
            && let Some(least) = self.named.iter().min_by_key(|(_, count)| **count).map(|(caller, _)| *caller)
        {
            self.named.remove(&least);
        }
        let count = self.named.entry(caller).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn clear(&mut self) {
        self.named.clear();
        self.len = 0;
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The length without what is above any one caller's share.
    pub(super) fn capped(&self, share_bp: u32) -> u64 {
        self.len - above_share(share_bp, self.len, self.named.values().copied())
    }
}

/// Of `total`, how much callers have above their share. A caller may have `share / (1 − share)` times what all others
/// have. It is measured against the others' real counts, so that the caps of several callers do not feed on each other
/// and an agent that fails for everybody is never talked down to nothing.
fn above_share(share_bp: u32, total: u64, counts: impl Iterator<Item = u64>) -> u64 {
    let rest_bp = 10_000u64.saturating_sub(u64::from(share_bp));
    if rest_bp == 0 {
        return 0;
    }
    let allowed = |others: u64| others.saturating_mul(u64::from(share_bp)) / rest_bp;
    counts.map(|count| count.saturating_sub(allowed(total - count))).sum()
}

//! Queue: which of the accepted work that waits for one agent goes next.
//!
//! A higher priority goes first. Inside one priority the senders take turns, by deficit round robin with unit cost and
//! the sender's weight as its quantum, so that a sender with a thousand items delays another's single one by no more
//! than its weight. A sender's own items go oldest first. What has waited for [`Params::ageing`] moves to the highest
//! priority, once, and keeps its age, so that nothing waits for ever behind what is more urgent.
//!
//! Assumes that whoever takes an item that should not start any more (its own timer ends it) lets it go and takes the
//! next: the queue knows no ends of waits, and nothing in it is ever scanned. An item is found again by its id and its
//! [`Spot`], which the owner keeps: there is no index by id. Leaves out how many may wait, and who may send.
//!
//! Every change is logarithmic in what waits. An item costs one entry of an ordered set: its age and its id.

use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};

use crate::time::{Span, Time};

#[cfg(test)]
mod tests;

/// The highest priority; the lowest is 0. More than this counts as this.
pub const HIGHEST: u8 = 100;

/// How a queue treats what waits long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// What has waited so long counts as most urgent. Zero: everything does, and priorities mean nothing.
    /// [`Span::MAX`]: nothing ever does, and low priorities can starve. Five minutes by default: longer than a burst,
    /// shorter than anybody's patience.
    pub ageing: Span,
}

impl Default for Params {
    fn default() -> Self {
        Self { ageing: Span::from_secs(300) }
    }
}

/// Where an item stands, and by what it is found again. It does not change while the item waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spot {
    /// Since when it waits.
    pub since: Time,
    /// Who sent it: a small number that the owner gives.
    pub sender: u32,
    /// 0 to [`HIGHEST`].
    pub priority: u8,
}

/// What waits for one agent. See the module's header.
#[derive(Clone, Debug)]
pub struct Queue<I> {
    params: Params,
    levels: BTreeMap<u8, Level<I>>,
    /// How many of each sender wait, over all levels.
    senders: BTreeMap<u32, usize>,
    /// The oldest item of each sender on each level that can still rise.
    oldest: BTreeSet<(Time, u8, u32)>,
    len: usize,
}

/// What waits with one priority.
#[derive(Clone, Debug)]
struct Level<I> {
    senders: BTreeMap<u32, Sender<I>>,
    /// Who is served next, in order of these numbers.
    ring: BTreeMap<u64, u32>,
    next_turn: u64,
    len: usize,
}

#[derive(Clone, Debug)]
struct Sender<I> {
    items: BTreeSet<(Time, I)>,
    /// Its place in the ring.
    turn: u64,
    /// Items that it may still give in this turn; 0: its turn has not begun.
    left: u32,
    weight: u32,
}

impl<I: Copy + Ord> Queue<I> {
    /// An empty queue.
    pub const fn new(params: Params) -> Self {
        Self { params, levels: BTreeMap::new(), senders: BTreeMap::new(), oldest: BTreeSet::new(), len: 0 }
    }

    /// Others from now on. What has risen stays where it is.
    pub const fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many of this sender's wait.
    pub fn len_of(&self, sender: u32) -> usize {
        self.senders.get(&sender).copied().unwrap_or(0)
    }

    /// Adds an item. `weight`: how many of this sender's go in one turn, if others of the same priority wait too; the
    /// latest counts, and 0 counts as 1. False if it is there already, which changes nothing else.
    pub fn push(&mut self, id: I, spot: Spot, weight: u32) -> bool {
        if self.contains(id, spot) {
            return false;
        }
        self.insert(spot.priority.min(HIGHEST), spot.sender, (spot.since, id), weight.max(1));
        *self.senders.entry(spot.sender).or_default() += 1;
        self.len += 1;
        true
    }

    /// Takes the item that goes next.
    pub fn pop(&mut self, now: Time) -> Option<I> {
        self.age(now);
        let mut top = self.levels.last_entry()?;
        let (priority, level) = (*top.key(), top.get_mut());
        let (turn, number) = level.ring.first_key_value().map(|(turn, number)| (*turn, *number))?;
        let sender = level.senders.get_mut(&number)?;
        let (since, id) = sender.items.pop_first()?;
        if sender.left == 0 {
            sender.left = sender.weight;
        }
        sender.left -= 1;
        let next = sender.items.first().map(|(since, _)| *since);
        if next.is_some() && sender.left == 0 {
            level.ring.remove(&turn);
            sender.turn = level.next_turn;
            level.ring.insert(sender.turn, number);
            level.next_turn += 1;
        }
        self.gone(priority, number, since, next);
        self.forget(number);
        Some(id)
    }

    /// Takes this item out. False if it does not wait here.
    pub fn remove(&mut self, id: I, spot: Spot) -> bool {
        let removed = [spot.priority.min(HIGHEST), HIGHEST].into_iter().any(|priority| {
            let sender = self.levels.get_mut(&priority).and_then(|level| level.senders.get_mut(&spot.sender));
            let Some(sender) = sender else { return false };
            let first = sender.items.first().copied();
            if !sender.items.remove(&(spot.since, id)) {
                return false;
            }
            let next = sender.items.first().map(|(since, _)| *since);
            // Only the oldest one stands in the index of those that rise.
            let was = first.map_or(spot.since, |(since, _)| since);
            self.gone(priority, spot.sender, was, next);
            true
        });
        if removed {
            self.forget(spot.sender);
        }
        removed
    }

    /// Whether this item waits here.
    pub fn contains(&self, id: I, spot: Spot) -> bool {
        [spot.priority.min(HIGHEST), HIGHEST].into_iter().any(|priority| {
            let sender = self.levels.get(&priority).and_then(|level| level.senders.get(&spot.sender));
            sender.is_some_and(|sender| sender.items.contains(&(spot.since, id)))
        })
    }

    /// The place that an item of this priority has if it comes now: behind all that is more urgent, and behind all that
    /// is as urgent. It is never later than that unless something more urgent comes, or others' turns come round.
    pub fn position_at(&mut self, priority: u8, now: Time) -> usize {
        self.age(now);
        1 + self.levels.range(priority.min(HIGHEST)..).map(|(_, level)| level.len).sum::<usize>()
    }

    /// Since when the oldest item waits.
    pub fn oldest(&self) -> Option<Time> {
        let top = self.levels.get(&HIGHEST).into_iter().flat_map(|level| level.senders.values());
        let top = top.filter_map(|sender| sender.items.first()).map(|(since, _)| *since).min();
        let below = self.oldest.first().map(|(since, _, _)| *since);
        [top, below].into_iter().flatten().min()
    }

    /// What waits, in the order in which it goes if nothing else comes and nothing ages. Each step costs what a
    /// [`Queue::pop`] does, and changes nothing; begin with [`Queue::age`].
    pub fn in_order(&self) -> InOrder<'_, I> {
        InOrder { levels: self.levels.values(), level: None }
    }

    /// Moves up what has waited for so long that it counts as most urgent.
    pub fn age(&mut self, now: Time) {
        while let Some((since, priority, number)) = self.oldest.first().copied() {
            if now.since(since) < self.params.ageing {
                return;
            }
            let sender = self.levels.get_mut(&priority).and_then(|level| level.senders.get_mut(&number));
            let Some((item, weight, next)) = sender.and_then(|sender| {
                let item = sender.items.pop_first()?;
                Some((item, sender.weight, sender.items.first().map(|(since, _)| *since)))
            }) else {
                return;
            };
            self.gone(priority, number, since, next);
            self.insert(HIGHEST, number, item, weight);
        }
    }

    // ---- inside ----------------------------------------------------------------------------------------------------

    fn insert(&mut self, priority: u8, number: u32, item: (Time, I), weight: u32) {
        let level = self.levels.entry(priority).or_insert_with(|| Level {
            senders: BTreeMap::new(),
            ring: BTreeMap::new(),
            next_turn: 0,
            len: 0,
        });
        level.len += 1;
        let sender = level.senders.entry(number).or_insert_with(|| {
            let turn = level.next_turn;
            level.ring.insert(turn, number);
            level.next_turn += 1;
            Sender { items: BTreeSet::new(), turn, left: 0, weight }
        });
        sender.weight = weight;
        let was = sender.items.first().map(|(since, _)| *since);
        sender.items.insert(item);
        let is = sender.items.first().map(|(since, _)| *since);
        if priority < HIGHEST && was != is {
            was.map(|was| self.oldest.remove(&(was, priority, number)));
            is.map(|is| self.oldest.insert((is, priority, number)));
        }
    }

    /// One item of this sender is gone from this level: its oldest one was `was`, and is `is`.
    fn gone(&mut self, priority: u8, number: u32, was: Time, is: Option<Time>) {
        if priority < HIGHEST && is != Some(was) {
            self.oldest.remove(&(was, priority, number));
            is.map(|is| self.oldest.insert((is, priority, number)));
        }
        let Some(level) = self.levels.get_mut(&priority) else { return };
        level.len -= 1;
        if is.is_none()
            && let Some(sender) = level.senders.remove(&number)
        {
            level.ring.remove(&sender.turn);
        }
        if level.len == 0 {
            self.levels.remove(&priority);
        }
    }

    /// One item of this sender does not wait any more.
    fn forget(&mut self, number: u32) {
        self.len -= 1;
        if let btree_map::Entry::Occupied(mut left) = self.senders.entry(number) {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }
}

/// See [`Queue::in_order`].
#[derive(Debug)]
pub struct InOrder<'a, I> {
    levels: btree_map::Values<'a, u8, Level<I>>,
    level: Option<Turns<'a, I>>,
}

/// A level as it will be served.
#[derive(Debug)]
struct Turns<'a, I> {
    ring: BTreeMap<u64, Turn<'a, I>>,
    next_turn: u64,
}

#[derive(Debug)]
struct Turn<'a, I> {
    items: btree_set::Iter<'a, (Time, I)>,
    left: u32,
    weight: u32,
}

impl<I: Copy + Ord> Iterator for InOrder<'_, I> {
    type Item = I;

    fn next(&mut self) -> Option<I> {
        loop {
            if let Some(id) = self.level.as_mut().and_then(Turns::next) {
                return Some(id);
            }
            let level = self.levels.next_back()?;
            let turns = level.senders.values().map(|sender| {
                let turn = Turn { items: sender.items.iter(), left: sender.left, weight: sender.weight };
                (sender.turn, turn)
            });
            self.level = Some(Turns { ring: turns.collect(), next_turn: level.next_turn });
        }
    }
}

impl<I: Copy + Ord> Turns<'_, I> {
    fn next(&mut self) -> Option<I> {
        while let Some((number, mut turn)) = self.ring.pop_first() {
            let Some((_, id)) = turn.items.next() else { continue };
            if turn.left == 0 {
                turn.left = turn.weight;
            }
            turn.left -= 1;
            let place = if turn.left > 0 { number } else { self.next_turn };
            self.next_turn += u64::from(turn.left == 0);
            self.ring.insert(place, turn);
            return Some(*id);
        }
        None
    }
}

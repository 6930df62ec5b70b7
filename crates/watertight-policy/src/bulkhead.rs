//! Bulkhead: how many delegations may be in flight to one agent, and how many may wait a short while for a slot.
//!
//! One [`Bulkhead`] stands before one agent, so that an agent which slows down fills its own slots and nobody else's.
//! When slots and waiting places are both taken it refuses at once, and the caller can degrade instead of hanging.
//!
//! Assumes that each grant is paired with exactly one [`Bulkhead::release`], and that after every event the driver
//! drains: [`Bulkhead::expire`] once, then [`Bulkhead::grant`] until it gives nothing. After a drain at `now`,
//! [`Bulkhead::next_wake`] lies after `now` or is `None`. Leaves out who waits (a [`Ticket`] is all it knows),
//! priorities, and how many slots are right ([`crate::sizing`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::time::{Span, Time};

#[cfg(test)]
mod tests;

/// The size of one agent's compartment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    /// Delegations in flight at once. Zero grants nothing, and [`Params::try_new`] refuses it; `u32::MAX` is no limit.
    /// Size it by Little's law: arrival rate times normal latency, a quarter more for headroom. Four calls per second
    /// at 1.5 s need 6, so 8; the same agent at 30 s would need 120, which the limit is there to refuse.
    pub max_in_flight: u32,
    /// Callers that may wait for a slot. Zero: nobody waits, a full bulkhead refuses at once. `u32::MAX` is no limit,
    /// and an unbounded queue only moves the pile-up one level up. Twice `max_in_flight` is a usual size.
    pub max_waiting: u32,
    /// How long one caller waits for a slot. Zero: nobody waits. [`Span::MAX`]: until its own deadline. Half a second
    /// is short enough that a caller turned away can still give a partial answer.
    pub max_wait: Span,
}

impl Params {
    /// Checked parameters: at least one slot.
    pub const fn try_new(max_in_flight: u32, max_waiting: u32, max_wait: Span) -> Result<Self, InvalidParams> {
        match max_in_flight {
            0 => Err(InvalidParams::NoSlots),
            _ => Ok(Self { max_in_flight, max_waiting, max_wait }),
        }
    }
}

/// 8 slots, 16 waiting, half a second: what a peer with four calls per second at 1.5 s needs.
impl Default for Params {
    fn default() -> Self {
        Self { max_in_flight: 8, max_waiting: 16, max_wait: Span::from_millis(500) }
    }
}

/// Why parameters make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidParams {
    /// `max_in_flight` is zero: nothing would ever pass.
    NoSlots,
}

impl fmt::Display for InvalidParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlots => f.write_str("max_in_flight is 0, so nothing would ever pass; give at least 1"),
        }
    }
}

impl std::error::Error for InvalidParams {}

/// A place in the line. Tickets are never reused within one bulkhead, and lower ones came first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

/// What [`Bulkhead::admit`] decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// A slot was taken: go, and [`Bulkhead::release`] it at the end.
    Granted,
    /// The caller stands in line: [`Bulkhead::grant`] names the ticket when its turn comes, [`Bulkhead::expire`] when
    /// `until` has come first.
    Waiting {
        /// The place in the line.
        ticket: Ticket,
        /// When the wait ends in a refusal; [`Time::FAR`] if neither limit nor deadline ends it.
        until: Time,
    },
    /// No slot and no place to wait. Nothing was taken.
    Refused {
        /// When a waiting place is sure to come free, if that is known; a slot may come free before.
        again: Option<Time>,
    },
}

/// One agent's slots and the line before them.
#[derive(Clone, Debug)]
pub struct Bulkhead {
    params: Params,
    in_flight: u32,
    /// The most at once since it was last forgotten.
    peak: u32,
    next_ticket: u64,
    /// The line, first come first.
    line: BTreeMap<Ticket, Time>,
    /// The line by the time at which each wait ends.
    by_until: BTreeSet<(Time, Ticket)>,
    /// Waits that ended and were not reported yet.
    overdue: BTreeMap<Ticket, Time>,
}

impl Bulkhead {
    /// An empty bulkhead.
    pub const fn new(params: Params) -> Self {
        Self {
            params,
            in_flight: 0,
            peak: 0,
            next_ticket: 0,
            line: BTreeMap::new(),
            by_until: BTreeSet::new(),
            overdue: BTreeMap::new(),
        }
    }

    /// Asks for a slot. It is granted only if one is free and nobody waits for it. Otherwise the caller waits until
    /// `now + max_wait` or its own `deadline`, whichever is earlier, if there is a place in the line and any time to
    /// wait at all. Otherwise it is refused at once.
    pub fn admit(&mut self, now: Time, deadline: Option<Time>) -> Admission {
        self.set_overdue_apart(now);
        if self.line.is_empty() && self.try_acquire() {
            return Admission::Granted;
        }
        let until = (now + self.params.max_wait).min(deadline.unwrap_or(Time::FAR));
        let full = self.waiting() >= self.params.max_waiting;
        if full || until <= now {
            let again = if full { self.by_until.first().map(|(at, _)| *at) } else { None };
            return Admission::Refused { again: again.filter(|at| *at < Time::FAR) };
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.saturating_add(1);
        self.line.insert(ticket, until);
        self.by_until.insert((until, ticket));
        Admission::Waiting { ticket, until }
    }

    /// Takes a slot if one is free, past any line: for callers that keep a queue of their own and never call
    /// [`Bulkhead::admit`].
    pub const fn try_acquire(&mut self) -> bool {
        let free = self.in_flight < self.params.max_in_flight;
        if free {
            self.in_flight += 1;
            if self.in_flight > self.peak {
                self.peak = self.in_flight;
            }
        }
        free
    }

    /// Gives a slot back. Releasing what was never taken is harmless.
    pub const fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The next in line whose wait has not ended, if a slot is free; the slot is taken for it.
    pub fn grant(&mut self, now: Time) -> Option<Ticket> {
        self.set_overdue_apart(now);
        let (ticket, until) = self.line.first_key_value().map(|(ticket, until)| (*ticket, *until))?;
        if !self.try_acquire() {
            return None;
        }
        self.line.remove(&ticket);
        self.by_until.remove(&(until, ticket));
        Some(ticket)
    }

    /// Every ticket whose wait has ended by `now`, first come first; each is reported once.
    pub fn expire(&mut self, now: Time) -> Vec<Ticket> {
        self.set_overdue_apart(now);
        std::mem::take(&mut self.overdue).into_keys().collect()
    }

    /// The caller went away. False if the ticket was granted, reported by [`Bulkhead::expire`] or abandoned before.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        match self.line.remove(&ticket) {
            Some(until) => self.by_until.remove(&(until, ticket)),
            None => self.overdue.remove(&ticket).is_some(),
        }
    }

    /// When the next wait ends. After a drain at `now` it lies after `now`.
    pub fn next_wake(&self) -> Option<Time> {
        let overdue = self.overdue.values().min();
        let line = self.by_until.first().map(|(until, _)| until);
        overdue.or(line).copied().filter(|at| *at < Time::FAR)
    }

    /// Slots taken. More than `max_in_flight` only after the limit was lowered.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The most slots that were taken at once since [`Bulkhead::forget_peak`].
    pub const fn peak(&self) -> u32 {
        self.peak
    }

    /// From now on the peak is counted anew.
    pub const fn forget_peak(&mut self) {
        self.peak = self.in_flight;
    }

    /// Callers in line.
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.line.len()).unwrap_or(u32::MAX)
    }

    /// The limits in force.
    pub const fn params(&self) -> Params {
        self.params
    }

    /// New limits from now on. What runs goes on and who waits keeps waiting by the old terms, even above the new
    /// limits; after raising them, drain with [`Bulkhead::grant`].
    pub const fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    /// Takes the waits that have ended out of the line, so that they neither hold a place nor are granted.
    fn set_overdue_apart(&mut self, now: Time) {
        while let Some((until, ticket)) = self.by_until.first().copied()
            && until <= now
        {
            self.by_until.pop_first();
            self.line.remove(&ticket);
            self.overdue.insert(ticket, until);
        }
    }
}

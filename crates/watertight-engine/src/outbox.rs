//! Results that wait for whoever delegated: one notice for each end of a turn, numbered for each owner from 1 on, without a
//! gap, until it is acknowledged.
//!
//! A notice gets its number when its row goes into a commit, and is in that same commit: so what is durable is always a
//! beginning of all numbers, and no settled delegation is without its notice. What is acknowledged, told on an open line,
//! or dropped for want of room is gone for good; numbers are never given out twice.
//!
//! Assumes that rows say whose outbox they are for. Leaves out who reads it, and how: the driver is told what waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_policy::time::{Span, Time};

use crate::engine::Engine;
use crate::ids::{LineId, Owner, TaskId};
use crate::output::{Answer, Output};
use crate::record::{Notice, Outbox, Row, Save};

/// What the store has of an outbox: what a restored engine goes on from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Whose.
    pub owner: Owner,
    /// The last number that was given out.
    pub last: u64,
    /// How many were dropped without anybody having read them.
    pub lost: u64,
    /// What waits, and since when.
    pub waiting: Vec<(u64, Time)>,
}

/// An outbox as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Whose.
    pub owner: Owner,
    /// The last number that was given out; 0: none was.
    pub last: u64,
    /// How many were dropped without anybody having read them.
    pub lost: u64,
    /// How many wait to be read. What is being told on an open line just now, and what came after it, is not among them:
    /// whoever reads in order would not come back for it, should that fail.
    pub waiting: usize,
    /// The newest of them; 0: none waits.
    pub newest: u64,
    /// Since when the oldest of them waits.
    pub oldest: Option<Time>,
}

/// How long what nobody waits for is not written, and how much of it.
const PATIENCE: Span = Span::from_millis(200);
const MANY: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    of: BTreeMap<Owner, Kept>,
    /// Turns whose end is being told on open lines.
    answering: BTreeMap<(TaskId, u32), Answering>,
    /// Outboxes of which the driver is to be told with the next commit.
    changed: BTreeSet<Owner>,
    /// What was told on open lines, and goes with the next commit that is made anyway, or when it has waited long enough.
    lazy: Vec<Save>,
    lazy_since: Time,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    lost: u64,
    /// All that is not acknowledged.
    open: BTreeMap<u64, Time>,
    /// Of these, the ones that are being told on a line.
    held: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Answering {
    /// Lines that are still to say how it went.
    lines: usize,
    /// Once it is numbered.
    notice: Option<(Owner, u64)>,
    /// Of a delegation in memory: it is only posted if nobody could be told.
    unposted: Option<Notice>,
}

impl Kept {
    fn view(&self, owner: &Owner) -> View {
        let end = self.held.first().copied().unwrap_or(u64::MAX);
        let mut shown = self.open.range(..end);
        View {
            owner: owner.clone(),
            last: self.last,
            lost: self.lost,
            waiting: self.open.len() - self.open.range(end..).count(),
            oldest: shown.clone().next().map(|(_, since)| *since),
            newest: shown.next_back().map_or(0, |(seq, _)| *seq),
        }
    }

    /// Takes the oldest while there are more than so many, or while they are older than that.
    fn overdue(&mut self, owner: &Owner, max: usize, before: Time) -> Option<Save> {
        let mut gone: Option<(u64, u64)> = None;
        while let Some((&seq, &since)) = self.open.first_key_value() {
            if self.open.len() <= max && since >= before {
                break;
            }
            self.open.remove(&seq);
            self.lost += u64::from(!self.held.remove(&seq));
            gone = Some((gone.map_or(seq, |(first, _)| first), seq));
        }
        let (first, last) = gone?;
        Some(Save::Taken { owner: owner.clone(), first, last, lost: self.lost })
    }
}

impl Outboxes {
    /// What the store has.
    pub(crate) fn restore(&mut self, stored: Vec<Stored>) -> Vec<View> {
        let each = stored.into_iter().map(|Stored { owner, last, lost, waiting }| {
            let kept = Kept { last, lost, open: waiting.into_iter().collect(), held: BTreeSet::new() };
            let view = kept.view(&owner);
            self.of.insert(owner, kept);
            view
        });
        each.collect()
    }

    /// Numbers a notice, which goes into the commit that is being made. More than `max` do not wait: the oldest go.
    pub(crate) fn post(&mut self, mut notice: Notice, max: usize, saves: &mut Vec<Save>) {
        let owner = notice.owner.clone();
        let kept = self.of.entry(owner.clone()).or_default();
        kept.last += 1;
        notice.seq = kept.last;
        kept.open.insert(notice.seq, notice.at);
        let mut told = None;
        if let Some(answering) = self.answering.get_mut(&(notice.task, notice.turn)) {
            if let Some((_, before)) = answering.notice.replace((owner.clone(), notice.seq)) {
                // Its turn ended in another way before its callers had heard of the first: both stand.
                kept.held.remove(&before);
            }
            kept.held.insert(notice.seq);
            if answering.lines == 0 {
                told = Some((notice.task, notice.turn));
            }
        }
        if let Some(key) = told {
            self.answering.remove(&key);
            kept.held.remove(&notice.seq);
        }
        saves.push(Save::Notice(Arc::new(notice)));
        saves.extend(kept.overdue(&owner, max, Time::ZERO));
        self.changed.insert(owner);
    }

    /// What goes with any commit.
    pub(crate) fn take_lazy(&mut self) -> Vec<Save> {
        std::mem::take(&mut self.lazy)
    }

    /// Outboxes that have changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> Vec<View> {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().filter_map(|owner| self.of.get(owner).map(|kept| kept.view(owner))).collect()
    }

    /// Contradictions, in words.
    pub(crate) fn audit(&self) -> Option<String> {
        let odd = |kept: &Kept| {
            let past = kept.open.last_key_value().is_some_and(|(seq, _)| *seq > kept.last);
            past || kept.held.iter().any(|seq| !kept.open.contains_key(seq))
        };
        let (owner, _) = self.of.iter().find(|(_, kept)| odd(kept))?;
        Some(format!("the outbox of {owner:?} has what it cannot have"))
    }
}

impl Engine {
    /// A turn has ended, and whoever delegated it has an outbox. `lines`: its end is about to be told on so many.
    pub(crate) fn notify(&mut self, task: TaskId, lines: usize) {
        let Some(live) = self.live.get(&task).filter(|live| live.row.outbox != Outbox::None) else { return };
        let (volatile, turn) = (live.is_volatile(), live.row.turn.no);
        if !volatile {
            self.dirty(task).notice = true;
            if lines > 0 {
                self.outboxes.answering.entry((task, turn)).or_default().lines += lines;
            }
            return;
        }
        let Some(notice) = notice_of(&live.row) else { return };
        if lines > 0 {
            let answering = self.outboxes.answering.entry((task, turn)).or_default();
            answering.lines += lines;
            answering.unposted = Some(notice);
        } else {
            // The delegation itself is in memory alone; that it ended is kept on disk.
            self.extra.push(Save::Notice(Arc::new(notice)));
        }
    }

    /// A turn's end was written to its caller's line, or could not be. Once is enough; if none took it, it waits like
    /// any other.
    pub(crate) fn told(&mut self, task: TaskId, turn: u32, written: bool) {
        let Some(answering) = self.outboxes.answering.get_mut(&(task, turn)) else { return };
        answering.lines = answering.lines.saturating_sub(1);
        if !written && answering.lines > 0 {
            return;
        }
        let Some(Answering { notice, unposted, .. }) = self.outboxes.answering.remove(&(task, turn)) else { return };
        if !written {
            self.extra.extend(unposted.map(|notice| Save::Notice(Arc::new(notice))));
        }
        let Some((owner, seq)) = notice else { return };
        let Some(kept) = self.outboxes.of.get_mut(&owner) else { return };
        kept.held.remove(&seq);
        if written && kept.open.remove(&seq).is_some() {
            // Nobody waits for that: a crash before it is written costs one reading more.
            let taken = Save::Taken { owner: owner.clone(), first: seq, last: seq, lost: kept.lost };
            let view = kept.view(&owner);
            if self.outboxes.lazy.is_empty() {
                self.outboxes.lazy_since = self.now;
            }
            self.outboxes.lazy.push(taken);
            // Behind what is on its way: nothing is shown before it is durable, and nothing older after it.
            return self.beside.push(Output::Outbox(view));
        }
        let view = kept.view(&owner);
        self.beside.push(Output::Outbox(view));
    }

    /// What can wait has waited long enough, or there is much of it.
    pub(crate) fn hurry_lazy(&mut self) {
        let waits = self.now.since(self.outboxes.lazy_since) >= PATIENCE || self.outboxes.lazy.len() >= MANY;
        if !self.outboxes.lazy.is_empty() && (waits || self.shutting_down) {
            self.extra.append(&mut self.outboxes.lazy);
        }
    }

    /// Its owner has read everything up to this one.
    pub(crate) fn acknowledged(&mut self, line: LineId, owner: &Owner, up_to: u64) {
        let (last, lost) = self.outboxes.of.get(owner).map_or((0, 0), |kept| (kept.last, kept.lost));
        let mut waiting = 0;
        if up_to > last {
            return self.answer(line, Answer::NotThatFar { last });
        }
        if let Some(kept) = self.outboxes.of.get_mut(owner) {
            let left = kept.open.split_off(&(up_to + 1));
            let read = std::mem::replace(&mut kept.open, left);
            kept.held.retain(|seq| *seq > up_to);
            if let Some((&first, _)) = read.first_key_value() {
                self.extra.push(Save::Taken { owner: owner.clone(), first, last: up_to, lost });
            }
            let view = kept.view(owner);
            waiting = view.waiting;
            self.beside.push(Output::Outbox(view));
        }
        self.beside.push(Output::Answer { line, answer: Answer::Acknowledged { last, waiting } });
    }

    /// What waits since before then waits no longer.
    pub(crate) fn age_outboxes(&mut self, before: Time) {
        for (owner, kept) in &mut self.outboxes.of {
            if let Some(taken) = kept.overdue(owner, usize::MAX, before) {
                self.extra.push(taken);
                let view = kept.view(owner);
                self.beside.push(Output::Outbox(view));
            }
        }
    }
}

/// What is told of a turn's end; its number comes later.
pub(crate) fn notice_of(row: &Row) -> Option<Notice> {
    Some(Notice {
        owner: row.owner()?,
        seq: 0,
        task: row.task,
        turn: row.turn.no,
        agent: row.agent.clone(),
        context: row.context.clone(),
        state: row.state,
        reason: row.reason,
        at: row.changed,
    })
}

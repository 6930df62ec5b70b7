//! Delegations that only wait for a slot, packed: what differs between them in about a hundred bytes, and nothing of what
//! only a running one has. There may be a hundred thousand of them, and one of their lives is twenty times as large.
//!
//! A packed one is woken before anything looks at it: its agent's queue gives it, its timer is due, or somebody names it.
//! Assumes that nothing else leads to it: who has a parent or children, a line, or a turn before this one stays awake, and
//! so does what is not durable yet. Its timer, its key and its place in the queue stay where they are; a context in which
//! there is nothing else is packed with it.

use std::collections::VecDeque;
use std::sync::Arc;

use watertight_policy::budget::Budget;
use watertight_policy::queue::Spot;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::engine::{Context, Engine, context_key};
use crate::ids::{AgentId, Attempt, Key, Principal, TaskId};
use crate::input::Submission;
use crate::live::{Class, Live, Place, Timer};
use crate::record::{Cancel, Delivery, Digest, Durability, Outbox, Phase, ReplyKind, Row, TaskState, Times, Turn};

/// So many are looked at in one step.
const DOZE: usize = 512;

/// Stands for no reason.
const NONE: u8 = u8::MAX;

impl Engine {
    /// It is looked at like any other from now on.
    pub(crate) fn wake(&mut self, task: TaskId) {
        let Some(packed) = self.dormant.remove(&task) else { return };
        let live = self.unpacked(task, &packed);
        let key = context_key(&live.row.principal, &live.row.agent, &live.row.context);
        let hash = self.contexts.hash(&key);
        if self.asleep.get(&hash) == Some(&task) {
            self.asleep.remove(&hash);
            let (remote, holder) = (live.row.remote_context.clone(), live.lock.is_some().then_some(task));
            self.contexts.insert(hash, Context { refs: 1, remote, holder, waiting: VecDeque::new() });
        }
        self.live.insert(task, Box::new(live));
        self.drowsy.push_back(task);
    }

    /// Whom a message may lead to.
    pub(crate) fn wake_for(&mut self, s: &Submission, key: &Key) {
        if self.dormant.is_empty() {
            return;
        }
        let used = self.keys.get(key).map(|used| used.task);
        let context = self.contexts.hash(&context_key(&s.principal, &s.agent, &s.context));
        let inside = self.asleep.get(&context).copied();
        let named = [used, inside, s.known.map(|known| known.task), s.names.map(|named| named.task), s.parent];
        named.into_iter().flatten().for_each(|task| self.wake(task));
    }

    /// Likewise, as it is: it stays packed.
    pub(crate) fn peek(&self, task: TaskId) -> Option<Live> {
        self.dormant.get(&task).map(|packed| self.unpacked(task, packed))
    }

    /// Packs those that came to wait, once they are durable.
    pub(crate) fn doze(&mut self) {
        if self.drowsy.is_empty() {
            return;
        }
        // Agents are only ever added, and only here are they numbered.
        if self.agent_names.len() < self.agents.len() {
            let names = &mut self.agent_names;
            let new: Vec<_> = self.agents.keys().filter(|agent| !names.contains(agent)).cloned().collect();
            names.extend(new);
        }
        for _ in 0..DOZE.min(self.drowsy.len()) {
            let Some(task) = self.drowsy.pop_front() else { return };
            let Some(live) = self.live.get(&task).filter(|live| self.may_sleep(live)) else { continue };
            if !self.is_durable(task) || live.row.version == 0 {
                self.drowsy.push_back(task);
                continue;
            }
            let Some(packed) = self.packed(live) else { continue };
            let key = context_key(&live.row.principal, &live.row.agent, &live.row.context);
            let hash = self.contexts.hash(&key);
            let alone = self.contexts.at(hash).is_some_and(|context| {
                let held_by = context.holder.unwrap_or(task);
                context.refs == 1
                    && context.waiting.is_empty()
                    && held_by == task
                    && context.remote == live.row.remote_context
            });
            if alone {
                self.contexts.remove(hash);
                self.asleep.insert(hash, task);
            }
            self.live.remove(&task);
            self.dormant.insert(task, packed);
            self.rested.push(task);
        }
    }

    /// Packs all that can be now.
    pub(crate) fn doze_all(&mut self) {
        for _ in 0..self.drowsy.len().div_ceil(DOZE) {
            self.doze();
        }
        // Nobody holds anything of them yet.
        self.rested.clear();
    }

    /// What is said of it in [`Engine::packed`] is all there is to say. Every field is named here, so that a new one is
    /// decided about: packed with the others, or a reason to stay awake.
    fn may_sleep(&self, live: &Live) -> bool {
        #[rustfmt::skip]
        let Live {
            row, accepted, previous, class, place, lines, cancel_lines, keys, behind, busied, slot, lock, probe, dispatched,
            heard, floated, attempting, canceling, timers,
            stood: _, queues: _, lingers: _, saved_in: _, wants: _, waited: _,
        } = live;
        #[rustfmt::skip]
        let Row {
            task, principal, agent, context, remote_task, root, parent, depth, chain, children, redrives, state, reason,
            delivery, cancel, reply, late, asked, created, changed, attempt, turn,
            version: _, durability: _, outbox: _, remote_context: _,
        } = row;
        #[rustfmt::skip]
        let Turn {
            no, phase, not_before, expires, attempts, priority, times, result,
            message_id: _, fingerprint: _, waiting_on: _, budget: _, runs_for: _, request: _,
        } = turn;
        let timed = Timer::ALL
            .into_iter()
            .all(|timer| timers[timer as usize] == Some(*expires).filter(|_| matches!(timer, Timer::Deadline)));
        let own = context_key(principal, agent, context);
        let nobody_waits = lines.is_empty() && cancel_lines.is_empty() && behind.is_empty();
        let first = *no == 1 && *attempts == 0 && *attempt == Attempt(0) && previous.is_none() && keys.len() == 1;
        let idle = !slot && !attempting && !canceling && probe.is_none() && *busied == 0 && !heard;
        let never_ran = floated.is_none() && dispatched.is_none() && *times == Times::default() && result.is_none();
        let unrelated = parent.is_none() && *children == 0 && chain.is_empty() && redrives.is_none();
        let a_root = root == task && *depth == 0;
        let untouched =
            *state == TaskState::Submitted && reason.is_none() && *cancel == Cancel::None && changed == created;
        let unheard = *delivery == Delivery::NotSent
            && *reply == ReplyKind::Task
            && late.is_none()
            && asked.is_none()
            && remote_task.is_none();
        matches!(place, Place::Queue(spot) if spot.since == *created && spot.priority == *priority)
            && (*accepted && *class == Class::Queue && *phase == Phase::Waiting && *not_before == Time::ZERO)
            && (timed && nobody_waits && first && idle && never_ran && unrelated && a_root && untouched && unheard)
            && lock.as_ref().is_none_or(|lock| *lock == own)
    }

    fn packed(&self, live: &Live) -> Option<Box<[u8]>> {
        let (row, turn) = (&live.row, &live.row.turn);
        let Place::Queue(spot) = live.place else { return None };
        let name = self.agent_names.iter().position(|name| *name == row.agent)?;
        let flags = [
            live.lock.is_some(),
            live.lingers,
            live.queues,
            row.durability == Durability::Memory,
            turn.runs_for.is_some(),
            row.remote_context.is_some(),
            live.wants.is_some(),
            row.outbox != Outbox::None,
        ];
        let reason = turn.waiting_on.and_then(|reason| Reason::ALL.iter().position(|other| *other == reason));
        let mut out = Pack(Vec::with_capacity(160));
        out.0.push(flags.iter().enumerate().map(|(bit, set)| u8::from(*set) << bit).sum());
        out.0.push(reason.and_then(|reason| u8::try_from(reason).ok()).unwrap_or(NONE));
        out.0.push(turn.priority);
        out.number(name as u64);
        out.number(spot.sender.into());
        out.number(row.version);
        out.number(live.saved_in);
        out.number(live.stood.into());
        out.number(row.created.as_micros());
        out.number(live.wants.unwrap_or(Time::ZERO).as_micros());
        out.number(turn.expires.as_micros());
        out.number(turn.budget.deadline.as_micros());
        out.number(turn.budget.depth.into());
        out.number(turn.budget.fanout.into());
        out.number(turn.runs_for.unwrap_or(Span::ZERO).as_micros());
        out.0.extend_from_slice(&turn.fingerprint.to_le_bytes());
        out.text(&row.context);
        out.text(&turn.message_id);
        out.text(row.remote_context.as_deref().unwrap_or(""));
        // No digest is of nothing at all: a message has parts.
        out.number(turn.request.map_or(0, |digest| digest.bytes));
        turn.request.iter().for_each(|digest| out.0.extend_from_slice(&digest.sha256));
        match &row.outbox {
            Outbox::None => {}
            // No agent is called so.
            Outbox::Caller => out.text(""),
            Outbox::Agent(agent) => out.text(agent.as_str()),
        }
        Some(out.0.into_boxed_slice())
    }

    fn unpacked(&self, task: TaskId, packed: &[u8]) -> Live {
        let mut from = Unpack(packed);
        let (flags, reason, priority) = (from.byte(), from.byte(), from.byte());
        let flag = |bit: u32| flags & (1 << bit) != 0;
        let agent = self.agent_names.get(from.number() as usize).cloned().unwrap_or_else(|| AgentId::new(""));
        let sender = from.number() as u32;
        let nobody = || Principal { tenant: "".into(), caller: "".into() };
        let principal = self.senders.principal(sender).cloned().unwrap_or_else(nobody);
        let (version, saved_in, stood) = (from.number(), from.number(), from.number() as u32);
        let [created, wants, expires, deadline] = [(); 4].map(|()| Time::from_micros(from.number()));
        let (depth, fanout) = (from.number() as u32, from.number() as u32);
        let runs_for = Span::from_micros(from.number());
        let fingerprint = from.wide();
        let (context, message_id, remote) = (from.text(), from.text(), from.text());
        let budget = Budget { deadline, depth, fanout };
        let request = match from.number() {
            0 => None,
            bytes => Some(Digest { bytes, sha256: std::array::from_fn(|_| from.byte()) }),
        };
        let outbox = match flag(7).then(|| from.text()) {
            None => Outbox::None,
            Some(name) if name.is_empty() => Outbox::Caller,
            Some(name) => Outbox::Agent(AgentId::new(&name)),
        };
        let turn = Turn {
            waiting_on: Reason::ALL.get(usize::from(reason)).copied(),
            expires,
            runs_for: flag(4).then_some(runs_for),
            priority,
            request,
            ..Turn::new(1, message_id, fingerprint, budget)
        };
        let row = Row {
            version,
            durability: if flag(3) { Durability::Memory } else { Durability::Durable },
            outbox,
            remote_context: flag(5).then_some(remote),
            ..Row::new(task, principal, agent, context, created, turn)
        };
        let key =
            Key { principal: row.principal.clone(), agent: row.agent.clone(), message_id: row.turn.message_id.clone() };
        let own = context_key(&row.principal, &row.agent, &row.context);
        let mut live = Live::new(row, Class::Queue);
        live.accepted = true;
        live.keys.push(self.keys.hash(&key));
        live.lock = flag(0).then_some(own);
        live.lingers = flag(1);
        live.queues = flag(2);
        live.wants = flag(6).then_some(wants);
        live.place = Place::Queue(Spot { since: created, sender, priority });
        live.stood = stood;
        live.saved_in = saved_in;
        live.timers[Timer::Deadline as usize] = Some(expires);
        live
    }
}

struct Pack(Vec<u8>);

impl Pack {
    /// Seven bits a byte, the least first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A UUID as nearly all write it is 16 bytes; anything else is itself.
    fn text(&mut self, text: &str) {
        match Uuid::of(text) {
            Some(Uuid(bytes)) => {
                self.0.push(1);
                self.0.extend_from_slice(&bytes.to_be_bytes());
            }
            None => {
                self.number(if text.is_empty() { 0 } else { text.len() as u64 + 2 });
                self.0.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// What was packed in this process is whole; what is not there reads as nothing.
struct Unpack<'a>(&'a [u8]);

impl Unpack<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.0.first().copied().unwrap_or(0);
        self.0 = self.0.get(1..).unwrap_or_default();
        byte
    }

    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    fn wide(&mut self) -> u128 {
        u128::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn text(&mut self) -> Arc<str> {
        match self.number() {
            0 => "".into(),
            1 => Uuid(u128::from_be_bytes(std::array::from_fn(|_| self.byte()))).text(),
            length => {
                let length = usize::try_from(length - 2).unwrap_or(0).min(self.0.len());
                let (text, rest) = self.0.split_at(length);
                self.0 = rest;
                String::from_utf8_lossy(text).into()
            }
        }
    }
}

/// `01234567-89ab-cdef-0123-456789abcdef`
struct Uuid(u128);

impl Uuid {
    /// Where its hyphens are.
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];

    fn of(text: &str) -> Option<Uuid> {
        let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
        let mut number = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let digit = match byte {
                b'-' if Uuid::HYPHENS.contains(&at) => continue,
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => return None,
            };
            if Uuid::HYPHENS.contains(&at) {
                return None;
            }
            number = number << 4 | u128::from(digit);
        }
        Some(Uuid(number))
    }

    fn text(&self) -> Arc<str> {
        let (mut text, mut left) = ([b'-'; 36], self.0);
        for at in (0..text.len()).rev().filter(|at| !Uuid::HYPHENS.contains(at)) {
            text[at] = b"0123456789abcdef"[(left & 0xf) as usize];
            left >>= 4;
        }
        str::from_utf8(&text).unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_as_it_went_in() {
        let texts = [
            "",
            "m",
            "01234567-89ab-cdef-0123-456789abcdef",
            "01234567-89AB-cdef-0123-456789abcdef",
            "ü\n",
            "0123456-789ab-cdef-0123-456789abcdef",
            "00000000-0000-0000-0000-00000000000-",
            "00000000-0000-0000-0000-000000000000",
        ];
        let long = "x".repeat(300);
        let numbers = [0, 1, 127, 128, 16_384, u64::MAX];
        let mut pack = Pack(Vec::new());
        texts.iter().copied().chain([long.as_str()]).for_each(|text| pack.text(text));
        numbers.iter().for_each(|number| pack.number(*number));
        pack.0.extend_from_slice(&7u128.to_le_bytes());
        let mut from = Unpack(&pack.0);
        texts.iter().copied().chain([long.as_str()]).for_each(|text| assert_eq!(&*from.text(), text));
        numbers.iter().for_each(|number| assert_eq!(from.number(), *number));
        assert_eq!((from.wide(), from.byte(), &*from.text()), (7, 0, ""));
    }
}

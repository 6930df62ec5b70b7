//! What must hold between the engine's parts after every step. The simulator and the tests ask; the gateway does not
//! have to.

use std::collections::BTreeMap;

use watertight_policy::time::Time;

use crate::agent::Closed;
use crate::engine::Engine;
use crate::ids::{LineId, TaskId};
use crate::live::{Live, Place, Timer};
use crate::record::Phase;

impl Engine {
    /// Contradictions, in words. Empty if all is well.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut found: Vec<String> = self.outboxes.audit().into_iter().collect();
        let dormant: BTreeMap<TaskId, Live> =
            self.dormant.keys().filter_map(|task| Some((*task, self.peek(*task)?))).collect();
        let at = |task: &TaskId| self.live.get(task).map(|live| &**live).or_else(|| dormant.get(task));
        let awake = self.live.iter().map(|(task, live)| (task, &**live));
        for (task, live) in awake.chain(&dormant) {
            if self.live.contains_key(task) && dormant.contains_key(task) {
                found.push(format!("{task}: is awake and dormant"));
            }
            if let Some(what) = self.audit_delegation(*task, live) {
                found.push(format!("{task}: {what}"));
            }
        }
        for (id, agent) in &self.agents {
            let slots = self.live.values().filter(|live| live.slot && live.row.agent == *id).count();
            if slots != agent.bulkhead.in_flight() as usize {
                found.push(format!("{id}: {slots} slots are held, {} counted", agent.bulkhead.in_flight()));
            }
            let idle = agent.bulkhead.in_flight() < agent.bulkhead.params().max_in_flight;
            let waits = |task: &TaskId| at(task).is_none_or(|live| !live.is_overdue(self.now));
            let queued = if self.is_locked(id) { 0 } else { agent.queue.in_order().filter(|task| waits(task)).count() };
            let waiting = queued + agent.tickets.values().filter(|task| waits(task)).count();
            if idle && waiting > 0 && agent.closed_until(self.now).is_none() && !self.shutting_down {
                found.push(format!("{id}: a slot is free and {waiting} wait"));
            }
            let wakes = agent.wake.is_some() || agent.settings.drain.is_some();
            let wakes = wakes || agent.closed_until(self.now) == Some(Closed::NoWorker);
            if !agent.queue.is_empty() && agent.closed_until(self.now).is_some() && !wakes {
                found.push(format!("{id}: {} wait, and nothing will wake them", agent.queue.len()));
            }
        }
        let queued = self.agents.values().map(|agent| agent.queue.len()).sum();
        found.extend(self.senders.audit(queued));
        for (hash, context) in self.contexts.iter() {
            let name = format!("{hash:x?}");
            let holds = context.holder.as_ref().and_then(at).and_then(|live| live.lock.as_ref());
            if context.holder.is_some() && holds.map(|lock| self.contexts.hash(lock)) != Some(hash) {
                found.push(format!("context {name} is held by nobody"));
            }
            let place = |task: &TaskId| at(task).map(|live| live.place);
            if context.waiting.iter().any(|task| place(task) != Some(Place::Lock)) {
                found.push(format!("context {name} is waited for by who does not wait"));
            }
            if context.holder.is_none() && !context.waiting.is_empty() {
                found.push(format!("context {name} is free and {} wait", context.waiting.len()));
            }
        }
        let works: Vec<TaskId> = self.live.keys().copied().filter(|task| self.work_of(*task).is_some()).collect();
        for task in works.iter().filter(|task| !self.at_work.knows(**task, self.work_of(**task).as_ref())) {
            found.push(format!("{task}: what is known of it as its agent's work is not so"));
        }
        if works.len() != self.at_work.len() {
            found.push(format!("{} are at work, {} are known", works.len(), self.at_work.len()));
        }
        let children = self.live.values().filter(|live| !live.row.state.is_terminal() && live.row.parent.is_some());
        let linked = children
            .clone()
            .filter(|live| live.row.parent.is_some_and(|parent| self.below.contains(&(parent, live.row.task))));
        if linked.count() != self.below.len() || children.count() != self.below.len() {
            found.push(format!("{} children are known, and they are others", self.below.len()));
        }
        let waits = |line: &LineId, live: &Live| {
            let behind = live.behind.iter().map(|behind| behind.submission.line);
            live.lines
                .iter()
                .map(|line| line.id)
                .chain(live.cancel_lines.iter().copied())
                .chain(behind)
                .any(|l| l == *line)
        };
        let orphan = |line: &LineId, task: &TaskId| self.live.get(task).is_none_or(|live| !waits(line, live));
        let orphans = self.lines.iter().filter(|(line, task)| orphan(line, task)).count();
        let keys = self.keys.values().filter(|used| at(&used.task).is_none()).count();
        let all = self.live.values().map(|live| &**live).chain(dormant.values());
        let accepted = all.filter(|live| self.counts(live)).count();
        if orphans + keys > 0 || accepted != self.accepted {
            found.push(format!(
                "{orphans} lines and {keys} keys without a delegation; {accepted} accepted, {} counted",
                self.accepted
            ));
        }
        found
    }

    fn counts(&self, live: &Live) -> bool {
        (live.accepted || live.row.version > 0) && !live.row.state.is_terminal()
    }

    fn audit_delegation(&self, task: TaskId, live: &Live) -> Option<String> {
        let timer = |timer: Timer| live.timers[timer as usize].unwrap_or(Time::FAR) < Time::FAR;
        let Some(agent) = self.agents.get(&live.row.agent) else { return Some("is for an agent unheard of".into()) };
        let row = &live.row;
        if live.probe.is_some() && !live.attempting {
            return Some("is a trial, and nothing is under way".into());
        }
        if live.timers[Timer::Wait as usize].is_none() && live.behind.iter().any(|behind| behind.until < Time::FAR) {
            return Some("has somebody behind it who waits without end".into());
        }
        if row.state.is_terminal() {
            if !live.behind.is_empty() || !live.lines.is_empty() || !live.cancel_lines.is_empty() {
                return Some("is over, and somebody still waits for it".into());
            }
            let goes = timer(Timer::Linger) && (!live.is_cut() || timer(Timer::CancelGiveUp) || live.attempting);
            return (!goes).then(|| "is over and never leaves".into());
        }
        match row.turn.phase {
            Phase::Waiting => {
                let placed = match live.place {
                    Place::None => live.is_overdue(self.now),
                    Place::Lock => self.contexts.values().any(|context| context.waiting.contains(&task)),
                    Place::Backoff => timer(Timer::Retry),
                    Place::Line(ticket) => agent.tickets.get(&ticket) == Some(&task),
                    Place::Queue(spot) => agent.queue.contains(task, spot),
                };
                if !placed {
                    return Some(format!("waits nowhere ({:?})", live.place));
                }
                (row.turn.waiting_on.is_none() || !timer(Timer::Deadline)).then(|| "waits without reason or end".into())
            }
            Phase::Dispatching | Phase::Running => {
                let goes_on = live.attempting || agent.suspended.contains(&task);
                (!goes_on || !timer(Timer::Deadline)).then(|| "runs without an attempt or an end".into())
            }
            Phase::Ended => {
                let asks = row.state.is_interrupted() && timer(Timer::Interrupted);
                (!asks || live.slot).then(|| "is idle, and not because it asks".into())
            }
        }
    }
}

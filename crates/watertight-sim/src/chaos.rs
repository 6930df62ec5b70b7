//! What goes wrong with ourselves, and what a process does about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_engine::cell::Cell;
use watertight_engine::ids::{AgentId, Attempt, Key, TaskId};
use watertight_engine::input::Input;
use watertight_engine::record::{Phase, Row};
use watertight_engine::settings::Settings;
use watertight_policy::time::Span;

use crate::callers::Twist;
use crate::node::{Asks, Open};
use crate::report::Report;
use crate::world::{Event, World};

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mishap {
    /// The process dies, and comes back.
    Crash,
    /// It was told to end, and ends.
    Exit,
    /// The engine alone is replaced.
    Reload,
    /// A transaction fails; the store is away for a while.
    DiskFails,
    /// Every transaction takes long for a while.
    DiskSlow,
    /// The machine stands still.
    Stall,
    /// Other limits; an agent is taken out, drained, or comes back.
    Reconfigure,
    /// An agent starts anew.
    AgentRestarts,
    /// An operator lets traffic through.
    BreakerReset,
    /// Nothing new starts; the process ends in a moment.
    ShutDown,
    /// The process, or the store, is back.
    Up,
}

const DRAWN: [(u64, Mishap); 9] = [
    (4, Mishap::Crash),
    (4, Mishap::Reload),
    (3, Mishap::DiskFails),
    (3, Mishap::DiskSlow),
    (2, Mishap::Stall),
    (4, Mishap::Reconfigure),
    (4, Mishap::AgentRestarts),
    (2, Mishap::BreakerReset),
    (1, Mishap::ShutDown),
];

impl Mishap {
    fn as_str(self) -> &'static str {
        match self {
            Mishap::Crash => "crash",
            Mishap::Exit => "exit",
            Mishap::Reload => "reload",
            Mishap::DiskFails => "disk fails",
            Mishap::DiskSlow => "disk slow",
            Mishap::Stall => "stall",
            Mishap::Reconfigure => "reconfigure",
            Mishap::AgentRestarts => "agent restarts",
            Mishap::BreakerReset => "breaker reset",
            Mishap::ShutDown => "shut down",
            Mishap::Up => "up",
        }
    }
}

impl World<'_> {
    /// Draws what goes wrong next in a cell, as long as callers come.
    pub(crate) fn brews(&mut self, n: usize) {
        let Some(every) = self.scenario.chaos.every() else { return };
        if self.sent >= self.scenario.delegations {
            return;
        }
        let node = &mut self.nodes[n];
        let after = Span::from_micros(node.rng.below(every.as_micros() * 2));
        let mut at = node.rng.below(DRAWN.iter().map(|(weight, _)| weight).sum());
        let drawn = DRAWN.iter().find(|(weight, _)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        if let Some((_, mishap)) = drawn {
            self.later(after, Event::Happens(n, *mishap));
        }
        self.later(after + Span::from_millis(1), Event::Brews(n));
    }

    pub(crate) fn mishap(&mut self, n: usize, mishap: Mishap) {
        if mishap == Mishap::Up {
            return self.comes_up(n);
        }
        let busy = !self.nodes[n].is_up() || self.nodes[n].shutting_down && mishap != Mishap::Exit;
        if busy {
            return;
        }
        Report::count(&mut self.report.faults, mishap.as_str());
        self.trace_mishap(n, mishap.as_str());
        let node = &mut self.nodes[n];
        let some = Span::from_micros(node.rng.below(2_000_000));
        let agent = node.rng.below(self.names.len() as u64) as usize;
        match mishap {
            Mishap::Crash => self.crash(n, some),
            Mishap::Exit => {
                node.disk.flush();
                self.crash(n, some);
            }
            Mishap::Reload => self.reload(n),
            Mishap::DiskFails => node.fails_next = true,
            Mishap::DiskSlow => node.slow_until = self.now + some,
            Mishap::Stall => {
                let gap = Span::from_millis(1_000) + some.mul(3);
                self.now = self.now + gap;
                for n in 0..self.nodes.len() {
                    self.nodes[n].up_since = self.now;
                    self.offer(n, Input::Stalled { gap });
                }
            }
            Mishap::Reconfigure => self.reconfigure(n),
            Mishap::AgentRestarts => self.agent_restarts(agent),
            Mishap::BreakerReset => {
                let agent = self.names[agent].clone();
                self.offer(n, Input::BreakerReset { agent });
            }
            Mishap::ShutDown => {
                node.shutting_down = true;
                self.offer(n, Input::ShuttingDown);
                self.later(some, Event::Happens(n, Mishap::Exit));
            }
            Mishap::Up => {}
        }
    }

    /// The process dies, and is back after a while. Its connections are gone; what agents have begun goes on.
    pub(crate) fn crash(&mut self, n: usize, away: Span) {
        self.trace_mishap(n, "the process dies");
        let node = &mut self.nodes[n];
        let mut rng = node.rng.split(&format!("crash {}", node.life));
        node.disk.crash(&mut rng);
        node.life += 1;
        node.running.clear();
        node.busy.iter_mut().for_each(|busy| *busy = 0);
        node.backlog.clear();
        node.left.clear();
        node.shutting_down = false;
        let volatile: Vec<TaskId> =
            node.tracked.iter().filter(|(_, tracked)| tracked.volatile).map(|(task, _)| *task).collect();
        for task in volatile {
            Report::count(&mut self.report.outcomes, "gone with the process");
            self.untrack(n, task);
        }
        // Callers on open lines see their connection die; each sends its message again, as an SDK would.
        let lost: BTreeMap<_, Open> = std::mem::take(&mut self.nodes[n].lines);
        let mut again = BTreeSet::new();
        for open in lost.into_values() {
            match open.asks {
                Asks::Takes { proposed, follows: true, .. } => {
                    self.later(Span::from_millis(20), Event::Follows { node: n, task: proposed });
                }
                Asks::Takes { .. } => drop(again.insert(open.message)),
                Asks::Cancels | Asks::Meddles | Asks::Reads => {}
            }
        }
        for message in again {
            self.later(Span::from_millis(20), Event::Sends(message, Twist::Plain));
        }
        self.replaced(n, Vec::new(), away);
    }

    /// A transaction failed: what was due is done, the engine is dropped, and comes back from the rows when the store
    /// does.
    pub(crate) fn disk_fails(&mut self, n: usize) {
        self.trace_mishap(n, "the disk fails");
        self.carry_out(n);
        let node = &mut self.nodes[n];
        let mut rng = node.rng.split(&format!("fails {}", node.disk.commits));
        node.disk.fail(&mut rng);
        let away = Span::from_micros(node.rng.below(2) * node.rng.below(1_500_000));
        let empty = Cell::new(node.settings.clone(), 0);
        let salvaged = std::mem::replace(&mut node.cell, empty).salvage();
        self.replaced(n, salvaged, away);
    }

    /// The engine alone is replaced. The store is asked first what became of all commits.
    pub(crate) fn reload(&mut self, n: usize) {
        self.trace_mishap(n, "the engine is replaced");
        let node = &mut self.nodes[n];
        node.cell.committed(u64::MAX);
        node.disk.flush();
        self.carry_out(n);
        let node = &mut self.nodes[n];
        let settled = !node.cell.is_undecided();
        let empty = Cell::new(node.settings.clone(), 0);
        let old = std::mem::replace(&mut node.cell, empty);
        let mut kept: Vec<Row> = if settled { node.disk.live() } else { Vec::new() };
        // A message that may take a turn's place, and is not accepted, is in memory alone.
        kept.retain(|row| old.row(row.task).is_none_or(|now| now.turn.no == row.turn.no));
        let differs = kept.iter().find(|row| old.row(row.task).as_ref() != Some(row)).map(|row| row.task);
        self.replaced(n, old.salvage(), Span::ZERO);
        if let Some(task) = differs {
            self.broken(n, Some(task), "is on disk, and otherwise in memory".into());
        }
        // Continues like the live one: what runs is as it was, and what waits waits, or has just been started.
        let (node, now) = (&self.nodes[n], self.now);
        let goes_on = |row: &Row| match (row.turn.phase, node.cell.row(row.task)) {
            (Phase::Waiting, Some(_)) if row.turn.expires <= now || row.turn.budget.deadline <= now => true,
            (Phase::Waiting, Some(now)) => now.state == row.state && now.turn.no == row.turn.no,
            (_, Some(now)) => now == *row,
            (_, None) => false,
        };
        let changed = kept.iter().find(|row| !row.state.is_terminal() && !goes_on(row)).map(|row| row.task);
        if let Some(task) = changed {
            self.broken(n, Some(task), "is not what it was before the engine was loaded again".into());
        }
    }

    /// The engine is to be restored, now or when what it needs is back.
    fn replaced(&mut self, n: usize, salvaged: Vec<Input>, away: Span) {
        let node = &mut self.nodes[n];
        node.cell = Cell::new(node.settings.clone(), 0);
        node.salvaged = salvaged;
        let lost: Vec<TaskId> =
            node.tracked.keys().filter(|task| !node.disk.rows.contains_key(task)).copied().collect();
        for task in lost {
            let given_out = self.nodes[n].tracked.get(&task).is_some_and(|tracked| tracked.given_out);
            if given_out {
                self.broken(n, Some(task), "was given out and is lost".into());
            }
            self.report.accepted -= 1;
            self.untrack(n, task);
        }
        let node = &mut self.nodes[n];
        let mut children: BTreeMap<TaskId, u32> = BTreeMap::new();
        for tracked in node.tracked.values() {
            if let Some(parent) = tracked.parent {
                *children.entry(parent).or_default() += 1;
            }
        }
        let mut over = Vec::new();
        for (task, tracked) in &mut node.tracked {
            tracked.children = children.get(task).copied().unwrap_or_default();
            tracked.asked = 0;
            tracked.unbroken = false;
            tracked.owed_since = None;
            if let Some(row) = node.disk.rows.get(task) {
                (tracked.turn, tracked.state) = (row.turn.no, row.state);
            }
            if !tracked.leaving && !node.disk.is_live(*task) {
                over.push(*task);
            }
        }
        over.into_iter().for_each(|task| self.leaves(n, task));
        if away.is_zero() {
            return self.comes_up(n);
        }
        self.nodes[n].down_until = Some(self.now + away);
        self.later(away, Event::Happens(n, Mishap::Up));
    }

    fn comes_up(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        node.down_until = None;
        node.up_since = self.now;
        let rows = node.disk.live();
        let live: BTreeSet<(TaskId, Attempt)> = rows.iter().map(|row| (row.task, row.attempt)).collect();
        let gone: Vec<(TaskId, Attempt)> = node.running.keys().filter(|of| !live.contains(of)).copied().collect();
        for (task, attempt) in gone {
            // Nobody would stop it any more.
            node.ends(task, attempt);
        }
        let running: BTreeSet<(TaskId, Attempt)> = node.running.keys().copied().collect();
        let (settings, mut salvaged) = (node.settings.clone(), std::mem::take(&mut node.salvaged));
        for input in &mut salvaged {
            // What was taken for lost may have been written: the store is asked anew.
            if let Input::Submitted(submission) = input {
                let s = Arc::make_mut(submission);
                let (principal, agent, message_id) = (s.principal.clone(), s.agent.clone(), s.message_id.clone());
                s.known = node.disk.key(&Key { principal, agent, message_id });
                if let Some(named) = &mut s.names {
                    named.terminal = node.disk.rows.get(&named.task).is_some_and(|row| row.state.is_terminal());
                }
            }
        }
        node.cell = Cell::restore(settings, self.scenario.seed, rows, running, salvaged, self.now);
        node.cell.restore_outboxes(node.disk.outboxes());
        for input in std::mem::take(&mut node.backlog) {
            node.cell.offer(input);
        }
        if node.shutting_down {
            node.cell.offer(Input::ShuttingDown);
        }
        node.stirred = true;
    }

    fn reconfigure(&mut self, n: usize) {
        let scenario = self.scenario;
        let (mut agents, mut removed): (BTreeMap<AgentId, _>, BTreeMap<AgentId, _>) = Default::default();
        let node = &mut self.nodes[n];
        for (n, (name, player)) in self.names.iter().zip(&scenario.agents).enumerate() {
            let mut settings = player.settings.clone();
            match node.rng.below(6) {
                0 => settings.bulkhead.max_in_flight = 1 + node.rng.below(16) as u32,
                1 => settings.bulkhead.max_waiting = node.rng.below(8) as u32,
                2 => settings.max_queued = 10 + node.rng.below(80) as usize,
                3 => {
                    settings.drain = Some(self.now + Span::from_millis(node.rng.below(9_000)));
                    node.drained[n] = true;
                }
                _ => {}
            }
            if node.rng.below(12) > 0 {
                agents.insert(name.clone(), settings);
            } else {
                removed.insert(name.clone(), player.settings.clone());
                node.forgotten[n] = true;
            }
        }
        node.settings = Arc::new(Settings { agents, removed, ..(*node.settings).clone() });
        let settings = node.settings.clone();
        self.offer(n, Input::Configured(settings));
    }
}

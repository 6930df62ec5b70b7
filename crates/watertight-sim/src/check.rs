//! The invariants: of what a step touched after each step, of everything now and then, of each delegation when it is
//! over, and of what is left in the end.

use std::collections::BTreeMap;

use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::record::{Cancel, Durability, Outbox, Phase, Row, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::node::{Node, Tracked};
use crate::report::Report;
use crate::world::{START, World};

/// Nothing is this late, unless we stood still.
pub(crate) const SLACK: Span = Span::from_secs(3);

impl World<'_> {
    pub(crate) fn check(&mut self, n: usize) {
        for (task, what) in std::mem::take(&mut self.nodes[n].disk.broken) {
            self.broken(n, Some(task), what);
        }
        let mut agents = BTreeMap::new();
        let touched = std::mem::take(&mut self.nodes[n].touched);
        for task in touched {
            let now = self.now;
            let Node { cell, tracked, .. } = &mut self.nodes[n];
            let (Some(row), Some(tracked)) = (cell.row(task), tracked.get_mut(&task)) else { continue };
            agents.insert(tracked.agent, row.agent.clone());
            if let Some(what) = touch(&row, tracked, now) {
                self.broken(n, Some(task), what);
            }
        }
        for (agent, id) in agents {
            self.check_walls(n, agent, &id);
        }
        self.retire_due(n);
        if self.report.steps.is_multiple_of(self.scenario.audit_every) {
            self.check_all(n);
        }
    }

    /// Slots and queues are within their limits.
    fn check_walls(&mut self, n: usize, agent: usize, id: &AgentId) {
        let node = &mut self.nodes[n];
        let Some(view) = node.cell.agent(id, self.now) else { return };
        // What runs when a limit is lowered goes on; what ended makes room for nothing above the new limit.
        let ceiling = view.max_in_flight.max(node.ceiling[agent].min(view.in_flight));
        let over = view.in_flight > ceiling && node.ceiling[agent] > 0;
        node.ceiling[agent] = view.max_in_flight.max(view.in_flight.min(ceiling.max(view.max_in_flight)));
        let tally = &mut self.tallies[agent];
        tally.max_queued = tally.max_queued.max(u64::from(view.queued));
        if over {
            self.broken(n, None, format!("{id} has {} in flight, {} may be", view.in_flight, view.max_in_flight));
        }
    }

    /// Everything.
    pub(crate) fn check_all(&mut self, n: usize) {
        for what in self.nodes[n].cell.audit() {
            let task = what.split_once(':').and_then(|(task, _)| TaskId::parse(task));
            self.broken(n, task, what);
        }
        let node = &self.nodes[n];
        self.report.held = self.report.held.max(node.cell.held() as u64);
        if !node.is_up() {
            return;
        }
        let mut found = Vec::new();
        for (task, tracked) in &node.tracked {
            let Some(row) = node.cell.row(*task) else {
                if node.disk.rows.get(task).is_some_and(|row| !row.state.is_terminal()) {
                    found.push((*task, "is in nobody's hands".to_owned()));
                }
                continue;
            };
            let settings = &self.scenario.agents[tracked.agent].settings;
            let late = |limit: Time| self.now > limit.max(node.up_since) + SLACK;
            let limit = limit_of(&row, settings.interrupted_max);
            let known = row.turn.phase != Phase::Ended || !node.forgotten[tracked.agent];
            if !row.state.is_terminal() && known && late(limit) {
                found.push((*task, format!("should have ended, and is {:?}", row.turn.phase)));
            }
            if tracked.owed_since.is_some_and(|since| late(since + settings.cancel_grace)) {
                found.push((*task, "owes a cancel, and does not pay or give up".to_owned()));
            }
        }
        for (task, what) in found {
            self.broken(n, Some(task), what);
        }
    }

    /// A child costs its parent one, and gets strictly less of everything.
    pub(crate) fn check_child(&mut self, n: usize, row: &Row) {
        let Some(parent) = row.parent else { return };
        self.report.children += 1;
        let Node { cell, tracked, .. } = &mut self.nodes[n];
        let Some(tracked) = tracked.get_mut(&parent) else {
            return self.broken(n, Some(row.task), format!("has a parent that is not kept: {parent}"));
        };
        tracked.children += 1;
        let (spent, may) = (tracked.children, tracked.fanout);
        let Some(above) = cell.row(parent).filter(|above| above.turn.no == 1) else { return };
        let (theirs, own) = (&above.turn.budget, &row.turn.budget);
        let what = if spent > may {
            format!("is child {spent} of a delegation that may start {may}")
        } else if own.deadline > theirs.deadline && above.turn.runs_for.is_none() {
            format!("has time until after its parent's end: {:?}, {:?}", own.deadline, theirs.deadline)
        } else if own.depth >= theirs.depth {
            format!("may go {} deep, and its parent {}", own.depth, theirs.depth)
        } else if row.root != above.root || row.depth != above.depth + 1 {
            "is not where its parent's tree is".to_owned()
        } else {
            return;
        };
        self.broken(n, Some(row.task), what);
    }

    // ---- what is over ----------------------------------------------------------------------------------------------

    /// The cell has let go of it.
    pub(crate) fn leaves(&mut self, n: usize, task: TaskId) {
        let node = &mut self.nodes[n];
        let Some(tracked) = node.tracked.get_mut(&task) else { return };
        if std::mem::replace(&mut tracked.leaving, true) {
            return;
        }
        node.leaving.push_back((self.now + self.scenario.retention, task));
        let Some(row) = node.disk.rows.get(&task) else { return };
        let paid = tracked.fanout.saturating_sub(row.turn.budget.fanout);
        let (children, sure) = (tracked.children, tracked.unbroken && tracked.asked == 0 && row.turn.no == 1);
        if sure && paid != children {
            self.broken(n, Some(task), format!("has paid for {paid} children, and has {children}"));
        }
    }

    fn retire_due(&mut self, n: usize) {
        let now = self.now;
        while let Some((_, task)) = self.nodes[n].leaving.pop_front_if(|(at, _)| *at <= now) {
            self.retire(n, task);
        }
    }

    /// Nothing is known of it any more.
    pub(crate) fn untrack(&mut self, n: usize, task: TaskId) -> Option<Tracked> {
        let tracked = self.nodes[n].tracked.remove(&task)?;
        let side = &mut self.sides[tracked.agent];
        for id in &tracked.works {
            side.works.remove(id);
        }
        let messages: Vec<_> = side.by_message.range((task, 0)..=(task, u32::MAX)).map(|(of, _)| *of).collect();
        for message in messages {
            side.by_message.remove(&message);
        }
        for kid in &tracked.kids {
            self.kids.remove(kid);
        }
        Some(tracked)
    }

    /// Its retention is over: what it came to.
    fn retire(&mut self, n: usize, task: TaskId) {
        let Some(tracked) = self.untrack(n, task) else { return };
        let notices = self.nodes[n].disk.ends.get(&task).copied().unwrap_or(0);
        let Some(row) = self.nodes[n].disk.prune(task, &tracked.keys) else {
            return self.broken(n, Some(task), "was given out and is lost".into());
        };
        let reason = row.reason.map_or("", Reason::as_str);
        let (state, word) = (row.state.as_str(), row.state.as_str().trim_start_matches("TASK_STATE_"));
        Report::count(&mut self.report.outcomes, format!("{state} {reason}").trim());
        if self.scenario.compare {
            self.report.fates.insert(tracked.message, format!("{state} {reason}"));
        }
        let tally = &mut self.tallies[tracked.agent];
        match row.reason {
            Some(reason) => Report::count(&mut tally.by_our_verdict, reason.as_str()),
            None => Report::count(&mut tally.by_its_word, &word.to_lowercase()),
        }
        tally.cut += u64::from(row.cancel != Cancel::None && row.reason.is_some());
        let (drained, forgotten) = (self.nodes[n].drained[tracked.agent], self.nodes[n].forgotten[tracked.agent]);
        let calm = !drained && !forgotten;
        let what = over(&row, &tracked, drained).or_else(|| self.lost(&row, &tracked).filter(|_| calm));
        if let Some(what) = what {
            self.broken(n, Some(task), what);
        }
        // What is kept in memory alone, and was told, leaves none.
        let wanted = u32::from(row.outbox != Outbox::None);
        if notices > wanted || notices < wanted && row.durability == Durability::Durable {
            self.broken(n, Some(task), format!("left {notices} notices of its end, not {wanted}"));
        }
    }

    /// It ended for a reason that its agent, which can be woken or asked, gave none for.
    fn lost(&self, row: &Row, tracked: &Tracked) -> Option<String> {
        let (player, side) = (&self.scenario.agents[tracked.agent], &self.sides[tracked.agent]);
        let reached = tracked.reached.iter().any(|(turn, _)| *turn == row.turn.no);
        let remembers = side.restarted.is_none_or(|at| at < row.created);
        if row.reason == Some(Reason::AgentConnectRefused) && player.model.sleeps.is_some() {
            return Some("failed because its agent was asleep".to_owned());
        }
        // Nobody is asked for what is to end anyway, nor in a context that may be anybody's.
        let asked = player.settings.lookup && row.remote_context.is_some() && row.cancel == Cancel::None;
        let knows = row.reason == Some(Reason::OutcomeUnknown) && asked && reached && remembers;
        knows.then(|| "nobody knows how it ended, and its agent does".to_owned())
    }

    /// What is left when nothing happens any more.
    pub(crate) fn report(mut self) -> Report {
        for n in 0..self.nodes.len() {
            self.check_all(n);
            for view in self.nodes[n].cell.agents(self.now) {
                if view.in_flight + view.waiting + view.queued > 0 {
                    self.broken(n, None, format!("{} still holds something at the end", view.agent));
                }
            }
            let node = &mut self.nodes[n];
            let (held, lines) = (node.cell.held(), node.lines.len());
            let left: Vec<TaskId> = node.tracked.keys().copied().collect();
            let open: Vec<u64> = node.lines.keys().take(3).map(|line| line.0).collect();
            if held + lines > 0 {
                let what = format!("{held} delegations in memory, {lines} lines never answered {open:?} at the end");
                self.broken(n, None, what);
            }
            left.into_iter().for_each(|task| self.retire(n, task));
        }
        for (player, tally) in self.scenario.agents.iter().zip(std::mem::take(&mut self.tallies)) {
            self.report.agents.insert(player.name.clone(), tally);
        }
        self.report.commits = self.nodes[0].disk.commits;
        self.report.took = self.now.since(START);
        self.report
    }
}

/// When a delegation ends at the latest, as it is now.
fn limit_of(row: &Row, interrupted_max: Span) -> Time {
    match row.turn.phase {
        Phase::Waiting if row.turn.attempts == 0 => row.turn.expires,
        Phase::Waiting | Phase::Dispatching | Phase::Running => row.turn.budget.deadline,
        Phase::Ended => row.changed + interrupted_max,
    }
}

/// A step changed it.
fn touch(row: &Row, tracked: &mut Tracked, now: Time) -> Option<String> {
    let (before, same) = (tracked.state, tracked.turn == row.turn.no);
    (tracked.turn, tracked.state) = (row.turn.no, row.state);
    tracked.owed_since = (row.cancel == Cancel::Owed).then(|| tracked.owed_since.unwrap_or(now));
    if before.is_terminal() && row.state != before {
        return Some(format!("is {} after {}", row.state.as_str(), before.as_str()));
    }
    if same && row.state < before && !before.is_interrupted() {
        return Some(format!("went back from {} to {}", before.as_str(), row.state.as_str()));
    }
    let waits = row.turn.phase == Phase::Waiting && !row.state.is_terminal();
    if waits && row.turn.waiting_on.is_none() {
        return Some("waits without a reason".into());
    }
    let suspended = row.turn.phase == Phase::Running && row.turn.waiting_on == Some(Reason::AgentDraining);
    (!waits && !suspended && row.turn.waiting_on.is_some()).then(|| "does not wait, and has a reason to".into())
}

/// It is over, and was kept for as long as it had to be.
fn over(row: &Row, tracked: &Tracked, drained: bool) -> Option<String> {
    let state = row.state.as_str();
    if !row.state.is_terminal() {
        return Some(format!("is {state} at the end"));
    }
    if row.turn.waiting_on.is_some() {
        return Some("is over and waits".into());
    }
    if tracked.told.is_some_and(|told| told != row.state) {
        return Some(format!("is {state}, and somebody was told otherwise"));
    }
    let asked = tracked.canceled || row.remote_task.is_none();
    if row.cancel == Cancel::Owed || row.cancel == Cancel::Unknown && !asked {
        return Some(format!("the cancel ended as {}, and its agent was never asked", row.cancel.as_str()));
    }
    if row.reason == Some(Reason::OutcomeUnknown) && tracked.unbroken && !drained {
        return Some("nobody knows how it ended, though nothing was lost".into());
    }
    (row.state == TaskState::Completed && tracked.reached.is_empty()).then(|| "is done, and was never sent".into())
}

//! What callers do: send, send again, send something else under the same id, ask to cancel, follow up, leave; and what
//! they are told. Everything about a message follows from its number, so that a repetition is a true one.

use std::sync::Arc;

use watertight_engine::ids::{AgentId, ContextKey, Key, LineId, Principal, TaskId};
use watertight_engine::input::{Claims, Held, Input, Named, Submission, Want, WireBudget, WireQueue};
use watertight_engine::outbox::View;
use watertight_engine::output::Answer;
use watertight_engine::record::{Durability, Outbox, Row, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::rng::{self, Rng};
use watertight_policy::time::{Span, Time};

use crate::node::{Asks, Open, Tracked};
use crate::report::Report;
use crate::world::{Event, World};

/// How a message differs from what its number says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Twist {
    Plain,
    /// The same id, and another body.
    Conflict,
}

/// A message that an agent sends for a delegation of its own.
#[derive(Clone, Debug)]
pub(crate) struct Kid {
    pub(crate) node: usize,
    pub(crate) parent: TaskId,
    pub(crate) caller: usize,
    pub(crate) deadline: Time,
    pub(crate) depth: u32,
    pub(crate) fanout: u32,
}

struct Message {
    node: usize,
    principal: Principal,
    agent: usize,
    queued: bool,
    streams: bool,
    context: Option<Arc<str>>,
    budget: WireBudget,
    queue: WireQueue,
    parent: Option<TaskId>,
    /// The token that vouches for the parent.
    held: Option<Held>,
}

impl Open {
    pub(crate) fn proposed(&self) -> Option<TaskId> {
        match &self.asks {
            Asks::Takes { proposed, .. } => Some(*proposed),
            Asks::Cancels | Asks::Meddles | Asks::Reads => None,
        }
    }
}

impl World<'_> {
    /// Randomness that belongs to one message and one purpose.
    pub(crate) fn dice(&self, message: u64, label: &str) -> Rng {
        Rng::new(self.scenario.seed ^ message.wrapping_mul(0x9e37_79b9_7f4a_7c15)).split(label)
    }

    pub(crate) fn arrives(&mut self, message: u64) {
        self.sent += 1;
        if self.sent < self.scenario.delegations {
            let after = Span::from_micros(self.arrivals.below(self.scenario.every.as_micros().max(1) * 2));
            self.later(after, Event::Arrives(message + 1));
        }
        let mut dice = self.dice(message, "caller");
        let mut one_in = |n: u64| n > 0 && dice.below(n) == 0;
        let (twin, conflict) = (one_in(self.scenario.twin_one_in), one_in(self.scenario.conflict_one_in));
        self.send(message, Twist::Plain);
        if twin {
            self.send(message, Twist::Plain);
        }
        if conflict {
            let after = Span::from_millis(self.arrivals.below(2_000));
            self.later(after, Event::Sends(message, Twist::Conflict));
        }
    }

    fn message(&self, message: u64) -> Option<Message> {
        let mut rng = self.dice(message, "who");
        let agent = rng.below(self.scenario.agents.len().max(1) as u64) as usize;
        let kid = self.kids.get(&message);
        // Mostly the next one, so that chains grow; whoever is asked at random may be in the chain already.
        let next =
            kid.filter(|_| !message.is_multiple_of(4)).map(|kid| (kid.caller + 1) % self.scenario.agents.len().max(1));
        let agent = next.unwrap_or(agent);
        if message >> 63 == 1 && kid.is_none() {
            return None;
        }
        let queued = self.scenario.queued_one_in > 0 && rng.below(self.scenario.queued_one_in) == 0;
        let streams = !self.scenario.small_commits && rng.below(6) == 0;
        let queue = WireQueue {
            priority: (rng.below(3) == 0).then(|| rng.below(101) as u8),
            ttl: (rng.below(5) == 0).then(|| Span::from_millis(rng.below(20_000))),
        };
        if let Some(kid) = kid {
            let left = kid.deadline.since(self.now);
            let tenant = self.nodes[kid.node].principals[0].tenant.clone();
            return Some(Message {
                node: kid.node,
                principal: Principal { tenant, caller: self.names[kid.caller].0.clone() },
                agent,
                queued,
                streams,
                context: None,
                budget: WireBudget {
                    remaining_s: Some(left.as_secs_f64()),
                    depth: Some(kid.depth),
                    fanout: Some(kid.fanout),
                },
                queue,
                parent: Some(kid.parent),
                held: (self.scenario.signed && message.is_multiple_of(2)).then(|| self.token(kid)),
            });
        }
        let node = rng.below(self.nodes.len() as u64) as usize;
        let principals = &self.nodes[node].principals;
        let principal = principals[rng.below(principals.len() as u64) as usize].clone();
        let context = match self.scenario.small_commits {
            true => Some(message / 3),
            false => Some(rng.below(90)).filter(|n| *n < 30),
        };
        let unbudgeted = self.scenario.unbudgeted_one_in > 0 && rng.below(self.scenario.unbudgeted_one_in) == 0;
        let budget = WireBudget {
            remaining_s: (!unbudgeted).then_some(self.scenario.budget.as_secs_f64()),
            // Now and then too little for any child.
            depth: Some(if message.is_multiple_of(16) && !self.scenario.small_commits { 1 } else { 3 }),
            fanout: Some(4),
        };
        let context = context.map(|n| format!("context-{n}").into());
        Some(Message { node, principal, agent, queued, streams, context, budget, queue, parent: None, held: None })
    }

    /// What an agent was given with the delegation that it works on.
    fn token(&self, kid: &Kid) -> Held {
        Held { task: kid.parent, holder: self.names[kid.caller].clone() }
    }

    fn line(&mut self) -> LineId {
        self.next_line += 1;
        LineId(self.next_line)
    }

    pub(crate) fn send(&mut self, number: u64, twist: Twist) {
        let Some(message) = self.message(number) else { return };
        let n = message.node;
        if !self.nodes[n].is_up() {
            // Refused at the door; it comes again.
            Report::count(&mut self.report.refusals, "store_unavailable");
            return self.later(Span::from_millis(300), Event::Sends(number, twist));
        }
        let line = self.line();
        let task =
            TaskId(u128::from(self.now.as_millis()) << 80 | u128::from(number) << 16 | u128::from(line.0 & 0xffff));
        let agent = self.names[message.agent].clone();
        let key = Key { principal: message.principal, agent: agent.clone(), message_id: format!("m-{number}").into() };
        let fingerprint = u128::from(number) << 1 | u128::from(twist == Twist::Conflict);
        let context_named = message.context.is_some();
        let context = message.context.unwrap_or_else(|| format!("ours-{}", line.0).into());
        let remote_context = context_named.then(|| {
            let key = ContextKey { principal: key.principal.clone(), agent, context: context.clone() };
            self.nodes[n].disk.context(&key).unwrap_or_else(|| format!("minted-{}", line.0).into())
        });
        let until = self.now + message.budget.remaining_s.map_or(self.scenario.budget, Span::from_secs_f64);
        let want = match (message.queued, message.streams) {
            (true, _) => Want::Accepted,
            (false, true) => Want::Stream,
            (false, false) => Want::Reply { until },
        };
        if let Some(parent) = message.parent.and_then(|parent| self.tracked(n, parent)) {
            parent.asked += 1;
        }
        let (parent, follows) = (message.parent, false);
        let asks = Asks::Takes { proposed: task, key: key.clone(), fingerprint, parent, follows };
        self.nodes[n].lines.insert(line, Open { message: number, asks });
        if self.scenario.hang_up_one_in > 0 && self.arrivals.below(self.scenario.hang_up_one_in) == 0 {
            let (life, after) = (self.nodes[n].life, Span::from_millis(self.arrivals.below(3_000)));
            self.later(after, Event::HangsUp { node: n, life, line });
        }
        self.submits(n, line, want, task, key, fingerprint, |s| {
            s.context = context;
            s.context_named = context_named;
            s.remote_context = remote_context;
            s.budget = message.budget;
            s.queue = message.queue;
            // A token says for whom, and the id beside it is left out now and then.
            s.parent = message.parent.filter(|_| message.held.is_none() || number.is_multiple_of(3));
            s.claims.held = message.held;
        });
    }

    #[expect(clippy::too_many_arguments, reason = "a submission has more")]
    fn submits(
        &mut self,
        n: usize,
        line: LineId,
        want: Want,
        task: TaskId,
        key: Key,
        fingerprint: u128,
        change: impl FnOnce(&mut Submission),
    ) {
        let known = self.nodes[n].disk.key(&key);
        let outbox = match rng::fnv1a(key.principal.caller.bytes()) % 3 {
            0 => Outbox::None,
            1 => Outbox::Caller,
            _ => Outbox::Agent(AgentId::new("lead")),
        };
        let mut submission = Submission {
            line,
            want,
            task,
            principal: key.principal,
            agent: key.agent,
            message_id: key.message_id,
            fingerprint,
            names: None,
            context: "".into(),
            context_named: false,
            remote_context: None,
            known,
            arrived: self.now,
            budget: WireBudget::default(),
            queue: WireQueue::default(),
            parent: None,
            redrives: None,
            outbox,
            digest: None,
            claims: Claims::default(),
        };
        change(&mut submission);
        self.offer(n, Input::Submitted(Arc::new(submission)));
    }

    /// Somebody follows up: an answer to a question, or anything at any moment.
    pub(crate) fn follows(&mut self, n: usize, task: TaskId) {
        if !self.nodes[n].is_up() {
            return self.later(Span::from_millis(300), Event::Follows { node: n, task });
        }
        let line = self.line();
        let node = &mut self.nodes[n];
        let (Some(row), Some(tracked)) = (node.disk.rows.get(&task), node.tracked.get(&task)) else { return };
        let number = tracked.message;
        let message_id: Arc<str> = format!("f-{number}-{}", row.turn.no).into();
        let key = Key { principal: row.principal.clone(), agent: row.agent.clone(), message_id };
        let fingerprint = u128::from(rng::fnv1a(key.message_id.bytes()));
        let (names, context) = (Named { task, terminal: row.state.is_terminal() }, row.context.clone());
        let asks = Asks::Takes { proposed: task, key: key.clone(), fingerprint, parent: None, follows: true };
        node.lines.insert(line, Open { message: number, asks });
        let budget =
            WireBudget { remaining_s: Some(self.scenario.budget.as_secs_f64()), depth: Some(3), fanout: Some(4) };
        let proposed = TaskId(u128::from(self.now.as_millis()) << 80 | u128::from(line.0));
        let want = match line.0 % 3 {
            0 => Want::Accepted,
            _ => Want::Reply { until: self.now + self.scenario.budget },
        };
        self.submits(n, line, want, proposed, key, fingerprint, |s| {
            s.names = Some(names);
            s.context = context;
            s.budget = budget;
        });
    }

    pub(crate) fn asks_to_cancel(&mut self, n: usize, task: TaskId, stranger: bool) {
        if !self.nodes[n].is_up() {
            return self.later(Span::from_millis(300), Event::Cancels { node: n, task, stranger });
        }
        let line = self.line();
        let node = &mut self.nodes[n];
        let (Some(row), Some(tracked)) = (node.disk.rows.get(&task), node.tracked.get_mut(&task)) else { return };
        tracked.canceled |= !stranger;
        let mut principal = row.principal.clone();
        if stranger {
            principal.caller = "somebody else".into();
        }
        let agent = row.agent.clone();
        let asks = if stranger { Asks::Meddles } else { Asks::Cancels };
        let message = tracked.message;
        node.lines.insert(line, Open { message, asks });
        self.offer(n, Input::CancelAsked { line, principal, agent, task });
    }

    pub(crate) fn hangs_up(&mut self, n: usize, life: u64, line: LineId) {
        let node = &mut self.nodes[n];
        if life != node.life || !node.is_up() {
            return;
        }
        let Some(open) = node.lines.remove(&line) else { return };
        node.left.insert(line);
        self.answered(n, &open);
        self.offer(n, Input::LineClosed { line });
    }

    /// Nobody waits on this line any more.
    fn answered(&mut self, n: usize, open: &Open) {
        let Asks::Takes { parent: Some(parent), .. } = &open.asks else { return };
        if let Some(parent) = self.tracked(n, *parent) {
            parent.asked = parent.asked.saturating_sub(1);
        }
    }

    // ---- what they are told ----------------------------------------------------------------------------------------

    pub(crate) fn told(&mut self, n: usize, line: LineId, answer: Answer) {
        if let Answer::Task { task, receipt: Some(turn), .. } = answer {
            // Now and then a connection breaks with the answer on it.
            let written = self.nodes[n].lines.contains_key(&line) && !line.0.is_multiple_of(5);
            self.offer(n, Input::Told { task, turn, written });
        }
        let Some(open) = self.nodes[n].lines.remove(&line) else {
            // An answer that waits for the disk does not hear its caller leave.
            if !self.nodes[n].left.remove(&line) {
                self.broken(n, None, format!("line {} is answered, and was not open", line.0));
            }
            return;
        };
        self.answered(n, &open);
        if matches!(open.asks, Asks::Meddles) && answer != Answer::NotFound {
            self.broken(n, None, format!("a stranger is told {answer:?} of a task of message {}", open.message));
        }
        let fate = match answer {
            Answer::Task { task, .. } => return self.told_task(n, &open, task),
            Answer::Refused(refusal) => {
                self.refused(n, &open, refusal.reason, &refusal.agent);
                refusal.reason.as_str()
            }
            Answer::Conflict { first } => {
                let same = matches!(&open.asks, Asks::Takes { key, fingerprint, .. }
                    if self.nodes[n].disk.key(key).is_some_and(|known| known.fingerprint == *fingerprint));
                if same {
                    self.broken(n, Some(first), "the same message is told to be another".into());
                }
                "conflict"
            }
            Answer::NotFound => "not found",
            Answer::TaskTerminal => "terminal",
            Answer::NotCancelable => "not cancelable",
            Answer::ContextMismatch => "context mismatch",
            Answer::Acknowledged { .. } | Answer::Work { .. } | Answer::NoWork => return,
            Answer::NotThatFar { last } => {
                return self.broken(n, None, format!("what was shown is said to be behind {last}"));
            }
        };
        Report::count(&mut self.report.refusals, fate);
        let own = matches!(open.asks, Asks::Takes { follows: false, .. });
        if self.scenario.compare && own {
            self.report.fates.insert(open.message, fate.into());
        }
    }

    /// Somebody's outbox has changed. It is read when there are some, but for the last ones.
    pub(crate) fn reads(&mut self, n: usize, view: View) {
        if view.waiting < 4 || !self.nodes[n].is_up() {
            return;
        }
        let line = self.line();
        self.nodes[n].lines.insert(line, Open { message: 0, asks: Asks::Reads });
        let up_to = view.newest.saturating_sub(line.0 % 3);
        self.offer(n, Input::Acknowledged { line, owner: view.owner, up_to });
    }

    fn told_task(&mut self, n: usize, open: &Open, task: TaskId) {
        let node = &mut self.nodes[n];
        let Some(row) = node.disk.rows.get(&task) else {
            return self.broken(n, Some(task), "was given out and is not kept".into());
        };
        let (state, never_sent) = (row.state, row.never_sent(row.turn.no));
        if let Some(tracked) = node.tracked.get_mut(&task) {
            tracked.given_out = true;
        }
        if let Asks::Takes { key, fingerprint, .. } = &open.asks {
            match node.disk.key(key) {
                Some(known) if known.task == task && known.fingerprint == *fingerprint => {}
                // It was never sent, so that the key may already be another's, in the same commit that ended it.
                Some(_) if never_sent => {}
                known => self.broken(n, Some(task), format!("was given out for {}, kept as {known:?}", key.message_id)),
            }
        }
        self.shown(n, task, state);
    }

    /// Nothing is left of what was refused.
    fn refused(&mut self, n: usize, open: &Open, reason: Reason, agent: &AgentId) {
        let Asks::Takes { proposed, key, follows, .. } = &open.asks else { return };
        let node = &self.nodes[n];
        let agent = self.names.iter().position(|name| name == agent).unwrap_or_default();
        if *follows {
            // The question still stands.
            let after = Span::from_millis(400 + self.arrivals.below(800));
            if self.arrivals.below(2) == 0 {
                self.later(after, Event::Follows { node: n, task: *proposed });
            }
            return;
        }
        let row = node.disk.rows.contains_key(proposed) || node.cell.row(*proposed).is_some();
        let keyed = node.disk.key(key).is_some_and(|known| known.task == *proposed);
        if row || keyed {
            let left = if row { "a row" } else { "a key" };
            self.broken(n, Some(*proposed), format!("was refused ({}) and left {left}", reason.as_str()));
        }
        Report::count(&mut self.tallies[agent].refused, reason.as_str());
        if !self.scenario.small_commits && self.arrivals.below(4) == 0 {
            let after = Span::from_millis(200 + self.arrivals.below(2_000));
            self.later(after, Event::Sends(open.message, Twist::Plain));
        }
    }

    /// A turn is over, and its record durable.
    pub(crate) fn settled(&mut self, n: usize, task: TaskId, state: TaskState) {
        let kept = self.nodes[n].disk.rows.get(&task).map(|row| row.state);
        // It may have come to its end in the same commit in which it asked.
        let went_on = |kept: TaskState| !state.is_terminal() && kept.is_terminal();
        if let Some(kept) = kept.filter(|kept| *kept != state && !went_on(*kept)) {
            self.broken(n, Some(task), format!("shown as {} while its row says {}", state.as_str(), kept.as_str()));
        }
        self.shown(n, task, state);
        if state == TaskState::InputRequired {
            let silent = self.scenario.silent_one_in;
            if silent == 0 || self.arrivals.below(silent) != 0 {
                self.later(Span::from_millis(5), Event::Follows { node: n, task });
            }
        }
    }

    /// A delegation is about to be written for the first time.
    pub(crate) fn accepted(&mut self, n: usize, row: &Row) {
        let message = (row.task.0 >> 16) as u64;
        let agent = self.names.iter().position(|name| *name == row.agent).unwrap_or_default();
        self.report.accepted += 1;
        let tracked = Tracked {
            message,
            agent,
            parent: row.parent,
            given_out: false,
            volatile: row.durability == Durability::Memory,
            told: None,
            reached: Vec::new(),
            works: Vec::new(),
            keys: Vec::new(),
            kids: Vec::new(),
            fanout: row.turn.budget.fanout + row.children,
            children: 0,
            asked: 0,
            unbroken: true,
            turn: 1,
            state: row.state,
            canceled: false,
            owed_since: None,
            leaving: false,
        };
        self.nodes[n].tracked.insert(row.task, tracked);
        self.check_child(n, row);
        let mut dice = self.dice(message, "caller's mind");
        let mut one_in = |n: u64| (n > 0 && dice.below(n) == 0).then(|| Span::from_millis(dice.below(3_000)));
        let task = row.task;
        let (cancels, follows) = (one_in(self.scenario.cancel_one_in), one_in(self.scenario.follow_one_in));
        let meddles = one_in(self.scenario.stranger_one_in);
        if let Some(after) = cancels {
            self.later(after, Event::Cancels { node: n, task, stranger: false });
        }
        if let Some(after) = follows {
            self.later(after, Event::Follows { node: n, task });
        }
        if let Some(after) = meddles {
            self.later(after, Event::Cancels { node: n, task, stranger: true });
        }
    }
}

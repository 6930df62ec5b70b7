//! The wire between a cell and its agents: what a delivery becomes, and what comes back.

use watertight_engine::ids::{AgentId, Attempt, RemoteId, TaskId};
use watertight_engine::input::{CancelAnswer, Fault, Input, Outcome, Progress, Reply};
use watertight_engine::output::Dispatch;
use watertight_engine::record::{Delivery, Phase, ReplyKind, TaskState};
use watertight_policy::acceptance::{Measure, PeerState};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

use crate::agent::{Behaviour, Work};
use crate::callers::{Kid, Twist};
use crate::world::{Event, World};

impl World<'_> {
    pub(crate) fn deliver(&mut self, n: usize, dispatch: Dispatch) {
        let Dispatch { task, turn, attempt, .. } = dispatch;
        let Some(agent) = self.names.iter().position(|name| *name == dispatch.agent) else { return };
        let node = &mut self.nodes[n];
        let row = node.disk.rows.get(&task);
        if row.is_none_or(|row| row.attempt != attempt || row.turn.phase == Phase::Waiting) {
            self.broken(n, Some(task), format!("attempt {} is sent before it is kept", attempt.0));
        }
        let scenario = self.scenario;
        let player = &scenario.agents[agent];
        let Some(message) = self.nodes[n].tracked.get(&task).map(|tracked| tracked.message) else {
            return self.broken(n, Some(task), "is sent, and was never kept".into());
        };
        let mut gate = self.dice(message, &format!("gate {turn} {}", attempt.0));
        if scenario.gate_one_in > 0 && gate.below(scenario.gate_one_in) == 0 {
            return self.stops(n, &dispatch, agent, gate.below(2) == 0);
        }
        // What the agent makes of it belongs to the message, not to the moment.
        let mut dice = self.dice(message, &format!("agent {turn} {}", attempt.0));
        let mut behaviour = player.model.choose(&mut dice, self.now);
        let takes = player.model.duration(&mut dice);
        let at_once: u32 = self.nodes.iter().map(|node| node.busy[agent]).sum();
        if player.model.capacity.is_some_and(|capacity| at_once >= capacity) {
            behaviour = Behaviour::Busy;
        }
        let mut back = self.now + takes;
        if let Some(awake) = player.model.sleeps {
            let side = &mut self.sides[agent];
            if side.awake_until < self.now {
                (behaviour, back) = (Behaviour::Refuses, self.now + Span::from_millis(3));
            } else {
                side.awake_until = back + awake;
            }
        }
        self.nodes[n].begins(task, attempt, agent);
        match behaviour {
            Behaviour::Refuses => {}
            // It did not take it, so it may be sent again.
            Behaviour::Busy => self.tallies[agent].sent += 1,
            Behaviour::Completes
            | Behaviour::Fails
            | Behaviour::Asks
            | Behaviour::Message
            | Behaviour::Rejects
            | Behaviour::Delegates
            | Behaviour::HangsKnown
            | Behaviour::HangsSilent
            | Behaviour::Resets
            | Behaviour::Garbles
            | Behaviour::Paces
            | Behaviour::Borrows
            | Behaviour::Renames
            | Behaviour::EndsTwice
            | Behaviour::GoesBack => self.reaches(n, task, turn, agent),
        }
        let ends = match behaviour {
            Behaviour::Completes
            | Behaviour::Resets
            | Behaviour::Delegates
            | Behaviour::Borrows
            | Behaviour::Renames
            | Behaviour::GoesBack
            | Behaviour::EndsTwice => Some((back, TaskState::Completed)),
            Behaviour::Fails => Some((back, TaskState::Failed)),
            Behaviour::Asks => Some((back, TaskState::InputRequired)),
            Behaviour::Rejects => Some((back, TaskState::Rejected)),
            Behaviour::HangsKnown | Behaviour::HangsSilent => None,
            Behaviour::Message | Behaviour::Refuses | Behaviour::Garbles | Behaviour::Paces | Behaviour::Busy => {
                return self.short(n, &dispatch, behaviour, back);
            }
        };
        let side = &mut self.sides[agent];
        let fresh = side.mint(&player.name);
        let id = match (&dispatch.remote_task, behaviour) {
            (Some(id), _) => id.clone(),
            (None, Behaviour::Borrows) => side.latest.clone().unwrap_or(fresh),
            (None, _) => fresh,
        };
        side.latest = Some(id.clone());
        side.works.insert(id.clone(), Work { ends, canceled: false });
        side.by_message.insert((task, turn), id.clone());
        if let Some(tracked) = self.tracked(n, task) {
            tracked.works.push(id.clone());
        }
        if player.settings.native_session {
            self.takes_the_session(n, task, agent, &id);
        }
        match behaviour {
            // Where the agent can be asked, the same attempt does so.
            Behaviour::Resets if player.settings.lookup && dispatch.remote_context.is_some() => {
                return self.looks_up(n, &dispatch, agent);
            }
            Behaviour::Resets => return self.short(n, &dispatch, behaviour, self.now + Span::from_millis(10)),
            Behaviour::HangsSilent => return,
            Behaviour::Delegates => self.delegates(n, &dispatch, agent, message, takes),
            Behaviour::Renames => {
                let other = self.sides[agent].mint(&player.name);
                self.sides[agent].works.insert(other.clone(), Work { ends, canceled: false });
                if let Some(tracked) = self.tracked(n, task) {
                    tracked.works.push(other.clone());
                }
                self.says(n, &dispatch, TaskState::Working, &other, 2, takes.div(2));
            }
            Behaviour::GoesBack => {
                self.says(n, &dispatch, TaskState::Submitted, &id, 2, takes.div(3));
                self.says(n, &dispatch, TaskState::Working, &id, 3, takes.div(2));
            }
            Behaviour::EndsTwice => {
                let outcome = Outcome::Replied(reply(TaskState::Failed, ReplyKind::Task, Some(id.clone())));
                let input = Input::Ended { task, attempt, outcome };
                self.back(n, back + Span::from_millis(7), input, true);
            }
            Behaviour::Completes
            | Behaviour::Fails
            | Behaviour::Asks
            | Behaviour::Message
            | Behaviour::Rejects
            | Behaviour::HangsKnown
            | Behaviour::Refuses
            | Behaviour::Garbles
            | Behaviour::Paces
            | Behaviour::Busy
            | Behaviour::Borrows => {}
        }
        self.says(n, &dispatch, TaskState::Working, &id, 1, Span::from_millis(10));
        let life = self.nodes[n].life;
        self.schedule(back, Event::Looks { node: n, life, task, attempt, agent, id });
    }

    /// It is not sent: its caller may not send it any more, or, if nobody can say that, not yet.
    fn stops(&mut self, n: usize, dispatch: &Dispatch, agent: usize, forbidden: bool) {
        let Dispatch { task, attempt, .. } = *dispatch;
        self.nodes[n].begins(task, attempt, agent);
        let (reason, delivery) = (Reason::Forbidden, Delivery::NotSent);
        let outcome = match forbidden {
            true => Outcome::Failed(Fault { reason, delivery, retry_after: None, busy: false }),
            false => Outcome::Withheld,
        };
        self.back(n, self.now, Input::Ended { task, attempt, outcome }, false);
    }

    /// The agent has the turn: once, unless it is declared to run a messageId once however often it is sent.
    fn reaches(&mut self, n: usize, task: TaskId, turn: u32, agent: usize) {
        self.report.executions += 1;
        self.tallies[agent].sent += 1;
        let idempotent = self.scenario.agents[agent].settings.idempotent;
        let Some(tracked) = self.tracked(n, task) else { return };
        let times = match tracked.reached.iter_mut().find(|(of, _)| *of == turn) {
            Some((_, times)) => {
                *times += 1;
                *times
            }
            None => {
                tracked.reached.push((turn, 1));
                1
            }
        };
        if times > 1 && !idempotent {
            self.broken(n, Some(task), format!("turn {turn} reached its agent {times} times"));
        }
    }

    fn back(&mut self, n: usize, at: Time, input: Input, stubborn: bool) {
        let life = self.nodes[n].life;
        self.schedule(at, Event::Back { node: n, life, input, stubborn });
    }

    fn says(&mut self, n: usize, dispatch: &Dispatch, state: TaskState, id: &RemoteId, seq: u64, after: Span) {
        let progress = Progress {
            remote_task: Some(id.clone()),
            remote_context: dispatch.remote_context.clone(),
            state: Some(state),
            seq,
        };
        let input = Input::Progressed { task: dispatch.task, attempt: dispatch.attempt, progress };
        self.back(n, self.now + after, input, false);
    }

    /// Children, with what the wire said is left; now and then more than that.
    fn delegates(&mut self, n: usize, dispatch: &Dispatch, agent: usize, message: u64, takes: Span) {
        let mut dice = self.dice(message, &format!("children {} {}", dispatch.turn, dispatch.attempt.0));
        for _ in 0..1 + dice.below(5) {
            let number = 1 << 63 | dice.next_u64() >> 1;
            let budget = dispatch.budget;
            let kid = Kid {
                node: n,
                parent: dispatch.task,
                caller: agent,
                deadline: budget.deadline + if dice.below(9) == 0 { Span::from_secs(3_600) } else { Span::ZERO },
                depth: budget.depth + u32::from(dice.below(9) == 0),
                fanout: budget.fanout,
            };
            self.kids.insert(number, kid);
            if let Some(tracked) = self.tracked(n, dispatch.task) {
                tracked.kids.push(number);
            }
            let after = Span::from_micros(dice.below(takes.as_micros().max(1)));
            self.later(after, Event::Sends(number, Twist::Plain));
        }
    }

    /// An exchange without a task that can be asked about.
    fn short(&mut self, n: usize, dispatch: &Dispatch, behaviour: Behaviour, at: Time) {
        let reasons = [
            (Behaviour::Refuses, Reason::AgentConnectRefused),
            (Behaviour::Resets, Reason::AgentReset),
            (Behaviour::Garbles, Reason::AgentMalformed),
            (Behaviour::Paces, Reason::AgentRateLimited),
            (Behaviour::Busy, Reason::AgentRateLimited),
        ];
        let reason = reasons.iter().find(|(of, _)| *of == behaviour).map(|(_, reason)| *reason);
        let outcome = match reason {
            Some(reason) => Outcome::Failed(Fault {
                reason,
                delivery: if behaviour == Behaviour::Refuses { Delivery::NotSent } else { Delivery::MaybeDelivered },
                retry_after: (behaviour == Behaviour::Paces).then_some(Span::from_secs(1)),
                busy: behaviour == Behaviour::Busy,
            }),
            None => Outcome::Replied(reply(TaskState::Completed, ReplyKind::Message, None)),
        };
        let input = Input::Ended { task: dispatch.task, attempt: dispatch.attempt, outcome };
        self.back(n, at, input, false);
    }

    pub(crate) fn watch(&mut self, n: usize, dispatch: Dispatch) {
        let Dispatch { task, attempt, .. } = dispatch;
        let Some(agent) = self.names.iter().position(|name| *name == dispatch.agent) else { return };
        self.nodes[n].begins(task, attempt, agent);
        let life = self.nodes[n].life;
        match &dispatch.remote_task {
            _ if self.scenario.agents[agent].settings.lookup => self.looks_up(n, &dispatch, agent),
            Some(id) => self.look(n, life, task, attempt, agent, id),
            None => self.broken(n, Some(task), "is watched, and nobody knows how it is called".into()),
        }
    }

    /// The agent is asked what became of a turn's message.
    fn looks_up(&mut self, n: usize, dispatch: &Dispatch, agent: usize) {
        let Dispatch { task, turn, attempt, .. } = *dispatch;
        let Some(id) = self.sides[agent].by_message.get(&(task, turn)).cloned() else {
            let delivery = Delivery::MaybeDelivered;
            let fault = Fault { reason: Reason::OutcomeUnknown, delivery, retry_after: None, busy: false };
            let input = Input::Ended { task, attempt, outcome: Outcome::Failed(fault) };
            return self.back(n, self.now + Span::from_millis(20), input, false);
        };
        self.report.found += 1;
        self.says(n, dispatch, TaskState::Working, &id, 1, Span::from_millis(20));
        let life = self.nodes[n].life;
        self.later(Span::from_millis(30), Event::Looks { node: n, life, task, attempt, agent, id });
    }

    /// A session works on one thing at a time, for each cell.
    fn takes_the_session(&mut self, n: usize, task: TaskId, agent: usize, id: &RemoteId) {
        let side = &mut self.sides[agent];
        let before = side.at.insert(n, (task, id.clone()));
        let busy = before.filter(|(of, id)| *of != task && side.state(id, self.now) == Some(TaskState::Working));
        if let Some((of, _)) = busy {
            self.broken(n, Some(of), format!("is at work in a session that is sent {task}"));
        }
    }

    /// Somebody calls an agent's wake hook, which does not always work.
    pub(crate) fn wakes(&mut self, n: usize, agent: &AgentId) {
        self.report.wakes += 1;
        let Some(agent) = self.names.iter().position(|name| name == agent) else { return };
        let node = &mut self.nodes[n];
        let after = Span::from_millis(200 + node.rng.below(3_000));
        if !node.one_in(4) {
            self.later(after, Event::Wakes(agent));
        }
    }

    pub(crate) fn woken(&mut self, agent: usize) {
        let awake = self.scenario.agents[agent].model.sleeps.unwrap_or(Span::ZERO);
        let side = &mut self.sides[agent];
        side.awake_until = side.awake_until.max(self.now + awake);
    }

    pub(crate) fn look(&mut self, n: usize, life: u64, task: TaskId, attempt: Attempt, agent: usize, id: &RemoteId) {
        if life != self.nodes[n].life || !self.nodes[n].running.contains_key(&(task, attempt)) {
            return;
        }
        let outcome = match self.sides[agent].state(id, self.now) {
            Some(TaskState::Working) => {
                let id = id.clone();
                let looks = Event::Looks { node: n, life, task, attempt, agent, id };
                return self.later(Span::from_millis(500), looks);
            }
            Some(state) => Outcome::Replied(reply(state, ReplyKind::Task, Some(id.clone()))),
            // It was started anew, and knows nothing of it.
            None => Outcome::Failed(Fault {
                reason: Reason::AgentError,
                delivery: Delivery::MaybeDelivered,
                retry_after: None,
                busy: false,
            }),
        };
        self.nodes[n].ends(task, attempt);
        self.offer(n, Input::Ended { task, attempt, outcome });
    }

    pub(crate) fn comes_back(&mut self, n: usize, life: u64, input: Input, stubborn: bool) {
        let node = &mut self.nodes[n];
        if life != node.life {
            return;
        }
        // An attempt that was stopped says nothing any more, unless it was on its way already.
        if let Input::Ended { task, attempt, .. } = &input
            && !node.ends(*task, *attempt)
            && !stubborn
            && !node.one_in(8)
        {
            return;
        }
        self.offer(n, input);
    }

    pub(crate) fn cancels(&mut self, n: usize, task: TaskId, agent: &AgentId, id: &RemoteId, until: Time) {
        let Some(agent) = self.names.iter().position(|name| name == agent) else { return };
        let obeys = self.scenario.agents[agent].model.obeys;
        if let Some(tracked) = self.tracked(n, task) {
            tracked.canceled = true;
        }
        for _ in 0..if self.scenario.twice { 2 } else { 1 } {
            self.report.cancels += 1;
            self.tallies[agent].cancels += 1;
            let answer = self.sides[agent].cancel(id, obeys, self.now);
            // It is tried until there is no time left.
            let failed = answer == CancelAnswer::Failed;
            let at = if failed { until.max(self.now) } else { self.now + Span::from_millis(5) };
            self.back(n, at, Input::CancelAnswered { task, answer }, false);
        }
    }

    /// The agent starts anew: its connections break, and what it had not finished is gone.
    pub(crate) fn agent_restarts(&mut self, agent: usize) {
        self.sides[agent].restart(self.now);
        for n in 0..self.nodes.len() {
            let broken: Vec<(TaskId, Attempt)> = self.nodes[n]
                .running
                .iter()
                .filter(|(_, of)| **of == agent)
                .map(|((task, attempt), _)| (*task, *attempt))
                .collect();
            for (task, attempt) in broken {
                let fault = Fault {
                    reason: Reason::AgentReset,
                    delivery: Delivery::MaybeDelivered,
                    retry_after: None,
                    busy: false,
                };
                let input = Input::Ended { task, attempt, outcome: Outcome::Failed(fault) };
                self.back(n, self.now + Span::from_millis(1), input, false);
            }
        }
    }
}

fn reply(state: TaskState, kind: ReplyKind, remote_task: Option<RemoteId>) -> Reply {
    let peer = match state {
        TaskState::Completed => PeerState::Completed,
        TaskState::Failed => PeerState::Failed,
        TaskState::Canceled => PeerState::Canceled,
        TaskState::Rejected => PeerState::Rejected,
        TaskState::InputRequired => PeerState::InputRequired,
        TaskState::AuthRequired => PeerState::AuthRequired,
        TaskState::Working => PeerState::Working,
        TaskState::Submitted => PeerState::Submitted,
    };
    Reply {
        state,
        kind,
        measure: Measure { state: peer, bytes: 1_000, data_parts: 1, schema_failures: 0, empty: false },
        digest: None,
        remote_task,
        remote_context: None,
        seq: 9,
    }
}

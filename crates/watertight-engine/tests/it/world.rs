//! A driver for stories: one cell, a disk that says yes when told to, and a transcript.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_engine::cell::Cell;
use watertight_engine::ids::{AgentId, Attempt, LineId, Owner, Principal, TaskId};
use watertight_engine::input::{
    CancelAnswer, Fault, Input, KnownKey, Named, Outcome, Progress, Reply, Submission, Want, WireBudget, WireQueue,
};
use watertight_engine::outbox::Stored;
use watertight_engine::output::{Answer, Output, Refusal};
use watertight_engine::record::{Delivery, Digest, Durability, ReplyKind, Row, Save, TaskState};
use watertight_engine::settings::{AgentSettings, Settings};
use watertight_policy::acceptance::{Measure, PeerState};
use watertight_policy::bulkhead;
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};

pub(crate) const START: u64 = 1_000_000_000_000;

pub(crate) struct World {
    pub(crate) cell: Cell,
    pub(crate) settings: Arc<Settings>,
    pub(crate) now: Time,
    pub(crate) rows: BTreeMap<TaskId, Row>,
    pub(crate) log: Vec<String>,
    pub(crate) refusals: Vec<Refusal>,
    /// Commits are durable at once.
    pub(crate) durable: bool,
    pending: Vec<watertight_engine::output::Commit>,
    pub(crate) attempts: BTreeMap<TaskId, Attempt>,
    /// Parents that have ended, which a driver loads with their children.
    pub(crate) ended_parents: Vec<TaskId>,
    /// Lines that are not answered, and whose caller is still there.
    open: BTreeSet<u64>,
    /// Lines that are not answered, and whose caller has left.
    left: BTreeSet<u64>,
    /// The last number that was given out, and what waits, as the store has it.
    pub(crate) outboxes: BTreeMap<Owner, (u64, BTreeMap<u64, Time>)>,
    pub(crate) lost: u64,
    /// Answers of which it is still to be said whether they were written.
    /// How long each turn that ended had been with its agent.
    pub(crate) took: BTreeMap<TaskId, Option<Span>>,
    pub(crate) receipts: Vec<(TaskId, u32)>,
    next: u64,
}

pub(crate) fn task(n: u64) -> TaskId {
    TaskId(u128::from(n))
}

pub(crate) fn alice() -> Principal {
    Principal { tenant: "acme".into(), caller: "alice".into() }
}

pub(crate) fn settings(change: impl Fn(&mut AgentSettings)) -> Arc<Settings> {
    let mut agent = AgentSettings {
        bulkhead: bulkhead::Params { max_in_flight: 2, max_waiting: 2, max_wait: Span::from_millis(500) },
        attempts: 1,
        ..AgentSettings::default()
    };
    change(&mut agent);
    let agents = [("hotels", agent.clone()), ("fx", agent)];
    Arc::new(Settings {
        agents: agents.into_iter().map(|(name, agent)| (AgentId::new(name), agent)).collect(),
        ..Settings::default()
    })
}

impl World {
    pub(crate) fn new() -> World {
        World::with(|_| {})
    }

    pub(crate) fn with(change: impl Fn(&mut AgentSettings)) -> World {
        World::under(settings(change))
    }

    pub(crate) fn under(settings: Arc<Settings>) -> World {
        World {
            cell: Cell::new(settings.clone(), 7),
            settings,
            now: Time::from_micros(START),
            rows: BTreeMap::new(),
            log: Vec::new(),
            refusals: Vec::new(),
            durable: true,
            pending: Vec::new(),
            attempts: BTreeMap::new(),
            ended_parents: Vec::new(),
            outboxes: BTreeMap::new(),
            lost: 0,
            receipts: Vec::new(),
            took: BTreeMap::new(),
            open: BTreeSet::new(),
            left: BTreeSet::new(),
            next: 1,
        }
    }

    /// A blocking message to hotels with 6 s left on the wire; gives the number of its line and proposed task.
    pub(crate) fn send(&mut self, message: &str) -> u64 {
        self.send_with(message, |_| {})
    }

    pub(crate) fn send_with(&mut self, message: &str, change: impl Fn(&mut Submission)) -> u64 {
        let submission = self.submission(message, change);
        let n = submission.line.0;
        self.give(Input::Submitted(submission));
        n
    }

    /// Likewise, not yet given to the cell.
    pub(crate) fn submission(&mut self, message: &str, change: impl Fn(&mut Submission)) -> Arc<Submission> {
        let n = self.next;
        self.next += 1;
        let mut submission = Submission {
            line: LineId(n),
            want: Want::Reply { until: self.now + Span::from_secs(60) },
            task: task(n),
            principal: alice(),
            agent: AgentId::new("hotels"),
            message_id: message.into(),
            fingerprint: 1,
            names: None,
            context: format!("ctx-{n}").into(),
            context_named: false,
            remote_context: None,
            known: None,
            budget: WireBudget { remaining_s: Some(6.0), depth: Some(2), fanout: Some(4) },
            queue: WireQueue::default(),
            parent: None,
            redrives: None,
            outbox: Default::default(),
            digest: Some(Digest { bytes: n + 1, sha256: [n as u8; 32] }),
            claims: Default::default(),
            arrived: self.now,
        };
        change(&mut submission);
        self.open.insert(n);
        Arc::new(submission)
    }

    pub(crate) fn immediately(&mut self, message: &str) -> u64 {
        self.send_with(message, |s| s.want = Want::Accepted)
    }

    pub(crate) fn follow_up(&mut self, message: &str, named: u64) -> u64 {
        self.follow_up_with(message, named, |_| {})
    }

    pub(crate) fn follow_up_with(&mut self, message: &str, named: u64, change: impl Fn(&mut Submission)) -> u64 {
        self.send_with(message, |s| {
            s.names = Some(Named { task: task(named), terminal: false });
            s.context = format!("ctx-{named}").into();
            change(s);
        })
    }

    pub(crate) fn known(n: u64, never_sent: bool) -> Option<KnownKey> {
        Some(KnownKey { task: task(n), fingerprint: 1, never_sent })
    }

    pub(crate) fn working(&mut self, n: u64, remote: &str) {
        let progress = Progress {
            remote_task: Some(remote.into()),
            remote_context: Some(format!("{remote}-ctx").into()),
            state: Some(TaskState::Working),
            seq: 1,
        };
        self.give(Input::Progressed { task: task(n), attempt: self.attempt(n), progress });
    }

    pub(crate) fn replies(&mut self, n: u64, state: TaskState) {
        self.replies_with(n, state, 100);
    }

    pub(crate) fn replies_with(&mut self, n: u64, state: TaskState, bytes: u64) {
        let peer = match state {
            TaskState::Completed => PeerState::Completed,
            TaskState::Failed => PeerState::Failed,
            TaskState::Canceled => PeerState::Canceled,
            TaskState::Rejected => PeerState::Rejected,
            TaskState::InputRequired => PeerState::InputRequired,
            TaskState::AuthRequired => PeerState::AuthRequired,
            TaskState::Submitted | TaskState::Working => PeerState::Working,
        };
        let measure = Measure { state: peer, bytes, data_parts: 1, schema_failures: 0, empty: false };
        let reply = Reply {
            state,
            kind: ReplyKind::Task,
            measure,
            digest: Some(Digest { bytes, sha256: [0xaa; 32] }),
            remote_task: Some(format!("r{n}").into()),
            remote_context: Some(format!("r{n}-ctx").into()),
            seq: 2,
        };
        self.give(Input::Ended { task: task(n), attempt: self.attempt(n), outcome: Outcome::Replied(reply) });
    }

    pub(crate) fn fails(&mut self, n: u64, reason: Reason, delivery: Delivery) {
        self.fails_with(n, Fault { reason, delivery, retry_after: None, busy: false });
    }

    pub(crate) fn fails_with(&mut self, n: u64, fault: Fault) {
        self.give(Input::Ended { task: task(n), attempt: self.attempt(n), outcome: Outcome::Failed(fault) });
    }

    pub(crate) fn cancel(&mut self, n: u64) -> u64 {
        self.cancel_with(n, "hotels")
    }

    pub(crate) fn cancel_with(&mut self, n: u64, agent: &str) -> u64 {
        let line = self.next;
        self.next += 1;
        let (principal, agent) = (alice(), AgentId::new(agent));
        self.open.insert(line);
        self.give(Input::CancelAsked { line: LineId(line), principal, agent, task: task(n) });
        line
    }

    pub(crate) fn drop_queued(&mut self, n: u64) -> u64 {
        let line = self.next;
        self.next += 1;
        self.open.insert(line);
        self.give(Input::Dropped { line: LineId(line), task: task(n) });
        line
    }

    pub(crate) fn cancel_answered(&mut self, n: u64, answer: CancelAnswer) {
        self.give(Input::CancelAnswered { task: task(n), answer });
    }

    /// A line on which somebody waits for an answer.
    pub(crate) fn open_line(&mut self) -> u64 {
        let line = self.next;
        self.next += 1;
        self.open.insert(line);
        line
    }

    pub(crate) fn lines_so_far(&self) -> u64 {
        self.next - 1
    }

    pub(crate) fn open_lines(&self) -> &BTreeSet<u64> {
        &self.open
    }

    pub(crate) fn hang_up(&mut self, line: u64) {
        if self.open.remove(&line) {
            self.left.insert(line);
        }
        self.give(Input::LineClosed { line: LineId(line) });
    }

    fn attempt(&self, n: u64) -> Attempt {
        self.attempts.get(&task(n)).copied().unwrap_or_default()
    }

    pub(crate) fn give(&mut self, input: Input) {
        self.cell.offer(input);
        self.run();
    }

    /// Lets time pass, waking the cell whenever it asks.
    pub(crate) fn after(&mut self, millis: u64) {
        let end = self.now + Span::from_millis(millis);
        while let Some(at) = self.cell.wake().filter(|at| *at <= end) {
            assert!(at >= self.now, "a wake-up in the past: {at:?} < {:?}", self.now);
            self.now = at;
            self.run();
        }
        self.now = end;
    }

    pub(crate) fn run(&mut self) {
        loop {
            if let Some(commit) = self.cell.step(self.now, true) {
                self.pending.push(commit);
                if self.durable {
                    self.commit_all();
                }
            }
            while let Some(output) = self.cell.poll_output() {
                self.tell(output);
            }
            let audit = self.cell.audit();
            assert!(audit.is_empty(), "{audit:#?}\nafter {:#?}", &self.log[self.log.len().saturating_sub(12)..]);
            if self.cell.wake().is_none_or(|at| at > self.now) {
                break;
            }
        }
    }

    /// The disk says yes to all that waits.
    pub(crate) fn commit_all(&mut self) {
        for commit in std::mem::take(&mut self.pending) {
            for save in &commit.saves {
                self.put(save, Durability::Durable);
            }
            self.cell.committed(commit.n);
        }
        while let Some(output) = self.cell.poll_output() {
            self.tell(output);
        }
    }

    /// On disk, or in memory.
    fn put(&mut self, save: &Save, durability: Durability) {
        let row = match save {
            Save::Delegation { row, .. } => row,
            Save::Notice(notice) => {
                let (last, waiting) = self.outboxes.entry(notice.owner.clone()).or_default();
                assert_eq!(notice.seq, *last + 1, "numbers are contiguous");
                *last = notice.seq;
                let row = &self.rows[&notice.task];
                let durable = row.durability == Durability::Durable;
                assert!(!durable || (row.state, row.turn.no) == (notice.state, notice.turn), "it goes with its row");
                waiting.insert(notice.seq, notice.at);
                return;
            }
            Save::Taken { owner, first, last, lost } => {
                self.lost = *lost;
                let (_, waiting) = self.outboxes.get_mut(owner).expect("an outbox");
                return waiting.retain(|seq, _| seq < first || seq > last);
            }
            Save::Key { .. } | Save::Context { .. } => return,
        };
        assert_eq!(row.durability, durability, "a delegation is kept where it began");
        let before = self.rows.insert(row.task, (**row).clone());
        assert_eq!(before.as_ref().map_or(0, |row| row.version) + 1, row.version, "row versions count up");
        if let Some(before) = before.filter(|before| before.state.is_terminal()) {
            assert_eq!(before.state, row.state, "a terminal state is written once");
        }
    }

    /// The process dies and comes back. `alive`: it was only the engine.
    pub(crate) fn crash(&mut self, alive: bool) {
        self.pending.clear();
        if !alive {
            self.rows.retain(|_, row| row.durability == Durability::Durable);
        }
        let rows = self.rows.values().filter(|row| row.is_live() || self.ended_parents.contains(&row.task));
        let rows: Vec<Row> = rows.cloned().collect();
        let empty = Cell::new(self.settings.clone(), 7);
        let salvaged = std::mem::replace(&mut self.cell, empty).salvage();
        let running: BTreeSet<(TaskId, Attempt)> = self.attempts.iter().map(|(task, at)| (*task, *at)).collect();
        let (running, salvaged) = if alive { (running, salvaged) } else { Default::default() };
        if !alive {
            self.open.clear();
            self.left.clear();
        }
        self.receipts.clear();
        self.cell = Cell::restore(self.settings.clone(), 7, rows, running, salvaged, self.now);
        let stored = self.outboxes.iter().map(|(owner, (last, waiting))| Stored {
            owner: owner.clone(),
            last: *last,
            lost: self.lost,
            waiting: waiting.iter().map(|(seq, at)| (*seq, *at)).collect(),
        });
        self.cell.restore_outboxes(stored.collect());
        self.log.push("-- restart".into());
        self.run();
    }

    fn tell(&mut self, output: Output) {
        let at = self.now.as_micros().saturating_sub(START) / 1_000;
        let n = |task: TaskId| task.0;
        let text = match output {
            Output::Keep(save) => return self.put(&save, Durability::Memory),
            Output::Answer { line, answer } => {
                let answer = match answer {
                    Answer::Task { task, replay, receipt } => {
                        self.receipts.extend(receipt.map(|turn| (task, turn)));
                        let state = self.rows.get(&task).map_or("?", |row| row.state.as_str());
                        let state = state.trim_start_matches("TASK_STATE_");
                        format!("t{} {state}{}", n(task), if replay { " (replay)" } else { "" })
                    }
                    Answer::Refused(refusal) => {
                        let text = format!("refused {}", refusal.reason.as_str());
                        self.refusals.push(refusal);
                        text
                    }
                    Answer::Conflict { first } => format!("conflict with t{}", n(first)),
                    Answer::NotFound => "not found".into(),
                    Answer::TaskTerminal => "terminal".into(),
                    Answer::ContextMismatch => "other context".into(),
                    Answer::NotCancelable => "not cancelable".into(),
                    Answer::Acknowledged { last, waiting } => format!("{waiting} of {last} wait"),
                    Answer::Work { task, attempt } => {
                        let (task, attempt) = (task.0, attempt.0);
                        format!("work t{task} #{attempt}")
                    }
                    Answer::NoWork => "no work".to_owned(),
                    Answer::NotThatFar { last } => format!("not that far: {last}"),
                };
                // An answer that waits for the disk does not hear its caller leave.
                let heard = self.open.remove(&line.0) || self.left.remove(&line.0);
                assert!(heard, "line {} is answered, and was not open", line.0);
                format!("line {}: {answer}", line.0)
            }
            Output::Send(d) => {
                self.attempts.insert(d.task, d.attempt);
                assert_eq!(self.rows.get(&d.task).map(|row| row.attempt), Some(d.attempt), "sent before it is kept");
                let to = d.remote_task.map_or(String::new(), |remote| format!(" to {remote}"));
                format!("send t{} #{} turn {}{to}", n(d.task), d.attempt.0, d.turn)
            }
            Output::Watch(d) => {
                self.attempts.insert(d.task, d.attempt);
                format!("watch t{} {}", n(d.task), d.remote_task.as_deref().unwrap_or("?"))
            }
            Output::Cancel { task, remote_task, .. } => format!("cancel t{} {remote_task}", n(task)),
            Output::Wake { agent, waiting } => format!("wake {agent} for {waiting}"),
            Output::Stop { task, .. } => format!("stop t{}", n(task)),
            Output::Publish { .. } | Output::Forget { .. } | Output::Rests { .. } => return,
            Output::Outbox(view) => {
                format!("outbox: {} wait, newest {}", view.waiting, view.newest)
            }
            Output::Settled { task, state, reason, took, .. } => {
                self.took.insert(task, took);
                let state = state.as_str().trim_start_matches("TASK_STATE_");
                let reason = reason.map_or(String::new(), |reason| format!(" {}", reason.as_str()));
                format!("settled t{} {state}{reason}", n(task))
            }
        };
        self.log.push(format!("{at:>5} {text}"));
    }

    /// Compares the transcript so far, and starts a new one.
    #[track_caller]
    pub(crate) fn told(&mut self, expected: &str) {
        let lines =
            |text: &str| text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect::<Vec<_>>();
        let got = std::mem::take(&mut self.log).join("\n");
        assert_eq!(lines(&got), lines(expected), "\n--- got\n{got}\n---");
    }

    pub(crate) fn row(&self, n: u64) -> &Row {
        &self.rows[&task(n)]
    }

    pub(crate) fn in_flight(&self, agent: &str) -> u32 {
        let views = self.cell.agents(self.now);
        views.iter().find(|view| view.agent.as_str() == agent).map_or(0, |view| view.in_flight)
    }
}

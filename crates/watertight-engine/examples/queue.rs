//! What a waiting delegation costs: bytes in the engine, and the time of a claim and of an input with few and many of
//! them. `cargo run --release -p watertight-engine --example queue -- [HOW MANY]`; a million if nothing is said.
//!
//! Five agents with one slot each, twenty callers, ids as they are in life: a UUID as messageId, a UUID as contextId, and
//! what stands for that toward the agent. Nothing else is kept: commits are durable at once and dropped.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::sync::Arc;

use watertight_engine::cell::{Cell, STEP_INPUTS};
use watertight_engine::ids::{AgentId, Attempt, LineId, Principal, TaskId};
use watertight_engine::input::{Input, Outcome, Reply, Submission, Want, WireBudget, WireQueue};
use watertight_engine::output::Output;
use watertight_engine::record::{Outbox, ReplyKind, TaskState};
use watertight_engine::settings::{AgentSettings, Settings};
use watertight_policy::acceptance::{Measure, PeerState};
use watertight_policy::queue::{self, Queue, Spot};
use watertight_policy::rng::Rng;
use watertight_policy::time::{Span, Time};

const AGENTS: usize = 5;
const CALLERS: usize = 20;

/// Slots that are added at once to see what a claim costs.
const CLAIMS: u32 = 2_000;

/// Times that the order alone is asked for its next one.
const POPS: usize = 1_000_000;

struct Bench {
    cell: Cell,
    rng: Rng,
    agents: Vec<AgentId>,
    callers: Vec<Principal>,
    running: VecDeque<(TaskId, Attempt)>,
    now: Time,
    next: u64,
}

fn settings(slots: u32) -> Arc<Settings> {
    let agent = || {
        let mut agent = AgentSettings {
            max_queued: usize::MAX,
            max_queued_per_caller: usize::MAX,
            queue_ttl: Span::from_secs(86_400),
            ..AgentSettings::default()
        };
        agent.bulkhead.max_in_flight = slots;
        agent
    };
    let agents = (0..AGENTS).map(|n| (AgentId::new(&format!("agent-{n}")), agent())).collect();
    let (max_delegations, max_queued_per_tenant) = (usize::MAX, usize::MAX);
    Arc::new(Settings { agents, max_delegations, max_queued_per_tenant, ..Settings::default() })
}

impl Bench {
    fn new() -> Bench {
        let settings = settings(1);
        let caller = |n: usize| Principal {
            tenant: format!("tenant-{}", n % 4).as_str().into(),
            caller: format!("caller-{n}").as_str().into(),
        };
        Bench {
            agents: settings.agents.keys().cloned().collect(),
            cell: Cell::new(settings, 7),
            rng: Rng::new(7),
            callers: (0..CALLERS).map(caller).collect(),
            running: VecDeque::new(),
            now: Time::from_millis(1_767_225_600_000),
            next: 1,
        }
    }

    fn uuid(&mut self) -> Arc<str> {
        let (a, b) = (self.rng.next_u64(), self.rng.next_u64());
        let id = format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        );
        id.as_str().into()
    }

    fn submission(&mut self) -> Input {
        let n = self.next;
        self.next += 1;
        let millis = u128::from(self.now.as_millis());
        let task = TaskId((millis << 80) | u128::from(self.rng.next_u64()) << 16 | u128::from(n & 0xffff));
        Input::Submitted(Arc::new(Submission {
            line: LineId(n),
            want: Want::Accepted,
            task,
            principal: self.callers[n as usize % CALLERS].clone(),
            agent: self.agents[(n as usize / CALLERS) % AGENTS].clone(),
            message_id: self.uuid(),
            fingerprint: u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64()),
            names: None,
            context: self.uuid(),
            context_named: true,
            remote_context: Some(self.uuid()),
            known: None,
            arrived: self.now,
            budget: WireBudget::default(),
            queue: WireQueue::default(),
            redrives: None,
            outbox: Outbox::None,
            digest: None,
            claims: Default::default(),
            parent: None,
        }))
    }

    /// Everything that is ready, with a disk that is done at once.
    fn run(&mut self) {
        loop {
            if let Some(commit) = self.cell.step(self.now, true) {
                self.cell.committed(commit.n);
            }
            while let Some(output) = self.cell.poll_output() {
                if let Output::Send(dispatch) = output {
                    self.running.push_back((dispatch.task, dispatch.attempt));
                }
            }
            if self.cell.wake().is_none_or(|at| at > self.now) {
                return;
            }
        }
    }

    /// Fills up to so many. How many inputs that took a second.
    fn fill(&mut self, held: usize) -> f64 {
        let (begun, before) = (Cpu::now(), self.cell.held());
        while self.cell.held() < held {
            for _ in 0..STEP_INPUTS.min(held - self.cell.held()) {
                let input = self.submission();
                self.cell.offer(input);
            }
            self.now = self.now + Span::from_millis(1);
            self.run();
        }
        (held - before) as f64 / begun.elapsed()
    }

    /// Lets what runs end, one after the other, each time with the next that starts: inputs a second.
    fn turn_over(&mut self, turns: usize) -> f64 {
        let begun = Cpu::now();
        for _ in 0..turns {
            let Some((task, attempt)) = self.running.pop_front() else { break };
            self.end(task, attempt);
        }
        turns as f64 / begun.elapsed()
    }

    fn end(&mut self, task: TaskId, attempt: Attempt) {
        let measure =
            Measure { state: PeerState::Completed, bytes: 100, data_parts: 0, schema_failures: 0, empty: false };
        let reply = Reply {
            state: TaskState::Completed,
            kind: ReplyKind::Message,
            measure,
            digest: None,
            remote_task: None,
            remote_context: None,
            seq: 1,
        };
        self.cell.offer(Input::Ended { task, attempt, outcome: Outcome::Replied(reply) });
        self.run();
    }

    /// As many wait all the time: a new message, then the end of a turn with which the next one starts, each in a step of
    /// its own. Inputs a second.
    fn steady(&mut self, inputs: usize) -> f64 {
        let (begun, mut given) = (Cpu::now(), 0);
        while given < inputs {
            self.now = self.now + Span::from_millis(1);
            let input = self.submission();
            self.cell.offer(input);
            self.run();
            let Some((task, attempt)) = self.running.pop_front() else { break };
            self.end(task, attempt);
            given += 2;
        }
        given as f64 / begun.elapsed()
    }

    /// Gives every agent more slots at once, and tells what each claim took: taking the next one, its lock, its slot, its
    /// timers and its output. The commit is left out.
    fn claim(&mut self) -> f64 {
        let before = self.running.len();
        self.cell.offer(Input::Configured(settings(CLAIMS)));
        let begun = Cpu::now();
        let commit = self.cell.step(self.now, true);
        let took = begun.elapsed();
        if let Some(commit) = commit {
            self.cell.committed(commit.n);
        }
        self.run();
        took * 1e9 / (self.running.len() - before) as f64
    }
}

/// What the order itself takes to give the next one, and to take one in its place: nanoseconds for both. Often enough for
/// the processor's clock, which the kernel moves every few milliseconds.
fn pop(waiting: usize) -> f64 {
    let mut queue: Queue<TaskId> = Queue::new(queue::Params::default());
    for n in 0..waiting {
        let spot = Spot { since: Time::from_millis(n as u64 / 10), sender: (n % CALLERS) as u32, priority: 50 };
        queue.push(TaskId(n as u128), spot, 1);
    }
    let now = Time::from_millis(waiting as u64 / 10);
    let begun = Cpu::now();
    for n in 0..POPS {
        let spot = Spot { since: now, sender: (n % CALLERS) as u32, priority: 50 };
        queue.push(TaskId((waiting + n) as u128), spot, 1);
        queue.pop(now);
    }
    begun.elapsed() * 1e9 / POPS as f64
}

/// The time that this process had a processor: what else the machine does costs nothing.
struct Cpu(u64);

impl Cpu {
    fn now() -> Cpu {
        let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
        Cpu(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
    }

    fn elapsed(&self) -> f64 {
        (Cpu::now().0 - self.0).max(1) as f64 / 1e9
    }
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}

fn main() {
    let most: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    for held in [1_000, most] {
        let mut bench = Bench::new();
        let before = resident();
        let filled = bench.fill(held);
        let bytes = resident().saturating_sub(before) / held;
        let steady = bench.steady(100_000);
        let turned = bench.turn_over(held.min(20_000) / 2);
        let mut claims = Bench::new();
        if held < most {
            claims.fill(held + CLAIMS as usize * AGENTS);
        } else {
            claims = bench;
        }
        let claim = claims.claim();
        let pop = pop(held);
        let line = format!(
            "{held:>8} waiting: {bytes:>5} bytes each, {pop:>4.0} ns a claim, {claim:>6.0} ns until it is sent, {filled:>8.0} messages/s in, {turned:>8.0} turns/s over, {steady:>8.0} inputs/s of both"
        );
        drop(writeln!(std::io::stdout(), "{line}"));
    }
}

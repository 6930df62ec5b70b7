//! Anything in any order: what callers, agents, operators and the disk can do, drawn at random, with the audit after
//! every step. In the end everything is over, every line was answered once, and nothing is left in memory.

use watertight_engine::ids::AgentId;
use watertight_engine::input::{CancelAnswer, Fault, Input, Want};
use watertight_engine::record::{Delivery, Durability, TaskState};
use watertight_engine::settings::{AgentSettings, Serialize, Settings};
use watertight_policy::reason::Reason;
use watertight_policy::rng::Rng;
use watertight_policy::time::Span;

use crate::world::{World, settings, task};

const STEPS: u64 = 300;

fn limits(rng: &mut Rng) -> impl Fn(&mut AgentSettings) + use<> {
    let (slots, waiting, serialize) = (1 + rng.below(3), rng.below(3), rng.below(3));
    let (failures, attempts, idempotent) = (rng.below(3), 1 + rng.below(3), rng.below(2) == 0);
    let (overflow, queued) = (rng.below(4) == 0, 1 + rng.below(6));
    move |a| {
        a.bulkhead.max_in_flight = slots as u32;
        a.bulkhead.max_waiting = waiting as u32;
        a.serialize = [Serialize::Context, Serialize::Agent, Serialize::None][serialize as usize];
        a.breaker.consecutive_failures = failures as u32;
        a.attempts = attempts as u32;
        a.idempotent = idempotent;
        a.retry_budget.floor = 5;
        a.queue_overflow = overflow;
        a.max_queued = queued as usize;
        a.max_queued_per_caller = 3;
        a.queue.ageing = Span::from_secs(5);
        a.queue_ttl = Span::from_secs(20);
        a.interrupted_max = Span::from_secs(40);
        a.context_grace = Span::from_secs(3);
    }
}

/// Limits for both agents; what each is asked is kept on disk or in memory.
fn walls(rng: &mut Rng) -> Settings {
    let mut all = (*settings(limits(rng))).clone();
    for agent in all.agents.values_mut() {
        agent.durability = one_of(rng, &[Durability::Durable, Durability::Memory]);
    }
    all
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize]
}

/// One of the tasks there have been so far.
fn some(w: &World, rng: &mut Rng) -> u64 {
    let live: Vec<u64> = w.rows.values().filter(|row| !row.state.is_terminal()).map(|row| row.task.0 as u64).collect();
    match (live.is_empty(), rng.below(8)) {
        (true, _) | (_, 0) => 1 + rng.below(w.lines_so_far().max(1)),
        (false, _) => one_of(rng, &live),
    }
}

fn send(w: &mut World, rng: &mut Rng) {
    let want = match rng.below(4) {
        0 => Want::Accepted,
        1 => Want::Stream,
        _ => Want::Reply { until: w.now + Span::from_millis(rng.below(9_000)) },
    };
    let message = format!("m{}", rng.below(60));
    let (context, deadline, depth) = (rng.below(4), rng.below(4), rng.below(12));
    let (parent, named) = (some(w, rng), some(w, rng));
    let (has_parent, other, bob) = (rng.below(5) == 0, rng.below(6) == 0, rng.below(5) == 0);
    let follows = rng.below(3) == 0;
    let (priority, ttl) = (rng.below(120) as u8, rng.below(30));
    let change = move |s: &mut watertight_engine::input::Submission| {
        s.want = want;
        s.budget.remaining_s = (deadline > 0).then_some(deadline as f64 * 3.0);
        s.budget.depth = Some(depth as u32);
        s.parent = has_parent.then_some(task(parent));
        s.fingerprint = u128::from(follows);
        s.queue.priority = (priority <= 100).then_some(priority);
        s.queue.ttl = (ttl > 0).then(|| Span::from_secs(ttl));
        if bob {
            s.principal.caller = "bob".into();
        }
        if !follows && context > 0 {
            s.context = format!("shared-{context}").into();
        }
        if other {
            s.agent = AgentId::new("fx");
        }
    };
    match follows {
        true => w.follow_up_with(&format!("{message}-{named}"), named, move |s| (change(s), s.context_named = false).0),
        false => w.send_with(&message, change),
    };
}

fn agent_acts(w: &mut World, rng: &mut Rng) {
    let n = some(w, rng);
    let reason = one_of(
        rng,
        &[
            Reason::AgentConnectRefused,
            Reason::AgentReset,
            Reason::AgentRateLimited,
            Reason::AgentError,
            Reason::AgentMalformed,
            Reason::AgentUnreachable,
        ],
    );
    let delivery = match reason == Reason::AgentConnectRefused {
        true => Delivery::NotSent,
        false => one_of(rng, &[Delivery::MaybeDelivered, Delivery::Delivered]),
    };
    let state = one_of(
        rng,
        &[
            TaskState::Completed,
            TaskState::Completed,
            TaskState::InputRequired,
            TaskState::AuthRequired,
            TaskState::Failed,
            TaskState::Canceled,
            TaskState::Rejected,
        ],
    );
    match rng.below(4) {
        0 => w.working(n, &format!("r{n}")),
        1 | 2 => w.replies(n, state),
        _ => w.fails_with(
            n,
            Fault {
                reason,
                delivery,
                retry_after: (rng.below(3) == 0).then(|| Span::from_millis(700)),
                busy: reason == Reason::AgentRateLimited && rng.below(2) == 0,
            },
        ),
    }
}

fn anything(w: &mut World, rng: &mut Rng) {
    match rng.below(40) {
        0..=13 => send(w, rng),
        14..=24 => agent_acts(w, rng),
        25..=27 => {
            let n = some(w, rng);
            if rng.below(4) == 0 {
                w.drop_queued(n)
            } else {
                w.cancel(n)
            };
        }
        28 | 29 => {
            let answers = [
                CancelAnswer::Ended(TaskState::Canceled),
                CancelAnswer::Ended(TaskState::Completed),
                CancelAnswer::GoesOn,
                CancelAnswer::NotFound,
                CancelAnswer::Failed,
            ];
            let (n, answer) = (some(w, rng), one_of(rng, &answers));
            w.cancel_answered(n, answer);
        }
        30 => {
            let line = 1 + rng.below(w.lines_so_far().max(1));
            w.hang_up(line);
        }
        31..=34 => w.after(rng.below(2_500)),
        35 => {
            w.durable = !w.durable;
            if w.durable {
                w.commit_all();
                w.run();
            }
        }
        36 => {
            let mut changed = Settings { max_delegations: 12, max_behind: 2, ..walls(rng) };
            if rng.below(3) == 0 {
                changed.agents.remove(&AgentId::new("fx"));
            }
            w.settings = changed.into();
            w.give(Input::Configured(w.settings.clone()));
        }
        37 => match rng.below(3) {
            0 => w.give(Input::Stalled { gap: Span::from_secs(2) }),
            1 => w.give(Input::BreakerReset { agent: AgentId::new("hotels") }),
            _ => {
                w.now = w.now + Span::from_secs(3);
                w.run();
            }
        },
        38 => w.crash(rng.below(3) > 0),
        _ => {
            let n = some(w, rng);
            w.cell.park(task(n), w.now);
            w.run();
        }
    }
}

#[test]
fn everything_ends_whatever_happens() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut w = World::under(walls(&mut rng).into());
        for _ in 0..STEPS {
            anything(&mut w, &mut rng);
            w.log.truncate(10_000);
        }
        w.durable = true;
        w.commit_all();
        w.run();
        w.after(90_000_000);
        let open = w.open_lines();
        assert!(open.is_empty(), "seed {seed}: lines {open:?} were never answered");
        let held: Vec<_> = w.rows.keys().filter_map(|task| w.cell.row(*task)).collect();
        assert_eq!((w.cell.held(), w.cell.accepted()), (0, 0), "seed {seed}: {held:?}");
        for agent in w.cell.agents(w.now) {
            assert_eq!((agent.in_flight, agent.waiting, agent.queued), (0, 0, 0), "seed {seed}: {}", agent.agent);
        }
        let left = w.rows.values().find(|row| !row.state.is_terminal());
        assert!(left.is_none(), "seed {seed}: {left:?}");
    }
}

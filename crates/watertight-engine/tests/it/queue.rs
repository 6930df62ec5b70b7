//! What waits for a slot: who goes first, how many may wait, for how long, and what survives a restart.

use std::sync::Arc;

use watertight_engine::ids::{AgentId, Attempt};
use watertight_engine::input::{Fault, Input, Outcome, Want};
use watertight_engine::output::{Bound, Cause};
use watertight_engine::record::{Delivery, TaskState};
use watertight_engine::settings::{AgentSettings, Serialize, Settings};
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::{World, alice, settings, task};

fn one_slot(a: &mut AgentSettings) {
    a.bulkhead.max_in_flight = 1;
}

fn urgent(w: &mut World, message: &str, priority: u8) -> u64 {
    w.send_with(message, |s| {
        s.want = Want::Accepted;
        s.queue.priority = Some(priority);
        s.budget.remaining_s = None;
    })
}

fn of(w: &mut World, caller: &str, message: &str) -> u64 {
    w.send_with(message, |s| {
        s.want = Want::Accepted;
        s.principal.caller = caller.into();
        s.budget.remaining_s = None;
    })
}

/// Ends what runs, one after the other, and tells who was started.
fn order(w: &mut World) -> Vec<u64> {
    let started = |w: &World| {
        let line = w.log.iter().rev().find(|line| line.contains("send t"))?;
        line.split("send t").nth(1)?.split(' ').next()?.parse::<u64>().ok()
    };
    let mut order = Vec::new();
    while let Some(n) = started(w) {
        w.log.clear();
        w.replies(n, TaskState::Completed);
        order.extend(started(w));
    }
    order
}

#[test]
fn more_urgent_goes_first_then_older() {
    let mut w = World::with(one_slot);
    w.immediately("runs");
    for (message, priority) in [("low", 10), ("b", 50), ("high", 100), ("c", 50)] {
        urgent(&mut w, message, priority);
        w.after(1_000);
    }
    let positions = [1, 2, 3, 4, 5].map(|n| w.cell.position(task(n)));
    assert_eq!(positions, [None, Some(4), Some(2), Some(1), Some(3)]);
    assert_eq!(w.cell.queue(&AgentId::new("hotels"), 1, 2), [task(3), task(5)]);
    assert_eq!(order(&mut w), [4, 3, 5, 2]);
}

#[test]
fn what_has_waited_long_goes_before_what_is_urgent() {
    let mut w = World::with(one_slot);
    w.send_with("runs", |s| s.budget.remaining_s = Some(400.0));
    urgent(&mut w, "low", 0);
    w.after(250_000);
    urgent(&mut w, "later", 0);
    w.after(50_000);
    urgent(&mut w, "high", 100);
    assert_eq!(order(&mut w), [2, 4, 3]);
}

#[test]
fn callers_take_turns() {
    let mut w = World::with(|a| (one_slot(a), a.max_queued_per_caller = 5).0);
    w.immediately("runs");
    for message in ["a1", "a2", "a3", "a4"] {
        of(&mut w, "alice", message);
    }
    of(&mut w, "bob", "b1");
    of(&mut w, "carol", "c1");
    assert_eq!(order(&mut w), [2, 6, 7, 3, 4, 5]);
}

#[test]
fn a_weight_is_a_share() {
    let mut settings = Settings { ..(*settings(one_slot)).clone() };
    settings.weights.insert(alice(), 2);
    let mut w = World::under(Arc::new(settings));
    w.immediately("runs");
    for message in ["1", "2", "3", "4"] {
        of(&mut w, "alice", message);
        of(&mut w, "bob", message);
    }
    assert_eq!(order(&mut w), [2, 4, 3, 6, 8, 5, 7, 9]);
}

#[test]
fn a_restart_keeps_the_order() {
    let mut w = World::with(one_slot);
    w.immediately("runs");
    w.working(1, "r1");
    for (message, priority) in [("low", 10), ("b", 50), ("high", 100), ("c", 50)] {
        urgent(&mut w, message, priority);
        w.after(1_000);
    }
    w.crash(false);
    assert_eq!(w.row(2).turn.waiting_on, Some(Reason::BulkheadFull));
    w.replies(1, TaskState::Completed);
    assert_eq!(order(&mut w), [3, 5, 2], "after t4");
}

#[test]
fn its_own_time_to_wait_ends_it_and_it_is_told_once() {
    let mut w = World::with(one_slot);
    w.send_with("runs", |s| s.budget.remaining_s = None);
    w.send_with("short", |s| {
        s.want = Want::Accepted;
        s.queue.ttl = Some(Span::from_secs(10));
        s.budget.remaining_s = None;
    });
    w.log.clear();
    w.after(9_999);
    w.told("");
    w.after(1);
    w.told("10000 settled t2 FAILED expired");
    w.replies(1, TaskState::Completed);
    w.after(20_000);
    w.told(
        "10000 settled t1 COMPLETED
         10000 line 1: t1 COMPLETED",
    );
}

#[test]
fn nobody_may_wait_longer_than_the_agent_allows() {
    let mut w = World::with(|a| (one_slot(a), a.queue_ttl_max = Span::from_secs(20)).0);
    w.send_with("runs", |s| s.budget.remaining_s = None);
    w.send_with("long", |s| {
        s.want = Want::Accepted;
        s.queue.ttl = Some(Span::from_secs(3_600));
        s.budget.remaining_s = None;
    });
    assert_eq!(w.row(2).turn.expires, w.now + Span::from_secs(20));
}

#[test]
fn a_full_queue_refuses_says_which_bound_and_when_to_come_again() {
    let bounds = [
        (|s: &mut Settings| agent_of(s).max_queued = 2) as fn(&mut Settings),
        |s| agent_of(s).max_queued_per_caller = 2,
        |s| s.max_queued_per_tenant = 2,
    ];
    for (bound, expected) in bounds.iter().zip([Bound::Agent(2), Bound::Caller(2), Bound::Tenant(2)]) {
        let mut settings = (*settings(one_slot)).clone();
        bound(&mut settings);
        let mut w = World::under(Arc::new(settings));
        for message in ["runs", "q1", "q2"] {
            w.immediately(message);
        }
        w.log.clear();
        w.immediately("q3");
        w.told("0 line 4: refused queue_full");
        let refusal = w.refusals.last().expect("it was refused");
        assert_eq!(refusal.cause, Some(Box::new(Cause::Full(expected))));
        let again = refusal.again.expect("a hint").since(w.now);
        assert!(again >= Span::from_millis(100) && again <= Span::from_secs(60), "{again}");
        assert_eq!(w.rows.len(), 3);
        w.replies(1, TaskState::Completed);
        w.immediately("q4");
        assert_eq!(w.rows.len(), 4, "a place is free again");
        let others = [("bob", Bound::Caller(2)), ("bob", Bound::Tenant(9))];
        if others.iter().any(|(_, other)| *other == expected) {
            of(&mut w, "bob", "q5");
            assert_eq!(w.rows.len(), 5, "another caller has places of its own");
        }
    }
}

fn agent_of(settings: &mut Settings) -> &mut AgentSettings {
    settings.agents.values_mut().nth(1).expect("hotels")
}

#[test]
fn a_queue_of_five_takes_five_of_twenty() {
    let mut w = World::with(|a| (one_slot(a), a.max_queued = 5).0);
    w.immediately("runs");
    for n in 0..20 {
        w.immediately(&format!("m{n}"));
    }
    assert_eq!(w.log.iter().filter(|line| line.contains("refused queue_full")).count(), 15);
    w.log.clear();
    let mut done = 0;
    for n in 1..=21 {
        w.replies(n, TaskState::Completed);
        done = w.rows.values().filter(|row| row.state == TaskState::Completed).count();
    }
    assert_eq!((done, w.rows.len()), (6, 6));
}

#[test]
fn an_agent_that_does_one_thing_at_a_time_has_the_same_queue() {
    let mut w = World::with(|a| a.serialize = Serialize::Agent);
    w.immediately("runs");
    for (message, priority) in [("low", 10), ("b", 50), ("high", 100)] {
        urgent(&mut w, message, priority);
    }
    assert_eq!((w.in_flight("hotels"), w.row(4).turn.waiting_on), (1, Some(Reason::ContextBusy)));
    assert_eq!(order(&mut w), [4, 3, 2]);
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn a_thousand_that_are_over_cost_no_scan_and_hold_nobody_up() {
    let mut w = World::with(|a| (one_slot(a), a.max_queued = 10_000, a.max_queued_per_caller = 10_000).0);
    w.send_with("runs", |s| s.budget.remaining_s = None);
    for n in 0..1_000 {
        let submission = w.submission(&format!("m{n}"), |s| {
            s.want = Want::Accepted;
            s.queue.ttl = Some(Span::from_secs(1));
        });
        w.cell.offer(Input::Submitted(submission));
    }
    w.run();
    let last = w.send_with("last", |s| {
        s.want = Want::Accepted;
        s.budget.remaining_s = None;
    });
    w.now = w.now + Span::from_secs(2);
    w.cell.offer(Input::Ended {
        task: task(1),
        attempt: Attempt(1),
        outcome: Outcome::Failed(Fault {
            reason: Reason::AgentError,
            delivery: Delivery::Delivered,
            retry_after: None,
            busy: false,
        }),
    });
    w.log.clear();
    w.run();
    assert!(w.log.iter().any(|line| line.contains(&format!("send t{last} "))), "{:?}", w.log.last());
    assert_eq!(w.log.iter().filter(|line| line.contains("FAILED expired")).count(), 1_000);
    assert_eq!(w.log.iter().filter(|line| line.contains("send t")).count(), 1);
}

fn busy(w: &mut World, n: u64, retry_after: Option<Span>) {
    let fault = Fault { reason: Reason::AgentRateLimited, delivery: Delivery::MaybeDelivered, retry_after, busy: true };
    w.fails_with(n, fault);
}

#[test]
fn a_busy_agent_gets_the_same_turn_again_as_old_as_it_was() {
    let mut w = World::with(|a| (one_slot(a), a.breaker.consecutive_failures = 1).0);
    w.send_with("first", |s| (s.want = Want::Accepted, s.budget.remaining_s = None).0);
    w.after(1_000);
    w.send_with("second", |s| (s.want = Want::Accepted, s.budget.remaining_s = None).0);
    busy(&mut w, 1, Some(Span::from_secs(5)));
    let row = w.row(1);
    assert_eq!(
        (row.turn.attempts, row.delivery, row.turn.waiting_on),
        (0, Delivery::NotSent, Some(Reason::AgentPacing))
    );
    w.log.clear();
    w.after(4_999);
    w.told("");
    w.after(1);
    w.told("6000 send t1 #2 turn 1");
    assert_eq!(w.row(1).turn.attempts, 1);
    w.replies(1, TaskState::Completed);
    w.told(
        "6000 settled t1 COMPLETED
         6000 send t2 #1 turn 1",
    );
}

#[test]
fn a_busy_agent_costs_no_attempt_and_no_breaker_until_the_time_to_wait_is_over() {
    let mut w = World::with(|a| (one_slot(a), a.attempts = 1, a.breaker.consecutive_failures = 1).0);
    w.send_with("m", |s| {
        s.want = Want::Accepted;
        s.queue.ttl = Some(Span::from_secs(30));
        s.budget.remaining_s = None;
    });
    for _ in 0..20 {
        busy(&mut w, 1, None);
        if w.row(1).state.is_terminal() {
            break;
        }
        assert_eq!((w.row(1).turn.attempts, w.row(1).state), (0, TaskState::Submitted));
        let tries = w.log.iter().filter(|line| line.contains("send t1")).count();
        w.after(10_000);
        let again = w.log.iter().filter(|line| line.contains("send t1")).count();
        assert!(again == tries + 1 || w.row(1).state.is_terminal());
    }
    assert_eq!((w.row(1).state, w.row(1).reason), (TaskState::Failed, Some(Reason::Expired)));
    assert_eq!(w.log.iter().filter(|line| line.contains("settled t1")).count(), 1);
}

#[test]
fn who_holds_the_line_is_told_that_the_agent_is_busy() {
    let mut w = World::new();
    w.send("now");
    busy(&mut w, 1, None);
    w.told(
        "0 send t1 #1 turn 1
         0 settled t1 FAILED agent_rate_limited
         0 line 1: t1 FAILED",
    );
}

#[test]
fn what_waits_can_be_dropped_and_what_runs_cannot() {
    let mut w = World::with(one_slot);
    w.immediately("runs");
    w.immediately("waits");
    w.log.clear();
    for n in [2, 2, 1, 9] {
        w.drop_queued(n);
    }
    w.told(
        "0 settled t2 FAILED dropped
         0 line 3: t2 FAILED
         0 line 4: t2 FAILED (replay)
         0 line 5: not cancelable
         0 line 6: not found",
    );
}

#[test]
fn what_only_waits_is_packed_and_is_as_it_was_whoever_asks_for_it() {
    let mut w = World::with(one_slot);
    w.send_with("runs", |s| s.budget.remaining_s = Some(300.0));
    let wants = |s: &mut watertight_engine::input::Submission| {
        s.want = Want::Accepted;
        s.context = "0b8f7c1e-52a4-4a1e-9d0a-3d5b6c7e8f90".into();
        s.context_named = true;
        s.remote_context = Some("there".into());
        s.budget.remaining_s = Some(300.0);
    };
    w.send_with("a", wants);
    let rows = [w.immediately("b"), w.immediately("c")];
    w.after(1);
    w.run();
    assert_eq!((w.cell.held(), w.cell.dormant()), (4, 3));
    assert_eq!((w.cell.row(task(2)).as_ref(), w.cell.row(task(3)).as_ref()), (Some(w.row(2)), Some(w.row(3))));
    assert_eq!((w.cell.stood(task(2)), w.cell.accepted()), (Some(1), 4));
    w.log.clear();
    // A twin, another message of its context, a cancel, an operator; then its turn.
    w.send_with("a", wants);
    assert_eq!(w.cell.dormant(), 3, "it sleeps again");
    w.send_with("d", |s| (wants(s), s.remote_context = Some("elsewhere".into())).0);
    assert_eq!(w.row(6).turn.waiting_on, Some(Reason::ContextBusy));
    w.cancel(rows[0]);
    w.drop_queued(rows[1]);
    w.told(
        "1 line 5: t2 SUBMITTED (replay)
         1 line 6: t6 SUBMITTED
         1 settled t3 CANCELED canceled
         1 line 7: t3 CANCELED
         1 settled t4 FAILED dropped
         1 line 8: t4 FAILED",
    );
    assert_eq!(w.row(6).remote_context.as_deref(), Some("there"), "one context has one name");
    w.replies(1, TaskState::Completed);
    w.replies(2, TaskState::Completed);
    w.told(
        "1 settled t1 COMPLETED
         1 line 1: t1 COMPLETED
         1 send t2 #1 turn 1
         1 settled t2 COMPLETED
         1 send t6 #1 turn 1",
    );
}

//! Bulkhead, breaker, pacing, retries: what is refused, what waits, what is tried again.

use watertight_engine::input::Fault;
use watertight_engine::record::{Delivery, TaskState};
use watertight_policy::breaker;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::World;

#[test]
fn a_full_bulkhead_waits_a_moment_and_refuses_the_next_at_once() {
    let mut w = World::new();
    for m in ["a", "b", "c", "d", "e"] {
        w.send(m);
    }
    w.told(
        "0 send t1 #1 turn 1
         0 send t2 #1 turn 1
         0 line 5: refused bulkhead_full",
    );
    w.after(499);
    w.told("");
    w.after(1);
    w.told(
        "500 line 3: refused bulkhead_full
         500 line 4: refused bulkhead_full",
    );
    assert_eq!(w.rows.len(), 2, "what is refused leaves no row");
}

#[test]
fn the_next_in_line_starts_the_moment_a_slot_frees() {
    let mut w = World::new();
    for m in ["a", "b", "c"] {
        w.send(m);
    }
    w.after(200);
    w.replies(1, TaskState::Completed);
    w.told(
        "0 send t1 #1 turn 1
         0 send t2 #1 turn 1
         200 settled t1 COMPLETED
         200 line 1: t1 COMPLETED
         200 send t3 #1 turn 1",
    );
}

#[test]
fn one_agents_walls_are_not_anothers() {
    let mut w = World::new();
    for m in ["a", "b", "c", "d", "e"] {
        w.send(m);
    }
    w.log.clear();
    w.send_with("x", |s| s.agent = watertight_engine::ids::AgentId::new("fx"));
    w.told("0 send t6 #1 turn 1");
}

#[test]
fn an_accepted_message_waits_in_the_queue_and_says_why() {
    let mut w = World::new();
    for m in ["a", "b"] {
        w.send(m);
    }
    w.immediately("c");
    w.after(2_000);
    assert_eq!(w.row(3).turn.waiting_on, Some(Reason::BulkheadFull));
    w.replies(2, TaskState::Completed);
    w.told(
        "0 send t1 #1 turn 1
         0 send t2 #1 turn 1
         0 line 3: t3 SUBMITTED
         2000 settled t2 COMPLETED
         2000 line 2: t2 COMPLETED
         2000 send t3 #1 turn 1",
    );
}

#[test]
fn line_and_queue_take_turns_at_free_slots() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send("a");
    w.immediately("q1");
    w.immediately("q2");
    w.send("l1");
    w.send("l2");
    w.log.clear();
    for _ in 0..4 {
        let running = w.log.iter().rev().find_map(|l| l.split("send t").nth(1)?.split(' ').next()?.parse().ok());
        w.replies(running.unwrap_or(1), TaskState::Completed);
    }
    let order: Vec<&str> = w.log.iter().filter_map(|l| l.split("send ").nth(1)?.split(' ').next()).collect();
    assert_eq!(order, ["t4", "t2", "t5", "t3"]);
}

fn breaking(a: &mut watertight_engine::settings::AgentSettings) {
    a.breaker =
        breaker::Params { consecutive_failures: 3, ejection_base: Span::from_secs(5), ..breaker::Params::default() };
}

#[test]
fn an_ejected_agent_is_refused_at_once_then_gets_one_trial() {
    let mut w = World::with(breaking);
    for (n, m) in ["a", "b", "c"].iter().enumerate() {
        w.send(m);
        w.fails(n as u64 + 1, Reason::AgentReset, Delivery::MaybeDelivered);
    }
    w.log.clear();
    w.send("d");
    w.told("0 line 4: refused breaker_open");
    w.after(5_000);
    w.send("e");
    w.send("f");
    w.told(
        "5000 send t5 #1 turn 1
         5000 line 6: refused breaker_open",
    );
    w.replies(5, TaskState::Completed);
    w.send("g");
    w.told(
        "5000 settled t5 COMPLETED
         5000 line 5: t5 COMPLETED
         5000 send t7 #1 turn 1",
    );
}

#[test]
fn an_ejection_turns_the_short_line_away_and_holds_the_queue() {
    let mut w = World::with(|a| {
        breaking(a);
        a.breaker.consecutive_failures = 1;
    });
    for m in ["a", "b", "c"] {
        w.send(m);
    }
    w.immediately("q");
    w.log.clear();
    w.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    w.told(
        "0 line 3: refused breaker_open
         0 settled t1 FAILED agent_reset
         0 line 1: t1 FAILED",
    );
    assert_eq!(w.row(4).state, TaskState::Submitted, "accepted work is held, never failed");
    w.after(5_000);
    w.told("5000 send t4 #1 turn 1");
}

#[test]
fn a_trial_that_is_canceled_makes_way_for_another() {
    let mut w = World::with(|a| {
        breaking(a);
        a.breaker.consecutive_failures = 1;
    });
    w.send("a");
    w.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    w.after(5_000);
    w.send("b");
    w.immediately("q");
    w.working(2, "r2");
    w.log.clear();
    w.cancel(2);
    w.after(1_000);
    w.told(
        "5000 cancel t2 r2
         6000 settled t2 CANCELED canceled
         6000 line 2: t2 CANCELED
         6000 line 4: t2 CANCELED
         6000 send t3 #1 turn 1",
    );
}

#[test]
fn who_waits_in_line_while_a_trial_begins_is_turned_away() {
    let mut w = World::with(|a| {
        breaking(a);
        a.breaker.consecutive_failures = 1;
        a.bulkhead.max_in_flight = 1;
        a.cancel_grace = Span::from_millis(5_200);
    });
    w.send("a");
    w.after(5_700);
    w.after(5_000);
    w.send("b");
    w.send("c");
    w.log.clear();
    w.after(200);
    w.told("10900 line 3: refused breaker_open\n10900 stop t1\n10900 send t2 #1 turn 1");
}

#[test]
fn the_agents_own_errors_and_the_callers_faults_do_not_eject() {
    let mut w = World::with(breaking);
    for n in 1..=10 {
        w.send(&format!("m{n}"));
        let reason = if n % 2 == 0 { Reason::AgentError } else { Reason::AgentUnauthorized };
        w.fails(n, reason, Delivery::Delivered);
    }
    w.log.clear();
    w.send("x");
    w.told("0 send t11 #1 turn 1");
}

#[test]
fn retry_after_is_shared_by_all_callers_of_the_agent() {
    let mut w = World::new();
    w.send("a");
    w.fails_with(
        1,
        Fault {
            reason: Reason::AgentRateLimited,
            delivery: Delivery::MaybeDelivered,
            retry_after: Some(Span::from_secs(2)),
            busy: false,
        },
    );
    w.log.clear();
    w.send_with("b", |s| s.principal.caller = "bob".into());
    w.immediately("c");
    w.told("0 line 2: refused agent_pacing\n0 line 3: t3 SUBMITTED");
    assert_eq!(w.row(3).turn.waiting_on, Some(Reason::AgentPacing));
    w.after(2_000);
    w.told("2000 send t3 #1 turn 1");
}

#[test]
fn a_caller_who_comes_as_a_pause_ends_does_not_make_the_queue_forgotten() {
    let mut w = World::new();
    w.send("a");
    w.fails_with(
        1,
        Fault {
            reason: Reason::AgentRateLimited,
            delivery: Delivery::MaybeDelivered,
            retry_after: Some(Span::from_secs(1)),
            busy: false,
        },
    );
    w.immediately("b");
    w.immediately("c");
    w.log.clear();
    // The cell is late: the pause is over, and the caller is there before anybody has looked.
    w.now = w.now + Span::from_millis(1_200);
    w.send("d");
    w.told("1200 send t2 #1 turn 1\n1200 send t3 #1 turn 1");
}

#[test]
fn only_what_was_never_sent_is_tried_again() {
    let mut w = World::with(|a| a.attempts = 3);
    w.send("a");
    w.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    w.told("0 send t1 #1 turn 1\n0 settled t1 FAILED agent_reset\n0 line 1: t1 FAILED");
    w.send("b");
    w.fails(2, Reason::AgentConnectRefused, Delivery::NotSent);
    w.after(1_000);
    assert!(w.log.iter().any(|l| l.contains("send t2 #2")), "{:?}", w.log);
}

#[test]
fn an_idempotent_agent_is_tried_as_often_as_configured() {
    let mut w = World::with(|a| {
        a.attempts = 3;
        a.idempotent = true;
        a.retry_budget.floor = 10;
    });
    w.send("a");
    for _ in 0..5 {
        w.fails(1, Reason::AgentHttpError, Delivery::MaybeDelivered);
        w.after(1_000);
    }
    let sends = w.log.iter().filter(|l| l.contains("send t1")).count();
    assert_eq!(sends, 3);
    assert_eq!(w.row(1).state, TaskState::Failed);
}

#[test]
fn slots_come_back_whatever_happens() {
    let mut w = World::with(|a| a.breaker.consecutive_failures = 0);
    for n in 1..=40u64 {
        w.send(&format!("m{n}"));
        if !w.attempts.contains_key(&crate::world::task(n)) {
            continue;
        }
        match n % 5 {
            0 => w.replies(n, TaskState::Completed),
            1 => w.fails(n, Reason::AgentMalformed, Delivery::MaybeDelivered),
            2 => w.after(20_000),
            3 => {
                w.cancel(n);
                w.after(12_000);
            }
            _ => w.replies(n, TaskState::Failed),
        }
    }
    w.after(60_000);
    assert_eq!(w.in_flight("hotels"), 0);
    assert_eq!(w.cell.held(), 0);
    assert_eq!(w.cell.accepted(), 0);
}

//! Follow-ups, interrupted tasks, contexts.

use watertight_engine::input::{CancelAnswer, Input, Named, Want};
use watertight_engine::record::{Cancel, Delivery, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::{World, settings, task};

#[test]
fn a_question_ends_the_wait_and_the_answer_goes_to_the_same_task() {
    let mut w = World::new();
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    assert_eq!(w.in_flight("hotels"), 0, "an interrupted task holds no slot");
    w.after(20_000);
    w.follow_up("m2", 1);
    w.replies(1, TaskState::Completed);
    w.told(
        "0 send t1 #1 turn 1
         0 settled t1 INPUT_REQUIRED
         0 line 1: t1 INPUT_REQUIRED
         20000 send t1 #2 turn 2 to r1
         20000 settled t1 COMPLETED
         20000 line 2: t1 COMPLETED",
    );
}

#[test]
fn follow_ups_run_one_at_a_time() {
    let mut w = World::new();
    w.immediately("m1");
    w.working(1, "r1");
    for m in ["a", "b", "c"] {
        w.follow_up(m, 1);
    }
    w.replies(1, TaskState::InputRequired);
    w.replies(1, TaskState::InputRequired);
    w.replies(1, TaskState::Completed);
    let sends: Vec<&String> = w.log.iter().filter(|l| l.contains("send")).collect();
    assert_eq!(sends.len(), 3, "{sends:?}");
    assert!(w.log.iter().any(|l| l.contains("line 4: terminal")), "{:?}", w.log);
}

#[test]
fn a_refused_follow_up_leaves_the_task_as_it_was() {
    let mut w = World::with(|a| {
        a.bulkhead.max_in_flight = 1;
        a.bulkhead.max_waiting = 0;
    });
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.send("m2");
    w.log.clear();
    w.follow_up("m3", 1);
    w.told("0 line 3: refused bulkhead_full");
    assert_eq!(w.row(1).state, TaskState::InputRequired);
    w.replies(2, TaskState::Completed);
    w.log.clear();
    w.follow_up("m3", 1);
    w.told("0 send t1 #2 turn 2 to r1");
}

#[test]
fn a_task_that_does_not_exist_is_foreign_or_over() {
    let mut w = World::new();
    w.follow_up("m1", 77);
    w.send_with("m2", |s| s.names = Some(Named { task: task(78), terminal: true }));
    w.send_with("m3", |s| s.principal.caller = "bob".into());
    w.log.clear();
    w.follow_up("m4", 3);
    w.told("0 line 4: not found");
    w.send("m5");
    w.replies(5, TaskState::Completed);
    w.log.clear();
    w.follow_up("m6", 5);
    w.told("0 line 6: terminal");
}

#[test]
fn the_wrong_context_is_a_mismatch() {
    let mut w = World::new();
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.log.clear();
    w.send_with("m2", |s| {
        s.names = Some(Named { task: task(1), terminal: false });
        s.context = "other".into();
        s.context_named = true;
    });
    w.told("0 line 2: other context");
}

#[test]
fn one_context_is_in_order_and_others_run_beside_it() {
    let mut w = World::new();
    for m in ["a", "b", "c"] {
        w.send_with(m, |s| s.context = "c1".into());
    }
    w.send_with("d", |s| s.context = "c2".into());
    w.told("0 send t1 #1 turn 1\n0 send t4 #1 turn 1");
    w.replies(1, TaskState::Completed);
    w.replies(2, TaskState::Completed);
    w.replies(3, TaskState::Completed);
    let order: Vec<&str> = w.log.iter().filter_map(|l| l.split("send ").nth(1)?.split(' ').next()).collect();
    assert_eq!(order, ["t2", "t3"]);
}

#[test]
fn the_agents_name_for_a_context_is_used_for_the_next_task_in_it() {
    let mut w = World::new();
    w.send_with("a", |s| s.context = "c1".into());
    w.send_with("b", |s| s.context = "c1".into());
    w.replies(1, TaskState::Completed);
    assert_eq!(w.row(2).remote_context.as_deref(), Some("r1-ctx"));
}

#[test]
fn a_question_nobody_answers_expires() {
    let mut w = World::new();
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.log.clear();
    w.after(86_400_000);
    w.told("86400000 settled t1 FAILED expired\n86400000 cancel t1 r1");
}

#[test]
fn a_wait_behind_a_turn_ends_when_its_caller_says_so_and_leaves_no_key() {
    let mut w = World::new();
    w.send_with("m1", |s| s.budget.remaining_s = Some(100.0));
    w.working(1, "r1");
    let until = w.now + Span::from_secs(2);
    w.follow_up_with("a", 1, |s| s.want = Want::Reply { until });
    w.follow_up_with("b", 1, |s| s.want = Want::Accepted);
    w.follow_up_with("c", 1, |s| (s.want, s.budget.remaining_s) = (Want::Stream, Some(3.0)));
    w.log.clear();
    w.after(10_000);
    w.told(
        "500 line 3: refused task_busy
         2000 line 2: refused task_busy
         3000 line 4: refused task_busy",
    );
    w.replies(1, TaskState::InputRequired);
    w.log.clear();
    w.follow_up("a", 1);
    w.told("10000 send t1 #2 turn 2 to r1");
}

#[test]
fn time_that_was_spent_behind_a_turn_is_spent() {
    let mut w = World::new();
    w.send("m1");
    w.follow_up("a", 1);
    w.after(4_000);
    w.replies(1, TaskState::InputRequired);
    assert_eq!(w.row(1).turn.budget.deadline.since(w.now).as_millis(), 1_700);
}

#[test]
fn a_message_refused_for_its_budget_may_be_sent_again() {
    let mut w = World::new();
    w.send("m1");
    w.follow_up_with("a", 1, |s| s.budget.depth = Some(0));
    w.replies(1, TaskState::InputRequired);
    w.log.clear();
    w.follow_up("a", 1);
    w.told("0 send t1 #2 turn 2 to r1");
}

#[test]
fn twins_behind_a_turn_become_one_turn() {
    let mut w = World::new();
    w.send("m1");
    w.follow_up("a", 1);
    w.follow_up_with("a", 1, |s| s.want = Want::Accepted);
    w.follow_up_with("a", 1, |s| s.fingerprint = 2);
    w.log.clear();
    w.replies(1, TaskState::InputRequired);
    w.replies(1, TaskState::Completed);
    w.told(
        "0 settled t1 INPUT_REQUIRED
         0 line 1: t1 INPUT_REQUIRED
         0 line 4: conflict with t1
         0 send t1 #2 turn 2 to r1
         0 line 3: t1 SUBMITTED (replay)
         0 settled t1 COMPLETED
         0 line 2: t1 COMPLETED",
    );
}

#[test]
fn an_answer_that_waited_does_not_hide_the_question() {
    let mut w = World::new();
    w.send("m1");
    w.follow_up("a", 1);
    w.log.clear();
    w.durable = false;
    w.replies(1, TaskState::InputRequired);
    w.follow_up("b", 1);
    w.told("");
    w.commit_all();
    w.told("0 settled t1 INPUT_REQUIRED\n0 line 1: t1 INPUT_REQUIRED");
    w.durable = true;
    w.run();
    w.told("0 send t1 #2 turn 2 to r1");
}

#[test]
fn whoever_waits_behind_a_cut_is_told_at_once() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.follow_up_with("a", 1, |s| s.budget.remaining_s = Some(60.0));
    w.log.clear();
    w.after(6_000);
    w.told(
        "5700 settled t1 FAILED deadline_exceeded
         5700 line 1: t1 FAILED
         5700 line 2: terminal
         5700 cancel t1 r1",
    );
}

#[test]
fn an_accepted_answer_is_not_a_question_any_more() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.send("m2");
    w.follow_up_with("a", 1, |s| s.want = Want::Accepted);
    assert_eq!(w.row(1).state, TaskState::Submitted);
    assert!(w.log.iter().any(|l| l.contains("line 3: t1 SUBMITTED")), "{:?}", w.log);
}

#[test]
fn the_delivery_is_that_of_the_current_turn() {
    let mut w = World::with(|a| a.attempts = 2);
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    assert_eq!(w.row(1).delivery, Delivery::Delivered);
    w.follow_up("a", 1);
    w.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    w.after(1_000);
    assert!(w.log.iter().any(|l| l.contains("send t1 #3 turn 2 to r1")), "not sent, so it may be tried again");
    assert_eq!(w.row(1).delivery, Delivery::NotSent);
}

#[test]
fn a_question_expires_even_if_an_answer_to_it_was_just_refused() {
    let mut w = World::with(|a| {
        a.bulkhead.max_in_flight = 1;
        a.interrupted_max = Span::from_secs(3);
    });
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.send_with("m2", |s| s.budget.remaining_s = Some(60.0));
    w.after(2_900);
    w.follow_up("a", 1);
    w.log.clear();
    w.after(1_000);
    w.told(
        "3400 line 3: refused bulkhead_full
         3400 settled t1 FAILED expired
         3400 cancel t1 r1",
    );
}

#[test]
fn a_cancel_does_not_start_what_waits_behind() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.send("m2");
    w.follow_up("a", 1);
    w.follow_up("b", 1);
    w.log.clear();
    w.cancel(1);
    w.replies(2, TaskState::Completed);
    w.told(
        "0 line 3: refused canceled
         0 cancel t1 r1
         0 settled t2 COMPLETED
         0 line 2: t2 COMPLETED",
    );
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    w.told("0 settled t1 CANCELED canceled\n0 line 5: t1 CANCELED\n0 line 4: terminal");
}

#[test]
fn an_agent_that_does_not_cancel_gets_the_answer_that_waited() {
    let mut w = World::new();
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.cancel(1);
    w.follow_up("a", 1);
    w.log.clear();
    w.cancel_answered(1, CancelAnswer::GoesOn);
    w.told("0 line 2: t1 INPUT_REQUIRED\n0 send t1 #2 turn 2 to r1");
}

#[test]
fn a_question_does_not_outrun_a_cancel() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.cancel(1);
    w.log.clear();
    w.replies(1, TaskState::InputRequired);
    w.told("0 settled t1 INPUT_REQUIRED\n0 line 1: t1 INPUT_REQUIRED");
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    w.told("0 settled t1 CANCELED canceled\n0 line 2: t1 CANCELED");
    // An agent whose id is known only with its question is asked to stop then.
    w.send("m3");
    w.cancel(3);
    w.log.clear();
    w.replies(3, TaskState::InputRequired);
    w.told("0 settled t3 INPUT_REQUIRED\n0 line 3: t3 INPUT_REQUIRED\n0 cancel t3 r3");
    w.after(1_000);
    w.told("1000 settled t3 CANCELED canceled\n1000 line 4: t3 CANCELED");
    assert_eq!(w.row(3).cancel, Cancel::Owed);
}

/// A task that asks, and an answer to it that is accepted and waits for the one slot.
fn answered(change: impl Fn(&mut watertight_engine::settings::AgentSettings), asks: TaskState) -> World {
    let mut w = World::with(|a| {
        a.bulkhead.max_in_flight = 1;
        change(a);
    });
    w.send("m1");
    w.replies(1, asks);
    w.send_with("m2", |s| s.budget.remaining_s = Some(60.0));
    w.follow_up_with("a", 1, |s| s.want = Want::Accepted);
    assert_eq!((w.row(1).state, w.row(1).asked), (TaskState::Submitted, Some(asks)));
    w.log.clear();
    w
}

#[test]
fn an_accepted_answer_that_is_canceled_is_never_sent_and_the_agent_is_told() {
    let mut w = answered(|_| {}, TaskState::InputRequired);
    w.cancel(1);
    w.told("0 settled t1 CANCELED canceled\n0 line 4: t1 CANCELED\n0 cancel t1 r1");
    w.replies(2, TaskState::Completed);
    assert!(!w.log.iter().any(|l| l.contains("send t1")), "{:?}", w.log);
}

#[test]
fn an_answer_that_was_surely_never_sent_leaves_the_question() {
    for (asks, crash) in [(TaskState::InputRequired, false), (TaskState::AuthRequired, true)] {
        // It waits too long.
        let mut w = answered(|a| a.queue_ttl = Span::from_millis(500), asks);
        if crash {
            w.crash(true);
            w.log.clear();
        }
        w.after(500);
        let asks_again = format!("settled t1 {} expired", asks.as_str().trim_start_matches("TASK_STATE_"));
        w.told(&format!("500 {asks_again}"));
        let row = w.row(1).clone();
        assert_eq!((row.state, row.reason, row.asked), (asks, Some(Reason::Expired), None));
        assert_eq!((row.delivery, row.cancel), (Delivery::NotSent, Cancel::None));
        w.replies(2, TaskState::Completed);
        w.log.clear();
        if crash {
            w.crash(false);
            w.log.clear();
        }
        // It is answered by another message, or by the same one again.
        let (again, n) = if crash { ("b", w.lines_so_far() + 1) } else { ("a", w.lines_so_far() + 1) };
        w.follow_up(again, 1);
        assert_eq!((w.row(1).reason, w.row(1).asked), (None, Some(asks)), "{:?}", w.log);
        w.replies(1, TaskState::Completed);
        w.told(&format!("500 send t1 #2 turn 3 to r1\n500 settled t1 COMPLETED\n500 line {n}: t1 COMPLETED"));
    }
}

#[test]
fn an_answer_that_could_not_be_sent_leaves_the_question_as_it_is_for_as_long_as_before() {
    let mut w = World::with(|a| (a.attempts, a.interrupted_max) = (2, Span::from_secs(3)));
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.follow_up("a", 1);
    w.follow_up("b", 1);
    w.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    w.after(1_000);
    w.log.clear();
    w.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    w.told(
        "1000 settled t1 INPUT_REQUIRED agent_connect_refused
         1000 line 2: t1 INPUT_REQUIRED
         1000 send t1 #4 turn 3 to r1",
    );
    // The next one may have been there: nobody knows what the task asks now.
    w.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    assert_eq!((w.row(1).state, w.row(1).reason), (TaskState::Failed, Some(Reason::AgentReset)));
    assert_eq!(w.row(1).asked, None);

    let mut w = World::with(|a| (a.attempts, a.interrupted_max) = (1, Span::from_secs(3)));
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.follow_up("a", 1);
    w.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    w.log.clear();
    w.after(3_000);
    w.told("3000 settled t1 FAILED expired\n3000 cancel t1 r1");
}

#[test]
fn an_answer_that_is_on_its_way_at_a_crash_may_have_arrived() {
    let mut w = World::new();
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.follow_up("a", 1);
    w.crash(false);
    assert_eq!((w.row(1).state, w.row(1).reason), (TaskState::Failed, Some(Reason::OutcomeUnknown)));
    assert_eq!(w.row(1).delivery, Delivery::MaybeDelivered);
}

#[test]
fn callers_that_left_hold_no_place_in_a_context() {
    let mut w = World::new();
    w.send_with("m", |s| s.context = "c".into());
    for n in 0..200 {
        let line = w.send_with(&format!("m{n}"), |s| s.context = "c".into());
        w.hang_up(line);
    }
    assert!(!w.log.iter().any(|l| l.contains("refused")), "{:?}", w.log);
}

#[test]
fn accepted_messages_in_one_context_are_bounded_too() {
    let mut w = World::new();
    for n in 0..=65 {
        w.send_with(&format!("m{n}"), |s| (s.context, s.want) = ("c".into(), Want::Accepted));
    }
    assert!(w.log.iter().any(|l| l.contains("line 66: refused context_queue_full")), "{:?}", w.log);
    assert_eq!(w.cell.accepted(), 65);
}

#[test]
fn a_lock_that_is_handed_on_passes_over_whoever_is_refused() {
    let mut w = World::with(|a| a.breaker.consecutive_failures = 1);
    for m in ["a", "b", "c"] {
        w.send_with(m, |s| s.context = "c".into());
    }
    w.send_with("q", |s| (s.context, s.want) = ("c".into(), Want::Accepted));
    w.log.clear();
    w.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    w.told(
        "0 line 2: refused breaker_open
         0 line 3: refused breaker_open
         0 settled t1 FAILED agent_reset
         0 line 1: t1 FAILED",
    );
    assert_eq!(w.row(4).turn.waiting_on, Some(Reason::BreakerOpen));
    w.after(5_000);
    w.told("5000 send t4 #1 turn 1");
}

#[test]
fn a_lock_outlives_a_change_of_what_is_locked() {
    let mut w = World::new();
    for m in ["a", "b"] {
        w.send_with(m, |s| s.context = "c".into());
    }
    let all = settings(|a| a.serialize = watertight_engine::settings::Serialize::Agent);
    w.give(Input::Configured(all));
    w.replies(1, TaskState::Completed);
    w.replies(2, TaskState::Completed);
    w.log.clear();
    w.send_with("d", |s| s.context = "c".into());
    w.send_with("e", |s| s.context = "other".into());
    w.told("0 send t3 #1 turn 1");
    w.replies(3, TaskState::Completed);
    w.told("0 settled t3 COMPLETED\n0 line 3: t3 COMPLETED\n0 send t4 #1 turn 1");
}

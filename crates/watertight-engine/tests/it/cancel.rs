//! Cuts and cancels.

use watertight_engine::input::CancelAnswer;
use watertight_engine::record::{Cancel, Delivery, TaskState};
use watertight_policy::reason::Reason;

use crate::world::World;

#[test]
fn a_budget_that_ends_cuts_the_call_and_the_agent_is_told() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.after(6_000);
    w.told(
        "0 send t1 #1 turn 1
         5700 settled t1 FAILED deadline_exceeded
         5700 line 1: t1 FAILED
         5700 cancel t1 r1",
    );
    assert_eq!(w.in_flight("hotels"), 1, "the slot is held until the agent is quiet");
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    w.told("6000 stop t1");
    assert_eq!((w.row(1).cancel, w.row(1).state), (Cancel::Confirmed, TaskState::Failed));
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn silence_is_told_from_slowness_and_given_up_in_the_end() {
    let mut w = World::new();
    w.send("m1");
    w.after(15_699);
    w.told("0 send t1 #1 turn 1\n5700 settled t1 FAILED agent_no_answer\n5700 line 1: t1 FAILED");
    assert_eq!(w.in_flight("hotels"), 1);
    w.after(1);
    w.told("15700 stop t1");
    assert_eq!((w.row(1).cancel, w.row(1).delivery), (Cancel::Unknown, Delivery::MaybeDelivered));
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn an_id_learnt_after_the_cut_is_still_cancelled() {
    let mut w = World::new();
    w.send("m1");
    w.after(6_000);
    w.log.clear();
    w.working(1, "r1");
    w.told("6000 cancel t1 r1");
}

#[test]
fn a_result_after_the_verdict_is_kept_beside_it() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.after(6_000);
    w.replies(1, TaskState::Completed);
    assert_eq!((w.row(1).state, w.row(1).late), (TaskState::Failed, Some(TaskState::Completed)));
    assert_eq!(w.row(1).cancel, Cancel::Refused);
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn a_queued_task_is_canceled_at_once_and_the_agent_never_hears_of_it() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send("a");
    w.immediately("b");
    w.cancel(2);
    w.replies(1, TaskState::Completed);
    w.told(
        "0 send t1 #1 turn 1
         0 line 2: t2 SUBMITTED
         0 settled t2 CANCELED canceled
         0 line 3: t2 CANCELED
         0 settled t1 COMPLETED
         0 line 1: t1 COMPLETED",
    );
}

#[test]
fn a_running_task_is_canceled_by_the_agents_word() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.cancel(1);
    w.told("0 send t1 #1 turn 1\n0 cancel t1 r1");
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    w.told("0 settled t1 CANCELED canceled\n0 line 1: t1 CANCELED\n0 line 2: t1 CANCELED\n0 stop t1");
    assert_eq!(w.row(1).cancel, Cancel::Confirmed);
}

#[test]
fn nobody_is_told_canceled_while_the_agent_goes_on() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.cancel(1);
    w.cancel_answered(1, CancelAnswer::GoesOn);
    w.after(4_000);
    w.replies(1, TaskState::Completed);
    w.told(
        "0 send t1 #1 turn 1
         0 cancel t1 r1
         0 line 2: t1 WORKING
         4000 settled t1 COMPLETED
         4000 line 1: t1 COMPLETED",
    );
}

#[test]
fn a_silent_agent_does_not_hold_a_cancel_up() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.cancel(1);
    w.after(1_000);
    w.told(
        "0 send t1 #1 turn 1
         0 cancel t1 r1
         1000 settled t1 CANCELED canceled
         1000 line 1: t1 CANCELED
         1000 line 2: t1 CANCELED",
    );
    assert_eq!(w.row(1).cancel, Cancel::Owed);
    w.cancel_answered(1, CancelAnswer::Failed);
    assert_eq!(w.row(1).cancel, Cancel::Unknown);
}

#[test]
fn a_result_that_was_quicker_than_the_cancel_stands() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.cancel(1);
    w.replies(1, TaskState::Completed);
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Completed));
    w.told(
        "0 send t1 #1 turn 1
         0 cancel t1 r1
         0 settled t1 COMPLETED
         0 line 1: t1 COMPLETED
         0 line 2: not cancelable",
    );
    w.cancel(1);
    w.told("0 line 3: not cancelable");
}

#[test]
fn a_second_cancel_of_a_canceled_task_changes_nothing() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.cancel(1);
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    w.log.clear();
    w.cancel(1);
    w.told("0 line 3: t1 CANCELED");
}

#[test]
fn a_foreign_task_is_not_found() {
    let mut w = World::new();
    w.send_with("m1", |s| s.principal.caller = "bob".into());
    w.log.clear();
    w.cancel(1);
    w.cancel(99);
    w.told("0 line 2: not found\n0 line 3: not found");
}

#[test]
fn a_canceled_context_is_free_for_the_next_message() {
    let mut w = World::new();
    w.send_with("m1", |s| s.context = "c".into());
    w.working(1, "r1");
    w.cancel(1);
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    w.log.clear();
    w.send_with("m2", |s| s.context = "c".into());
    w.told("0 send t3 #1 turn 1");
}

#[test]
fn a_context_whose_work_may_go_on_is_held_for_its_grace() {
    let mut w = World::new();
    w.send_with("m1", |s| s.context = "c".into());
    w.after(16_000);
    w.log.clear();
    w.send_with("m2", |s| {
        s.context = "c".into();
        s.budget.remaining_s = Some(100.0);
    });
    w.told("");
    w.after(29_700);
    w.told("45700 send t2 #1 turn 1");
}

#[test]
fn a_cut_that_the_breaker_counts_needs_a_minimum_of_patience() {
    let mut w = World::with(|a| a.breaker.consecutive_failures = 1);
    w.send_with("m1", |s| s.budget.remaining_s = Some(0.8));
    w.after(600);
    w.log.clear();
    w.send("m2");
    assert!(w.log.iter().any(|l| l.contains("send t2")), "0.5 s of patience say nothing about the agent");
    w.after(6_000);
    w.log.clear();
    w.send("m3");
    w.told("6600 line 3: refused breaker_open");
    assert_eq!(w.row(2).reason, Some(Reason::AgentNoAnswer));
}

#[test]
fn a_try_that_waits_for_another_is_not_made_once_it_is_canceled() {
    let mut w = World::with(|a| {
        a.attempts = 3;
        a.idempotent = true;
    });
    w.send("m1");
    w.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    w.log.clear();
    w.cancel(1);
    w.after(5_000);
    w.told("0 settled t1 CANCELED canceled\n0 line 1: t1 CANCELED\n0 line 2: t1 CANCELED");
}

#[test]
fn a_task_that_turns_out_to_be_over_is_not_canceled() {
    let mut w = World::new();
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.follow_up_with("a", 1, |s| s.context = "ctx-1".into());
    w.replies(1, TaskState::InputRequired);
    w.log.clear();
    w.cancel(1);
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Rejected));
    w.told("0 cancel t1 r1\n0 settled t1 REJECTED\n0 line 3: not cancelable");
}

#[test]
fn a_look_into_the_store_that_is_older_than_the_failure_does_not_hide_it() {
    let mut w = World::new();
    w.send("m1");
    w.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    w.log.clear();
    w.send_with("m1", |s| s.known = World::known(1, false));
    w.told("0 send t2 #1 turn 1");
}

#[test]
fn an_agent_that_is_given_up_on_is_told_in_case_it_was_only_cut_off() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.fails(1, Reason::AgentUnreachable, Delivery::Delivered);
    w.told(
        "0 send t1 #1 turn 1
         0 settled t1 FAILED agent_unreachable
         0 line 1: t1 FAILED
         0 cancel t1 r1",
    );
    w.cancel_answered(1, CancelAnswer::Failed);
    assert_eq!((w.row(1).cancel, w.row(1).reason), (Cancel::Unknown, Some(Reason::AgentUnreachable)));
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn an_agent_whose_word_it_is_that_the_task_failed_is_not_told_to_stop() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.fails(1, Reason::AgentError, Delivery::Delivered);
    w.told(
        "0 send t1 #1 turn 1
         0 settled t1 FAILED agent_error
         0 line 1: t1 FAILED",
    );
}

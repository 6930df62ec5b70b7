//! Dedupe, waits, and who is told what.

use watertight_engine::input::Want;
use watertight_engine::record::{Delivery, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::World;

#[test]
fn a_call_is_committed_sent_and_answered() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.after(300);
    w.replies(1, TaskState::Completed);
    w.told(
        "0 send t1 #1 turn 1
         300 settled t1 COMPLETED
         300 line 1: t1 COMPLETED",
    );
    assert_eq!(w.in_flight("hotels"), 0);
    w.after(10_000);
    assert_eq!(w.cell.held(), 0, "a terminal delegation leaves memory");
}

#[test]
fn nothing_is_sent_or_told_before_its_commit_is_durable() {
    let mut w = World::new();
    w.durable = false;
    w.immediately("m1");
    w.told("");
    w.commit_all();
    w.told("0 line 1: t1 SUBMITTED\n0 send t1 #1 turn 1");
    w.replies(1, TaskState::Completed);
    w.told("");
    w.commit_all();
    w.told("0 settled t1 COMPLETED");
}

#[test]
fn fifty_twins_join_one_task() {
    let mut w = World::new();
    for _ in 0..50 {
        w.send("m1");
    }
    w.replies(1, TaskState::Completed);
    let answers = w.log.iter().filter(|l| l.contains("t1 COMPLETED") && l.contains("line")).count();
    let sends = w.log.iter().filter(|l| l.contains("send")).count();
    assert_eq!((answers, sends), (50, 1));
}

#[test]
fn another_body_under_the_same_message_id_is_a_conflict() {
    let mut w = World::new();
    w.send("m1");
    w.send_with("m1", |s| s.fingerprint = 2);
    w.told("0 send t1 #1 turn 1\n0 line 2: conflict with t1");
}

#[test]
fn an_older_key_from_the_store_is_a_replay_unless_nothing_was_ever_sent() {
    let mut w = World::new();
    w.send_with("m1", |s| s.known = World::known(77, false));
    w.told("0 line 1: t77 ? (replay)");
    w.send_with("m1", |s| s.known = World::known(77, true));
    w.told("0 send t2 #1 turn 1");
}

#[test]
fn a_failure_before_any_byte_was_sent_frees_its_message_id() {
    let mut w = World::new();
    w.send("m1");
    w.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    w.send("m1");
    w.told(
        "0 send t1 #1 turn 1
         0 settled t1 FAILED agent_connect_refused
         0 line 1: t1 FAILED
         0 send t2 #1 turn 1",
    );
}

#[test]
fn the_same_id_of_another_caller_does_not_interfere() {
    let mut w = World::new();
    w.send("m1");
    w.send_with("m1", |s| s.principal.caller = "bob".into());
    w.told("0 send t1 #1 turn 1\n0 send t2 #1 turn 1");
}

#[test]
fn a_wait_that_ends_first_gets_the_task_and_the_work_goes_on() {
    let mut w = World::new();
    let until = w.now + Span::from_secs(2);
    w.send_with("m1", |s| s.want = Want::Reply { until });
    w.working(1, "r1");
    w.after(3_000);
    w.replies(1, TaskState::Completed);
    w.told("0 send t1 #1 turn 1\n2000 line 1: t1 WORKING\n3000 settled t1 COMPLETED");
}

#[test]
fn a_caller_that_hangs_up_does_not_stop_accepted_work() {
    let mut w = World::new();
    let line = w.send("m1");
    w.hang_up(line);
    w.replies(1, TaskState::Completed);
    w.told("0 send t1 #1 turn 1\n0 settled t1 COMPLETED");
}

#[test]
fn an_unknown_agent_is_refused_without_a_trace() {
    let mut w = World::new();
    w.send_with("m1", |s| s.agent = watertight_engine::ids::AgentId::new("nobody"));
    w.told("0 line 1: refused agent_unknown");
    assert!(w.rows.is_empty());
}

#[test]
fn a_late_answer_of_an_abandoned_attempt_changes_nothing() {
    let mut w = World::with(|a| a.attempts = 2);
    w.send("m1");
    w.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    w.after(1_000);
    assert_eq!(w.row(1).attempt.0, 2);
    let first = watertight_engine::ids::Attempt(1);
    w.attempts.insert(crate::world::task(1), first);
    w.replies(1, TaskState::Completed);
    assert_eq!(w.row(1).state, TaskState::Submitted);
}

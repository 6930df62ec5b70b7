//! Follow-ups, interrupted tasks, contexts.

use watertight_engine::input::Named;
use watertight_engine::record::TaskState;

use crate::world::{World, task};

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
         20000 discard t2
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
    w.told("0 line 3: refused bulkhead_full\n0 discard t3");
    assert_eq!(w.row(1).state, TaskState::InputRequired);
    w.replies(2, TaskState::Completed);
    w.log.clear();
    w.follow_up("m3", 1);
    w.told("0 discard t4\n0 send t1 #2 turn 2 to r1");
}

#[test]
fn a_task_that_does_not_exist_is_foreign_or_over() {
    let mut w = World::new();
    w.follow_up("m1", 77);
    w.send_with("m2", |s| s.names = Some(Named { task: task(78), terminal: true }));
    w.send_with("m3", |s| s.principal.caller = "bob".into());
    w.log.clear();
    w.follow_up("m4", 3);
    w.told("0 line 4: not found\n0 discard t4");
    w.send("m5");
    w.replies(5, TaskState::Completed);
    w.log.clear();
    w.follow_up("m6", 5);
    w.told("0 line 6: terminal\n0 discard t6");
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
    w.told("0 line 2: other context\n0 discard t2");
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

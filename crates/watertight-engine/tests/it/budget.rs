//! What a tree may spend.

use watertight_engine::ids::AgentId;
use watertight_engine::input::Submission;
use watertight_engine::record::TaskState;

use crate::world::{World, task};

#[test]
fn depth_and_fan_out_and_time_are_refused_when_spent() {
    let mut w = World::new();
    w.send_with("a", |s| s.budget.depth = Some(0));
    w.send_with("b", |s| s.budget.fanout = Some(0));
    w.send_with("c", |s| s.budget.remaining_s = Some(0.3));
    w.told(
        "0 line 1: refused depth_exhausted
         0 line 2: refused fanout_exhausted
         0 line 3: refused budget_exhausted",
    );
}

#[test]
fn a_child_is_cut_before_its_parent_and_gets_less_of_everything() {
    let mut w = World::new();
    w.send("m1");
    let child = w.row(1).turn.budget;
    assert_eq!((child.depth, child.fanout), (1, 4));
    assert_eq!(child.deadline.since(w.now).as_millis(), 5_700);
}

#[test]
fn a_parent_pays_for_each_child_and_gets_back_what_was_refused() {
    let mut w = World::new();
    w.send("root");
    for m in ["a", "b"] {
        w.send_with(m, for_root);
    }
    assert_eq!((w.row(1).turn.budget.fanout, w.row(1).children), (2, 2));
    assert_eq!((w.row(2).root, w.row(2).parent, w.row(2).depth), (task(1), Some(task(1)), 1));
    assert_eq!(w.row(2).turn.budget.depth, 0, "strictly less than its parent's");
    let waits = w.send_with("c", for_root);
    w.hang_up(waits);
    w.replies(2, TaskState::Completed);
    assert_eq!((w.row(1).turn.budget.fanout, w.row(1).children), (2, 2));
}

/// Of the agent that works on the first delegation, to another one.
fn for_root(s: &mut Submission) {
    s.agent = AgentId::new("fx");
    s.parent = Some(task(1));
}

#[test]
fn a_queued_task_without_a_deadline_of_its_own_gets_its_full_time_when_it_starts() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send("a");
    w.send_with("b", |s| {
        s.want = watertight_engine::input::Want::Accepted;
        s.budget.remaining_s = None;
    });
    w.after(5_000);
    w.replies(1, TaskState::Completed);
    assert_eq!(w.row(2).turn.budget.deadline.since(w.now).as_millis(), 299_700);
}

#[test]
fn a_queued_child_is_cut_with_its_parent_even_if_it_set_no_deadline() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 2);
    w.send("root");
    w.send("other");
    let deadline = w.row(1).turn.budget.deadline;
    w.send_with("child", |s| {
        s.want = watertight_engine::input::Want::Accepted;
        s.budget = Default::default();
        for_root(s);
    });
    w.after(3_000);
    w.replies(2, TaskState::Completed);
    assert_eq!(deadline.since(w.row(3).turn.budget.deadline).as_millis(), 300);
}

#[test]
fn an_answer_to_a_childs_question_costs_its_parent_nothing() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 8);
    w.send_with("root", |s| s.budget.fanout = Some(1));
    assert_eq!(w.row(1).turn.budget.fanout, 1);
    w.send_with("child", for_root);
    assert_eq!(w.row(1).turn.budget.fanout, 0);
    w.replies(2, TaskState::InputRequired);
    w.log.clear();
    w.follow_up_with("answer", 2, for_root);
    w.told("0 send t2 #2 turn 2 to r2");
    assert_eq!((w.row(1).turn.budget.fanout, w.row(2).turn.budget.fanout), (0, 0));
}

#[test]
fn a_refund_does_not_write_down_what_is_not_accepted() {
    let fx = |s: &mut watertight_engine::input::Submission| s.agent = watertight_engine::ids::AgentId::new("fx");
    let mut w = World::new();
    w.send("root");
    w.send("a");
    for m in ["b", "c"] {
        w.send_with(m, fx);
    }
    w.send_with("child", |s| {
        fx(s);
        s.parent = Some(task(1));
    });
    w.after(100);
    w.replies(1, TaskState::InputRequired);
    w.send("d");
    w.follow_up("answer", 1);
    w.log.clear();
    w.after(400);
    w.told("500 line 5: refused bulkhead_full");
    assert_eq!((w.row(1).turn.no, w.row(1).turn.budget.fanout), (1, 4));
}

#[test]
fn a_turn_whose_time_is_over_is_not_started_however_late_we_look() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send_with("a", |s| s.budget.remaining_s = Some(60.0));
    w.immediately("b");
    w.send_with("c", |s| s.context = "ctx-1".into());
    w.log.clear();
    w.now = w.now + watertight_policy::time::Span::from_secs(30);
    w.replies(1, TaskState::Completed);
    w.told(
        "30000 line 3: refused budget_exhausted
         30000 settled t1 COMPLETED
         30000 line 1: t1 COMPLETED
         30000 settled t2 FAILED expired",
    );
}

#[test]
fn a_full_cell_takes_the_answers_that_empty_it() {
    let mut w = World::new();
    let few = watertight_engine::settings::Settings { max_delegations: 1, ..(*w.settings).clone() };
    w.give(watertight_engine::input::Input::Configured(few.into()));
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.log.clear();
    w.send("m2");
    w.follow_up("a", 1);
    w.told("0 line 2: refused cell_overloaded\n0 send t1 #2 turn 2 to r1");
}

#[test]
fn what_waits_too_long_in_the_queue_expires() {
    let mut w = World::with(|a| {
        a.bulkhead.max_in_flight = 1;
        a.queue_ttl = watertight_policy::time::Span::from_secs(10);
    });
    w.send_with("a", |s| s.budget.remaining_s = None);
    w.immediately("b");
    w.log.clear();
    w.after(10_000);
    w.told("5700 settled t2 FAILED expired");
}

//! What a tree may spend.

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
         0 discard t1
         0 line 2: refused fanout_exhausted
         0 discard t2
         0 line 3: refused budget_exhausted
         0 discard t3",
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
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 3);
    w.send("root");
    for m in ["a", "b"] {
        w.send_with(m, |s| s.parent = Some(task(1)));
    }
    assert_eq!(w.row(1).turn.budget.fanout, 2);
    assert_eq!((w.row(2).root, w.row(2).parent, w.row(2).depth), (task(1), Some(task(1)), 1));
    assert_eq!(w.row(2).turn.budget.depth, 0, "strictly less than its parent's");
    let waits = w.send_with("c", |s| s.parent = Some(task(1)));
    w.hang_up(waits);
    w.replies(2, TaskState::Completed);
    assert_eq!(w.row(1).turn.budget.fanout, 2);
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

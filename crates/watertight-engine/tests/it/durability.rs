//! Crashes, reloads, and a disk without room.

use watertight_engine::ids::AgentId;
use watertight_engine::input::{CancelAnswer, Input};
use watertight_engine::record::{Cancel, Delivery, Save, TaskState};
use watertight_engine::settings::Serialize;
use watertight_policy::reason::Reason;

use crate::world::World;

#[test]
fn what_waited_waits_again_in_order() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.immediately("a");
    w.immediately("b");
    w.immediately("c");
    w.working(1, "r1");
    w.crash(false);
    w.log.clear();
    w.replies(1, TaskState::Completed);
    w.replies(2, TaskState::Completed);
    let order: Vec<&str> = w.log.iter().filter_map(|l| l.split("send ").nth(1)?.split(' ').next()).collect();
    assert_eq!(order, ["t2", "t3"]);
}

#[test]
fn a_running_task_is_watched_and_never_sent_again() {
    let mut w = World::new();
    w.immediately("m1");
    w.working(1, "r1");
    w.log.clear();
    w.crash(false);
    w.told("-- restart\n0 watch t1 r1");
    w.replies(1, TaskState::Completed);
    assert_eq!(w.row(1).state, TaskState::Completed);
}

#[test]
fn a_send_without_a_known_id_ends_as_outcome_unknown() {
    let mut w = World::new();
    w.immediately("m1");
    w.log.clear();
    w.crash(false);
    w.told("-- restart\n0 settled t1 FAILED outcome_unknown");
    assert_eq!(w.row(1).delivery.as_str(), "maybe_delivered");
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn an_idempotent_agent_is_asked_again() {
    let mut w = World::with(|a| a.idempotent = true);
    w.immediately("m1");
    w.log.clear();
    w.crash(false);
    w.told("-- restart\n0 send t1 #2 turn 1");
}

#[test]
fn an_owed_cancel_survives() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.after(5_700);
    w.log.clear();
    w.crash(false);
    w.told("-- restart\n5700 cancel t1 r1");
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    assert_eq!(w.row(1).cancel, Cancel::Confirmed);
}

#[test]
fn an_engine_that_is_replaced_keeps_its_callers_and_its_running_attempts() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    w.send("m2");
    w.send("m3"); // waits for a slot, in memory only
    w.log.clear();
    w.crash(true);
    w.told("-- restart");
    w.replies(1, TaskState::Completed);
    w.told("0 settled t1 COMPLETED\n0 line 1: t1 COMPLETED (replay)\n0 send t3 #1 turn 1");
    w.replies(2, TaskState::Completed);
    w.told("0 settled t2 COMPLETED\n0 line 2: t2 COMPLETED (replay)");
}

#[test]
fn news_whose_commit_was_lost_is_decided_about_again() {
    let mut w = World::new();
    w.send("m1");
    w.durable = false;
    w.replies(1, TaskState::Completed);
    w.log.clear();
    w.durable = true;
    w.crash(true);
    w.told("-- restart\n0 settled t1 COMPLETED\n0 line 1: t1 COMPLETED (replay)");
}

#[test]
fn an_accepted_message_whose_commit_was_lost_is_accepted_again() {
    let mut w = World::new();
    w.durable = false;
    w.immediately("m1");
    w.told("");
    w.durable = true;
    w.crash(true);
    w.told("-- restart\n0 line 1: t1 SUBMITTED\n0 send t1 #1 turn 1");
}

#[test]
fn refusals_do_not_wait_for_the_disk() {
    let mut w = World::new();
    w.durable = false;
    for m in ["a", "b", "c", "d"] {
        w.send(m);
    }
    w.send("e");
    w.told("0 line 5: refused bulkhead_full");
    w.after(500);
    assert_eq!(w.log.iter().filter(|l| l.contains("refused bulkhead_full")).count(), 2);
}

#[test]
fn a_disk_without_room_folds_what_has_to_be_written() {
    let mut w = World::new();
    w.send("m1");
    w.working(1, "r1");
    let before = w.row(1).version;
    // The same story without room: one save for all that happened meanwhile.
    let mut cell = std::mem::replace(&mut w.cell, watertight_engine::cell::Cell::new(w.settings.clone(), 1));
    for n in 0..3 {
        let attempt = w.attempts[&crate::world::task(1)];
        let progress = watertight_engine::input::Progress { seq: n, ..Default::default() };
        cell.offer(watertight_engine::input::Input::Progressed { task: crate::world::task(1), attempt, progress });
        assert!(cell.step(w.now, false).is_none());
    }
    assert!(cell.wake().is_none_or(|at| at > w.now), "nothing to do before the store has room");
    cell.committed(0);
    assert!(cell.wake().is_some_and(|at| at <= w.now), "there is something to write");
    let commit = cell.step(w.now, true);
    let rows: Vec<u64> = commit
        .into_iter()
        .flat_map(|commit| commit.saves)
        .filter_map(|save| match save {
            Save::Delegation { row, .. } => Some(row.version),
            Save::Key { .. } | Save::Context { .. } | Save::Notice(_) | Save::Taken { .. } => None,
        })
        .collect();
    assert_eq!(rows, [before + 1]);
}

#[test]
fn a_parked_delegation_ends_and_its_caller_is_told() {
    let mut w = World::new();
    w.send("m1");
    w.log.clear();
    let now = w.now;
    w.cell.park(crate::world::task(1), now);
    w.run();
    w.told("0 settled t1 FAILED input_parked\n0 line 1: t1 FAILED\n0 stop t1");
    assert_eq!(w.row(1).reason, Some(Reason::InputParked));
}

#[test]
fn a_cut_holds_its_slot_also_after_a_restart() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send("m1");
    w.working(1, "r1");
    w.after(5_700);
    w.crash(false);
    assert_eq!(w.in_flight("hotels"), 1, "the agent may still be at it");
    w.cancel_answered(1, CancelAnswer::GoesOn);
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn an_agent_that_may_have_an_answer_is_told_that_nobody_waits() {
    let mut w = World::new();
    w.send("m1");
    w.replies(1, TaskState::InputRequired);
    w.follow_up("a", 1);
    w.log.clear();
    w.crash(false);
    w.told("-- restart\n0 settled t1 FAILED outcome_unknown\n0 cancel t1 r1");
    w.cancel_answered(1, CancelAnswer::Ended(TaskState::Canceled));
    assert_eq!(w.in_flight("hotels"), 0);
}

#[test]
fn what_an_agent_has_ends_also_if_it_is_not_configured_any_more() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.immediately("asks");
    w.replies(1, TaskState::InputRequired);
    w.immediately("runs");
    w.working(2, "r2");
    w.immediately("waits");
    w.settings = Default::default();
    w.log.clear();
    w.crash(false);
    w.told("-- restart\n0 watch t2 r2\n0 send t3 #1 turn 1");
    for n in [2, 3] {
        w.fails(n, Reason::AgentUnknown, Delivery::NotSent);
    }
    w.log.clear();
    w.send("new");
    w.told("0 line 4: refused agent_draining");
    w.after(86_400_000);
    w.told("86400000 settled t1 FAILED expired\n86400000 cancel t1 r1");
    w.after(60_000);
    assert_eq!(w.cell.held(), 0);
}

#[test]
fn a_stop_refuses_also_who_waits_behind_a_turn() {
    let mut w = World::new();
    w.send("m1");
    w.follow_up("a", 1);
    w.log.clear();
    w.give(watertight_engine::input::Input::ShuttingDown);
    w.told("0 line 2: refused shutting_down");
    w.replies(1, TaskState::InputRequired);
    w.told("0 settled t1 INPUT_REQUIRED\n0 line 1: t1 INPUT_REQUIRED");
}

#[test]
fn a_caller_asked_for_again_gets_its_own_task_even_if_that_has_failed_meanwhile() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    w.send("m1");
    w.send_with("m2", |s| s.context = "c".into());
    w.replies(1, TaskState::Completed);
    w.durable = false;
    w.fails(2, Reason::AgentConnectRefused, Delivery::NotSent);
    w.durable = true;
    w.log.clear();
    w.crash(true);
    w.told("-- restart\n0 settled t2 FAILED agent_connect_refused\n0 line 2: t2 FAILED (replay)");
}

#[test]
fn what_is_over_stays_in_memory_until_the_disk_has_it() {
    let mut w = World::new();
    w.send("m1");
    w.durable = false;
    w.replies(1, TaskState::Completed);
    w.after(60_000);
    assert_eq!(w.cell.held(), 1, "nobody could answer for it");
    w.commit_all();
    w.after(60_000);
    assert_eq!(w.cell.held(), 0);
}

#[test]
fn a_caller_asked_for_again_does_not_begin_anew_what_is_over_on_disk() {
    // What it began was taken for lost with a failed commit, and was written all the same: not sent, over, and in no
    // live row.
    for never_sent in [true, false] {
        let mut w = World::new();
        w.send_with("a", |s| s.known = World::known(1, never_sent));
        assert!(w.rows.is_empty() && w.cell.held() == 0, "{:?}", w.rows);
        w.told("0 line 1: t1 ? (replay)");
    }
}

#[test]
fn what_a_removed_agent_still_has_keeps_to_its_walls_in_a_cell_that_is_loaded_again() {
    for remembered in [true, false] {
        let mut w = World::with(|a| (a.bulkhead.max_in_flight, a.serialize) = (1, Serialize::Agent));
        w.send("m1");
        let _waits = ["m2", "m3"].map(|message| w.immediately(message));
        let hotels = AgentId::new("hotels");
        let mut without = (*w.settings).clone();
        let walls = without.agents.remove(&hotels).unwrap();
        if remembered {
            without.removed.insert(hotels, walls);
        }
        w.settings = without.into();
        w.give(Input::Configured(w.settings.clone()));
        w.log.clear();
        w.crash(true);
        let sends = w.log.iter().filter(|line| line.contains("send")).count();
        assert_eq!(sends, if remembered { 0 } else { 2 }, "{:?}", w.log);
        w.replies(1, TaskState::Completed);
        let sends = w.log.iter().filter(|line| line.contains("send")).count();
        assert_eq!(sends, if remembered { 1 } else { 2 }, "{:?}", w.log);
    }
}

//! Results that wait for whoever delegated: numbered in the commit that ends the turn, until they are acknowledged.

use watertight_engine::ids::{AgentId, LineId, Owner};
use watertight_engine::input::{Input, Submission, Want};
use watertight_engine::record::{Durability, Outbox, TaskState};
use watertight_engine::settings::Settings;
use watertight_policy::time::{Span, Time};

use crate::world::{World, alice, settings, task};

fn own() -> Owner {
    Owner::Caller(alice())
}

/// It asks only to be accepted, and has an outbox.
fn delegate(w: &mut World, message: &str) -> u64 {
    w.send_with(message, |s| {
        s.want = Want::Accepted;
        s.outbox = Outbox::Caller;
    })
}

fn ack(w: &mut World, up_to: u64) {
    let line = LineId(w.open_line());
    w.give(Input::Acknowledged { line, owner: own(), up_to });
}

fn waiting(w: &World) -> Vec<u64> {
    w.outboxes.get(&own()).map(|(_, waiting)| waiting.keys().copied().collect()).unwrap_or_default()
}

fn wide() -> World {
    World::with(|a| a.bulkhead.max_in_flight = 100)
}

#[test]
fn each_end_is_numbered_in_the_commit_that_it_is_in() {
    let mut w = wide();
    for message in ["a", "b", "c"] {
        delegate(&mut w, message);
    }
    w.durable = false;
    w.log.clear();
    w.replies(2, TaskState::Completed);
    w.replies(1, TaskState::Failed);
    w.told("");
    w.commit_all();
    w.told(
        "0 settled t2 COMPLETED
         0 outbox: 1 wait, newest 1
         0 settled t1 FAILED
         0 outbox: 2 wait, newest 2",
    );
    w.durable = true;
    w.replies(3, TaskState::InputRequired);
    assert_eq!(waiting(&w), [1, 2, 3], "a question asks for its caller's attention too");
}

#[test]
fn who_has_no_outbox_leaves_nothing() {
    let mut w = wide();
    w.immediately("m");
    w.replies(1, TaskState::Completed);
    assert!(w.outboxes.is_empty());
    assert!(!w.log.iter().any(|line| line.contains("outbox")));
}

#[test]
fn an_agent_has_one_outbox_whichever_of_its_callers_asked() {
    let mut w = wide();
    for (message, caller) in [("a", "one"), ("b", "two")] {
        w.send_with(message, |s: &mut Submission| {
            s.want = Want::Accepted;
            s.principal.caller = caller.into();
            s.outbox = Outbox::Agent(AgentId::new("lead"));
        });
    }
    w.replies(1, TaskState::Completed);
    w.replies(2, TaskState::Completed);
    let owner = Owner::Agent("acme".into(), AgentId::new("lead"));
    assert_eq!(w.outboxes[&owner].0, 2);
    assert_eq!(w.outboxes.len(), 1);
}

#[test]
fn a_floor_is_acknowledged_and_never_moves_back() {
    let mut w = wide();
    for (n, message) in (1..).zip(["a", "b", "c"]) {
        delegate(&mut w, message);
        w.replies(n, TaskState::Completed);
    }
    w.log.clear();
    ack(&mut w, 2);
    w.told("0 outbox: 1 wait, newest 3\n0 line 4: 1 of 3 wait");
    ack(&mut w, 1);
    w.told("0 outbox: 1 wait, newest 3\n0 line 5: 1 of 3 wait");
    ack(&mut w, 4);
    w.told("0 line 6: not that far: 3");
    assert_eq!(waiting(&w), [3]);
    ack(&mut w, 3);
    let d = delegate(&mut w, "d");
    w.replies(d, TaskState::Completed);
    assert_eq!(waiting(&w), [4]);
}

#[test]
fn an_acknowledgement_is_answered_when_it_is_durable() {
    let mut w = wide();
    delegate(&mut w, "a");
    w.replies(1, TaskState::Completed);
    w.durable = false;
    w.log.clear();
    ack(&mut w, 1);
    ack(&mut w, 1);
    w.told("");
    w.commit_all();
    w.told(
        "0 outbox: 0 wait, newest 0
         0 line 2: 0 of 1 wait
         0 outbox: 0 wait, newest 0
         0 line 3: 0 of 1 wait",
    );
}

#[test]
fn an_answer_that_was_written_to_its_line_is_read() {
    let mut w = wide();
    w.send_with("m", |s| s.outbox = Outbox::Caller);
    w.log.clear();
    w.replies(1, TaskState::Completed);
    w.told("0 settled t1 COMPLETED\n0 line 1: t1 COMPLETED\n0 outbox: 0 wait, newest 0");
    assert_eq!((waiting(&w), w.receipts.clone()), (vec![1], vec![(task(1), 1)]), "it is there, should nobody hear it");
    w.give(Input::Told { task: task(1), turn: 1, written: true });
    w.told("0 outbox: 0 wait, newest 0");
    assert_eq!(waiting(&w), [1], "that it was told is worth no write of its own");
    delegate(&mut w, "a");
    assert_eq!(waiting(&w), [], "it goes with the next one");
    w.send_with("n", |s| s.outbox = Outbox::Caller);
    w.replies(3, TaskState::Completed);
    w.give(Input::Told { task: task(3), turn: 1, written: true });
    assert_eq!(waiting(&w), [2]);
    w.after(300);
    w.run();
    assert_eq!(waiting(&w), [], "or by itself, after a while");
}

#[test]
fn what_comes_after_an_answer_under_way_waits_for_it() {
    let mut w = wide();
    w.send_with("m", |s| s.outbox = Outbox::Caller);
    delegate(&mut w, "a");
    w.replies(1, TaskState::Completed);
    w.log.clear();
    w.replies(2, TaskState::Completed);
    assert_eq!(w.log.last().unwrap(), "    0 outbox: 0 wait, newest 0", "who reads in order would pass over the first");
    w.give(Input::Told { task: task(1), turn: 1, written: true });
    assert_eq!(w.log.last().unwrap(), "    0 outbox: 1 wait, newest 2");
}

#[test]
fn what_is_on_its_way_to_the_disk_is_shown_when_it_is_there_and_then_stays_shown() {
    let mut w = wide();
    w.send_with("m", |s| s.outbox = Outbox::Caller);
    delegate(&mut w, "a");
    w.replies(1, TaskState::Completed);
    w.durable = false;
    w.replies(2, TaskState::Completed);
    w.log.clear();
    w.give(Input::Told { task: task(1), turn: 1, written: true });
    w.told("");
    w.commit_all();
    assert_eq!(w.log.last().map(|line| line.trim()), Some("0 outbox: 1 wait, newest 2"), "{:#?}", w.log);
}

#[test]
fn an_answer_that_nobody_heard_waits() {
    let mut w = wide();
    w.send_with("m", |s| s.outbox = Outbox::Caller);
    w.replies(1, TaskState::Completed);
    w.log.clear();
    w.give(Input::Told { task: task(1), turn: 1, written: false });
    w.told("0 outbox: 1 wait, newest 1");
    w.give(Input::Told { task: task(1), turn: 1, written: true });
    assert_eq!(waiting(&w), [1], "there was one line");
}

#[test]
fn a_process_that_dies_between_the_end_and_its_answer_loses_neither() {
    let mut w = wide();
    w.send_with("m", |s| s.outbox = Outbox::Caller);
    w.replies(1, TaskState::Completed);
    w.log.clear();
    w.crash(false);
    w.told("-- restart\n0 outbox: 1 wait, newest 1");
    w.give(Input::Told { task: task(1), turn: 1, written: true });
    assert_eq!(waiting(&w), [1], "nobody knows that any more");
}

#[test]
fn numbers_go_on_after_a_crash_and_what_was_not_durable_is_numbered_again() {
    let mut w = wide();
    delegate(&mut w, "a");
    delegate(&mut w, "b");
    w.working(1, "r1");
    w.working(2, "r2");
    w.replies(1, TaskState::Completed);
    w.durable = false;
    w.replies(2, TaskState::Completed);
    w.crash(false);
    w.durable = true;
    w.log.clear();
    w.commit_all();
    w.replies(2, TaskState::Failed);
    assert_eq!(waiting(&w), [1, 2]);
    assert!(w.log.iter().any(|line| line.contains("outbox: 2 wait, newest 2")), "{:#?}", w.log);
}

#[test]
fn a_turn_that_ends_twice_before_it_is_written_is_one_notice() {
    let mut w = wide();
    delegate(&mut w, "a");
    w.working(1, "r1");
    w.durable = false;
    w.replies(1, TaskState::InputRequired);
    w.cancel(1);
    w.commit_all();
    w.commit_all();
    w.durable = true;
    w.after(20_000);
    assert_eq!(w.row(1).state, TaskState::Canceled);
    assert!(waiting(&w).len() <= 2, "{:?}", waiting(&w));
    assert_eq!(w.outboxes[&own()].0, waiting(&w).len() as u64);
}

#[test]
fn the_oldest_are_dropped_when_too_many_wait_or_too_long_and_that_is_counted() {
    let plain = settings(|a| a.bulkhead.max_in_flight = 100);
    let mut w = World::under(Settings { max_outbox: 3, ..(*plain).clone() }.into());
    for n in 1..=5 {
        delegate(&mut w, &format!("m{n}"));
        w.replies(n, TaskState::Completed);
        w.after(1_000);
    }
    assert_eq!((waiting(&w), w.lost), (vec![3, 4, 5], 2));
    let before = w.now - Span::from_millis(1_500);
    w.give(Input::OutboxesAged { before });
    assert_eq!((waiting(&w), w.lost), (vec![5], 4));
    w.give(Input::OutboxesAged { before: Time::ZERO });
    w.crash(false);
    delegate(&mut w, "m6");
    w.replies(6, TaskState::Completed);
    assert_eq!((waiting(&w), w.lost), (vec![5, 6], 4));
}

#[test]
fn what_is_kept_in_memory_alone_leaves_word_on_disk() {
    let mut w = World::with(|a| {
        a.bulkhead.max_in_flight = 100;
        a.durability = Durability::Memory;
    });
    delegate(&mut w, "a");
    w.replies(1, TaskState::Completed);
    assert_eq!(waiting(&w), [1]);
    w.send_with("b", |s| s.outbox = Outbox::Caller);
    w.replies(2, TaskState::Completed);
    w.give(Input::Told { task: task(2), turn: 1, written: true });
    assert_eq!(w.outboxes[&own()].0, 1, "what was told needed no disk");
    w.send_with("c", |s| s.outbox = Outbox::Caller);
    w.replies(3, TaskState::Completed);
    w.give(Input::Told { task: task(3), turn: 1, written: false });
    assert_eq!(waiting(&w), [1, 2]);
}

#[test]
fn who_waits_packed_for_a_slot_keeps_its_outbox() {
    let mut w = World::with(|a| a.bulkhead.max_in_flight = 1);
    delegate(&mut w, "a");
    delegate(&mut w, "b");
    w.send_with("c", |s| {
        s.want = Want::Accepted;
        s.outbox = Outbox::Agent(AgentId::new("lead"));
    });
    w.after(1);
    w.run();
    assert_eq!(w.cell.dormant(), 2);
    for n in 1..=3 {
        w.replies(n, TaskState::Completed);
    }
    assert_eq!(waiting(&w), [1, 2]);
    assert_eq!(w.outboxes[&Owner::Agent("acme".into(), AgentId::new("lead"))].0, 1);
}

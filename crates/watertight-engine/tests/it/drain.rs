//! Stories of an agent that is drained for its restart.

use std::sync::Arc;

use watertight_engine::ids::AgentId;
use watertight_engine::input::Input;
use watertight_engine::record::{Delivery, TaskState};
use watertight_engine::settings::Settings;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::World;

/// An operator begins to drain hotels, or lets it work again.
fn drain(world: &mut World, on: bool) {
    let mut settings = Settings::clone(&world.settings);
    if let Some(agent) = settings.agents.get_mut(&AgentId::new("hotels")) {
        agent.drain = on.then_some(world.now + Span::from_secs(20));
    }
    world.settings = Arc::new(settings);
    world.give(Input::Configured(world.settings.clone()));
}

#[test]
fn what_never_started_waits_and_who_cannot_wait_is_told() {
    let mut world = World::new();
    world.send("runs");
    drain(&mut world, true);
    world.immediately("waits");
    world.send("cannot");
    world.told(
        "    0 send t1 #1 turn 1
         0 line 2: t2 SUBMITTED
         0 line 3: refused agent_draining",
    );
    assert_eq!(world.row(2).turn.waiting_on, Some(Reason::AgentDraining));
    world.working(1, "r1");
    world.replies(1, TaskState::Completed);
    world.after(5_000);
    // However long it takes: nothing is delivered, and nothing fails for that.
    world.told(
        "    0 settled t1 COMPLETED
         0 line 1: t1 COMPLETED",
    );
    drain(&mut world, false);
    world.told("5000 send t2 #1 turn 1");
}

#[test]
fn what_the_agent_has_is_watched_again_when_it_is_back() {
    for alive in [None, Some(true), Some(false)] {
        let mut world = World::new();
        world.send_with("runs", |s| s.budget.remaining_s = Some(60.0));
        world.working(1, "r1");
        drain(&mut world, true);
        world.fails(1, Reason::AgentReset, Delivery::Delivered);
        assert_eq!(world.row(1).turn.waiting_on, Some(Reason::AgentDraining));
        assert_eq!((world.in_flight("hotels"), world.row(1).state), (0, TaskState::Working));
        if let Some(alive) = alive {
            world.attempts.clear();
            world.crash(alive);
        }
        world.log.clear();
        drain(&mut world, false);
        world.told("    0 watch t1 r1");
        assert_eq!(world.in_flight("hotels"), 1);
        world.replies(1, TaskState::Completed);
        assert_eq!((world.row(1).state, world.row(1).turn.waiting_on), (TaskState::Completed, None));
    }
}

#[test]
fn a_budget_ends_what_the_agent_has_and_nobody_can_ask_about() {
    let mut world = World::new();
    world.send("runs");
    world.working(1, "r1");
    drain(&mut world, true);
    world.fails(1, Reason::AgentReset, Delivery::Delivered);
    world.log.clear();
    world.after(6_000);
    world.told(
        " 5700 settled t1 FAILED deadline_exceeded
         5700 line 1: t1 FAILED
          5700 cancel t1 r1",
    );
}

#[test]
fn of_what_may_have_reached_it_nobody_knows_the_outcome() {
    let mut world = World::new();
    world.send("runs");
    drain(&mut world, true);
    world.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    world.told(
        "    0 send t1 #1 turn 1
             0 settled t1 FAILED outcome_unknown
         0 line 1: t1 FAILED",
    );
}

#[test]
fn an_idempotent_agent_gets_it_again_and_no_attempt_is_spent() {
    let mut world = World::with(|agent| agent.idempotent = true);
    world.send("runs");
    drain(&mut world, true);
    world.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    let row = world.row(1);
    assert_eq!((row.turn.attempts, row.delivery), (0, Delivery::MaybeDelivered));
    assert_eq!(row.turn.waiting_on, Some(Reason::AgentDraining));
    drain(&mut world, false);
    world.told(
        "    0 send t1 #1 turn 1
             0 send t1 #2 turn 1",
    );
    // That nobody was there this time does not mean that it never had it.
    world.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    assert_eq!(world.row(1).delivery, Delivery::MaybeDelivered);
}

#[test]
fn what_was_not_sent_waits_with_its_full_time_and_in_its_place() {
    let mut world = World::new();
    let context = |s: &mut watertight_engine::input::Submission| {
        s.want = watertight_engine::input::Want::Accepted;
        s.budget = Default::default();
        s.context = "c".into();
        s.context_named = true;
    };
    world.send_with("first", context);
    world.send_with("second", context);
    drain(&mut world, true);
    world.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    assert_eq!((world.row(1).state, world.row(1).turn.attempts), (TaskState::Submitted, 0));
    world.after(600_000);
    world.log.clear();
    drain(&mut world, false);
    world.told("600000 send t1 #2 turn 1");
    assert_eq!(world.row(1).turn.budget.remaining(world.now), Span::from_millis(299_700));
}

#[test]
fn what_a_drain_breaks_does_not_open_the_breaker() {
    let mut world = World::with(|agent| agent.breaker.consecutive_failures = 1);
    world.send("a");
    world.send("b");
    drain(&mut world, true);
    world.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    world.fails(2, Reason::AgentConnectRefused, Delivery::NotSent);
    world.log.clear();
    drain(&mut world, false);
    world.send("c");
    world.told(
        "    0 send t2 #2 turn 1
             0 send t3 #1 turn 1",
    );
}

//! Stories of messages that may not be sent any more when their turn has come, or of which nobody can say whether they may.

use watertight_engine::input::{Input, Outcome};
use watertight_engine::record::{Cancel, Delivery, Phase, TaskState};
use watertight_policy::breaker::State;
use watertight_policy::reason::Reason;

use crate::world::{World, task};

fn forbidden(world: &mut World, n: u64) {
    world.fails(n, Reason::Forbidden, Delivery::NotSent);
}

fn withheld(world: &mut World, n: u64, attempt: u32) {
    let attempt = watertight_engine::ids::Attempt(attempt);
    world.give(Input::Ended { task: task(n), attempt, outcome: Outcome::Withheld });
}

fn breaker(world: &World) -> (State, u64) {
    let views = world.cell.agents(world.now);
    (views[0].breaker.state, views[0].breaker.failures)
}

#[test]
fn what_may_not_be_sent_any_more_fails_at_once_and_makes_room() {
    let mut world = World::with(|agent| {
        agent.bulkhead.max_in_flight = 1;
        agent.breaker.consecutive_failures = 1;
        agent.attempts = 3;
    });
    world.immediately("first");
    world.immediately("second");
    world.log.clear();
    forbidden(&mut world, 1);
    let row = world.row(1);
    assert_eq!((row.state, row.reason, row.delivery), (TaskState::Failed, Some(Reason::Forbidden), Delivery::NotSent));
    assert!(row.never_sent(1), "its messageId may be used again");
    assert_eq!(world.took[&task(1)], None, "and it is none of the turns that say how fast the agent is");
    world.told(
        "0 settled t1 FAILED forbidden
         0 send t2 #1 turn 1",
    );
    forbidden(&mut world, 2);
    assert_eq!((world.in_flight("hotels"), breaker(&world)), (0, (State::Admitting, 0)), "the agent is not blamed");
    world.after(60_000);
    assert_eq!(world.row(1).turn.attempts, 1, "and it is not tried again");
}

#[test]
fn an_answer_that_may_not_be_sent_ends_what_was_asked() {
    let mut world = World::new();
    world.send("m1");
    world.replies(1, TaskState::InputRequired);
    world.follow_up("m2", 1);
    world.log.clear();
    forbidden(&mut world, 1);
    let row = world.row(1);
    assert_eq!((row.state, row.reason, row.cancel), (TaskState::Failed, Some(Reason::Forbidden), Cancel::Owed));
    world.told(
        "0 settled t1 FAILED forbidden
         0 line 2: t1 FAILED
         0 cancel t1 r1",
    );
}

#[test]
fn what_nobody_can_say_waits_and_has_spent_nothing() {
    let mut world = World::with(|agent| {
        agent.attempts = 1;
        agent.breaker.consecutive_failures = 1;
    });
    world.immediately("hello");
    for attempt in 1..4 {
        world.log.clear();
        withheld(&mut world, 1, attempt);
        let row = world.row(1);
        assert_eq!((row.turn.phase, row.turn.attempts, row.state), (Phase::Waiting, 0, TaskState::Submitted));
        assert_eq!((world.in_flight("hotels"), breaker(&world)), (0, (State::Admitting, 0)));
        world.told("");
        world.after(1_000);
        assert_eq!(world.row(1).attempt.0, attempt + 1, "asked again a second later: {:?}", world.log);
    }
    world.replies(1, TaskState::Completed);
    assert_eq!((world.row(1).state, world.row(1).turn.attempts), (TaskState::Completed, 1));
}

#[test]
fn it_waits_over_a_crash_and_no_longer_than_it_has_time() {
    let mut world = World::with(|agent| agent.queue_ttl = watertight_policy::time::Span::from_secs(5));
    world.immediately("hello");
    withheld(&mut world, 1, 1);
    world.crash(false);
    for attempt in 2..=5 {
        world.after(1_000);
        withheld(&mut world, 1, attempt);
    }
    world.after(1_000);
    let row = world.row(1);
    assert_eq!((row.state, row.reason, row.delivery), (TaskState::Failed, Some(Reason::Expired), Delivery::NotSent));
}

#[test]
fn who_wants_it_no_more_does_not_wait() {
    let mut world = World::new();
    world.immediately("hello");
    world.cancel(1);
    world.log.clear();
    withheld(&mut world, 1, 1);
    let row = world.row(1);
    assert_eq!((row.state, row.delivery, world.in_flight("hotels")), (TaskState::Canceled, Delivery::NotSent, 0));
}

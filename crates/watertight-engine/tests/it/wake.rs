//! Stories of an agent that is not always there, and of its wake hook.

use watertight_engine::record::{Delivery, TaskState};
use watertight_engine::settings::AgentSettings;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::World;

fn sleepy(agent: &mut AgentSettings) {
    agent.wake = Some(Span::from_secs(10));
    agent.breaker.consecutive_failures = 1;
}

fn nobody_there(world: &mut World, n: u64) {
    world.fails(n, Reason::AgentConnectRefused, Delivery::NotSent);
}

#[test]
fn nobody_is_there_so_it_is_called_and_the_message_waits() {
    let mut world = World::with(sleepy);
    world.send_with("hello", |s| s.budget = Default::default());
    nobody_there(&mut world, 1);
    let row = world.row(1);
    assert_eq!(
        (row.state, row.turn.attempts, row.turn.waiting_on),
        (TaskState::Submitted, 0, Some(Reason::AgentAsleep))
    );
    world.told(
        "0 send t1 #1 turn 1
         0 wake hotels for 1",
    );
    // It is looked at after 0.5 s, 1 s, 2 s, 4 s; the hook is called again after its cooldown.
    for (at, called) in [(500, false), (1_500, false), (3_500, false), (7_500, false), (15_500, true)] {
        let wait = at - (world.now.as_micros() / 1_000 - crate::world::START / 1_000);
        world.after(wait);
        nobody_there(&mut world, 1);
        let woken = world.log.iter().any(|line| line.ends_with("wake hotels for 1"));
        let sent = world.log.iter().filter(|line| line.contains("send t1")).count();
        assert_eq!((woken, sent), (called, 1), "at {at}: {:?}", world.log);
        world.log.clear();
    }
    // Another call meanwhile waits likewise, and is not refused; nothing of this is the breaker's business.
    world.send_with("me too", |s| s.budget = Default::default());
    world.told("");
    world.after(16_000);
    world.told(
        "31500 send t1 #7 turn 1
         31500 send t2 #1 turn 1",
    );
    world.working(1, "r1");
    world.replies(1, TaskState::Completed);
    world.replies(2, TaskState::Completed);
    assert_eq!((world.row(1).turn.attempts, world.row(2).state), (1, TaskState::Completed));
}

#[test]
fn its_time_to_live_ends_the_wait() {
    let mut world = World::with(|agent| {
        sleepy(agent);
        agent.queue_ttl = Span::from_secs(3);
    });
    world.send_with("hello", |s| {
        s.want = watertight_engine::input::Want::Accepted;
        s.budget = Default::default();
    });
    nobody_there(&mut world, 1);
    for _ in 0..3 {
        world.after(1_000);
        if world.row(1).turn.phase != watertight_engine::record::Phase::Waiting {
            nobody_there(&mut world, 1);
        }
    }
    assert_eq!((world.row(1).state, world.row(1).reason), (TaskState::Failed, Some(Reason::Expired)));
}

#[test]
fn a_wake_that_is_owed_is_owed_after_a_restart() {
    let mut world = World::with(sleepy);
    world.immediately("hello");
    nobody_there(&mut world, 1);
    world.log.clear();
    world.attempts.clear();
    world.crash(false);
    world.told(
        "-- restart
         0 send t1 #2 turn 1",
    );
    nobody_there(&mut world, 1);
    world.told("0 wake hotels for 1");
}

#[test]
fn what_may_have_been_sent_wakes_nobody_and_is_not_sent_again() {
    let mut world = World::with(sleepy);
    world.send("hello");
    world.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    world.told(
        "0 send t1 #1 turn 1
         0 settled t1 FAILED agent_reset
         0 line 1: t1 FAILED",
    );
}

#[test]
fn without_a_hook_nobody_there_is_a_failure() {
    let mut world = World::new();
    world.send("hello");
    nobody_there(&mut world, 1);
    assert_eq!(world.row(1).reason, Some(Reason::AgentConnectRefused));
}

//! Stories of an agent that fetches its work: what waits goes to who asks, and what nobody began with is as if nobody had
//! been given it.

use watertight_engine::ids::{AgentId, LineId};
use watertight_engine::input::Input;
use watertight_engine::record::{Delivery, Phase, TaskState};
use watertight_engine::settings::AgentSettings;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::World;

fn fetching(agent: &mut AgentSettings) {
    agent.fetches = true;
    agent.attempts = 1;
    agent.queue_ttl = Span::from_secs(60);
}

/// A worker asks, and waits.
fn asks(world: &mut World) -> u64 {
    asks_with(world, true)
}

fn asks_with(world: &mut World, waits: bool) -> u64 {
    let line = world.open_line();
    world.give(Input::WorkAsked { line: LineId(line), agent: AgentId::new("hotels"), waits });
    line
}

fn nobody_began(world: &mut World, n: u64) {
    world.fails(n, Reason::NoWorker, Delivery::NotSent);
}

#[test]
fn what_waits_goes_to_who_asks() {
    let mut world = World::with(fetching);
    world.send("hello");
    let row = world.row(1);
    assert_eq!((row.turn.phase, row.turn.waiting_on), (Phase::Waiting, Some(Reason::NoWorker)));
    world.told("");
    asks(&mut world);
    world.told(
        "0 send t1 #1 turn 1
         0 line 2: work t1 #1",
    );
    let row = world.row(1);
    assert_eq!((row.turn.phase, row.turn.waiting_on), (Phase::Dispatching, Some(Reason::NoWorker)));
    world.working(1, "t1");
    assert_eq!((world.row(1).turn.phase, world.row(1).turn.waiting_on), (Phase::Running, None));
    world.replies(1, TaskState::Completed);
    assert_eq!(world.row(1).state, TaskState::Completed);
    world.log.clear();
    asks_with(&mut world, false);
    world.told("0 line 3: no work");
}

#[test]
fn a_worker_that_waits_is_given_what_comes_and_one_that_left_is_not() {
    let mut world = World::with(fetching);
    let left = asks(&mut world);
    asks(&mut world);
    world.hang_up(left);
    world.send("hello");
    world.told(
        "0 send t3 #1 turn 1
         0 line 2: work t3 #1",
    );
    world.send_with("another", |s| s.context = "another".into());
    world.told("");
}

#[test]
fn what_nobody_began_with_is_offered_again() {
    let mut world = World::with(fetching);
    world.immediately("hello");
    for attempt in 1..4 {
        world.log.clear();
        let line = asks(&mut world);
        world.told(&format!(
            "0 send t1 #{attempt} turn 1
             0 line {line}: work t1 #{attempt}"
        ));
        nobody_began(&mut world, 1);
        let row = world.row(1);
        assert_eq!((row.turn.phase, row.turn.attempts, row.delivery), (Phase::Waiting, 0, Delivery::NotSent));
    }
}

#[test]
fn a_restart_offers_again_what_nobody_began_with_whatever_its_agent_is_now() {
    let mut world = World::with(fetching);
    world.immediately("hello");
    asks(&mut world);
    world.log.clear();
    world.attempts.clear();
    world.crash(false);
    world.told("-- restart");
    let row = world.row(1);
    assert_eq!(
        (row.state, row.turn.phase, row.turn.attempts, row.delivery),
        (TaskState::Submitted, Phase::Waiting, 0, Delivery::NotSent)
    );
    let line = asks(&mut world);
    world.told(&format!(
        "0 send t1 #2 turn 1
         0 line {line}: work t1 #2"
    ));
}

#[test]
fn a_restart_hears_on_what_was_begun_with() {
    let mut world = World::with(fetching);
    world.immediately("hello");
    asks(&mut world);
    world.working(1, "t1");
    world.log.clear();
    world.attempts.clear();
    world.crash(false);
    assert!(world.log.iter().any(|line| line.contains("watch t1")), "{:?}", world.log);
    assert_eq!(world.row(1).state, TaskState::Working);
}

#[test]
fn its_time_ends_what_nobody_began_with_as_if_it_had_waited() {
    let mut world = World::with(fetching);
    world.immediately("hello");
    asks(&mut world);
    world.after(600_000);
    let row = world.row(1);
    assert_eq!((row.state, row.reason, row.delivery), (TaskState::Failed, Some(Reason::Expired), Delivery::NotSent));
    assert!(world.log.iter().any(|line| line.contains("stop t1")), "{:?}", world.log);
}

#[test]
fn a_cancel_ends_what_nobody_began_with_at_once() {
    let mut world = World::with(fetching);
    world.immediately("hello");
    asks(&mut world);
    world.cancel(1);
    assert_eq!((world.row(1).state, world.row(1).delivery), (TaskState::Canceled, Delivery::NotSent));
    // What was said too late to be heard changes nothing.
    world.working(1, "t1");
    assert_eq!(world.row(1).state, TaskState::Canceled);
}

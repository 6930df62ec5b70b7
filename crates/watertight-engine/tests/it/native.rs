//! Stories of an agent that owns one session: one thing at a time, and nobody refused because it is busy.

use watertight_engine::input::Want;
use watertight_engine::record::{Delivery, TaskState};
use watertight_engine::settings::{AgentSettings, Serialize};
use watertight_policy::bulkhead;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::World;

fn native(agent: &mut AgentSettings) {
    agent.bulkhead = bulkhead::Params { max_in_flight: 1, max_waiting: 0, max_wait: Span::ZERO };
    agent.serialize = Serialize::Agent;
    agent.queue_overflow = true;
    agent.native_session = true;
}

fn without_budget(world: &mut World, message: &str) -> u64 {
    world.send_with(message, |s| s.budget = Default::default())
}

#[test]
fn twelve_messages_during_a_long_turn_are_kept_in_order() {
    let mut world = World::with(native);
    without_budget(&mut world, "boot");
    world.working(1, "r1");
    for n in 0..12 {
        without_budget(&mut world, &format!("m{n}"));
    }
    world.told("0 send t1 #1 turn 1");
    // The wait of those who hold the line ends first: they get the task as it is, and the work goes on.
    world.after(60_000);
    assert_eq!(world.log.iter().filter(|line| line.ends_with("SUBMITTED")).count(), 12);
    world.attempts.clear();
    world.crash(false);
    world.log.clear();
    for n in 1..=13 {
        world.replies(n, TaskState::Completed);
        let sent: Vec<String> = std::mem::take(&mut world.log);
        let next = format!("60000 send t{} #1 turn 1", n + 1);
        assert_eq!(
            sent.iter().filter(|line| line.contains("send")).collect::<Vec<_>>(),
            [&next][usize::from(n == 13)..]
        );
    }
}

#[test]
fn nothing_is_sent_while_what_was_sent_may_still_run() {
    for killed in [false, true] {
        let mut world = World::with(native);
        without_budget(&mut world, "first");
        world.immediately("second");
        if killed {
            world.attempts.clear();
            world.crash(false);
        } else {
            world.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
        }
        assert_eq!((world.row(1).state, world.row(2).state), (TaskState::Failed, TaskState::Submitted));
        world.log.clear();
        world.after(4_000);
        world.told("");
        let third = without_budget(&mut world, "third");
        world.after(25_900);
        world.log.retain(|line| line.contains("send"));
        world.told("");
        world.after(200);
        world.log.retain(|line| line.contains("send"));
        world.told(&format!("30000 send t{third} #1 turn 1"));
    }
}

#[test]
fn a_restart_does_not_forget_what_may_still_run() {
    for process in [false, true] {
        let mut world = World::with(native);
        without_budget(&mut world, "first");
        world.send_with("second", |s| (s.want, s.budget) = (Want::Accepted, Default::default()));
        world.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
        for _ in 0..3 {
            world.after(9_000);
            world.attempts.clear();
            world.crash(!process);
        }
        assert!(!world.log.iter().any(|line| line.contains("send t2")), "{:?}", world.log);
        assert!(world.row(1).is_live(), "it is over, and holds the session");
        world.log.clear();
        world.after(3_000);
        world.told("30000 send t2 #1 turn 1");
        assert!(!world.row(1).is_live());
    }
}

#[test]
fn a_cancel_of_what_has_no_name_does_not_free_the_session() {
    let mut world = World::with(native);
    without_budget(&mut world, "first");
    world.send_with("second", |s| (s.want, s.budget) = (Want::Accepted, Default::default()));
    world.cancel(1);
    world.log.clear();
    world.fails(1, Reason::AgentReset, Delivery::MaybeDelivered);
    world.told("0 settled t1 CANCELED canceled\n0 line 1: t1 CANCELED\n0 line 3: t1 CANCELED");
    world.after(29_000);
    world.told("");
    world.after(1_500);
    world.told("30000 send t2 #1 turn 1");
}

#[test]
fn what_surely_did_not_reach_it_keeps_nobody_waiting() {
    let mut world = World::with(native);
    without_budget(&mut world, "first");
    without_budget(&mut world, "second");
    world.fails(1, Reason::AgentConnectRefused, Delivery::NotSent);
    world.log.retain(|line| line.contains("send"));
    world.told(
        "0 send t1 #1 turn 1
         0 send t2 #1 turn 1",
    );
}

#[test]
fn a_message_to_a_task_at_work_waits_for_it() {
    let mut world = World::with(native);
    without_budget(&mut world, "ask me");
    world.follow_up_with("answer", 1, |s| {
        s.want = Want::Accepted;
        s.budget = Default::default();
    });
    world.after(30_000);
    world.replies(1, TaskState::InputRequired);
    world.told(
        "    0 send t1 #1 turn 1
         30000 settled t1 INPUT_REQUIRED
         30000 line 1: t1 INPUT_REQUIRED
         30000 line 2: t1 SUBMITTED
         30000 send t1 #2 turn 2 to r1",
    );
}

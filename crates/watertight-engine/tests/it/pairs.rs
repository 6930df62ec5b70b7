//! Every state that a delegation can be in, and every input that can come then. Nothing panics; what belongs to no attempt
//! or question of ours changes nothing and writes nothing; whatever else comes, the delegation ends, once, and everybody is
//! told.

use std::collections::BTreeMap;

use watertight_engine::ids::{AgentId, Attempt, LineId, Principal};
use watertight_engine::input::{CancelAnswer, Fault, Input, Outcome, Progress, Reply, Want};
use watertight_engine::record::{Delivery, Phase, ReplyKind, TaskState};
use watertight_policy::acceptance::{Measure, PeerState};
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use crate::world::{World, alice, settings, task};

/// A state, how a world gets there, and which of its tasks is in it.
type State = (&'static str, fn(&mut World) -> u64);

/// An input, and how it comes.
type Event = (String, Box<dyn Fn(&mut World, u64)>);

const STATES: [State; 24] = [
    ("unheard of", |_| 99),
    ("in the short line", |w| ["a", "b", "c"].map(|message| w.send(message))[2]),
    ("behind its context", |w| ["a", "b"].map(|message| w.send_with(message, |s| s.context = "c".into()))[1]),
    ("in the queue", |w| {
        ["a", "b"].into_iter().for_each(|message| {
            w.send(message);
        });
        w.immediately("c")
    }),
    ("in the queue of a paused agent", |w| {
        w.send("a");
        w.fails_with(1, paced());
        w.immediately("b")
    }),
    ("waiting for another try", |w| {
        let n = w.immediately("a");
        w.fails(n, Reason::AgentConnectRefused, Delivery::NotSent);
        n
    }),
    ("sent", |w| w.send("a")),
    ("sent again", |w| {
        let n = w.immediately("a");
        w.fails(n, Reason::AgentConnectRefused, Delivery::NotSent);
        w.after(300);
        n
    }),
    ("at work", |w| working(w)),
    ("at work, its caller gone", |w| {
        let n = working(w);
        w.hang_up(n);
        n
    }),
    ("at work, being canceled", |w| {
        let n = working(w);
        w.cancel(n);
        n
    }),
    ("sent, to be canceled", |w| {
        let n = w.send("a");
        w.cancel(n);
        n
    }),
    ("at work, its cancel refused", |w| {
        let n = working(w);
        w.cancel(n);
        w.cancel_answered(n, CancelAnswer::GoesOn);
        n
    }),
    ("asking", |w| asking(w)),
    ("asking, a follow-up in the short line", |w| {
        let n = asking(w);
        ["b", "c"].into_iter().for_each(|message| {
            w.send(message);
        });
        w.follow_up("d", n);
        n
    }),
    ("asking while it is to be canceled", |w| {
        let n = working(w);
        w.cancel(n);
        w.replies(n, TaskState::InputRequired);
        n
    }),
    ("at work, a follow-up behind it", |w| {
        let n = working(w);
        w.follow_up("b", n);
        n
    }),
    ("in its second turn", |w| {
        let n = asking(w);
        w.follow_up("b", n);
        n
    }),
    ("cut at its end, its agent at work", |w| {
        let n = working(w);
        w.after(6_000);
        n
    }),
    ("cut at its end, its agent silent", |w| {
        let n = w.send("a");
        w.after(6_000);
        n
    }),
    ("done", |w| {
        let n = w.send("a");
        w.replies(n, TaskState::Completed);
        n
    }),
    ("failed before it was sent", |w| {
        let n = w.send("a");
        w.fails(n, Reason::AgentTlsFailure, Delivery::NotSent);
        n
    }),
    ("out of memory", |w| {
        let n = w.send("a");
        w.replies(n, TaskState::Completed);
        w.after(60_000);
        n
    }),
    ("watched after a restart", |w| {
        let n = working(w);
        w.crash(false);
        n
    }),
];

fn paced() -> Fault {
    let retry_after = Some(Span::from_secs(2));
    Fault { reason: Reason::AgentRateLimited, delivery: Delivery::MaybeDelivered, retry_after, busy: false }
}

fn working(w: &mut World) -> u64 {
    let n = w.send("a");
    w.working(n, "r");
    n
}

fn asking(w: &mut World) -> u64 {
    let n = working(w);
    w.replies(n, TaskState::InputRequired);
    n
}

/// The attempt that is under way, or the last one.
fn attempt(w: &World, n: u64) -> Attempt {
    w.attempts.get(&task(n)).copied().unwrap_or_default()
}

fn reply(state: TaskState) -> Outcome {
    let peer = match state {
        TaskState::Submitted => PeerState::Submitted,
        TaskState::Working => PeerState::Working,
        TaskState::InputRequired => PeerState::InputRequired,
        TaskState::AuthRequired => PeerState::AuthRequired,
        TaskState::Completed => PeerState::Completed,
        TaskState::Failed => PeerState::Failed,
        TaskState::Canceled => PeerState::Canceled,
        TaskState::Rejected => PeerState::Rejected,
    };
    Outcome::Replied(Reply {
        state,
        kind: ReplyKind::Task,
        measure: Measure { state: peer, bytes: 10, data_parts: 1, schema_failures: 0, empty: false },
        digest: None,
        remote_task: Some("r".into()),
        remote_context: Some("r-ctx".into()),
        seq: 7,
    })
}

fn progress(state: TaskState, id: &str) -> Progress {
    Progress { remote_task: Some(id.into()), remote_context: None, state: Some(state), seq: 3 }
}

/// What is said of an attempt that is not under way any more, or never was.
fn of_other_attempts(events: &mut Vec<Event>) {
    for other in [0, 99] {
        let outcome = reply(TaskState::Completed);
        events.push((
            format!("attempt {other} replied"),
            Box::new(move |w, n| {
                w.give(Input::Ended { task: task(n), attempt: Attempt(other), outcome: outcome.clone() });
            }),
        ));
        events.push((
            format!("attempt {other} progressed"),
            Box::new(move |w, n| {
                let progress = progress(TaskState::Working, "other");
                w.give(Input::Progressed { task: task(n), attempt: Attempt(other), progress });
            }),
        ));
    }
}

/// What an agent says of the attempt that is under way.
fn of_the_attempt(events: &mut Vec<Event>) {
    for state in TaskState::ALL {
        events.push((
            format!("progressed {state:?}"),
            Box::new(move |w, n| {
                let (attempt, progress) = (attempt(w, n), progress(state, "r"));
                w.give(Input::Progressed { task: task(n), attempt, progress });
            }),
        ));
        if state > TaskState::Working {
            events.push((
                format!("replied {state:?}"),
                Box::new(move |w, n| {
                    let (attempt, outcome) = (attempt(w, n), reply(state));
                    w.give(Input::Ended { task: task(n), attempt, outcome });
                }),
            ));
        }
    }
    for reason in Reason::ALL.iter().filter(|reason| reason.as_str().starts_with("agent_")) {
        for delivery in [Delivery::NotSent, Delivery::MaybeDelivered, Delivery::Delivered] {
            events.push((
                format!("failed {reason} {delivery:?}"),
                Box::new(move |w, n| {
                    w.fails(n, *reason, delivery);
                }),
            ));
        }
    }
    events.push(("paced".into(), Box::new(|w, n| w.fails_with(n, paced()))));
    events.push((
        "another id".into(),
        Box::new(|w, n| {
            let (attempt, progress) = (attempt(w, n), progress(TaskState::Working, "another"));
            w.give(Input::Progressed { task: task(n), attempt, progress });
        }),
    ));
}

const CANCELS: [CancelAnswer; 7] = [
    CancelAnswer::Ended(TaskState::Canceled),
    CancelAnswer::Ended(TaskState::Completed),
    CancelAnswer::Ended(TaskState::Failed),
    CancelAnswer::Ended(TaskState::Rejected),
    CancelAnswer::GoesOn,
    CancelAnswer::NotFound,
    CancelAnswer::Failed,
];

/// What callers and operators do, and what time does.
fn of_others(events: &mut Vec<Event>) {
    let mut push = |name: &str, event: fn(&mut World, u64)| events.push((name.into(), Box::new(event)));
    push("its caller cancels", |w, n| {
        w.cancel(n);
    });
    push("its line is closed", |w, n| w.hang_up(n));
    push("the same message", |w, _| {
        w.send("a");
    });
    push("another under its messageId", |w, _| {
        w.send_with("a", |s| s.fingerprint = 9);
    });
    push("a follow-up", |w, n| {
        w.follow_up("f", n);
    });
    push("a follow-up that only asks to be accepted", |w, n| {
        w.follow_up_with("f", n, |s| s.want = Want::Accepted);
    });
    push("a child", |w, n| {
        w.send_with("k", |s| s.parent = Some(task(n)));
    });
    push("a stop", |w, _| w.give(Input::ShuttingDown));
    push("a standstill", |w, _| w.give(Input::Stalled { gap: Span::from_secs(5) }));
    push("a reset", |w, _| w.give(Input::BreakerReset { agent: AgentId::new("hotels") }));
    push("its agent is taken out", |w, _| {
        let mut without = (*w.settings).clone();
        without.agents.remove(&AgentId::new("hotels"));
        w.give(Input::Configured(without.into()));
    });
    push("no slots to speak of", |w, _| w.give(Input::Configured(settings(|a| a.bulkhead.max_in_flight = 1))));
    push("a drain", |w, _| {
        let until = w.now;
        w.give(Input::Configured(settings(|a| a.drain = Some(until))));
    });
    push("it is parked", |w, n| {
        w.cell.park(task(n), w.now);
        w.run();
    });
    push("the engine is replaced", |w, _| w.crash(true));
    push("the process dies", |w, _| w.crash(false));
    push("a moment", |w, _| w.after(1));
    push("a second", |w, _| w.after(1_000));
    push("a minute", |w, _| w.after(60_000));
}

fn world(state: &State) -> (World, u64) {
    let mut w = World::with(|a| {
        a.attempts = 3;
        a.retry_budget.floor = 5;
        a.interrupted_max = Span::from_secs(40);
    });
    let n = state.1(&mut w);
    (w, n)
}

/// Nothing was written, and nothing asked for.
#[track_caller]
fn ignored(w: &World, before: &BTreeMap<watertight_engine::ids::TaskId, watertight_engine::record::Row>, what: &str) {
    assert_eq!(&w.rows, before, "{what}: it was written");
    assert!(w.log.is_empty(), "{what}: {:?}", w.log);
}

#[test]
fn what_belongs_to_nothing_of_ours_is_ignored_in_every_state() {
    let mut others = Vec::new();
    of_other_attempts(&mut others);
    let mut own = Vec::new();
    of_the_attempt(&mut own);
    for state in &STATES {
        let (probe, n) = world(state);
        let row = probe.cell.row(task(n));
        let runs = row.as_ref().is_some_and(|row| matches!(row.turn.phase, Phase::Dispatching | Phase::Running));
        // What is over may have an attempt that goes on until its agent is known to be quiet.
        let ended = row.as_ref().is_none_or(|row| row.turn.phase == Phase::Waiting || row.state.is_interrupted());
        let done = state.0 == "done" || state.0.starts_with("failed");
        for (name, event) in others.iter().chain(own.iter().filter(|_| !runs && (ended || done))) {
            let (mut w, n) = world(state);
            w.log.clear();
            let before = w.rows.clone();
            event(&mut w, n);
            ignored(&w, &before, &format!("{}, {name}", state.0));
        }
        let asked = row.is_some_and(|row| row.cancel.as_str() == "owed" && row.remote_task.is_some());
        for answer in CANCELS.iter().filter(|_| !asked) {
            let (mut w, n) = world(state);
            w.log.clear();
            let before = w.rows.clone();
            w.cancel_answered(n, *answer);
            ignored(&w, &before, &format!("{}, {answer:?}", state.0));
        }
    }
}

#[test]
fn strangers_learn_and_change_nothing_in_any_state() {
    for state in &STATES {
        for (caller, agent) in [("mallory", "hotels"), ("alice", "fx")] {
            let (mut w, n) = world(state);
            w.log.clear();
            let before = w.rows.clone();
            let principal = Principal { caller: caller.into(), ..alice() };
            let line = w.open_line();
            w.give(Input::CancelAsked { line: LineId(line), principal, agent: AgentId::new(agent), task: task(n) });
            assert_eq!(w.rows, before, "{}: written", state.0);
            assert!(matches!(w.log.as_slice(), [told] if told.ends_with("not found")), "{}: {:?}", state.0, w.log);
        }
    }
}

/// The audit and the store look at every step: versions, one terminal state, no contradiction between the engine's parts.
#[test]
fn whatever_comes_in_whatever_state_everything_ends() {
    let mut events = Vec::new();
    of_other_attempts(&mut events);
    of_the_attempt(&mut events);
    of_others(&mut events);
    for answer in CANCELS {
        events.push((format!("{answer:?}"), Box::new(move |w, n| w.cancel_answered(n, answer))));
    }
    let mut pairs = 0;
    for state in &STATES {
        for (name, event) in &events {
            let (mut w, n) = world(state);
            let before = w.rows.get(&task(n)).map(|row| (row.turn.no, row.state));
            event(&mut w, n);
            let what = format!("{}, {name}", state.0);
            let after = w.rows.get(&task(n)).map(|row| (row.turn.no, row.state));
            if let Some(before) = before.filter(|(_, state)| state.is_terminal()) {
                assert_eq!(after, Some(before), "{what}");
            }
            // Within a turn, nothing is unsaid.
            let back = before.zip(after).is_some_and(|(before, after)| before.0 == after.0 && after.1 < before.1);
            assert!(!back, "{what}: {before:?} to {after:?}");
            // What is drained, or has no configuration, is given all the time there is.
            w.after(200_000_000);
            assert!(w.open_lines().is_empty(), "{what}: lines {:?} were never answered", w.open_lines());
            assert_eq!((w.cell.held(), w.cell.accepted()), (0, 0), "{what}");
            let left = w.rows.values().find(|row| !row.state.is_terminal());
            assert!(left.is_none(), "{what}: {left:?}");
            pairs += 1;
        }
    }
    assert!(pairs > 1_500, "{pairs}");
}

//! For which delegation a message is, what that leaves it, and what ends with what.

use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::input::{CancelAnswer, Held, Input, Submission, Want};
use watertight_engine::output::{Answer, Cause, Output};
use watertight_engine::record::TaskState;
use watertight_engine::settings::Settings;
use watertight_policy::bulkhead;
use watertight_policy::rate;
use watertight_policy::time::Span;

use crate::world::{World, settings, task};

fn agent(name: &str) -> AgentId {
    AgentId::new(name)
}

/// Agents `a` to `d`, with room for all.
fn world() -> World {
    world_with(|_| {})
}

fn world_with(change: impl Fn(&mut Settings)) -> World {
    let one = settings(|a| a.bulkhead = bulkhead::Params { max_in_flight: 500, ..bulkhead::Params::default() });
    let mut all = Settings { agents: Default::default(), ..(*one).clone() };
    for name in ["a", "b", "c", "d"] {
        all.agents.insert(agent(name), one.agents[&agent("fx")].clone());
    }
    change(&mut all);
    World::under(all.into())
}

fn held(n: u64, holder: &str) -> Option<Held> {
    Some(Held { task: task(n), holder: agent(holder) })
}

/// A call to an agent, with nothing that says where it comes from.
fn to(w: &mut World, name: &str, change: impl Fn(&mut Submission)) -> u64 {
    let n = w.lines_so_far() + 1;
    w.send_with(&format!("m{n}"), |s| {
        s.agent = agent(name);
        s.budget = Default::default();
        change(s);
    })
}

/// The agent that works on a delegation calls another, and shows its token.
fn child(w: &mut World, of: u64, holder: &str, name: &str) -> u64 {
    to(w, name, |s| s.claims.held = held(of, holder))
}

fn chain(w: &World, n: u64) -> String {
    w.row(n).chain.iter().map(AgentId::as_str).collect::<Vec<_>>().join(",")
}

fn refused(w: &World, n: u64) -> Option<String> {
    let end = format!("line {n}: refused ");
    w.log.iter().find_map(|line| line.split_once(&end).map(|(_, reason)| reason.to_owned()))
}

#[test]
fn a_root_has_all_of_its_fan_out_and_its_children_four() {
    let mut w = world();
    let root = to(&mut w, "a", |_| {});
    assert_eq!((w.row(root).turn.budget.depth, w.row(root).turn.budget.fanout), (3, 16));
    let one = child(&mut w, root, "a", "b");
    assert_eq!((w.row(one).turn.budget.depth, w.row(one).turn.budget.fanout), (2, 4));
    assert_eq!((w.row(root).turn.budget.fanout, w.row(root).children), (15, 1));
    let reserve = w.row(root).turn.budget.deadline.since(w.row(one).turn.budget.deadline);
    assert_eq!(reserve, Span::from_millis(300));
}

#[test]
fn a_chain_is_kept_and_no_agent_is_in_it_twice() {
    let mut w = world();
    let root = to(&mut w, "a", |_| {});
    let b = child(&mut w, root, "a", "b");
    let c = child(&mut w, b, "b", "c");
    assert_eq!((chain(&w, root), chain(&w, b), chain(&w, c)), (String::new(), "a".into(), "a,b".into()));
    assert_eq!((w.row(c).root, w.row(c).parent, w.row(c).depth), (task(root), Some(task(b)), 2));
    let (rows, fanout) = (w.rows.len(), w.row(c).turn.budget.fanout);
    for (of, holder, name) in [(root, "a", "a"), (b, "b", "a"), (c, "c", "a"), (c, "c", "b"), (c, "c", "c")] {
        let again = child(&mut w, of, holder, name);
        assert_eq!(refused(&w, again).as_deref(), Some("delegation_cycle"), "{holder} to {name}");
    }
    assert_eq!((w.rows.len(), w.row(c).turn.budget.fanout, w.row(c).children), (rows, fanout, 0), "nothing is kept");
    let d = child(&mut w, c, "c", "d");
    assert_eq!(chain(&w, d), "a,b,c");
}

#[test]
fn an_agent_never_calls_itself_whatever_it_says() {
    let mut w = world();
    let own = to(&mut w, "a", |s| s.claims.from = Some(agent("a")));
    assert_eq!(refused(&w, own).as_deref(), Some("delegation_cycle"));
    let root = to(&mut w, "b", |s| s.claims.from = Some(agent("a")));
    assert_eq!(chain(&w, root), "a", "who called a root is known");
    let back = to(&mut w, "a", |s| {
        s.claims =
            watertight_engine::input::Claims { from: Some(agent("b")), held: held(root, "b"), ..Default::default() };
    });
    assert_eq!(refused(&w, back).as_deref(), Some("delegation_cycle"));
}

#[test]
fn the_refusal_names_the_chain_and_the_budget_in_force() {
    let mut w = world();
    let root = to(&mut w, "a", |s| s.budget.depth = Some(2));
    let b = child(&mut w, root, "a", "b");
    let cycle = why(&mut w, |s| submission_of(s, b, "b", "a"));
    assert_eq!(cycle, Some(Cause::Chain(vec![agent("a"), agent("b"), agent("a")])));
    let Some(Cause::Budget(deep)) = why(&mut w, |s| submission_of(s, b, "b", "c")) else {
        panic!("no budget is named")
    };
    assert_eq!((deep.depth, deep.hops), (0, 2));
    assert_eq!(deep.origin, watertight_engine::output::Origin::Parent(task(b)));
}

fn submission_of(s: &mut Submission, of: u64, holder: &str, name: &str) {
    s.agent = agent(name);
    s.budget = Default::default();
    s.claims.held = held(of, holder);
}

/// What a refusal says beside its reason.
fn why(w: &mut World, change: impl Fn(&mut Submission)) -> Option<Cause> {
    let mut cell = std::mem::replace(&mut w.cell, watertight_engine::cell::Cell::new(w.settings.clone(), 7));
    let submission = w.submission("why", |s| {
        s.budget = Default::default();
        change(s);
    });
    cell.offer(Input::Submitted(submission));
    assert_eq!(cell.step(w.now, true), None, "nothing is stored");
    let told = cell.poll_output();
    w.cell = cell;
    match told {
        Some(Output::Answer { answer: Answer::Refused(refusal), .. }) => refusal.cause.map(|cause| *cause),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn what_is_for_an_ended_delegation_is_refused() {
    let mut w = world();
    let root = to(&mut w, "a", |_| {});
    w.replies(root, TaskState::Completed);
    let late = child(&mut w, root, "a", "b");
    assert_eq!(refused(&w, late).as_deref(), Some("parent_ended"));
    let unsigned = to(&mut w, "b", |s| s.parent = Some(task(root)));
    assert_eq!(refused(&w, unsigned).as_deref(), Some("parent_ended"));
    w.after(10_000);
    let later = child(&mut w, root, "a", "b");
    assert_eq!(refused(&w, later).as_deref(), Some("parent_ended"), "it has left memory");
    let of_another = to(&mut w, "b", |s| {
        s.claims.held = held(root, "a");
        s.claims.from = Some(agent("c"));
    });
    assert_eq!(refused(&w, of_another), None, "another agent's token is not taken");
}

#[test]
fn an_unsigned_claim_only_makes_the_budget_smaller() {
    let mut w = world();
    let wide = to(&mut w, "a", |_| {});
    let narrow = to(&mut w, "b", |s| s.budget.fanout = Some(2));
    let both = to(&mut w, "c", |s| {
        s.claims.held = held(wide, "a");
        s.parent = Some(task(narrow));
    });
    assert_eq!(w.row(both).parent, Some(task(narrow)), "the strictest is charged");
    assert_eq!((w.row(narrow).turn.budget.fanout, w.row(wide).turn.budget.fanout), (1, 16));
    let wider = to(&mut w, "c", |s| {
        s.claims.held = held(narrow, "b");
        s.parent = Some(task(wide));
    });
    assert_eq!((w.row(wider).parent, w.row(wider).turn.budget.fanout), (Some(task(narrow)), 1));
    let foreign = to(&mut w, "c", |s| {
        s.principal.tenant = "globex".into();
        s.parent = Some(task(wide));
    });
    assert_eq!(w.row(foreign).parent, None);
}

#[test]
fn references_tell_the_parent_to_who_works_on_it() {
    let mut w = world();
    let root = to(&mut w, "a", |_| {});
    w.working(root, "ra");
    let by_agent = |from: &'static str, id: String| {
        move |s: &mut Submission| {
            s.principal.caller = from.into();
            s.claims.from = Some(agent(from));
            s.claims.references = vec![id.as_str().into()];
        }
    };
    let ours = to(&mut w, "b", by_agent("a", task(root).to_string()));
    let theirs = to(&mut w, "b", by_agent("a", "ra".into()));
    assert_eq!((w.row(ours).parent, w.row(theirs).parent), (Some(task(root)), Some(task(root))));
    let another = to(&mut w, "b", by_agent("c", "ra".into()));
    assert_eq!((w.row(another).parent, w.row(another).root), (None, task(another)));
    let bob = to(&mut w, "b", |s| {
        s.principal.caller = "bob".into();
        s.claims.references = vec![task(root).to_string().as_str().into()];
    });
    assert_eq!(w.row(bob).parent, Some(task(root)), "of the same tenant");
    let starter = to(&mut w, "b", |s| s.claims.references = vec![task(root).to_string().as_str().into()]);
    assert_eq!((w.row(starter).parent, w.row(starter).root), (None, task(root)), "who started it may just mention it");
}

#[test]
fn what_strips_everything_is_found_by_its_context_and_its_own_work() {
    let mut w = world();
    let root = to(&mut w, "a", |s| s.budget.depth = Some(2));
    w.working(root, "ra");
    let unknown = |s: &mut Submission| s.principal.caller = "somebody".into();
    let by_context = to(&mut w, "b", |s| {
        unknown(s);
        (s.context, s.context_named) = ("ra-ctx".into(), true);
    });
    let row = w.row(by_context);
    assert_eq!((row.parent, row.root, row.depth, row.turn.budget.depth), (None, task(root), 1, 0));
    assert_eq!(w.row(root).turn.budget.fanout, 16, "a guess costs nobody anything");
    let elsewhere = to(&mut w, "b", |s| {
        s.principal.tenant = "globex".into();
        (s.context, s.context_named) = ("ra-ctx".into(), true);
    });
    assert_eq!(w.row(elsewhere).root, task(elsewhere), "a short context may be anybody's");
    let by_work = to(&mut w, "c", |s| {
        s.principal = watertight_engine::ids::Principal { tenant: "agents".into(), caller: "b".into() };
        s.claims.from = Some(agent("b"));
    });
    assert_eq!(refused(&w, by_work).as_deref(), Some("depth_exhausted"), "the strictest of what b has");
    w.replies(by_context, TaskState::Completed);
    w.replies(elsewhere, TaskState::Completed);
    let free = to(&mut w, "c", |s| s.claims.from = Some(agent("b")));
    assert_eq!((w.row(free).root, chain(&w, free)), (task(free), "b".to_owned()));
}

#[test]
fn a_loop_through_one_that_drops_everything_ends() {
    for known in [true, false] {
        let mut w = world();
        let mut last = to(&mut w, "a", |_| {});
        let mut hops = 1;
        let names = ["a", "b", "c"];
        loop {
            let (from, name) = (names[(hops - 1) % 3], names[hops % 3]);
            w.working(last, &format!("r{last}"));
            let context = format!("r{last}-ctx");
            let next = to(&mut w, name, |s| {
                s.principal.caller = from.into();
                if known {
                    s.claims.from = Some(agent(from));
                }
                match from {
                    "b" if !known => (s.context, s.context_named) = (context.as_str().into(), true),
                    "b" => {}
                    _ => s.claims.held = held(last, from),
                }
            });
            if refused(&w, next).is_some() {
                break;
            }
            (last, hops) = (next, hops + 1);
            assert!(hops < 25, "it goes on");
        }
        assert!(hops >= 3, "{hops}");
    }
}

#[test]
fn thanks_for_thanks_stop_at_thirty_and_a_fan_out_does_not() {
    let mut w = world();
    let mut sent = 0;
    loop {
        let (from, name) = if sent % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let n = to(&mut w, name, |s| {
            s.claims.from = Some(agent(from));
            (s.context, s.context_named) = ("thanks".into(), true);
            s.principal.caller = from.into();
        });
        if let Some(reason) = refused(&w, n) {
            assert_eq!(reason, "rate_limited");
            break;
        }
        w.replies(n, TaskState::Completed);
        w.after(100);
        sent += 1;
        assert!(sent <= 60);
    }
    assert_eq!(sent, 60, "thirty each way");
    let cause = why(&mut w, |s| {
        s.agent = agent("b");
        s.claims.from = Some(agent("a"));
        (s.context, s.context_named) = ("thanks".into(), true);
    });
    assert_eq!(cause, Some(Cause::Rate(agent("a"), rate::Params::default())));
    for _ in 0..200 {
        let n = to(&mut w, "b", |s| (s.context, s.context_named) = ("thanks".into(), true));
        assert_eq!(refused(&w, n), None, "who is no agent is not counted");
        w.replies(n, TaskState::Completed);
    }
    w.after(120_000);
    let n = to(&mut w, "b", |s| {
        s.claims.from = Some(agent("a"));
        (s.context, s.context_named) = ("thanks".into(), true);
    });
    assert_eq!(refused(&w, n), None, "the window slides");
}

#[test]
fn thanks_in_ever_new_contexts_stop_as_well() {
    // By whether the gateway knows who calls, and whether a call names the context that its sender was called in.
    for (known, echoes) in [(true, true), (false, true), (true, false)] {
        let mut w = world();
        let (mut sent, mut heard_in) = (0, None);
        loop {
            let (from, name) = if sent % 2 == 0 { ("a", "b") } else { ("b", "a") };
            let n = to(&mut w, name, |s| {
                s.principal.caller = from.into();
                s.claims.from = known.then(|| agent(from));
                if let Some(context) = heard_in.clone().filter(|_| echoes) {
                    (s.context, s.context_named) = (context, true);
                }
            });
            if let Some(reason) = refused(&w, n) {
                assert_eq!(reason, "rate_limited", "{known} {echoes}");
                break;
            }
            let depth = w.row(n).turn.budget.depth;
            assert_eq!(depth, 3, "what is over is no reason to be given less");
            // Its own turn is over before it goes on.
            w.replies(n, TaskState::Completed);
            w.after(100);
            (sent, heard_in) = (sent + 1, Some(format!("r{n}-ctx").into()));
            assert!(sent <= 62, "{known} {echoes}: it goes on");
        }
    }
}

#[test]
fn who_is_called_by_no_agent_begins_as_much_as_it_likes() {
    let mut w = world();
    let begin = |w: &mut World, from: &'static str, name: &str| {
        let n = to(w, name, |s| s.claims.from = Some(agent(from)));
        if refused(w, n).is_none() {
            w.replies(n, TaskState::Completed);
        }
        refused(w, n)
    };
    for _ in 0..100 {
        assert_eq!(begin(&mut w, "a", "b"), None);
    }
    // One that was itself called may be in a loop.
    assert_eq!(begin(&mut w, "c", "a"), None);
    let reasons: Vec<Option<String>> = (0..40).map(|_| begin(&mut w, "a", "b")).collect();
    assert_eq!(reasons.iter().filter(|reason| reason.is_none()).count(), 30);
    w.after(120_000);
    assert_eq!(begin(&mut w, "a", "b"), None);
}

#[test]
fn a_replay_does_not_count() {
    let mut w = world_with(|s| s.rate.limit = 1);
    let from = |s: &mut Submission| {
        s.agent = agent("b");
        s.claims.from = Some(agent("a"));
        (s.context, s.context_named) = ("c".into(), true);
    };
    w.send_with("once", from);
    for _ in 0..3 {
        let again = w.send_with("once", from);
        assert_eq!(refused(&w, again), None);
    }
    let other = w.send_with("twice", from);
    assert_eq!(refused(&w, other).as_deref(), Some("rate_limited"));
}

/// Every agent asks for as many children as it may, down to where it may not.
fn grow(w: &mut World, of: u64, holder: &str, wanted: usize) -> u64 {
    let mut started = 0;
    for _ in 0..wanted {
        let name = match holder {
            "a" => "b",
            "b" => "c",
            _ => "d",
        };
        let n = child(w, of, holder, name);
        if refused(w, n).is_none() {
            started += 1 + if name == "d" { 0 } else { grow(w, n, name, wanted) };
        }
        w.log.clear();
    }
    started
}

#[test]
fn ten_children_each_stop_at_the_caps() {
    let mut w = world_with(|s| s.rate.limit = 0);
    let root = to(&mut w, "a", |_| {});
    assert_eq!(grow(&mut w, root, "a", 10), 10 + 10 * 4 + 10 * (4 + 3 + 2 + 1));
    let mut w = world();
    let root = to(&mut w, "a", |_| {});
    let started = grow(&mut w, root, "a", 10);
    assert!(started <= 10 + 30 + 30, "and the rate of one tree is below that: {started}");
}

#[test]
fn ten_calls_are_ten_calls() {
    let mut w = world();
    let root = to(&mut w, "a", |s| s.budget.fanout = Some(10));
    let reasons: Vec<Option<String>> = (0..30)
        .map(|n| {
            let n = child(&mut w, root, "a", ["b", "c", "d"][n % 3]);
            refused(&w, n)
        })
        .collect();
    assert_eq!(reasons.iter().filter(|reason| reason.is_none()).count(), 10);
    assert!(reasons[10..].iter().all(|reason| reason.as_deref() == Some("fanout_exhausted")));
    assert_eq!((w.row(root).children, w.row(root).turn.budget.fanout), (10, 0));
}

// ---- what ends with what -------------------------------------------------------------------------------------------

fn cancel(w: &mut World, n: u64, name: &str) {
    w.cancel_with(n, name);
}

#[test]
fn a_cancel_takes_along_what_waits_and_what_runs() {
    let mut w = world_with(|s| {
        s.agents.get_mut(&agent("c")).unwrap().bulkhead.max_in_flight = 1;
    });
    let root = to(&mut w, "a", |_| {});
    w.working(root, "ra");
    let runs = child(&mut w, root, "a", "b");
    w.working(runs, "rb");
    let below = child(&mut w, runs, "b", "c");
    w.working(below, "rc");
    let waits = to(&mut w, "c", |s| {
        s.claims.held = held(root, "a");
        s.want = Want::Accepted;
    });
    let alone = to(&mut w, "b", |_| {});
    w.log.clear();
    cancel(&mut w, root, "a");
    w.told(&format!("0 cancel t{root} ra"));
    w.cancel_answered(root, CancelAnswer::Ended(TaskState::Canceled));
    assert_eq!(w.row(waits).state, TaskState::Canceled, "at once, and its agent never hears of it");
    assert_eq!(w.row(runs).cancel.as_str(), "owed");
    assert!(w.log.iter().any(|line| line.ends_with(&format!("cancel t{runs} rb"))), "{:?}", w.log);
    assert!(!w.log.iter().any(|line| line.contains(&format!("cancel t{waits}"))));
    assert_eq!(w.row(below).cancel.as_str(), "none", "its own parent is not over yet");
    w.cancel_answered(runs, CancelAnswer::Ended(TaskState::Canceled));
    w.cancel_answered(below, CancelAnswer::Ended(TaskState::Canceled));
    assert_eq!((w.row(runs).state, w.row(below).state), (TaskState::Canceled, TaskState::Canceled));
    assert_eq!(w.row(alone).state, TaskState::Submitted);
}

#[test]
fn a_child_that_goes_on_is_not_called_canceled() {
    let mut w = world();
    let root = to(&mut w, "a", |_| {});
    let runs = child(&mut w, root, "a", "b");
    w.working(runs, "rb");
    w.working(root, "ra");
    cancel(&mut w, root, "a");
    w.cancel_answered(root, CancelAnswer::Ended(TaskState::Canceled));
    w.cancel_answered(runs, CancelAnswer::GoesOn);
    w.after(5_000);
    assert_eq!((w.row(runs).state, w.row(runs).cancel.as_str()), (TaskState::Working, "refused"));
    w.replies(runs, TaskState::Completed);
    assert_eq!(w.row(runs).state, TaskState::Completed);
}

#[test]
fn an_agents_own_end_leaves_its_children_alone_and_a_spent_budget_does_not() {
    for (end, left_alone) in [("word", true), ("budget", false)] {
        let mut w = world();
        let root = to(&mut w, "a", |s| s.budget.remaining_s = Some(5.0));
        w.working(root, "ra");
        let runs = child(&mut w, root, "a", "b");
        w.working(runs, "rb");
        w.log.clear();
        match end {
            "word" => w.replies(root, TaskState::Completed),
            _ => {
                // A child that gives its parent no reserve to outlive it.
                w.after(5_000);
            }
        }
        let told = w.log.iter().any(|line| line.contains(&format!("cancel t{runs}")));
        assert_eq!(told, !left_alone, "{end}: {:?}", w.log);
    }
}

#[test]
fn a_tree_of_a_thousand_ends_within_its_steps() {
    let mut w = world_with(|s| {
        s.rate.limit = 0;
        for agent in s.agents.values_mut() {
            agent.budget.fanout = 1_000;
            agent.bulkhead.max_in_flight = 2_000;
        }
    });
    let root = to(&mut w, "a", |_| {});
    w.working(root, "ra");
    for n in 0..1_000 {
        child(&mut w, root, "a", ["b", "c", "d"][n % 3]);
    }
    assert_eq!(w.row(root).children, 1_000);
    cancel(&mut w, root, "a");
    w.cancel_answered(root, CancelAnswer::Ended(TaskState::Canceled));
    w.after(1_000);
    let canceled = w.rows.values().filter(|row| row.state == TaskState::Canceled).count();
    assert_eq!(canceled, 1_001);
}

#[test]
fn a_crash_between_a_parents_end_and_its_childs_forgets_neither() {
    let mut w = world();
    let root = to(&mut w, "a", |_| {});
    w.working(root, "ra");
    let runs = child(&mut w, root, "a", "b");
    w.working(runs, "rb");
    cancel(&mut w, root, "a");
    w.cancel_answered(root, CancelAnswer::Ended(TaskState::Canceled));
    // As if the child's part had never been decided.
    let row = w.rows.get_mut(&task(runs)).unwrap();
    row.cancel = Default::default();
    w.ended_parents = vec![TaskId(root.into())];
    w.log.clear();
    w.crash(false);
    assert!(w.log.iter().any(|line| line.ends_with(&format!("cancel t{runs} rb"))), "{:?}", w.log);
}

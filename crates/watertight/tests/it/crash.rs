//! Killed as by a power cut, and started again: what was promised is kept, what was sent is not sent again, what is owed is paid.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::agent::{Agent, OnCancel, Step, slow};
use crate::client::{answer_text, id, is_terminal, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::{Card, Peer};

#[test]
fn a_task_id_that_was_given_out_survives() {
    for card in [Card::Streaming, Card::Plain] {
        let agent = Agent::start(card, |text| slow(text, ms(2000)));
        let mut gateway = Config::new().agent("slow", &agent.url(), &[]).start();
        let task = gateway.client().submit("slow", "long work").expect("a task");
        assert!(!is_terminal(state(&task)), "{task}");
        // Not only the agent has it: the gateway knows how the task is called there.
        let client = gateway.client();
        let works = || (state(&client.get("slow", id(&task)).unwrap()) == "WORKING").then_some(());
        eventually(ms(2000), "the agent is known to work", works);
        gateway.kill();
        gateway.start();
        let client = gateway.client();
        let known = client.get("slow", id(&task)).expect("the task is still known");
        assert_eq!(known["id"], task["id"]);
        let ended = client.ended("slow", id(&task), Duration::from_secs(20));
        assert_eq!((state(&ended), answer_text(&ended)), ("COMPLETED", "done: long work".into()), "{card:?}: {ended}");
        assert_eq!(agent.peer.executions(), 1, "{card:?}: executed once");
    }
}

#[test]
fn a_finished_task_survives() {
    let agent = Agent::echo();
    let mut gateway = Config::new().agent("echo", &agent.url(), &[]).start();
    let task = gateway.client().send("echo", "remember me").expect("an answer");
    gateway.kill();
    gateway.start();
    let known = gateway.client().get("echo", id(&task)).expect("the task is still known");
    assert_eq!((state(&known), answer_text(&known)), ("COMPLETED", "echo: remember me".into()));
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn a_send_that_was_cut_off_ends_as_unknown_and_is_not_repeated() {
    // An agent that never names its task: after the crash there is nothing to ask for.
    let agent = Peer::start(Card::Missing, |request, wire| {
        if !request.executes() {
            return wire.error(-32001, "no such task");
        }
        wire.hold(Duration::from_secs(60));
        crate::peer::After::Close
    });
    let mut gateway = Config::new().agent("vague", &agent.url(), &["budget = \"20s\""]).start();
    let client = gateway.client();
    let blocked = thread::spawn(move || {
        client.call("vague", "SendMessage", &json!({"message": crate::client::message("work")}), &[])
    });
    eventually(ms(5000), "the agent was sent the message", || (agent.executions() == 1).then_some(()));
    gateway.kill();
    assert!(blocked.join().unwrap().is_err(), "the line went dead with the gateway");
    gateway.start();
    let client = gateway.client();
    let tasks = client.list("vague");
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    let ended = client.ended("vague", id(&tasks[0]), Duration::from_secs(30));
    assert_eq!(state(&ended), "FAILED", "{ended}");
    assert!(ended.to_string().contains("outcome_unknown"), "the reason is in the task: {ended}");
    assert_eq!(agent.executions(), 1, "never sent again");
}

#[test]
fn an_owed_cancel_is_still_sent() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, Duration::from_secs(60)));
    agent.on_cancel(OnCancel::Hang);
    let mut gateway = Config::new().agent("slow", &agent.url(), &[]).start();
    let client = gateway.client();
    let task = client.submit("slow", "long work").expect("a task");
    eventually(ms(3000), "the agent works", || (agent.running() == 1).then_some(()));
    let task_id = id(&task).to_owned();
    let canceling = thread::spawn(move || client.call("slow", "CancelTask", &json!({"id": task_id}), &[]));
    eventually(ms(5000), "the agent was asked to cancel", || (agent.peer.count("CancelTask") > 0).then_some(()));
    gateway.kill();
    let _dead = canceling.join().unwrap();
    let before = agent.peer.count("CancelTask");
    agent.on_cancel(OnCancel::Stop);
    gateway.start();
    eventually(ms(10_000), "the cancel is sent again", || (agent.peer.count("CancelTask") > before).then_some(()));
    eventually(ms(5000), "the agent stops", || (agent.in_state("CANCELED") == 1 && agent.running() == 0).then_some(()));
    let ended = gateway.client().ended("slow", id(&task), ms(10_000));
    assert!(["CANCELED", "FAILED"].contains(&state(&ended)), "{ended}");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn a_queued_task_survives_and_runs_once() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1000)));
    let mut gateway = Config::new().agent("narrow", &agent.url(), &["max_in_flight = 1"]).start();
    let client = gateway.client();
    let tasks: Vec<_> = (0..4).map(|n| client.submit("narrow", &format!("job {n}")).expect("a task")).collect();
    eventually(ms(3000), "the first one runs", || (agent.running() == 1).then_some(()));
    gateway.kill();
    gateway.start();
    let client = gateway.client();
    for (n, task) in tasks.iter().enumerate() {
        let ended = client.ended("narrow", id(task), Duration::from_secs(20));
        assert_eq!((state(&ended), answer_text(&ended)), ("COMPLETED", format!("done: job {n}")), "{ended}");
    }
    assert_eq!((agent.peer.executions(), agent.most_running()), (4, 1));
}

#[test]
fn a_question_can_be_answered_after_a_restart() {
    let agent = Agent::start(Card::Streaming, |text| match text {
        "book" => vec![Step::Ask("which day?")],
        day => vec![Step::Chunk(format!("booked for {day}")), Step::End("COMPLETED")],
    });
    let mut gateway = Config::new().agent("clerk", &agent.url(), &[]).start();
    let asked = gateway.client().send("clerk", "book").expect("a task");
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    gateway.kill();
    gateway.start();
    let mut reply = crate::client::message("Monday");
    reply["taskId"] = asked["id"].clone();
    let done = gateway.client().rpc("clerk", "SendMessage", &json!({"message": reply})).expect("the task goes on");
    assert_eq!((state(&done["task"]), answer_text(&done["task"])), ("COMPLETED", "booked for Monday".into()));
    assert_eq!(agent.peer.executions(), 2);
}

//! Cancels: they reach the agent, they do not lie, and the first end of a task is its only one.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, OnCancel, length, slow};
use crate::client::{answer_text, fresh, id, message, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::Config;
use crate::peer::{After, Card, Peer};

#[test]
fn a_cancel_reaches_the_agent_and_ends_the_task() {
    for card in [Card::Plain, Card::Streaming] {
        let agent = Agent::start(card, |text| slow(text, Duration::from_secs(30)));
        let gateway = Config::new().agent("slow", &agent.url(), &["max_in_flight = 1"]).start();
        let client = gateway.client();
        let task = client.submit("slow", "long work").expect("a task");
        eventually(ms(3000), "the agent works", || (agent.running() == 1).then_some(()));
        let start = now();
        let canceled = client.cancel("slow", id(&task)).expect("an answer");
        assert!(start.elapsed() < ms(3000), "{:?}", start.elapsed());
        assert_eq!(canceled["id"], task["id"]);
        let ended = client.ended("slow", id(&task), ms(3000));
        assert_eq!(state(&ended), "CANCELED", "{card:?}: {ended}");
        eventually(ms(3000), "the agent stopped", || (agent.in_state("CANCELED") == 1).then_some(()));
        gateway.assert_drains("slow", ms(5000));
    }
}

#[test]
fn a_race_with_the_end_has_one_winner_that_all_see() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, length(text)));
    let gateway = Config::new().agent("racer", &agent.url(), &[]).start();
    let client = gateway.client();
    for n in 0..30 {
        let task = client.submit("racer", &format!("slow {}", 90 + n)).expect("a task");
        let reader = client.subscribe("racer", id(&task));
        thread::sleep(ms(100));
        let canceled = client.cancel("racer", id(&task));
        if let Err(fault) = &canceled {
            assert_eq!(fault.code, -32002, "a lost race is `not cancelable`: {fault:?}");
        }
        let ended = client.ended("racer", id(&task), ms(5000));
        assert!(["COMPLETED", "CANCELED"].contains(&state(&ended)), "{ended}");
        // The reader may have come too late for a stream; if it has one, it says the same.
        if reader.is_stream() {
            assert_eq!(reader.rest().last_state(), state(&ended));
        }
        assert_eq!(state(&client.get("racer", id(&task)).unwrap()), state(&ended), "an end is an end");
        if canceled.is_ok_and(|task| state(&task) == "CANCELED") {
            assert_eq!(state(&ended), "CANCELED");
        }
    }
}

#[test]
fn a_cancel_that_stops_nothing_is_not_called_a_success() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1500)));
    agent.on_cancel(OnCancel::Ignore);
    let gateway = Config::new().agent("stubborn", &agent.url(), &[]).start();
    let client = gateway.client();
    let task = client.submit("stubborn", "work").expect("a task");
    eventually(ms(3000), "the agent works", || (agent.running() == 1).then_some(()));
    let answer = client.cancel("stubborn", id(&task));
    if let Ok(answer) = &answer {
        let marked = answer.get("metadata").is_some_and(|m| m.to_string().contains("watertight"));
        assert!(state(answer) != "CANCELED" || marked, "the agent is still working: {answer}");
    }
    let ended = client.ended("stubborn", id(&task), ms(10_000));
    if state(&ended) == "COMPLETED" {
        assert_eq!(answer_text(&ended), "done: work");
    }
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn a_cancel_that_is_never_answered_is_bounded() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(4000)));
    agent.on_cancel(OnCancel::Hang);
    let echo = Agent::echo();
    let gateway = Config::new().agent("deaf", &agent.url(), &[]).agent("echo", &echo.url(), &[]).start();
    let client = gateway.client();
    let task = client.submit("deaf", "work").expect("a task");
    eventually(ms(3000), "the agent works", || (agent.running() == 1).then_some(()));
    let start = now();
    let _any = client.cancel("deaf", id(&task));
    assert!(start.elapsed() < ms(12_000), "{:?}", start.elapsed());
    assert!(client.send("echo", "meanwhile").is_ok());
}

#[test]
fn a_queued_task_is_cancelled_without_the_agent() {
    let agent = Agent::start(Card::Plain, |text| slow(text, length(text)));
    let gateway = Config::new().agent("narrow", &agent.url(), &["max_in_flight = 1"]).start();
    let client = gateway.client();
    let first = client.submit("narrow", "slow 1500").expect("a task");
    eventually(ms(3000), "the first one runs", || (agent.running() == 1).then_some(()));
    let second = client.submit("narrow", "slow 0").expect("a place in the queue");
    assert_eq!(state(&second), "SUBMITTED");
    let start = now();
    let canceled = client.cancel("narrow", id(&second)).expect("an answer");
    assert!(start.elapsed() < ms(1000));
    assert_eq!(state(&canceled), "CANCELED");
    assert_eq!(state(&client.ended("narrow", id(&first), ms(5000))), "COMPLETED");
    thread::sleep(ms(300));
    assert_eq!(
        (agent.peer.executions(), agent.peer.count("CancelTask")),
        (1, 0),
        "the agent never heard of the second one"
    );
}

#[test]
fn an_end_cannot_be_cancelled() {
    let agent = Agent::start(Card::Plain, |text| match text {
        "fine" => slow(text, ms(0)),
        "fails" => vec![crate::agent::Step::End("FAILED")],
        "refuses" => vec![crate::agent::Step::End("REJECTED")],
        _ => slow(text, Duration::from_secs(30)),
    });
    let gateway = Config::new().agent("all", &agent.url(), &[]).start();
    let client = gateway.client();
    for (text, expected) in [("fine", "COMPLETED"), ("fails", "FAILED"), ("refuses", "REJECTED")] {
        let task = client.submit("all", text).expect("a task");
        let task = client.ended("all", id(&task), ms(5000));
        assert_eq!(state(&task), expected);
        for _ in 0..2 {
            assert_eq!(client.cancel("all", id(&task)).expect_err("it has ended").code, -32002);
            assert_eq!(state(&client.get("all", id(&task)).unwrap()), expected);
        }
    }
    let task = client.submit("all", "long").expect("a task");
    client.cancel("all", id(&task)).expect("an answer");
    client.ended("all", id(&task), ms(5000));
    for _ in 0..2 {
        match client.cancel("all", id(&task)) {
            Ok(task) => assert_eq!(state(&task), "CANCELED"),
            Err(fault) => assert_eq!(fault.code, -32002),
        }
    }
    assert_eq!(client.cancel("all", "no-such-task").expect_err("unknown").code, -32001);
}

#[test]
fn a_cancelled_task_leaves_its_conversation_usable() {
    let agent = Agent::start(Card::Plain, |text| slow(text, length(text)));
    let gateway = Config::new().agent("chatty", &agent.url(), &[]).start();
    let client = gateway.client();
    let context = fresh("context");
    let say = |text: &str, now: bool| {
        let mut message = message(text);
        message["contextId"] = json!(context);
        client.rpc("chatty", "SendMessage", &json!({"message": message, "configuration": {"returnImmediately": now}}))
    };
    let task = say("slow 30000", true).expect("a task");
    eventually(ms(3000), "the agent works", || (agent.running() == 1).then_some(()));
    client.cancel("chatty", id(&task["task"])).expect("an answer");
    let next = say("slow 10", false).expect("the conversation goes on");
    assert_eq!(answer_text(&next["task"]), "done: slow 10");
    assert_eq!(next["task"]["contextId"], json!(context), "the caller's own context");
}

#[test]
fn a_cancel_does_not_wait_for_the_next_event() {
    // An agent that says WORKING and then nothing; it answers a cancel, but its stream stays silent and open.
    let agent = Peer::start(Card::Streaming, |request, wire| match request.method() {
        "SendStreamingMessage" => {
            wire.events();
            wire.event(
                &json!({"task": {"id": "silent-1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}),
            );
            wire.hold(Duration::from_secs(60));
            After::Close
        }
        "CancelTask" => {
            wire.ok(&json!({"id": "silent-1", "contextId": "c", "status": {"state": "TASK_STATE_CANCELED"}}))
        }
        _ => wire.error(-32001, "no such task"),
    });
    let gateway = Config::new().agent("silent", &agent.url(), &[]).start();
    let client = gateway.client();
    let mut events = client.stream("silent", "go");
    let task = id(&events.next().unwrap().unwrap()["task"]).to_owned();
    let reader = thread::spawn(move || events.rest());
    thread::sleep(ms(200));
    let start = now();
    client.cancel("silent", &task).expect("an answer");
    let ended = reader.join().unwrap();
    assert!(ended.at - start < ms(3000), "the stream was open for another {:?}", ended.at - start);
    assert_eq!(ended.last_state(), "CANCELED", "{ended:?}");
}

#[test]
fn a_spent_budget_cuts_the_work_and_tells_the_agent() {
    let agent = Agent::start(Card::Plain, |text| slow(text, Duration::from_secs(30)));
    let gateway = Config::new().agent("slow", &agent.url(), &["budget = \"1s\"", "max_in_flight = 1"]).start();
    let client = gateway.client();
    let start = now();
    let fault = client.send("slow", "long work").expect_err("there is no time for it");
    let took = start.elapsed();
    assert!(took >= ms(900) && took < ms(2500), "{took:?}");
    assert_eq!(
        (fault.reason.as_str(), fault.delivery.as_str(), fault.agent.as_str()),
        ("deadline_exceeded", "delivered", "slow"),
        "{fault:?}"
    );
    eventually(ms(5000), "the agent was told to stop", || (agent.peer.count("CancelTask") >= 1).then_some(()));
    eventually(ms(5000), "the agent stopped", || (agent.running() == 0).then_some(()));
    gateway.assert_drains("slow", ms(5000));
}

#[test]
fn the_end_of_a_wait_is_not_the_end_of_the_work() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(1500)));
    let gateway = Config::new().agent("slow", &agent.url(), &["wait = \"500ms\"", "budget = \"20s\""]).start();
    let client = gateway.client();
    let start = now();
    let task = client.send("slow", "long work").expect("a task that goes on");
    assert!(start.elapsed() >= ms(400) && start.elapsed() < ms(1400), "{:?}", start.elapsed());
    assert!(["WORKING", "SUBMITTED"].contains(&state(&task)), "{task}");
    let ended = client.ended("slow", id(&task), ms(8000));
    assert_eq!((state(&ended), answer_text(&ended)), ("COMPLETED", "done: long work".into()));
    assert_eq!((agent.peer.executions(), agent.peer.count("CancelTask")), (1, 0));
}

/// An agent that begins an answer and falls silent, and is odd about being told to stop.
fn odd(on_cancel: &'static str) -> Peer {
    Peer::start(Card::Streaming, move |request, wire| {
        let canceled = |id: &str| json!({"id": id, "contextId": "c", "status": {"state": "TASK_STATE_CANCELED"}});
        match (request.method(), on_cancel) {
            ("SendStreamingMessage", _) => {
                wire.events();
                let status = json!({"state": "TASK_STATE_WORKING"});
                wire.event(&json!({"task": {"id": "odd-1", "contextId": "c", "status": status}}));
                let begun = json!({"artifactId": "out", "parts": [{"text": "half of"}]});
                wire.event(&json!({"artifactUpdate": {"taskId": "odd-1", "contextId": "c", "artifact": begun}}));
                wire.hold(Duration::from_secs(60));
                After::Close
            }
            ("CancelTask", "nothing at all") => {
                wire.hold(Duration::from_secs(60));
                After::Close
            }
            ("CancelTask", "null") => wire.ok(&json!(null)),
            ("CancelTask", "a list") => wire.ok(&json!([canceled("odd-1")])),
            ("CancelTask", "another task") => wire.ok(&canceled("odd-2")),
            ("CancelTask", "a web page") => wire.answer(200, "text/html", b"<html>all is well</html>"),
            ("CancelTask", "a fault") => wire.answer(500, "text/html", b"<html>it is not</html>"),
            _ => wire.error(-32001, "no such task"),
        }
    })
}

const ODD: [&str; 6] = ["null", "a list", "another task", "a web page", "a fault", "nothing at all"];

#[test]
fn whatever_a_cancel_is_answered_with_the_verdict_before_it_stands() {
    let agents = ODD.map(odd);
    let names = ["a0", "a1", "a2", "a3", "a4", "a5"];
    let config = names.iter().zip(&agents).fold(Config::new(), |config, (name, agent)| {
        let settings: &[&str] = if *name == "a4" { &[] } else { &["budget = \"1s\""] };
        config.agent(name, &agent.url(), settings)
    });
    // The same agent once more, for who waits on the line.
    let gateway = config.agent("line", &agents[0].url(), &["budget = \"1s\""]).start();
    let client = gateway.client();
    thread::scope(|scope| {
        for (name, what) in names.into_iter().zip(ODD) {
            let client = &client;
            // One is stopped by its caller, all others by their budget.
            let by_caller = name == "a4";
            scope.spawn(move || {
                let start = now();
                let mut events = client.stream(name, "go");
                let task = id(&events.next().unwrap().unwrap()["task"]).to_owned();
                let (expected, reason, limit) = match by_caller {
                    false => ("FAILED", "deadline_exceeded", ms(1000) + ms(2000)),
                    true => {
                        eventually(ms(3000), "a piece of the answer is here", || {
                            (!answer_text(&client.get(name, &task).unwrap()).is_empty()).then_some(())
                        });
                        client.cancel(name, &task).expect("an answer");
                        ("CANCELED", "canceled", ms(10_000))
                    }
                };
                let ended = events.rest();
                // The agent said nothing more, and its stream is still open.
                assert!(ended.at - start < limit, "{what}: the stream was open for {:?}", ended.at - start);
                assert_eq!((ended.last_state().as_str(), ended.text().as_str()), (expected, "half of"), "{what}");
                let told = ended.events.last().unwrap().as_ref().unwrap()["statusUpdate"].clone();
                assert_eq!(told["metadata"]["watertight"]["reason"], reason, "{what}: {told}");
                assert_eq!(told["metadata"]["watertight"]["partial"], true, "{what}: {told}");
                let kept = || {
                    let kept = client.get(name, &task).unwrap();
                    let ours = &kept["metadata"]["watertight"];
                    assert_eq!(
                        (state(&kept), &ours["reason"], &ours["partial"], answer_text(&kept)),
                        (expected, &json!(reason), &json!(true), "half of".to_owned()),
                        "{what}: {kept}"
                    );
                    ours["cancel"].clone()
                };
                kept();
                // Longer than one try: what the agent answered has been heard by now.
                thread::sleep(ms(700));
                assert!(["owed", "unknown"].contains(&kept().as_str().unwrap()), "{what}");
            });
        }
    });
    let fault = client.send("line", "go").expect_err("there is no time for it");
    assert_eq!((fault.reason.as_str(), fault.delivery.as_str()), ("deadline_exceeded", "delivered"), "{fault:?}");
    for (agent, what) in agents.iter().zip(ODD) {
        assert!(agent.count("CancelTask") > 0, "{what}");
    }
}

#[test]
fn what_is_said_with_a_cancel_reaches_the_agent() {
    let agent = Agent::start(Card::Plain, |text| slow(text, Duration::from_secs(30)));
    let gateway = Config::new().agent("slow", &agent.url(), &[]).start();
    let client = gateway.client();
    let said = json!({"why": "too slow", "x-queue": {"priority": 1}, "x-delegation": "mine", "watertight": {"a": 1}});
    for rest in [false, true] {
        let task = client.submit("slow", "long work").expect("a task");
        eventually(ms(3000), "the agent works", || (agent.running() == 1).then_some(()));
        let line = format!("POST /tasks/{}:cancel", id(&task));
        let canceled = match rest {
            false => client.rpc("slow", "CancelTask", &json!({"id": id(&task), "metadata": said})),
            true => client.rest("slow", &line, &json!({"metadata": said}).to_string(), &[]).bare(),
        };
        assert_eq!(state(&canceled.expect("an answer")), "CANCELED");
        let all = agent.peer.received();
        let heard = all.iter().rfind(|request| request.method() == "CancelTask").unwrap();
        assert_eq!(heard.params()["metadata"], json!({"why": "too slow"}), "{}", heard.body);
        eventually(ms(3000), "the agent stopped", || (agent.running() == 0).then_some(()));
    }
    let task = client.submit("slow", "long work").expect("a task");
    let large = json!({"id": id(&task), "metadata": {"why": "x".repeat(20_000)}});
    let fault = client.rpc("slow", "CancelTask", &large).expect_err("too much");
    assert_eq!((fault.code, fault.message.contains("metadata")), (-32602, true), "{fault:?}");
}

/// What was done for nothing is at least not lost: whoever looks finds it, and a model reads it framed.
#[test]
fn what_an_agent_says_after_it_was_cut_is_kept_beside_the_verdict() {
    // It is listened to until it has answered the cancel, or that is given up.
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(1_600)));
    agent.on_cancel(OnCancel::Hang);
    let gateway = Config::new().agent("a", &agent.url(), &[]).start();
    let client = gateway.client();
    let mut said = message("rooms");
    said["metadata"] = json!({"x-budget": {"remaining_s": 1.2, "depth": 2, "fanout": 4}});
    let cut = client.rpc("a", "SendMessage", &json!({"message": said})).unwrap_err();
    assert_eq!(cut.reason, "deadline_exceeded");
    let shown = || {
        let answer = client.http("GET", &format!("/v1/delegations/{}", cut.task), &[], b"").unwrap();
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    let late = eventually(ms(10_000), "it is kept", || Some(shown()["late"].clone()).filter(|late| !late.is_null()));
    assert_eq!((&late["state"], &late["text"]), (&json!("TASK_STATE_COMPLETED"), &json!("done: rooms")));
    let now = shown();
    assert_eq!((&now["state"], &now["reason"]), (&json!("TASK_STATE_FAILED"), &json!("deadline_exceeded")));
    let task = client.get("a", &cut.task).unwrap();
    assert!(!answer_text(&task).contains("done: rooms"), "it is no result: {task}");
    let call = json!({"name": "check_task_status", "arguments": {"task_id": cut.task}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let told = client.http("POST", "/mcp", &headers, call.as_bytes()).unwrap();
    let told: Value = serde_json::from_slice(&told.body).unwrap();
    let text = told["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("FAILED: ") && text.contains("Too late, it said that it is COMPLETED"), "{text}");
    assert!(text.contains("result, 11 bytes") && text.ends_with(">>>"), "{text}");
}

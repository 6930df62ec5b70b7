//! Streams: what was said arrives, in order; an end that is no end is never passed off as one; a reader that leaves harms nobody.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::client::{End, Ended, answer_text, fresh, id, is_terminal, message, state};
use crate::clock::{ms, now};
use crate::gateway::Config;
use crate::peer::{After, Card, Peer, Wire};

/// One stream of a scripted agent: the wire, and a task with an id of its own.
struct Line<'a> {
    wire: &'a mut Wire,
    task: String,
}

impl Line<'_> {
    fn task(&mut self, state: &str) -> bool {
        self.wire.event(
            &json!({"task": {"id": self.task, "contextId": "c-1", "status": {"state": format!("TASK_STATE_{state}")}}}),
        )
    }

    fn status(&mut self, state: &str) -> bool {
        self.wire.event(&json!({
            "statusUpdate": {"taskId": self.task, "contextId": "c-1", "status": {"state": format!("TASK_STATE_{state}")}}
        }))
    }

    fn piece(&mut self, text: &str, append: bool) -> bool {
        let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
        self.wire.event(&json!({
            "artifactUpdate": {"taskId": self.task, "contextId": "c-1", "artifact": artifact, "append": append}
        }))
    }
}

/// A finished task, as an agent tells of it.
fn finished(task: &str, text: &str) -> Value {
    json!({
        "id": task, "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": text}]}],
    })
}

/// A streaming agent that plays this on every stream; asked for a task, it knows it as finished with this text, or not at all.
fn scripted(known: Option<&'static str>, play: impl Fn(&mut Line<'_>) -> After + Send + Sync + 'static) -> Peer {
    Peer::start(Card::Streaming, move |request, wire| match (request.method(), known) {
        ("SendStreamingMessage", _) => {
            wire.events();
            play(&mut Line { wire, task: fresh("t") })
        }
        ("GetTask", Some(text)) => wire.ok(&finished(request.params()["id"].as_str().unwrap_or(""), text)),
        _ => wire.error(-32001, "no such task"),
    })
}

fn half_an_answer(line: &mut Line<'_>) -> After {
    line.task("WORKING");
    line.piece("half ", false);
    After::Close
}

#[test]
fn an_early_end_is_made_good_by_asking() {
    let agent = scripted(Some("half and half"), half_an_answer);
    let gateway = Config::new().agent("short", &agent.url(), &[]).start();
    let ended = gateway.client().stream("short", "go").rest();
    assert_eq!(ended.last_state(), "COMPLETED", "{ended:?}");
    assert_eq!(ended.text(), "half and half", "{ended:?}");
    assert_eq!(agent.executions(), 1);
}

#[test]
fn events_of_an_unknown_kind_are_passed_over_and_are_no_answer_alone() {
    let agent = Peer::start(Card::Streaming, |request, wire| {
        let (news, more) = (json!({"progressUpdate": {"percent": 40}}), json!({"taskHint": {}, "kind": "hint"}));
        wire.events();
        let text = request.text().to_owned();
        let mut line = Line { wire, task: fresh("t") };
        line.wire.event(&news);
        if text == "known ones too" {
            line.task("WORKING");
            line.wire.event(&more);
            line.piece("whole", false);
            line.wire.event(&json!({"somethingElse": 1}));
            line.status("COMPLETED");
        }
        After::Close
    });
    let gateway = Config::new().agent("newer", &agent.url(), &[]).start();
    let client = gateway.client();
    let ended = client.stream("newer", "known ones too").rest();
    assert_eq!((ended.last_state(), ended.text()), ("COMPLETED".into(), "whole".into()), "{ended:?}");
    gateway.counts("unknown_events_total", "newer", 3.0);
    let task = client.send("newer", "known ones too").expect("a blocking caller is served like that, too");
    assert_eq!(answer_text(&task), "whole");
    let fault = client.send("newer", "none").expect_err("it has said nothing");
    assert_eq!((fault.code, fault.reason.as_str()), (-32006, "agent_malformed"), "{fault:?}");
}

#[test]
fn an_early_end_that_cannot_be_made_good_is_an_error() {
    let agent = scripted(None, half_an_answer);
    let gateway = Config::new().agent("short", &agent.url(), &["budget = \"5s\""]).start();
    let ended = gateway.client().stream("short", "go").rest();
    not_a_success(&ended);
    assert_eq!(ended.pieces().first().map(String::as_str), Some("half "), "what came is passed on: {ended:?}");
    assert_eq!(agent.executions(), 1);
    // What it said of its task is no answer to the message: the caller did name a task that there is not.
    let fault = gateway.client().send("short", "go").expect_err("half an answer");
    assert_eq!((fault.code, fault.reason.as_str()), (-32000, "agent_truncated"), "{fault:?}");
}

#[test]
fn an_agent_that_freezes_in_a_stream_is_given_up_on_and_a_lost_end_is_found() {
    let agent = Peer::start(Card::Streaming, |request, wire| match (request.method(), request.text()) {
        ("SendStreamingMessage", text) => {
            let task = format!("{text}-{}", fresh("t"));
            wire.events();
            Line { wire, task }.task("WORKING");
            wire.hold(Duration::from_secs(20));
            After::Close
        }
        ("GetTask", _) if request.params()["id"].as_str().unwrap_or("").starts_with("lost") => {
            wire.ok(&finished(request.params()["id"].as_str().unwrap(), "found"))
        }
        _ => {
            wire.hold(Duration::from_secs(20));
            After::Close
        }
    });
    let settings = ["unreachable_after = \"900ms\"", "budget = \"30s\""];
    let gateway = Config::new().agent("frozen", &agent.url(), &settings).start();
    let start = now();
    let fault = gateway.client().send("frozen", "freeze").expect_err("it is frozen");
    assert_eq!((fault.reason.as_str(), fault.delivery.as_str()), ("agent_unreachable", "delivered"), "{fault:?}");
    assert!(start.elapsed() < ms(2500), "{:?}", start.elapsed());

    let start = now();
    let ended = gateway.client().stream("frozen", "lost").rest();
    assert_eq!((ended.last_state(), ended.text()), ("COMPLETED".into(), "found".into()), "{ended:?}");
    assert!(start.elapsed() < ms(2000), "{:?}", start.elapsed());
}

#[test]
fn a_stream_that_ends_at_a_limit_names_it() {
    let agent = scripted(None, |line| {
        line.task("WORKING");
        line.piece(&"x".repeat(200_000), false);
        line.status("COMPLETED");
        After::Close
    });
    let gateway = Config::new().agent("large", &agent.url(), &["max_task_bytes = \"100KB\""]).start();
    let ended = gateway.client().stream("large", "go").rest();
    not_a_success(&ended);
    let last = ended.events.last().unwrap().as_ref().unwrap()["statusUpdate"]["status"]["message"].to_string();
    assert!(last.contains("result_too_large") && last.contains("100000"), "{last}");
}

#[test]
fn a_success_without_an_answer_is_marked() {
    let agent = scripted(None, |line| {
        line.task("WORKING");
        line.status("COMPLETED");
        After::Close
    });
    let gateway = Config::new().agent("mute", &agent.url(), &[]).start();
    let task = gateway.client().send("mute", "go").expect("it says that it is done");
    assert_eq!(task["metadata"]["watertight"]["remark"], "empty_result", "{task}");
}

#[test]
fn what_came_before_a_reset_is_passed_on() {
    let agent = scripted(None, |line| {
        line.task("WORKING");
        line.piece("one ", false);
        line.piece("two", true);
        // So that the reset cannot overtake what was sent.
        line.wire.hold(ms(200));
        After::Reset
    });
    let gateway = Config::new().agent("broken", &agent.url(), &["budget = \"5s\""]).start();
    let events = gateway.client().stream("broken", "go");
    assert_eq!(events.head.status(), 200);
    let ended = events.rest();
    assert_eq!(ended.pieces()[..2], ["one ", "two"], "{ended:?}");
    not_a_success(&ended);
}

/// Ended with an error of its own, or with a task that says FAILED; not silently, and not as a result.
fn not_a_success(ended: &Ended) {
    let failed = ended.last_state() == "FAILED";
    assert!(ended.error().is_some() || failed, "a cut stream ended as if nothing had happened: {ended:?}");
    assert!(!ended.states().contains(&"COMPLETED".to_owned()), "{ended:?}");
}

#[test]
fn a_burst_right_before_the_end_arrives_whole_and_in_order() {
    let agent = scripted(None, |line| {
        // One write for everything, so that the end of the connection comes with the last event.
        line.wire.gather(true);
        line.task("WORKING");
        for n in 0..500 {
            line.piece(&format!("{n} "), n > 0);
        }
        line.status("COMPLETED");
        line.wire.gather(false);
        After::Close
    });
    let gateway = Config::new().agent("burst", &agent.url(), &[]).start();
    let client = gateway.client();
    let expected: Vec<String> = (0..500).map(|n| format!("{n} ")).collect();
    for _ in 0..10 {
        let ended = client.stream("burst", "go").rest();
        assert_eq!(ended.pieces(), expected);
        assert_eq!((ended.last_state().as_str(), ended.end), ("COMPLETED", End::Clean));
    }
}

#[test]
fn a_long_stream_has_no_secret_end() {
    let agent = scripted(None, |line| {
        line.task("WORKING");
        for n in 0..3000 {
            if !line.piece("x", n > 0) {
                return After::Close;
            }
        }
        line.status("COMPLETED");
        After::Close
    });
    let gateway = Config::new().agent("long", &agent.url(), &[]).start();
    let ended = gateway.client().stream("long", "go").rest();
    assert_eq!((ended.text().len(), ended.last_state().as_str()), (3000, "COMPLETED"));
}

#[test]
fn a_stream_ends_when_the_task_does() {
    let agent = scripted(None, |line| {
        line.task("WORKING");
        line.status("COMPLETED");
        // The agent forgets to hang up.
        line.wire.hold(Duration::from_secs(60));
        After::Close
    });
    let gateway = Config::new().agent("clingy", &agent.url(), &["max_in_flight = 1"]).start();
    let client = gateway.client();
    for _ in 0..2 {
        let start = now();
        let ended = client.stream("clingy", "go").rest();
        assert_eq!(ended.last_state(), "COMPLETED");
        assert!(start.elapsed() < ms(4000), "still open after {:?}", start.elapsed());
    }
    gateway.assert_drains("clingy", ms(5000));
}

#[test]
fn the_first_task_is_not_taken_for_the_last() {
    let agent = scripted(None, |line| {
        line.task("SUBMITTED");
        line.wire.hold(ms(100));
        line.status("WORKING");
        line.piece("the answer", false);
        line.status("COMPLETED");
        After::Close
    });
    let gateway = Config::new().agent("polite", &agent.url(), &[]).start();
    let client = gateway.client();
    let ended = client.stream("polite", "go").rest();
    assert_eq!((ended.text().as_str(), ended.last_state().as_str()), ("the answer", "COMPLETED"), "{ended:?}");
    let states = ended.states();
    assert_eq!(states.iter().filter(|s| is_terminal(s)).count(), 1, "one end: {states:?}");
    // A blocking send waits for the end too.
    let task = client.send("polite", "go").expect("an answer");
    assert_eq!((answer_text(&task).as_str(), state(&task)), ("the answer", "COMPLETED"));
}

#[test]
fn an_agent_that_does_not_stream_is_still_understood() {
    let agent = Peer::start(Card::Streaming, |request, wire| {
        let done = json!({"task": finished(&fresh("t"), "all at once")});
        let line = json!({"jsonrpc": "2.0", "id": request.rpc["id"], "result": done}).to_string();
        match request.text() {
            "json" => wire.answer(200, "application/json", line.as_bytes()),
            "mislabelled" => wire.answer(200, "application/json", format!("data: {line}\n\n").as_bytes()),
            "lines" => wire.answer(200, "application/x-ndjson", format!("{line}\n").as_bytes()),
            "empty" => wire.answer(200, "text/event-stream", b""),
            "nothing" => wire.answer(200, "application/json", b""),
            "page" => wire.answer(200, "text/html", b"<html>hello</html>"),
            _ => wire.error(-32001, "no such task"),
        }
    });
    let gateway = Config::new().agent("odd", &agent.url(), &["budget = \"5s\""]).start();
    let client = gateway.client();
    for kind in ["json", "mislabelled"] {
        let ended = client.stream("odd", kind).rest();
        assert_eq!(
            (ended.text().as_str(), ended.last_state().as_str()),
            ("all at once", "COMPLETED"),
            "{kind}: {ended:?}"
        );
    }
    for kind in ["lines", "empty", "nothing", "page"] {
        let before = agent.executions();
        let start = now();
        let events = client.stream("odd", kind);
        if events.is_stream() {
            let ended = events.rest();
            assert!(
                ended.last_state() == "COMPLETED" && kind == "lines"
                    || ended.error().is_some()
                    || ended.last_state() == "FAILED",
                "{kind}: {ended:?}"
            );
        } else {
            events.refusal().expect_err("no answer came");
        }
        assert!(start.elapsed() < ms(10_000), "{kind}: {:?}", start.elapsed());
        assert_eq!(agent.executions(), before + 1, "{kind}: sent once");
    }
}

#[test]
fn asking_right_after_the_end_gives_the_end() {
    let agent = Agent::start(Card::Streaming, |text| {
        vec![Step::Work("on it"), Step::Chunk(text.into()), Step::End("COMPLETED")]
    });
    let gateway = Config::new().agent("quick", &agent.url(), &[]).start();
    let client = gateway.client();
    for n in 0..50 {
        let mut events = client.stream("quick", &format!("answer {n}"));
        let mut task = String::new();
        while let Some(event) = events.next() {
            let event = event.expect("an event");
            if let Some(snapshot) = event.get("task") {
                id(snapshot).clone_into(&mut task);
            }
            let of = event.get("task").or(event.get("statusUpdate")).unwrap_or(&Value::Null);
            if state(of) == "COMPLETED" {
                break;
            }
        }
        let asked = client.get("quick", &task).expect("the task is known");
        assert_eq!((state(&asked), answer_text(&asked)), ("COMPLETED", format!("answer {n}")));
    }
}

#[test]
fn a_reader_that_leaves_harms_nobody() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(1000)));
    let mut gateway = Config::new().agent("slow", &agent.url(), &[]).start();
    let client = gateway.client();
    let mut first = client.stream("slow", "on and on");
    let event = first.next().expect("an event").expect("a task");
    let task = id(&event["task"]).to_owned();
    let second = client.subscribe("slow", &task);
    thread::sleep(ms(200));
    first.leave();
    let ended = second.rest();
    assert_eq!((ended.last_state().as_str(), ended.text().as_str()), ("COMPLETED", "done: on and on"), "{ended:?}");
    assert!(gateway.is_alive());
    assert_eq!((agent.peer.executions(), agent.peer.count("CancelTask")), (1, 0), "leaving is not cancelling");
}

#[test]
fn a_second_reader_gets_a_snapshot_and_then_the_news() {
    let agent = Agent::start(Card::Streaming, |_| {
        let mut steps = vec![Step::Work("on it")];
        steps.extend((1..=10).flat_map(|n| [Step::Chunk(format!("{n} ")), Step::Take(ms(100))]));
        steps.push(Step::End("COMPLETED"));
        steps
    });
    let gateway = Config::new().agent("chunky", &agent.url(), &[]).start();
    let client = gateway.client();
    let mut first = client.stream("chunky", "go");
    let task = id(&first.next().unwrap().unwrap()["task"]).to_owned();
    let reader = thread::spawn(move || first.rest());
    thread::sleep(ms(450));
    let second = client.subscribe("chunky", &task).rest();
    let whole: String = (1..=10).map(|n| format!("{n} ")).collect();
    assert!(second.events[0].as_ref().is_ok_and(|e| e.get("task").is_some()), "a snapshot first: {second:?}");
    assert_eq!((second.text(), second.last_state()), (whole, "COMPLETED".into()), "{second:?}");
    reader.join().unwrap();
    let refused = client.subscribe("chunky", &task).refusal().expect_err("the task has ended");
    assert_eq!(refused.code, -32004, "{refused:?}");
}

#[test]
fn a_question_ends_the_turn_and_the_answer_continues_the_task() {
    let agent = Agent::start(Card::Streaming, |text| match text {
        "book" => vec![Step::Work("looking"), Step::Ask("which day?")],
        day => vec![Step::Work("booking"), Step::Chunk(format!("booked for {day}")), Step::End("COMPLETED")],
    });
    let gateway = Config::new().agent("clerk", &agent.url(), &[]).start();
    let client = gateway.client();

    // Blocking: the question comes back as the answer to the first message.
    let asked = client.send("clerk", "book").expect("a task that asks");
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    // A reader that waits for the rest, while the answer is given on another connection.
    let subscriber = client.subscribe("clerk", id(&asked));
    let mut reply = message("Monday");
    reply["taskId"] = asked["id"].clone();
    let done = client.rpc("clerk", "SendMessage", &json!({"message": reply})).expect("the task goes on");
    assert_eq!((state(&done["task"]), answer_text(&done["task"])), ("COMPLETED", "booked for Monday".into()));
    assert_eq!(id(&done["task"]), id(&asked), "the same task");
    let ended = subscriber.rest();
    assert_eq!(ended.last_state(), "COMPLETED", "{ended:?}");
    assert_eq!(ended.states().iter().filter(|s| is_terminal(s)).count(), 1, "one end: {:?}", ended.states());

    // A task that has ended takes no more messages.
    let mut late = message("Tuesday");
    late["taskId"] = asked["id"].clone();
    let refused = client.rpc("clerk", "SendMessage", &json!({"message": late})).expect_err("it has ended");
    assert_eq!(refused.code, -32004, "{refused:?}");
    let mut nowhere = message("hello");
    nowhere["taskId"] = json!("no-such-task");
    assert_eq!(client.rpc("clerk", "SendMessage", &json!({"message": nowhere})).expect_err("unknown").code, -32001);
}

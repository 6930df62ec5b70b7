//! SIGTERM: no new work, readers are told how to come back, what is queued stays on disk, and nothing is executed twice.

use std::thread;
use std::time::Duration;

use crate::agent::{Agent, slow};
use crate::client::{id, is_terminal, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::Card;

#[test]
fn a_stop_in_the_middle_loses_nothing() {
    let agent = Agent::start(Card::Streaming, |text| slow(text, ms(3000)));
    let settings = ["max_in_flight = 5", "max_waiting = 50"];
    let mut gateway = Config::new().top("drain.limit = \"1s\"").agent("slow", &agent.url(), &settings).start();
    let client = gateway.client();
    let mut tasks = Vec::new();
    let mut readers = Vec::new();
    for n in 0..10 {
        let task = client.submit("slow", &format!("job {n}")).expect("a task");
        let events = client.subscribe("slow", id(&task));
        assert!(events.is_stream(), "{task}");
        readers.push(thread::spawn(move || events.rest()));
        tasks.push(id(&task).to_owned());
    }
    eventually(ms(5000), "five run and five wait", || (agent.running() == 5).then_some(()));

    gateway.terminate();
    eventually(ms(2000), "it is no longer ready", || match client.http("GET", "/readyz", &[], b"") {
        Ok(answer) if answer.status == 200 => None,
        Ok(_) | Err(_) => Some(()),
    });
    let (status, took) = gateway.ended(Duration::from_secs(15));
    assert!(status.success(), "{status}");
    assert!(took < ms(4000), "it took {took:?} to stop, and was given one second");
    for reader in readers {
        let ended = reader.join().unwrap();
        let told = ended.error().is_some() || is_terminal(&ended.last_state());
        assert!(told, "a reader was left without a word: {ended:?}");
    }

    gateway.start();
    let client = gateway.client();
    for task in &tasks {
        let ended = client.ended("slow", task, Duration::from_secs(30));
        assert_eq!(state(&ended), "COMPLETED", "{ended}");
    }
    assert_eq!((agent.peer.executions(), agent.most_running()), (10, 5), "each once, never more than five");
}

#[test]
fn who_connects_while_it_ends_is_told_so() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(2500)));
    let mut gateway = Config::new().agent("slow", &agent.url(), &[]).start();
    let client = gateway.client();
    let running = client.clone();
    let call = thread::spawn(move || running.send("slow", "almost done"));
    eventually(ms(5000), "the agent works", || (agent.running() == 1).then_some(()));
    gateway.terminate();
    // Each on a connection of its own: a probe hears no, and is not left to guess.
    let answer = eventually(ms(5000), "it says that it is not ready", || {
        let answer = client.http("GET", "/readyz", &[], b"").expect("it still listens");
        (answer.status != 200).then_some(answer)
    });
    assert_eq!((answer.status, String::from_utf8_lossy(&answer.body).contains("draining")), (503, true));
    assert_eq!(client.http("GET", "/healthz", &[], b"").expect("it still listens").status, 200);
    assert_eq!(client.send("slow", "one more").expect_err("nothing new is taken").reason, "shutting_down");
    call.join().unwrap().expect("an answer");
    let (status, took) = gateway.ended(Duration::from_secs(15));
    assert!(status.success() && took < ms(10_000), "{status} after {took:?}");
    assert_eq!(agent.peer.executions(), 1);
}

#[test]
fn an_idle_gateway_stops_at_once() {
    let agent = Agent::echo();
    let mut gateway = Config::new().agent("echo", &agent.url(), &[]).start();
    gateway.client().send("echo", "hello").expect("an answer");
    gateway.terminate();
    let (status, took) = gateway.ended(ms(5000));
    assert!(status.success(), "{status}");
    assert!(took < ms(3000), "{took:?}");
}

#[test]
fn a_running_call_is_answered_before_the_end() {
    let agent = Agent::start(Card::Plain, |text| slow(text, ms(800)));
    let mut gateway = Config::new().agent("slow", &agent.url(), &[]).start();
    let client = gateway.client();
    let call = thread::spawn(move || client.send("slow", "almost done"));
    eventually(ms(3000), "the agent works", || (agent.running() == 1).then_some(()));
    gateway.terminate();
    // Either the result, or the task as it is, to be asked for later: never a dead line.
    let task = call.join().unwrap().expect("an answer");
    assert!(!id(&task).is_empty());
    assert!(gateway.ended(Duration::from_secs(15)).0.success());
}

//! A store that cannot be written any more while calls are under way: whoever waits is told, truthfully, and nothing is lost or done twice.

use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::agent::{Agent, slow};
use crate::client::{End, Outcome, answer_text, id, is_terminal, message, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::{Config, Gateway};
use crate::peer::Card;

/// From now on no file of the gateway may grow beyond this, as if the disk were full; `unlimited` takes that back.
pub(crate) fn limit_files(gateway: &Gateway, bytes: &str) {
    let process = gateway.process().to_string();
    let set = Command::new("prlimit").args(["--pid", &process, &format!("--fsize={bytes}:")]).status().unwrap();
    assert!(set.success(), "prlimit: {set}");
}

#[test]
fn a_full_disk_is_told_and_survived() {
    let plain = Agent::start(Card::Plain, |text| slow(text, ms(1500)));
    let streaming = Agent::start(Card::Streaming, |text| slow(text, ms(1500)));
    let config = Config::new().agent("plain", &plain.url(), &[]).agent("streaming", &streaming.url(), &[]);
    let mut gateway = config.start();
    let client = gateway.client();
    let mut stream = client.stream("streaming", "streamed");
    let streamed = stream.next().unwrap().unwrap()["task"]["id"].as_str().unwrap().to_owned();
    let waiting = client.clone();
    let blocked =
        thread::spawn(move || waiting.rpc("plain", "SendMessage", &json!({"message": message("waited for")})));
    eventually(ms(2000), "the agent has it", || (plain.running() == 1).then_some(()));

    limit_files(&gateway, "4096");
    // What makes the gateway notice.
    let fault = client.send("plain", "new").expect_err("there is no disk");
    assert_eq!((fault.reason.as_str(), fault.delivery.as_str()), ("store_unavailable", "not_sent"), "{fault:?}");

    // The agent has that one: its caller gets the task, and is not told that nothing was sent.
    let told: Outcome = blocked.join().unwrap();
    let told = told.expect("a task that goes on")["task"].clone();
    assert!(!is_terminal(state(&told)), "{told}");

    // A stream does not go silent for good.
    let start = now();
    let ended = stream.rest();
    let fault = ended.error().expect("an end with a reason");
    assert_eq!((fault.reason.as_str(), fault.task.as_str()), ("store_unavailable", streamed.as_str()), "{fault:?}");
    assert!(ended.end == End::Clean && start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(gateway.is_alive());

    limit_files(&gateway, "unlimited");
    for (agent, task, text) in [("plain", id(&told), "waited for"), ("streaming", streamed.as_str(), "streamed")] {
        let done = client.ended(agent, task, Duration::from_secs(10));
        assert_eq!((state(&done), answer_text(&done)), ("COMPLETED", format!("done: {text}")), "{done}");
    }
    assert_eq!((plain.peer.executions(), streaming.peer.executions()), (1, 1), "nothing is done twice");
    client.send("plain", "as before").expect("it works again");
}

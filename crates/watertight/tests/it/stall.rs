//! A gateway that itself stood still (a frozen machine, a debugger, a full CPU) does not blame the agents for it.

use std::thread;

use crate::agent::{Agent, slow};
use crate::client::{answer_text, message, state};
use crate::clock::{eventually, ms};
use crate::gateway::Config;
use crate::peer::Card;
use serde_json::json;

#[test]
fn an_answer_that_came_while_we_stood_still_beats_the_deadline_that_passed_meanwhile() {
    for card in [Card::Streaming, Card::Plain] {
        let agent = Agent::start(card, |text| slow(text, ms(400)));
        let gateway = Config::new().agent("well", &agent.url(), &[]).start();
        // The card is known, and the way is open.
        gateway.client().send("well", "first").expect("an answer");
        let client = gateway.client();
        let mut said = message("second");
        said["metadata"] = json!({"x-budget": {"remaining_s": 1.3, "depth": 2, "fanout": 4}});
        let call = thread::spawn(move || client.rpc("well", "SendMessage", &json!({ "message": said })));
        eventually(ms(2000), "the agent has it", || (agent.running() == 1).then_some(()));
        gateway.freeze(ms(1700));
        let outcome = call.join().expect("the caller lives");
        if matches!(card, Card::Streaming) {
            let task = outcome.expect("an answer, and no deadline");
            let task = &task["task"];
            assert_eq!((state(task), answer_text(task)), ("COMPLETED", "done: second".into()), "{task}");
        }
        assert!(gateway.log().contains("stood still"), "{}", gateway.log());
        // Whatever became of that call, the agent is not blamed.
        gateway.client().send("well", "third").expect("an answer");
    }
}

//! Results that wait for whoever delegated: they are there until they are acknowledged, whoever dies in between.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::client::{Client, id, message, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::{Config, Gateway};
use crate::http::Body;
use crate::peer::Card;

/// An orchestrator that is an agent, two callers that are none (one has an outbox all the same), and a worker.
pub(crate) fn config(worker: &Agent) -> Config {
    let caller =
        |name: &str, more: &str| format!("[callers.{name}]\ntoken = \"file:{name}\"\ntenant = \"t\"\n{more}\n");
    let callers = [
        caller("lead-1", "agent = \"lead\""),
        caller("lead-2", "agent = \"lead\""),
        caller("script", "outbox = true"),
        caller("plain", ""),
    ];
    let config = Config::new()
        .agent("lead", "http://127.0.0.1:9/", &[])
        .agent("work", &worker.url(), &["max_in_flight = 50", "fanout = 50"])
        .tables(&callers.concat());
    ["lead-1", "lead-2", "script", "plain"]
        .into_iter()
        .fold(config, |config, name| config.with_file(name, &token(name)))
}

fn token(name: &str) -> String {
    format!("token-of-{name}")
}

pub(crate) fn worker() -> Agent {
    Agent::start(Card::Plain, |text| match text {
        "ask" => vec![Step::Ask("which day?")],
        "fail" => vec![Step::Chunk("no rooms".into()), Step::End("FAILED")],
        "slow" => slow(text, ms(400)),
        "later" => slow(text, ms(3_000)),
        "endless" => slow(text, ms(600_000)),
        text => vec![Step::Chunk(format!("done: {text}")), Step::End("COMPLETED")],
    })
}

pub(crate) struct As {
    client: Client,
    bearer: String,
}

impl As {
    pub(crate) fn new(gateway: &Gateway, name: &str) -> As {
        As { client: gateway.client(), bearer: format!("Bearer {}", token(name)) }
    }

    fn headers(&self) -> [(&str, &str); 1] {
        [("authorization", &self.bearer)]
    }

    fn send(&self, text: &str, immediately: bool) -> Value {
        let params = json!({"message": message(text), "configuration": {"returnImmediately": immediately}});
        let answer = self.client.call("work", "SendMessage", &params, &self.headers()).unwrap().outcome().unwrap();
        answer["task"].clone()
    }

    pub(crate) fn delegate(&self, text: &str) -> String {
        id(&self.send(text, true)).to_owned()
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.client.http(method, path, &self.headers(), body.as_bytes()).unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    pub(crate) fn read(&self, query: &str) -> Value {
        let (status, page) = self.ask("GET", &format!("/v1/outbox?{query}"), "");
        assert_eq!(status, 200, "{page}");
        page
    }

    pub(crate) fn pending(&self) -> u64 {
        self.ask("GET", "/v1/outbox/pending", "").1["pending"].as_u64().unwrap()
    }

    pub(crate) fn ack(&self, up_to: u64) -> (u16, Value) {
        self.ask("POST", "/v1/outbox/ack", &json!({ "upTo": up_to }).to_string())
    }

    /// Until so many wait.
    pub(crate) fn waits(&self, count: u64) {
        eventually(ms(5_000), &format!("{count} results wait"), || (self.pending() == count).then_some(()));
    }

    fn stream(&self, query: &str, last: Option<&str>) -> Results {
        let mut headers = self.headers().to_vec();
        headers.extend(last.map(|id| ("last-event-id", id)));
        let (head, body) = self.client.open("GET", &format!("/v1/outbox/stream{query}"), &headers, b"").unwrap();
        assert_eq!(head.status(), 200);
        Results { body, buffer: String::new() }
    }
}

/// Results as events.
struct Results {
    body: Body,
    buffer: String,
}

impl Results {
    /// The next event's id, name and data; `None` at the end. Heartbeats are passed over.
    fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            while let Some(at) = self.buffer.find("\n\n") {
                let block: String = self.buffer.drain(..at + 2).collect();
                let field =
                    |name: &str| block.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
                if let Some(data) = field("data:") {
                    let data = serde_json::from_str(&data).unwrap();
                    return Some((field("id:").unwrap_or_default(), field("event:").unwrap_or_default(), data));
                }
            }
            self.buffer.push_str(&String::from_utf8(self.body.some().ok()??).unwrap());
        }
    }
}

fn numbers(page: &Value) -> Vec<u64> {
    page["results"].as_array().unwrap().iter().map(|one| one["seq"].as_u64().unwrap()).collect()
}

fn tasks(page: &Value) -> Vec<String> {
    page["results"].as_array().unwrap().iter().map(|one| one["taskId"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn results_wait_in_order_until_they_are_acknowledged() {
    let worker = worker();
    let gateway = config(&worker).start();
    let lead = As::new(&gateway, "lead-1");
    assert_eq!(lead.read(""), json!({"results": [], "pending": 0, "last": 0, "lost": 0, "reset": false}));
    let delegated: Vec<String> = (0..5)
        .map(|n| {
            let task = lead.delegate(&format!("job {n}"));
            lead.waits(n + 1);
            task
        })
        .collect();
    let page = lead.read("limit=3");
    assert_eq!((numbers(&page), tasks(&page)), (vec![1, 2, 3], delegated[..3].to_vec()));
    assert_eq!((&page["pending"], &page["last"]), (&json!(5), &json!(5)));
    let one = &page["results"][0];
    assert_eq!(
        (&one["state"], &one["agent"], &one["text"]),
        (&json!("TASK_STATE_COMPLETED"), &json!("work"), &json!("done: job 0"))
    );
    assert_eq!((&one["bytes"], &one["withheld"], &one["reason"]), (&json!(11), &json!(false), &Value::Null));
    assert_eq!(one["task"]["artifacts"][0]["parts"][0]["text"], "done: job 0");
    let preview = one["preview"].as_str().unwrap();
    assert!(preview.starts_with("<<<peer-text ") && preview.contains("\ndone: job 0\n"), "{preview}");
    assert_eq!(tasks(&lead.read("")), tasks(&lead.read("after=0")), "to read is not to acknowledge");

    assert_eq!(lead.ack(2), (200, json!({"upTo": 2, "pending": 3, "last": 5})));
    assert_eq!(lead.ack(2), (200, json!({"upTo": 2, "pending": 3, "last": 5})), "twice is once");
    assert_eq!(lead.ack(1).1["pending"], 3, "a lower number changes nothing");
    let (status, refused) = lead.ack(6);
    assert_eq!(status, 400);
    assert!(refused["error"]["message"].as_str().unwrap().contains("its last is 5"), "{refused}");
    assert_eq!(numbers(&lead.read("")), [3, 4, 5]);
    assert_eq!(numbers(&lead.read("after=4")), [5]);
    let other = lead.read("after=77");
    assert_eq!((numbers(&other), &other["reset"]), (vec![3, 4, 5], &json!(true)), "a number of another outbox");

    // An agent has one outbox for all its tokens; others have none of it.
    assert_eq!(numbers(&As::new(&gateway, "lead-2").read("")), [3, 4, 5]);
    assert_eq!(As::new(&gateway, "script").read("")["last"], 0);
    assert_eq!(As::new(&gateway, "plain").ask("GET", "/v1/outbox", "").0, 404);
    assert_eq!(gateway.client().http("GET", "/v1/outbox", &[], b"").unwrap().status, 401);
    assert_eq!(As::new(&gateway, "script").ack(1).0, 400);
    assert_eq!(lead.pending(), 3);
}

#[test]
fn every_end_is_told_and_what_is_not_a_result_is_not_shown_as_one() {
    let worker = worker();
    let gateway = config(&worker).start();
    let script = As::new(&gateway, "script");
    let (asked, failed, canceled) = (script.delegate("ask"), script.delegate("fail"), script.delegate("later"));
    script.waits(2);
    script.client.call("work", "CancelTask", &json!({ "id": canceled }), &script.headers()).unwrap().outcome().unwrap();
    script.waits(3);
    let page = script.read("");
    let of = |task: &str| page["results"].as_array().unwrap().iter().find(|one| one["taskId"] == task).unwrap().clone();
    let said = |task: &str, word: &str| {
        let one = of(task);
        let preview = one["preview"].as_str().unwrap().to_owned();
        assert!(preview.lines().next().unwrap().contains(word), "{one}");
        one["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(said(&asked, " question,"), "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(said(&failed, " error,"), "TASK_STATE_FAILED");
    assert_eq!(said(&canceled, " error,"), "TASK_STATE_CANCELED");
    assert_eq!((&of(&asked)["text"], &of(&failed)["text"]), (&json!("which day?"), &json!("no rooms")));
    // Answered, it goes on, and its end is told as well; what was asked is not shown with what it is now.
    let mut reply = message("Monday");
    reply["taskId"] = json!(asked);
    let params = json!({"message": reply, "configuration": {"returnImmediately": true}});
    script.client.call("work", "SendMessage", &params, &script.headers()).unwrap().outcome().unwrap();
    script.waits(4);
    let page = script.read("");
    let both: Vec<&Value> = page["results"].as_array().unwrap().iter().filter(|one| one["taskId"] == asked).collect();
    assert_eq!((&both[0]["text"], &both[0]["now"]), (&Value::Null, &json!("TASK_STATE_COMPLETED")));
    assert_eq!((&both[1]["turn"], &both[1]["text"]), (&json!(2), &json!("done: Monday")));
}

#[test]
fn a_kill_between_the_end_and_the_reading_loses_nothing() {
    let worker = worker();
    let mut gateway = config(&worker).start();
    let names = ["lead-1", "lead-2", "script"];
    let mut delegated: Vec<BTreeSet<String>> = vec![BTreeSet::new(); 3];
    for round in 0..4 {
        for (name, all) in names.iter().zip(&mut delegated) {
            let caller = As::new(&gateway, name);
            all.extend((0..5).map(|n| caller.delegate(if n % 2 == 0 { "slow" } else { "at once" })));
        }
        thread::sleep(ms(60 * round));
        gateway.kill();
        gateway.start();
    }
    let leads: BTreeSet<String> = delegated[0].union(&delegated[1]).cloned().collect();
    for (name, all) in [("lead-1", &leads), ("script", &delegated[2])] {
        let caller = As::new(&gateway, name);
        eventually(ms(15_000), "all has ended", || (caller.pending() == all.len() as u64).then_some(()));
        let before = caller.read("limit=100");
        assert_eq!(numbers(&before), (1..=all.len() as u64).collect::<Vec<_>>(), "no gap, and in order");
        assert_eq!(tasks(&before).into_iter().collect::<BTreeSet<_>>(), *all, "each once");
        assert_eq!(caller.ack(7).0, 200);
    }
    gateway.kill();
    gateway.start();
    let lead = As::new(&gateway, "lead-2");
    let after = lead.read("limit=100");
    assert_eq!(numbers(&after), (8..=leads.len() as u64).collect::<Vec<_>>(), "what was acknowledged stays so");
    let task = lead.delegate("one more");
    let page = lead.read(&format!("after={}&wait=10", leads.len()));
    assert_eq!((numbers(&page), tasks(&page)), (vec![leads.len() as u64 + 1], vec![task]));
}

/// A gateway that was just started does not say that nothing waits because it does not know yet.
#[test]
fn what_waits_is_known_from_the_first_answer_after_a_start_on() {
    let worker = worker();
    let mut gateway = config(&worker).start();
    let lead = As::new(&gateway, "lead-1");
    (0..40).for_each(|_| drop(lead.delegate("at once")));
    lead.waits(40);
    assert_eq!(lead.ack(10).0, 200);
    let script = As::new(&gateway, "script");
    script.delegate("at once");
    script.waits(1);
    for round in 0..6 {
        gateway.kill();
        gateway.start();
        let lead = As::new(&gateway, "lead-1");
        match round % 3 {
            0 => assert_eq!(lead.pending(), 30),
            1 => assert_eq!(numbers(&lead.read("limit=100")), (11..=40).collect::<Vec<_>>()),
            _ => {
                let page = lead.read("after=40");
                assert_eq!((&page["reset"], &page["pending"]), (&json!(false), &json!(30)), "{page}");
            }
        }
    }
}

#[test]
fn an_answer_on_the_callers_line_needs_no_other() {
    let worker = worker();
    let gateway = config(&worker).start();
    let lead = As::new(&gateway, "lead-1");
    assert_eq!(state(&lead.send("hello", false)), "COMPLETED");
    let task = lead.delegate("by itself");
    let page = lead.read("wait=10");
    assert_eq!((tasks(&page), &page["last"]), (vec![task], &json!(2)), "the first was told on its line");

    // Whoever leaves before its answer finds it here.
    let params = json!({"message": message("slow")}).clone();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).to_string();
    let (client, bearer) = (gateway.client(), lead.bearer.clone());
    let gone = thread::spawn(move || {
        let socket = std::net::TcpStream::connect(client.addr()).unwrap();
        let head = format!(
            "POST /agents/work HTTP/1.1\r\nhost: x\r\na2a-version: 1.0\r\nauthorization: {bearer}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        std::io::Write::write_all(&mut &socket, (head + &body).as_bytes()).unwrap();
        thread::sleep(ms(150));
    });
    gone.join().unwrap();
    let page = lead.read("after=2&wait=10");
    assert_eq!((numbers(&page), &page["results"][0]["text"]), (vec![3], &json!("done: slow")));
}

#[test]
fn who_waits_hears_at_once_and_who_waits_in_vain_is_let_go() {
    let worker = worker();
    let mut gateway = config(&worker).start();
    let lead = As::new(&gateway, "lead-1");
    let started = now();
    let empty = lead.read("wait=0.3");
    assert_eq!(numbers(&empty), [0_u64; 0]);
    assert!(started.elapsed() >= ms(280), "{:?}", started.elapsed());

    let (client, bearer) = (gateway.client(), lead.bearer.clone());
    let waiting = thread::spawn(move || {
        let page = As { client, bearer }.read("wait=20");
        (now(), page)
    });
    thread::sleep(ms(200));
    let task = lead.delegate("slow");
    let (heard, page) = waiting.join().unwrap();
    assert_eq!(tasks(&page), std::slice::from_ref(&task));
    let ended = lead.client.call("work", "GetTask", &json!({"id": task}), &lead.headers()).unwrap().outcome().unwrap();
    assert_eq!(state(&ended), "COMPLETED");
    // The turn takes 400 ms, and is seen by polling; whoever waited was told long before a second had passed.
    assert!(heard - started < ms(3_000), "{:?}", heard - started);

    // Whoever waits holds up nobody's end.
    let (client, bearer) = (gateway.client(), lead.bearer.clone());
    let waiting = thread::spawn(move || {
        As { client, bearer }.client.http(
            "GET",
            "/v1/outbox?after=1&wait=20",
            &[("authorization", "Bearer token-of-lead-1")],
            b"",
        )
    });
    thread::sleep(ms(200));
    gateway.terminate();
    let answered = waiting.join().unwrap().unwrap();
    assert_eq!(answered.status, 200);
    assert!(gateway.ended(ms(10_000)).0.success());
}

#[test]
fn a_stream_of_results_goes_on_where_it_was() {
    let worker = worker();
    let mut gateway = config(&worker).start();
    let lead = As::new(&gateway, "lead-1");
    let mut stream = lead.stream("", None);
    let first = lead.delegate("one");
    let (seq, name, one) = stream.next().unwrap();
    assert_eq!((seq.as_str(), name.as_str(), &one["taskId"]), ("1", "result", &json!(first)));
    lead.delegate("two");
    assert_eq!(stream.next().unwrap().0, "2");
    drop(stream);
    lead.delegate("three");
    lead.waits(3);
    gateway.kill();
    gateway.start();
    let lead = As::new(&gateway, "lead-1");
    let mut stream = lead.stream("", Some("2"));
    let (seq, _, three) = stream.next().unwrap();
    assert_eq!((seq.as_str(), &three["text"]), ("3", &json!("done: three")));
    let mut again = lead.stream("?after=0", None);
    let ids: Vec<String> = (0..3).map(|_| again.next().unwrap().0).collect();
    assert_eq!(ids, ["1", "2", "3"], "nothing was acknowledged");
    let mut foreign = lead.stream("", Some("99"));
    let (_, name, reset) = foreign.next().unwrap();
    assert_eq!((name.as_str(), &reset), ("reset", &json!({"last": 3})));
    assert_eq!(foreign.next().unwrap().0, "1");
    gateway.terminate();
    assert!(stream.next().is_none());
    assert!(gateway.ended(Duration::from_secs(10)).0.success());
}

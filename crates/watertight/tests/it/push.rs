//! Push notifications: where a caller says, at least once, whoever dies in between; and nowhere that it must not say.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::agent::{Agent, Step, slow};
use crate::client::{Client, id, message, state};
use crate::clock::{eventually, ms, now};
use crate::gateway::{Config, Gateway};
use crate::peer::{After, Card, Peer};

/// What a hook was told: the tasks of the events that came.
fn told(hook: &Peer) -> Vec<Value> {
    hook.received()
        .iter()
        .map(|request| serde_json::from_str::<Value>(&request.body).unwrap()["task"].clone())
        .collect()
}

fn hook() -> Peer {
    Peer::start(Card::Missing, |_, wire| wire.answer(202, "text/plain", b""))
}

fn worker() -> Agent {
    Agent::start(Card::Plain, |text| match text {
        "ask" => vec![Step::Ask("which day?")],
        "slow" => slow(text, ms(500)),
        text => vec![Step::Chunk(format!("done: {text}")), Step::End("COMPLETED")],
    })
}

fn start(worker: &Agent, allow: &str) -> Gateway {
    let push = format!("[push]\nenabled = true\nallow = [{allow}]\n");
    Config::new().agent("worker", &worker.url(), &[]).last(&push).start()
}

/// Asks only to be accepted, with a push configuration.
fn submit(client: &Client, text: &str, push: &Value) -> Value {
    let configuration = json!({"returnImmediately": true, "taskPushNotificationConfig": push});
    let params = json!({"message": message(text), "configuration": configuration});
    client.rpc("worker", "SendMessage", &params).unwrap()["task"].clone()
}

#[test]
fn the_end_arrives_where_the_caller_said() {
    let (worker, hook) = (worker(), hook());
    let gateway = start(&worker, "\"127.0.0.1\"");
    let client = gateway.client();
    let push = json!({"url": format!("{}news?x=1", hook.url()), "token": "tok-1",
        "authentication": {"scheme": "Bearer", "credentials": "secret-of-the-hook"}});
    let task = submit(&client, "hello", &push);
    eventually(ms(5_000), "it is told", || (!hook.received().is_empty()).then_some(()));
    let request = hook.received()[0].clone();
    assert_eq!(request.head.get("x-a2a-notification-token"), Some("tok-1"));
    assert!(request.head.line.starts_with("POST /news?x=1 HTTP/1.1"), "{}", request.head.line);
    assert_eq!(request.head.get("authorization"), Some("Bearer secret-of-the-hook"));
    let event = &told(&hook)[0];
    assert_eq!((id(event), state(event)), (id(&task), "COMPLETED"));
    assert_eq!(event["artifacts"][0]["parts"][0]["text"], "done: hello");
    assert!(
        !worker.peer.received().iter().any(|sent| sent.body.contains("secret-of-the-hook")),
        "not the agent's affair"
    );
    // What has arrived is not kept.
    let of = json!({"taskId": id(&task)});
    let configs = || client.rpc("worker", "ListTaskPushNotificationConfigs", &of).unwrap()["configs"].clone();
    eventually(ms(5_000), "it is gone", || (configs() == json!([])).then_some(()));
    let card = client.http("GET", "/agents/worker/.well-known/agent-card.json", &[], b"").unwrap();
    let card: Value = serde_json::from_slice(&card.body).unwrap();
    assert_eq!(card["capabilities"]["pushNotifications"], true);
}

#[test]
fn configurations_are_made_shown_and_dropped_by_their_owner() {
    let (worker, hook) = (worker(), hook());
    let gateway = start(&worker, "\"127.0.0.1\"");
    let client = gateway.client();
    let task = client.submit("worker", "ask").unwrap();
    eventually(ms(5_000), "it asks", || {
        (state(&client.get("worker", id(&task)).unwrap()) == "INPUT_REQUIRED").then_some(())
    });
    let with = |extra: Value| {
        let mut params = json!({"taskId": id(&task), "url": hook.url()});
        extra.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        client.rpc("worker", "CreateTaskPushNotificationConfig", &params)
    };
    let made = with(json!({"id": "mine", "token": "t"})).unwrap();
    assert_eq!((&made["id"], &made["taskId"], &made["token"]), (&json!("mine"), &task["id"], &json!("t")));
    eventually(ms(5_000), "the question is told", || (told(&hook).len() == 1).then_some(()));
    assert_eq!(state(&told(&hook)[0]), "INPUT_REQUIRED");
    let minted = with(json!({})).unwrap();
    let named = |config: &str| json!({"taskId": id(&task), "id": config});
    assert_eq!(client.rpc("worker", "GetTaskPushNotificationConfig", &named("mine")).unwrap(), made);
    let line = format!("GET /tasks/{}/pushNotificationConfigs", id(&task));
    let listed = client.rest("worker", &line, "", &[]).bare().unwrap();
    assert_eq!(listed["configs"].as_array().unwrap().len(), 2);
    let minted = minted["id"].as_str().unwrap();
    client.rpc("worker", "DeleteTaskPushNotificationConfig", &named(minted)).unwrap();
    assert_eq!(client.rpc("worker", "GetTaskPushNotificationConfig", &named(minted)).unwrap_err().code, -32001);
    let stranger = json!({"taskId": "0".repeat(32), "url": hook.url()});
    assert_eq!(client.rpc("worker", "CreateTaskPushNotificationConfig", &stranger).unwrap_err().code, -32001);
    for wrong in [
        json!({"url": "http://127.0.0.1/\r\nx: y"}),
        json!({"url": "file:///etc/passwd"}),
        json!({"url": "http://user:pass@127.0.0.1/"}),
        json!({"url": "http://10.0.0.1/"}),
        json!({"url": "http://[::1]/"}),
        json!({"token": "a\r\nb"}),
        json!({"authentication": {"scheme": "Bearer", "credentials": "x\ny"}}),
        json!({"authentication": {"scheme": "Bea rer"}}),
    ] {
        assert_eq!(with(wrong.clone()).unwrap_err().code, -32602, "{wrong}");
    }
    for n in 0..7 {
        with(json!({"id": format!("more-{n}")})).unwrap();
    }
    assert_eq!(with(json!({"id": "one too many"})).unwrap_err().reason, "cell_overloaded");
}

#[test]
fn what_does_not_arrive_is_tried_again_and_delays_nobody() {
    let (worker, good) = (worker(), hook());
    let tries = AtomicUsize::new(0);
    let elsewhere = hook();
    let target = elsewhere.url();
    let bad = Peer::start(Card::Missing, move |_, wire| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => After::Reset,
        1 => wire.answer_with(307, &[("location", &target)], b""),
        2 => wire.answer(500, "text/plain", b"no"),
        _ => wire.answer(200, "text/plain", b""),
    });
    let hole = Peer::hole();
    let gateway = start(&worker, "\"127.0.0.1\"");
    let client = gateway.client();
    let first = submit(&client, "to the dead", &json!({ "url": hole.url() }));
    let second = submit(&client, "to the sick", &json!({ "url": bad.url() }));
    let started = now();
    submit(&client, "to the well", &json!({ "url": good.url() }));
    eventually(ms(5_000), "the well one is told", || (good.received().len() == 1).then_some(()));
    assert!(started.elapsed() < ms(2_000), "{:?}", started.elapsed());
    eventually(ms(20_000), "the sick one too, in the end", || (bad.received().len() >= 4).then_some(()));
    assert!(told(&bad).iter().all(|task| id(task) == id(&second)));
    assert_eq!(elsewhere.received().len(), 0, "no redirect is followed");
    assert_eq!(state(&client.get("worker", id(&first)).unwrap()), "COMPLETED");
}

#[test]
fn a_kill_between_the_end_and_its_arrival_loses_nothing_and_secrets_are_sealed() {
    let (worker, url) = (worker(), Peer::closed_port());
    let mut gateway = start(&worker, "\"127.0.0.1\"");
    let client = gateway.client();
    let push = json!({"url": url, "token": "a-very-secret-token"});
    let (done, later) = (submit(&client, "at once", &push), submit(&client, "slow", &push));
    client.ended("worker", id(&done), ms(5_000));
    gateway.kill();
    for file in fs::read_dir(gateway.file("store")).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(19).any(|piece| piece == b"a-very-secret-token"), "it is in the store as it is");
    }
    gateway.start();
    let addr = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let back = Peer::start_at(addr, Card::Missing, |_, wire| wire.answer(200, "text/plain", b""));
    let both = || {
        let told = told(&back);
        [&done, &later].iter().all(|task| told.iter().any(|event| id(event) == id(task))).then_some(())
    };
    eventually(ms(20_000), "both ends arrive", both);
    assert!(
        back.received()
            .iter()
            .all(|request| request.head.get("x-a2a-notification-token") == Some("a-very-secret-token"))
    );
}

#[test]
fn a_name_that_leads_inside_is_never_connected_to() {
    let (worker, inside) = (worker(), hook());
    let gateway = start(&worker, "");
    let client = gateway.client();
    let port = inside.addr().port();
    let refused = client.rpc(
        "worker",
        "SendMessage",
        &json!({"message": message("x"), "configuration": {"taskPushNotificationConfig": {"url": inside.url()}}}),
    );
    assert_eq!(refused.unwrap_err().code, -32602, "before there is a task");
    assert_eq!(worker.peer.executions(), 0);
    let task = submit(&client, "x", &json!({"url": format!("http://localhost:{port}/")}));
    client.ended("worker", id(&task), ms(5_000));
    eventually(ms(5_000), "it is said", || gateway.log().contains("to which nothing is pushed").then_some(()));
    assert_eq!(inside.received().len(), 0);
}

#[test]
fn every_end_arrives_however_often_the_gateway_dies() {
    let (worker, good, dead) = (worker(), hook(), Peer::hole());
    let mut gateway = start(&worker, "\"127.0.0.1\"");
    gateway.rewrite("listen = \"127.0.0.1:0\"", &format!("listen = \"{}\"", gateway.addr()));
    let client = gateway.client();
    let urls = [good.url(), dead.url()];
    let tasks = std::thread::scope(|scope| {
        let delegating = scope.spawn(|| {
            let delegate = |n: usize| {
                let configuration =
                    json!({"returnImmediately": true, "taskPushNotificationConfig": {"url": urls[usize::from(n % 5 == 4)]}});
                let params = json!({"message": message(&format!("job {n}")), "configuration": configuration});
                let task = eventually(ms(30_000), "it is taken on", || {
                    let outcome = client.call("worker", "SendMessage", &params, &[]).ok()?.outcome();
                    match outcome {
                        Ok(result) => Some(id(&result["task"]).to_owned()),
                        // It was cut off: that end is told too.
                        Err(fault) => Some(fault.task).filter(|task| !task.is_empty()),
                    }
                });
                std::thread::sleep(ms(30));
                (n % 5 != 4).then_some(task)
            };
            (0..40).filter_map(delegate).collect::<Vec<String>>()
        });
        for _ in 0..4 {
            std::thread::sleep(ms(300));
            gateway.kill();
            gateway.start();
        }
        delegating.join().unwrap()
    });
    let arrived = |task: &String| told(&good).iter().any(|event| id(event) == task);
    let all = || tasks.iter().all(arrived).then_some(());
    eventually(ms(30_000), "all ends arrive", all);
    assert!(tasks.len() == 32 && !tasks.iter().any(String::is_empty));
}

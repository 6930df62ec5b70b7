//! What nobody can say may be sent: it waits, whoever else is served, and is sent when it can be said.

use std::collections::BTreeSet;

use super::*;
use crate::access::Grants;
use crate::config::Config;
use crate::http::auth::Who;
use crate::tokens::{Scope, Stored, Tokens, edit};

fn who(name: &str) -> Arc<Who> {
    Arc::new(Who {
        principal: Principal { tenant: "t".into(), caller: name.into() },
        agents: None,
        agent: None,
        outbox: Default::default(),
        enrolled: None,
        scopes: BTreeSet::from([Scope::Caller]),
    })
}

fn token_of(name: &str) -> Stored {
    Stored {
        id: "1".into(),
        name: name.into(),
        tenant: "t".into(),
        scopes: vec![Scope::Caller],
        agents: None,
        agent: None,
        created: "2026-01-01T00:00:00.000Z".into(),
        expires: None,
        enrolment: None,
        hash: "5f".repeat(32),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_can_say_waits_until_somebody_can() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.json");
    std::fs::write(&path, "no token file").unwrap();
    let tokens = Tokens::follow(path.clone());
    let source = "[callers.bob]\ntoken = \"env:BOB\"\ntenant = \"t\"\n[agents.fx]\nurl = \"http://127.0.0.1:1/\"\n";
    let config = Config::parse("w.toml", source, Path::new("/nowhere"), None, &|_| Some("a secret".into())).unwrap();
    let agent = FakeAgent::start(|_, params| Does::Result(json!({ "task": done(&remote_of(params), "done") }))).await;
    let started = Started {
        store: StoreSpec::Memory,
        kept: Kept::default(),
        agents: vec![spec("fx", &agent, Mode::Blocking)],
        cell: CellLimits::default(),
        streams: Limits::default(),
        push: Default::default(),
        key: crate::config::InstanceKey::generate().unwrap(),
        grants: Grants::of(&config, tokens),
    };
    let handle = Gateway::start(started).await.unwrap().handle;
    while !handle.ready() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let from = |name: &str, id: &str| NewCall {
        principal: who(name).principal.clone(),
        who: Some(who(name)),
        ..call(message(id), Want::Accepted)
    };
    // Its credential was good a moment ago; whether it is now, nobody can say.
    let waits = handle.submit(from("alice", "m-1")).await.unwrap().task;
    let served = handle.submit(from("bob", "m-2")).await.unwrap().task;
    let bob = who("bob");
    let over = async {
        while handle.task(&bob.principal, &AgentId::new("fx"), served).await.unwrap().state != TaskState::Completed {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, over).await.expect("who is known without tokens is served");
    let view = until(&handle, waits, |view| view.waiting_on.is_some()).await;
    assert_eq!((view.state, view.delivery, view.attempts), (TaskState::Submitted, Delivery::NotSent, 0));
    // By the principal alone nothing is taken on meanwhile.
    let unsure = handle.submit(NewCall { who: None, ..from("alice", "m-3") }).await.unwrap_err();
    assert!(matches!(unsure, Declined::Refused { reason: Reason::StoreUnavailable, .. }), "{unsure:?}");
    std::fs::remove_file(&path).unwrap();
    edit(&path, |all| {
        all.push(token_of("alice"));
        Ok(())
    })
    .unwrap();
    until(&handle, waits, |view| view.state == TaskState::Completed).await;
    let unknown = handle.submit(NewCall { who: None, ..from("mallory", "m-4") }).await.unwrap_err();
    assert!(matches!(unknown, Declined::Forbidden { .. }), "{unknown:?}");
}

//! Whatever a cancel is answered with, it becomes one of four words.

use watertight_engine::input::CancelAnswer;
use watertight_engine::record::TaskState;

use super::*;

async fn canceled(script: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> (CancelAnswer, Vec<String>) {
    let peer = Peer::start(move |request, _| script(request)).await;
    let agent = peer.agent(|_| {});
    let until = Time::from_millis(1_000_000) + Span::from_secs(1);
    let answer = agent.cancel(&RemoteId::from("t-1"), &Named::default(), until).await;
    (answer, peer.methods())
}

#[tokio::test]
async fn a_task_tells_by_its_state() {
    for (state, word) in [
        ("CANCELED", CancelAnswer::Ended(TaskState::Canceled)),
        ("COMPLETED", CancelAnswer::Ended(TaskState::Completed)),
        ("FAILED", CancelAnswer::Ended(TaskState::Failed)),
        ("WORKING", CancelAnswer::GoesOn),
        ("INPUT_REQUIRED", CancelAnswer::GoesOn),
        ("PAUSED", CancelAnswer::GoesOn),
    ] {
        let (answer, methods) = canceled(move |request| ok(request, &task(state))).await;
        assert_eq!((answer, methods.len()), (word, 1), "{state}");
    }
    let wrapped = canceled(|request| ok(request, &json!({"task": task("CANCELED")}))).await.0;
    assert_eq!(wrapped, CancelAnswer::Ended(TaskState::Canceled));
}

#[tokio::test]
async fn errors_have_their_meaning() {
    for (code, word) in [
        (-32001, CancelAnswer::NotFound),
        (-32004, CancelAnswer::GoesOn),
        (-32601, CancelAnswer::GoesOn),
        (-32603, CancelAnswer::Failed),
    ] {
        assert_eq!(canceled(move |request| error(request, code)).await.0, word, "{code}");
    }
    let over = |state: &'static str| {
        canceled(move |request| match request.method().as_str() {
            "CancelTask" => error(request, -32002),
            "GetTask" if state == "gone" => error(request, -32001),
            _ => ok(request, &task(state)),
        })
    };
    assert_eq!(
        over("COMPLETED").await,
        (CancelAnswer::Ended(TaskState::Completed), vec!["CancelTask".into(), "GetTask".into()])
    );
    assert_eq!(over("CANCELED").await.0, CancelAnswer::Ended(TaskState::Canceled));
    assert_eq!(over("WORKING").await.0, CancelAnswer::GoesOn);
    assert_eq!(over("gone").await.0, CancelAnswer::NotFound);
}

#[tokio::test]
async fn nonsense_is_no_answer() {
    for body in [
        "null",
        "[]",
        "[1]",
        "\"x\"",
        "{}",
        "",
        "<html>",
        r#"{"result":null}"#,
        r#"{"result":[]}"#,
        r#"{"error":null}"#,
    ] {
        assert_eq!(canceled(move |_| http("200 OK", "application/json", body)).await.0, CancelAnswer::Failed, "{body}");
    }
    assert_eq!(canceled(|request| ok(request, &json!(null))).await.0, CancelAnswer::Failed);
    assert_eq!(
        canceled(|request| ok(request, &json!({"id": "t-9", "status": {"state": "TASK_STATE_CANCELED"}}))).await.0,
        CancelAnswer::Failed
    );
    assert_eq!(canceled(|_| http("500 Oops", "text/html", "<html>")).await.0, CancelAnswer::Failed);
    assert_eq!(canceled(|_| vec![Act::Reset]).await.0, CancelAnswer::Failed);
    assert_eq!(canceled(|_| vec![Act::Hold]).await.0, CancelAnswer::Failed);
    let gone = agent("http://127.0.0.1:1/".parse().unwrap(), |_| {});
    assert_eq!(gone.cancel(&RemoteId::from("t-1"), &Named::default(), Time::FAR).await, CancelAnswer::Failed);
    assert_eq!(gone.cancel(&RemoteId::from("t-1"), &Named::default(), Time::ZERO).await, CancelAnswer::Failed);
}

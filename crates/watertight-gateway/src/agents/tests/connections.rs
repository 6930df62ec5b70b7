//! Kept connections: used again, closed in time, and never a reason for an error or for a second execution.

use super::*;

async fn echo(keep: Duration) -> Peer {
    Peer::closing_after(|request, _| ok(request, &json!({"task": task("COMPLETED")})), Some(keep)).await
}

fn connections(peer: &Peer) -> usize {
    let mut used: Vec<_> = peer.calls().iter().map(|call| call.connection).collect();
    used.dedup();
    used.len()
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let peer = echo(Duration::from_secs(5)).await;
    let agent = peer.agent(|_| {});
    for _ in 0..10 {
        assert!(send(&agent, job()).await.0.ended.is_ok());
    }
    assert_eq!((peer.calls().len(), connections(&peer)), (10, 1));
}

#[tokio::test]
async fn a_peer_that_closes_what_is_unused_causes_no_error() {
    // Around the peer's own limit, with a limit of ours that does not help.
    let peer = echo(Duration::from_millis(40)).await;
    let agent = peer.agent(|config| config.pool_idle = Duration::from_secs(4));
    for n in 0..25u64 {
        sleep(Duration::from_millis(30 + n % 20)).await;
        let (end, _) = send(&agent, job()).await;
        // A close that crosses the request on the wire cannot be told from a crash; what must not happen is a second execution.
        if end.ended.is_err() {
            assert_eq!(why(&end), (Reason::AgentReset, Delivery::MaybeDelivered), "{n}");
        }
    }
    assert!(peer.calls().len() <= 25);

    let peer = echo(Duration::from_millis(80)).await;
    let agent = peer.agent(|config| config.pool_idle = Duration::from_millis(50));
    for n in 0..50u64 {
        sleep(Duration::from_millis(60 + n % 40)).await;
        let (end, _) = send(&agent, job()).await;
        assert!(end.ended.is_ok(), "{n}: {}", what(&end));
    }
    assert_eq!(peer.calls().len(), 50);
}

#[tokio::test]
async fn a_connection_that_the_peer_left_is_replaced_before_anything_is_written() {
    // Closed right after the answer, without saying so.
    let peer = Peer::start(|request, _| then(ok(request, &json!({"task": task("COMPLETED")})), Act::Close)).await;
    let agent = peer.agent(|_| {});
    for _ in 0..20 {
        assert!(send(&agent, job()).await.0.ended.is_ok());
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(peer.calls().len(), 20);
    // Reset, likewise.
    let peer = Peer::start(|request, _| {
        then(then(ok(request, &json!({"task": task("COMPLETED")})), Act::Sleep(2)), Act::Reset)
    })
    .await;
    let agent = peer.agent(|_| {});
    for _ in 0..20 {
        assert!(send(&agent, job()).await.0.ended.is_ok());
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(peer.calls().len(), 20);
}

#[tokio::test]
async fn an_unused_connection_is_closed() {
    let peer = echo(Duration::from_secs(5)).await;
    let agent = peer.agent(|config| config.pool_idle = Duration::from_millis(50));
    assert!(send(&agent, job()).await.0.ended.is_ok());
    sleep(Duration::from_millis(150)).await;
    assert!(send(&agent, job()).await.0.ended.is_ok());
    assert_eq!(connections(&peer), 2);
}

#[tokio::test]
async fn dropping_an_attempt_closes_its_connection() {
    let closed = Arc::new(tokio::sync::Notify::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let told = closed.clone();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let told = told.clone();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                let _ = socket.read_to_end(&mut bytes).await;
                if bytes.starts_with(b"POST") {
                    told.notify_one();
                }
            });
        }
    });
    let agent = agent(url, |config| config.card_wait = Duration::ZERO);
    let (job, mut relay) = (job(), Kept::default());
    assert!(tokio::time::timeout(Duration::from_millis(100), agent.send(&job, &mut relay)).await.is_err());
    tokio::time::timeout(Duration::from_secs(1), closed.notified()).await.expect("the connection is still open");
}

#[tokio::test]
async fn questions_pass_while_sends_hang() {
    let peer = Peer::start(|request, _| match request.method().as_str() {
        "SendMessage" => vec![Act::Hold],
        "CancelTask" => ok(request, &task("CANCELED")),
        _ => vec![Act::Close],
    })
    .await;
    let agent = peer.agent(|_| {});
    let hanging: Vec<_> = (0..50)
        .map(|_| {
            let agent = agent.clone();
            tokio::spawn(async move { agent.send(&job(), &mut Kept::default()).await })
        })
        .collect();
    sleep(Duration::from_millis(100)).await;
    let begun = tokio::time::Instant::now();
    agent.cancel(&RemoteId::from("t-1"), &Named::default(), Time::FAR).await;
    assert!(begun.elapsed() < Duration::from_millis(300));
    hanging.iter().for_each(|one| one.abort());
}

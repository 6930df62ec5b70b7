//! An agent over a real socket: every operation, each in the shape that A2A 1.0 gives it.

use super::*;
use crate::demo::client::Client;

async fn agent(latency_ms: u64) -> (Client, Arc<Book>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let book = Arc::new(Book::new(Agent::Hotels, url.clone(), Duration::from_millis(latency_ms)));
    tokio::spawn(serve(listener, Arc::clone(&book), std::future::pending()));
    (Client::new(url), book)
}

async fn rpc(client: &Client, method: &str, params: Value) -> Value {
    client.post("", &json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})).await.unwrap()
}

fn message(immediately: bool) -> Value {
    json!({
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "a room"}], "contextId": "c1"},
        "configuration": {"returnImmediately": immediately},
    })
}

#[tokio::test]
async fn a_blocking_send_returns_the_completed_task() {
    let (client, book) = agent(20).await;
    let answer = rpc(&client, "SendMessage", message(false)).await;
    assert_eq!(answer["id"], 7);
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["contextId"], "c1");
    let offer = &task["artifacts"][0]["parts"][0]["data"]["offers"][0];
    assert!(offer["id"].is_string() && offer["price"].is_number() && offer["currency"] == "EUR");
    let stats = book.stats();
    assert_eq!((&stats["started"], &stats["completed"], &stats["running"]), (&json!(1), &json!(1), &json!(0)));
}

#[tokio::test]
async fn a_cancel_stops_the_work_and_is_counted() {
    let (client, book) = agent(60_000).await;
    let sent = rpc(&client, "SendMessage", message(true)).await;
    let id = &sent["result"]["task"]["id"];
    assert_eq!(book.stats()["running"], 1);
    let canceled = rpc(&client, "CancelTask", json!({"id": id})).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
    let stats = book.stats();
    assert_eq!((&stats["canceled"], &stats["running"]), (&json!(1), &json!(0)));
    let again = rpc(&client, "CancelTask", json!({"id": id})).await;
    assert_eq!(again["result"]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(book.stats()["canceled"], 1);
}

#[tokio::test]
async fn a_hung_up_caller_does_not_stop_the_work() {
    let (client, book) = agent(300).await;
    let call = rpc(&client, "SendMessage", message(false));
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    assert_eq!(book.stats()["running"], 1);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(book.stats()["completed"], 1);
}

#[tokio::test]
async fn errors_have_a2a_codes() {
    let (client, _) = agent(0).await;
    let code = async |method: &str, params: Value| rpc(&client, method, params).await["error"]["code"].clone();
    assert_eq!(code("GetTask", json!({"id": "none"})).await, -32001);
    assert_eq!(code("message/send", json!({})).await, -32601);
    assert_eq!(code("SendMessage", json!({})).await, -32602);
    assert_eq!(code("CreateTaskPushNotificationConfig", json!({})).await, -32003);
    let done = rpc(&client, "SendMessage", message(false)).await;
    let id = &done["result"]["task"]["id"];
    assert_eq!(code("CancelTask", json!({"id": id})).await, -32002);
    assert_eq!(code("SubscribeToTask", json!({"id": id})).await, -32004);
    let parse = client.post("", &json!("not a request")).await.unwrap();
    assert_eq!(parse["error"]["code"], -32600);
}

#[tokio::test]
async fn a_stream_is_task_status_artifact_completion() {
    let (client, _) = agent(50).await;
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message(false)});
    let text = client.post_text("", &body).await.unwrap();
    let events: Vec<Value> = text
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .map(|data| serde_json::from_str::<Value>(data).unwrap()["result"].clone())
        .collect();
    assert!(events[0]["task"]["id"].is_string());
    let n = events.len();
    assert!(events[n - 2]["artifactUpdate"]["artifact"]["parts"][0]["data"].is_object());
    assert_eq!(events[n - 1]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(events[n - 1]["statusUpdate"]["contextId"], "c1");
}

#[tokio::test]
async fn a_subscriber_sees_the_task_first() {
    let (client, _) = agent(150).await;
    let sent = rpc(&client, "SendMessage", message(true)).await;
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask",
        "params": {"id": sent["result"]["task"]["id"]}});
    let text = client.post_text("", &body).await.unwrap();
    assert!(text.starts_with("data: ") && text.contains("\"task\""));
    assert!(text.trim_end().ends_with('}') && text.contains("TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn a_list_has_pages() {
    let (client, _) = agent(0).await;
    for _ in 0..3 {
        rpc(&client, "SendMessage", message(false)).await;
    }
    let first = rpc(&client, "ListTasks", json!({"pageSize": 2, "contextId": "c1"})).await;
    let first = &first["result"];
    assert_eq!((first["tasks"].as_array().unwrap().len(), &first["totalSize"]), (2, &json!(3)));
    assert!(first["tasks"][0].get("artifacts").is_none());
    let rest = rpc(&client, "ListTasks", json!({"pageSize": 2, "pageToken": first["nextPageToken"]})).await;
    assert_eq!((rest["result"]["tasks"].as_array().unwrap().len(), &rest["result"]["nextPageToken"]), (1, &json!("")));
    let wrong = rpc(&client, "ListTasks", json!({"pageSize": 0})).await;
    assert_eq!(wrong["error"]["code"], -32602);
}

#[tokio::test]
async fn latency_changes_while_it_runs() {
    let (client, book) = agent(60_000).await;
    client.post("/demo/latency", &json!({"ms": 1})).await.unwrap();
    rpc(&client, "SendMessage", message(false)).await;
    assert_eq!(book.stats()["latency_ms"], 1);
    let card: Value = serde_json::from_slice(&client.get("/.well-known/agent-card.json").await.unwrap()).unwrap();
    assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "1.0");
}

//! An agent written with the official Rust SDK: `watertight-sdk-agent [BINDING …]`
//!
//! Serves A2A 1.0 over the bindings named, in this order on its card (jsonrpc at /, rest below /rest; both without names). It prints
//! `listening on URL`, and ends when its standard input does. What the words of a message mean is written in ../python/agent.py.

use std::collections::HashMap;
use std::io::Read;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use a2a::{
    A2AError, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Artifact, Message, Part, Role,
    StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, new_artifact_id,
};
use a2a_server::agent_card::agent_card_router;
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use a2a_server::{AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, StaticAgentCard};
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

const EXTENSION: &str = "https://example.com/extensions/politeness/v1";

type Event = Result<StreamResponse, A2AError>;
type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;
/// The tasks that work for a while, each with what ends it.
type Running = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// Does what the message says.
#[derive(Default)]
struct Clerk {
    running: Running,
}

impl AgentExecutor for Clerk {
    fn execute(&self, context: ExecutorContext) -> Events {
        let (sender, mut receiver) = unbounded_channel();
        let turn = Turn { context, sender, running: self.running.clone() };
        tokio::spawn(turn.run());
        Box::pin(futures_util::stream::poll_fn(move |polled| receiver.poll_recv(polled)))
    }

    fn cancel(&self, context: ExecutorContext) -> Events {
        self.running.lock().unwrap().remove(&context.task_id).map(|end| end.send(()).ok());
        let (task_id, context_id) = context.task_info();
        let canceled = status_update(task_id, context_id, TaskState::Canceled, None);
        Box::pin(futures_util::stream::iter([Ok(canceled)]))
    }
}

/// One message, and where what comes of it goes.
struct Turn {
    context: ExecutorContext,
    sender: UnboundedSender<Event>,
    running: Running,
}

impl Turn {
    async fn run(self) {
        let message = self.context.message.clone().expect("an execution has a message");
        let text = message.text().unwrap_or_default().to_owned();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let seconds = || Duration::from_secs_f64(rest.parse().unwrap());
        if word == "say" {
            let mut answer = Message::new(Role::Agent, vec![Part::text(rest)]);
            answer.context_id = Some(self.context.context_id.clone());
            return self.publish(StreamResponse::Message(answer));
        }
        if word == "quiet" {
            tokio::time::sleep(seconds()).await;
        }
        // The SDK stores a new task before it asks for its execution.
        let waits = self.context.stored_task.as_ref().is_some_and(|task| task.status.state == TaskState::InputRequired);
        self.publish(StreamResponse::Task(self.context.stored_task.clone().unwrap_or_else(|| Task {
            id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: None },
            artifacts: None,
            history: Some(vec![message.clone()]),
            metadata: None,
        })));
        self.becomes(TaskState::Working, None);
        if waits {
            self.artifact(vec![Part::text(format!("booked for {text}"))]);
            return self.becomes(TaskState::Completed, None);
        }
        match word {
            "fail" => return self.becomes(TaskState::Failed, Some("it broke")),
            "slow" => {
                let (end, ended) = oneshot::channel();
                self.running.lock().unwrap().insert(self.context.task_id.clone(), end);
                tokio::select! {
                    () = tokio::time::sleep(seconds()) => self.artifact(vec![Part::text("slow but done")]),
                    _ = ended => return,
                }
            }
            "die" => {
                tokio::time::sleep(Duration::from_millis(200)).await;
                std::process::exit(1);
            }
            "quiet" => self.artifact(vec![Part::text("quiet but done")]),
            "book" => return self.becomes(TaskState::InputRequired, Some("which day?")),
            "data" => self.artifact(vec![Part::data(offer())]),
            "file" => self.artifact(vec![
                Part::raw((0..=255).collect()).with_media_type("image/png").with_filename("room.png"),
                Part::url("https://example.com/menu.pdf").with_media_type("application/pdf").with_filename("menu.pdf"),
            ]),
            "mirror" => self.artifact(message.parts[1..].to_vec()),
            "extensions" => {
                let asked = self.context.service_params.get("a2a-extensions").cloned().unwrap_or_default();
                self.artifact(vec![Part::text(asked.join(","))]);
            }
            "count" => {
                let pieces: usize = rest.parse().unwrap();
                for n in 0..pieces {
                    self.chunk("count".into(), vec![Part::text(format!("{n} "))], n > 0, n == pieces - 1);
                    // The SDK keeps no more than 32 events for a reader, and ends the stream of one that falls behind.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            "big" => self.artifact(vec![Part::text("0123456789abcdef".repeat(64 * rest.parse::<usize>().unwrap()))]),
            _ => self.artifact(vec![Part::text(format!("echo: {text}"))]),
        }
        self.becomes(TaskState::Completed, None);
    }

    fn becomes(&self, state: TaskState, says: Option<&str>) {
        let (task_id, context_id) = self.context.task_info();
        self.publish(status_update(task_id, context_id, state, says));
    }

    fn artifact(&self, parts: Vec<Part>) {
        self.chunk(new_artifact_id(), parts, false, true);
    }

    fn chunk(&self, artifact_id: String, parts: Vec<Part>, append: bool, last: bool) {
        let (task_id, context_id) = self.context.task_info();
        self.publish(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id,
            context_id,
            artifact: Artifact { artifact_id, name: None, description: None, parts, metadata: None, extensions: None },
            append: Some(append),
            last_chunk: Some(last),
            metadata: None,
        }));
    }

    /// Nobody may be listening any more, which is no fault of this turn.
    fn publish(&self, event: StreamResponse) {
        self.sender.send(Ok(event)).ok();
    }
}

fn status_update(task_id: String, context_id: String, state: TaskState, says: Option<&str>) -> StreamResponse {
    let message = says.map(|text| {
        let mut message = Message::new(Role::Agent, vec![Part::text(text)]);
        message.context_id = Some(context_id.clone());
        message.task_id = Some(task_id.clone());
        message
    });
    // The SDK fills in the time.
    let status = TaskStatus { state, message, timestamp: None };
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, status, metadata: None })
}

fn offer() -> Value {
    json!({
        "rooms": [101, 102],
        "price": 12.5,
        "below": -3,
        "note": null,
        "free": false,
        "name": "Zimmer „7“ \u{2603}",
        "nested": {"deep": [{"a": null}, [1, [2.25]], {}, []]},
    })
}

fn card(url: &str, bindings: &[String]) -> AgentCard {
    let served = |binding: &String| match binding.as_str() {
        "jsonrpc" => AgentInterface::new(url, "JSONRPC"),
        "rest" => AgentInterface::new(format!("{url}rest"), "HTTP+JSON"),
        other => panic!("{other:?} is neither jsonrpc nor rest"),
    };
    AgentCard {
        name: "clerk".into(),
        description: "Does what the message says.".into(),
        version: "1.0.0".into(),
        supported_interfaces: bindings.iter().map(served).collect(),
        capabilities: capabilities(),
        default_input_modes: vec!["text/plain".into()],
        default_output_modes: vec!["text/plain".into()],
        skills: vec![AgentSkill {
            id: "do".into(),
            name: "do".into(),
            description: "Does what it is told.".into(),
            tags: vec!["test".into()],
            examples: None,
            input_modes: None,
            output_modes: None,
            security_requirements: None,
        }],
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    }
}

fn capabilities() -> AgentCapabilities {
    AgentCapabilities {
        streaming: Some(true),
        push_notifications: None,
        extensions: Some(vec![AgentExtension {
            uri: EXTENSION.into(),
            description: None,
            required: None,
            params: None,
        }]),
        extended_agent_card: None,
    }
}

fn main() {
    let mut bindings: Vec<String> = std::env::args().skip(1).collect();
    if bindings.is_empty() {
        bindings = vec!["jsonrpc".into(), "rest".into()];
    }
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(&bindings)).unwrap();
}

async fn serve(bindings: &[String]) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let handler =
        DefaultRequestHandler::new(Clerk::default(), InMemoryTaskStore::new()).with_capabilities(capabilities());
    let handler = Arc::new(handler);
    let mut app = agent_card_router(Arc::new(StaticAgentCard::new(card(&url, bindings))));
    if bindings.iter().any(|binding| binding == "jsonrpc") {
        app = app.merge(jsonrpc_router(handler.clone()));
    }
    if bindings.iter().any(|binding| binding == "rest") {
        app = app.nest("/rest", rest_router(handler));
    }
    println!("listening on {url}");
    axum::serve(listener, app).await
}

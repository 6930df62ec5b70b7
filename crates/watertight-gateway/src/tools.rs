//! The tools that a model uses to work with other agents: what each takes, does, and says.
//!
//! Assumes that the caller is known. Every answer is one of three kinds, and says which: *answer* (what came of it, or what
//! the agent asks), *accepted* (the work goes on), *refused* (nothing was begun, why, and what to do instead). What another
//! agent wrote stands in it only framed by [`watertight_policy::boundary`]; the rest are our own words. How it is carried to
//! the model is the face's business ([`crate::http`]).

mod arguments;
mod delegate;
mod inbox;
mod peers;
mod results;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use watertight_a2a::said::{Content, Said as Heard};
use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::record::TaskState;
use watertight_policy::boundary::{Nonce, PeerText, What, frame};
use watertight_policy::reason::Reason;

use crate::clock;
use crate::config::Agent;
use crate::error::{Problem, first_sentence};
use crate::handle::{Declined, Handle, Trace};
use crate::http::auth::Who;
use crate::hub::TaskView;
use crate::outbox::Receipt;

use arguments::TOOLS;
pub(crate) use arguments::Tool;

/// Bytes that a model is shown of an agent's own words about itself.
const MAX_DESCRIPTION: usize = 1_000;

/// Bytes that it is shown of a result that is too large to be shown whole.
const PREVIEW_BYTES: usize = 2_000;

/// What the tools work on. Nothing of it changes; a new configuration is a new one.
pub(crate) struct Desk {
    handle: Handle,
    agents: BTreeMap<AgentId, Agent>,
}

/// One call of a tool.
pub(crate) struct Session {
    pub(crate) desk: Arc<Desk>,
    pub(crate) who: Arc<Who>,
    pub(crate) trace: Trace,
}

/// What a tool says.
pub(crate) struct Said {
    /// For the model, as prose.
    pub(crate) text: String,
    /// The same for programs; `kind` first.
    pub(crate) fields: Map<String, Value>,
    /// It is not what was wanted.
    pub(crate) failed: bool,
    /// To be told when it was written.
    pub(crate) receipt: Option<Receipt>,
}

impl Desk {
    pub(crate) fn new(handle: Handle, agents: BTreeMap<AgentId, Agent>) -> Desk {
        Desk { handle, agents }
    }
}

impl Session {
    /// Those that are for this caller.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        let delegates = self.desk.handle.rules().can_delegate(&self.who);
        self.there_are().filter(move |tool| delegates || !tool.delegates)
    }

    /// Likewise, with those that are refused whenever they are used.
    fn there_are(&self) -> impl Iterator<Item = &'static Tool> {
        let fetches = self.who.agent.as_ref().is_some_and(|agent| self.desk.handle.fetches(agent));
        TOOLS.iter().filter(move |tool| fetches || !tool.fetches)
    }

    /// Carries one out.
    pub(crate) async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Option<Said> {
        let tool = self.there_are().find(|known| known.name == tool)?;
        let arguments = Value::Object(arguments);
        let said = match tool.name {
            "list_peers" => match arguments::none(arguments) {
                Ok(()) => Ok(self.list_peers()),
                Err(wrong) => Err(wrong),
            },
            "delegate_task" => self.delegate(arguments, true).await,
            "delegate_task_async" => self.delegate(arguments, false).await,
            "check_task_status" => self.check_task(arguments).await,
            "cancel_task" => self.cancel_task(arguments).await,
            "check_inbox" => match arguments::none(arguments) {
                Ok(()) => Ok(self.check_inbox().await),
                Err(wrong) => Err(wrong),
            },
            "reply" => self.reply(arguments).await,
            "read_delegation_results" => self.read_results(arguments).await,
            _ => return None,
        };
        Some(said.unwrap_or_else(Said::wrong))
    }

    /// One that there is for this caller. That it may be sent something is the handle's to judge.
    fn agent(&self, name: &AgentId) -> Option<&Agent> {
        self.desk.agents.get(name).filter(|_| self.desk.handle.rules().exists(&self.who, name))
    }

    /// What came of a task, or how far it is.
    fn told(&self, view: &TaskView) -> Said {
        let (id, agent, state) = (view.task, &view.agent, word(view.state));
        let (head, content, failed) = match view.said() {
            Heard::Accepted(_) | Heard::Nothing => return accepted(view),
            Heard::Answer(content) => (format!("ANSWER: task {id} of agent {agent} is {state}."), content, false),
            Heard::Asks(content) => {
                let head = match view.reason {
                    Some(reason) => format!(
                        "QUESTION: task {id} of agent {agent} still waits for your answer; the last one did not reach it \
                         ({reason}: {}). To answer again, call delegate_task with answers = \"{id}\".",
                        first_sentence(reason)
                    ),
                    None => format!(
                        "QUESTION: task {id} of agent {agent} asks you something before it goes on. To answer, call \
                         delegate_task with answers = \"{id}\"."
                    ),
                };
                (head, content, false)
            }
            Heard::Failed(content) => {
                let why = view.reason.map(|reason| format!(" ({reason}: {})", first_sentence(reason)));
                let head = format!(
                    "FAILED: task {id} of agent {agent} is {state}{}. Asking the same again at once will not help. \
                     Ask another agent, do it yourself, or tell the user.",
                    why.unwrap_or_default()
                );
                (head, content, true)
            }
        };
        let mut fields = fields("answer", view);
        let (shown, whole) = self.peer_text(view, &content, &mut fields);
        let text = match (shown, whole) {
            (Some(framed), true) => format!("{head} What it said:\n{framed}"),
            (Some(framed), false) => format!(
                "{head} What it said is too large to be shown here; it is kept whole under the task id. It begins:\n{framed}"
            ),
            (None, _) => head,
        };
        Said { text, fields, failed, receipt: None }
    }

    /// What the agent said, framed, and whether that is all of it.
    fn peer_text(
        &self,
        view: &TaskView,
        content: &Content<'_>,
        fields: &mut Map<String, Value>,
    ) -> (Option<String>, bool) {
        let text = if view.withheld { String::new() } else { content.text() };
        if text.is_empty() {
            return (None, true);
        }
        let max = self.desk.agents.get(&view.agent).map_or(u64::MAX, |of| of.settings.acceptance.max_result_bytes);
        let fits = text.len() as u64 <= max;
        fields.insert("bytes".to_owned(), json!(text.len()));
        let text = PeerText::new(text);
        let framed = framed(what_of(view.state), &if fits { text } else { text.preview(PREVIEW_BYTES) });
        fields.insert("text".to_owned(), json!(framed));
        fields.insert("whole".to_owned(), json!(fits));
        (framed, fits)
    }

    /// Why nothing was begun.
    fn declined(&self, declined: Declined, agent: &AgentId, task: Option<&str>) -> Said {
        let walls = self.desk.agents.get(agent).map(|agent| &agent.settings);
        let problem = Problem::declined(declined, agent, task, walls);
        Said::refused(&problem.error.message, problem.reason())
    }
}

impl Said {
    /// Nothing was begun. `reason`: the word for it.
    fn refused(why: &str, reason: &str) -> Said {
        let mut fields = Map::new();
        // What happened is in the first sentence, and what to do about it in those after it.
        let next =
            Reason::from_word(reason).and_then(|reason| reason.explain().split_once(". ")).map_or("", |(_, n)| n);
        fields.insert("kind".to_owned(), json!("refused"));
        fields.insert("reason".to_owned(), json!(reason));
        fields.insert("why".to_owned(), json!(why));
        fields.insert("next".to_owned(), json!(next));
        let text = format!("REFUSED ({reason}), nothing was begun: {why} {next}").trim_end().to_owned();
        Said { text, fields, failed: true, receipt: None }
    }

    /// The arguments are not what the tool takes.
    fn wrong(why: String) -> Said {
        Said::refused(&why, "invalid_arguments")
    }
}

/// The work goes on.
fn accepted(view: &TaskView) -> Said {
    let waits = view.waiting_on.map(|reason| format!(", waiting ({reason}: {})", first_sentence(reason)));
    let text = format!(
        "ACCEPTED, no answer yet: task {} of agent {} is {}{}. The work goes on without you. Do not delegate it again: use \
         check_task_status with this task id, or read_delegation_results later.",
        view.task,
        view.agent,
        word(view.state),
        waits.unwrap_or_default()
    );
    Said { text, fields: fields("accepted", view), failed: false, receipt: None }
}

/// What programs are told of a task.
fn fields(kind: &str, view: &TaskView) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        out.insert(name.to_owned(), value);
    };
    put("kind", json!(kind));
    put("taskId", json!(view.task.to_string()));
    put("agent", json!(view.agent.as_str()));
    put("contextId", json!(&*view.context));
    put("state", json!(word(view.state)));
    put("reason", json!(view.reason.map(Reason::as_str)));
    if !view.state.is_terminal() {
        put("waitingOn", json!(view.waiting_on.map(Reason::as_str)));
        put("position", json!(view.position));
    }
    out
}

fn word(state: TaskState) -> &'static str {
    state.as_str().trim_start_matches("TASK_STATE_")
}

/// What an agent's last words are, by the state that they came with.
pub(crate) fn what_of(state: TaskState) -> What {
    match state {
        TaskState::Completed => What::Result,
        TaskState::InputRequired | TaskState::AuthRequired => What::Question,
        TaskState::Failed | TaskState::Canceled | TaskState::Rejected => What::Error,
        TaskState::Submitted | TaskState::Working => What::Status,
    }
}

/// For a model. `None`: the system has no randomness, and without it nothing is shown.
pub(crate) fn framed(what: What, text: &PeerText) -> Option<String> {
    let nonce = Nonce::new(u128::from_be_bytes(clock::random().ok()?));
    Some(frame(what, text, nonce))
}

fn task_id(text: &str) -> Result<TaskId, Said> {
    TaskId::parse(text).ok_or_else(not_found)
}

/// The same for a task that does not exist and for one of somebody else.
fn not_found() -> Said {
    Said::refused("there is no such task of yours.", "task_not_found")
}

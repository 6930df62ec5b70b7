//! What one attempt hears from its agent: brought under our ids, numbered, recorded, and told to the cell in measures.
//!
//! Assumes that events come in order, from one task. Never waits: neither for a reader nor for the disk. Leaves out
//! sockets, retries and verdicts: the client does the first, the cell the others.

use std::ops::ControlFlow;
use std::sync::Arc;

use watertight_a2a::edit::Ids;
use watertight_a2a::event::{Body, Event};
use watertight_a2a::json::Json;
use watertight_engine::ids::{Attempt, RemoteId};
use watertight_engine::input::{Fault, Outcome, Progress, Reply};
use watertight_engine::output::Dispatch;
use watertight_engine::record::{Delivery, ReplyKind, TaskState};
use watertight_policy::acceptance::{Measure, PeerState};
use watertight_policy::reason::Reason;

use crate::agents::{self, Job, News, Relay};
use crate::driver::shared::Shared;
use crate::hub::{self, Live};
use crate::late;
use crate::states::{digest_of, state_of};

/// One attempt's ear.
pub(crate) struct Ear {
    shared: Arc<Shared>,
    live: Arc<Live>,
    attempt: Attempt,
    max_task_bytes: usize,
    task_id: String,
    context_id: Arc<str>,
    remote_task: Option<RemoteId>,
    remote_context: Option<RemoteId>,
    /// The task id was learnt by this attempt.
    is_new: bool,
    last: Option<Last>,
}

/// The last event heard.
#[derive(Clone, Copy, Debug)]
struct Last {
    n: u64,
    /// Where the turn ends with it.
    ends: Option<TaskState>,
}

impl Ear {
    pub(crate) fn new(shared: Arc<Shared>, live: Arc<Live>, dispatch: &Dispatch, max_task_bytes: usize) -> Ear {
        live.begin(dispatch.attempt);
        Ear {
            task_id: live.task.to_string(),
            context_id: live.context(),
            shared,
            live,
            attempt: dispatch.attempt,
            max_task_bytes,
            remote_task: dispatch.remote_task.clone(),
            remote_context: dispatch.remote_context.clone(),
            is_new: false,
            last: None,
        }
    }

    /// The agent's task id, if this attempt was the first to hear of it.
    pub(crate) fn learnt(&self) -> Option<RemoteId> {
        self.remote_task.clone().filter(|_| self.is_new)
    }

    /// The contextId toward an agent that mints none of its own.
    pub(crate) fn context_toward(&self, job: &Job) -> String {
        job.dispatch.remote_context.as_deref().unwrap_or(&self.context_id).to_owned()
    }

    /// How the attempt ended, for the cell.
    pub(crate) fn finish(self, end: agents::End) -> Outcome {
        if let Some(detail) = end.detail {
            self.live.explain(self.attempt, detail_of(detail));
        }
        if let Some((state, text)) = self.live.take_late() {
            late::keep(&self.shared, self.live.task, state, text);
        }
        let word = self.last.and_then(|last| Some((last.n, last.ends?)));
        match (end.ended, word) {
            (Ok(()), Some((seq, state))) => {
                let record = self.live.relayed();
                let kind = if record.lone_message().is_some() { ReplyKind::Message } else { ReplyKind::Task };
                let measured = record.measure();
                let measure = Measure {
                    state: peer_state(state),
                    bytes: measured.bytes as u64,
                    data_parts: u32::try_from(measured.data_parts).unwrap_or(u32::MAX),
                    schema_failures: 0,
                    empty: measured.empty,
                };
                let (remote_task, remote_context) = (self.remote_task, self.remote_context);
                // What is not kept whole is none that anybody could check.
                let digest = record.digest().map(digest_of);
                Outcome::Replied(Reply { state, kind, measure, digest, remote_task, remote_context, seq })
            }
            (Ok(()), None) => Outcome::Failed(malformed()),
            (Err(fault), _) => Outcome::Failed(fault),
        }
    }

    /// Learns the agent's ids. `Ok(true)`: there was something new.
    fn learn(&mut self, event: &Event) -> Result<bool, Fault> {
        let mut news = false;
        if let Some(id) = event.task_id() {
            match self.remote_task.as_deref() {
                Some(known) if known == id => {}
                // A bare message may name anything; it is not the task's.
                Some(_) if matches!(event.body, Body::Message(_)) => {}
                Some(_) => return Err(malformed()),
                None => {
                    let id: RemoteId = id.into();
                    if !self.shared.hub.claim(&self.live, &id) {
                        return Err(malformed());
                    }
                    self.remote_task = Some(id);
                    self.is_new = true;
                    news = true;
                }
            }
        }
        if let Some(id) = event.context_id().filter(|id| self.remote_context.as_deref() != Some(*id)) {
            self.remote_context = Some(id.into());
            news = true;
        }
        Ok(news)
    }
}

impl Relay for Ear {
    fn event(&mut self, event: Event) -> ControlFlow<Fault> {
        if event.raw.as_bytes().len() > self.max_task_bytes {
            return ControlFlow::Break(too_large());
        }
        let news = match self.learn(&event) {
            Ok(news) => news,
            Err(fault) => return ControlFlow::Break(fault),
        };
        let Ok(ours) = event.with_ids(&Ids::new(&self.task_id, &self.context_id)) else {
            return ControlFlow::Break(malformed());
        };
        let state = event.state().map(state_of);
        let numbered = self.live.relay(self.attempt, ours, self.shared.clock.now());
        let ends = match (&event.body, &numbered) {
            (Body::Message(_), Some(numbered)) => numbered.lone.then_some(TaskState::Completed),
            (Body::Message(_), None) => Some(TaskState::Completed),
            (Body::Task(_) | Body::Status(_) | Body::Artifact(_), _) => {
                state.filter(|state| state.is_terminal() || state.is_interrupted())
            }
        };
        let n = numbered.map_or(0, |numbered| numbered.n);
        self.last = Some(Last { n, ends });
        if ends.is_none() && (news || numbered.is_some_and(|numbered| numbered.gated)) {
            let (remote_task, remote_context) = (self.remote_task.clone(), self.remote_context.clone());
            let progress = Progress { remote_task, remote_context, state, seq: n };
            self.shared.progressed(self.live.task, self.attempt, progress);
        }
        if let Some(numbered) = numbered {
            if !self.live.volatile {
                self.shared.hub.soil(self.live.task);
            }
            if numbered.bytes > self.max_task_bytes {
                return ControlFlow::Break(too_large());
            }
        }
        ControlFlow::Continue(())
    }

    fn learnt(&mut self, news: News) {
        match news {
            News::Unknown => self.shared.metrics.passed_over(&self.live.agent),
            News::Streaming | News::Heartbeat | News::Lost | News::Polled | News::Silent { .. } => {}
        }
    }
}

pub(crate) fn malformed() -> Fault {
    Fault { reason: Reason::AgentMalformed, delivery: Delivery::Delivered, retry_after: None, busy: false }
}

fn too_large() -> Fault {
    Fault { reason: Reason::ResultTooLarge, delivery: Delivery::Delivered, retry_after: None, busy: false }
}

fn peer_state(state: TaskState) -> PeerState {
    match state {
        TaskState::Submitted => PeerState::Submitted,
        TaskState::Working => PeerState::Working,
        TaskState::InputRequired => PeerState::InputRequired,
        TaskState::AuthRequired => PeerState::AuthRequired,
        TaskState::Completed => PeerState::Completed,
        TaskState::Failed => PeerState::Failed,
        TaskState::Canceled => PeerState::Canceled,
        TaskState::Rejected => PeerState::Rejected,
    }
}

fn detail_of(detail: agents::Detail) -> hub::Detail {
    let (code, message, data) = match detail.agent_error {
        Some(error) => (Some(error.code), error.message, error.data.map(Json::into_bytes)),
        None => (None, detail.what, None),
    };
    let (status, excerpt) = (detail.status, detail.excerpt);
    hub::Detail { code, message: Some(message), data, status, excerpt, resent: false }
}

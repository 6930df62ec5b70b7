//! The one door to the cells: what every face calls. Cheap to clone.
//!
//! Assumes that the caller is authenticated and may call the agent, and that its body is parsed and bounded. It does
//! the look-ups that the engine needs and has no store for, and waits for the engine's answer on a line; a caller that
//! leaves drops the future, and the line is closed. A foreign task is answered like one that does not exist.

mod access;
mod cancel;
mod claims;
mod delegations;
mod drain;
mod fetch;
mod list;
mod outbox;
mod push;
mod queue;
mod recall;
mod redrive;
mod stats;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::oneshot;
use watertight_a2a::call::SendPeek;
use watertight_a2a::json::Json;
use watertight_engine::ids::{AgentId, ContextKey, Key, LineId, Principal, RemoteId, TaskId};
use watertight_engine::input::{self, Input, KnownKey, Named, Submission, WireBudget, WireQueue};
use watertight_engine::output::Cause;
use watertight_engine::record::{Durability, Outbox, TaskState};
use watertight_policy::reason::Reason;
use watertight_policy::time::{Span, Time};
use watertight_store::ListQuery;

use crate::access::Refused;
use crate::agents::{Agent, Card};
use crate::clock::{mint_context, mint_task};
use crate::driver::inbox::Full;
use crate::driver::lines::{Line, Told};
use crate::driver::shared::{Health, Known, Shared};
use crate::http::auth::Who;
use crate::hub::{EventId, Home, Message, NoRoom, Subscription, TaskView};
use crate::outbox::Receipt;
use crate::{AgentSpec, CellLimits, Kept, StartError};

pub use claims::Trace;
pub(crate) use delegations::{Dealings, place_of, token_of};
pub use delegations::{Rows, Tree, Whose};
pub use drain::Drained;
pub(crate) use fetch::NotHeard;
pub use outbox::{Acknowledged, Arrived, NotAcknowledged, Reading};
pub(crate) use push::NoPush;
pub use queue::Queued;
pub use redrive::{NotRedriven, Redriven, key_of as idempotency_key};
pub use stats::AgentStats;

/// Look-ups in the store that may wait or run at once. One more is refused (`cell_overloaded`).
const MAX_LOOKUPS: usize = 1_024;

/// See the module's header.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// A message for an agent.
pub struct NewCall {
    /// Who calls.
    pub principal: Principal,
    /// By which credential, which says what it may. `None`: what counts is what anybody may who stands for the principal.
    pub who: Option<Arc<Who>>,
    /// Whom.
    pub agent: AgentId,
    /// The params of SendMessage, 1.0, as received. Kept raw.
    pub params: Bytes,
    /// What was read of them.
    pub peek: SendPeek,
    /// What the caller waits for.
    pub want: Want,
    /// How long the caller itself says that it waits; the agent's configured wait if it says nothing.
    pub wait: Option<Span>,
    /// What came in `x-budget`.
    pub budget: WireBudget,
    /// What came in `x-queue`.
    pub queue: WireQueue,
    /// The delegation that this one is started for, if the caller says so.
    pub parent: Option<TaskId>,
    /// The agent that the caller is, if it is one.
    pub from: Option<AgentId>,
    /// The W3C trace that it belongs to.
    pub trace: Trace,
    /// What it is known by in place of its messageId, if that was said.
    pub key: Option<Arc<str>>,
    /// The delegation that it repeats, at somebody's wish.
    pub redrives: Option<TaskId>,
    /// Where word of its end is left.
    pub outbox: Outbox,
}

/// See `watertight_engine::input::Want`, which also says when a wait ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// The turn's end, or the task as it is at the end of the wait.
    Reply,
    /// Likewise, and it may wait in the agent's queue for it.
    Result,
    /// A stream.
    Stream,
    /// Only that it is accepted.
    Accepted,
}

/// A message that was taken on.
#[derive(Debug)]
pub struct Accepted {
    /// The task.
    pub task: TaskId,
    /// The messageId was seen before: this is the first one's task.
    pub replay: bool,
    /// The task as it is now; over, if the caller waited for that.
    pub view: TaskView,
    /// For [`Want::Stream`]: everything from the first event on. Already over for a replay of a finished turn.
    pub stream: Option<Subscription>,
    /// Of an answer that is the turn's end: whoever writes it to the caller says so.
    pub receipt: Option<Receipt>,
}

/// Why there is no task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Declined {
    /// Not taken on. No attempt was spent, no dedupe key kept.
    Refused {
        /// From the one vocabulary.
        reason: Reason,
        /// Whose wall it was.
        agent: AgentId,
        /// Not worth trying before.
        retry_after: Option<Span>,
        /// Which limit it was, and whose.
        cause: Option<Box<Cause>>,
    },
    /// Not for this caller. Nothing was looked up, and nothing is kept.
    Forbidden {
        /// Which agent.
        agent: AgentId,
        /// By what.
        why: Refused,
    },
    /// The messageId was used before with another body.
    Conflict {
        /// By this task.
        first: TaskId,
    },
    /// No such task, or not the caller's.
    NotFound,
    /// The task is terminal: it takes no message, and no subscriber.
    TaskTerminal,
    /// The contextId named is not the task's.
    ContextMismatch,
    /// The task is terminal and not canceled.
    NotCancelable,
}

/// Which tasks to list. Always only the caller's own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Through this agent's door; all agents if `None`.
    pub agent: Option<AgentId>,
    /// In this context.
    pub context: Option<String>,
    /// In this state.
    pub state: Option<TaskState>,
    /// Changed at this time or later.
    pub changed_since: Option<Time>,
    /// At most so many: 1 to 100.
    pub limit: usize,
    /// The page's token, from the page before.
    pub after: Option<String>,
}

/// Some of a caller's tasks, last changed first.
#[derive(Debug, Default)]
pub struct Page {
    /// These.
    pub tasks: Vec<TaskView>,
    /// The next page's token; `None` on the last page.
    pub next: Option<String>,
    /// How many there are over all pages.
    pub total: u64,
}

/// Why there is no page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// The page token is none of ours.
    BadToken,
    /// The store cannot be read.
    StoreUnavailable,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Handle {
        Handle { shared }
    }

    /// Sends a message to an agent. Dropping the future means that the caller is gone; the work goes on.
    pub async fn submit(&self, call: NewCall) -> Result<Accepted, Declined> {
        let agent = call.agent.clone();
        let refuse = |reason| self.refused(&agent, reason);
        let Some(known) = self.shared.known(&agent) else { return Err(refuse(Reason::AgentUnknown)) };
        self.may_send(&call)?;
        if known.removed {
            return Err(refuse(Reason::AgentDraining));
        }
        let volatile = known.spec.engine.durability == Durability::Memory;
        self.open_for_work(&agent, volatile)?;
        // An id that was never given out names no task.
        let names = match call.peek.task_id.as_deref().map(TaskId::parse) {
            Some(None) => return Err(Declined::NotFound),
            Some(Some(task)) => Some(task),
            None => None,
        };
        let ask = Ask {
            key: Key {
                principal: call.principal.clone(),
                agent: agent.clone(),
                message_id: call.key.unwrap_or_else(|| call.peek.message_id.as_str().into()),
            },
            context: call.peek.context_id.as_deref().map(Arc::from),
            // What is live, the cell knows better than the store.
            names: names.filter(|task| self.shared.hub.live(*task).is_none() && self.shared.shelf.row(*task).is_none()),
        };
        let now = self.shared.clock.now();
        // Also for an agent that is kept in memory alone: it may have been durable before, and its keys are promised for the
        // whole window. Of what memory holds the cell is told when it is given the message.
        let found = self.look_up(&agent, ask.clone()).await?;
        let minted = mint_task(now).and_then(|task| Ok((task, mint_context(now)?, mint_context(now)?)));
        let Ok((task, new_context, remote_context)) = minted else { return Err(refuse(Reason::Internal)) };
        let wait = call.wait.or(known.spec.wait);
        let named = ask.context.is_some();
        let submission = Submission {
            line: self.shared.lines.mint(),
            want: match call.want {
                Want::Reply => input::Want::Reply { until: wait.map_or(Time::FAR, |wait| now + wait) },
                Want::Result => input::Want::Result { until: wait.map_or(Time::FAR, |wait| now + wait) },
                Want::Stream => input::Want::Stream,
                Want::Accepted => input::Want::Accepted,
            },
            task,
            principal: call.principal.clone(),
            agent: agent.clone(),
            message_id: ask.key.message_id.clone(),
            fingerprint: u128::from_be_bytes(call.peek.fingerprint.0),
            names: names.map(|task| Named { task, terminal: found.terminal }),
            context: ask.context.unwrap_or(new_context),
            context_named: named,
            remote_context: found.remote.or_else(|| (named || known.spec.engine.lookup).then_some(remote_context)),
            known: found.known,
            arrived: now,
            budget: call.budget,
            queue: call.queue,
            parent: call.parent,
            redrives: call.redrives,
            outbox: call.outbox,
            digest: call.peek.digest.map(crate::states::digest_of),
            claims: self.claims(&agent, call.from, &call.peek),
        };
        let message = Message { params: Json::assume(call.params), trace: call.trace, home: Home::here() };
        let (line, print) = (submission.line, submission.fingerprint);
        self.shared.hub.propose(line, ask.key, print, message).map_err(|room| {
            refuse(match room {
                NoRoom::Agent => Reason::BulkheadFull,
                NoRoom::Anybody => Reason::CellOverloaded,
            })
        })?;
        let input = Input::Submitted(Arc::new(submission));
        let told = self.ask(line, &agent, task, call.want == Want::Stream, input).await?;
        let Told::Task { task, replay, view, position, stream, receipt } = told else { return Err(declined(told)) };
        let mut view = match view {
            Some(view) => *view,
            None => self.stored_view(&call.principal, &agent, task).await?,
        };
        view.waiting_on = self.waits_on(&agent, view.waiting_on);
        (view.replay, view.position) = (replay, position);
        let stream = match (call.want, stream) {
            (Want::Stream, None) => Some(self.recalled_stream(&view).await?),
            (_, stream) => stream,
        };
        Ok(Accepted { task, replay, view, stream, receipt })
    }

    /// A task of this caller with this agent.
    pub async fn task(&self, principal: &Principal, agent: &AgentId, task: TaskId) -> Result<TaskView, Declined> {
        let live = self.shared.hub.live(task).filter(|live| live.belongs_to(principal, agent));
        let mut view = match live.and_then(|live| live.view()) {
            Some(view) => view,
            None => self.stored_view(principal, agent, task).await?,
        };
        view.waiting_on = self.waits_on(agent, view.waiting_on);
        if view.state.is_terminal() && view.state != TaskState::Completed {
            view.redriven_by = self.redriven_by(principal, agent, task).await.unwrap_or_default();
        }
        Ok(view)
    }

    /// The caller's tasks.
    pub async fn list(&self, principal: &Principal, filter: Filter) -> Result<Page, NoPage> {
        let after = filter.after.as_deref().map(|token| list::read_token(token).ok_or(NoPage::BadToken)).transpose()?;
        let query = ListQuery {
            agent: filter.agent,
            context: filter.context,
            states: filter.state.map(|state| vec![state]),
            changed_after: filter.changed_since,
            after,
            limit: filter.limit.clamp(1, 100),
            ..ListQuery::of(principal.clone())
        };
        let shared = self.shared.clone();
        let read = self.blocking(move || list::page(&shared, &[query]));
        read.await.map_err(|_| NoPage::StoreUnavailable)
    }

    /// A task's events: a snapshot, then what is newer; or everything after `after`, if that is still held.
    pub async fn subscribe(
        &self,
        principal: &Principal,
        agent: &AgentId,
        task: TaskId,
        after: Option<EventId>,
    ) -> Result<Subscription, Declined> {
        if let Health::Draining { .. } | Health::Gone = self.shared.health() {
            return Err(self.refused(agent, Reason::ShuttingDown));
        }
        let live = self.shared.hub.live(task).filter(|live| live.belongs_to(principal, agent));
        if let Some(live) = live.filter(|live| live.view().is_some()) {
            let joined = self.shared.hub.join(live.clone(), after, self.shared.clock.now());
            if joined.is_some() || !live.is_hollow() {
                return joined.ok_or(Declined::TaskTerminal);
            }
        }
        if self.stored_view(principal, agent, task).await?.state.is_terminal() {
            return Err(Declined::TaskTerminal);
        }
        let joined = self.recalled(task, move |shared, live| shared.hub.join(live, after, shared.clock.now())).await;
        // What was there and is not live any more has ended.
        joined.map_err(|reason| self.refused(agent, reason))?.flatten().ok_or(Declined::TaskTerminal)
    }

    /// An agent's own card, as last seen.
    pub fn card(&self, agent: &AgentId) -> Option<Arc<Card>> {
        self.shared.known(agent).filter(|known| !known.removed)?.agent.card()
    }

    /// How and where an agent is called first.
    pub fn interface(&self, agent: &AgentId) -> Option<(&'static str, String)> {
        Some(self.shared.known(agent).filter(|known| !known.removed)?.agent.interface())
    }

    /// The cell's own limits, which count from the next [`Handle::configure`] on.
    pub fn limit(&self, limits: CellLimits) {
        self.shared.limit(limits);
    }

    /// How long the store keeps what has ended, from now on.
    pub fn keep(&self, kept: Kept) {
        self.shared.kept.send_if_modified(|now| std::mem::replace(now, kept) != kept);
    }

    /// New limits and agents: those missing from the list take nothing new from now on; what runs goes on. An agent
    /// whose way of speaking did not change keeps its connections.
    pub async fn configure(&self, agents: Vec<AgentSpec>) -> Result<(), StartError> {
        let old = self.shared.all_known();
        let mut known = old.clone();
        for known in known.values_mut() {
            Arc::make_mut(known).removed = true;
        }
        for spec in agents {
            self.shared.shelf.limit(&spec.name, spec.memory);
            let was = old.get(&spec.name).filter(|old| !old.removed).map(|old| old.spec.engine.durability);
            if spec.engine.durability == Durability::Memory && was != Some(Durability::Memory) {
                tracing::warn!(
                    agent = %spec.name,
                    "durability = \"memory\": what this agent is asked is not written to disk, and is gone when the gateway ends"
                );
            }
            let kept = old.get(&spec.name).filter(|old| old.spec.wire == spec.wire);
            let agent = match kept {
                Some(kept) => kept.agent.clone(),
                None => Agent::new(spec.wire.clone(), self.shared.clock.clone())
                    .map_err(|why| StartError::Agent { agent: spec.name.clone(), why })?,
            };
            known.insert(spec.name.clone(), Arc::new(Known { spec, agent, removed: false }));
        }
        self.shared.set_known(known);
        crate::reminder::all_due(&self.shared);
        // Refused only when thousands of orders wait, or the cell is gone.
        self.shared.order(Input::Configured(self.shared.settings())).map_err(|_| StartError::Busy)
    }

    /// Lets traffic through to an agent again. `false`: no such agent.
    pub async fn breaker_reset(&self, agent: &AgentId) -> bool {
        let input = Input::BreakerReset { agent: agent.clone() };
        self.shared.known(agent).is_some_and(|known| !known.removed) && self.shared.order(input).is_ok()
    }

    /// Takes nothing new, ends all streams resumably, flushes, and closes the store; within the limit. Later calls wait
    /// for the first.
    pub async fn drain(&self, limit: Span) {
        let reserve = Span::from_millis(1_000).min(limit.div(4));
        if self.shared.begin_drain(self.shared.clock.now() + (limit - reserve)) {
            let _ = self.shared.order(Input::ShuttingDown);
            self.shared.hub.close_streams(crate::hub::End::ShuttingDown);
        }
        self.shared.gone().await;
    }

    /// What the store held is picked up, the cell answers, and the store can be written.
    pub fn ready(&self) -> bool {
        self.shared.health() == Health::Well
    }

    /// Cell time.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// For drills: the store behind it.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &watertight_store::Store {
        &self.shared.store
    }

    /// Likewise: the step that panics.
    #[cfg(test)]
    pub(crate) fn panic_in(&self, steps: usize) {
        self.shared.panic_in.store(steps, Ordering::Relaxed);
    }

    /// Likewise: the carrying out that panics.
    #[cfg(test)]
    pub(crate) fn act_panic_in(&self, times: usize) {
        self.shared.act_panic_in.store(times, Ordering::Relaxed);
    }

    /// Likewise: somebody who sits before the cell and does nothing.
    #[cfg(test)]
    pub(crate) fn sit_for(&self, time: std::time::Duration) {
        self.shared.seat.sit_for(time);
    }

    /// Likewise: who waits for an answer.
    #[cfg(test)]
    pub(crate) fn held_lines(&self) -> usize {
        self.shared.lines.open_up_to(LineId(u64::MAX)).len()
    }

    /// Likewise: what is live.
    #[cfg(test)]
    pub(crate) fn hub(&self) -> &crate::hub::Hub {
        &self.shared.hub
    }

    // ---- inside ----------------------------------------------------------------------------------------------------

    fn refused(&self, agent: &AgentId, reason: Reason) -> Declined {
        let known = self.shared.known(agent).is_some();
        self.shared.metrics.refused(agent, known, reason);
        let soon = matches!(reason, Reason::CellOverloaded | Reason::StoreUnavailable);
        let retry_after = soon.then(|| Span::from_millis(1_000));
        Declined::Refused { reason, agent: agent.clone(), retry_after, cause: None }
    }

    fn open_for_work(&self, agent: &AgentId, volatile: bool) -> Result<(), Declined> {
        match self.shared.health() {
            // What comes while it is being loaded waits for that.
            Health::Well | Health::Loading => Ok(()),
            // It needs no store. If the cell itself is away with it, who waits is told within the second.
            Health::NoStore if volatile => Ok(()),
            Health::NoStore => Err(self.refused(agent, Reason::StoreUnavailable)),
            Health::Draining { .. } | Health::Gone => Err(self.refused(agent, Reason::ShuttingDown)),
        }
    }

    /// Puts an input to the cell, and waits for what is told on its line.
    async fn ask(
        &self,
        id: LineId,
        agent: &AgentId,
        task: TaskId,
        stream: bool,
        input: Input,
    ) -> Result<Told, Declined> {
        let (to, told) = oneshot::channel();
        self.shared.lines.open(id, Line { to, agent: agent.clone(), task, stream });
        let caller = Caller { shared: &self.shared, line: id };
        if let Err(full) = self.shared.ask(input) {
            self.shared.lines.take(id);
            self.shared.hub.withdraw(id);
            return Err(self.refused(
                agent,
                match full {
                    Full::Full => Reason::CellOverloaded,
                    Full::Gone => Reason::ShuttingDown,
                },
            ));
        }
        let told = told.await;
        drop(caller);
        told.map_err(|_| self.refused(agent, Reason::Internal))
    }

    /// Nearly every message is new in all it names: that is known without the disk.
    async fn look_up(&self, agent: &AgentId, ask: Ask) -> Result<Found, Declined> {
        let context = ask.context.map(|context| ContextKey {
            principal: ask.key.principal.clone(),
            agent: ask.key.agent.clone(),
            context,
        });
        let store = self.shared.store.clone();
        let context = context.filter(|context| !store.is_new_context(context));
        if ask.names.is_none() && context.is_none() && store.is_new_key(&ask.key) {
            return Ok(Found::default());
        }
        let found = self.blocking(move || {
            let row = ask.names.map(|task| store.task(task)).transpose()?.flatten();
            let own = row.filter(|row| row.principal == ask.key.principal && row.agent == ask.key.agent);
            Ok(Found {
                known: store.key(&ask.key)?,
                remote: context.map(|key| store.context(&key)).transpose()?.flatten(),
                terminal: own.is_some_and(|row| row.state.is_terminal()),
            })
        });
        found.await.map_err(|reason| self.refused(agent, reason))
    }

    /// Reads from the store, on a thread that may wait for the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, watertight_store::ReadError> + Send + 'static,
    ) -> Result<T, Reason> {
        let shared = self.shared.clone();
        if shared.lookups.fetch_add(1, Ordering::Relaxed) >= MAX_LOOKUPS {
            shared.lookups.fetch_sub(1, Ordering::Relaxed);
            return Err(Reason::CellOverloaded);
        }
        // The count is given back when the read is over, not when its caller has left.
        let read = tokio::task::spawn_blocking(move || {
            let result = read();
            shared.lookups.fetch_sub(1, Ordering::Relaxed);
            result
        });
        match read.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                tracing::error!(%error, "a look-up failed");
                Err(Reason::StoreUnavailable)
            }
            Err(_) => Err(Reason::Internal),
        }
    }
}

/// A caller on a line: when it goes, the line is closed.
struct Caller<'a> {
    shared: &'a Shared,
    line: LineId,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if self.shared.lines.take(self.line).is_some() && self.shared.line_closed(self.line) {
            self.shared.hub.withdraw(self.line);
        }
    }
}

/// What a submission needs from the store.
#[derive(Clone)]
struct Ask {
    key: Key,
    context: Option<Arc<str>>,
    names: Option<TaskId>,
}

/// What the store said.
#[derive(Default)]
struct Found {
    known: Option<KnownKey>,
    remote: Option<RemoteId>,
    terminal: bool,
}

fn declined(told: Told) -> Declined {
    match told {
        Told::Declined(declined) => declined,
        Told::Task { .. } | Told::Acknowledged { .. } | Told::NotThatFar { .. } => Declined::NotFound,
        Told::Work { .. } | Told::NoWork => Declined::NotFound,
    }
}

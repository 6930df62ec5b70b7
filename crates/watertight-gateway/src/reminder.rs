//! The message that tells an agent that results wait in its outbox: for one that sleeps between turns, and is called by
//! nothing else.
//!
//! It is due as long as anything is not acknowledged. Nothing is stored of it: a restart finds what waits, and begins anew.
//! A cooldown, longer each time that nothing was acknowledged, puts it off and never drops it. It goes through the agent's
//! walls like anybody's message (queue, breaker, slots), one at a time, under a principal of its own that has no outbox, so
//! that an answer to it is no result that would be told again. Each owner has a task of its own here: one whose endpoint is
//! dead delays nobody.
//!
//! Assumes that the agent reads its results by another door. Leaves them out: the message is all our own words.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use watertight_a2a::call::{Call, Send};
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::Method;
use watertight_engine::ids::{AgentId, Owner, Principal, TaskId};
use watertight_engine::outbox::View;
use watertight_engine::record::Outbox;
use watertight_policy::time::{Span, Time};

use crate::clock::mint_context;
use crate::driver::shared::Shared;
use crate::handle::{Declined, Handle, NewCall, Trace, Want};

/// No caller is called so: names have no colons.
pub(crate) const CALLER: &str = "watertight:results";
/// The conversation in which an agent hears of its results.
const CONTEXT: &str = "results";
/// The cooldown is doubled so often, at most.
const DOUBLED: u32 = 5;

#[derive(Default)]
pub(crate) struct Reminders(Mutex<BTreeMap<Owner, Reminder>>);

/// How far it is with one owner.
#[derive(Clone, Default)]
struct Reminder {
    running: bool,
    /// The last one that was sent, and when.
    sent: Option<(TaskId, Time)>,
    /// The newest result at that time, and how many were sent since that one came.
    newest: u64,
    tries: u32,
}

impl Reminders {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, Reminder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that an owner is told, if anything waits for it and it wants to be.
pub(crate) fn due(shared: &Arc<Shared>, view: &View) {
    let Owner::Agent(tenant, agent) = &view.owner else { return };
    let ends = shared.draining().is_some() || shared.is_gone();
    if view.waiting == 0 || cooldown(shared, agent).is_none() || ends {
        return;
    }
    let mut reminders = shared.reminders.lock();
    if std::mem::replace(&mut reminders.entry(view.owner.clone()).or_default().running, true) {
        return;
    }
    let principal = Principal { tenant: tenant.clone(), caller: CALLER.into() };
    let teller = Teller { shared: shared.clone(), owner: view.owner.clone(), principal, agent: agent.clone() };
    shared.runtime.spawn(async move { teller.run().await });
}

/// All owners again: an agent that did not want to be told may want it now.
pub(crate) fn all_due(shared: &Arc<Shared>) {
    for view in shared.outboxes.all() {
        due(shared, &view);
    }
}

fn cooldown(shared: &Shared, agent: &AgentId) -> Option<Span> {
    shared.known(agent).filter(|known| !known.removed)?.spec.results
}

/// Tells one owner, until nothing waits for it.
struct Teller {
    shared: Arc<Shared>,
    owner: Owner,
    principal: Principal,
    agent: AgentId,
}

impl Drop for Teller {
    fn drop(&mut self) {
        if let Some(reminder) = self.shared.reminders.lock().get_mut(&self.owner) {
            reminder.running = false;
        }
        // What came while it ended found it running.
        due(&self.shared, &self.shared.outboxes.view(&self.owner));
    }
}

impl Teller {
    async fn run(&self) {
        let mut outbox = self.shared.outboxes.follow(&self.owner);
        loop {
            let view = outbox.borrow_and_update().clone();
            let wanted = cooldown(&self.shared, &self.agent).filter(|_| view.waiting > 0);
            let (Some(cooldown), None) = (wanted, self.shared.draining()) else { return };
            let (next, tries) = self.next(&view, cooldown);
            let now = self.shared.clock.now();
            if next > now {
                let wait = Duration::from_micros(next.since(now).as_micros());
                tokio::select! {
                    () = sleep(wait) => {}
                    changed = outbox.changed() => if changed.is_err() { return },
                    () = self.shared.gone() => return,
                }
                continue;
            }
            self.tell(&view, tries).await;
        }
    }

    /// When the next one is due, and which one it is of those about the newest result.
    fn next(&self, view: &View, cooldown: Span) -> (Time, u32) {
        let mut reminders = self.shared.reminders.lock();
        let reminder = reminders.entry(self.owner.clone()).or_default();
        if reminder.newest != view.newest {
            (reminder.newest, reminder.tries) = (view.newest, 0);
        }
        let times = 1 << reminder.tries.saturating_sub(1).min(DOUBLED);
        let pause = Span::from_micros(cooldown.as_micros().saturating_mul(times));
        (reminder.sent.map_or(Time::ZERO, |(_, at)| at + pause), reminder.tries)
    }

    async fn tell(&self, view: &View, tries: u32) {
        let handle = Handle::new(self.shared.clone());
        let before = self.shared.reminders.lock().get(&self.owner).and_then(|reminder| reminder.sent);
        if let Some((task, _)) = before
            && let Ok(old) = handle.task(&self.principal, &self.agent, task).await
        {
            if old.state.is_interrupted() {
                // Nobody will ever answer what it asks.
                let _ = handle.cancel(self.principal.clone(), self.agent.clone(), task, None).await;
            } else if !old.state.is_terminal() {
                // It waits for the agent, or is being worked on: another one would tell it nothing.
                return self.sent(task, tries);
            }
        }
        let Some(call) = self.call(view, tries) else { return self.sent(TaskId(0), tries) };
        match handle.submit(call).await {
            // A process before this one sent it already, and it is over: this one is the next.
            Ok(accepted) if accepted.replay && accepted.view.state.is_terminal() && tries < DOUBLED => {
                let mut reminders = self.shared.reminders.lock();
                reminders.entry(self.owner.clone()).or_default().tries = tries + 1;
            }
            Ok(accepted) => {
                tracing::info!(agent = %self.agent, waiting = view.waiting, tries, "results wait; the agent is told");
                self.sent(accepted.task, tries + 1);
            }
            // It was, with another number of results.
            Err(Declined::Conflict { first }) => self.sent(first, tries + 1),
            Err(why) => {
                tracing::info!(agent = %self.agent, waiting = view.waiting, ?why, "results wait, and the agent cannot be told yet");
                self.sent(before.map_or(TaskId(0), |(task, _)| task), tries);
            }
        }
    }

    fn sent(&self, task: TaskId, tries: u32) {
        let now = self.shared.clock.now();
        let mut reminders = self.shared.reminders.lock();
        let reminder = reminders.entry(self.owner.clone()).or_default();
        (reminder.sent, reminder.tries) = (Some((task, now)), tries);
    }

    fn call(&self, view: &View, tries: u32) -> Option<NewCall> {
        let results = match view.waiting {
            1 => "1 result waits".to_owned(),
            waiting => format!("{waiting} results wait"),
        };
        let text = format!(
            "{results} for you: what came of what you delegated. Read them with your tool for delegation results, `GET \
             /v1/outbox` at the gateway, or `watertight outbox`; use them; then acknowledge them up to the last one that \
             you have used. This is a notice of the gateway: nobody waits for an answer to it."
        );
        let message = json!({
            "messageId": format!("results-{}", mint_context(self.shared.clock.now()).ok()?),
            "role": "ROLE_USER",
            "contextId": CONTEXT,
            "parts": [{"text": text}],
            "metadata": {"x-results": {"pending": view.waiting, "newest": view.newest}},
        });
        let params = Json::assume(json!({ "message": message }).to_string());
        let Ok(Call::Send(Send { peek, params })) = Call::parse(Method::SendMessage, Some(params)) else { return None };
        Some(NewCall {
            principal: self.principal.clone(),
            who: None,
            agent: self.agent.clone(),
            params: params.into_bytes(),
            peek,
            want: Want::Accepted,
            wait: None,
            budget: Default::default(),
            queue: Default::default(),
            parent: None,
            from: None,
            trace: Trace::default(),
            // Known again by a process that comes after this one.
            key: Some(format!("\u{1}results:{}:{tries}", view.newest).into()),
            redrives: None,
            outbox: Outbox::None,
        })
    }
}

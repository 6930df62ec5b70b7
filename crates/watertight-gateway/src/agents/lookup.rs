//! Finding a task whose id was never learnt: by the message that started it, among the tasks of its context.
//!
//! Only inside a context that is ours alone. A messageId is the caller's choice, and two callers may choose the same one;
//! without a context between them, one would be shown the other's task.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use watertight_a2a::event::{Body, Event};
use watertight_a2a::json::Json;
use watertight_a2a::rest::outbound::Operation;
use watertight_engine::ids::RemoteId;

use super::turn::Turn;

/// The longest that the question may take.
const LIMIT: Duration = Duration::from_secs(3);

/// Times that it is asked where the agent says that it can be, and the pause before the second; it doubles. An agent
/// that broke the connection may be one that is just starting again.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);

impl Turn<'_> {
    /// Likewise, asked again for a while where the agent is known to answer that.
    pub(super) async fn lookup_patiently(&mut self) -> Option<RemoteId> {
        let tries = if self.agent.asker.config.lookup { TRIES } else { 1 };
        let mut pause = PAUSE;
        for left in (0..tries).rev() {
            let found = self.lookup().await;
            if found.is_some() || left == 0 {
                return found;
            }
            sleep(pause).await;
            pause *= 2;
        }
        None
    }

    /// The agent's id of the one task that has this turn's message in its history; `None` if there is none, or no telling.
    pub(super) async fn lookup(&mut self) -> Option<RemoteId> {
        let context = self.job.dispatch.remote_context.as_deref()?;
        let message = self.job.message.value().get("message")?.get("messageId")?.as_str()?.into_owned();
        let operation = Operation::ListTasks { context, page_size: 50, history_length: 100 };
        let asked = self.agent.ask(&self.endpoints, self.at, &operation, &self.along);
        let listed = timeout(LIMIT, asked).await.ok()?.1.ok()?;
        let tasks = listed.value().get("tasks")?;
        let mut found = tasks.items().filter_map(|task| holds(&listed.part(task), context, &message));
        let only = found.next()?;
        found.next().is_none().then_some(only)
    }
}

fn holds(task: &Json, context: &str, message: &str) -> Option<RemoteId> {
    let Body::Task(task) = Event::read_task_result(task).ok()?.body else { return None };
    let here = task.context_id.as_deref() == Some(context);
    let held = task.history.iter().any(|held| held.from_user && held.message_id.as_deref() == Some(message));
    (here && held).then(|| RemoteId::from(task.id))
}

//! What a caller is told when there is no result: one table from reasons to codes and statuses, and the texts.
//!
//! An A2A error answers in its own words. What is ours is JSON-RPC -32000 with an ErrorInfo of domain `watertight`.
//! A text names the agent, what happened and the limit that applied; it never invites to send again what may have
//! reached the agent. Peers' words in it were cleaned and bounded when they came in.

mod cause;

use http::StatusCode;
use watertight_a2a::error::{A2a, Detail as Datum, Error, INVALID_PARAMS, WATERTIGHT};
use watertight_a2a::json::Json;
use watertight_engine::ids::{AgentId, TaskId};
use watertight_engine::output::Cause;
use watertight_engine::record::Delivery;
use watertight_engine::settings::AgentSettings;
use watertight_policy::reason::{Kind, Reason};
use watertight_policy::time::Span;

use crate::handle::Declined;
use crate::hub::TaskView;

/// An error with the HTTP status that it has where it answers a whole request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// As the binding writes it.
    pub error: Error,
    /// 200 where the JSON-RPC body alone tells.
    pub status: StatusCode,
    /// Not worth trying before.
    pub retry_after: Option<Span>,
}

/// The table: how a reason is coded in JSON-RPC, and the status of an HTTP response whose whole content it is.
///
/// A refusal has a status of its own, so that proxies and clients that know no A2A do the right thing. A failure is
/// the answer to a request that was understood, so it is 200; only an expired time is 504.
pub const fn row(reason: Reason) -> (i32, StatusCode) {
    use Reason as R;
    match reason {
        R::BulkheadFull
        | R::BreakerOpen
        | R::AgentPacing
        | R::QueueFull
        | R::AgentDraining
        | R::CellOverloaded
        | R::ShuttingDown
        | R::StoreUnavailable => (WATERTIGHT, StatusCode::SERVICE_UNAVAILABLE),
        R::RateLimited | R::ContextQueueFull => (WATERTIGHT, StatusCode::TOO_MANY_REQUESTS),
        R::TaskBusy
        | R::DepthExhausted
        | R::FanoutExhausted
        | R::BudgetExhausted
        | R::DelegationCycle
        | R::ParentEnded
        | R::InputParked => (WATERTIGHT, StatusCode::CONFLICT),
        R::MessageIdConflict => (INVALID_PARAMS, StatusCode::CONFLICT),
        R::AgentUnknown => (WATERTIGHT, StatusCode::NOT_FOUND),
        R::Unauthenticated => (WATERTIGHT, StatusCode::UNAUTHORIZED),
        R::Forbidden => (WATERTIGHT, StatusCode::FORBIDDEN),
        R::TooLarge => (WATERTIGHT, StatusCode::PAYLOAD_TOO_LARGE),
        R::Internal => (WATERTIGHT, StatusCode::INTERNAL_SERVER_ERROR),
        R::DeadlineExceeded | R::AgentNoAnswer => (WATERTIGHT, StatusCode::GATEWAY_TIMEOUT),
        R::AgentMalformed => (-32006, StatusCode::OK),
        R::AgentConnectRefused
        | R::AgentConnectTimeout
        | R::AgentDnsFailure
        | R::AgentTlsFailure
        | R::AgentReset
        | R::AgentHttpError
        | R::AgentUnauthorized
        | R::AgentRejectedRequest
        | R::AgentRateLimited
        | R::AgentTruncated
        | R::AgentError
        | R::AgentUnreachable
        | R::ResultTooLarge
        | R::ResultRejected
        | R::OutcomeUnknown
        | R::Expired
        | R::Dropped
        | R::Canceled
        | R::ReaderLagged
        | R::ContextBusy
        | R::AgentAsleep
        | R::NoWorker
        | R::Backoff => (WATERTIGHT, StatusCode::OK),
    }
}

impl From<Error> for Problem {
    /// An error of A2A or JSON-RPC: the body tells all.
    fn from(error: Error) -> Problem {
        Problem { error, status: StatusCode::OK, retry_after: None }
    }
}

impl Problem {
    /// A refusal or failure of ours, in these words.
    pub fn of(reason: Reason, text: impl Into<String>) -> Problem {
        let (code, status) = row(reason);
        let mut error = Error::watertight(reason.as_str(), text);
        error.code = code;
        Problem { error, status, retry_after: None }
    }

    /// A whole request that was refused before it became a task. Nothing was sent.
    pub fn refusal(reason: Reason, text: impl Into<String>) -> Problem {
        let mut problem = Problem::of(reason, text);
        problem.error = problem.error.delivery(Delivery::NotSent.as_str());
        problem
    }

    /// A request that is none, for HTTP itself.
    pub fn http(status: StatusCode, error: Error) -> Problem {
        Problem { status, ..error.into() }
    }

    /// The status in the HTTP+JSON binding, which has one for everything: for a failure at the agent, that of a gateway
    /// behind which something failed.
    pub fn http_status(&self) -> StatusCode {
        if self.status != StatusCode::OK {
            return self.status;
        }
        let own = self.error.http_status().and_then(|status| StatusCode::from_u16(status).ok());
        own.unwrap_or(StatusCode::BAD_GATEWAY)
    }

    /// The word for it: ours, where there is one, else A2A's.
    pub fn reason(&self) -> &str {
        let infos = self.error.data.iter().filter_map(|datum| match datum {
            Datum::ErrorInfo { reason, domain, .. } => Some((domain == "watertight", reason.as_str())),
            Datum::BadRequest(_) | Datum::RetryInfo(_) | Datum::Raw(_) => None,
        });
        infos.max_by_key(|(ours, _)| *ours).map_or("", |(_, reason)| reason)
    }

    /// Adds when to come again.
    #[must_use]
    pub fn again(mut self, after: Option<Span>) -> Problem {
        if let Some(after) = after {
            self.error = self.error.retry_after_ms(after.as_micros().div_ceil(1_000));
            self.retry_after = Some(after);
        }
        self
    }

    /// Why there is no task. `walls`: the agent's limits, for the text.
    pub fn declined(declined: Declined, agent: &AgentId, task: Option<&str>, walls: Option<&AgentSettings>) -> Problem {
        match declined {
            Declined::Refused { reason, agent, retry_after, cause: why } => {
                let why = why.as_deref();
                let text = refusal_text(reason, &agent, walls, why);
                let mut problem = Problem::refusal(reason, text);
                problem.error = problem.error.agent(agent.as_str());
                if let Some(why) = why {
                    problem.error = cause::told(problem.error, why);
                }
                // What frees up by itself is worth a second try soon.
                let soon = matches!(reason, Reason::BulkheadFull | Reason::CellOverloaded | Reason::StoreUnavailable);
                problem.again(retry_after.or(soon.then_some(Span::from_secs(1))))
            }
            Declined::Forbidden { agent, why } => {
                let problem = Problem::refusal(Reason::Forbidden, format!("{}. Nothing was sent.", why.told(&agent)));
                Problem { error: problem.error.agent(agent.as_str()), ..problem }
            }
            Declined::Conflict { first } => {
                let text = format!(
                    "agent {agent}: this messageId was used before with another content, for task {first}; a repeat must be identical"
                );
                let mut problem = Problem::refusal(Reason::MessageIdConflict, text);
                problem.error = problem.error.agent(agent.as_str()).task_id(&first.to_string());
                problem
            }
            Declined::NotFound => Error::a2a(A2a::TaskNotFound).into(),
            Declined::TaskTerminal => {
                let text =
                    "the task has ended: it takes no message and no subscriber; send a new message without taskId";
                named(Error::a2a(A2a::UnsupportedOperation).message(text), agent, task).into()
            }
            Declined::ContextMismatch => {
                Error::invalid_params("message.contextId", "is not the context of the task named").into()
            }
            Declined::NotCancelable => {
                let text = "the task has ended and cannot be canceled";
                named(Error::a2a(A2a::TaskNotCancelable).message(text), agent, task).into()
            }
        }
    }

    /// A task that failed by our verdict, or with an error of the agent's own.
    pub fn failed(view: &TaskView, reason: Reason, limits: &Limits<'_>) -> Problem {
        let mut problem = Problem::of(reason, failure_text(view, reason, limits));
        problem.error =
            named(problem.error, &view.agent, Some(&view.task.to_string())).delivery(view.delivery.as_str());
        let detail = view.detail.as_deref();
        if reason == Reason::AgentMalformed {
            let mut error = Error::a2a(A2a::InvalidAgentResponse).message(problem.error.message.clone());
            error.data.append(&mut problem.error.data);
            problem.error = error;
        } else if let Some(code) = detail
            .filter(|_| is_answer(reason))
            .and_then(|d| d.code)
            .and_then(|code| i32::try_from(code).ok())
            .filter(|c| *c != 0)
        {
            // The agent's own error goes through as it came, with ours behind it. Zero is no code.
            let said = detail.and_then(|d| d.message.clone()).filter(|said| !said.is_empty());
            let mut error = Error::new(code, said.unwrap_or_else(|| problem.error.message.clone()));
            if let Some(data) = detail.and_then(|d| d.data.clone()) {
                let data = Json::assume(data);
                error.data.extend(data.value().items().map(|item| Datum::Raw(data.part(item))));
            }
            error.data.append(&mut problem.error.data);
            problem.error = error;
        }
        problem
    }
}

/// Whether an error of the agent's is its answer to the message. Of a task that was lost, the detail may be the answer
/// to a question of ours about it, and a caller would take it for its own.
fn is_answer(reason: Reason) -> bool {
    use Reason as R;
    matches!(reason, R::AgentError | R::AgentUnauthorized | R::AgentRateLimited | R::AgentRejectedRequest)
}

fn named(error: Error, agent: &AgentId, task: Option<&str>) -> Error {
    let error = error.agent(agent.as_str());
    match task {
        Some(task) => error.task_id(task),
        None => error,
    }
}

/// The limits that a text may have to name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    /// The agent's walls.
    pub walls: Option<&'a AgentSettings>,
    /// The agent's connect and idle timeouts.
    pub timeouts: Option<(std::time::Duration, std::time::Duration)>,
    /// What the caller said that it has left, in seconds.
    pub asked: Option<f64>,
}

fn refusal_text(reason: Reason, agent: &AgentId, walls: Option<&AgentSettings>, why: Option<&Cause>) -> String {
    let limit = why.map(|why| cause::text(reason, why)).or_else(|| walls.and_then(|w| refusal_limit(reason, w)));
    let said = first_sentence(reason);
    match limit {
        Some(limit) => format!("agent {agent}: {said} ({limit}). Nothing was sent."),
        None => format!("agent {agent}: {said}. Nothing was sent."),
    }
}

fn refusal_limit(reason: Reason, walls: &AgentSettings) -> Option<String> {
    let (bulkhead, budget) = (&walls.bulkhead, &walls.budget);
    let texts = [
        (
            Reason::BulkheadFull,
            format!(
                "{} in flight and {} waiting are its limit, and no slot came free within {}",
                bulkhead.max_in_flight, bulkhead.max_waiting, bulkhead.max_wait
            ),
        ),
        (Reason::QueueFull, format!("its limit is {} queued", walls.max_queued)),
        (Reason::BudgetExhausted, format!("{} of it are held back for the caller's own answer", budget.reserve)),
    ];
    texts.into_iter().find(|(of, _)| *of == reason).map(|(_, text)| text)
}

/// What happened to a task, for people: in an error, and in the task's status message.
pub fn failure_text(view: &TaskView, reason: Reason, limits: &Limits<'_>) -> String {
    let mut text = format!("agent {}: {}", view.agent, first_sentence(reason));
    if let Some(limit) = failure_limit(reason, limits) {
        text.push_str(&format!(" ({limit})"));
    }
    if let Some(detail) = view.detail.as_deref() {
        let status = detail.status.map(|status| format!("HTTP {status}"));
        let code = detail.code.map(|code| format!("error {code}"));
        for part in [status, code, detail.message.clone(), detail.excerpt.as_ref().map(|e| format!("it said: {e}"))] {
            if let Some(part) = part.filter(|part| !part.is_empty()) {
                text.push_str("; ");
                text.push_str(&part);
            }
        }
    }
    text.push_str(delivery_text(view.delivery, view.task).as_str());
    text
}

fn failure_limit(reason: Reason, limits: &Limits<'_>) -> Option<String> {
    let walls = limits.walls;
    let budget = || {
        let asked = limits.asked.map(Span::from_secs_f64);
        walls.map(|w| asked.unwrap_or(w.budget.remaining).min(w.budget.max_remaining)).or(asked)
    };
    // Silence ends with whichever comes first.
    let silence = || {
        let idle = limits.timeouts.map(|t| Span::from_micros(u64::try_from(t.1.as_micros()).unwrap_or(u64::MAX)))?;
        let budget = budget().filter(|budget| *budget < idle);
        Some(budget.map_or(format!("idle_timeout {idle}"), |budget| format!("budget {budget}")))
    };
    let texts = [
        (Reason::DeadlineExceeded, budget().map(|budget| format!("budget {budget}"))),
        (Reason::AgentConnectTimeout, limits.timeouts.map(|t| format!("connect_timeout {} ms", t.0.as_millis()))),
        (Reason::AgentNoAnswer, silence()),
        (Reason::ResultTooLarge, walls.map(|w| format!("max_result_bytes {}", w.acceptance.max_result_bytes))),
        (Reason::Expired, walls.map(|w| format!("queue_ttl {}", w.queue_ttl))),
    ];
    texts.into_iter().find(|(of, _)| *of == reason).and_then(|(_, text)| text)
}

fn delivery_text(delivery: Delivery, task: TaskId) -> String {
    match delivery {
        Delivery::NotSent => ". Nothing was sent.".to_owned(),
        Delivery::MaybeDelivered => {
            format!(". The agent may have received it: outcome unknown; look up task {task}.")
        }
        Delivery::Delivered => format!(". The agent had received it; look up task {task}."),
    }
}

/// What happened, without the advice: that is for operators, and may speak of trying again.
pub(crate) fn first_sentence(reason: Reason) -> &'static str {
    let text = reason.explain();
    text.split_once(". ").map_or(text.trim_end_matches('.'), |(first, _)| first)
}

/// Whether a reason is a refusal: turned away before a task existed.
pub fn is_refusal(reason: Reason) -> bool {
    reason.kind() == Kind::Refusal
}

#[cfg(test)]
mod tests;

//! `POST /v1/agents` and `/v1/agents/{agent}`: agents that register themselves, and leave.
//!
//! Who comes shows the secret of an enrolment and is given a token; who has that token may change what it said of itself,
//! look at itself, and leave. Nobody else may, but operators look and admins let go. A name that is another's is refused in
//! the same words whoever has it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_engine::ids::AgentId;
use watertight_policy::reason::Reason;
use watertight_policy::time::Span;

use super::api;
use super::auth::Who;
use super::body::Body;
use super::live::enrol::{Denial, Entered};
use super::reply::{json_response, plain, unknown};
use super::router::Router;
use crate::agents::resolves;
use crate::config::enrolment;
use crate::error::Problem;
use crate::registry::Wish;

/// The largest body: what is in it is a few short texts.
const MAX_BYTES: usize = 16 << 10;

/// How long a name may take to be looked up.
const LOOKUP: Duration = Duration::from_secs(2);

/// How often, and how soon again, figures are looked for that are published every few milliseconds.
const LOOKS: u32 = 50;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// By what somebody comes.
pub(super) enum By {
    /// The secret of this enrolment.
    Enrolment(String),
    /// A token.
    Token(Arc<Who>),
}

/// What is asked for.
#[derive(Debug)]
struct Asked {
    id: AgentId,
    wish: Wish,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: Option<String>,
    url: Option<String>,
    #[serde(default)]
    fetches: bool,
    lease: Option<String>,
    card: Option<String>,
    binding: Option<String>,
    mode: Option<String>,
    results: Option<String>,
    parent: Option<String>,
    max_in_flight: Option<u32>,
}

/// `POST /v1/agents`
pub(super) async fn register(router: &Router, by: By, body: &Bytes) -> Response<Body> {
    let Some(live) = router.live() else { return plain(&ending()) };
    let Asked { id, wish } = match asked(body) {
        Ok(asked) => asked,
        Err(problem) => return plain(&problem),
    };
    let (enrolment, token) = match by {
        By::Enrolment(name) => (Some(name), None),
        By::Token(who) if is_own(router, &who, &id) => (None, who.enrolled.clone()),
        By::Token(_) => return plain(&taken(&id)),
    };
    let Some(seat) = live.seat() else {
        let text = "too many agents are registering at once";
        return plain(&Problem::refusal(Reason::CellOverloaded, text).again(Some(Span::from_secs(1))));
    };
    if let Some(url) = &wish.url {
        let guard = live.guard(enrolment.as_deref(), &id);
        let led = match guard.url(url) {
            Ok(url) => resolves(&url, &guard, LOOKUP, live.names()).await,
            Err(why) => Err(why),
        };
        if let Err(why) = led {
            return plain(&flaw("url", &why));
        }
    }
    // To its end, even if whoever asked does not wait for it.
    let (task_id, keeper) = (id.clone(), live.clone());
    let done = tokio::spawn(async move {
        let _seat = seat;
        match enrolment {
            Some(name) => keeper.enter(task_id, wish, &name).await,
            None => keeper.renew(task_id, wish, token.as_deref().unwrap_or_default()).await,
        }
    });
    match done.await {
        Ok(Ok(entered)) => shown(&id, &entered),
        Ok(Err(denial)) => plain(&denied(&id, denial)),
        Err(_) => plain(&Problem::refusal(Reason::Internal, "the gateway made a mistake; it is in its log")),
    }
}

/// `GET /v1/agents/{agent}`: whoever is not an operator sees itself.
pub(super) async fn show(router: &Router, who: &Who, id: &AgentId) -> Response<Body> {
    if !may_see(who, id) || !router.is_served(id) {
        return plain(&unknown(id));
    }
    let find = || router.handle().agents().into_iter().find(|stats| stats.agent == *id && !stats.removed);
    let mut stats = find();
    // One that came a moment ago is there, and its figures are about to be.
    for _ in 0..LOOKS {
        if stats.is_some() {
            break;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
        stats = find();
    }
    match stats {
        Some(stats) => {
            let shown = api::one(router, &stats, router.handle().now());
            json_response(StatusCode::OK, shown.to_string())
        }
        None => plain(&unknown(id)),
    }
}

/// `DELETE /v1/agents/{agent}`
pub(super) async fn dismiss(router: &Router, who: &Who, id: AgentId) -> Response<Body> {
    let Some(live) = router.live() else { return plain(&ending()) };
    if !is_own(router, who, &id) && !who.is(crate::tokens::Scope::Admin) {
        let text = "this needs the agent's own token, or one with the scope `admin`";
        return plain(&Problem::refusal(Reason::Forbidden, text));
    }
    let by = who.principal.caller.to_string();
    let (keeper, gone) = (live.clone(), id.clone());
    let token = who.enrolled.clone().filter(|_| !who.is(crate::tokens::Scope::Admin));
    match tokio::spawn(async move { keeper.dismiss(gone, &by, token.as_deref()).await }).await {
        Ok(Ok(())) => json_response(StatusCode::OK, json!({"agent": id.as_str(), "state": "leaving"}).to_string()),
        Ok(Err(denial)) => plain(&denied(&id, denial)),
        Err(_) => plain(&Problem::refusal(Reason::Internal, "the gateway made a mistake; it is in its log")),
    }
}

/// Nobody is let in, for want of an enrolment.
pub(super) fn nobody_enrols() -> Problem {
    let text =
        "agents are registered only where the configuration says who may: an [enrolment.NAME] table with a secret";
    Problem::refusal(Reason::Forbidden, text)
}

/// Whether this is the token that the agent was given.
fn is_own(router: &Router, who: &Who, id: &AgentId) -> bool {
    who.enrolled.is_some() && who.agent.as_ref() == Some(id) && router.enrolment(id).is_some()
}

fn may_see(who: &Who, id: &AgentId) -> bool {
    who.is(crate::tokens::Scope::Operator) || who.agent.as_ref() == Some(id)
}

fn asked(body: &Bytes) -> Result<Asked, Problem> {
    if body.len() > MAX_BYTES {
        return Err(Problem::refusal(Reason::TooLarge, format!("an agent is registered in at most {MAX_BYTES} bytes")));
    }
    let wrong =
        |what: &str| Problem::http(StatusCode::BAD_REQUEST, Error::new(INVALID_REQUEST, format!("the body {what}")));
    let body: Value = serde_json::from_slice(body).map_err(|_| wrong("is no JSON"))?;
    if !body.is_object() {
        return Err(wrong("is no JSON object, such as {\"id\": \"hotels\", \"url\": \"https://…\"}"));
    }
    let written: Written = serde_json::from_value(body).map_err(|e| wrong(&format!("cannot be taken: {e}")))?;
    let Written { id, url, fetches, lease, card, binding, mode, results, parent, max_in_flight } = written;
    let id = id.ok_or_else(|| flaw("id", "is missing"))?;
    enrolment::name(&id).map_err(|why| flaw("id", &why))?;
    let wish = Wish { url, fetches, lease, card, binding, mode, results, parent, max_in_flight };
    Ok(Asked { id: AgentId::new(&id), wish })
}

fn shown(id: &AgentId, entered: &Entered) -> Response<Body> {
    let Entered { record, token, changed } = entered;
    let mut body = json!({
        "agent": id.as_str(),
        "tenant": record.tenant,
        "enrolment": record.enrolment,
        "registered": true,
        "registeredAt": record.created,
        "url": record.wish.url,
        "fetches": record.wish.fetches,
        "changed": changed,
    });
    let Some(token) = token else { return json_response(StatusCode::OK, body.to_string()) };
    body["token"] = json!(token);
    let mut response = json_response(StatusCode::CREATED, body.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let at = HeaderValue::try_from(format!("/v1/agents/{id}"));
    response.headers_mut().extend(at.ok().map(|at| (header::LOCATION, at)));
    response
}

fn denied(id: &AgentId, denial: Denial) -> Problem {
    match denial {
        Denial::Taken => taken(id),
        Denial::Flaw(member, why) => flaw(&member, &why),
        Denial::Full(why) => Problem::refusal(Reason::Forbidden, format!("this enrolment lets nobody in: {why}")),
        Denial::Unknown => unknown(id),
        Denial::Configured => {
            let text = format!("agent {id} is in the configuration: take it out there, and reload");
            Problem::refusal(Reason::Forbidden, text)
        }
        Denial::Unwritten(why) => {
            let text = format!("{why}, and nothing has changed; the gateway's log says more");
            Problem::refusal(Reason::StoreUnavailable, text).again(Some(Span::from_secs(1)))
        }
    }
}

/// In the same words, whoever has it.
fn taken(id: &AgentId) -> Problem {
    let text =
        format!("agent {id}: this name is taken, and only whoever holds its token may change what it stands for");
    Problem::refusal(Reason::Forbidden, text)
}

fn flaw(member: &str, why: &str) -> Problem {
    Problem::http(StatusCode::BAD_REQUEST, Error::invalid_params(member, why))
}

fn ending() -> Problem {
    Problem::refusal(Reason::ShuttingDown, "the gateway is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_understood_or_told_what_is_wrong_with_it() {
        let of = |body: &str| asked(&Bytes::copy_from_slice(body.as_bytes()));
        let good = of(r#"{"id":"hotels","url":"https://hotels.example/a2a","max_in_flight":2}"#).unwrap();
        assert_eq!((good.id.as_str(), good.wish.max_in_flight), ("hotels", Some(2)));
        for (bad, what) in [
            ("[", "is no JSON"),
            ("[]", "is no JSON object"),
            ("{}", "id: is missing"),
            (r#"{"id":"Hotels"}"#, "id: is 1 to 64 of a-z"),
            (r#"{"id":"list"}"#, "is reserved"),
            (r#"{"id":"a","uri":"x"}"#, "unknown field `uri`"),
            (r#"{"id":"a","tenant":"x"}"#, "unknown field `tenant`"),
            (r#"{"id":"a","headers":{}}"#, "unknown field `headers`"),
            (r#"{"id":"a","max_in_flight":-1}"#, "invalid value"),
            (r#"{"id":"a","url":7}"#, "invalid type"),
        ] {
            let problem = of(bad).unwrap_err();
            assert!(problem.error.message.contains(what) && problem.status == 400, "{bad}: {problem:?}");
        }
        let large = format!("{{\"id\":\"a\",\"url\":\"{}\"}}", "x".repeat(MAX_BYTES));
        assert_eq!(of(&large).unwrap_err().status, 413);
    }
}

//! Responses: how a result, a stream and a problem become HTTP. What their bodies say is the faces' affair.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use watertight_a2a::error::{Error, INVALID_REQUEST};
use watertight_a2a::text::clean;
use watertight_engine::ids::AgentId;
use watertight_policy::reason::Reason;

use super::body::Body;
use super::sse::Events;
use crate::error::Problem;

/// What HTTP+JSON calls its bodies since 1.0.1.
pub(super) const A2A_JSON: &str = "application/a2a+json";

pub(super) fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Full(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn stream_response(events: Box<Events>) -> Response<Body> {
    let mut response = Response::new(Body::Events(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A problem as HTTP tells it: in the status, in the body of the HTTP+JSON binding, and in headers.
pub(super) fn plain(problem: &Problem) -> Response<Body> {
    let status = problem.http_status();
    let mut response = json_response(status, problem.error.to_http(status.as_u16()));
    decorate(&mut response, problem);
    response
}

/// The headers that say the same as the body to those who do not read it.
pub(super) fn decorate(response: &mut Response<Body>, problem: &Problem) {
    let status = response.status();
    let headers = response.headers_mut();
    if let Some(after) = problem.retry_after.filter(|_| status != StatusCode::OK) {
        let seconds = after.as_micros().div_ceil(1_000_000).max(1);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"watertight\""));
    }
}

/// Whether the caller speaks of `application/a2a+json` itself. Many clients of HTTP+JSON know only the plain type.
pub(super) fn wants_a2a_json(headers: &HeaderMap) -> bool {
    let said = [header::ACCEPT, header::CONTENT_TYPE].into_iter().flat_map(|name| headers.get_all(name));
    said.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|kind| {
        let mut parts = kind.split(';').map(str::trim);
        let named = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(A2A_JSON));
        // A quality of nothing says that it is not wanted.
        named && !parts.any(|part| matches!(part.trim_end_matches('0'), "q=" | "Q=" | "q=0." | "Q=0."))
    })
}

/// There is no such agent for this caller.
pub(super) fn unknown(agent: &AgentId) -> Problem {
    let name = clean(agent.as_str(), 64);
    let mut problem =
        Problem::refusal(Reason::AgentUnknown, format!("agent {name}: there is no such agent for this caller"));
    problem.error = problem.error.agent(&name);
    problem
}

/// There is nothing at this path.
pub(super) fn nothing(path: &str) -> Problem {
    Problem::http(
        StatusCode::NOT_FOUND,
        Error::new(INVALID_REQUEST, format!("there is nothing at {}", clean(path, 128))),
    )
}

/// This path takes other methods.
pub(super) fn wrong_method(allowed: &[&str], text: &str) -> Response<Body> {
    let problem = Problem::http(StatusCode::METHOD_NOT_ALLOWED, Error::new(INVALID_REQUEST, text));
    let mut response = plain(&problem);
    response.headers_mut().extend(HeaderValue::try_from(allowed.join(", ")).ok().map(|value| (header::ALLOW, value)));
    response
}

#[cfg(test)]
mod tests {
    use watertight_policy::time::Span;

    use super::*;

    #[test]
    fn plain_errors_are_json_too() {
        let response = plain(&unknown(&AgentId::new("no\u{1b}body")));
        assert_eq!(response.status(), 404);
        let Body::Full(body) = response.into_body() else { panic!("a whole body") };
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["error"]["code"], &body["error"]["status"]), (&404.into(), &"NOT_FOUND".into()));
        assert_eq!(body["error"]["details"][0]["reason"], "agent_unknown");
        assert!(!body["error"]["message"].as_str().unwrap().contains('\u{1b}'));
    }

    #[test]
    fn a_refusal_says_when_to_come_back_in_the_header_too() {
        let response = plain(&Problem::refusal(Reason::BreakerOpen, "x").again(Some(Span::from_millis(1_200))));
        assert_eq!(response.status().as_u16(), 503);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let denied = plain(&Problem::refusal(Reason::Unauthenticated, "x"));
        assert_eq!(denied.status().as_u16(), 401);
        assert!(denied.headers().contains_key(header::WWW_AUTHENTICATE));
    }

    #[test]
    fn only_who_names_the_type_gets_it() {
        let of = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            wants_a2a_json(&headers)
        };
        assert!(of("accept", "application/a2a+json"));
        assert!(of("accept", "text/html, Application/A2A+JSON;q=0.9"));
        assert!(of("accept", "application/a2a+json;q=0.01"));
        assert!(of("content-type", "application/a2a+json; charset=utf-8"));
        for other in [
            "*/*",
            "application/json",
            "application/*",
            "application/a2a+jsonx",
            "application/a2a+json;q=0",
            "application/a2a+json; q=0.00",
            "",
        ] {
            assert!(!of("accept", other), "{other}");
        }
    }
}

//! The HTTP+JSON face: a method, a path below the agent and perhaps a body in; a bare result or a stream of bare events
//! out.
//!
//! Errors have their HTTP status, and the same words as over JSON-RPC. The order of judgement: agent, path, method,
//! version, body.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use watertight_a2a::jsonrpc;
use watertight_a2a::rest::inbound::Place;

use super::body::Body;
use super::line::{Line, Outcome};
use super::reply::{A2A_JSON, json_response, nothing, plain, stream_response, unknown, wants_a2a_json, wrong_method};
use super::sse::Shape;
use crate::error::Problem;

/// A request that may go on to its body.
pub(super) struct Asked<'a> {
    place: Place<'a>,
    method: jsonrpc::Method,
}

/// Judges what can be judged without the body. `below`: the path below the agent's address.
pub(super) fn ask<'a>(line: &Line<'_>, below: &'a str) -> Result<Asked<'a>, Box<Response<Body>>> {
    let headers = &line.head.headers;
    let refuse = |why| Err(Box::new(problem(headers, why)));
    if !line.knows_agent() {
        return refuse(unknown(&line.agent));
    }
    let Some(place) = Place::of(below) else { return refuse(nothing(line.head.uri.path())) };
    let Some(method) = place.operation(line.head.method.as_str()) else {
        let text = format!("this takes {}", place.verbs().join(", "));
        return Err(Box::new(typed(headers, wrong_method(place.verbs(), &text))));
    };
    match line.version() {
        Ok(()) => Ok(Asked { place, method }),
        Err(wrong) => refuse(wrong),
    }
}

/// Answers one request.
pub(super) async fn answer(line: Line<'_>, asked: Asked<'_>, body: Bytes) -> Response<Body> {
    let headers = &line.head.headers;
    let query = line.head.uri.query().unwrap_or("");
    let call = match asked.place.call(asked.method, query, body, &line.json_limits()) {
        Ok(call) => call,
        Err(error) => return problem(headers, error.into()),
    };
    let mut response = match line.carry_out(Shape::Rest, call).await {
        Ok(Outcome::Result(result)) => typed(headers, json_response(StatusCode::OK, result)),
        Ok(Outcome::Events(events)) => {
            let mut response = stream_response(events);
            if line.head.method == Method::HEAD {
                *response.body_mut() = Body::empty();
            }
            response
        }
        Err(why) => {
            line.log(asked.method, &why);
            return problem(headers, why);
        }
    };
    line.tell_extensions(&mut response);
    response
}

/// The response for a request that has no result.
pub(super) fn problem(headers: &HeaderMap, problem: Problem) -> Response<Body> {
    typed(headers, plain(&problem))
}

/// With the content type that the caller spoke of.
fn typed(asked: &HeaderMap, mut response: Response<Body>) -> Response<Body> {
    if wants_a2a_json(asked) {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(A2A_JSON));
    }
    response
}

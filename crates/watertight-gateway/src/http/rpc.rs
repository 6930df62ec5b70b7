//! The JSON-RPC face: one request in, its operation carried out, one response or one stream out.
//!
//! Everything is answered with HTTP 200 and a JSON-RPC body, but a request that was refused as a whole: that carries
//! the status of its reason and a Retry-After too. The order of judgement: JSON, JSON-RPC, version, agent, params.

use bytes::Bytes;
use http::{Response, StatusCode};
use watertight_a2a::call::Call;
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::{Id, Method, Request, parse_request, write_result};
use watertight_policy::reason::Reason;

use super::body::Body;
use super::line::{Line, Outcome};
use super::reply::{decorate, json_response, stream_response, unknown};
use super::sse::Shape;
use super::workspaces::{Opened, open};
use crate::error::Problem;

/// Answers one request.
pub(super) async fn answer(line: Line<'_>, body: Bytes) -> Response<Body> {
    let Request { id, method, params } = match parse_request(body, &line.json_limits()) {
        Ok(request) => request,
        Err(rejected) => return problem(&rejected.id, rejected.error.into()),
    };
    match line.version() {
        Ok(()) => carried_out(line, id, method, params).await,
        Err(wrong) => problem(&id, wrong),
    }
}

/// Answers one that may have come without its envelope. A tool's own says nothing of A2A, and so needs no version of it.
pub(super) async fn answer_open(line: Line<'_>, body: Bytes) -> Response<Body> {
    match open(body, &line.json_limits()) {
        Ok(Opened::Rpc(body)) => answer(line, body).await,
        Ok(Opened::Tool(id, params)) => carried_out(line, Id::string(&id), Method::SendMessage, Some(params)).await,
        Err(why) => problem(&Id::null(), Problem::of(Reason::Internal, why)),
    }
}

async fn carried_out(line: Line<'_>, id: Id, method: Method, params: Option<Json>) -> Response<Body> {
    if !line.knows_agent() {
        return problem(&id, unknown(&line.agent));
    }
    let call = match Call::parse(method, params) {
        Ok(call) => call,
        Err(error) => return problem(&id, error.into()),
    };
    let mut response = match line.carry_out(Shape::Rpc(id.clone()), call).await {
        Ok(Outcome::Result(result)) => json_response(StatusCode::OK, write_result(&id, &result)),
        Ok(Outcome::Events(events)) => stream_response(events),
        Err(why) => {
            line.log(method, &why);
            return problem(&id, why);
        }
    };
    line.tell_extensions(&mut response);
    response
}

/// The response for a request that has no result.
pub(super) fn problem(id: &Id, problem: Problem) -> Response<Body> {
    let mut response = json_response(problem.status, problem.error.to_jsonrpc(id));
    decorate(&mut response, &problem);
    response
}

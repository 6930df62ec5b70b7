//! Agent cards: the agent's own words, with the gateway in its place.
//!
//! Assumes that the agent's card is fetched elsewhere and kept while the agent is away, so that this never waits.

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use sha2::{Digest, Sha256};
use watertight_a2a::served::{ServedAs, served_card};

use super::body::Body;
use super::reply::json_response;
use crate::config::Agent;

/// How long callers may keep a card without asking again.
const MAX_AGE: &str = "max-age=60";

/// Serves an agent's card. `upstream`: the agent's own, if it was ever seen. `base`: where callers reach this gateway.
pub(super) fn serve(
    agent: &Agent,
    upstream: Option<&[u8]>,
    base: &str,
    (bearer, push): (bool, bool),
    since: SystemTime,
    asked: &HeaderMap,
) -> Response<Body> {
    let name = &*agent.wire.name;
    let served = ServedAs {
        agent: name,
        public_url: &format!("{base}/agents/{name}"),
        bearer,
        push,
        upstream_authority: agent.wire.url.authority().map(http::uri::Authority::as_str),
    };
    let card = Bytes::from(served_card(upstream, &served));
    let etag = etag(&card);
    let mut response = if is_known(asked, &etag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        json_response(StatusCode::OK, card)
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(MAX_AGE));
    headers.extend(HeaderValue::try_from(etag).ok().map(|etag| (header::ETAG, etag)));
    headers
        .extend(HeaderValue::try_from(httpdate::fmt_http_date(since)).ok().map(|since| (header::LAST_MODIFIED, since)));
    response
}

fn etag(card: &[u8]) -> String {
    let hash = Sha256::digest(card);
    let digits: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

fn is_known(asked: &HeaderMap, etag: &str) -> bool {
    let mut tags = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.any(|tags| tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == "*" || tag == etag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::AgentConfig;
    use watertight_engine::settings::AgentSettings;

    fn serve_to(asked: &[(&'static str, &str)], upstream: Option<&[u8]>) -> (StatusCode, HeaderMap, String) {
        let wire = AgentConfig::new("hotels", "http://10.0.0.7:9001/a2a".parse().unwrap());
        let agent = Agent {
            wire,
            place: Default::default(),
            wait: None,
            memory: Default::default(),
            wake: Default::default(),
            told: false,
            lease: Default::default(),
            told_cooldown: watertight_policy::time::Span::ZERO,
            settings: AgentSettings::default(),
        };
        let asked: HeaderMap =
            asked.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect();
        let response =
            serve(&agent, upstream, "https://gw.example/base", (true, false), SystemTime::UNIX_EPOCH, &asked);
        let (head, body) = response.into_parts();
        let Body::Full(body) = body else { panic!("a card is whole") };
        (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn a_card_points_here_and_can_be_asked_for_conditionally() {
        let upstream = br#"{"name":"Hotels","url":"http://10.0.0.7:9001/","supportedInterfaces":[{"url":"http://10.0.0.7:9001/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}"#;
        let (status, headers, card) = serve_to(&[], Some(upstream));
        assert_eq!(status, 200);
        assert!(card.contains("https://gw.example/base/agents/hotels") && !card.contains("10.0.0.7"), "{card}");
        assert_eq!(headers["cache-control"], "max-age=60");
        assert_eq!(headers["last-modified"], "Thu, 01 Jan 1970 00:00:00 GMT");
        let etag = headers["etag"].to_str().unwrap();
        for known in [etag.to_owned(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
            let (status, headers, body) = serve_to(&[("if-none-match", &known)], Some(upstream));
            assert_eq!((status.as_u16(), body.as_str(), headers["etag"].to_str().unwrap()), (304, "", etag), "{known}");
        }
        assert_eq!(serve_to(&[("if-none-match", etag)], None).0, 200, "another card has another tag");
    }
}

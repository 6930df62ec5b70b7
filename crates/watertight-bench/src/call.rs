//! The call that everybody makes, as bytes, and how an answer is read: HTTP/1.1 with a content-length, no more.
//!
//! Every call has a messageId of its own, so that no path can answer from what it knows already.

use std::io;
use std::net::SocketAddr;

/// The text in the message; with it the body of a request has 1.2 KB.
const TEXT: usize = 900;
/// Digits of a call's number, which stands in the JSON-RPC id.
const DIGITS: usize = 12;

/// A request whose ids change from call to call, and nothing else.
pub(crate) struct Request {
    bytes: Vec<u8>,
    id: usize,
    message_id: usize,
}

impl Request {
    /// A blocking SendMessage to this path.
    pub(crate) fn new(addr: SocketAddr, path: &str) -> Request {
        let text: String = "two nights in Lisbon, near the river; ".chars().cycle().take(TEXT).collect();
        let (number, message) = ("0".repeat(DIGITS), "00000000-0000-4000-8000-000000000000");
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"{number}","method":"SendMessage","params":{{"message":{{"messageId":"{message}","role":"ROLE_USER","parts":[{{"text":"{text}"}}],"metadata":{{"purpose":"a message with the usual members, of the usual size","trace":"{message}"}}}},"configuration":{{"acceptedOutputModes":["text/plain","application/json"]}}}}}}"#
        );
        Request::of(post(addr, path, &body))
    }

    fn of(bytes: Vec<u8>) -> Request {
        let at = |what: &str| find(&bytes, what.as_bytes()).map_or(0, |at| at + what.len());
        let (id, message_id) = (at(r#""id":""#), at(r#""messageId":""#));
        Request { bytes, id, message_id }
    }

    /// One that is answered as soon as it is accepted.
    pub(crate) fn at_once(addr: SocketAddr, path: &str) -> Request {
        let whole = Request::new(addr, path).bytes;
        let text = String::from_utf8_lossy(&whole);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body = body.replace(r#""configuration":{"#, r#""configuration":{"returnImmediately":true,"#);
        Request::of(post(addr, path, &body))
    }

    /// The request of call `n`. Callers choose their ids at random, mostly; so are these, and no two are alike.
    pub(crate) fn number(&mut self, n: u64) -> &[u8] {
        let digits = format!("{n:0DIGITS$}");
        self.bytes[self.id..self.id + DIGITS].copy_from_slice(&digits.as_bytes()[..DIGITS]);
        let message_id = message_id(n);
        self.bytes[self.message_id..self.message_id + message_id.len()].copy_from_slice(message_id.as_bytes());
        &self.bytes
    }

    /// Whether this is the answer to call `n`, and a completed task.
    pub(crate) fn is_answered_by(n: u64, status: u16, body: &[u8]) -> bool {
        let mine = format!(r#""id":"{n:0DIGITS$}""#);
        status == 200 && find(body, mine.as_bytes()).is_some() && find(body, br#""TASK_STATE_COMPLETED""#).is_some()
    }
}

/// A UUID from a number: different numbers give different ones, in no visible order.
pub(crate) fn message_id(n: u64) -> String {
    // Every step can be undone, and all 64 bits are written.
    let a = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let a = a ^ (a >> 29);
    let last = (a & 0xf) << 44 | n.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
    format!("{:08x}-{:04x}-4{:03x}-8000-{last:012x}", a >> 32, (a >> 16) & 0xffff, (a >> 4) & 0xfff)
}

/// A JSON body on its way to a path.
pub(crate) fn post(addr: SocketAddr, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\naccept: application/json\r\n\
         a2a-version: 1.0\r\nuser-agent: watertight-bench\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A question without a body.
pub(crate) fn get(addr: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nuser-agent: watertight-bench\r\n\r\n").into_bytes()
}

/// The same request with a bearer token.
pub(crate) fn authorized(mut request: Vec<u8>, token: &str) -> Vec<u8> {
    if let Some(at) = find(&request, b"\r\n\r\n") {
        request.splice(at..at, format!("\r\nauthorization: Bearer {token}").into_bytes());
    }
    request
}

/// A whole message of HTTP/1.1 at the beginning of what was read.
pub(crate) struct Whole<'a> {
    /// Its first line and its headers.
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
    /// How many bytes it takes.
    pub(crate) length: usize,
}

impl Whole<'_> {
    /// Where it is an answer: its status.
    pub(crate) fn status(&self) -> u16 {
        self.head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(0)
    }
}

/// Reads a message; `None` while it is not all there.
pub(crate) fn whole(bytes: &[u8]) -> io::Result<Option<Whole<'_>>> {
    let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let (head, start) = (&bytes[..end], end + 4);
    let body = match header(head, b"content-length") {
        Some(value) => std::str::from_utf8(value).ok().and_then(|value| value.parse::<usize>().ok()),
        None if head.starts_with(b"GET ") => Some(0),
        None => None,
    };
    let Some(size) = body else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message without a content-length"));
    };
    let length = start + size;
    Ok((bytes.len() >= length).then(|| Whole { head, body: &bytes[start..length], length }))
}

/// The value of a header; its name in lower case.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|&b| b == b'\n').skip(1).find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

/// Where a needle begins.
pub(crate) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, rest) = needle.split_first()?;
    let mut at = 0;
    while let Some(next) = hay.get(at..)?.iter().position(|b| b == first) {
        at += next + 1;
        if hay[at..].starts_with(rest) {
            return Some(at - 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_differs_in_its_ids_only() {
        let mut request = Request::new(([127, 0, 0, 1], 1).into(), "/agents/echo");
        let (one, two) = (request.number(1).to_vec(), request.number(2).to_vec());
        assert_eq!(one.len(), two.len());
        let body = whole(&one).unwrap().unwrap().body.to_vec();
        assert!((1_150..1_300).contains(&body.len()), "{}", body.len());
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(json["id"], "000000000001");
        assert_eq!(json["params"]["message"]["messageId"], message_id(1));
        let ids: std::collections::BTreeSet<_> = (0..10_000).map(message_id).collect();
        assert_eq!((ids.len(), ids.iter().all(|id| id.len() == 36)), (10_000, true));
    }

    #[test]
    fn answers_are_whole_or_waited_for() {
        let answer = b"HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n";
        let read = whole(answer).unwrap().unwrap();
        assert_eq!((read.status(), read.body, read.length), (503, &b"abc"[..], 41));
        assert!(whole(&answer[..40]).unwrap().is_none());
        assert!(whole(b"HTTP/1.1 200 OK\r\n").unwrap().is_none());
        assert!(whole(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert_eq!(find(b"aaab", b"aab"), Some(1));
    }

    #[test]
    fn only_its_own_completed_task_is_an_answer() {
        let body = br#"{"id":"000000000007","result":{"task":{"status":{"state":"TASK_STATE_COMPLETED"}}}}"#;
        assert!(Request::is_answered_by(7, 200, body));
        assert!(!Request::is_answered_by(8, 200, body));
        assert!(!Request::is_answered_by(7, 503, body));
        assert!(!Request::is_answered_by(7, 200, br#"{"id":"000000000007","error":{}}"#));
    }
}

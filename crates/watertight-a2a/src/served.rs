//! The card that we publish for an agent: its own, with us in its place.
//!
//! The agent's words stay, skills and extensions included. What a caller could use to go around us, or what would no
//! longer be true, is replaced or left out: interfaces, capabilities, security, signatures, 0.3 members, and every URL
//! at the agent's own authority.

use std::collections::BTreeSet;

use crate::card::{CARD_LIMITS, MAX_ENTRIES};
use crate::json::{self, Kind, Value};
use crate::text::{ObjectWriter, quote};

/// The longest string in a card of ours, in bytes; longer ones are cut.
pub const MAX_STRING_BYTES: usize = 16 << 10;

/// How the agent appears to our callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedAs<'a> {
    /// The name to use where the card has none.
    pub agent: &'a str,
    /// Where callers reach it: the address for JSON-RPC, below which HTTP+JSON has its paths.
    pub public_url: &'a str,
    /// Whether callers must send a bearer token.
    pub bearer: bool,
    /// Whether news of tasks is pushed.
    pub push: bool,
    /// `host:port` or `host` of the agent itself; URLs there are left out.
    pub upstream_authority: Option<&'a str>,
}

/// Members of the root that are never taken over.
const DROPPED: [&str; 9] = [
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "supportsAuthenticatedExtendedCard",
    "security",
    "securitySchemes",
    "securityRequirements",
    "signatures",
];

/// Members that every card must have, and what they are when there is nothing to say.
const REQUIRED: [(&str, Kind, &[u8]); 6] = [
    ("description", Kind::String, b"\"\""),
    ("version", Kind::String, b"\"\""),
    ("defaultInputModes", Kind::Array, b"[\"text/plain\",\"application/json\"]"),
    ("defaultOutputModes", Kind::Array, b"[\"text/plain\",\"application/json\"]"),
    ("skills", Kind::Array, b"[]"),
    ("name", Kind::String, b"\"\""),
];

/// Writes the card. Without a readable card of the agent's, a minimal valid one.
pub fn served_card(upstream: Option<&[u8]>, served: &ServedAs<'_>) -> Vec<u8> {
    let card = upstream.filter(|bytes| json::check(bytes, &CARD_LIMITS).is_ok());
    let root = Value::of(card.unwrap_or(b"{}"));
    let scrub = Scrub { own: own_authorities(root, served.upstream_authority) };
    let mut out = Vec::with_capacity(root.raw().len() + 512);
    let mut object = ObjectWriter::open(&mut out);

    let named = |value: Value<'_>| value.as_str().is_some_and(|name| !name.trim().is_empty());
    if !root.get("name").is_some_and(named) {
        object.string("name", &bounded(served.agent));
    }
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for member in root.members() {
        let known = |name: &&str| member.is(name);
        let replaced = ["supportedInterfaces", "capabilities"].iter().any(|name| member.is(name));
        let key = member.key.as_str().unwrap_or_default().into_owned();
        if replaced || DROPPED.iter().any(known) || seen.contains(&key) {
            continue;
        }
        let fits = REQUIRED.iter().filter(|(name, ..)| known(name)).all(|(_, kind, _)| member.value.kind() == *kind);
        if !fits || (member.is("name") && !named(member.value)) || scrub.hides(member.value) {
            continue;
        }
        let place = object.member(&bounded(&key));
        if member.is("skills") {
            scrub.skills(member.value, place);
        } else if member.is("provider") {
            scrub.provider(member.value, place);
        } else {
            scrub.write(member.value, place);
        }
        seen.insert(key);
    }
    for (name, _, empty) in REQUIRED {
        if name != "name" && !seen.contains(name) {
            object.raw(name, empty);
        }
    }
    write_ours(root, served, &scrub, &mut object);
    object.close();
    out
}

fn write_ours(root: Value<'_>, served: &ServedAs<'_>, scrub: &Scrub, object: &mut ObjectWriter<'_>) {
    let list = object.member("supportedInterfaces");
    list.push(b'[');
    for (index, binding) in ["JSONRPC", "HTTP+JSON"].into_iter().enumerate() {
        list.extend_from_slice(if index == 0 { b"" } else { b"," });
        let mut interface = ObjectWriter::open(list);
        interface.string("url", served.public_url);
        interface.string("protocolBinding", binding);
        interface.string("protocolVersion", "1.0");
        interface.close();
    }
    list.push(b']');

    let mut capabilities = ObjectWriter::open(object.member("capabilities"));
    capabilities.raw("streaming", b"true");
    capabilities.raw("pushNotifications", if served.push { b"true" } else { b"false" });
    capabilities.raw("extendedAgentCard", b"false");
    let extensions = root.get("capabilities").and_then(|theirs| theirs.get("extensions"));
    if let Some(extensions) = extensions.filter(|extensions| extensions.kind() == Kind::Array) {
        scrub.write(extensions, capabilities.member("extensions"));
    }
    capabilities.close();

    if served.bearer {
        object.raw("securitySchemes", br#"{"bearer":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}}"#);
        object.raw("securityRequirements", br#"[{"schemes":{"bearer":{"list":[]}}}]"#);
    }
}

/// The agent's authorities: the one that it is called at, and those at which its card says that it can be.
fn own_authorities(root: Value<'_>, upstream: Option<&str>) -> Vec<Authority> {
    let lists = ["supportedInterfaces", "additionalInterfaces"].into_iter().filter_map(|name| root.get(name));
    let urls = lists.flat_map(|list| list.items().take(MAX_ENTRIES)).filter_map(|item| item.get("url"));
    let urls: Vec<_> = urls.chain(root.get("url")).filter_map(|url| url.as_str()).collect();
    let named = urls.iter().filter_map(|url| {
        // gRPC interfaces may name `host:port` alone.
        let rest = url.split_once("://").map_or(url.as_ref(), |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or("");
        split_authority(authority.rsplit('@').next().unwrap_or(authority))
    });
    let mut own: Vec<Authority> = upstream.and_then(split_authority).into_iter().collect();
    for authority in named {
        if !own.contains(&authority) {
            own.push(authority);
        }
    }
    own
}

/// Host and port.
type Authority = (String, Option<u16>);

/// Copies values without what points at the agent itself.
struct Scrub {
    own: Vec<Authority>,
}

impl Scrub {
    /// Depth is bounded by the check that the card has passed.
    fn write(&self, value: Value<'_>, out: &mut Vec<u8>) {
        match value.kind() {
            Kind::String => quote(&self.text(&value.as_str().unwrap_or_default()), out),
            Kind::Object => self.object(value, &[], out),
            Kind::Array => {
                self.array(value, out, |item, out| self.write(item, out));
            }
            Kind::Number | Kind::Bool | Kind::Null => out.extend_from_slice(value.raw()),
        }
    }

    fn object(&self, value: Value<'_>, without: &[&str], out: &mut Vec<u8>) {
        let mut object = ObjectWriter::open(out);
        for member in value.members() {
            if !self.hides(member.value) && !without.iter().any(|name| member.is(name)) {
                let key = bounded(&member.key.as_str().unwrap_or_default());
                self.write(member.value, object.member(&key));
            }
        }
        object.close();
    }

    fn array(&self, value: Value<'_>, out: &mut Vec<u8>, write: impl Fn(Value<'_>, &mut Vec<u8>)) {
        out.push(b'[');
        let mut first = true;
        for item in value.items().filter(|item| !self.hides(*item)) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            write(item, out);
        }
        out.push(b']');
    }

    /// Skills, without the security that named the agent's own schemes.
    fn skills(&self, value: Value<'_>, out: &mut Vec<u8>) {
        self.array(value, out, |skill, out| match skill.kind() {
            Kind::Object => self.object(skill, &["securityRequirements", "security"], out),
            Kind::Array | Kind::String | Kind::Number | Kind::Bool | Kind::Null => self.write(skill, out),
        });
    }

    /// The provider, whose URL is required: empty where it is hidden.
    fn provider(&self, value: Value<'_>, out: &mut Vec<u8>) {
        if !value.get("url").is_some_and(|url| self.hides(url)) {
            return self.write(value, out);
        }
        let mut object = ObjectWriter::open(out);
        object.string("url", "");
        for member in value.members().filter(|member| !member.is("url") && !self.hides(member.value)) {
            let key = bounded(&member.key.as_str().unwrap_or_default());
            self.write(member.value, object.member(&key));
        }
        object.close();
    }

    /// Text without the agent's own addresses, bounded.
    fn text(&self, text: &str) -> String {
        if self.own.is_empty() || !text.contains(':') {
            return bounded(text);
        }
        let mut out = String::with_capacity(text.len());
        for piece in text.split_inclusive(|c: char| c.is_whitespace() || "\"'`<>(),;".contains(c)) {
            let word = piece.trim_end_matches(|c: char| c.is_whitespace() || "\"'`<>(),;.".contains(c));
            if self.is_own(word) {
                out.push_str("[address removed]");
                out.push_str(piece.get(word.len()..).unwrap_or_default());
            } else {
                out.push_str(piece);
            }
        }
        bounded(&out)
    }

    /// Whether a value is a URL at the agent's own authority, and nothing else.
    fn hides(&self, value: Value<'_>) -> bool {
        !self.own.is_empty() && value.as_str().is_some_and(|text| self.is_own(text.trim()))
    }

    fn is_own(&self, url: &str) -> bool {
        self.own.iter().any(|authority| is_at(url, authority))
    }
}

/// Whether a URL is at that authority.
fn is_at(url: &str, (host, port): &Authority) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url.strip_prefix("//").unwrap_or(url)));
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    let Some((their_host, their_port)) = split_authority(authority) else { return false };
    if their_host != *host || scheme.contains(char::is_whitespace) {
        return false;
    }
    let default = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        // Without a scheme it is only an address if it says where: `host:port`, `//host`, `host/path`.
        "" => return their_port == *port && (their_port.is_some() || !tail.is_empty() || url.starts_with("//")),
        _ => None,
    };
    match (their_port.or(default), port) {
        (theirs, Some(port)) => theirs == Some(*port),
        (theirs, None) => matches!(theirs, None | Some(80 | 443)),
    }
}

/// Host in lower case, without a final dot, and port.
fn split_authority(authority: &str) -> Option<Authority> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, Some(port.parse().ok()?))
        }
        _ => (authority.strip_suffix(':').unwrap_or(authority), None),
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty() && !host.contains(char::is_whitespace)).then_some((host, port))
}

/// Text for a card: line breaks and tabs stay, other control and direction-changing characters do not.
fn bounded(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_STRING_BYTES));
    for letter in text.chars() {
        let safe = match letter {
            '\n' | '\t' => letter,
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            other if other.is_control() => '\u{fffd}',
            other => other,
        };
        if out.len() + safe.len_utf8() > MAX_STRING_BYTES {
            break;
        }
        out.push(safe);
    }
    out
}

#[cfg(test)]
mod tests;

//! Where callers reach this gateway: as it is configured, else as a trusted proxy says, else as this request came.
//!
//! A proxy's word counts only from the peers that the configuration names, since anybody can write such headers. Of
//! lists, to which each proxy on the way adds what it saw, that entry counts which the outermost trusted one wrote.
//! What makes no sense is as good as absent. A path prefix is taken off a request's path where it is there, so that it
//! does not matter whether the proxy did that already, and it is never doubled in what is given out.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri, header};

use super::doors::{self, Found};
use crate::config::Net;

/// The most entries of a list that are looked at, from its end.
const MAX_HOPS: usize = 16;

/// Knows the way in.
#[derive(Debug)]
pub(super) struct Public {
    url: Option<String>,
    trusted: Vec<Net>,
    /// What clients are sent to when they do not say which host they mean.
    listening: String,
}

impl Public {
    /// `url` has no slash at its end.
    pub(super) fn new(url: Option<&str>, trusted: &[Net], listening: &str) -> Public {
        Public { url: url.map(str::to_owned), trusted: trusted.to_vec(), listening: listening.to_owned() }
    }

    /// The base of every URL that this request is told, without a slash at its end.
    pub(super) fn base(&self, uri: &Uri, headers: &HeaderMap, peer: IpAddr) -> String {
        if let Some(url) = &self.url {
            return url.clone();
        }
        let said = self.forwarded(headers, peer);
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        // HTTP/2 has it in the URI.
        let host = host.or_else(|| uri.authority().map(http::uri::Authority::as_str)).filter(|host| is_host(host));
        let host = said.host.as_deref().or(host).unwrap_or(&self.listening);
        format!("{}://{host}{}", said.proto.as_deref().unwrap_or("http"), said.prefix.as_deref().unwrap_or(""))
    }

    /// Where a path leads, with the prefix or without it.
    pub(super) fn find<'a>(&self, method: &Method, path: &'a str, headers: &HeaderMap, peer: IpAddr) -> Found<'a> {
        let prefix: Option<Cow<'_, str>> = match &self.url {
            Some(url) => path_of(url).map(Cow::Borrowed),
            None => self.forwarded(headers, peer).prefix.map(Cow::Owned),
        };
        let inner = prefix.as_deref().and_then(|prefix| path.strip_prefix(prefix));
        let inner = inner.filter(|inner| inner.is_empty() || inner.starts_with('/'));
        match inner.map(|inner| doors::find(method, inner)) {
            Some(Found::Nothing) | None => doors::find(method, path),
            Some(found) => found,
        }
    }

    /// The headers that the base depends on.
    pub(super) fn vary(&self) -> Option<&'static str> {
        match (&self.url, self.trusted.is_empty()) {
            (Some(_), _) => None,
            (None, true) => Some("host"),
            (None, false) => {
                Some("host, forwarded, x-forwarded-for, x-forwarded-host, x-forwarded-proto, x-forwarded-prefix")
            }
        }
    }

    fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(peer))
    }

    fn forwarded(&self, headers: &HeaderMap, peer: IpAddr) -> Forwarded {
        if !self.trusts(peer) {
            return Forwarded::default();
        }
        let elements = elements(headers);
        // How many of the proxies before the last are trusted, and so how far back the word of one counts.
        let back = |senders: &mut dyn Iterator<Item = &str>| {
            senders.take_while(|sender| address(sender).is_some_and(|address| self.trusts(address))).count()
        };
        let far = back(&mut elements.iter().rev().map(|element| pair(element, "for").unwrap_or("")));
        let element = pick(&elements, far);
        let of_element = |name| element.and_then(|element| pair(element, name)).map(str::to_owned);
        let x = |name| list(headers, name);
        let far = back(&mut x("x-forwarded-for").into_iter().rev());
        let of_list = |name: &'static str| pick(&x(name), far).map(|value| (*value).to_owned());
        Forwarded {
            proto: of_element("proto").or_else(|| of_list("x-forwarded-proto")).and_then(|proto| scheme(&proto)),
            host: of_element("host").or_else(|| of_list("x-forwarded-host")).filter(|host| is_host(host)),
            prefix: of_list("x-forwarded-prefix").and_then(|prefix| clean_prefix(&prefix)),
        }
    }
}

/// What a trusted proxy says, as far as it makes sense.
#[derive(Debug, Default, PartialEq, Eq)]
struct Forwarded {
    proto: Option<String>,
    host: Option<String>,
    prefix: Option<String>,
}

/// A comma list over all headers of that name.
fn list<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut all: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    all.drain(..all.len().saturating_sub(MAX_HOPS));
    all
}

/// The elements of `Forwarded`. A comma inside quotes is no separator; nothing of what is asked for may hold one.
fn elements(headers: &HeaderMap) -> Vec<&str> {
    let all = list(headers, "forwarded");
    // An odd number of quotes: something was quoted that should not have been.
    if all.iter().any(|element| element.matches('"').count() % 2 == 1) { Vec::new() } else { all }
}

/// A value of an element of `Forwarded`, without its quotes.
fn pair<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
    let value = value.trim();
    Some(value.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(value))
}

/// The entry that is so far from the list's end, or the first.
fn pick<'a, 'b>(all: &'a [&'b str], far: usize) -> Option<&'a &'b str> {
    all.get(all.len().checked_sub(1)?.saturating_sub(far))
}

/// An address, perhaps in brackets, perhaps with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    bare(text).or_else(|| bare(text.rsplit_once(':')?.0))
}

fn scheme(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    matches!(text.as_str(), "http" | "https").then_some(text)
}

/// A host that may stand in a URL, with or without a port.
fn is_host(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    text.len() <= 260
        && text.bytes().all(fits)
        && text.parse::<http::uri::Authority>().is_ok_and(|whole| {
            // A port that is none is not told apart there from one that is absent.
            let port =
                text.strip_prefix(whole.host()).and_then(|rest| rest.strip_prefix(':')).filter(|p| !p.is_empty());
            !whole.host().is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok())
        })
}

/// A path prefix: a slash before each of its segments, none at the end.
fn clean_prefix(text: &str) -> Option<String> {
    let text = text.trim_end_matches('/');
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    let segment = |segment: &str| !segment.is_empty() && !matches!(segment, "." | "..") && segment.bytes().all(fits);
    let good = text.len() <= 256 && text.strip_prefix('/')?.split('/').all(segment);
    good.then(|| text.to_owned())
}

/// The path of a URL, if it has one.
fn path_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.find('/').and_then(|at| rest.get(at..)).filter(|path| path.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::super::doors::Route;
    use http::HeaderValue;

    use super::*;

    const FAR: &str = "203.0.113.9";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn public(url: Option<&str>) -> Public {
        let trusted = ["10.0.0.0/8", "127.0.0.1"].map(|net| net.parse().unwrap());
        Public::new(url, &trusted, "127.0.0.1:7420")
    }

    fn base(peer: &str, pairs: &[(&'static str, &str)]) -> String {
        public(None).base(&Uri::from_static("/"), &headers(pairs), peer.parse().unwrap())
    }

    #[test]
    fn a_configured_url_outranks_everything() {
        let public = public(Some("https://agents.example/team-a"));
        let pairs = headers(&[("host", "x"), ("x-forwarded-host", "y"), ("x-forwarded-prefix", "/z")]);
        let base = public.base(&Uri::from_static("/"), &pairs, "10.0.0.1".parse().unwrap());
        assert_eq!((base.as_str(), public.vary()), ("https://agents.example/team-a", None));
    }

    #[test]
    fn only_a_trusted_peer_is_believed() {
        let said = [
            ("host", "127.0.0.1:7420"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "agents.example"),
            ("x-forwarded-prefix", "/team-a/"),
        ];
        assert_eq!(base("10.1.2.3", &said), "https://agents.example/team-a");
        assert_eq!(base("::ffff:127.0.0.1", &said), "https://agents.example/team-a");
        assert_eq!(base(FAR, &said), "http://127.0.0.1:7420");
        let standard = [("host", "inner:1"), ("forwarded", "for=192.0.2.1;Proto=HTTPS;host=\"agents.example:8443\"")];
        assert_eq!(base("10.1.2.3", &standard), "https://agents.example:8443");
        assert_eq!(base(FAR, &standard), "http://inner:1");
        assert_eq!(
            base("10.1.2.3", &[("host", "kept.example"), ("x-forwarded-proto", "https")]),
            "https://kept.example"
        );
        assert_eq!(base("10.1.2.3", &[]), "http://127.0.0.1:7420");
        let h2 = public(None).base(&Uri::from_static("http://h2.example/x"), &HeaderMap::new(), FAR.parse().unwrap());
        assert_eq!(h2, "http://h2.example");
    }

    #[test]
    fn garbage_is_as_good_as_absent() {
        for (name, value) in [
            ("x-forwarded-proto", "javascript"),
            ("x-forwarded-proto", "https://x"),
            ("x-forwarded-host", "a b"),
            ("x-forwarded-host", "user@evil.example"),
            ("x-forwarded-host", "agents.example:99999"),
            ("x-forwarded-host", "evil.example/path"),
            ("x-forwarded-host", "evil.example\""),
            ("x-forwarded-host", ""),
            ("x-forwarded-host", "\u{e9}"),
            ("x-forwarded-prefix", "team-a"),
            ("x-forwarded-prefix", "//evil.example"),
            ("x-forwarded-prefix", "/a/../b"),
            ("x-forwarded-prefix", "/a?b"),
            ("x-forwarded-prefix", "/"),
            ("forwarded", "host=\"a"),
            ("forwarded", "host=\"a,b\""),
            ("forwarded", ";;=;host"),
            ("forwarded", "host=a b;proto=gopher"),
        ] {
            assert_eq!(
                base("127.0.0.1", &[("host", "h.example"), (name, value)]),
                "http://h.example",
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn of_a_chain_the_outermost_trusted_proxy_counts() {
        // The caller wrote an entry itself, and the only proxy added what it saw.
        let forged =
            [("x-forwarded-host", "evil.example, agents.example"), ("x-forwarded-for", "1.1.1.1, 203.0.113.9")];
        assert_eq!(base("10.0.0.1", &forged), "http://agents.example");
        // Two proxies of ours: the inner one saw only the outer one.
        let chain = [
            ("x-forwarded-host", "agents.example, inner.local"),
            ("x-forwarded-proto", "https, http"),
            ("x-forwarded-for", "203.0.113.9, 10.0.0.7"),
        ];
        assert_eq!(base("10.0.0.1", &chain), "https://agents.example");
        let standard = [
            ("forwarded", "for=203.0.113.9;host=agents.example;proto=https"),
            ("forwarded", "for=\"10.0.0.7:5000\";host=inner.local;proto=http"),
        ];
        assert_eq!(base("10.0.0.1", &standard), "https://agents.example");
        let forged = [("forwarded", "host=evil.example, for=203.0.113.9;host=agents.example")];
        assert_eq!(base("10.0.0.1", &forged), "http://agents.example");
    }

    #[test]
    fn a_prefix_may_be_there_or_not() {
        let configured = public(Some("https://agents.example/team-a"));
        let forwarded = headers(&[("x-forwarded-prefix", "/team-a")]);
        let near: IpAddr = "127.0.0.1".parse().unwrap();
        for (path, route) in [
            ("/team-a/agents/hotels", Some(Route::Rpc("hotels"))),
            ("/agents/hotels", Some(Route::Rpc("hotels"))),
            ("/team-a/agents/hotels/tasks/x", Some(Route::Rest("hotels", "/tasks/x"))),
            ("/team-a/agents/hotels/.well-known/agent-card.json", Some(Route::Card("hotels"))),
            ("/team-a", Some(Route::Index)),
            ("/team-a/", Some(Route::Index)),
            ("/team-a/healthz", Some(Route::Health)),
            ("/team-ab/healthz", None),
            ("/team-a/team-a/healthz", None),
        ] {
            let found = route.map_or(Found::Nothing, Found::Door);
            let method = if matches!(found, Found::Door(Route::Rpc(_))) { Method::POST } else { Method::GET };
            assert_eq!(configured.find(&method, path, &HeaderMap::new(), near), found, "{path}");
            assert_eq!(public(None).find(&method, path, &forwarded, near), found, "{path}");
        }
        let stranger = public(None).find(&Method::GET, "/team-a/healthz", &forwarded, FAR.parse().unwrap());
        assert_eq!(stranger, Found::Nothing);
        // A prefix that looks like a path of ours.
        let odd = public(Some("https://x/agents"));
        assert_eq!(
            odd.find(&Method::POST, "/agents/agents/hotels", &HeaderMap::new(), near),
            Found::Door(Route::Rpc("hotels"))
        );
        assert_eq!(
            odd.find(&Method::POST, "/agents/hotels", &HeaderMap::new(), near),
            Found::Door(Route::Rpc("hotels"))
        );
    }
}

//! Where a URL that a stranger chose may lead: to the public internet, and to what an operator allows beside it.
//!
//! The URL itself is judged when it is given, which tells of slips and says no at once. What counts is the address of the
//! *socket*, judged each time that one is opened (`connect`): a name may lead elsewhere the next time.

use std::net::IpAddr;

use http::Uri;
use watertight_policy::address::is_public;

use crate::config::Net;

/// The longest URL.
const MAX_URL: usize = 2_048;

/// Which addresses a stranger's choice may lead to, and what is said of others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    allow: Vec<Net>,
    /// `it leads to an address …`
    refusal: &'static str,
}

impl Guard {
    /// Of news that is pushed.
    pub(crate) fn of_news(allow: Vec<Net>) -> Guard {
        Guard { allow, refusal: "to which nothing is pushed" }
    }

    /// Of agents that registered themselves.
    pub(crate) fn of_agents(allow: Vec<Net>) -> Guard {
        Guard { allow, refusal: "that is neither public nor allowed by the agent's enrolment" }
    }

    /// Whether a socket may be opened to it.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        is_public(address) || self.allow.iter().any(|net| net.contains(address))
    }

    /// Why one was not opened.
    pub(super) fn refused(&self) -> String {
        format!("it leads to an address {}", self.refusal)
    }

    /// The URL, if it is one that may be called. Where its host is a name, only the socket tells where that leads.
    pub(crate) fn url(&self, text: &str) -> Result<Uri, String> {
        if text.len() > MAX_URL || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("must be at most {MAX_URL} visible ASCII characters"));
        }
        let url: Uri = text.parse().map_err(|_| "is no URL".to_owned())?;
        let is_web =
            matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty());
        if !is_web || url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("must be an http or https URL with a host, and without a user".to_owned());
        }
        let host = url.host().unwrap_or("").trim_start_matches('[').trim_end_matches(']');
        match host.parse() {
            Ok(address) if !self.allows(address) => Err(format!("is at an address {}", self.refusal)),
            Ok(_) | Err(_) => Ok(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_judged_as_far_as_it_says_where_it_leads() {
        let guard = Guard::of_news(vec!["10.0.0.0/8".parse().unwrap()]);
        for good in
            ["http://10.1.2.3:99/x?y=1", "https://[2606:4700::1111]/", "https://agents.example", "http://localhost/"]
        {
            assert!(guard.url(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("http://127.0.0.1/", "is at an address to which nothing is pushed"),
            ("http://[::ffff:127.0.0.1]/", "is at an address"),
            ("http://169.254.169.254/latest", "is at an address"),
            ("http://user@10.0.0.1/", "without a user"),
            ("ftp://10.0.0.1/", "must be an http or https URL"),
            ("/x", "must be an http or https URL"),
            ("http:///x", ""),
            ("http://10.0.0.1/\r\nx", "visible ASCII"),
            (&format!("http://10.0.0.1/{}", "x".repeat(2_048)), "at most 2048"),
        ] {
            let said = guard.url(bad).unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }
}

//! Who calls: from the credential alone, never from a body.
//!
//! Without callers in the configuration the gateway listens on loopback, and this machine's users are the caller
//! `local`; then Host and Origin must be of this machine, so that no web page can reach it through a name that it
//! points here. With callers or tokens, a bearer token tells who calls. Tokens are compared as keyed hashes: the
//! configured ones in constant time, against all callers, those of the token file by a look-up of the hash.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Uri, header};
use subtle::ConstantTimeEq;
use watertight_engine::ids::{AgentId, Owner, Principal};
use watertight_engine::record::Outbox;
use watertight_policy::access;
use watertight_policy::reason::Reason;

use crate::clock::Clock;
use crate::config::{Caller, Config, Enrolment, InstanceKey};
use crate::tokens::{Scope, Tokens};

/// Where a client may say which agent it is. The credential alone decides; a word that differs is refused.
const CLAIM: &str = "x-workspace-id";

/// Judges requests.
#[derive(Debug)]
pub struct Auth {
    key: InstanceKey,
    known: Vec<Known>,
    /// The hashes of the secrets of those who may register agents, with their names.
    enrolments: Vec<([u8; 32], String)>,
    /// The ids of the tokens of agents that registered, as long as they are.
    registered: BTreeMap<AgentId, String>,
    tokens: Arc<Tokens>,
    clock: Clock,
    /// The host of the configured public URL: a proxy on this machine may be reached by it.
    public_host: Option<String>,
    /// This machine's users.
    everybody: Arc<Who>,
}

#[derive(Debug)]
struct Known {
    hash: [u8; 32],
    who: Arc<Who>,
}

/// Somebody who may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// What is part of every key.
    pub principal: Principal,
    /// The agents that it may call; `None`: all.
    pub(crate) agents: Option<BTreeSet<AgentId>>,
    /// The agent that it is, if it is one.
    pub agent: Option<AgentId>,
    /// Where it is told of what it delegated.
    pub outbox: Outbox,
    /// Of an agent that registered itself: the id of its token.
    pub(crate) enrolled: Option<String>,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
}

impl Who {
    /// Whether it has this scope.
    pub fn is(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whose outbox it reads: its own, and no other.
    pub(crate) fn owner(&self) -> Option<Owner> {
        self.outbox.owner(&self.principal)
    }

    /// It, before the rules.
    pub(crate) fn asks(&self) -> access::Caller<'_, AgentId> {
        access::Caller { tenant: &self.principal.tenant, agent: self.agent.as_ref(), only: self.agents.as_ref() }
    }
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// `unauthenticated` or `forbidden`.
    pub reason: Reason,
    /// For people.
    pub text: &'static str,
}

const NO_TOKEN: Denied =
    Denied { reason: Reason::Unauthenticated, text: "no bearer token: send `Authorization: Bearer TOKEN`" };
const BAD_TOKEN: Denied = Denied { reason: Reason::Unauthenticated, text: "the bearer token is not valid" };
const NOT_THAT_ONE: Denied = Denied {
    reason: Reason::Unauthenticated,
    text: "the bearer token is not that of the agent that X-Workspace-ID names: leave the header out, or send that agent's token",
};
const RESERVED: Denied = Denied {
    reason: Reason::Forbidden,
    text: "X-Workspace-ID has a name with a colon: those are the gateway's own, and nobody calls as one of them",
};
const NO_CALLER: Denied = Denied { reason: Reason::Forbidden, text: "this needs a token with the scope `caller`" };
const NO_OPERATOR: Denied = Denied { reason: Reason::Forbidden, text: "this needs a token with the scope `operator`" };
const NO_ADMIN: Denied = Denied { reason: Reason::Forbidden, text: "this needs a token with the scope `admin`" };
const FOREIGN_HOST: Denied = Denied {
    reason: Reason::Forbidden,
    text: "the Host header names another host: without callers the gateway serves this machine only",
};
const FOREIGN_ORIGIN: Denied = Denied {
    reason: Reason::Forbidden,
    text: "the Origin header names another host: without callers the gateway serves this machine only",
};

impl Auth {
    /// Knows these callers and tokens, and who may register; none of them means this machine's users. The callers may be more
    /// than the configuration's: an agent that leaves is known to those who could call it.
    pub fn new(key: InstanceKey, callers: &[Caller], tokens: Arc<Tokens>, clock: Clock, config: &Config) -> Auth {
        let known = callers
            .iter()
            .map(|caller| Known {
                hash: key.mac("bearer", caller.token.expose().as_bytes()),
                who: Arc::new(of_caller(caller)),
            })
            .collect();
        let public_host =
            config.public_url.as_deref().and_then(|url| url.parse::<Uri>().ok()?.host().map(str::to_owned));
        let everybody = Arc::new(Who { outbox: outbox_of(Some(config.local_outbox), None), ..of_this_machine() });
        let hashed = |one: &Enrolment| (key.mac("bearer", one.secret.expose().as_bytes()), one.name.clone());
        let enrolments = config.enrolments.iter().map(hashed).collect();
        let registered = config.registered.iter().filter(|(name, _)| config.is_registered(name));
        let registered = registered.map(|(name, record)| (name.clone(), record.token.clone())).collect();
        Auth { key, known, enrolments, registered, tokens, clock, public_host, everybody }
    }

    /// Whether everybody on this machine may call.
    pub fn is_open(&self) -> bool {
        self.known.is_empty() && self.enrolments.is_empty() && self.tokens.is_open()
    }

    /// Who sent this request, if it may call agents.
    pub fn caller(&self, uri: &Uri, headers: &HeaderMap) -> Result<Arc<Who>, Denied> {
        self.with(Scope::Caller, uri, headers)
    }

    /// Who sent this request, whatever it may do.
    pub fn who(&self, uri: &Uri, headers: &HeaderMap) -> Result<Arc<Who>, Denied> {
        let who = self.holder(uri, headers)?;
        self.claims(&who, headers)?;
        Ok(who)
    }

    /// Whoever says which agent it is has to be that one. It is nobody's by saying so.
    fn claims(&self, who: &Who, headers: &HeaderMap) -> Result<(), Denied> {
        for claim in headers.get_all(CLAIM) {
            match claim.to_str() {
                Ok(claim) if claim.contains(':') => return Err(RESERVED),
                Ok(claim) if who.agent.as_ref().is_some_and(|agent| agent.as_str() == claim) => {}
                // This machine's users are no agents, and nobody's word is taken for it.
                Ok(_) | Err(_) if self.is_open() => {}
                Ok(_) | Err(_) => return Err(NOT_THAT_ONE),
            }
        }
        Ok(())
    }

    fn holder(&self, uri: &Uri, headers: &HeaderMap) -> Result<Arc<Who>, Denied> {
        if self.is_open() {
            self.local(uri, headers)?;
            return Ok(self.everybody.clone());
        }
        let token = bearer(headers).ok_or(NO_TOKEN)?;
        let hash = self.key.mac("bearer", token);
        let mut found = None;
        for known in &self.known {
            if bool::from(known.hash.ct_eq(&hash)) {
                found = Some(&known.who);
            }
        }
        if let Some(found) = found {
            return Ok(found.clone());
        }
        // A token may have been hashed with a key that another one is about to replace.
        let now = self.clock.now();
        let mut hashes = self.key.macs("bearer", token);
        hashes.find_map(|hash| self.tokens.holder(&hash, now)).filter(|who| self.stands(who)).ok_or(BAD_TOKEN)
    }

    /// The token of an agent that registered counts as long as the agent is registered, with this one.
    fn stands(&self, who: &Who) -> bool {
        let Some(token) = &who.enrolled else { return true };
        who.agent.as_ref().and_then(|agent| self.registered.get(agent)) == Some(token)
    }

    /// Whether anybody may register agents.
    pub fn enrols(&self) -> bool {
        !self.enrolments.is_empty()
    }

    /// The enrolment whose secret is shown.
    pub fn enrolment(&self, headers: &HeaderMap) -> Option<&str> {
        let hash = self.key.mac("bearer", bearer(headers)?);
        let mut found = None;
        for (known, name) in &self.enrolments {
            if bool::from(known.ct_eq(&hash)) {
                found = Some(name.as_str());
            }
        }
        found
    }

    /// Who sent this request, if it is an operator.
    pub fn operator(&self, uri: &Uri, headers: &HeaderMap) -> Result<Arc<Who>, Denied> {
        self.with(Scope::Operator, uri, headers)
    }

    /// Who sent this request, if it may read tasks: its own as a caller, its tenant's as an operator.
    pub fn reader(&self, uri: &Uri, headers: &HeaderMap) -> Result<Arc<Who>, Denied> {
        let who = self.who(uri, headers)?;
        if who.is(Scope::Caller) || who.is(Scope::Operator) { Ok(who) } else { Err(NO_CALLER) }
    }

    /// Who sent this request, if it may change the configuration.
    pub fn admin(&self, uri: &Uri, headers: &HeaderMap) -> Result<Arc<Who>, Denied> {
        self.with(Scope::Admin, uri, headers)
    }

    fn with(&self, scope: Scope, uri: &Uri, headers: &HeaderMap) -> Result<Arc<Who>, Denied> {
        let who = self.who(uri, headers)?;
        match scope {
            _ if who.is(scope) => Ok(who),
            Scope::Caller => Err(NO_CALLER),
            Scope::Operator => Err(NO_OPERATOR),
            Scope::Admin => Err(NO_ADMIN),
        }
    }

    fn local(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
        let said = headers.get(header::HOST).map(|host| host.to_str().ok());
        // HTTP/2 has it in the URI.
        let host = said.unwrap_or_else(|| uri.authority().map(|authority| authority.as_str()));
        if !host.is_some_and(|host| self.is_ours(host)) {
            return Err(FOREIGN_HOST);
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        match origin {
            Some(("http" | "https", host)) if self.is_ours(host) => Ok(()),
            Some(_) | None => Err(FOREIGN_ORIGIN),
        }
    }

    /// This machine by a name or address that means it everywhere, with any port.
    fn is_ours(&self, authority: &str) -> bool {
        let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
        if authority.as_str().contains('@') {
            return false;
        }
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback())
            || self.public_host.as_deref().is_some_and(|public| public.eq_ignore_ascii_case(host))
    }
}

/// Who a configured caller is.
pub(crate) fn of_caller(caller: &Caller) -> Who {
    Who {
        principal: Principal { tenant: caller.tenant.as_str().into(), caller: caller.name.as_str().into() },
        agents: caller.only(),
        agent: caller.agent.clone(),
        outbox: outbox_of(caller.outbox, caller.agent.as_ref()),
        enrolled: None,
        scopes: match caller.operator {
            true => BTreeSet::from([Scope::Caller, Scope::Operator, Scope::Admin]),
            false => BTreeSet::from([Scope::Caller]),
        },
    }
}

/// Who calls where nobody is asked for a token.
pub(crate) fn of_this_machine() -> Who {
    let principal = Principal { tenant: "local".into(), caller: "local".into() };
    let scopes = BTreeSet::from([Scope::Caller, Scope::Operator, Scope::Admin]);
    Who { principal, agents: None, agent: None, outbox: Outbox::None, enrolled: None, scopes }
}

/// An agent has one unless it is told otherwise, and anybody else if it is.
pub(crate) fn outbox_of(said: Option<bool>, agent: Option<&AgentId>) -> Outbox {
    match (said.unwrap_or(agent.is_some()), agent) {
        (false, _) => Outbox::None,
        (true, None) => Outbox::Caller,
        (true, Some(agent)) => Outbox::Agent(agent.clone()),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::config::Secret;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn clock() -> Clock {
        Clock::anchored(watertight_policy::time::Time::from_millis(1))
    }

    fn config(text: &str) -> Config {
        Config::parse("w.toml", text, std::path::Path::new("/here"), None, &|_| Some("s3cret".to_owned())).unwrap()
    }

    #[test]
    fn an_enrolment_opens_one_door_and_closes_the_others() {
        let config = config("[enrolment.crew]\nsecret = \"env:S\"\n");
        let auth = Auth::new(InstanceKey::generate().unwrap(), &[], Tokens::none(), clock(), &config);
        let bearer = |token: &str| headers(&[("host", "localhost"), ("authorization", &format!("Bearer {token}"))]);
        assert_eq!(auth.enrolment(&bearer("s3cret")), Some("crew"));
        assert_eq!((auth.enrolment(&bearer("s3cres")), auth.enrolment(&HeaderMap::new())), (None, None));
        assert!(auth.enrols() && !auth.is_open());
        let uri = Uri::from_static("/");
        assert_eq!(auth.who(&uri, &bearer("s3cret")), Err(BAD_TOKEN));
        assert_eq!(auth.who(&uri, &headers(&[("host", "localhost")])), Err(NO_TOKEN));
    }

    fn closed() -> Auth {
        let caller = |name: &str, operator, agents| Caller {
            name: name.to_owned(),
            tenant: "acme".to_owned(),
            token: Secret::new(format!("token-of-{name}")),
            agents,
            agent: None,
            operator,
            weight: 1,
            outbox: None,
        };
        let callers = [caller("alice", false, Some(vec![AgentId::new("hotels")])), caller("ops", true, None)];
        Auth::new(InstanceKey::generate().unwrap(), &callers, Tokens::none(), clock(), &config(""))
    }

    #[test]
    fn a_token_tells_who_calls() {
        let auth = closed();
        let uri = Uri::from_static("/");
        let ask = |value: &str| auth.caller(&uri, &headers(&[("authorization", value)]));
        let alice = ask("Bearer token-of-alice").unwrap();
        assert_eq!((&*alice.principal.tenant, &*alice.principal.caller), ("acme", "alice"));
        assert_eq!(alice.agents, Some(BTreeSet::from([AgentId::new("hotels")])));
        assert_eq!(ask("bearer  token-of-ops").unwrap().agents, None);
        assert_eq!(ask("Bearer token-of-alicf"), Err(BAD_TOKEN));
        for none in ["", "Bearer", "Bearer ", "Basic dG9rZW4=", "token-of-alice"] {
            assert_eq!(ask(none), Err(NO_TOKEN), "{none}");
        }
        assert_eq!(auth.caller(&uri, &HeaderMap::new()), Err(NO_TOKEN));
        let twice = headers(&[("authorization", "Bearer token-of-alice"), ("authorization", "Bearer token-of-ops")]);
        assert_eq!(auth.caller(&uri, &twice).is_ok(), twice.get_all("authorization").iter().count() == 1);
    }

    #[test]
    fn only_an_operator_operates() {
        let auth = closed();
        let ask = |token: &str| auth.operator(&Uri::from_static("/"), &headers(&[("authorization", token)]));
        assert_eq!(ask("Bearer token-of-alice"), Err(NO_OPERATOR));
        assert!(ask("Bearer token-of-ops").is_ok());
        let admin = |token: &str| auth.admin(&Uri::from_static("/"), &headers(&[("authorization", token)]));
        assert_eq!((admin("Bearer token-of-alice"), admin("Bearer token-of-ops").is_ok()), (Err(NO_ADMIN), true));
    }

    #[test]
    fn without_callers_only_this_machine_gets_in() {
        let config = config("[server]\npublic_url = \"https://agents.example/base\"\n");
        let auth = Auth::new(InstanceKey::generate().unwrap(), &[], Tokens::none(), clock(), &config);
        let uri = Uri::from_static("/");
        let ask =
            |pairs: &[(&'static str, &str)]| auth.caller(&uri, &headers(pairs)).map(|who| who.is(Scope::Operator));
        for host in ["localhost", "localhost:7420", "LOCALHOST:1", "127.0.0.1:7420", "[::1]:7420", "agents.example"] {
            assert_eq!(ask(&[("host", host)]), Ok(true), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "a@localhost"]
        {
            assert_eq!(ask(&[("host", host)]), Err(FOREIGN_HOST), "{host}");
        }
        assert_eq!(ask(&[]), Err(FOREIGN_HOST));
        assert!(auth.caller(&Uri::from_static("http://localhost:7420/"), &HeaderMap::new()).is_ok(), "HTTP/2");
        assert_eq!(ask(&[("host", "localhost"), ("origin", "http://localhost:3000")]), Ok(true));
        for origin in ["null", "http://evil.example", "file://", "https://127.0.0.1.evil.example"] {
            assert_eq!(ask(&[("host", "localhost"), ("origin", origin)]), Err(FOREIGN_ORIGIN), "{origin}");
        }
    }
}

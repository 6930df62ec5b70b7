//! One agent's card, fetched once and judged, for people who set an agent up.
//!
//! Says what the gateway would make of the card, in plain data. Sends no message, and keeps nothing.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::time::{Instant, timeout};
use watertight_a2a::card::{Binding as Spoken, CardView, Interface};
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use super::ask::Asker;
use super::cards::{FETCH_LIMIT, Found, look, places};
use super::connect::Origin;
use super::endpoints::Endpoints;
use super::{AgentConfig, Binding};
use crate::clock::Clock;

/// What was found out about an agent. Peers' text in it is bounded, and free of control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardReport {
    /// Where its card was looked for, in order; the last is where the answer came from, if one came.
    pub places: Vec<Place>,
    /// What the card says, if there is one.
    pub card: Option<CardFacts>,
    /// How the agent would be called: the first of these that works.
    pub uses: Vec<Use>,
    /// The interfaces of the card are all elsewhere, and the configured URL is used in their place.
    pub elsewhere: bool,
}

/// One place where a card was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its URL.
    pub url: String,
    /// An HTTP answer came.
    pub reachable: bool,
    /// Its status, where there was no card in it.
    pub status: Option<u16>,
    /// How long it took.
    pub took: Duration,
    /// Why there is no card here: the word, and a sentence. `None`: there is, or the agent said that there is none.
    pub problem: Option<(Reason, String)>,
}

/// What a card says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardFacts {
    /// The agent's name.
    pub name: String,
    /// The agent's own version.
    pub version: String,
    /// Bytes of the card.
    pub bytes: usize,
    /// Whether the agent streams.
    pub streaming: bool,
    /// Whether the card is signed. The gateway does not look at signatures.
    pub signed: bool,
    /// URIs of the extensions that a caller has to name.
    pub required_extensions: Vec<String>,
    /// Only A2A 0.3 is spoken, which the gateway does not speak.
    pub only_v03: bool,
    /// Its interfaces, in its order of preference.
    pub interfaces: Vec<InterfaceFacts>,
}

/// An interface in a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Its address.
    pub url: String,
    /// How it is spoken, in the card's word.
    pub binding: String,
    /// The protocol's version, "" if the card does not say.
    pub protocol_version: String,
    /// Its tenant.
    pub tenant: Option<String>,
    /// Why it is not used; `None`: it is.
    pub unusable: Option<String>,
}

/// One way to call an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// JSONRPC or HTTP+JSON.
    pub binding: &'static str,
    /// Path and query at the configured scheme, host and port.
    pub path: String,
    /// What is sent along as tenant.
    pub tenant: Option<String>,
}

/// Fetches and judges an agent's card, once; within ten seconds. Must be called inside a tokio runtime. An error says what is
/// wrong with the configuration.
pub async fn inspect(config: &AgentConfig) -> Result<CardReport, String> {
    let config = Arc::new(config.clone());
    let asker = Asker::new(config.clone(), Clock::anchored(Time::ZERO))?;
    let until = Instant::now() + FETCH_LIMIT;
    let mut report = CardReport { places: Vec::new(), card: None, uses: Vec::new(), elsewhere: false };
    let mut view = None;
    for url in places(&config) {
        let begun = Instant::now();
        let looked = timeout(until.saturating_duration_since(begun), look(&asker, &url, None)).await;
        let mut place =
            Place { url: url.to_string(), reachable: true, status: None, took: begun.elapsed(), problem: None };
        match looked {
            Ok(Ok(Found::Card { raw, view: found, .. })) => {
                report.card = Some(facts(&found, raw.as_bytes().len(), &config));
                view = Some(found);
            }
            Ok(Ok(Found::Nothing { status })) => place.status = Some(status),
            Ok(Ok(Found::Same { .. })) => {}
            Ok(Err(failure)) => {
                let (fault, detail) = failure.into_fault();
                (place.reachable, place.status) = (detail.status.is_some(), detail.status);
                place.problem = Some((fault.reason, detail.what));
            }
            Err(_) => {
                place.reachable = false;
                let what = format!("no card within {} s", FETCH_LIMIT.as_secs());
                place.problem = Some((Reason::AgentNoAnswer, what));
            }
        }
        let goes_on = view.is_none() && place.problem.is_none();
        report.places.push(place);
        if !goes_on {
            break;
        }
    }
    let (endpoints, elsewhere) = Endpoints::of(view.as_deref(), &config);
    report.elsewhere = elsewhere;
    let way =
        |one: &super::endpoints::Endpoint| Use { binding: one.binding(), path: one.path(), tenant: one.tenant.clone() };
    report.uses = endpoints.iter().map(way).collect();
    Ok(report)
}

fn facts(view: &CardView, bytes: usize, config: &AgentConfig) -> CardFacts {
    let required = view.extensions.iter().filter(|(_, required)| *required).map(|(uri, _)| uri.clone());
    CardFacts {
        name: view.name.clone(),
        version: view.version.clone(),
        bytes,
        streaming: view.streaming,
        signed: view.signed,
        required_extensions: required.collect(),
        only_v03: view.is_v03_only(),
        interfaces: view.interfaces.iter().map(|interface| judged(interface, config)).collect(),
    }
}

fn judged(interface: &Interface, config: &AgentConfig) -> InterfaceFacts {
    let (binding, spoken) = match &interface.binding {
        Spoken::JsonRpc => ("JSONRPC", config.binding != Binding::HttpJson),
        Spoken::HttpJson => ("HTTP+JSON", config.binding != Binding::JsonRpc),
        Spoken::Grpc => ("GRPC", false),
        Spoken::Other(name) => (name.as_str(), false),
    };
    let url = interface.url.parse::<Uri>().ok();
    let unusable = if !interface.is_json() {
        Some("the gateway speaks JSON-RPC and HTTP+JSON only".to_owned())
    } else if !interface.is_v1() {
        Some("the gateway speaks A2A 1.x only".to_owned())
    } else if !spoken {
        Some("the configured `binding` is another one".to_owned())
    } else if url.as_ref().and_then(Origin::of).is_none() {
        Some("its address is no http or https URL".to_owned())
    } else if url.as_ref().and_then(Origin::of) != Origin::of(&config.url) {
        Some(
            "it is at another scheme, host or port than the configured `url`, which credentials are bound to"
                .to_owned(),
        )
    } else {
        None
    };
    InterfaceFacts {
        url: interface.url.clone(),
        binding: binding.to_owned(),
        protocol_version: interface.protocol_version.clone(),
        tenant: interface.tenant.clone(),
        unusable,
    }
}

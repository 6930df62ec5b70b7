//! Where and how an agent is called: the interfaces that may be used, in order of preference, and which of them worked.
//!
//! An interface at another scheme, host or port than the configured one is not used, since the credentials are for that
//! one alone. Which interface works is found out by using it: nobody is asked for the sake of knowing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Uri;
use watertight_a2a::card::{self, CardView, Interface};
use watertight_a2a::rest::outbound::{Base, Tenant};

use super::connect::Origin;
use super::{AgentConfig, Binding};

/// One interface.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) wire: Wire,
    /// The card's, to be echoed unless the caller named one.
    pub(super) tenant: Option<String>,
    /// It said that it does not stream, whatever the card says.
    streamless: AtomicBool,
    /// It takes SubscribeToTask by GET, and not by POST.
    by_get: AtomicBool,
}

/// How it is spoken, and where below the agent's host.
#[derive(Clone, Debug)]
pub(super) enum Wire {
    /// JSON-RPC, at one path.
    JsonRpc { target: String },
    /// HTTP+JSON, below a path.
    HttpJson { base: Base },
}

impl Endpoint {
    fn new(binding: &card::Binding, url: &Uri, tenant: Option<String>) -> Endpoint {
        let target = url.path_and_query().map_or("/", |path| path.as_str());
        let wire = match binding {
            card::Binding::HttpJson => Wire::HttpJson { base: Base::of(target) },
            card::Binding::JsonRpc | card::Binding::Grpc | card::Binding::Other(_) => {
                Wire::JsonRpc { target: target.to_owned() }
            }
        };
        Endpoint { wire, tenant, streamless: AtomicBool::new(false), by_get: AtomicBool::new(false) }
    }

    fn afresh(&self) -> Endpoint {
        let (streamless, by_get) = (AtomicBool::new(self.is_streamless()), AtomicBool::new(self.subscribes_by_get()));
        Endpoint { wire: self.wire.clone(), tenant: self.tenant.clone(), streamless, by_get }
    }

    /// How it is spoken, in the card's words.
    pub(super) fn binding(&self) -> &'static str {
        if self.is_json_rpc() { "JSONRPC" } else { "HTTP+JSON" }
    }

    /// Where it is below the host.
    pub(super) fn path(&self) -> String {
        match &self.wire {
            Wire::JsonRpc { target } => target.clone(),
            Wire::HttpJson { base } => base.to_string(),
        }
    }

    /// How a tenant goes along in HTTP+JSON: as the definition's leading segment where the card names one, since servers
    /// that have tenants route by it; where only the caller does, beside the path, since other servers know no such path.
    pub(super) fn carried<'a>(&'a self, named: Option<&'a str>) -> Tenant<'a> {
        match (named, self.tenant.as_deref()) {
            (Some(tenant), Some(_)) | (None, Some(tenant)) => Tenant::Path(tenant),
            (Some(tenant), None) => Tenant::Beside(tenant),
            (None, None) => Tenant::None,
        }
    }

    pub(super) fn is_json_rpc(&self) -> bool {
        match self.wire {
            Wire::JsonRpc { .. } => true,
            Wire::HttpJson { .. } => false,
        }
    }

    pub(super) fn is_streamless(&self) -> bool {
        self.streamless.load(Ordering::Relaxed)
    }

    pub(super) fn set_streamless(&self) {
        self.streamless.store(true, Ordering::Relaxed);
    }

    pub(super) fn subscribes_by_get(&self) -> bool {
        self.by_get.load(Ordering::Relaxed)
    }

    pub(super) fn set_subscribes_by_get(&self) {
        self.by_get.store(true, Ordering::Relaxed);
    }
}

/// All interfaces that may be used; at least one.
#[derive(Debug)]
pub(super) struct Endpoints {
    list: Vec<Endpoint>,
    /// The one that worked the last time.
    first: AtomicUsize,
    /// Whether the agent streams; `None` without a card.
    pub(super) streaming: Option<bool>,
    /// What the card before this one led to: tasks may be known there and not here.
    pub(super) former: Option<Arc<Endpoints>>,
}

impl Endpoints {
    /// Of an agent, by its card if there is one. Also whether what the card names is all elsewhere.
    pub(super) fn of(view: Option<&CardView>, config: &AgentConfig) -> (Endpoints, bool) {
        let origin = Origin::of(&config.url);
        let spoken = |interface: &&Interface| match config.binding {
            Binding::Auto => true,
            Binding::JsonRpc => interface.binding == card::Binding::JsonRpc,
            Binding::HttpJson => interface.binding == card::Binding::HttpJson,
        };
        let named: Vec<&Interface> = view.into_iter().flat_map(CardView::json_v1).filter(spoken).collect();
        let near = |interface: &&Interface| {
            let url = interface.url.parse::<Uri>().ok().filter(|url| Origin::of(url) == origin)?;
            Some(Endpoint::new(&interface.binding, &url, interface.tenant.clone()))
        };
        let mut list: Vec<Endpoint> = named.iter().filter_map(near).collect();
        let elsewhere = list.is_empty() && !named.is_empty();
        if list.is_empty() {
            // A card that knows no JSON-RPC at all is believed as to how, if not as to where.
            let only_http = !named.is_empty() && named.iter().all(|one| one.binding == card::Binding::HttpJson);
            let binding = match config.binding {
                Binding::Auto if only_http => card::Binding::HttpJson,
                Binding::Auto | Binding::JsonRpc => card::Binding::JsonRpc,
                Binding::HttpJson => card::Binding::HttpJson,
            };
            let tenant = named.iter().find(|one| one.binding == binding).and_then(|one| one.tenant.clone());
            list.push(Endpoint::new(&binding, &config.url, tenant));
        }
        let streaming = view.map(|view| view.streaming);
        (Endpoints { list, first: AtomicUsize::new(0), streaming, former: None }, elsewhere)
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.list.iter()
    }

    pub(super) fn get(&self, at: usize) -> &Endpoint {
        &self.list[at]
    }

    /// The same without what was before it, so that the past does not pile up.
    pub(super) fn without_former(self: &Arc<Endpoints>) -> Arc<Endpoints> {
        if self.former.is_none() {
            return self.clone();
        }
        let list = self.list.iter().map(Endpoint::afresh).collect();
        let first = AtomicUsize::new(self.first());
        Arc::new(Endpoints { list, first, streaming: self.streaming, former: None })
    }

    /// The one that worked the last time.
    pub(super) fn first(&self) -> usize {
        self.first.load(Ordering::Relaxed)
    }

    /// All of them, beginning with one.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        std::iter::once(first).chain((0..self.list.len()).filter(move |at| *at != first))
    }

    /// This one works: true if it was another before.
    pub(super) fn worked(&self, at: usize) -> bool {
        self.first() != at && self.first.swap(at, Ordering::Relaxed) != at
    }
}

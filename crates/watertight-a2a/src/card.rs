//! Agent cards as agents publish them: a tolerant view. What we publish in their place is in [`crate::served`].
//!
//! Every member is optional to this reader, and bounded. It decides nothing but which interface to use.

use crate::json::{self, Json, Kind, Limits, Value};
use crate::text::clean;

/// The longest card that is read, by default.
pub const MAX_CARD_BYTES: usize = 1 << 20;
/// The most interfaces or extensions looked at.
pub const MAX_ENTRIES: usize = 64;
/// The longest URL taken from a card, in bytes; a longer one is left out.
pub const MAX_URL_BYTES: usize = 2048;

/// The limits for a card.
pub const CARD_LIMITS: Limits = Limits { max_depth: 64, max_bytes: MAX_CARD_BYTES };

/// Why there is no card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardError {
    /// Not JSON, or over a limit.
    Json(json::Error),
    /// JSON, but no object.
    NotAnObject,
    /// An object with neither a name nor any interface: some other document.
    NotACard,
}

impl std::fmt::Display for CardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CardError::Json(error) => write!(f, "the card is unreadable: {error}"),
            CardError::NotAnObject => f.write_str("the card is not a JSON object"),
            CardError::NotACard => f.write_str("the document has neither a name nor an interface"),
        }
    }
}

impl std::error::Error for CardError {}

/// How an interface is spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// JSON-RPC over HTTP.
    JsonRpc,
    /// HTTP+JSON.
    HttpJson,
    /// gRPC.
    Grpc,
    /// Something else, cleaned and bounded.
    Other(String),
}

impl Binding {
    fn read(name: &str) -> Binding {
        match name.to_ascii_uppercase().as_str() {
            "JSONRPC" => Binding::JsonRpc,
            "HTTP+JSON" => Binding::HttpJson,
            "GRPC" => Binding::Grpc,
            _ => Binding::Other(clean(name, 256)),
        }
    }
}

/// Where and how an agent can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The address.
    pub url: String,
    /// The binding.
    pub binding: Binding,
    /// The protocol version, "" if the card does not say.
    pub protocol_version: String,
    /// To be echoed in every request.
    pub tenant: Option<String>,
}

impl Interface {
    /// Whether it is of A2A 1.x. An entry without a version is, since only 1.0 has this list.
    pub fn is_v1(&self) -> bool {
        let version = self.protocol_version.as_str();
        matches!(version, "" | "1") || version.starts_with("1.")
    }

    /// Whether it is JSON-RPC or HTTP+JSON.
    pub fn is_json(&self) -> bool {
        match self.binding {
            Binding::JsonRpc | Binding::HttpJson => true,
            Binding::Grpc | Binding::Other(_) => false,
        }
    }
}

/// What a card says, as far as we use it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CardView {
    /// The agent's name, cleaned.
    pub name: String,
    /// Its description, cleaned.
    pub description: String,
    /// The agent's own version, cleaned.
    pub version: String,
    /// `supportedInterfaces`, in the card's order.
    pub interfaces: Vec<Interface>,
    /// The interfaces of a 0.3 card: its `url` with `preferredTransport`, then `additionalInterfaces`.
    pub v03_interfaces: Vec<Interface>,
    /// `capabilities.streaming`.
    pub streaming: bool,
    /// `capabilities.pushNotifications`.
    pub push_notifications: bool,
    /// `capabilities.extendedAgentCard`, or its 0.3 counterpart.
    pub extended_card: bool,
    /// URIs of extensions, and whether each is required.
    pub extensions: Vec<(String, bool)>,
    /// Names of skills, cleaned.
    pub skills: Vec<String>,
    /// Whether it carries signatures.
    pub signed: bool,
}

impl CardView {
    /// Reads a card.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<CardView, CardError> {
        json::check(bytes, limits).map_err(CardError::Json)?;
        let root = Value::of(bytes);
        if !root.is_object() {
            return Err(CardError::NotAnObject);
        }
        let capabilities = root.get("capabilities");
        let flag = |parent: Option<Value<'_>>, name: &str| {
            parent.and_then(|parent| parent.get(name)).and_then(|flag| flag.as_bool()).unwrap_or(false)
        };
        let card = CardView {
            name: text(root, "name", 256),
            description: text(root, "description", 4096),
            version: text(root, "version", 128),
            interfaces: entries(root, "supportedInterfaces")
                .filter_map(|item| interface(item, "protocolBinding", text(item, "protocolVersion", 32)))
                .collect(),
            v03_interfaces: v03_interfaces(root),
            streaming: flag(capabilities, "streaming"),
            push_notifications: flag(capabilities, "pushNotifications"),
            extended_card: flag(capabilities, "extendedAgentCard")
                || flag(Some(root), "supportsAuthenticatedExtendedCard"),
            extensions: capabilities
                .iter()
                .flat_map(|capabilities| entries(*capabilities, "extensions"))
                .map(|item| (text(item, "uri", MAX_URL_BYTES), flag(Some(item), "required")))
                .collect(),
            skills: entries(root, "skills").map(|item| text(item, "name", 256)).collect(),
            signed: entries(root, "signatures").next().is_some(),
        };
        if card.name.is_empty() && card.interfaces.is_empty() && card.v03_interfaces.is_empty() {
            return Err(CardError::NotACard);
        }
        Ok(card)
    }

    /// The interfaces of A2A 1.x in the two bindings that carry JSON, in the card's order, which is one of preference.
    pub fn json_v1(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|interface| interface.is_json() && interface.is_v1())
    }

    /// Whether only 0.3 is spoken.
    pub fn is_v03_only(&self) -> bool {
        self.json_v1().next().is_none()
            && (!self.v03_interfaces.is_empty()
                || self.interfaces.iter().any(|interface| interface.protocol_version.starts_with("0.3")))
    }
}

fn v03_interfaces(root: Value<'_>) -> Vec<Interface> {
    let version = text(root, "protocolVersion", 32);
    let mut found = Vec::new();
    if let Some(url) = url(root) {
        let transport = text(root, "preferredTransport", 256);
        let binding = Binding::read(if transport.is_empty() { "JSONRPC" } else { &transport });
        found.push(Interface { url, binding, protocol_version: version.clone(), tenant: None });
    }
    found
        .extend(entries(root, "additionalInterfaces").filter_map(|item| interface(item, "transport", version.clone())));
    found
}

fn interface(item: Value<'_>, binding: &str, protocol_version: String) -> Option<Interface> {
    // A tenant is echoed byte for byte, so it is taken whole or the interface is not usable.
    let tenant = match item.get("tenant").filter(|tenant| !tenant.is_null()) {
        None => None,
        Some(tenant) => Some(tenant.as_exact_str().filter(|tenant| tenant.len() <= 256)?.into_owned()),
    };
    Some(Interface {
        url: url(item)?,
        binding: Binding::read(&text(item, binding, 256)),
        protocol_version,
        tenant: tenant.filter(|tenant| !tenant.is_empty()),
    })
}

fn url(parent: Value<'_>) -> Option<String> {
    let url = parent.get("url")?.as_exact_str()?;
    let fits = !url.is_empty() && url.len() <= MAX_URL_BYTES && !url.chars().any(|c| c.is_control() || c == ' ');
    fits.then(|| url.into_owned())
}

fn entries<'a>(parent: Value<'a>, name: &str) -> impl Iterator<Item = Value<'a>> + use<'a> {
    let list = parent.get(name).filter(|list| list.kind() == Kind::Array);
    list.into_iter().flat_map(|list| list.items()).take(MAX_ENTRIES)
}

fn text(parent: Value<'_>, name: &str, max: usize) -> String {
    parent.get(name).and_then(|text| text.as_str()).map(|text| clean(&text, max)).unwrap_or_default()
}

/// The value of an ETag header: quoted hex of the first 128 bits of the SHA-256.
pub fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", crate::canonical::Fingerprint::of_text(bytes))
}

/// Keeps a card's bytes as checked JSON.
pub fn keep(bytes: impl Into<bytes::Bytes>) -> Result<Json, CardError> {
    Json::parse(bytes, &CARD_LIMITS).map_err(CardError::Json)
}

#[cfg(test)]
mod tests;

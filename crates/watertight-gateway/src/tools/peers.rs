//! Whom a model may ask.

use serde_json::{Map, Value, json};
use watertight_engine::ids::AgentId;
use watertight_policy::boundary::{PeerText, What};

use super::{MAX_DESCRIPTION, Said, Session, framed};
use crate::handle::AgentStats;
use crate::http::api::state_of;

impl Session {
    /// All that the caller may call, without the caller itself.
    pub(super) fn list_peers(&self) -> Said {
        let (stats, rules) = (self.desk.handle.agents(), self.desk.handle.rules());
        // Who there is says the configuration; how each is, is known a moment after the start, or after it came.
        let of = |name: &AgentId| stats.iter().find(|stats| stats.agent == *name && !stats.removed);
        let peers: Vec<Map<String, Value>> = self
            .desk
            .agents
            .keys()
            .filter(|name| rules.judge(&self.who, name).is_ok())
            .map(|name| self.peer(name, of(name)))
            .collect();
        let mut text = match peers.len() {
            0 => "There is nobody that you can delegate to.".to_owned(),
            n => format!("{n} agents that you can delegate to:"),
        };
        for peer in &peers {
            let of = |name: &str| peer.get(name).and_then(Value::as_str).unwrap_or("");
            text.push_str(&format!("\n\n{}: {}, {} waiting.", of("agent"), of("state"), peer["waiting"]));
            if !of("description").is_empty() {
                text.push_str(&format!(" What it says of itself:\n{}", of("description")));
            }
        }
        let mut fields = Map::new();
        fields.insert("kind".to_owned(), json!("peers"));
        fields.insert("peers".to_owned(), peers.into_iter().map(Value::Object).collect());
        Said { text, fields, failed: false, receipt: None }
    }

    fn peer(&self, name: &AgentId, stats: Option<&AgentStats>) -> Map<String, Value> {
        let card = self.desk.handle.card(name);
        let said = card.and_then(|card| {
            let root = card.raw.value();
            let text = |value: Option<watertight_a2a::json::Value<'_>>| Some(value?.as_str()?.into_owned());
            let mut said: Vec<String> =
                [text(root.get("name")), text(root.get("description"))].into_iter().flatten().collect();
            for skill in root.get("skills").into_iter().flat_map(|skills| skills.items()) {
                let of = [text(skill.get("name")), text(skill.get("description"))];
                said.push(format!("- {}", of.into_iter().flatten().collect::<Vec<_>>().join(": ")));
            }
            Some(said.join("\n")).filter(|said| !said.is_empty())
        });
        let said = said.and_then(|said| framed(What::Description, &PeerText::new(said).preview(MAX_DESCRIPTION)));
        let mut peer = Map::new();
        peer.insert("agent".to_owned(), json!(name.as_str()));
        peer.insert("state".to_owned(), json!(stats.map_or("starting", state_of)));
        peer.insert("waiting".to_owned(), json!(stats.map_or(0, |stats| stats.queued + stats.waiting)));
        peer.insert("description".to_owned(), json!(said));
        peer
    }
}

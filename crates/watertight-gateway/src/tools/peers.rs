//! Whom a model may ask.

use serde_json::{Map, Value, json};
use watertight_policy::boundary::{PeerText, What};

use super::{MAX_DESCRIPTION, Said, Session, framed};
use crate::handle::AgentStats;
use crate::http::api::state_of;

impl Session {
    /// All that the caller may call, without the caller itself.
    pub(super) fn list_peers(&self) -> Said {
        let (stats, rules) = (self.desk.handle.agents(), self.desk.handle.rules());
        let peers: Vec<Map<String, Value>> = stats
            .iter()
            .filter(|stats| !stats.removed && self.desk.agents.contains_key(&stats.agent))
            .filter(|stats| rules.judge(&self.who, &stats.agent).is_ok())
            .map(|stats| self.peer(stats))
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

    fn peer(&self, stats: &AgentStats) -> Map<String, Value> {
        let card = self.desk.handle.card(&stats.agent);
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
        peer.insert("agent".to_owned(), json!(stats.agent.as_str()));
        peer.insert("state".to_owned(), json!(state_of(stats)));
        peer.insert("waiting".to_owned(), json!(stats.queued + stats.waiting));
        peer.insert("description".to_owned(), json!(said));
        peer
    }
}

//! The JSON Schema of the file, made from the table of keys, for editors and for checks elsewhere.
//!
//! It knows shapes, units and words. What needs the rest of the file (a default above its maximum, an agent that is
//! not configured) only `check` knows.

use serde_json::{Map, Value, json};

use super::keys::{self, Key, Kind, SECTIONS};

const NAME: &str = "^[a-z0-9_.-]{1,64}$";
const SECRET: &str = "^([A-Za-z0-9-]+ )?\\s*(env|file):.+$";
const URL: &str = "^https?://[^@/]+(/.*)?$";

/// The schema (draft 7, which editors know best), with a line break at its end.
pub fn schema() -> String {
    let mut out = Map::new();
    out.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    out.insert("title".to_owned(), json!("Watertight's configuration"));
    out.extend(table("", ""));
    format!("{:#}\n", Value::Object(out))
}

/// A table with its keys and the tables within it.
fn table(path: &str, doc: &str) -> Map<String, Value> {
    let own = keys::of(path).map(|key| (key.name().to_owned(), property(key)));
    let inner = SECTIONS.iter().filter_map(|section| {
        let rest = match path {
            "" => Some(section.path).filter(|rest| !rest.is_empty()),
            path => section.path.strip_prefix(path)?.strip_prefix('.'),
        }?;
        match rest.split_once('.') {
            None => Some((rest.to_owned(), Value::Object(table(section.path, section.doc)))),
            Some((kind, "*")) => Some((kind.to_owned(), named(section.path, section.doc))),
            Some(_) => None,
        }
    });
    let all: Map<String, Value> = own.chain(inner).collect();
    let required: Vec<&str> = keys::of(path).filter(|key| key.required).map(Key::name).collect();
    let mut out = Map::new();
    out.insert("type".to_owned(), json!("object"));
    if !doc.is_empty() {
        out.insert("description".to_owned(), json!(doc));
    }
    out.insert("additionalProperties".to_owned(), json!(false));
    if !required.is_empty() {
        out.insert("required".to_owned(), json!(required));
    }
    out.insert("properties".to_owned(), Value::Object(all));
    out
}

/// Tables of one kind under names of the user's.
fn named(path: &str, doc: &str) -> Value {
    json!({
        "type": "object",
        "description": doc,
        "propertyNames": {"pattern": NAME},
        "additionalProperties": table(path, doc),
    })
}

fn property(key: &Key) -> Value {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let mut out = match key.kind {
        Kind::Duration => text("^\\s*[0-9]+(\\.[0-9]+)?\\s*(us|µs|ms|s|m|min|h|d)\\s*$"),
        Kind::Size => text("^\\s*[0-9]+\\s*(B|KiB|MiB|GiB|kB|KB|MB|GB)\\s*$"),
        Kind::Share => text("^\\s*(100(\\.0+)?|[0-9]{1,2}(\\.[0-9]+)?)\\s*%\\s*$"),
        Kind::Count => {
            let least: u64 = key.least.parse().unwrap_or(0);
            json!({"type": "integer", "minimum": least, "maximum": u32::MAX})
        }
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Word(words) => json!({"type": "string", "enum": words}),
        Kind::Url => text(URL),
        Kind::Address => text("^(localhost|[0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]{1,5}$"),
        Kind::Path => json!({"type": "string", "minLength": 1}),
        Kind::Name => text(NAME),
        Kind::Names => json!({"type": "array", "items": {"type": "string", "pattern": NAME}}),
        Kind::Command => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Nets => {
            json!({"type": "array", "items": {"type": "string", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"}})
        }
        Kind::Secret => text(SECRET),
        Kind::Headers => json!({"type": "object", "additionalProperties": text(SECRET)}),
    };
    if let Some(out) = out.as_object_mut() {
        let more = if key.more.is_empty() { String::new() } else { format!(" {}", key.more) };
        out.insert("description".to_owned(), json!(format!("{}{more}", key.doc)));
        let default = key.default.and_then(|text| serde_json::from_str::<Value>(text).ok());
        out.extend(default.map(|default| ("default".to_owned(), default)));
    }
    out
}

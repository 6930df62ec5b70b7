//! A query: `name=value` pairs, percent-encoded, of which only the named ones are looked at.
//!
//! A plus sign is a space, as in forms. A name that occurs twice is an error: two readers could disagree on which one
//! holds. The length is bounded by whoever read the request's head.

use crate::error::Error;
use crate::json::names;

/// The value of `name`, in camelCase or snake_case; `None` if it is absent or empty.
pub fn value(query: &str, name: &str) -> Result<Option<String>, Error> {
    let mut found = None;
    for (key, raw) in pairs(query) {
        if !decode(key, true).is_some_and(|key| names(key.as_bytes(), name)) {
            continue;
        }
        let Some(text) = decode(raw, true) else {
            return Err(Error::invalid_params(name, "is not percent-encoded UTF-8 in the query"));
        };
        if found.replace(text).is_some() {
            return Err(Error::invalid_params(name, "occurs twice in the query, perhaps in two spellings"));
        }
    }
    Ok(found.filter(|text| !text.is_empty()))
}

/// The first name that is none of these.
pub fn unknown(query: &str, known: &[&str]) -> Option<String> {
    let named = |key: &str| decode(key, true).unwrap_or_else(|| key.to_owned());
    pairs(query).map(|(key, _)| named(key)).find(|key| !known.iter().any(|name| names(key.as_bytes(), name)))
}

/// All values of a name, whatever its case, joined by commas as those of a header are.
pub fn joined(query: &str, name: &str) -> Option<String> {
    let named = pairs(query).filter(|(key, _)| decode(key, true).is_some_and(|key| key.eq_ignore_ascii_case(name)));
    let values: Vec<String> = named.filter_map(|(_, value)| decode(value, true)).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Percent-decoding; `None` where a percent sign stands for nothing, or what comes out is not UTF-8.
pub(crate) fn decode(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            b'+' if plus => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let of = |query, name| value(query, name).unwrap();
        assert_eq!(of("a=1&contextId=c%2F1&b", "contextId").as_deref(), Some("c/1"));
        assert_eq!(of("context_id=a+b%2bc", "contextId").as_deref(), Some("a b+c"));
        assert_eq!(of("context%49d=x", "contextId").as_deref(), Some("x"));
        assert_eq!(of("contextId=%F0%9F%91%A9", "contextId").as_deref(), Some("👩"));
        for absent in ["", "&&", "contextId", "contextId=", "contextid=x", "x=contextId", "%zz=1"] {
            assert_eq!(of(absent, "contextId"), None, "{absent}");
        }
        for wrong in ["contextId=%", "contextId=%4", "contextId=%zz", "contextId=%ff", "contextId=a&context_id=a"] {
            assert_eq!(value(wrong, "contextId").unwrap_err().code, crate::error::INVALID_PARAMS, "{wrong}");
        }
        assert_eq!(of("x=%ff&contextId=a", "contextId").as_deref(), Some("a"), "what nobody reads may be anything");
    }

    #[test]
    fn a_header_in_the_query() {
        assert_eq!(joined("a=b&A2A-Version=1.0", "a2a-version").as_deref(), Some("1.0"));
        assert_eq!(joined("a2a-version=1.0&A2A-Version=0.3", "a2a-version").as_deref(), Some("1.0, 0.3"));
        assert_eq!(joined("a2a-versions=1.0", "a2a-version"), None);
    }
}

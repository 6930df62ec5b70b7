//! One text for all ways to write the same JSON, and a fingerprint of it.
//!
//! Members are sorted, whitespace is gone, strings carry only the escapes they need. Numbers stay as written: `1` and
//! `1.0` differ, and no integer is too large. One pass builds a flat tree, one writes it; neither recurses.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::json::{Value, hex4, skip_scalar, skip_string};

/// The first 128 bits of the SHA-256 of a canonical text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// Of a JSON value, whatever its key order, whitespace and escapes.
    pub fn of(value: Value<'_>) -> Fingerprint {
        Fingerprint::of_text(&canonical(value))
    }

    /// Of bytes as they are.
    pub fn of_text(text: &[u8]) -> Fingerprint {
        let digest = Sha256::digest(text);
        let mut first = [0; 16];
        first.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Fingerprint(first)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The canonical text of a value.
pub fn canonical(value: Value<'_>) -> Vec<u8> {
    let nodes = tree(value.raw());
    let mut out = Vec::with_capacity(value.raw().len());
    // What is left to write, innermost last: (node, next child).
    let mut open: Vec<(usize, usize)> = vec![(0, 0)];
    while let Some((node, child)) = open.pop() {
        match nodes.get(node) {
            Some(Node::Scalar(text)) => out.extend_from_slice(text),
            Some(Node::String(text)) => normalise_string(text, &mut out),
            Some(Node::Array(items)) => {
                out.extend_from_slice(if child == 0 { b"[" } else { b"" });
                if let Some(&next) = items.get(child) {
                    out.extend_from_slice(if child > 0 { b"," } else { b"" });
                    open.push((node, child + 1));
                    open.push((next, 0));
                } else {
                    out.push(b']');
                }
            }
            Some(Node::Object(members)) => {
                out.extend_from_slice(if child == 0 { b"{" } else { b"" });
                if let Some((key, next)) = members.get(child) {
                    out.extend_from_slice(if child > 0 { b"," } else { b"" });
                    out.extend_from_slice(key);
                    out.push(b':');
                    open.push((node, child + 1));
                    open.push((*next, 0));
                } else {
                    out.push(b'}');
                }
            }
            None => {}
        }
    }
    out
}

enum Node<'a> {
    Scalar(&'a [u8]),
    String(&'a [u8]),
    Array(Vec<usize>),
    Object(Vec<(Vec<u8>, usize)>),
}

/// The value's nodes, the root first, members sorted.
fn tree(text: &[u8]) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut key: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let node = match byte {
            b'{' => Node::Object(Vec::new()),
            b'[' => Node::Array(Vec::new()),
            b'}' | b']' => {
                at += 1;
                if let Some(closed) = open.pop()
                    && let Some(Node::Object(members)) = nodes.get_mut(closed)
                {
                    members.sort_by(|a, b| a.0.cmp(&b.0));
                }
                continue;
            }
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {
                at += 1;
                continue;
            }
            b'"' => {
                let end = skip_string(text, at);
                let string = text.get(at..end).unwrap_or_default();
                if key.is_none() && open.last().is_some_and(|&top| matches!(nodes.get(top), Some(Node::Object(_)))) {
                    let mut name = Vec::with_capacity(string.len());
                    normalise_string(string, &mut name);
                    key = Some(name);
                    at = end;
                    continue;
                }
                Node::String(string)
            }
            _ => Node::Scalar(text.get(at..skip_scalar(text, at)).unwrap_or_default()),
        };
        let index = nodes.len();
        match open.last().and_then(|&top| nodes.get_mut(top)) {
            Some(Node::Array(items)) => items.push(index),
            Some(Node::Object(members)) => members.push((key.take().unwrap_or_default(), index)),
            Some(Node::Scalar(_) | Node::String(_)) | None => {}
        }
        at += match &node {
            Node::Scalar(text) | Node::String(text) => text.len().max(1),
            Node::Array(_) | Node::Object(_) => {
                open.push(index);
                1
            }
        };
        nodes.push(node);
    }
    nodes
}

/// Writes a quoted string with the fewest escapes; half a surrogate pair keeps its escape.
fn normalise_string(quoted: &[u8], out: &mut Vec<u8>) {
    let text = quoted.get(1..quoted.len().max(2) - 1).unwrap_or_default();
    out.push(b'"');
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte != b'\\' {
            out.push(byte);
            at += 1;
            continue;
        }
        let escaped = text.get(at + 1).copied().unwrap_or(b'\\');
        at += 2;
        match escaped {
            b'b' => plain(8, out),
            b'f' => plain(12, out),
            b'n' => plain(b'\n', out),
            b'r' => plain(b'\r', out),
            b't' => plain(b'\t', out),
            b'u' => at += unit(text, at, out),
            other => plain(other, out),
        }
    }
    out.push(b'"');
}

fn plain(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        _ => out.push(byte),
    }
}

fn unit(text: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let Some(high) = hex4(text, at) else { return 0 };
    if let Some(letter) = char::from_u32(high) {
        match u8::try_from(letter) {
            Ok(byte) if byte.is_ascii() => plain(byte, out),
            _ => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        return 4;
    }
    if (0xd800..0xdc00).contains(&high)
        && text.get(at + 4..at + 6) == Some(b"\\u")
        && let Some(low @ 0xdc00..0xe000) = hex4(text, at + 6)
        && let Some(letter) = char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
    {
        out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        return 10;
    }
    out.extend_from_slice(format!("\\u{high:04x}").as_bytes());
    4
}

#[cfg(test)]
mod tests;

//! One text for all ways to write the same JSON, and a fingerprint of it.
//!
//! Members are sorted, whitespace is gone, strings carry only the escapes they need. Numbers stay as written: `1` and
//! `1.0` differ, and no integer is too large. One pass, no recursion, and nothing is kept of an array but its text; an object out of order is
//! copied once, so the cost is linear for a given depth.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::json::{Value, escaped_byte, hex4, skip_scalar, skip_string};

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

/// The size and SHA-256 of parts: of the JSON array that they make, each as it is written, with nothing between them but
/// a comma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its hash.
    pub sha256: [u8; 32],
}

/// Takes in parts one by one: nothing of them is copied.
#[derive(Debug, Default)]
pub struct Digester {
    hash: Sha256,
    bytes: u64,
}

impl Digester {
    /// One more.
    pub fn add(&mut self, part: Value<'_>) {
        self.write(if self.bytes == 0 { b"[" } else { b"," });
        self.write(part.raw());
    }

    /// `None`: there were none.
    pub fn finish(mut self) -> Option<Digest> {
        if self.bytes == 0 {
            return None;
        }
        self.write(b"]");
        Some(Digest { bytes: self.bytes, sha256: self.hash.finalize().into() })
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
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
    let text = value.raw();
    let mut writer = Writer { out: Vec::with_capacity(text.len()), open: Vec::new() };
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let end = match byte {
            b'"' => skip_string(text, at),
            b'{' | b'[' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => at + 1,
            _ => skip_scalar(text, at).max(at + 1),
        };
        let token = text.get(at..end).unwrap_or_default();
        match byte {
            b'{' | b'[' => writer.begin(byte),
            b'}' | b']' => writer.end(byte),
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {}
            b'"' => writer.string(token),
            _ => {
                writer.before_value();
                writer.out.extend_from_slice(token);
            }
        }
        at = end;
    }
    writer.out
}

/// Writes tokens as they come; an object whose members turn out not to be sorted is put in order when it closes.
struct Writer {
    out: Vec<u8>,
    open: Vec<Frame>,
}

struct Frame {
    /// Where its content begins.
    start: usize,
    /// Of an object: its members so far, without commas.
    members: Option<Vec<Member>>,
    /// Of an object: a name comes next.
    at_key: bool,
}

struct Member {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Writer {
    fn begin(&mut self, bracket: u8) {
        self.before_value();
        self.out.push(bracket);
        let members = (bracket == b'{').then(Vec::new);
        self.open.push(Frame { start: self.out.len(), at_key: members.is_some(), members });
    }

    fn before_value(&mut self) {
        let Some(top) = self.open.last_mut() else { return };
        if top.members.is_some() {
            top.at_key = true;
        } else if self.out.len() > top.start {
            self.out.push(b',');
        }
    }

    fn string(&mut self, token: &[u8]) {
        let end = self.out.len();
        if let Some(Frame { members: Some(members), at_key, .. }) = self.open.last_mut()
            && *at_key
        {
            *at_key = false;
            if let Some(last) = members.last_mut() {
                last.end = end;
                self.out.push(b',');
            }
            let start = self.out.len();
            normalise_string(token, &mut self.out);
            members.push(Member { start, key_end: self.out.len(), end: 0 });
            self.out.push(b':');
            return;
        }
        self.before_value();
        normalise_string(token, &mut self.out);
    }

    fn end(&mut self, bracket: u8) {
        if let Some(Frame { start, members: Some(mut members), .. }) = self.open.pop() {
            if let Some(last) = members.last_mut() {
                last.end = self.out.len();
            }
            let out = &self.out;
            let key = |member: &Member| out.get(member.start..member.key_end).unwrap_or_default();
            if !members.is_sorted_by_key(key) {
                members.sort_by(|a, b| key(a).cmp(key(b)));
                let mut sorted = Vec::with_capacity(out.len() - start);
                for member in &members {
                    sorted.extend_from_slice(if sorted.is_empty() { b"" } else { b"," });
                    sorted.extend_from_slice(out.get(member.start..member.end).unwrap_or_default());
                }
                self.out.truncate(start);
                self.out.extend_from_slice(&sorted);
            }
        }
        self.out.push(bracket);
    }
}

/// Writes a quoted string with the fewest escapes; half a surrogate pair keeps its escape.
fn normalise_string(quoted: &[u8], out: &mut Vec<u8>) {
    let text = quoted.get(1..quoted.len().max(2) - 1).unwrap_or_default();
    out.push(b'"');
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte != b'\\' {
            let rest = text.get(at..).unwrap_or_default();
            let (run, _) = rest.split_at(memchr::memchr(b'\\', rest).unwrap_or(rest.len()));
            out.extend_from_slice(run);
            at += run.len();
            continue;
        }
        let escaped = text.get(at + 1).copied().unwrap_or(b'\\');
        at += 2;
        match escaped {
            b'u' => at += unit(text, at, out),
            letter => plain(escaped_byte(letter), out),
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

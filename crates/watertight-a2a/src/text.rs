//! Peers' text made safe to quote, and strings written as JSON.

use crate::json::plain_run;

/// At most `max` bytes of a peer's body, fit for a log line or an error message: lossy UTF-8, line breaks and tabs as
/// spaces, other control, format and direction-changing characters as U+FFFD.
pub fn excerpt(bytes: &[u8], max: usize) -> String {
    let head = bytes.get(..max.saturating_mul(4).min(bytes.len())).unwrap_or_default();
    let mut out = String::new();
    for letter in String::from_utf8_lossy(head).chars() {
        let safe = safe_letter(letter);
        if out.len() + safe.len_utf8() > max {
            break;
        }
        out.push(safe);
    }
    out
}

/// [`excerpt`] of text.
pub fn clean(text: &str, max: usize) -> String {
    excerpt(text.as_bytes(), max)
}

fn safe_letter(letter: char) -> char {
    match letter {
        '\n' | '\r' | '\t' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => '\u{fffd}',
        other if other.is_control() => '\u{fffd}',
        other => other,
    }
}

/// Appends `text` as a JSON string.
pub fn quote(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut left = text.as_bytes();
    loop {
        let (plain, rest) = left.split_at(plain_run(left));
        out.extend_from_slice(plain);
        let Some((&byte, rest)) = rest.split_first() else { break };
        left = rest;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Writes one JSON object, member by member.
#[derive(Debug)]
pub(crate) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> ObjectWriter<'a> {
    pub(crate) fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        ObjectWriter { out, first: true }
    }

    /// Writes the name, and gives the place to write the value to.
    pub(crate) fn member(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        quote(name, self.out);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn raw(&mut self, name: &str, value: &[u8]) {
        self.member(name).extend_from_slice(value);
    }

    pub(crate) fn string(&mut self, name: &str, value: &str) {
        quote(value, self.member(name));
    }

    pub(crate) fn close(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_bounded_and_carries_no_control_characters() {
        assert_eq!(excerpt(b"<html>\r\n<h1>Bad\x1b[31m", 200), "<html>  <h1>Bad\u{fffd}[31m");
        assert_eq!(excerpt("a\u{202e}b\u{feff}".as_bytes(), 200), "a\u{fffd}b\u{fffd}");
        assert_eq!(excerpt("ééé".as_bytes(), 5), "éé");
        assert_eq!(excerpt(&[0xff; 1000], 200).len(), 198);
        assert_eq!(excerpt(b"", 200), "");
    }

    #[test]
    fn quoting_reads_back() {
        let text = "q\" b\\ \n\r\t\u{1} é 👩‍🚀";
        let mut out = Vec::new();
        quote(text, &mut out);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}

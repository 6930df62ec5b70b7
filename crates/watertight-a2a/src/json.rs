//! JSON as bytes that have been checked once, and views into them.
//!
//! [`check`] is the only gate: iterative, linear, bounded in depth and size, strict about UTF-8. Behind it,
//! [`Value`] walks the text without building a tree. A walk over text that was never checked gives nonsense, never a
//! panic, so [`Json::assume`] is a promise about meaning, not about safety.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;

mod check;
mod scan;

pub use check::check;
pub(crate) use scan::{has_backslash, plain_run, skip_scalar, skip_string};
use scan::{skip_space, skip_value};

/// How deep and how long a JSON text may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open brackets at any point; a bare scalar has depth 0.
    pub max_depth: usize,
    /// Length of the whole text.
    pub max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_depth: 64, max_bytes: 64 << 20 }
    }
}

/// Why a text is not acceptable JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// Longer than [`Limits::max_bytes`]; nothing was read.
    TooLarge {
        /// The limit that was exceeded, in bytes.
        limit: usize,
    },
    /// Nested deeper than [`Limits::max_depth`].
    TooDeep {
        /// The limit that was exceeded, in open brackets.
        limit: usize,
    },
    /// Not UTF-8 from this byte on.
    NotUtf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// The text ends before the value does; empty text too.
    Cut,
    /// Not JSON at this byte.
    Syntax {
        /// Offset of the offending byte.
        at: usize,
    },
}

/// A body without its byte order mark, which some clients write and which means nothing in UTF-8.
pub fn without_mark(body: Bytes) -> Bytes {
    match body.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => body.slice_ref(rest),
        None => body,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLarge { limit } => write!(f, "JSON longer than {limit} bytes"),
            Error::TooDeep { limit } => write!(f, "JSON nested deeper than {limit} levels"),
            Error::NotUtf8 { at } => write!(f, "not UTF-8 at byte {at}"),
            Error::Cut => write!(f, "JSON ends too early"),
            Error::Syntax { at } => write!(f, "not JSON at byte {at}"),
        }
    }
}

impl std::error::Error for Error {}

/// What a JSON value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are JSON's own")]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool,
    Null,
}

/// A JSON value inside a checked text.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    doc: &'a [u8],
    start: usize,
    end: usize,
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.raw()))
    }
}

impl<'a> Value<'a> {
    /// The value that `doc` holds.
    pub(crate) fn of(doc: &'a [u8]) -> Self {
        let start = skip_space(doc, 0);
        Value { doc, start, end: skip_value(doc, start) }
    }

    /// What it is, by its first byte.
    pub fn kind(&self) -> Kind {
        match self.doc.get(self.start) {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Its text, without surrounding whitespace.
    pub fn raw(&self) -> &'a [u8] {
        self.doc.get(self.start..self.end).unwrap_or_default()
    }

    /// Where it stands in the text it was taken from.
    pub fn span(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.kind() == Kind::Object
    }

    /// The string, unescaped; a lone surrogate becomes U+FFFD. `None` if it is no string.
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        self.decoded().map(|(text, _)| text)
    }

    /// The string, unescaped; `None` if it is no string or no Unicode text (a lone surrogate).
    pub fn as_exact_str(&self) -> Option<Cow<'a, str>> {
        self.decoded().and_then(|(text, exact)| exact.then_some(text))
    }

    fn decoded(&self) -> Option<(Cow<'a, str>, bool)> {
        if self.kind() != Kind::String || self.end < self.start + 2 {
            return None;
        }
        Some(unescape(self.doc.get(self.start + 1..self.end - 1)?))
    }

    /// What is between the quotes, as it is written.
    fn inside(&self) -> &'a [u8] {
        let inside = if self.end < self.start + 2 { None } else { self.doc.get(self.start + 1..self.end - 1) };
        inside.unwrap_or_default()
    }

    /// The string's bytes, unescaped: for comparing, without looking whether they are text.
    fn letters(&self) -> Cow<'a, [u8]> {
        let inside = self.inside();
        if !has_backslash(inside) {
            return Cow::Borrowed(inside);
        }
        match unescape(inside).0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.raw() {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The number as a finite double, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        if self.kind() != Kind::Number {
            return None;
        }
        let number: f64 = std::str::from_utf8(self.raw()).ok()?.parse().ok()?;
        number.is_finite().then_some(number)
    }

    /// The number, if it has no fractional part and fits; `5.0` counts, since protobuf peers write it.
    pub fn as_i64(&self) -> Option<i64> {
        if self.kind() != Kind::Number {
            return None;
        }
        if let Ok(exact) = std::str::from_utf8(self.raw()).ok()?.parse::<i64>() {
            return Some(exact);
        }
        let number = self.as_f64()?;
        (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
    }

    /// Members in order, if it is an object; none otherwise.
    pub fn members(&self) -> Members<'a> {
        let at = if self.is_object() { self.start + 1 } else { self.end };
        Members { doc: self.doc, at, end: self.end }
    }

    /// Elements in order, if it is an array; none otherwise.
    pub fn items(&self) -> Items<'a> {
        let at = if self.kind() == Kind::Array { self.start + 1 } else { self.end };
        Items { doc: self.doc, at, end: self.end }
    }

    /// The first member of that name.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.members().find(|member| member.is(name)).map(|member| member.value)
    }
}

/// One member of an object.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// The name, quoted and escaped as it stands.
    pub key: Value<'a>,
    /// The value.
    pub value: Value<'a>,
}

impl Member<'_> {
    /// Whether the name, unescaped, is `name` or its snake_case form.
    pub fn is(&self, name: &str) -> bool {
        // Neither an escape nor an underscore makes a name shorter.
        let inside = self.key.inside();
        inside == name.as_bytes() || inside.len() > name.len() && names(&self.key.letters(), name)
    }
}

/// Whether a key is the name, or its snake_case form.
pub(crate) fn names(key: &[u8], name: &str) -> bool {
    key == name.as_bytes() || key.len() > name.len() && is_snake_of(key, name)
}

fn is_snake_of(key: &[u8], name: &str) -> bool {
    let mut key = key.iter().copied();
    for byte in name.bytes() {
        if byte.is_ascii_uppercase() && key.next() != Some(b'_') {
            return false;
        }
        if key.next() != Some(byte.to_ascii_lowercase()) {
            return false;
        }
    }
    key.next().is_none()
}

impl<'a> Items<'a> {
    /// The elements in a text that is the inside of an array.
    pub(crate) fn inside(doc: &'a [u8]) -> Items<'a> {
        Items { doc, at: 0, end: doc.len() }
    }
}

/// Iterator over an object's members.
#[derive(Debug, Clone)]
pub struct Members<'a> {
    doc: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let start = skip_to(self.doc, self.at, self.end)?;
        let key = Value { doc: self.doc, start, end: skip_value(self.doc, start) };
        let start = skip_to(self.doc, key.end, self.end)?;
        let value = Value { doc: self.doc, start, end: skip_value(self.doc, start) };
        self.at = value.end;
        Some(Member { key, value })
    }
}

/// Iterator over an array's elements.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    doc: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let start = skip_to(self.doc, self.at, self.end)?;
        let value = Value { doc: self.doc, start, end: skip_value(self.doc, start) };
        self.at = value.end;
        Some(value)
    }
}

/// The next value's first byte, past separators; `None` at the closing bracket.
fn skip_to(doc: &[u8], mut at: usize, end: usize) -> Option<usize> {
    while at < end {
        match doc.get(at)? {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => at += 1,
            b'}' | b']' => return None,
            _ => return Some(at),
        }
    }
    None
}

fn unescape(text: &[u8]) -> (Cow<'_, str>, bool) {
    if !has_backslash(text) {
        // A checked text is UTF-8; saying so is quicker than mending it would be.
        return (std::str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed), true);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut exact = true;
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
            b'u' => {
                let (letter, used) = unescape_unit(text, at);
                at += used;
                exact &= letter.is_some();
                out.extend_from_slice(letter.unwrap_or('\u{fffd}').encode_utf8(&mut [0; 4]).as_bytes());
            }
            letter => out.push(escaped_byte(letter)),
        }
    }
    match String::from_utf8(out) {
        Ok(text) => (Cow::Owned(text), exact),
        Err(bad) => (Cow::Owned(String::from_utf8_lossy(bad.as_bytes()).into_owned()), false),
    }
}

/// The byte that a backslash and this letter stand for.
pub(crate) const fn escaped_byte(letter: u8) -> u8 {
    match letter {
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        other => other,
    }
}

/// The character of the escape whose hex digits begin at `at`, and how many bytes it took; `None` for half a pair.
fn unescape_unit(text: &[u8], at: usize) -> (Option<char>, usize) {
    let Some(high) = hex4(text, at) else { return (None, 4.min(text.len().saturating_sub(at))) };
    if let Some(letter) = char::from_u32(high) {
        return (Some(letter), 4);
    }
    if (0xd800..0xdc00).contains(&high)
        && text.get(at + 4..at + 6) == Some(b"\\u")
        && let Some(low @ 0xdc00..0xe000) = hex4(text, at + 6)
    {
        return (char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 10);
    }
    (None, 4)
}

pub(crate) fn hex4(text: &[u8], at: usize) -> Option<u32> {
    let digits = std::str::from_utf8(text.get(at..at + 4)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

/// A checked JSON text, shared and immutable, without surrounding whitespace.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Bytes);

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::text::excerpt(&self.0, 400))
    }
}

impl Json {
    /// Checks and keeps a text. Costs no copy.
    pub fn parse(bytes: impl Into<Bytes>, limits: &Limits) -> Result<Json, Error> {
        let bytes = bytes.into();
        check(&bytes, limits)?;
        Ok(Json::assume(bytes))
    }

    /// Takes a text that this crate has checked or written before, such as one read back from a store.
    pub fn assume(bytes: impl Into<Bytes>) -> Json {
        let bytes = bytes.into();
        // Nothing but whitespace can stand around a text that was checked.
        let inside = bytes.trim_ascii();
        if inside.len() == bytes.len() { Json(bytes) } else { Json(bytes.slice_ref(inside)) }
    }

    /// A JSON string holding `text`.
    pub fn string(text: &str) -> Json {
        let mut out = Vec::with_capacity(text.len() + 2);
        crate::text::quote(text, &mut out);
        Json(out.into())
    }

    /// The value to look into.
    pub fn value(&self) -> Value<'_> {
        Value { doc: &self.0, start: 0, end: self.0.len() }
    }

    /// The value that is known to stand there.
    pub(crate) fn at(&self, span: Range<usize>) -> Value<'_> {
        Value { doc: &self.0, start: span.start, end: span.end }
    }

    /// The part of this text that `value`, taken from it, stands for. Shares the memory.
    pub fn part(&self, value: Value<'_>) -> Json {
        Json(self.0.slice(value.start.min(self.0.len())..value.end.min(self.0.len())))
    }

    /// The same text in memory of its own, so that a small part does not keep a large body alive.
    pub fn detached(&self) -> Json {
        Json(Bytes::copy_from_slice(&self.0))
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

/// The named members of an object, in the order of `names`, snake_case forms included. `null` counts as absent.
/// A name that occurs twice is an error: two readers could disagree on which one holds.
pub(crate) fn fields<'a, const N: usize>(
    object: Value<'a>,
    names: [&'static str; N],
) -> Result<[Option<Value<'a>>; N], &'static str> {
    let mut found: [Option<Value<'a>>; N] = [None; N];
    for member in object.members() {
        let key = member.key.letters();
        for (slot, name) in found.iter_mut().zip(names) {
            if self::names(&key, name) {
                if slot.is_some() {
                    return Err(name);
                }
                *slot = Some(member.value);
            }
        }
    }
    Ok(found.map(|value| value.filter(|value| !value.is_null())))
}

#[cfg(test)]
pub(crate) mod tests;

//! One part, in every spelling that agents use: 1.0 (`text`, `raw`, `url`, `data` by presence), 0.3 (`kind` or `type`, files
//! as `file: {bytes, uri}`), and either below `root`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::json::{Kind, Value};

/// How many `root`s deep a part is looked for.
const MAX_ROOTS: usize = 4;

/// What was said: groups (an artifact, a message) of pieces, in order.
#[derive(Debug, Clone, Default)]
pub struct Content<'a> {
    groups: Vec<Vec<Piece<'a>>>,
    cut: bool,
}

/// A piece of it.
#[derive(Debug, Clone)]
pub enum Piece<'a> {
    /// Text; neighbours are joined.
    Text(Cow<'a, str>),
    /// Any JSON value.
    Data(Value<'a>),
    /// A file.
    File(Box<File<'a>>),
}

/// A file, here or elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File<'a> {
    /// Its name, if it has one.
    pub name: Option<Cow<'a, str>>,
    /// What it is, if that is said.
    pub media_type: Option<Cow<'a, str>>,
    /// Where it is.
    pub place: Place<'a>,
}

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place<'a> {
    /// In the message, in base64.
    Here(Cow<'a, str>),
    /// At this URL.
    At(Cow<'a, str>),
}

impl<'a> Content<'a> {
    /// One text.
    pub(super) fn of_text(text: Cow<'a, str>) -> Self {
        let mut content = Content::default();
        content.push_group([Piece::Text(text)]);
        content
    }

    /// A text that may be the beginning of a longer one.
    pub(super) fn of_preview(text: Cow<'a, str>) -> Self {
        Content { cut: true, ..Content::of_text(text) }
    }

    /// The parts of one message or artifact.
    pub(crate) fn of_parts(parts: impl Iterator<Item = Value<'a>>) -> Self {
        let mut content = Content::default();
        content.push_parts(parts);
        content
    }

    pub(crate) fn push_parts(&mut self, parts: impl Iterator<Item = Value<'a>>) {
        self.push_group(parts.flat_map(pieces));
    }

    pub(super) fn push_group(&mut self, pieces: impl IntoIterator<Item = Piece<'a>>) {
        let mut group: Vec<Piece<'a>> = Vec::new();
        for piece in pieces {
            match (group.last_mut(), piece) {
                (_, Piece::Text(text)) if text.is_empty() => {}
                (Some(Piece::Text(before)), Piece::Text(text)) => before.to_mut().push_str(&text),
                (_, piece) => group.push(piece),
            }
        }
        if !group.is_empty() {
            self.groups.push(group);
        }
    }

    pub(super) fn append(&mut self, other: Content<'a>) {
        self.groups.extend(other.groups);
        self.cut |= other.cut;
    }

    /// Nothing was said at all; blank text is something.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn has_text(&self) -> bool {
        self.pieces().any(|piece| match piece {
            Piece::Text(_) => true,
            Piece::Data(data) => enveloped(*data).is_some(),
            Piece::File(_) => false,
        })
    }

    /// It is only the beginning of what was said.
    pub fn is_preview(&self) -> bool {
        self.cut
    }

    /// All pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece<'a>> {
        self.groups.iter().flatten()
    }

    /// The text of it, byte for byte: pieces of a group are joined by nothing, groups by a line break, and the same text comes
    /// once. Where all that there is of text stands in a tool's envelope, that.
    pub fn text(&self) -> String {
        let text = self.written(|piece, out| match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Data(_) | Piece::File(_) => {}
        });
        if !text.is_empty() {
            return text;
        }
        self.data().find_map(enveloped).map(Cow::into_owned).unwrap_or_default()
    }

    /// The same for people: data as JSON, files by their names.
    pub fn shown(&self) -> String {
        self.written(|piece, out| match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Data(data) => out.push_str(&String::from_utf8_lossy(data.raw())),
            Piece::File(file) => match &file.place {
                Place::At(url) => out.push_str(url),
                Place::Here(_) => {
                    out.push_str(&format!("[file {}]", file.name.as_deref().unwrap_or("without a name")));
                }
            },
        })
    }

    /// The data in it.
    pub fn data(&self) -> impl Iterator<Item = Value<'a>> {
        self.pieces().filter_map(|piece| match piece {
            Piece::Data(value) => Some(*value),
            Piece::Text(_) | Piece::File(_) => None,
        })
    }

    /// The files in it.
    pub fn files(&self) -> impl Iterator<Item = &File<'a>> {
        self.pieces().filter_map(|piece| match piece {
            Piece::File(file) => Some(&**file),
            Piece::Text(_) | Piece::Data(_) => None,
        })
    }

    fn written(&self, write: impl Fn(&Piece<'a>, &mut String)) -> String {
        let mut texts: Vec<String> = Vec::new();
        for group in &self.groups {
            let mut text = String::new();
            group.iter().for_each(|piece| write(piece, &mut text));
            if !text.is_empty() {
                texts.push(text);
            }
        }
        if texts.len() < 2 {
            return texts.pop().unwrap_or_default();
        }
        let mut seen = BTreeSet::new();
        let once: Vec<&str> = texts.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
        once.join("\n")
    }
}

impl PartialEq for Piece<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Piece::Text(a), Piece::Text(b)) => a == b,
            (Piece::Data(a), Piece::Data(b)) => a.raw() == b.raw(),
            (Piece::File(a), Piece::File(b)) => a == b,
            (Piece::Text(_) | Piece::Data(_) | Piece::File(_), _) => false,
        }
    }
}

/// The text in a tool's envelope, `{"text": …, "delegation_id": …}`.
fn enveloped(data: Value<'_>) -> Option<Cow<'_, str>> {
    data.get("delegation_id")?.as_str()?;
    data.get("text")?.as_str()
}

/// What a part says. One that has several contents and does not say which it is says all of them.
fn pieces(part: Value<'_>) -> Vec<Piece<'_>> {
    let mut part = part;
    for _ in 0..MAX_ROOTS {
        match part.get("root").filter(Value::is_object) {
            Some(root) => part = root,
            None => break,
        }
    }
    match part.kind() {
        Kind::String => return part.as_str().map(Piece::Text).into_iter().collect(),
        Kind::Object => {}
        Kind::Array | Kind::Number | Kind::Bool | Kind::Null => return Vec::new(),
    }
    let said = part.get("kind").or(part.get("type")).and_then(|kind| kind.as_str());
    let kinds = said.as_deref().filter(|kind| ["text", "file", "data"].contains(kind));
    let is = |kind: &str| kinds.is_none_or(|said| said == kind);
    let text = part.get("text").filter(|_| is("text")).and_then(|text| text.as_str()).map(Piece::Text);
    let file = is("file").then(|| file(part)).flatten().map(|file| Piece::File(Box::new(file)));
    let data = part.get("data").filter(|_| is("data")).map(Piece::Data);
    [text, file, data].into_iter().flatten().collect()
}

/// A file, nested or flat.
fn file(part: Value<'_>) -> Option<File<'_>> {
    let of = part.get("file").filter(Value::is_object).unwrap_or(part);
    let text = |names: [&str; 3]| {
        let all = names.into_iter().flat_map(|name| [of.get(name), part.get(name)]);
        all.flatten().find_map(|value| value.as_str())
    };
    let place = match text(["raw", "bytes", "raw"]) {
        Some(base64) => Place::Here(base64),
        None => Place::At(text(["url", "uri", "url"])?),
    };
    Some(File {
        name: text(["filename", "name", "fileName"]),
        media_type: text(["mediaType", "mimeType", "media_type"]),
        place,
    })
}

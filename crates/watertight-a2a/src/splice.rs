//! Edits of a JSON text that leave every other byte where it is.
//!
//! Edits are collected against the original text and applied in one pass. Setting a member replaces its value in
//! place or adds it at the end of its object; a second member of the same name, or the same name in snake_case, is
//! taken out, so that no reader can find the old value.

use std::ops::Range;

use crate::json::{Json, Value};

/// What to do with a member.
pub(crate) enum Op<'a> {
    Set(&'a str, Vec<u8>),
    /// Like `Set`, but only where the member is there and not null.
    Replace(&'a str, Vec<u8>),
    Remove(&'a str),
}

impl Op<'_> {
    fn name(&self) -> &str {
        match self {
            Op::Set(name, _) | Op::Replace(name, _) | Op::Remove(name) => name,
        }
    }
}

/// Edits waiting to be applied to one text.
#[derive(Default)]
pub(crate) struct Splices {
    cuts: Vec<(Range<usize>, Vec<u8>)>,
}

impl Splices {
    pub(crate) fn put(&mut self, at: Range<usize>, text: Vec<u8>) {
        self.cuts.push((at, text));
    }

    /// Edits members of `object`; nothing if it is none.
    pub(crate) fn object(&mut self, object: Value<'_>, ops: Vec<Op<'_>>) {
        if !object.is_object() || ops.is_empty() {
            return;
        }
        let mut ops: Vec<(Op<'_>, bool)> = ops.into_iter().map(|op| (op, false)).collect();
        // The end of the last member, the end of the last one that stays, and where an unbroken run of
        // removals from the first member on began.
        let (mut last_end, mut kept_end, mut run_start) = (None, None, None);
        for member in object.members() {
            let span = member.key.span().start..member.value.span().end;
            let stays = match ops.iter_mut().find(|(op, _)| member.is(op.name())) {
                None => true,
                Some((Op::Remove(_), _)) | Some((_, true)) => false,
                Some((Op::Set(_, text), done)) => {
                    *done = true;
                    self.put(member.value.span(), std::mem::take(text));
                    true
                }
                Some((Op::Replace(_, text), done)) => {
                    if !member.value.is_null() {
                        *done = true;
                        self.put(member.value.span(), std::mem::take(text));
                    }
                    true
                }
            };
            match (stays, kept_end, run_start, last_end) {
                // The first that stays after a run of removals: the run goes, with its commas.
                (true, None, Some(start), _) => self.put(start..span.start, Vec::new()),
                (true, ..) => {}
                (false, None, None, _) => run_start = Some(span.start),
                (false, None, Some(_), _) => {}
                (false, Some(_), _, Some(previous)) => self.put(previous..span.end, Vec::new()),
                (false, Some(kept), _, None) => self.put(kept..span.end, Vec::new()),
            }
            if stays {
                kept_end = Some(span.end);
            }
            last_end = Some(span.end);
        }
        let mut added = Vec::new();
        for (op, done) in ops {
            if let (Op::Set(name, text), false) = (op, done) {
                if kept_end.is_some() || !added.is_empty() {
                    added.push(b',');
                }
                crate::text::quote(name, &mut added);
                added.push(b':');
                added.extend_from_slice(&text);
            }
        }
        match (kept_end, run_start, last_end) {
            (Some(kept), ..) if !added.is_empty() => self.put(kept..kept, added),
            (Some(_), ..) => {}
            (None, Some(start), Some(end)) => self.put(start..end, added),
            (None, ..) if !added.is_empty() => {
                let inside = object.span().start + 1;
                self.put(inside..inside, added);
            }
            (None, ..) => {}
        }
    }

    /// The edited text; the same memory if nothing was edited.
    pub(crate) fn apply(mut self, doc: &Json) -> Json {
        if self.cuts.is_empty() {
            return doc.clone();
        }
        self.cuts.sort_by_key(|(at, _)| (at.start, at.end));
        let text = doc.as_bytes();
        let grown: usize = self.cuts.iter().map(|(_, new)| new.len()).sum();
        let mut out = Vec::with_capacity(text.len() + grown);
        let mut done = 0;
        for (at, new) in &self.cuts {
            out.extend_from_slice(text.get(done..at.start).unwrap_or_default());
            out.extend_from_slice(new);
            done = done.max(at.end);
        }
        out.extend_from_slice(text.get(done..).unwrap_or_default());
        Json::assume(out)
    }
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    crate::text::quote(text, &mut out);
    out
}

//! How far something reaches in a JSON text. What is passed most is the inside of strings, where only two bytes mean
//! anything once the text has been checked.

use memchr::{memchr, memchr2};

pub(super) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// One past the closing quote of the string that opens at `at`, in a text that was checked.
pub(crate) fn skip_string(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    loop {
        at += letters_run(bytes.get(at..).unwrap_or_default());
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(_) => at += 2,
            None => return bytes.len(),
        }
    }
}

/// How many bytes there are before the first quote or backslash. Keys have a few, texts thousands.
pub(super) fn letters_run(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().take(2).enumerate() {
        if let Some(run) = first_marked(is_quote_or_backslash(u64::from_le_bytes(*word))) {
            return at * 8 + run;
        }
    }
    let passed = words.len().min(2) * 8;
    let rest = bytes.get(passed..).unwrap_or_default();
    passed + memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
}

/// Whether there is an escape in the inside of a string.
pub(crate) fn has_backslash(inside: &[u8]) -> bool {
    match inside.len() {
        0..32 => inside.contains(&b'\\'),
        _ => memchr(b'\\', inside).is_some(),
    }
}

/// Where the first control character is, which may not stand in a string as it is.
pub(super) fn first_control(inside: &[u8]) -> Option<usize> {
    // Without a branch inside, the compiler makes it a few instructions for a whole block.
    let least = inside.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    (least < 0x20).then(|| inside.iter().position(|byte| *byte < 0x20)).flatten()
}

/// How many bytes at the beginning stand for themselves inside a string: no quote, no backslash, no control character.
/// What passes here is keys of a few bytes and texts of thousands: first one word, then whole blocks.
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    if let Some(word) = bytes.first_chunk() {
        if let Some(run) = plain_in_word(*word) {
            return run;
        }
        at = 8;
        // Without a branch inside, the compiler makes it a handful of instructions for the whole block.
        let is_plain = |block: &[u8; 32]| !block.iter().fold(false, |found, byte| found | is_special(*byte));
        while bytes.get(at..).and_then(<[u8]>::first_chunk).is_some_and(is_plain) {
            at += 32;
        }
    }
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        if let Some(run) = plain_in_word(*word) {
            return at + run;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The first special byte of eight, all looked at in one word; `None` if there is none.
fn plain_in_word(word: [u8; 8]) -> Option<usize> {
    let word = u64::from_le_bytes(word);
    first_marked(below(word, 0x20) | is_quote_or_backslash(word))
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Marks bytes below the limit by their top bits. The lowest mark is right; a borrow can only spoil those above it.
fn below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(ONES * limit) & !word & TOPS
}

fn is_quote_or_backslash(word: u64) -> u64 {
    below(word ^ (ONES * u64::from(b'"')), 1) | below(word ^ (ONES * u64::from(b'\\')), 1)
}

fn first_marked(marks: u64) -> Option<usize> {
    (marks != 0).then(|| marks.trailing_zeros() as usize / 8)
}

/// One past the value that begins at `at`.
pub(super) fn skip_value(bytes: &[u8], mut at: usize) -> usize {
    match bytes.get(at) {
        Some(b'"') => skip_string(bytes, at),
        Some(b'{' | b'[') => {
            let mut depth = 0usize;
            while let Some(&byte) = bytes.get(at) {
                match byte {
                    b'"' => {
                        at = skip_string(bytes, at);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return at + 1;
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
            bytes.len()
        }
        _ => skip_scalar(bytes, at),
    }
}

/// One past the number or word that begins at `at`.
pub(crate) fn skip_scalar(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\t' | b'\n' | b'\r') {
            break;
        }
        at += 1;
    }
    at
}

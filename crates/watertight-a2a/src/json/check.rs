//! The one pass that decides whether bytes are JSON within limits. It keeps its own stack, so no nesting can
//! overflow ours.

use super::scan::{first_control, letters_run};
use super::{Error, Limits, skip_space};

/// Checks that `bytes` is one JSON value within `limits`, surrounded by nothing but whitespace.
pub fn check(bytes: &[u8], limits: &Limits) -> Result<(), Error> {
    if bytes.len() > limits.max_bytes {
        return Err(Error::TooLarge { limit: limits.max_bytes });
    }
    if let Err(bad) = std::str::from_utf8(bytes) {
        return Err(if bad.error_len().is_none() { Error::Cut } else { Error::NotUtf8 { at: bad.valid_up_to() } });
    }
    let mut scan = Scan { bytes, at: 0 };
    let mut open: Vec<u8> = Vec::new(); // closing brackets owed, innermost last
    loop {
        scan.space();
        match scan.peek()? {
            bracket @ (b'{' | b'[') => {
                if open.len() >= limits.max_depth {
                    return Err(Error::TooDeep { limit: limits.max_depth });
                }
                scan.at += 1;
                let close = if bracket == b'{' { b'}' } else { b']' };
                scan.space();
                if scan.peek()? == close {
                    scan.at += 1;
                } else {
                    if close == b'}' {
                        scan.key()?;
                    }
                    open.push(close);
                    continue;
                }
            }
            b'"' => scan.string()?,
            b'-' | b'0'..=b'9' => scan.number()?,
            b't' => scan.word(b"true")?,
            b'f' => scan.word(b"false")?,
            b'n' => scan.word(b"null")?,
            _ => return Err(Error::Syntax { at: scan.at }),
        }
        // A value is complete: close what ends here, or find the next value.
        loop {
            scan.space();
            let Some(&close) = open.last() else {
                return if scan.at == bytes.len() { Ok(()) } else { Err(Error::Syntax { at: scan.at }) };
            };
            let byte = scan.peek()?;
            if byte == close {
                scan.at += 1;
                open.pop();
            } else if byte == b',' {
                scan.at += 1;
                if close == b'}' {
                    scan.space();
                    scan.key()?;
                }
                break;
            } else {
                return Err(Error::Syntax { at: scan.at });
            }
        }
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Result<u8, Error> {
        self.bytes.get(self.at).copied().ok_or(Error::Cut)
    }

    fn space(&mut self) {
        self.at = skip_space(self.bytes, self.at);
    }

    fn key(&mut self) -> Result<(), Error> {
        if self.peek()? != b'"' {
            return Err(Error::Syntax { at: self.at });
        }
        self.string()?;
        self.space();
        if self.peek()? != b':' {
            return Err(Error::Syntax { at: self.at });
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), Error> {
        self.at += 1;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let letters = rest.get(..letters_run(rest)).unwrap_or_default();
            if let Some(control) = first_control(letters) {
                return Err(Error::Syntax { at: self.at + control });
            }
            self.at += letters.len();
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at += 1;
                    match self.peek()? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                        b'u' => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek()?.is_ascii_hexdigit() {
                                    return Err(Error::Syntax { at: self.at });
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(Error::Syntax { at: self.at }),
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> Result<(), Error> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Error> {
        if !self.peek()?.is_ascii_digit() {
            return Err(Error::Syntax { at: self.at });
        }
        while matches!(self.bytes.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Error> {
        for &expected in word {
            if self.peek()? != expected {
                return Err(Error::Syntax { at: self.at });
            }
            self.at += 1;
        }
        Ok(())
    }
}

//! Server-sent events, read from bytes as they come and written.
//!
//! The reader follows the WHATWG rules: CR, LF and CRLF end a line, even when a CRLF is split between reads; a BOM may
//! come first. Each byte is looked at once, whatever the size of the reads, and text is never decoded before its line
//! is complete. Lines and events are bounded, each by its own error, after which the reader yields nothing more.

use std::fmt;

use bytes::Bytes;

/// How long a line, and the data of one event, may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one line, its field name included.
    pub max_line: usize,
    /// Bytes of one event's data.
    pub max_event: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_line: 16 << 20, max_event: 16 << 20 }
    }
}

/// A limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// One line is longer than [`Limits::max_line`].
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// One event's data is longer than [`Limits::max_event`].
    EventTooLong {
        /// The limit in bytes.
        limit: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::LineTooLong { limit } => write!(f, "SSE line longer than {limit} bytes"),
            Error::EventTooLong { limit } => write!(f, "SSE event longer than {limit} bytes"),
        }
    }
}

impl std::error::Error for Error {}

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The stream's last event id so far, as it came.
    pub id: Option<String>,
    /// The `event` field, if this event had one.
    pub event: Option<String>,
    /// The data lines, joined by LF. Not yet decoded.
    pub data: Bytes,
}

/// What a stream consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// A comment line, without its colon; a sign of life.
    Comment(Bytes),
    /// A `retry` field, in milliseconds.
    Retry(u64),
}

/// What was left when the stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing.
    Clean,
    /// An event whose blank line never came. The standard drops it; its data may yet be complete JSON.
    Unterminated(Event),
    /// Part of an event without any data.
    Cut,
}

/// Reads a stream.
#[derive(Debug, Default)]
pub struct Reader {
    limits: Limits,
    line: Vec<u8>,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// A line has been completed before, so no BOM can come.
    begun: bool,
    data: Vec<u8>,
    has_data: bool,
    has_fields: bool,
    event: Option<String>,
    id: Option<String>,
    failed: Option<Error>,
    /// Bytes looked at or moved, so that a test can tell linear from quadratic.
    #[cfg(test)]
    work: usize,
}

impl Reader {
    /// A reader at the start of a stream.
    pub fn new(limits: Limits) -> Reader {
        Reader { limits, ..Reader::default() }
    }

    /// Takes the next bytes and appends what they complete. Items before an error are appended too.
    pub fn feed(&mut self, mut chunk: &[u8], out: &mut Vec<Item>) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr) && chunk.first() == Some(&b'\n') {
                chunk = chunk.get(1..).unwrap_or_default();
                continue;
            }
            let end = chunk.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let text = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            self.count(text.len() + 1);
            if self.line.len() + text.len() > self.limits.max_line {
                return self.fail(Error::LineTooLong { limit: self.limits.max_line });
            }
            self.line.extend_from_slice(text);
            let Some(end) = end else { break };
            self.after_cr = chunk.get(end) == Some(&b'\r');
            chunk = chunk.get(end + 1..).unwrap_or_default();
            if let Err(error) = self.end_line(out) {
                return self.fail(error);
            }
        }
        Ok(())
    }

    /// The last event id seen.
    pub fn last_event_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Bytes held for a line or an event that is not complete.
    pub fn pending_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Ends the stream.
    pub fn finish(mut self) -> End {
        if self.failed.is_some() {
            return End::Cut;
        }
        if !self.line.is_empty() && self.end_line(&mut Vec::new()).is_err() {
            return End::Cut;
        }
        match (self.has_data, self.has_fields) {
            (true, _) => End::Unterminated(self.take_event()),
            (false, true) => End::Cut,
            (false, false) => End::Clean,
        }
    }

    fn fail(&mut self, error: Error) -> Result<(), Error> {
        self.failed = Some(error);
        self.line = Vec::new();
        self.data = Vec::new();
        Err(error)
    }

    #[cfg(not(test))]
    fn count(&mut self, _bytes: usize) {}

    #[cfg(test)]
    fn count(&mut self, bytes: usize) {
        self.work += bytes;
    }

    fn end_line(&mut self, out: &mut Vec<Item>) -> Result<(), Error> {
        let mut line = std::mem::take(&mut self.line);
        let begun = std::mem::replace(&mut self.begun, true);
        let text = if begun { line.as_slice() } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) };
        self.count(text.len());
        let result = self.take_line(text, out);
        // Keep a usual line's memory, give a huge line's back.
        if line.capacity() <= 64 << 10 {
            line.clear();
            self.line = line;
        }
        result
    }

    fn take_line(&mut self, line: &[u8], out: &mut Vec<Item>) -> Result<(), Error> {
        if line.is_empty() {
            let has_data = self.has_data;
            let event = self.take_event();
            if has_data {
                out.push(Item::Event(event));
            }
            return Ok(());
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = match colon {
            Some(at) => (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default()),
            None => (line, &b""[..]),
        };
        if name.is_empty() && colon.is_some() {
            out.push(Item::Comment(Bytes::copy_from_slice(value.strip_prefix(b" ").unwrap_or(value))));
            return Ok(());
        }
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let newline = usize::from(self.has_data);
                if self.data.len() + newline + value.len() > self.limits.max_event {
                    return Err(Error::EventTooLong { limit: self.limits.max_event });
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
                self.has_fields = true;
            }
            b"event" => {
                self.event = Some(String::from_utf8_lossy(value).into_owned());
                self.has_fields = true;
            }
            b"id" => {
                if !value.contains(&0) {
                    self.id = Some(String::from_utf8_lossy(value).into_owned());
                }
                self.has_fields = true;
            }
            b"retry" => {
                if let Some(millis) = std::str::from_utf8(value).ok().filter(|text| is_digits(text)) {
                    out.extend(millis.parse().ok().map(Item::Retry));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_event(&mut self) -> Event {
        self.has_data = false;
        self.has_fields = false;
        Event { id: self.id.clone(), event: self.event.take(), data: std::mem::take(&mut self.data).into() }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Writes one event. Line breaks in `data`, of any kind, become LF for the reader; those in `id` and `event` are left out.
pub fn write_event(id: Option<&str>, event: Option<&str>, data: &[u8], out: &mut Vec<u8>) {
    for (name, value) in [("id", id), ("event", event)] {
        if let Some(value) = value {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
            out.push(b'\n');
        }
    }
    write_lines(b"data: ", data, out);
    out.push(b'\n');
}

/// Writes a comment, such as a heartbeat.
pub fn write_comment(text: &str, out: &mut Vec<u8>) {
    write_lines(b": ", text.as_bytes(), out);
    out.push(b'\n');
}

fn write_lines(prefix: &[u8], mut text: &[u8], out: &mut Vec<u8>) {
    out.reserve(prefix.len() + text.len() + 2);
    loop {
        out.extend_from_slice(prefix);
        let Some(end) = text.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            out.extend_from_slice(text);
            out.push(b'\n');
            return;
        };
        out.extend_from_slice(text.get(..end).unwrap_or_default());
        out.push(b'\n');
        let skip = if text.get(end..end + 2) == Some(b"\r\n") { 2 } else { 1 };
        text = text.get(end + skip..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests;

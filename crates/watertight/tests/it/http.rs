//! As much HTTP/1.1 as a test needs on either side, byte for byte under its control: heads, and bodies by length, in chunks or until the end.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

/// A request's or a response's first line and headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// The first value of a header, whatever its case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    pub(crate) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)
    }
}

/// Reads a head; `None` where the peer closed before its first byte.
pub(crate) fn read_head(from: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
    let mut head = Head::default();
    loop {
        let mut raw = Vec::new();
        if from.read_until(b'\n', &mut raw)? == 0 {
            return if head.line.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let line = String::from_utf8_lossy(&raw).trim_end().to_owned();
        if head.line.is_empty() {
            head.line = line;
        } else if line.is_empty() {
            return Ok(Some(head));
        } else if let Some((name, value)) = line.split_once(':') {
            head.headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
}

#[derive(Debug)]
enum Framing {
    Left(usize),
    Chunked,
    UntilClose,
    Done,
}

/// A body, read as it comes. A body that stops before its own end is an error, never a short body.
#[derive(Debug)]
pub(crate) struct Body {
    from: BufReader<TcpStream>,
    framing: Framing,
}

impl Body {
    /// The body behind a head. A request without a length has none; a response without one lasts until the peer closes.
    pub(crate) fn new(from: BufReader<TcpStream>, head: &Head) -> Self {
        let framing = if head.get("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().contains("chunked")) {
            Framing::Chunked
        } else if let Some(n) = head.get("content-length").and_then(|v| v.parse().ok()) {
            Framing::Left(n)
        } else if head.line.starts_with("HTTP/") && !matches!(head.status(), 204 | 304) {
            Framing::UntilClose
        } else {
            Framing::Done
        };
        Self { from, framing }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.from.get_ref()
    }

    /// The next bytes, or `None` at the body's honest end.
    pub(crate) fn some(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.framing {
            Framing::Done | Framing::Left(0) => Ok(None),
            Framing::Left(left) => {
                let bytes = self.fill(left)?.ok_or(io::ErrorKind::UnexpectedEof)?;
                self.framing = Framing::Left(left - bytes.len());
                Ok(Some(bytes))
            }
            Framing::UntilClose => self.fill(usize::MAX),
            Framing::Chunked => {
                let mut line = String::new();
                if self.from.read_line(&mut line)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let size = usize::from_str_radix(line.trim().split(';').next().unwrap_or(""), 16)
                    .map_err(|_| io::Error::other(format!("bad chunk size {line:?}")))?;
                let mut chunk = vec![0; size + 2];
                self.from.read_exact(&mut chunk)?;
                chunk.truncate(size);
                if size == 0 {
                    self.framing = Framing::Done;
                    return Ok(None);
                }
                Ok(Some(chunk))
            }
        }
    }

    /// The whole rest.
    pub(crate) fn all(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(bytes) = self.some()? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }

    /// Gives the connection back for the next message.
    pub(crate) fn into_inner(self) -> BufReader<TcpStream> {
        self.from
    }

    fn fill(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let bytes = self.from.fill_buf()?;
        let n = bytes.len().min(most);
        let bytes = bytes[..n].to_vec();
        self.from.consume(n);
        Ok(if n == 0 { None } else { Some(bytes) })
    }
}

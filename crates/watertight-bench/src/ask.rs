//! One connection, one call at a time, waited for: what is not about load (refusals, lists, readiness).

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::call::{post, whole};
use crate::clock::now;

/// A gateway that says nothing for so long does not work.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Asker {
    addr: SocketAddr,
    stream: TcpStream,
    bytes: Vec<u8>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) took: Duration,
}

impl Asker {
    pub(crate) fn new(addr: SocketAddr) -> Result<Asker, Failure> {
        let stream = TcpStream::connect(addr).map_err(|e| format!("{addr}: {e}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Asker { addr, stream, bytes: vec![0; 64 * 1024] })
    }

    /// Sends these bytes, and waits for the whole answer.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<Answer, Failure> {
        let began = now();
        self.begin(request)?;
        self.finish(began)
    }

    /// Sends these bytes.
    pub(crate) fn begin(&mut self, request: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.write_all(request)?)
    }

    /// Waits for the whole answer to what was sent, and counts from then on.
    pub(crate) fn finish(&mut self, began: Instant) -> Result<Answer, Failure> {
        let mut filled = 0;
        loop {
            if filled == self.bytes.len() {
                self.bytes.resize(filled * 2, 0);
            }
            match self.stream.read(&mut self.bytes[filled..])? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                n => filled += n,
            }
            if let Some(answer) = whole(&self.bytes[..filled])? {
                return Ok(Answer { status: answer.status(), took: began.elapsed(), body: answer.body.to_vec() });
            }
        }
    }

    /// A JSON body to a path.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<Answer, Failure> {
        let request = post(self.addr, path, body);
        self.send(&request)
    }

    /// Sends, and does not wait.
    pub(crate) fn leave(&mut self, path: &str, body: &str) -> Result<(), Failure> {
        let request = post(self.addr, path, body);
        self.begin(&request)
    }
}

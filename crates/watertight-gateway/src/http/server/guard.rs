//! A socket that does not wait for ever: neither for a client that says nothing after it connected, nor for a reader
//! that never reads.
//!
//! Once the HTTP layer is blocked in a write it does not ask a response body for more, so no timer in a body can give
//! up on the reader. Only the socket can.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Enough to tell HTTP/1 from HTTP/2; from then on the HTTP layer has timers of its own.
const PREFACE: usize = 24;

pub(super) struct Guarded<S = TcpStream> {
    io: S,
    /// Runs until the client has said something.
    opening: Option<Pin<Box<Sleep>>>,
    heard: usize,
    stall: Duration,
    /// Made at the first stall, and kept.
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
}

impl<S> Guarded<S> {
    pub(super) fn new(io: S, opening: Duration, stall: Duration) -> Guarded<S> {
        Guarded { io, opening: Some(Box::pin(sleep(opening))), heard: 0, stall, timer: None, stalled: false }
    }

    /// Passes a write's outcome on; a write that has been pending for too long is an error.
    fn watched<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = false;
            self.opening = None;
            return polled;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.stall)));
        if !self.stalled {
            self.stalled = true;
            timer.as_mut().reset(Instant::now() + self.stall);
        }
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader does not read")));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.heard = self.heard.saturating_add(buf.filled().len() - before);
        if self.heard >= PREFACE {
            self.opening = None;
        }
        if let (Poll::Pending, Some(opening)) = (&polled, &mut self.opening)
            && opening.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watched(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        // A flush that has nothing to do says nothing about the reader.
        if polled.is_ready() { polled } else { self.watched(polled, cx) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watched(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.watched(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const STALL: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_never_reads_is_given_up_on() {
        let (near, _far) = duplex(8);
        let mut io = Guarded::new(near, STALL, STALL);
        let begun = Instant::now();
        let e = io.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_not() {
        let (near, mut far) = duplex(8);
        let mut io = Guarded::new(near, STALL, STALL);
        let reader = tokio::spawn(async move {
            let (mut buf, mut all) = ([0; 8], 0);
            while all < 64 {
                sleep(Duration::from_secs(4)).await;
                all += far.read(&mut buf).await.unwrap();
            }
        });
        io.write_all(&[0; 64]).await.unwrap();
        reader.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_given_up_on() {
        let (near, mut far) = duplex(64);
        let mut io = Guarded::new(near, STALL, STALL);
        far.write_all(b"PRI * HTTP").await.unwrap();
        let mut buf = [0; 64];
        assert_eq!(io.read(&mut buf).await.unwrap(), 10);
        assert_eq!(io.read(&mut buf).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

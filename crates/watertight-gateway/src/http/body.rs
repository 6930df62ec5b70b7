//! Bodies in and out: responses that are whole or a stream, requests that are read within their limits.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::sse::Events;
use crate::outbox::Receipt;

/// A response's body.
pub enum Body {
    /// Whole.
    Full(Bytes),
    /// Likewise, to somebody who has an outbox: once it is on its way, it is not kept there any longer.
    Answer(Bytes, Option<Box<Receipt>>),
    /// Events, as long as there are any.
    Events(Box<Events>),
}

impl Body {
    /// With word for the sender that it was written.
    pub(super) fn with(self, receipt: Option<Box<Receipt>>) -> Body {
        match self {
            Body::Full(bytes) if receipt.is_some() => Body::Answer(bytes, receipt),
            other @ (Body::Full(_) | Body::Answer(..) | Body::Events(_)) => other,
        }
    }

    /// No body.
    pub fn empty() -> Body {
        Body::Full(Bytes::new())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Full(bytes) | Body::Answer(bytes, _) => write!(f, "{} bytes", bytes.len()),
            Body::Events(_) => f.write_str("events"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Full(bytes) | Body::Answer(bytes, _) if bytes.is_empty() => Poll::Ready(None),
            Body::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Answer(bytes, receipt) => {
                if let Some(receipt) = receipt.take() {
                    receipt.written();
                }
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            Body::Events(events) => events.poll_bytes(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) | Body::Answer(bytes, _) => bytes.is_empty(),
            Body::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) | Body::Answer(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Body::Events(_) => SizeHint::default(),
        }
    }
}

/// How much is read, and how long it may take.
#[derive(Debug, Clone)]
pub struct Intake {
    limit: usize,
    time: Duration,
    /// What all requests together may hold while they are being read, in units of [`UNIT`].
    room: Arc<Semaphore>,
}

const UNIT: usize = 4 << 10;

/// Why a request's body was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Untaken {
    /// It is longer than the limit.
    TooLarge,
    /// It did not come in time.
    TooSlow,
    /// Too many others are being read.
    NoRoom,
    /// It is compressed, or otherwise not as it is.
    Encoded,
    /// The client broke off.
    Broken,
}

impl Intake {
    /// At most `limit` bytes each within `time`, and `room` bytes over all.
    pub fn new(limit: usize, time: Duration, room: usize) -> Intake {
        Intake {
            limit,
            time,
            room: Arc::new(Semaphore::new(room.max(limit).div_ceil(UNIT).min(Semaphore::MAX_PERMITS))),
        }
    }

    /// The most that one body may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Reads a body. What it held of the common room is free again as soon as it is whole.
    pub async fn read(&self, headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, Untaken> {
        let encoded = headers.get_all(header::CONTENT_ENCODING).iter().any(|value| value.as_bytes() != b"identity");
        if encoded {
            return Err(Untaken::Encoded);
        }
        // Told before it is sent, if the client says the length or waits for a 100.
        if body.size_hint().lower() > self.limit as u64 {
            discard(body);
            return Err(Untaken::TooLarge);
        }
        match timeout(self.time, self.collect(&mut body)).await {
            Ok(Err(Untaken::TooLarge)) => {
                discard(body);
                Err(Untaken::TooLarge)
            }
            Ok(done) => done,
            Err(_) => Err(Untaken::TooSlow),
        }
    }

    async fn collect(&self, body: &mut Incoming) -> Result<Bytes, Untaken> {
        let mut held: Option<OwnedSemaphorePermit> = None;
        let (mut whole, mut first) = (BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Err(Untaken::Broken) };
            let Ok(data) = frame.into_data() else { continue };
            let so_far = first.as_ref().map_or(whole.len(), Bytes::len);
            if so_far + data.len() > self.limit {
                return Err(Untaken::TooLarge);
            }
            self.hold(&mut held, (so_far + data.len()).div_ceil(UNIT))?;
            match (first.take(), whole.is_empty()) {
                // Most bodies come in one piece, and need no copy.
                (None, true) => first = Some(data),
                (None, false) => whole.extend_from_slice(&data),
                (Some(before), _) => {
                    whole.extend_from_slice(&before);
                    whole.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| whole.freeze()))
    }

    fn hold(&self, held: &mut Option<OwnedSemaphorePermit>, units: usize) -> Result<(), Untaken> {
        let more = units - held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(more).map_err(|_| Untaken::NoRoom)?;
        let permit = self.room.clone().try_acquire_many_owned(more).map_err(|_| Untaken::NoRoom)?;
        match held {
            Some(held) => held.merge(permit),
            None => *held = Some(permit),
        }
        Ok(())
    }
}

/// Reads a refused body for a moment: closing with bytes unread would reset the connection, and the refusal with it.
pub(super) fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let read = async {
            let mut left = 64_usize << 20;
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        };
        let _enough = timeout(Duration::from_secs(2), read).await;
    });
}

//! An answer as events, in whatever form it comes: a stream, one JSON body, or a JSON text per line.
//!
//! The form is chosen by the first bytes, and by the Content-Type where they do not say. Every event that is complete is
//! given out, in order, before the end of the stream is. Events and lines are bounded each, and all events together.
//!
//! An event of an unknown kind in a stream is passed over: a later version may have more of them. A stream of nothing else
//! is no answer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use watertight_a2a::event::Event;
use watertight_a2a::json::{self, Limits};
use watertight_a2a::reply::{self, ReplyFault, What};
use watertight_a2a::sse;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use super::ask::{self, Answer};
use super::fault::{BodyStop, Failure};

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    /// The agent said something.
    Event(Box<Event>),
    /// Bytes came, and no event with them.
    Alive,
    /// An event of a kind that this version of A2A does not know.
    Unknown,
    /// The answer is over.
    End(Ending),
}

/// How an answer was over.
#[derive(Debug)]
pub(super) enum Ending {
    /// By a proper end, which says nothing about the task.
    Clean,
    /// HTTP 202 and no A2A reply: taken, and nothing is known.
    Accepted(Failure),
    /// It broke off, went silent, or cannot be read any further.
    Broken(Failure),
    /// The agent said an error, or something that is no A2A.
    Said(Failure),
}

/// Reads an answer.
#[derive(Debug)]
pub(super) struct Events {
    answer: Answer,
    form: Form,
    limits: Limits,
    max_event: usize,
    /// Texts that are complete, and not yet given out.
    ready: VecDeque<Bytes>,
    /// How the body ended, once it has.
    ended: Option<Result<(), BodyStop>>,
    /// Bytes of all events.
    taken: usize,
    given: usize,
    /// The first event of an unknown kind, as the fault that it is if nothing else comes.
    unknown: Option<Failure>,
    now: Time,
}

#[derive(Debug)]
enum Form {
    Unknown(BytesMut),
    Events(Box<sse::Reader>),
    Lines(BytesMut),
    Whole(BytesMut),
    Spent,
}

impl Events {
    pub(super) fn new(answer: Answer, limits: Limits, max_event: usize, now: Time) -> Events {
        let (form, ready) = (Form::Unknown(BytesMut::new()), VecDeque::new());
        Events { answer, form, limits, max_event, ready, ended: None, taken: 0, given: 0, unknown: None, now }
    }

    /// The next event, or sign of life, or the end. `idle`: the longest silence.
    pub(super) async fn next(&mut self, idle: Option<Duration>) -> Next {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return self.read(text);
            }
            if let Some(ended) = self.ended.take() {
                return Next::End(self.ending(ended));
            }
            if self.answer.head.status >= 300 {
                return Next::End(self.refusal().await);
            }
            if self.answer.head.encoding().is_some() {
                return Next::End(Ending::Said(ask::encoded(&self.answer.head)));
            }
            if self.answer.body.announced() > self.limits.max_bytes as u64 {
                self.ended = Some(Err(BodyStop::TooLarge(self.limits.max_bytes)));
                continue;
            }
            match self.answer.body.chunk(idle).await {
                Ok(Some(chunk)) => {
                    if let Err(stop) = self.feed(&chunk) {
                        self.ended = Some(Err(stop));
                    }
                    if self.ready.is_empty() && self.ended.is_none() {
                        return Next::Alive;
                    }
                }
                Ok(None) => {
                    self.finish(true);
                    self.ended = Some(Ok(()));
                }
                Err(stop) => {
                    self.finish(false);
                    self.ended = Some(Err(stop));
                }
            }
        }
    }

    /// An answer with an error status: what it says is read up to a limit, and not as events.
    async fn refusal(&mut self) -> Ending {
        let body = self.answer.explanation().await;
        match self.answer.asked.read(body, self.answer.head.for_reply(), &self.limits) {
            Ok(result) => Ending::Said(Failure::of_event(&What::HttpStatus, result.as_bytes())),
            Err(fault) => Ending::Said(Failure::of_reply(fault, &self.answer.head, self.now)),
        }
    }

    fn feed(&mut self, chunk: &[u8]) -> Result<(), BodyStop> {
        match &mut self.form {
            Form::Spent => {}
            Form::Unknown(start) => {
                start.extend_from_slice(chunk);
                let content_type = self.answer.head.content_type().unwrap_or_default().to_ascii_lowercase();
                let Some(events) = ask::starts_like_events(start) else { return Ok(()) };
                let start = start.split();
                let lines = ["ndjson", "jsonl", "jsonlines"].iter().any(|name| content_type.contains(name));
                self.form = if events || (ask::is_event_stream(&content_type) && !is_json(&start)) {
                    let limits = sse::Limits { max_line: self.max_event, max_event: self.max_event };
                    Form::Events(Box::new(sse::Reader::new(limits)))
                } else if lines {
                    Form::Lines(BytesMut::new())
                } else {
                    Form::Whole(BytesMut::new())
                };
                return self.feed(&start);
            }
            Form::Whole(text) => {
                if text.len() + chunk.len() > self.limits.max_bytes {
                    return Err(BodyStop::TooLarge(self.limits.max_bytes));
                }
                text.extend_from_slice(chunk);
            }
            Form::Lines(text) => {
                // Only what is new can hold the end of a line.
                let mut searched = text.len();
                text.extend_from_slice(chunk);
                let mut lines = Vec::new();
                while let Some(end) = text[searched..].iter().position(|byte| *byte == b'\n') {
                    lines.push(text.split_to(searched + end + 1).freeze());
                    searched = 0;
                }
                let left = text.len();
                lines.into_iter().try_for_each(|line| self.keep(line))?;
                if left > self.max_event {
                    return Err(BodyStop::TooLarge(self.max_event));
                }
            }
            Form::Events(reader) => {
                let mut items = Vec::new();
                let fed = reader.feed(chunk, &mut items);
                for item in items {
                    match item {
                        sse::Item::Event(event) => self.keep(event.data)?,
                        sse::Item::Comment(_) | sse::Item::Retry(_) => {}
                    }
                }
                fed.map_err(|_| BodyStop::TooLarge(self.max_event))?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, text: Bytes) -> Result<(), BodyStop> {
        let content = text.trim_ascii();
        // Some servers end every stream so, whatever it carries.
        if content.is_empty() || content == b"[DONE]" {
            return Ok(());
        }
        if text.len() > self.max_event {
            return Err(BodyStop::TooLarge(self.max_event));
        }
        self.taken = self.taken.saturating_add(text.len());
        if self.taken > self.limits.max_bytes {
            return Err(BodyStop::TooLarge(self.limits.max_bytes));
        }
        self.ready.push_back(text);
        Ok(())
    }

    /// What is left when nothing more comes. `clean`: the body came to its end.
    fn finish(&mut self, clean: bool) {
        let left = match std::mem::replace(&mut self.form, Form::Spent) {
            Form::Spent => return,
            Form::Unknown(text) | Form::Whole(text) => {
                // One body is one reply: only at its end is it known to be whole, and then it is judged as it is.
                if clean {
                    self.ready.push_back(text.freeze());
                }
                return;
            }
            Form::Lines(text) => text.freeze(),
            Form::Events(reader) => match reader.finish() {
                sse::End::Unterminated(event) => event.data,
                sse::End::Clean | sse::End::Cut => return,
            },
        };
        // The blank line may be missing, the text may not.
        if json::check(&left, &self.limits).is_ok() {
            let _ = self.keep(left);
        }
    }

    fn read(&mut self, text: Bytes) -> Next {
        let in_stream = matches!(self.form, Form::Events(_) | Form::Lines(_));
        let is_event = in_stream || self.given > 0 || self.unknown.is_some();
        let head = if is_event { reply::Head::EVENT } else { self.answer.head.for_reply() };
        let result = match self.answer.asked.read(text, head, &self.limits) {
            Ok(result) => result,
            Err(fault) => {
                let wrong = |wrong: What| matches!(&fault, ReplyFault::Malformed(bad) if bad.what == wrong);
                let (nothing, unknown) = (wrong(What::Empty), wrong(What::NoEnvelope));
                let taken = matches!(fault, ReplyFault::AcceptedUnconfirmed { .. });
                let mut failure = Failure::of_reply(fault, &self.answer.head, self.now);
                if is_event && unknown {
                    return self.pass_over(failure);
                }
                if taken || (nothing && self.answer.head.status == 202) {
                    (failure.reason, failure.delivery) = (Reason::OutcomeUnknown, Delivery::Delivered);
                    return Next::End(Ending::Accepted(failure));
                }
                return Next::End(Ending::Said(failure));
            }
        };
        match Event::read(&result) {
            Ok(event) => {
                self.given += 1;
                Next::Event(Box::new(event))
            }
            Err(What::NoEnvelope) if is_event => {
                self.pass_over(Failure::of_event(&What::NoEnvelope, result.as_bytes()))
            }
            Err(what) => Next::End(Ending::Said(Failure::of_event(&what, result.as_bytes()))),
        }
    }

    fn pass_over(&mut self, failure: Failure) -> Next {
        if self.unknown.is_none() {
            let event = failure.detail.excerpt.as_deref().unwrap_or("");
            tracing::info!(event, "events of an unknown kind are passed over; this is the first of its stream");
            self.unknown = Some(failure);
        }
        Next::Unknown
    }

    fn ending(&mut self, ended: Result<(), BodyStop>) -> Ending {
        match ended {
            Ok(()) => match self.unknown.take().filter(|_| self.given == 0) {
                Some(failure) => Ending::Said(failure),
                None => Ending::Clean,
            },
            Err(stop @ (BodyStop::TooLarge(_) | BodyStop::Malformed(_))) => {
                Ending::Said(Failure::of_body(&stop, &self.answer.head))
            }
            Err(stop) => Ending::Broken(Failure::of_body(&stop, &self.answer.head)),
        }
    }
}

fn is_json(start: &[u8]) -> bool {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    matches!(start.first(), Some(b'{' | b'['))
}

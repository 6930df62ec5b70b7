//! One reader's queue of events. Bounded in bytes at once, and in number of events by how long it stays full.
//!
//! The writer never waits. A burst that is larger than the mark passes if the reader is there to take it; a reader that
//! does not read gets what fits, then an end that says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use watertight_engine::record::TaskState;
use watertight_policy::time::Time;

use super::{End, Event, EventId, Item, Limits, TaskView};

/// What an event costs beside its body: a queue of tiny events is bounded too.
const COST_PER_EVENT: usize = 512;

/// The shared half: the task's side puts in, the subscription takes out.
#[derive(Debug)]
pub(super) struct Reader {
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Debug)]
struct Queue {
    limits: Limits,
    items: VecDeque<Item>,
    bytes: usize,
    full_since: Option<Time>,
    end: Option<End>,
    end_given: bool,
    last: EventId,
    state: TaskState,
    /// Something was put in: the reader knows the task, or is told by what stands in the queue.
    opened: bool,
}

/// What became of something put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Put {
    Taken,
    /// It was closed just now, because it stayed full.
    Evicted,
    /// It is over.
    Closed,
}

impl Reader {
    pub(super) fn new(limits: Limits, last: EventId, state: TaskState) -> Arc<Reader> {
        let queue = Queue {
            limits,
            items: VecDeque::new(),
            bytes: 0,
            full_since: None,
            end: None,
            end_given: false,
            last,
            state,
            opened: false,
        };
        Arc::new(Reader { queue: Mutex::new(queue), wake: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing was put in yet.
    pub(super) fn unopened(&self) -> bool {
        !self.lock().opened
    }

    /// The reader knows the task already.
    pub(super) fn resume(&self) {
        self.lock().opened = true;
    }

    pub(super) fn put_snapshot(&self, id: EventId, view: TaskView) {
        let mut queue = self.lock();
        if queue.end.is_none() {
            queue.opened = true;
            queue.last = id;
            queue.state = view.state;
            queue.items.push_back(Item::Snapshot { id, view: Box::new(view) });
            self.wake.notify_one();
        }
    }

    pub(super) fn put(&self, event: &Arc<Event>, state: TaskState, now: Time) -> Put {
        let mut queue = self.lock();
        if queue.end.is_some() {
            return Put::Closed;
        }
        let cost = event.body.len() + COST_PER_EVENT;
        // One event larger than the whole bound is let through when nothing else waits: it was bounded where it came in.
        let over_bytes = queue.bytes > 0 && queue.bytes + cost > queue.limits.max_outbound_bytes;
        let full = queue.items.len() >= queue.limits.max_outbound_events;
        queue.full_since = if full { queue.full_since.or(Some(now)) } else { None };
        let too_long = queue.full_since.is_some_and(|since| now.since(since) >= queue.limits.drain);
        if over_bytes || too_long {
            queue.end = Some(End::Lagged);
            self.wake.notify_one();
            return Put::Evicted;
        }
        queue.opened = true;
        queue.bytes += cost;
        queue.last = event.id;
        queue.state = state;
        queue.items.push_back(Item::Event(event.clone()));
        self.wake.notify_one();
        Put::Taken
    }

    /// Ends it after what stands in the queue. The first end stands.
    pub(super) fn end(&self, end: End) {
        let mut queue = self.lock();
        queue.end.get_or_insert(end);
        self.wake.notify_one();
    }

    /// The next item, if there is one; `None` inside once the end was given.
    pub(super) fn take(&self) -> Option<Option<Item>> {
        let mut queue = self.lock();
        match queue.items.pop_front() {
            Some(item) => {
                if let Item::Event(event) = &item {
                    queue.bytes -= event.body.len() + COST_PER_EVENT;
                }
                if queue.items.len() < queue.limits.max_outbound_events {
                    queue.full_since = None;
                }
                Some(Some(item))
            }
            None if queue.end_given => Some(None),
            None => queue.end.map(|end| {
                queue.end_given = true;
                Some(Item::End(end))
            }),
        }
    }

    pub(super) fn ready(&self) -> bool {
        let queue = self.lock();
        !queue.items.is_empty() || queue.end.is_some()
    }

    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    pub(super) fn load(&self) -> super::Load {
        let queue = self.lock();
        super::Load {
            last: queue.last,
            queued: queue.items.len(),
            limit: queue.limits.max_outbound_events,
            state: queue.state,
        }
    }
}

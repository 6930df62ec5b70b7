//! Threads that serve connections, one runtime each: whatever belongs to a connection (its requests, the attempts that
//! they start, the answers) stays on one core, and wakes nobody on another.
//!
//! A new connection goes to the thread that has the fewest. Assumes that nothing on them waits for a disk: look-ups have
//! threads of their own. What belongs to no connection runs on the runtime that the process was started with.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::worker;

/// Threads that wait for a disk, for each worker.
const BLOCKING: usize = 64;

/// See the module's header. Dropped, they end at once, with all that still runs on them.
pub struct Workers {
    all: Vec<Worker>,
}

struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// A connection's place with a worker, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// So many threads; at least one.
    pub fn start(count: usize) -> io::Result<Workers> {
        let all = (1..=count.max(1)).map(Worker::start).collect::<io::Result<_>>()?;
        Ok(Workers { all })
    }

    /// As many as there are cores to run them.
    pub fn per_core() -> io::Result<Workers> {
        Workers::start(thread::available_parallelism().map_or(1, usize::from))
    }

    /// The one that has the fewest connections has one more now.
    pub(super) fn place(&self) -> Option<(&Handle, Place)> {
        let worker = self.all.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed))?;
        worker.connections.fetch_add(1, Ordering::Relaxed);
        Some((&worker.runtime, Place(worker.connections.clone())))
    }
}

impl Worker {
    fn start(number: usize) -> io::Result<Worker> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
        let (stop, handle) = (CancellationToken::new(), runtime.handle().clone());
        let stopped = stop.clone();
        let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            worker::become_number(number);
            runtime.block_on(stopped.cancelled());
            // What still waits for a disk is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Worker { runtime: handle, connections: Arc::default(), stop, thread: Some(thread) })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.all.iter().for_each(|worker| worker.stop.cancel());
        for thread in self.all.iter_mut().filter_map(|worker| worker.thread.take()) {
            let _ = thread.join();
        }
    }
}

//! SQLite's own log goes into the database on a thread of its own, beside commits, which would wait for it otherwise.
//!
//! Only who writes can begin that log anew, and only when all of it is in the database. So the thread here does nearly
//! all of the work, and the store's thread what came meanwhile. Assumes nothing of the outcome: what cannot be done now
//! is done by a later one, and it is SQLite that knows how far it has come.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::open::open_beside;

const IDLE: u8 = 0;
const AT_WORK: u8 = 1;
const DONE: u8 = 2;

/// See the module's header. Dropped, it waits for the thread's end.
pub(super) struct Checkpointer {
    path: PathBuf,
    state: Arc<AtomicU8>,
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Checkpointer {
    pub(super) fn new(path: PathBuf) -> Checkpointer {
        Checkpointer { path, state: Arc::default(), thread: None }
    }

    /// Asks for one, unless it is being made. `true`: one is done, and what it left is little.
    pub(super) fn advance(&mut self) -> bool {
        if self.state.compare_exchange(DONE, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        if self.state.compare_exchange(IDLE, AT_WORK, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        if self.thread.is_none() {
            self.thread = self.start().ok();
        }
        // Without a thread all of it is left to who asks.
        let asked = self.thread.as_ref().is_some_and(|(asks, _)| asks.try_send(()).is_ok());
        if !asked {
            self.state.store(IDLE, Ordering::Release);
        }
        !asked
    }

    fn start(&self) -> std::io::Result<(SyncSender<()>, JoinHandle<()>)> {
        let (asks, asked) = sync_channel(1);
        let (path, state) = (self.path.clone(), self.state.clone());
        let thread =
            thread::Builder::new().name("store-checkpoint".into()).spawn(move || work(&path, &asked, &state))?;
        Ok((asks, thread))
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        if let Some((asks, thread)) = self.thread.take() {
            drop(asks);
            let _ = thread.join();
        }
    }
}

fn work(path: &std::path::Path, asked: &Receiver<()>, state: &AtomicU8) {
    let connection = open_beside(path).ok();
    while asked.recv().is_ok() {
        if let Some(connection) = &connection {
            checkpoint(connection);
        }
        state.store(DONE, Ordering::Release);
    }
}

/// As far as readers let it; nobody is waited for.
pub(super) fn checkpoint(connection: &Connection) {
    let _later = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()));
}

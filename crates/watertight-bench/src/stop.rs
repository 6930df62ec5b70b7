//! Ctrl-C and SIGTERM: whoever measures looks here, returns, and by that ends the processes that it started.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on signals do not end this process, and are seen by [`asked`].
pub(crate) fn listen() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        ASKED.store(true, Relaxed);
    })?;
    Ok(())
}

pub(crate) fn asked() -> bool {
    ASKED.load(Relaxed)
}

/// An error once somebody wants this to end.
pub(crate) fn check() -> Result<(), Failure> {
    if asked() { Err("interrupted".into()) } else { Ok(()) }
}

//! Where the demo writes: stdout is the result (or an agent's one line), stderr is progress.
//!
//! A reader that has gone away (`watertight demo | head`) is no reason to fail.

use std::io::{self, Write};

/// Writes to stdout and flushes, so that a parent that reads a pipe sees it now.
pub(super) fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    let _reader_gone = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// One line of progress on stderr.
pub(super) fn progress(line: &str) {
    let mut stderr = io::stderr().lock();
    let _reader_gone = writeln!(stderr, "{line}");
}

//! Which of the threads that serve connections this is: what a connection's work leaves behind (a connection to an agent,
//! say) is best found again by the same thread.
//!
//! Only the number is here; the threads are [`crate::http::workers`].

use std::cell::Cell;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// The number of the worker whose thread this is, from 1; 0 on all other threads.
pub(crate) fn number() -> usize {
    NUMBER.get()
}

/// From now on this thread is the worker of that number.
pub(crate) fn become_number(number: usize) {
    NUMBER.set(number);
}

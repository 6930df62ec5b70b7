//! Who steps the cell: whoever brings it something, there and then, and the cell's own thread for the rest.
//!
//! A thread that puts something into the inbox tries to sit down before the cell. If it can, it takes what waits (its own
//! and everybody else's), decides, carries out, and leaves; a call then costs no change of threads. If somebody sits
//! there already, it goes on: whoever leaves looks into the inbox once more afterwards, so nothing is left lying. After a
//! few turns the cell's thread takes over, so that nobody works for the others for long.
//!
//! The thread is there for what nobody brings: timers, what is due at times, a cell that was lost, a process that stood
//! still, the end. For those it takes the driver out of its seat, and nobody else decides anything meanwhile. A panic
//! while somebody steps costs the cell's memory, as it always does, and not whoever happened to sit there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use watertight_engine::cell::Cell;
use watertight_engine::ids::{Attempt, LineId, TaskId};
use watertight_engine::input::{CancelAnswer, Input, Outcome, Progress};
use watertight_engine::outbox;
use watertight_engine::record::Row;
use watertight_policy::time::Time;

use super::inbox::Full;
use super::shared::{Health, Shared};
use super::{Broken, Driver, act};

/// How often somebody looks whether the cell is there, and how long it waits in between.
const LOOKS: usize = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Turns that somebody makes in a row who came with something of its own.
const TURNS: usize = 4;

#[derive(Default)]
pub(crate) struct Seat {
    /// Empty while the cell's thread has it to itself, and when all is over.
    driver: Mutex<Option<Box<Driver>>>,
    /// Until when the cell's thread sleeps, in microseconds; zero while it is awake, and will look by itself.
    sleeps_until: AtomicU64,
    wake: Notify,
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Driver>>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Box<Driver>>>> {
        match self.driver.try_lock() {
            Ok(seat) => Some(seat),
            Err(TryLockError::Poisoned(seat)) => Some(seat.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For drills: it is taken for so long.
    #[cfg(test)]
    pub(crate) fn sit_for(&self, time: std::time::Duration) {
        let _taken = self.lock();
        std::thread::sleep(time);
    }

    /// Lets the cell's thread look at once.
    pub(crate) fn call(&self) {
        self.wake.notify_one();
    }
}

impl Shared {
    // ---- what is brought -------------------------------------------------------------------------------------------

    /// A caller's input.
    pub(crate) fn ask(&self, input: Input) -> Result<(), Full> {
        self.inbox.ask(input)?;
        self.drive();
        Ok(())
    }

    /// An operator's input.
    pub(crate) fn order(&self, input: Input) -> Result<(), Full> {
        self.inbox.order(input)?;
        self.seat.call();
        Ok(())
    }

    pub(crate) fn progressed(&self, task: TaskId, attempt: Attempt, progress: Progress) {
        self.inbox.progressed(task, attempt, progress);
        self.drive();
    }

    pub(crate) fn ended(&self, task: TaskId, attempt: Attempt, outcome: Outcome) {
        self.inbox.ended(task, attempt, outcome);
        self.drive();
    }

    pub(crate) fn cancel_answered(&self, task: TaskId, answer: CancelAnswer) {
        self.inbox.cancel_answered(task, answer);
        self.drive();
    }

    /// An answer with a receipt was written, or not.
    pub(crate) fn told(&self, task: TaskId, turn: u32, written: bool) {
        self.inbox.told(task, turn, written);
        self.drive();
    }

    /// A caller is gone. What it asked for and was not looked at yet is as if it had not asked: `true`.
    pub(crate) fn line_closed(&self, line: LineId) -> bool {
        let unseen = self.inbox.line_closed(line);
        if !unseen {
            self.drive();
        }
        unseen
    }

    pub(crate) fn durable(&self, fence: u64, n: u64, result: Result<(), String>) {
        self.inbox.durable(fence, n, result);
        self.drive();
    }

    /// Reads what only the cell knows, while nobody steps it. Waits for who sits there, so not for a thread that must not
    /// wait. `None`: the cell is being loaded again, or is gone.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&mut Cell) -> T) -> Option<T> {
        self.look_at(|driver| read(&mut driver.cell))
    }

    /// Likewise of the driver, and nothing of it is carried out meanwhile.
    pub(crate) fn look_at<T>(&self, read: impl FnOnce(&mut Driver) -> T) -> Option<T> {
        let mut read = Some(read);
        for _ in 0..LOOKS {
            let mut seat = self.seat.lock();
            let looked = seat.as_deref_mut().and_then(|driver| Some(read.take()?(driver)));
            drop(seat);
            if looked.is_some() || self.is_gone() {
                // Who came meanwhile found the seat taken.
                self.drive();
                return looked;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        None
    }

    // ---- stepping --------------------------------------------------------------------------------------------------

    /// Lets the cell decide about what waits, unless somebody is at it: that one will look again.
    fn drive(&self) {
        for _ in 0..TURNS {
            let Some(mut seat) = self.seat.try_lock() else { return };
            let Some(driver) = seat.as_deref_mut() else { return };
            if !self.step_here(driver) {
                break;
            }
            let goes_on = driver.goes_on();
            drop(seat);
            // Who came while somebody sat here has put its input in before it went: it is seen now.
            if !goes_on && !self.inbox.has_some() {
                return;
            }
        }
        self.seat.call();
    }

    /// One turn, by whoever is here. `false`: only the cell's thread can go on.
    fn step_here(&self, driver: &mut Driver) -> bool {
        if driver.broken.is_some() || driver.stood_still() || self.draining().is_some() {
            return false;
        }
        match catch_unwind(AssertUnwindSafe(|| driver.turn(None))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => driver.broken = Some(why),
            Err(_) => driver.broken = Some(Broken::Panic),
        }
        let soon = driver.broken.is_none() && driver.next_look().as_micros() < self.sleep_end();
        if soon {
            self.seat.call();
        }
        driver.broken.is_none()
    }

    fn sleep_end(&self) -> u64 {
        self.seat.sleeps_until.load(Ordering::Relaxed)
    }

    /// Until there may be something to do that nobody else does.
    async fn rest(&self) {
        let at = {
            let seat = self.seat.lock();
            let at = seat.as_ref().filter(|driver| driver.broken.is_none()).map_or(Time::ZERO, |it| it.next_look());
            // Under the lock: whoever makes a turn after this one sees it.
            self.seat.sleeps_until.store(at.as_micros(), Ordering::Relaxed);
            at
        };
        if at <= self.clock.now() || self.inbox.has_some() {
            self.seat.sleeps_until.store(0, Ordering::Relaxed);
            return tokio::task::yield_now().await;
        }
        tokio::select! {
            () = self.seat.wake.notified() => {}
            () = tokio::time::sleep_until(self.clock.instant(at)) => {}
        }
        self.seat.sleeps_until.store(0, Ordering::Relaxed);
    }

    /// A turn of the cell's thread; the driver itself, if it needs more than that.
    fn step_or_take(&self) -> Option<Box<Driver>> {
        let mut seat = self.seat.lock();
        let done = seat.as_deref_mut().is_some_and(|driver| self.step_here(driver));
        if done { None } else { seat.take() }
    }
}

impl Driver {
    /// Picks up what the store holds, and drives it until the drain is over.
    pub(crate) async fn start(
        shared: Arc<Shared>,
        rows: Vec<Row>,
        outboxes: Vec<outbox::Stored>,
        seed: u64,
        fence: u64,
    ) {
        let mut driver = Box::new(Driver::empty(shared.clone(), seed, fence));
        let tended = shared.clone();
        let tend = async move {
            driver.adopt(rows, outboxes).await;
            tended.set_health(Health::Well);
            tend(&tended, driver).await;
        };
        if AssertUnwindSafe(tend).catch_unwind().await.is_err() {
            act::collapse(&shared);
        }
    }

    /// Alone with it: what was lost is loaded again, what stood still draws breath first.
    async fn attend(&mut self) {
        let mut broken = self.broken.take();
        if broken.is_none() {
            let gap = self.draw_breath().await;
            // Whatever panics here, nobody is left waiting for a driver that is gone.
            broken = catch_unwind(AssertUnwindSafe(|| self.turn(gap))).unwrap_or(Err(Broken::Panic)).err();
        }
        while let Some(why) = broken {
            let loaded = AssertUnwindSafe(self.reload(why)).catch_unwind().await;
            broken = loaded.err().map(|_| Broken::Panic);
        }
    }
}

/// Until the drain is over.
async fn tend(shared: &Arc<Shared>, driver: Box<Driver>) {
    *shared.seat.lock() = Some(driver);
    loop {
        shared.rest().await;
        let Some(mut driver) = shared.step_or_take() else { continue };
        driver.attend().await;
        if let Some(until) = shared.draining()
            && driver.drained(until)
        {
            return driver.finish().await;
        }
        *shared.seat.lock() = Some(driver);
    }
}

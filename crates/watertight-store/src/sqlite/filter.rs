//! What was surely never stored: messageIds, contexts that callers named, and agents' task ids, as bits in memory.
//!
//! Nearly every message is a new one. "Surely new" is always right and needs no disk; "maybe not" costs a look at it,
//! and so does everything until the bits are there. Nothing is ever taken out of them: when they fill up, a thread
//! counts what is still stored and makes new ones from that. Sixteen bits for each entry, twice as many entries as are
//! stored, at most 16 MiB; with more than 8 million entries, more and more of the new ones cost a look.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, params};
use watertight_engine::ids::{AgentId, ContextKey, Key};

use super::log::Entry;
use super::open::open_reader;
use super::overlay::Overlay;
use super::questions;

/// Entries that there is room for, at least and at most.
const ROOM: (usize, usize) = (1 << 17, 1 << 23);
/// A block is eight words, one bit of each for an entry: all of it lies in one line of the processor's cache.
const WORDS: usize = 8;
const BITS_PER_ENTRY: usize = 16;
/// Odd numbers without a pattern, one for each word.
const SALT: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

pub(super) struct Filter {
    path: PathBuf,
    hasher: RandomState,
    bits: RwLock<Pair>,
    overlay: Arc<RwLock<Overlay>>,
    maker: Mutex<Option<JoinHandle<()>>>,
    making: AtomicBool,
    closed: AtomicBool,
}

#[derive(Default)]
struct Pair {
    /// Complete. `None`: nothing is known yet.
    ready: Option<Arc<Bits>>,
    /// Being made. What is stored meanwhile goes into both.
    next: Option<Arc<Bits>>,
    /// How often all was forgotten: what was begun before that is of no use.
    forgotten: u64,
}

impl Filter {
    pub(super) fn new(path: PathBuf, overlay: Arc<RwLock<Overlay>>) -> Arc<Filter> {
        Arc::new(Filter {
            path,
            hasher: RandomState::new(),
            bits: RwLock::default(),
            overlay,
            maker: Mutex::default(),
            making: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    pub(super) fn is_new_key(&self, key: &Key) -> bool {
        self.is_new(self.key(key))
    }

    pub(super) fn is_new_context(&self, key: &ContextKey) -> bool {
        self.is_new(self.context(key))
    }

    pub(super) fn is_new_remote(&self, agent: &AgentId, remote: &str) -> bool {
        self.is_new(self.remote(agent.as_str(), remote))
    }

    /// What is stored with this entry is not new any more. Before anybody is told that it is stored.
    pub(super) fn add(&self, entry: &Entry) {
        let hash = match entry {
            Entry::Row { row, .. } => row.remote_task.as_ref().map(|remote| self.remote(row.agent.as_str(), remote)),
            Entry::Key { key, .. } => Some(self.key(key)),
            Entry::Context { key, .. } => Some(self.context(key)),
            Entry::Delta { .. } | Entry::Gone(_) | Entry::KeysGone(_) => None,
            Entry::Notice(_) | Entry::Taken { .. } => None,
        };
        if let Some(hash) = hash {
            let pair = self.read();
            pair.ready.iter().chain(&pair.next).for_each(|bits| bits.add(hash));
        }
    }

    /// Makes new bits on a thread of its own, if there are none or they are full.
    pub(super) fn refresh(self: &Arc<Filter>) {
        let fine = self.read().ready.as_ref().is_some_and(|bits| !bits.is_full());
        if fine || self.closed.load(Relaxed) || self.making.swap(true, Relaxed) {
            return;
        }
        let inside = self.clone();
        let made = thread::Builder::new().name("store-filter".into()).spawn(move || {
            let begun = inside.read().forgotten;
            let made = inside.make();
            let mut pair = inside.write();
            pair.next = None;
            if let Some(bits) = made.filter(|_| pair.forgotten == begun) {
                pair.ready = Some(bits);
            }
            drop(pair);
            inside.making.store(false, Relaxed);
        });
        match made {
            Ok(thread) => *self.maker.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread),
            // Everything is looked up, or more and more of it: slower, and as right.
            Err(_) => self.making.store(false, Relaxed),
        }
    }

    /// Somebody else has written: nothing is surely new until new bits are made.
    pub(super) fn forget(&self) {
        let mut pair = self.write();
        pair.ready = None;
        pair.forgotten += 1;
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        let thread = self.maker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// `None`: the disk cannot be read, or the store is closed.
    fn make(&self) -> Option<Arc<Bits>> {
        let connection = open_reader(&self.path).ok()?;
        let stored = connection.query_row(questions::ENTRIES, (), |row| row.get::<_, i64>(0)).ok()?;
        let stored = usize::try_from(stored).unwrap_or_default() + self.overlay().tasks() * 3;
        let bits = Arc::new(Bits::new(stored.saturating_mul(2).clamp(ROOM.0, ROOM.1)));
        // From here on what is stored goes into these too. What was before is in the overlay, or went from there to the
        // tables: in this order nothing is missed.
        self.write().next = Some(bits.clone());
        let overlay = self.overlay();
        overlay.keys.keys().for_each(|key| bits.add(self.key(key)));
        overlay.contexts.keys().for_each(|key| bits.add(self.context(key)));
        for row in overlay.rows() {
            row.remote_task.iter().for_each(|remote| bits.add(self.remote(row.agent.as_str(), remote)));
        }
        drop(overlay);
        self.scan(&connection, &bits)?;
        bits.refill(stored);
        Some(bits)
    }

    /// In pieces, so that the log of SQLite is not held up.
    fn scan(&self, connection: &Connection, bits: &Bits) -> Option<()> {
        let text = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, String>(at);
        let mut last = 0;
        while let Some(next) = self.piece(connection, questions::ALL_KEYS, params![last], |row| {
            bits.add(self.hash(0, &text(row, 1)?, &text(row, 2)?, &text(row, 3)?, &text(row, 4)?));
            row.get::<_, i64>(0)
        })? {
            last = next;
        }
        let mut last = (0, String::new());
        while let Some(next) = self.piece(connection, questions::ALL_CONTEXTS, params![last.0, last.1], |row| {
            bits.add(self.hash(1, &text(row, 1)?, &text(row, 2)?, &text(row, 3)?, &text(row, 4)?));
            Ok((row.get::<_, i64>(0)?, text(row, 4)?))
        })? {
            last = next;
        }
        let mut last = (String::new(), Vec::new());
        while let Some(next) = self.piece(connection, questions::ALL_REMOTES, params![last.0, last.1], |row| {
            bits.add(self.remote(&text(row, 2)?, &text(row, 0)?));
            Ok((text(row, 0)?, row.get::<_, Vec<u8>>(1)?))
        })? {
            last = next;
        }
        Some(())
    }

    /// The last row of a piece; `Some(None)` if there was none.
    fn piece<T>(
        &self,
        connection: &Connection,
        sql: &str,
        params: impl rusqlite::Params,
        each: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Option<Option<T>> {
        if self.closed.load(Relaxed) {
            return None;
        }
        let mut statement = connection.prepare_cached(sql).ok()?;
        let rows = statement.query_map(params, each).ok()?;
        rows.last().transpose().ok()
    }

    fn is_new(&self, hash: u64) -> bool {
        self.read().ready.as_ref().is_some_and(|bits| !bits.has(hash))
    }

    fn key(&self, key: &Key) -> u64 {
        self.hash(0, &key.principal.tenant, &key.principal.caller, key.agent.as_str(), &key.message_id)
    }

    fn context(&self, key: &ContextKey) -> u64 {
        self.hash(1, &key.principal.tenant, &key.principal.caller, key.agent.as_str(), &key.context)
    }

    fn remote(&self, agent: &str, remote: &str) -> u64 {
        self.hash(2, "", "", agent, remote)
    }

    fn hash(&self, kind: u8, tenant: &str, caller: &str, agent: &str, name: &str) -> u64 {
        self.hasher.hash_one((kind, tenant, caller, agent, name))
    }

    fn overlay(&self) -> RwLockReadGuard<'_, Overlay> {
        self.overlay.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Pair> {
        self.bits.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Pair> {
        self.bits.write().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Bits {
    words: Vec<AtomicU64>,
    room: usize,
    added: AtomicUsize,
    /// They are full when so many were added.
    full: AtomicUsize,
}

impl Bits {
    fn new(room: usize) -> Bits {
        let words = (room * BITS_PER_ENTRY / 64).next_multiple_of(WORDS);
        let words = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        Bits { words, room, added: AtomicUsize::new(0), full: AtomicUsize::new(room) }
    }

    fn add(&self, hash: u64) {
        self.added.fetch_add(1, Relaxed);
        for (word, bit) in self.places(hash) {
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    fn has(&self, hash: u64) -> bool {
        self.places(hash).all(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    fn is_full(&self) -> bool {
        self.added.load(Relaxed) >= self.full.load(Relaxed)
    }

    /// They hold what is stored. At the greatest size new ones are worth making only when half of it is gone.
    fn refill(&self, stored: usize) {
        self.full.store(self.room.max(stored.saturating_mul(2)), Relaxed);
    }

    fn places(&self, hash: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let blocks = (self.words.len() / WORDS) as u64;
        let block = (((hash >> 32) * blocks) >> 32) as usize * WORDS;
        let low = hash as u32;
        let bit = move |salt: u32| 1 << (low.wrapping_mul(salt) >> 26);
        self.words[block..block + WORDS].iter().zip(SALT).map(move |(word, salt)| (word, bit(salt)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_never_new_and_few_others_are_not() {
        let hasher = RandomState::new();
        let bits = Bits::new(100_000);
        (0..100_000_u64).for_each(|n| bits.add(hasher.hash_one(n)));
        assert!((0..100_000_u64).all(|n| bits.has(hasher.hash_one(n))));
        let wrong = (100_000..200_000_u64).filter(|n| bits.has(hasher.hash_one(n))).count();
        assert!(wrong < 500, "{wrong} of 100000");
        assert!(bits.is_full());
        bits.refill(80_000);
        assert!(!bits.is_full(), "with so much stored, new ones would be as full soon");
    }
}

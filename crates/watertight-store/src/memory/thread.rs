//! A [`Memory`] behind the store's thread. What a transaction writes is gathered first and put in place when it ends.

use std::sync::Arc;

use super::Memory;
use crate::clock;
use crate::error::CommitError;
use crate::follow::{self, Versions};
use crate::queue::{Job, PruneAsk, PruneStep};
use crate::words::{Delta, HookChange, Late, Lease, Write};
use crate::writer::{Disk, Writer};

/// The way to a store in memory.
pub struct MemoryStore {
    pub(crate) writer: Writer,
    pub(crate) memory: Arc<Memory>,
}

impl MemoryStore {
    pub(crate) fn new() -> std::io::Result<(MemoryStore, Lease)> {
        let memory = Arc::new(Memory::default());
        let disk = Hand { memory: memory.clone(), fence: 1, steps: Vec::new(), versions: Versions::new() };
        let writer = Writer::start("store-memory".into(), disk, 1)?;
        Ok((MemoryStore { writer, memory }, Lease { fence: 1, now: clock::now() }))
    }
}

/// The thread's side.
struct Hand {
    memory: Arc<Memory>,
    fence: u64,
    steps: Vec<Step>,
    /// Versions and states of the rows among them.
    versions: Versions,
}

enum Step {
    Write(Write),
    Delta(Delta),
}

impl Disk for Hand {
    type Laid = ();

    fn lay(&mut self, _job: &Job) -> Result<((), u64), CommitError> {
        Ok(((), 0))
    }

    fn begin(&mut self) -> Result<u64, CommitError> {
        Ok(self.fence)
    }

    fn apply(&mut self, writes: Vec<Write>, _laid: ()) -> Result<(), CommitError> {
        let shelf = self.memory.read();
        let stored = |task| {
            let staged = self.versions.get(&task).copied();
            Ok::<_, CommitError>(staged.or_else(|| super::stored(&shelf, task)))
        };
        let after = follow::check(&writes, stored)?;
        drop(shelf);
        self.versions.extend(after);
        self.steps.extend(writes.into_iter().map(Step::Write));
        Ok(())
    }

    fn delta(&mut self, delta: Delta, _laid: ()) -> Result<(), CommitError> {
        self.steps.push(Step::Delta(delta));
        Ok(())
    }

    fn end(&mut self) -> Result<(), CommitError> {
        self.versions.clear();
        let mut shelf = self.memory.write();
        for step in self.steps.drain(..) {
            match step {
                Step::Write(write) => shelf.put(write),
                Step::Delta(delta) => shelf.append(delta.task, delta.seq, delta.body),
            }
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.steps.clear();
        self.versions.clear();
    }

    fn lease(&mut self) -> Result<Lease, CommitError> {
        self.fence += 1;
        Ok(Lease { fence: self.fence, now: clock::now().max(self.memory.read().latest()) })
    }

    fn hook(&mut self, change: HookChange) -> Result<(), CommitError> {
        self.memory.write().change_hook(change);
        Ok(())
    }

    fn late(&mut self, late: Late) -> Result<(), CommitError> {
        self.memory.write().keep_late(late);
        Ok(())
    }

    fn prune(&mut self, ask: &PruneAsk) -> Result<PruneStep, CommitError> {
        Ok(self.memory.write().prune(ask))
    }
}

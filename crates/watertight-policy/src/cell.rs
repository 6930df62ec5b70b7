//! Which cell a tenant lives in: rendezvous hashing, with pins.
//!
//! Every cell draws a number for the tenant and the highest wins. Adding a cell moves only the tenants it wins, about
//! one in `n + 1`, and all of them to the new cell; removing the last one moves only its own. The numbers are part of
//! the stored world: a change of the mixing would look for every tenant's tasks in the wrong cell.
//!
//! Assumes few cells (a choice costs one draw per cell) and that cells are numbered without gaps. Leaves out moving
//! what a tenant already has, and load: a heavy tenant is pinned by hand.

use std::collections::BTreeMap;
use std::fmt;

use crate::rng::{fnv1a, mix};

/// The cells and the tenants pinned to one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cells {
    count: u32,
    pins: BTreeMap<String, u32>,
}

/// A pin to a cell that does not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoSuchCell {
    /// The cell named.
    pub cell: u32,
    /// How many there are.
    pub count: u32,
}

impl fmt::Display for NoSuchCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no cell {}: the {} cells are numbered from 0", self.cell, self.count)
    }
}

impl std::error::Error for NoSuchCell {}

impl Cells {
    /// `count` cells, numbered from zero, without pins. Zero is taken as one.
    pub const fn new(count: u32) -> Self {
        Self { count: if count == 0 { 1 } else { count }, pins: BTreeMap::new() }
    }

    /// How many cells there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Pins a tenant to a cell, against the hash. A later pin replaces an earlier one.
    pub fn pin(&mut self, tenant: &str, cell: u32) -> Result<(), NoSuchCell> {
        if cell >= self.count {
            return Err(NoSuchCell { cell, count: self.count });
        }
        self.pins.insert(tenant.to_owned(), cell);
        Ok(())
    }

    /// Lets the hash decide again. False if the tenant was not pinned.
    pub fn unpin(&mut self, tenant: &str) -> bool {
        self.pins.remove(tenant).is_some()
    }

    /// The tenant's cell: its pin, or else what [`pick`] says.
    pub fn of(&self, tenant: &str) -> u32 {
        self.pins.get(tenant).copied().unwrap_or_else(|| pick(tenant.as_bytes(), self.count))
    }
}

/// The cell, of `count`, that wins the key. Zero for no cells at all.
pub fn pick(key: &[u8], count: u32) -> u32 {
    let hash = fnv1a(key.iter().copied());
    let drawn = |cell: &u32| mix(hash ^ mix(u64::from(*cell) + 1));
    (0..count).max_by_key(drawn).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_cells() {
        let cells: Vec<u32> = ["", "acme", "globex", "initech", "umbrella", "tenant-1", "tenant-2", "Zürich"]
            .into_iter()
            .map(|tenant| pick(tenant.as_bytes(), 8))
            .collect();
        assert_eq!(cells, GOLDEN);
    }

    const GOLDEN: [u32; 8] = [3, 3, 1, 3, 3, 2, 4, 4];

    #[test]
    fn a_new_cell_only_takes() {
        for count in 1..12 {
            let mut moved = 0;
            for tenant in (0..2_000).map(|n| format!("tenant-{n}")) {
                let (before, after) = (pick(tenant.as_bytes(), count), pick(tenant.as_bytes(), count + 1));
                assert!(after == before || after == count, "{tenant} moved from {before} to {after}");
                moved += u32::from(after != before);
            }
            let fair = 2_000 / (count + 1);
            assert!((fair * 7 / 10..fair * 13 / 10).contains(&moved), "{moved} of 2000 moved to cell {count}");
        }
    }

    #[test]
    fn pins_override_and_are_checked() {
        let mut cells = Cells::new(4);
        let hashed = cells.of("acme");
        let other = (hashed + 1) % 4;
        cells.pin("acme", other).unwrap();
        assert_eq!(cells.of("acme"), other);
        assert!(cells.unpin("acme") && !cells.unpin("acme"));
        assert_eq!(cells.of("acme"), hashed);
        assert_eq!(cells.pin("acme", 4), Err(NoSuchCell { cell: 4, count: 4 }));
    }

    #[test]
    fn no_cells_is_one_cell() {
        assert_eq!(Cells::new(0).of("acme"), 0);
        assert_eq!(pick(b"acme", 0), 0);
        assert_eq!(pick(b"acme", 1), 0);
    }
}

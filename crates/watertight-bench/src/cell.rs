//! One cell of the table: a path, a number of connections, some seconds.

use crate::Failure;
use crate::clock::seconds;
use crate::load::Load;
use crate::model::Round;
use crate::route::{self, Kind, Place};

/// Calls are numbered from here on: never 0, which every request begins as.
pub(crate) const FIRST: u64 = 1;

/// Fresh processes for every cell, so that none inherits what another left behind.
pub(crate) fn measure(kind: Kind, place: &Place, conns: usize, warm_up: f64, time: f64) -> Result<Round, Failure> {
    let route = route::open(kind, place)?;
    let mut load = Load::start(route.addr, route.path, conns, FIRST)?;
    load.run(seconds(warm_up))?;
    let before = route.under_test.used();
    let mut tally = load.run(seconds(time))?;
    let after = route.under_test.used();
    if let Some(wrong) = &tally.wrong {
        crate::run::say(&format!("  {} errors, the first: {wrong}", tally.errors));
    }
    if tally.waits.len() == 0 {
        return Err(format!("{}: no call was answered", kind.as_str()).into());
    }
    Ok(Round {
        rate: tally.rate(),
        p50: tally.waits.quantile(0.5),
        p99: tally.waits.quantile(0.99),
        cpu: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3 / tally.waits.len() as f64,
        resident: after.bytes,
        errors: tally.errors,
    })
}

//! What a caller wants for the time in which its message waits for a slot. Unlike a budget, nothing of it is guessed: a
//! value that cannot be meant is refused, with its name and what it may be.

use crate::error::Error;
use crate::json::Value;
use crate::params::join;

/// The member of metadata that carries it.
pub const QUEUE_KEY: &str = "x-queue";

/// The highest priority.
pub const MAX_PRIORITY: u8 = 100;

/// Each member may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueWire {
    /// 0 to [`MAX_PRIORITY`]: more goes first.
    pub priority: Option<u8>,
    /// Seconds that it may wait for its start: at least one. What more than all agents allow is refused by who knows them.
    pub ttl_s: Option<u64>,
}

/// Where a TTL stands, for an error.
pub const TTL_PATH: &str = "x-queue.ttl_s";

pub(super) fn read(metadata: Option<Value<'_>>, path: &str) -> Result<Option<QueueWire>, Error> {
    let mut found = metadata.iter().flat_map(Value::members).filter(|member| member.is(QUEUE_KEY));
    let (first, second) = (found.next(), found.next());
    let path = join(path, QUEUE_KEY);
    if second.is_some() {
        return Err(Error::invalid_params(&path, "occurs twice"));
    }
    let Some(value) = first.map(|member| member.value).filter(|value| !value.is_null()) else { return Ok(None) };
    if !value.is_object() {
        return Err(Error::invalid_params(&path, "must be an object"));
    }
    let mut wire = QueueWire::default();
    for member in value.members().filter(|member| !member.value.is_null()) {
        let wrong = |name: &str, why: &str| Error::invalid_params(&join(&path, name), why);
        // 5.0 is a whole number in JSON; "5" is none.
        let whole = || member.value.as_f64().filter(|number| number.fract() == 0.0);
        if member.is("priority") {
            let number = whole().filter(|number| (0.0..=f64::from(MAX_PRIORITY)).contains(number));
            let priority = number.ok_or_else(|| wrong("priority", "must be a whole number from 0 to 100"))?;
            wire.priority = Some(priority as u8);
        } else if member.is("ttl_s") {
            let seconds = whole().filter(|number| *number >= 1.0);
            wire.ttl_s =
                Some(seconds.ok_or_else(|| wrong("ttl_s", "must be a whole number of seconds, at least 1"))? as u64);
        }
    }
    Ok(Some(wire))
}

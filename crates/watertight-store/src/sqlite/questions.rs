//! The questions that readers ask, as SQL. Each is answered by an index, which a test asks SQLite to confirm.

use super::rows::columns;

pub(super) const LOAD: &str =
    concat!("SELECT ", columns!(), " FROM delegation d JOIN pair p ON p.id = d.pair WHERE d.live = 1 ORDER BY d.task");

pub(super) const TASK: &str =
    concat!("SELECT ", columns!(), " FROM delegation d JOIN pair p ON p.id = d.pair WHERE d.task = ?1");

pub(super) const ROW: &str =
    concat!("SELECT ", columns!(), " FROM delegation d JOIN pair p ON p.id = d.pair WHERE d.id = ?1");

pub(super) const KEY: &str = "SELECT k.fingerprint, k.task, k.turn FROM pair p \
    JOIN dedupe k ON k.pair = p.id AND k.message_id = ?4 WHERE p.tenant = ?1 AND p.caller = ?2 AND p.agent = ?3";

pub(super) const CONTEXT: &str = "SELECT c.remote FROM pair p JOIN context c ON c.pair = p.id AND c.context = ?4 \
    WHERE p.tenant = ?1 AND p.caller = ?2 AND p.agent = ?3";

/// Few rows, if it is not one: an agent does not give the same id twice.
pub(super) const REMOTE: &str = "SELECT d.task FROM delegation d INDEXED BY delegation_remote \
    JOIN pair p ON p.id = d.pair WHERE d.remote_task = ?1 AND p.agent = ?2 ORDER BY d.task";

pub(super) const CHILDREN: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM delegation d INDEXED BY delegation_parent JOIN pair p ON p.id = d.pair WHERE d.parent = ?1 \
      ORDER BY d.task LIMIT ?2"
);

/// What is over, in the order in which it ended: of tenant ?1, behind ?2 and ?3, before ?4.
pub(super) const OVER: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM delegation d INDEXED BY delegation_over JOIN pair p ON p.id = d.pair WHERE d.state IN (4, 5, 6, 7) \
      AND (d.changed, d.task) > (?2, ?3) AND d.changed < ?4 AND p.tenant = ?1 ORDER BY d.changed, d.task"
);

pub(super) const BODIES: &str = "SELECT first, pieces, dialect, size FROM body \
    WHERE task = ?1 AND kind = ?2 AND no BETWEEN ?3 AND ?4 ORDER BY no";

pub(super) const PIECES: &str = "SELECT bytes FROM payload WHERE id >= ?1 AND id < ?2 ORDER BY id";

pub(super) const CALLERS: &str = "SELECT DISTINCT caller FROM pair WHERE tenant = ?1 ORDER BY caller LIMIT ?2";

pub(super) const PAIRS: &str = "SELECT id FROM pair WHERE tenant = ?1 AND caller = ?2 AND (?3 IS NULL OR agent = ?3)";

/// All filters of a list but the place in it: ?1 pair, ?2 context, ?3 earliest change, ?4 bits of states.
macro_rules! filtered {
    ($index:literal, $context:literal) => {
        concat!(
            " FROM delegation d INDEXED BY ",
            $index,
            " JOIN pair p ON p.id = d.pair WHERE d.pair = ?1 AND ",
            $context,
            " AND d.changed >= ?3 AND (?4 >> d.state) & 1 = 1"
        )
    };
}

/// And the place: behind ?5 and ?6, as many as are taken.
macro_rules! page {
    ($index:literal, $context:literal) => {
        concat!(
            "SELECT d.changed, d.task, d.id",
            filtered!($index, $context),
            " AND (d.changed, d.task) < (?5, ?6) ORDER BY d.changed DESC, d.task DESC"
        )
    };
}

pub(super) const PAGE: &str = page!("delegation_listed", "?2 IS NULL");
pub(super) const COUNT: &str = concat!("SELECT count(*)", filtered!("delegation_listed", "?2 IS NULL"));

/// A context holds few: they are found by it and sorted then.
pub(super) const PAGE_OF_CONTEXT: &str = page!("delegation_context", "d.context = ?2");
pub(super) const COUNT_OF_CONTEXT: &str = concat!("SELECT count(*)", filtered!("delegation_context", "d.context = ?2"));

/// How many messageIds, contexts and agents' task ids are stored.
pub(super) const ENTRIES: &str = "SELECT (SELECT count(*) FROM dedupe) + (SELECT count(*) FROM context) \
    + (SELECT count(*) FROM delegation INDEXED BY delegation_remote WHERE remote_task IS NOT NULL)";

/// All of them, piece by piece.
pub(super) const ALL_KEYS: &str = "SELECT k.id, p.tenant, p.caller, p.agent, k.message_id FROM dedupe k \
    JOIN pair p ON p.id = k.pair WHERE k.id > ?1 ORDER BY k.id LIMIT 4096";
pub(super) const ALL_CONTEXTS: &str = "SELECT c.pair, p.tenant, p.caller, p.agent, c.context FROM context c \
    JOIN pair p ON p.id = c.pair WHERE (c.pair, c.context) > (?1, ?2) ORDER BY c.pair, c.context LIMIT 4096";
pub(super) const ALL_REMOTES: &str = "SELECT d.remote_task, d.task, p.agent FROM delegation d \
    INDEXED BY delegation_remote JOIN pair p ON p.id = d.pair \
    WHERE d.remote_task IS NOT NULL AND (d.remote_task, d.task) > (?1, ?2) ORDER BY d.remote_task, d.task LIMIT 4096";

pub(super) const OUTBOXES: &str = "SELECT id, tenant, agent, caller, last, lost FROM outbox";

pub(super) const OUTBOX: &str = "SELECT id FROM outbox WHERE tenant = ?1 AND agent = ?2 AND caller = ?3";

pub(super) const WAITING: &str = "SELECT seq, at FROM notice WHERE outbox = ?1 ORDER BY seq";

/// From the first one on; whoever asks stops when it has enough.
pub(super) const NOTICES: &str = "SELECT seq, task, turn, agent, context, state, reason, at FROM notice \
    WHERE outbox = ?1 AND seq > ?2 ORDER BY seq";

pub(super) const LATE: &str = "SELECT at, state, bytes, text FROM late WHERE task = ?1";

pub(super) const HOOKS: &str = "SELECT task, id, sealed, turn, state FROM hook";

/// What SQLite says it uses for each.
#[cfg(test)]
pub(crate) const ANSWERED_BY: [(&str, &str); 23] = [
    (LATE, "SEARCH late USING PRIMARY KEY (task=?)"),
    (LOAD, "SCAN d USING INDEX delegation_live"),
    (TASK, "USING INDEX sqlite_autoindex_delegation_1 (task=?)"),
    (ROW, "USING INTEGER PRIMARY KEY (rowid=?)"),
    (KEY, "(pair=? AND message_id=?)"),
    (CONTEXT, "(pair=? AND context=?)"),
    (REMOTE, "USING INDEX delegation_remote (remote_task=?)"),
    (CHILDREN, "USING INDEX delegation_parent (parent=?)"),
    (OVER, "USING INDEX delegation_over ((changed,task)>(?,?) AND changed<?)"),
    (ALL_KEYS, "USING INTEGER PRIMARY KEY (rowid>?)"),
    (ALL_CONTEXTS, "USING PRIMARY KEY ((pair,context)>(?,?))"),
    (ALL_REMOTES, "USING INDEX delegation_remote ((remote_task,task)>(?,?))"),
    (BODIES, "(task=? AND kind=? AND no>? AND no<?)"),
    (PIECES, "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    (CALLERS, "(tenant=?)"),
    (PAIRS, "(tenant=? AND caller=?)"),
    (PAGE, "USING COVERING INDEX delegation_listed (pair=? AND changed>? AND (changed,task)<(?,?))"),
    (OUTBOX, "(tenant=? AND agent=? AND caller=?)"),
    (WAITING, "USING PRIMARY KEY (outbox=?)"),
    (NOTICES, "USING PRIMARY KEY (outbox=? AND seq>?)"),
    (COUNT, "USING COVERING INDEX delegation_listed (pair=? AND changed>?)"),
    (PAGE_OF_CONTEXT, "USING INDEX delegation_context (pair=? AND context=?)"),
    (COUNT_OF_CONTEXT, "USING INDEX delegation_context (pair=? AND context=?)"),
];

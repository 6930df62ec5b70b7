-- Schema 1. Times are microseconds since the Unix epoch; 9223372036854775807 is never. Ids of tasks and fingerprints are
-- 16 bytes, most significant first; ids of tasks begin with a time, so that new rows go to the end. The numbers of
-- states and the like are those of src/codes.rs.

-- One row.
CREATE TABLE meta (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  cell         INTEGER NOT NULL,
  fence        INTEGER NOT NULL,  -- of the latest lease
  saved        INTEGER NOT NULL,  -- no lease begins before this time
  keys_changed INTEGER NOT NULL,  -- up to this delegation, in the order of delegation_ended, keys are pruned
  keys_id      INTEGER NOT NULL
) STRICT;

-- Who calls whom. Few, and part of every index below: a number keeps those small.
CREATE TABLE pair (
  id     INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  caller TEXT NOT NULL,
  agent  TEXT NOT NULL,
  UNIQUE (tenant, caller, agent)
) STRICT;

CREATE TABLE delegation (
  id             INTEGER PRIMARY KEY,
  task           BLOB NOT NULL UNIQUE,
  version        INTEGER NOT NULL,
  pair           INTEGER NOT NULL,
  context        TEXT NOT NULL,
  remote_task    TEXT,
  remote_context TEXT,
  root           BLOB NOT NULL,
  parent         BLOB,
  depth          INTEGER NOT NULL,
  state          INTEGER NOT NULL,  -- from 4 on: terminal
  reason         TEXT,
  delivery       INTEGER NOT NULL,
  cancel         INTEGER NOT NULL,
  reply          INTEGER NOT NULL,
  late           INTEGER,           -- a state
  live           INTEGER NOT NULL,  -- 1: not terminal, or a cancel is owed
  created        INTEGER NOT NULL,
  changed        INTEGER NOT NULL,
  attempt        INTEGER NOT NULL,
  turn           INTEGER NOT NULL,
  message_id     TEXT NOT NULL,
  fingerprint    BLOB NOT NULL,
  phase          INTEGER NOT NULL,
  waiting_on     TEXT,
  not_before     INTEGER NOT NULL,
  expires        INTEGER NOT NULL,
  deadline       INTEGER NOT NULL,
  hops           INTEGER NOT NULL,  -- of the budget: depth and fan-out that are left
  fanout         INTEGER NOT NULL,
  attempts       INTEGER NOT NULL,
  runs_for       INTEGER            -- a length of time
) STRICT;

CREATE INDEX delegation_live    ON delegation (task) WHERE live = 1;
CREATE INDEX delegation_ended   ON delegation (changed) WHERE live = 0;
CREATE INDEX delegation_listed  ON delegation (pair, changed, task, state);
CREATE INDEX delegation_context ON delegation (pair, context);
CREATE INDEX delegation_remote  ON delegation (remote_task, task) WHERE remote_task IS NOT NULL;

-- What a task's texts are: kind 0, messages, by turn; kind 1, the record, 0; kind 2, what was appended to it since.
CREATE TABLE body (
  task    BLOB NOT NULL,
  kind    INTEGER NOT NULL,
  no      INTEGER NOT NULL,
  dialect INTEGER NOT NULL,
  first   INTEGER NOT NULL,  -- the payload with this id and those that follow it
  pieces  INTEGER NOT NULL,
  size    INTEGER NOT NULL,  -- of all pieces together
  PRIMARY KEY (task, kind, no)
) STRICT, WITHOUT ROWID;

-- The bytes, at most 64 KiB each. Only ever appended and removed.
CREATE TABLE payload (
  id    INTEGER PRIMARY KEY,
  bytes BLOB NOT NULL
) STRICT;

-- Payloads that are written ahead of the body that will refer to them. What is left here after a crash is garbage.
CREATE TABLE pending (
  first  INTEGER PRIMARY KEY,
  pieces INTEGER NOT NULL
) STRICT;

CREATE TABLE dedupe (
  id          INTEGER PRIMARY KEY,
  pair        INTEGER NOT NULL,
  message_id  TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  task        BLOB NOT NULL,
  turn        INTEGER NOT NULL,
  UNIQUE (pair, message_id)
) STRICT;

CREATE INDEX dedupe_task ON dedupe (task);

CREATE TABLE context (
  pair    INTEGER NOT NULL,
  context TEXT NOT NULL,
  remote  TEXT NOT NULL,
  PRIMARY KEY (pair, context)
) STRICT, WITHOUT ROWID;

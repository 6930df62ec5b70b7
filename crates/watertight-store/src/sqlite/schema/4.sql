-- Schema 4. Where word of a delegation's end is left, and what waits there. An outbox is an agent's (then caller is '') or
-- a caller's (then agent is ''); its numbers count up from 1 without a gap, and none is given out twice.
ALTER TABLE delegation ADD COLUMN outbox TEXT;  -- '' for its caller's own, else an agent's name

CREATE TABLE outbox (
  id     INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  agent  TEXT NOT NULL,
  caller TEXT NOT NULL,
  last   INTEGER NOT NULL,  -- the last number that was given out
  lost   INTEGER NOT NULL,  -- how many were dropped unread
  UNIQUE (tenant, agent, caller)
) STRICT;

CREATE TABLE notice (
  outbox  INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  task    BLOB NOT NULL,
  turn    INTEGER NOT NULL,
  agent   TEXT NOT NULL,    -- who worked on it
  context TEXT NOT NULL,
  state   INTEGER NOT NULL,
  reason  TEXT,
  at      INTEGER NOT NULL,
  PRIMARY KEY (outbox, seq)
) STRICT, WITHOUT ROWID;

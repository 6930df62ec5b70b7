-- Schema 2. What is durable and not in its place yet: commits as they came, each transaction one row, in order. The
-- store's thread puts them into the tables when it has time, newest state only, and removes them; what a crash leaves
-- here is put in its place at the next opening. The bytes are those of src/sqlite/log.rs.
CREATE TABLE log (
  seq   INTEGER PRIMARY KEY,
  bytes BLOB NOT NULL
) STRICT;

CREATE INDEX delegation_parent ON delegation (parent, task) WHERE parent IS NOT NULL;

-- Schema 5. Where news of a task is pushed to, until its end has arrived there. The configuration is sealed: it holds
-- secrets of its receiver.
CREATE TABLE hook (
  task   BLOB NOT NULL,
  id     TEXT NOT NULL,
  sealed BLOB NOT NULL,
  turn   INTEGER NOT NULL,  -- what arrived there last: 0 for nothing
  state  INTEGER NOT NULL,
  PRIMARY KEY (task, id)
) STRICT, WITHOUT ROWID;

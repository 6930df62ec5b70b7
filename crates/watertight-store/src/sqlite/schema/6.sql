-- Schema 6. What an agent said of a task after the verdict on it. It is kept for people, and changes nothing.
CREATE TABLE late (
  task  BLOB NOT NULL PRIMARY KEY,
  at    INTEGER NOT NULL,  -- microseconds
  state INTEGER NOT NULL,
  bytes INTEGER NOT NULL,  -- of the whole text, which may be more than is kept
  text  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

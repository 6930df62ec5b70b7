-- Schema 7. What a turn asked for and what came of it: size (8 bytes, the most significant first) and SHA-256. And what is
-- over, in the order in which it ended, for whoever keeps a record of it elsewhere.
ALTER TABLE delegation ADD COLUMN request BLOB;
ALTER TABLE delegation ADD COLUMN result  BLOB;
CREATE INDEX delegation_over ON delegation (changed, task) WHERE state IN (4, 5, 6, 7);

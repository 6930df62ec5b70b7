-- Schema 3. Who goes first, when what happened to a turn, and where a delegation comes from.
ALTER TABLE delegation ADD COLUMN priority INTEGER NOT NULL DEFAULT 50;
ALTER TABLE delegation ADD COLUMN sent     INTEGER;
ALTER TABLE delegation ADD COLUMN answered INTEGER;
ALTER TABLE delegation ADD COLUMN advanced INTEGER;
ALTER TABLE delegation ADD COLUMN chain    TEXT;                        -- agents from the root down, one a line
ALTER TABLE delegation ADD COLUMN children INTEGER NOT NULL DEFAULT 0;
ALTER TABLE delegation ADD COLUMN redrives BLOB;                        -- the delegation that it repeats

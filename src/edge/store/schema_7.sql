-- Version 7: a confirmation that was interrupted goes on with the next run.

ALTER TABLE confirmation ADD COLUMN finished INTEGER NOT NULL DEFAULT 1 CHECK (finished IN (0, 1));

-- Version 5: the inputs of all sessions, so that a cell is compared with those that it was run with.

-- Nobody reads it.
DROP INDEX attempt_by_cell;

-- A row holds from the session `since` on, up to the session before `ended`.
CREATE TABLE input_of_session (
    matrix     TEXT NOT NULL,
    projection TEXT NOT NULL,       -- `bs=4k,rw=read`; empty for what is the same in all cells
    name       TEXT NOT NULL,
    since      INTEGER NOT NULL,
    ended      INTEGER,             -- NULL: nothing else was seen
    value      TEXT NOT NULL,
    PRIMARY KEY (matrix, projection, name, since)
) STRICT, WITHOUT ROWID;
-- Knobs are named one by one now.
INSERT INTO input_of_session (matrix, projection, name, since, value)
    SELECT matrix, projection, name, 0, value FROM input WHERE name <> 'tool profile';
DROP TABLE input;
ALTER TABLE input_of_session RENAME TO input;

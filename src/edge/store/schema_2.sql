-- Version 2: what builds gave, and what steps depended on when they were last run.

-- Build inputs by key → content of what they gave. Several keys may name the same artifact: the same
-- sources seen by cells that different parts of them can affect. The first one stays.
CREATE TABLE artifact (
    key     BLOB PRIMARY KEY CHECK (length(key) = 16),
    digest  BLOB NOT NULL CHECK (length(digest) = 16),
    version TEXT NOT NULL,          -- for which it was built
    built_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The inputs of a matrix's run steps, as a person would read them, by the part of the cell that they
-- depend on: what a changed key is explained by.
CREATE TABLE input (
    matrix     TEXT NOT NULL,
    projection TEXT NOT NULL,       -- `bs=4k,rw=read`; empty for what is the same in all cells
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (matrix, projection, name)
) STRICT, WITHOUT ROWID;

-- The artifacts that the last session of a matrix measured or compared with.
CREATE TABLE used (
    matrix TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16),
    PRIMARY KEY (matrix, digest)
) STRICT, WITHOUT ROWID;

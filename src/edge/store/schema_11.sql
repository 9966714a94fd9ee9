-- Version 11: what was confirmed of a series stands until it is refuted, accepted or its cell is gone.

CREATE TABLE series_finding (
    id                INTEGER PRIMARY KEY,
    matrix            TEXT NOT NULL,
    preset            TEXT NOT NULL,
    machine           TEXT NOT NULL,
    cell              TEXT NOT NULL,        -- its name without the version
    metric            TEXT NOT NULL,        -- the parser's name for it
    baseline          BLOB NOT NULL,        -- keys
    candidate         BLOB NOT NULL,
    baseline_version  TEXT NOT NULL,
    candidate_version TEXT NOT NULL,
    confirmed         INTEGER NOT NULL CHECK (confirmed IN (0, 1)),   -- 0: suspected
    shift             REAL NOT NULL,        -- ln(candidate / baseline)
    session           INTEGER NOT NULL REFERENCES session (id),       -- that found it
    ended             INTEGER REFERENCES session (id),                -- that refuted it or looked again
    UNIQUE (matrix, preset, machine, cell, metric, baseline, candidate, confirmed)
) STRICT;
CREATE INDEX series_finding_open ON series_finding (matrix, preset) WHERE ended IS NULL;

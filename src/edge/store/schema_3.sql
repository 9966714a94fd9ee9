-- Version 3: what is said about series: change points told, changes accepted, findings measured again.
-- A series is (matrix, machine, cell without its version, metric); a metric is the parser's name.

-- A change point that was told to somebody. It stays where it was told.
CREATE TABLE change_point (
    id          INTEGER PRIMARY KEY,
    matrix      TEXT NOT NULL,
    preset      TEXT NOT NULL,
    machine     TEXT NOT NULL,
    cell        TEXT NOT NULL,
    metric      TEXT NOT NULL,
    key         BLOB NOT NULL CHECK (length(key) = 16),   -- of the first point after the change
    reported_ms INTEGER NOT NULL,
    UNIQUE (matrix, preset, machine, cell, metric, key)
) STRICT;

-- Up to which attempt the series of a matrix have been looked through.
CREATE TABLE looked_through (
    matrix  TEXT NOT NULL,
    preset  TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (matrix, preset)
) STRICT, WITHOUT ROWID;

CREATE TABLE acceptance (
    id          INTEGER PRIMARY KEY,
    matrix      TEXT NOT NULL,
    what        TEXT NOT NULL,          -- as the user named it
    reason      TEXT NOT NULL,
    author      TEXT NOT NULL,
    accepted_ms INTEGER NOT NULL,
    undone_ms   INTEGER                 -- NULL: it holds
) STRICT;

-- The series that an acceptance moves the baseline of, each from one of its points on.
CREATE TABLE accepted_series (
    acceptance INTEGER NOT NULL REFERENCES acceptance (id),
    machine    TEXT NOT NULL,
    cell       TEXT NOT NULL,
    metric     TEXT NOT NULL,
    key        BLOB NOT NULL CHECK (length(key) = 16),
    version    TEXT NOT NULL,
    since_ms   INTEGER NOT NULL,
    PRIMARY KEY (acceptance, machine, cell, metric)
) STRICT, WITHOUT ROWID;

-- Comparisons whose rounds from `first_round` on were measured to confirm what the rounds before showed.
CREATE TABLE confirmation (
    baseline    BLOB NOT NULL CHECK (length(baseline) = 16),
    candidate   BLOB NOT NULL CHECK (length(candidate) = 16),
    metric      TEXT NOT NULL,
    first_round INTEGER NOT NULL,
    PRIMARY KEY (baseline, candidate, metric)
) STRICT, WITHOUT ROWID;

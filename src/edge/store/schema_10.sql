-- Version 10: what commits say, and the findings of sessions, so that a report stands by itself.

CREATE TABLE commit_text (
    commit_id       TEXT PRIMARY KEY,
    author          TEXT NOT NULL,
    author_email    TEXT NOT NULL,
    authored_s      INTEGER NOT NULL,   -- seconds since 1970-01-01 UTC
    committer       TEXT NOT NULL,
    committer_email TEXT NOT NULL,
    committed_s     INTEGER NOT NULL,
    message         TEXT NOT NULL       -- its first line is the subject
) STRICT;

-- A change that comparisons found, from the session that found it first to the one that did not find it any more. On the
-- axis `version` each night has other versions: there `sides` is empty, else it is `baseline → candidate`.
CREATE TABLE finding (
    id        INTEGER PRIMARY KEY,
    matrix    TEXT NOT NULL,
    preset    TEXT NOT NULL,
    axis      TEXT NOT NULL,
    cell      TEXT NOT NULL,        -- without the compared axis
    metric    TEXT NOT NULL,
    sides     TEXT NOT NULL,
    verdict   TEXT NOT NULL CHECK (verdict IN ('regression', 'improvement')),
    since     INTEGER NOT NULL REFERENCES session (id),
    seen      INTEGER NOT NULL REFERENCES session (id),     -- the last one that found it
    gone      INTEGER REFERENCES session (id),              -- NULL: it stands
    baseline  TEXT NOT NULL,        -- as they were when it was seen last
    candidate TEXT NOT NULL,
    ratio     REAL,
    level     REAL                  -- the baseline's median
) STRICT;
-- Small: what stands, of each at most one.
CREATE UNIQUE INDEX finding_that_stands ON finding (matrix, preset, axis, cell, metric, sides) WHERE gone IS NULL;
CREATE INDEX finding_gone ON finding (matrix, preset, gone) WHERE gone IS NOT NULL;

-- Version 1. Times are milliseconds since 1970-01-01 UTC, durations microseconds.
-- Keys are 16 bytes: equal keys mean equal content of all that a result depends on.

CREATE TABLE session (
    id              INTEGER PRIMARY KEY,
    started_ms      INTEGER NOT NULL,
    ended_ms        INTEGER,            -- NULL: it runs, or it died
    matrix          TEXT NOT NULL,
    preset          TEXT NOT NULL,
    seed            INTEGER NOT NULL,   -- unsigned 64 bits, stored as signed
    arguments       TEXT NOT NULL,
    program_version TEXT NOT NULL,
    process         TEXT NOT NULL,      -- what the caller needs to tell whether it lives
    outcome         TEXT
) STRICT;
CREATE INDEX session_by_matrix ON session (matrix);

CREATE TABLE environment (
    id   BLOB PRIMARY KEY CHECK (length(id) = 16),
    json TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt (
    id          INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES session (id),
    kind        TEXT NOT NULL CHECK (kind IN ('build', 'setup', 'run')),
    key         BLOB NOT NULL CHECK (length(key) = 16),
    round       INTEGER NOT NULL,
    cell        TEXT NOT NULL,
    machine     TEXT NOT NULL,
    version     TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    outcome     TEXT NOT NULL
        CHECK (outcome IN ('ok', 'refused', 'failed', 'timeout', 'interrupted')),
    reason      TEXT NOT NULL,
    has_log     INTEGER NOT NULL CHECK (has_log IN (0, 1)),
    environment BLOB REFERENCES environment (id)
) STRICT;
-- Mean durations by key are read from the index alone.
CREATE INDEX attempt_by_key ON attempt (key, outcome, duration_us);
CREATE INDEX attempt_by_cell ON attempt (cell);
CREATE INDEX attempt_by_session ON attempt (session, kind);
-- Small: failures are few.
CREATE INDEX failure_by_key ON attempt (key) WHERE outcome IN ('refused', 'failed', 'timeout');

-- What is finished: the index that a plan is looked up in.
CREATE TABLE done (
    key     BLOB NOT NULL CHECK (length(key) = 16),
    round   INTEGER NOT NULL,
    attempt INTEGER NOT NULL REFERENCES attempt (id),
    PRIMARY KEY (key, round)
) STRICT, WITHOUT ROWID;

CREATE TABLE metric (
    id     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL,
    unit   TEXT NOT NULL,
    -- 'unknown': read beside the declared metrics, by a parser that cannot know it.
    better TEXT NOT NULL CHECK (better IN ('higher', 'lower', 'unknown')),
    UNIQUE (name, unit, better)
) STRICT;

CREATE TABLE sample (
    key     BLOB NOT NULL CHECK (length(key) = 16),
    round   INTEGER NOT NULL,
    metric  INTEGER NOT NULL REFERENCES metric (id),
    value   REAL NOT NULL,
    attempt INTEGER NOT NULL REFERENCES attempt (id),
    PRIMARY KEY (key, round, metric)
) STRICT, WITHOUT ROWID;

-- The journal of set-ups that are up: what has to be undone on a machine.
CREATE TABLE live (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (id),
    machine TEXT NOT NULL,
    what    TEXT NOT NULL
) STRICT;

CREATE VIEW samples AS
SELECT
    session.matrix,
    session.preset,
    attempt.cell,
    attempt.machine,
    attempt.version,
    metric.name AS metric,
    metric.unit,
    metric.better,
    sample.round,
    sample.value,
    strftime('%Y-%m-%dT%H:%M:%fZ', attempt.started_ms / 1000.0, 'unixepoch') AS taken_at,
    attempt.duration_us / 1e6 AS duration_s,
    attempt.session,
    attempt.id AS attempt,
    lower(hex(sample.key)) AS key,
    lower(hex(attempt.environment)) AS environment
FROM sample
JOIN attempt ON attempt.id = sample.attempt
JOIN session ON session.id = attempt.session
JOIN metric ON metric.id = sample.metric;

-- Version 4: what was beside a measurement. One attempt has all of it or, after a crash, nothing.

-- Why a sample is to be read with care.
CREATE TABLE mark (
    attempt INTEGER NOT NULL REFERENCES attempt (id),
    kind    TEXT NOT NULL CHECK (kind IN ('noisy', 'knob')),
    what    TEXT NOT NULL,          -- for people
    PRIMARY KEY (attempt, kind)
) STRICT, WITHOUT ROWID;

-- What monitors printed.
CREATE TABLE monitor_output (
    attempt INTEGER NOT NULL REFERENCES attempt (id),
    name    TEXT NOT NULL,
    gzip    BLOB NOT NULL,
    PRIMARY KEY (attempt, name)
) STRICT;

-- The names of what monitors measure, such as `vmstat.cs`.
CREATE TABLE monitor (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- The mean over one measurement.
CREATE TABLE monitor_value (
    attempt INTEGER NOT NULL REFERENCES attempt (id),
    monitor INTEGER NOT NULL REFERENCES monitor (id),
    value   REAL NOT NULL,
    PRIMARY KEY (attempt, monitor)
) STRICT, WITHOUT ROWID;

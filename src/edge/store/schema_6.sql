-- Version 6: logs are in the database, so that one write makes an attempt and its log durable.

-- What the programs of an attempt printed. Attempts of before have a file instead: `logs/…/ID.gz`.
CREATE TABLE log (
    attempt INTEGER PRIMARY KEY REFERENCES attempt (id),
    is_gzip INTEGER NOT NULL CHECK (is_gzip IN (0, 1)),
    text    BLOB NOT NULL
) STRICT;

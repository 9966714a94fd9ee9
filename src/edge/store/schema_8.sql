-- Version 8: which commit a version was, so that the points of a series stand in the order of the commits.

CREATE TABLE version_commit (
    session     INTEGER NOT NULL REFERENCES session (id),
    version     TEXT NOT NULL,
    commit_id   TEXT NOT NULL,
    position_ms INTEGER,            -- its date, never before that of its first parent; NULL: not known
    depth       INTEGER,            -- commits on its first-parent line
    PRIMARY KEY (session, version)
) STRICT, WITHOUT ROWID;
-- Small: those that a repository has not told of yet.
CREATE INDEX commit_without_position ON version_commit (commit_id) WHERE position_ms IS NULL;

-- What labels meant in older sessions. A later run that walks the history past these commits places them.
-- A row since 0 is of before version 5: which session it is of was not kept, only that it was the last one.
INSERT OR IGNORE INTO version_commit (session, version, commit_id)
    SELECT measured.session, measured.version, input.value
    FROM (SELECT DISTINCT session, version FROM attempt WHERE kind = 'run') AS measured
    JOIN session ON session.id = measured.session
    JOIN input ON input.matrix = session.matrix AND input.projection = 'version=' || measured.version
              AND input.name = 'commit' AND input.since <= session.id
              AND (input.ended IS NULL OR session.id < input.ended)
    WHERE input.since > 0
       OR session.id = (SELECT max(later.id) FROM session AS later
                        JOIN attempt ON attempt.session = later.id AND attempt.kind = 'run'
                                    AND attempt.version = measured.version
                        WHERE later.matrix = session.matrix
                          AND (input.ended IS NULL OR later.id < input.ended));

-- Version 9: the samples of a session that has ended in one piece, so that the past of a matrix is read quickly.

-- What is in `attempt` and `sample` too: may be deleted. `matrix changes` without `--only` makes it anew, for
-- sessions that have ended; one that died has none.
CREATE TABLE session_points (
    session INTEGER PRIMARY KEY REFERENCES session (id),
    points  BLOB NOT NULL           -- see edge/store/points.rs
) STRICT;

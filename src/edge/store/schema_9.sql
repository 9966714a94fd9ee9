-- Version 9: the samples of a session that has ended in one piece, so that the past of a matrix is read quickly.

-- What is in `attempt` and `sample` too: may be deleted, and is made anew by `matrix changes`.
CREATE TABLE session_points (
    session INTEGER PRIMARY KEY REFERENCES session (id),
    points  BLOB NOT NULL           -- see edge/store/points.rs
) STRICT;

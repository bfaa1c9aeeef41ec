ALTER TABLE sessions ADD COLUMN first_seq INTEGER NOT NULL DEFAULT 1;  -- what was before it has been trimmed away

-- Each load of a session takes the next number; only writes that carry the newest are kept.
ALTER TABLE sessions ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;

CREATE TABLE dead_letters (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    session_no INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    cid TEXT NOT NULL,
    role TEXT NOT NULL,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    created_at REAL NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    buried_at REAL NOT NULL
) STRICT;

CREATE INDEX dead_letters_of_session ON dead_letters (session_no, no);

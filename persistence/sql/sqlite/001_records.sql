CREATE TABLE sessions (
    no INTEGER PRIMARY KEY,  -- order of creation, whatever the clock said
    id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    created_at REAL NOT NULL,
    spec BLOB NOT NULL,
    state BLOB NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX sessions_of_user ON sessions (user_id, no);

-- Records name their session by number, which keeps the two indices small. Payloads are long, so the table keeps its
-- rowid: without it, a batch over many sessions took about three times as long.
CREATE TABLE messages (
    session_no INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    cid TEXT NOT NULL,
    role TEXT NOT NULL,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    created_at REAL NOT NULL,
    status TEXT NOT NULL,
    PRIMARY KEY (session_no, seq),
    UNIQUE (session_no, cid)
) STRICT;

CREATE INDEX messages_open ON messages (session_no, seq) WHERE status = 'open';

CREATE TABLE checkpoints (
    session_no INTEGER PRIMARY KEY REFERENCES sessions (no) ON DELETE CASCADE,
    body BLOB NOT NULL
) STRICT;

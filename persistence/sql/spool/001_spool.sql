-- Writes that are durable here and that the store does not have yet, in order. What is no text is kept as a blob, a time
-- that is none as NULL. Long columns come last: a walk over the others does not read them.
CREATE TABLE spool (
    no INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice
    session_id TEXT NOT NULL,
    fence INTEGER,
    seq INTEGER,  -- of the appended record, as are the five columns after it; NULL if the write appends none
    cid ANY,
    role ANY,
    type ANY,
    created_at REAL,
    status ANY,
    marks TEXT,  -- [[seq, status], ...]
    delivered INTEGER,
    size INTEGER NOT NULL,
    spooled_at REAL NOT NULL,
    state BLOB,
    spec BLOB,
    payload BLOB,
    checkpoint BLOB
) STRICT;

CREATE INDEX spool_records ON spool (session_id, seq) WHERE seq IS NOT NULL;
CREATE INDEX spool_checkpoints ON spool (session_id, no) WHERE checkpoint IS NOT NULL;

-- Records that were accepted here and that the store refused, because the conversation had moved on without them.
CREATE TABLE lost (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    cid TEXT NOT NULL,
    role TEXT NOT NULL,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    created_at REAL NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    lost_at REAL NOT NULL
) STRICT;

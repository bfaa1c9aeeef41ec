-- For a store that passes its records on (the HTTP sink). A table of its own: the plain store never touches it, and a
-- column of `sessions` with an index over `forwarded < last_seq` would change with every record stored.
CREATE TABLE forwarded (
    session_no INTEGER PRIMARY KEY REFERENCES sessions (no) ON DELETE CASCADE,
    seq INTEGER NOT NULL
) STRICT;

-- Whom the records that wait were accepted for: one row.
CREATE TABLE sink (
    no INTEGER PRIMARY KEY CHECK (no = 1),
    address TEXT NOT NULL
) STRICT;

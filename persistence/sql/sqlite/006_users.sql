-- What belongs to users and to no session. Values of credentials are sealed before they come here.
CREATE TABLE credentials (
    no INTEGER PRIMARY KEY AUTOINCREMENT,  -- a new one with each change, never given twice
    user_id TEXT NOT NULL,  -- '': everybody may use it
    provider TEXT NOT NULL,
    kind TEXT NOT NULL,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    set_at REAL NOT NULL,
    trouble TEXT NOT NULL,
    UNIQUE (user_id, provider)
) STRICT;

CREATE TABLE user_configs (
    user_id TEXT PRIMARY KEY,
    body BLOB NOT NULL,
    set_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

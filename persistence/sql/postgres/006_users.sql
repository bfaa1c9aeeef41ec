-- What belongs to users and to no session. Values of credentials are sealed before they come here.
CREATE SEQUENCE credential_changes;

CREATE TABLE credentials (
    no bigint NOT NULL UNIQUE, -- a new one with each change, never given twice
    user_id text COLLATE "C" NOT NULL, -- '': everybody may use it
    provider text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    sealed bytea NOT NULL,
    set_at double precision NOT NULL,
    trouble text NOT NULL,
    PRIMARY KEY (user_id, provider)
);

CREATE TABLE user_configs (
    user_id text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL,
    set_at double precision NOT NULL
);

-- For the gateway alone: readers have no policy here, and see no row.
ALTER TABLE credentials ENABLE ROW LEVEL SECURITY;
ALTER TABLE user_configs ENABLE ROW LEVEL SECURITY;

CREATE POLICY gateway ON credentials USING ((SELECT has_table_privilege('messages'::regclass, 'INSERT')));
CREATE POLICY gateway ON user_configs USING ((SELECT has_table_privilege('messages'::regclass, 'INSERT')));

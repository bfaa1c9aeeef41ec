CREATE TABLE schema_version (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Each load of a session takes the next number; only writes that carry the session's newest are kept. One sequence for
-- all sessions: an id that was purged and is used again never meets an old writer's number.
CREATE SEQUENCE fences;

-- Updated by every batch: half of each page stays free, so that a new version of a row finds room beside the old one.
CREATE TABLE sessions (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- order of creation, whatever the clock said
    id text COLLATE "C" NOT NULL UNIQUE,
    user_id text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL,
    spec bytea NOT NULL,
    state bytea NOT NULL,
    last_seq bigint NOT NULL DEFAULT 0,
    delivered bigint NOT NULL DEFAULT 0,
    first_seq bigint NOT NULL DEFAULT 1, -- what was before it has been trimmed away
    fence bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0, -- raised by each batch, so that none is performed late
    owner text COLLATE "C" -- who loaded it last, for people
) WITH (fillfactor = 50);

CREATE INDEX sessions_of_user ON sessions (user_id, no);

-- No foreign key: a row is born in the statement that updates its session's row and fails without it, and dies in the
-- transaction that deletes that row first.
CREATE TABLE messages (
    session_no bigint NOT NULL,
    seq bigint NOT NULL,
    cid text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    created_at double precision NOT NULL,
    status text COLLATE "C" NOT NULL,
    PRIMARY KEY (session_no, seq),
    UNIQUE (session_no, cid)
);

CREATE INDEX messages_open ON messages (session_no, seq) WHERE status = 'open';

CREATE TABLE checkpoints (
    session_no bigint PRIMARY KEY,
    body bytea NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE dead_letters (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_no bigint NOT NULL,
    seq bigint NOT NULL,
    cid text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    created_at double precision NOT NULL,
    status text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    buried_at double precision NOT NULL
);

CREATE INDEX dead_letters_of_session ON dead_letters (session_no, no);

-- What a batch is made of, as its one statement is given it: one array of rows for each part. Types of their own, so that
-- a gateway goes on writing while a newer one adds columns to the tables.
CREATE TYPE session_step AS (
    no bigint,
    was_version bigint,
    was_fence bigint,
    last_seq bigint,
    delivered bigint,
    state bytea, -- null: as it was
    spec bytea
);
CREATE TYPE new_message AS (
    session_no bigint,
    seq bigint,
    cid text,
    role text,
    type text,
    payload bytea,
    created_at double precision,
    status text
);
CREATE TYPE new_mark AS (session_no bigint, seq bigint, status text);
CREATE TYPE new_checkpoint AS (session_no bigint, body bytea);
CREATE TYPE new_dead_letter AS (message new_message, reason text, buried_at double precision);

-- Called once per batch with how many of its sessions were as the writer believed, and how many there should be.
CREATE FUNCTION all_as_believed(counted bigint, believed bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF counted <> believed THEN
        RAISE EXCEPTION 'a session is not as its writer believed' USING ERRCODE = 'HF001';
    END IF;
END
$$;

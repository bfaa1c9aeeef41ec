-- For people and programs that read with SQL: who may read whose conversations. Only the owner of the tables writes it.
CREATE TABLE readers (
    role_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (role_name, user_id)
);

-- A payload's `part`; null where it has none, or is no JSON. PostgreSQL has no word for the character U+0000, and fails at
-- the sight of its escape: such a one is read as U+FFFD. The pairs of backslashes, after which a u0000 is just text, step
-- aside meanwhile for a character that cannot stand in JSON. Nobody's message may spoil what others read.
CREATE FUNCTION part_of(payload bytea, part text) RETURNS json LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    body text;
BEGIN
    body := convert_from(payload, 'UTF8')::json::text;
    IF position('\u0000' IN body) > 0 THEN
        body := replace(replace(replace(body, '\\', chr(1)), '\u0000', '\ufffd'), chr(1), '\\');
    END IF;
    RETURN body::json -> part;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

CREATE VIEW conversation WITH (security_invoker = true) AS
SELECT
    s.id AS session_id,
    s.user_id,
    m.seq,
    m.cid,
    m.role,
    m.type,
    part_of(m.payload, 'content') AS content,
    part_of(m.payload, 'metadata') AS metadata,
    CASE WHEN m.status = 'stored' AND m.seq <= s.delivered THEN 'delivered' ELSE m.status END AS status,
    CASE WHEN m.created_at BETWEEN 0 AND 253402300799 THEN to_timestamp(m.created_at) END AS created_at
FROM sessions s
JOIN messages m ON m.session_no = s.no;

-- Row-level security does not bind the owner of the tables. Of everybody else, who may write messages sees all rows, and
-- who may only read those of the users that `readers` gives it. What has no policy for writing is the owner's to write.
ALTER TABLE schema_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE readers ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letters ENABLE ROW LEVEL SECURITY;

CREATE POLICY everybody ON schema_version FOR SELECT USING (true);
CREATE POLICY themselves ON readers FOR SELECT USING (role_name = current_user);

-- In a subquery, so that it is asked once per statement and not per row.
CREATE POLICY gateway ON sessions USING ((SELECT has_table_privilege('messages'::regclass, 'INSERT')));
CREATE POLICY gateway ON messages USING ((SELECT has_table_privilege('messages'::regclass, 'INSERT')));
CREATE POLICY gateway ON checkpoints USING ((SELECT has_table_privilege('messages'::regclass, 'INSERT')));
CREATE POLICY gateway ON dead_letters USING ((SELECT has_table_privilege('messages'::regclass, 'INSERT')));

-- The rows of `readers` and `sessions` that these see are those that the reader may see.
CREATE POLICY reader ON sessions FOR SELECT USING (user_id IN (SELECT r.user_id FROM readers r));
CREATE POLICY reader ON messages FOR SELECT USING (session_no IN (SELECT s.no FROM sessions s));
CREATE POLICY reader ON checkpoints FOR SELECT USING (session_no IN (SELECT s.no FROM sessions s));
CREATE POLICY reader ON dead_letters FOR SELECT USING (session_no IN (SELECT s.no FROM sessions s));

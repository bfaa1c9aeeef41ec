-- Bytes of the payloads that are kept of each session, so that what a user has stored is a sum over few rows.
ALTER TABLE sessions ADD COLUMN stored_bytes bigint NOT NULL DEFAULT 0;

UPDATE sessions s SET stored_bytes = grown.bytes
FROM (SELECT session_no, sum(octet_length(payload)) AS bytes FROM messages GROUP BY session_no) grown
WHERE grown.session_no = s.no;

-- Beside `session_step`, which gateways of before go on using.
CREATE TYPE session_stride AS (
    no bigint,
    was_version bigint,
    was_fence bigint,
    last_seq bigint,
    delivered bigint,
    state bytea, -- null: as it was
    spec bytea,
    grown_bytes bigint
);

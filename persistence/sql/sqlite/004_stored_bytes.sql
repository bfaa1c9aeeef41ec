-- Bytes of the payloads that are kept of each session, so that what a user has stored is a sum over few rows.
ALTER TABLE sessions ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;

UPDATE sessions SET stored_bytes =
    (SELECT coalesce(sum(length(m.payload)), 0) FROM messages m WHERE m.session_no = sessions.no);

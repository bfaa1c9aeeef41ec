-- Three kinds of roles for Holdfast's database, each with what it needs and no more. An administrator runs this once,
-- connected to that database and before the first migration; running it again changes nothing:
--
--     psql --set ON_ERROR_STOP=1 --file deploy/postgres-roles.sql postgresql://admin@host/holdfast
--
-- Then give the first two a password (\password holdfast_owner), and let each do its part:
--
--     HOLDFAST_STORE=postgresql://holdfast_owner:...@host/holdfast    holdfast migrate
--     HOLDFAST_STORE=postgresql://holdfast_gateway:...@host/holdfast  holdfast serve

DO $$
BEGIN
    -- Owns the tables: migrates, and says in the table `readers` who may read what.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_owner') THEN
        CREATE ROLE holdfast_owner LOGIN;
    END IF;
    -- Reads and writes rows; cannot change a table, a right or `readers`.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_gateway') THEN
        CREATE ROLE holdfast_gateway LOGIN;
    END IF;
    -- What everybody who reads with SQL is a member of. A member sees the conversations of its users alone:
    --     CREATE ROLE ann LOGIN IN ROLE holdfast_reader;
    --     INSERT INTO readers (role_name, user_id) VALUES ('ann', 'user-17');  -- as holdfast_owner
    --     SELECT * FROM conversation;                                          -- as ann
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_reader') THEN
        CREATE ROLE holdfast_reader NOLOGIN;
    END IF;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format(
        'GRANT CONNECT ON DATABASE %I TO holdfast_owner, holdfast_gateway, holdfast_reader', current_database());
END
$$;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO holdfast_owner;
GRANT USAGE ON SCHEMA public TO holdfast_gateway, holdfast_reader;

-- For all that a migration will create. Row-level security, which comes with the tables, narrows it down.
ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO holdfast_gateway;
ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner IN SCHEMA public
    GRANT USAGE ON SEQUENCES TO holdfast_gateway;
ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner IN SCHEMA public
    GRANT SELECT ON TABLES TO holdfast_reader;

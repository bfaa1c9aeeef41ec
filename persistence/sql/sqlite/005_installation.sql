-- The id of everything that is kept here, as the first gateway named it: what else is found by it outlives gateways.
CREATE TABLE installation (no INTEGER PRIMARY KEY CHECK (no = 1), id TEXT NOT NULL) STRICT;

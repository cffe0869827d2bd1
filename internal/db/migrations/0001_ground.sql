-- heads: counters without gaps and the time of their last change.
CREATE TABLE heads (
  name  TEXT PRIMARY KEY,   -- plain
  value BIGINT NOT NULL,    -- plain
  at    BIGINT NOT NULL     -- plain
) /*strict*/;

-- On PostgreSQL every write batch holds this row to its commit.
INSERT INTO heads (name, value, at) VALUES ('log', 0, 0);

-- meta: what the store says of itself.
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,   -- plain
  value TEXT NOT NULL       -- plain
) /*strict*/;

-- leases: who may act for a thing until when; a fence never repeats.
CREATE TABLE leases (
  name    TEXT PRIMARY KEY, -- plain
  owner   TEXT NOT NULL,    -- plain
  fence   BIGINT NOT NULL,  -- plain
  expires BIGINT NOT NULL   -- plain
) /*strict*/;

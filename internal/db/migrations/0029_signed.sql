-- signed_artifacts: the files of signed loops, by the sha256 of the whole file. pieces is 0
-- until all of it is there; at is when it was last written.
CREATE TABLE signed_artifacts (
  sha    TEXT PRIMARY KEY, -- plain
  name   TEXT NOT NULL,    -- plain
  size   BIGINT NOT NULL,  -- plain
  pieces BIGINT NOT NULL,  -- plain
  at     BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE TABLE signed_pieces (
  sha  TEXT NOT NULL,   -- plain
  n    BIGINT NOT NULL, -- plain
  data BYTEA NOT NULL,  -- sealed
  PRIMARY KEY (sha, n)
) /*strict*/;

-- signed_loops: what is installed. body tells as what it was approved: its manifest, its
-- keys, its tier, its settings, by whom and when.
CREATE TABLE signed_loops (
  name TEXT PRIMARY KEY, -- plain
  sha  TEXT NOT NULL,    -- plain
  body BYTEA NOT NULL,   -- sealed
  at   BIGINT NOT NULL   -- plain
) /*strict*/;

-- signed_trust: whose signature counts. kind is registry, publisher, revoked or community;
-- name is the key, '' for community.
CREATE TABLE signed_trust (
  kind TEXT NOT NULL,   -- plain
  name TEXT NOT NULL,   -- plain
  body BYTEA NOT NULL,  -- sealed
  at   BIGINT NOT NULL, -- plain
  PRIMARY KEY (kind, name)
) /*strict*/;

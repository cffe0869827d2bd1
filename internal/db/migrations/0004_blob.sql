-- blobs: large content, each once. digest is NULL until all of it is there.
CREATE TABLE blobs (
  id     TEXT PRIMARY KEY, -- plain
  digest BYTEA UNIQUE,     -- blind
  size   BIGINT NOT NULL,  -- plain
  pieces BIGINT NOT NULL,  -- plain
  cut    BIGINT NOT NULL,  -- plain
  at     BIGINT NOT NULL   -- plain
) /*strict*/;

-- blob_pieces: 256 KiB of a blob each, numbered from 0.
CREATE TABLE blob_pieces (
  blob TEXT NOT NULL,   -- plain
  n    BIGINT NOT NULL, -- plain
  data BYTEA NOT NULL,  -- sealed
  PRIMARY KEY (blob, n)
) /*strict*/;

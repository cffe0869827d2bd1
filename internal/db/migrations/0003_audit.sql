-- audit_chains: the chain of chains. One chain per node and start.
CREATE TABLE audit_chains (
  number    BIGINT PRIMARY KEY,   -- plain
  chain     TEXT NOT NULL UNIQUE, -- plain
  node      TEXT NOT NULL,        -- plain
  epoch     BIGINT NOT NULL,      -- plain
  opening   TEXT NOT NULL,        -- plain
  hash      BYTEA NOT NULL,       -- plain
  mac       BYTEA NOT NULL,       -- plain
  signature BYTEA NOT NULL,       -- plain
  UNIQUE (node, epoch)
) /*strict*/;

-- audit: who did what by whose leave. entry is canonical JSON.
CREATE TABLE audit (
  chain TEXT NOT NULL,   -- plain
  seq   BIGINT NOT NULL, -- plain
  at    BIGINT NOT NULL, -- plain
  entry TEXT NOT NULL,   -- plain
  hash  BYTEA NOT NULL,  -- plain
  mac   BYTEA NOT NULL,  -- plain
  PRIMARY KEY (chain, seq) /*clustered*/
) /*strict*/;

-- audit_checkpoints: signed statements of how far a chain had got.
CREATE TABLE audit_checkpoints (
  chain     TEXT NOT NULL,   -- plain
  seq       BIGINT NOT NULL, -- plain
  at        BIGINT NOT NULL, -- plain
  hash      BYTEA NOT NULL,  -- plain
  signature BYTEA NOT NULL,  -- plain
  PRIMARY KEY (chain, seq)
) /*strict*/;

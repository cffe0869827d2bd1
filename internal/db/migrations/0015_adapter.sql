-- adapters: the processes that carry messages to and from a network of theirs.
CREATE TABLE adapters (
  name       TEXT PRIMARY KEY,   -- plain
  credential BYTEA NOT NULL,     -- plain
  added      BIGINT NOT NULL,    -- plain
  removed    BIGINT NOT NULL     -- plain
) /*strict*/;

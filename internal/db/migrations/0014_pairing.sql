-- senders: who on a remote channel is the operator, or somebody the operator knows.
-- body holds all of it; the other columns only find rows and have to agree.
CREATE TABLE senders (
  id         TEXT PRIMARY KEY,  -- plain
  key        BYTEA NOT NULL,    -- blind
  channel    TEXT NOT NULL,     -- plain
  standing   TEXT NOT NULL,     -- plain
  body       BYTEA NOT NULL,    -- sealed
  added      BIGINT NOT NULL,   -- plain
  removed    BIGINT NOT NULL,   -- plain
  removed_by TEXT NOT NULL      -- plain
) /*strict*/;

CREATE UNIQUE INDEX senders_live ON senders (key) WHERE removed = 0;

-- pair_codes: the codes that were shown to the operator. At most one is good.
CREATE TABLE pair_codes (
  id      TEXT PRIMARY KEY,  -- plain
  code    BYTEA NOT NULL,    -- plain
  channel TEXT NOT NULL,     -- plain
  created BIGINT NOT NULL,   -- plain
  expires BIGINT NOT NULL,   -- plain
  closed  BIGINT NOT NULL,   -- plain
  wrong   BIGINT NOT NULL    -- plain
) /*strict*/;

CREATE UNIQUE INDEX pair_codes_live ON pair_codes (closed) WHERE closed = 0;

-- pair_guesses: how often each sender was wrong about the code.
CREATE TABLE pair_guesses (
  code   TEXT NOT NULL,    -- plain
  sender BYTEA NOT NULL,   -- blind
  wrong  BIGINT NOT NULL,  -- plain
  PRIMARY KEY (code, sender)
) /*strict*/;

-- conversations: one chat each, with its own order and history.
CREATE TABLE conversations (
  id           TEXT PRIMARY KEY,    -- plain
  key          BYTEA NOT NULL UNIQUE, -- blind
  channel      TEXT NOT NULL,       -- plain
  agent        TEXT NOT NULL,       -- plain
  title        BYTEA NOT NULL,      -- sealed
  address      BYTEA NOT NULL,      -- sealed
  created      BIGINT NOT NULL,     -- plain
  last_at      BIGINT NOT NULL,     -- plain
  reset_at     BIGINT NOT NULL,     -- plain
  seq          BIGINT NOT NULL,     -- plain
  history_from BIGINT NOT NULL      -- plain
) /*strict*/;

CREATE INDEX conversations_last ON conversations (last_at);

-- inbound: the keys of messages taken, so that none is taken twice.
CREATE TABLE inbound (
  dedupe       BYTEA PRIMARY KEY,   -- blind
  event        TEXT NOT NULL,       -- plain
  run          TEXT NOT NULL,       -- plain
  conversation TEXT NOT NULL,       -- plain
  body_mac     BYTEA NOT NULL,      -- plain
  notice       BYTEA,               -- sealed
  at           BIGINT NOT NULL      -- plain
) /*strict*/;

CREATE INDEX inbound_at ON inbound (at);

-- history: what was said, in the order a model is told it.
CREATE TABLE history (
  conversation TEXT NOT NULL,       -- plain
  seq          BIGINT NOT NULL,     -- plain
  run          TEXT NOT NULL,       -- plain
  role         TEXT NOT NULL,       -- plain
  at           BIGINT NOT NULL,     -- plain
  body         BYTEA NOT NULL,      -- sealed
  PRIMARY KEY (conversation, seq)
) /*strict*/;

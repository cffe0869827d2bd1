-- events: everything that happened, in commit order.
CREATE TABLE events (
  position BIGINT PRIMARY KEY,  -- plain
  id       TEXT NOT NULL UNIQUE, -- plain
  stream   TEXT NOT NULL,       -- plain
  version  BIGINT NOT NULL,     -- plain
  kind     TEXT NOT NULL,       -- plain
  format   BIGINT NOT NULL,     -- plain
  at       BIGINT NOT NULL,     -- plain
  actor    TEXT NOT NULL,       -- plain
  cause    TEXT NOT NULL,       -- plain
  trace    TEXT NOT NULL,       -- plain
  data     BYTEA,               -- sealed
  leaf     BYTEA NOT NULL,      -- plain
  UNIQUE (stream, version)
) /*strict*/;

-- subscriptions: how far each named reader has got.
CREATE TABLE subscriptions (
  name       TEXT PRIMARY KEY,  -- plain
  position   BIGINT NOT NULL,   -- plain
  started_at BIGINT NOT NULL    -- plain
) /*strict*/;

-- blocked: streams a subscription has to come back to, and from where.
CREATE TABLE blocked (
  subscription  TEXT NOT NULL,   -- plain
  stream        TEXT NOT NULL,   -- plain
  from_position BIGINT NOT NULL, -- plain
  attempts      BIGINT NOT NULL, -- plain
  next_at       BIGINT NOT NULL, -- plain
  error         BYTEA NOT NULL,  -- sealed
  PRIMARY KEY (subscription, stream)
) /*strict*/;

-- dead_letters: events a subscription gave up on.
CREATE TABLE dead_letters (
  id           TEXT PRIMARY KEY, -- plain
  subscription TEXT NOT NULL,    -- plain
  position     BIGINT NOT NULL,  -- plain
  event        TEXT NOT NULL,    -- plain
  stream       TEXT NOT NULL,    -- plain
  at           BIGINT NOT NULL,  -- plain
  attempts     BIGINT NOT NULL,  -- plain
  error        BYTEA NOT NULL,   -- sealed
  replayed_at  BIGINT NOT NULL,  -- plain
  UNIQUE (subscription, position)
) /*strict*/;

-- schedules: what starts by itself at times. body holds what each is; key is of owner
-- and name. rule names the text and the zone that what follows it belongs to: when it
-- began to count, up to which nominal instant all is settled, the next one, when that
-- is due with its jitter, and how the last one ended.
CREATE TABLE schedules (
  id      TEXT PRIMARY KEY, -- plain
  seq     BIGINT NOT NULL,  -- plain
  owner   TEXT NOT NULL,    -- plain
  key     BYTEA NOT NULL,   -- blind
  body    BYTEA NOT NULL,   -- sealed
  state   TEXT NOT NULL,    -- plain
  created BIGINT NOT NULL,  -- plain
  rule    TEXT NOT NULL,    -- plain
  anchor  BIGINT NOT NULL,  -- plain
  settled BIGINT NOT NULL,  -- plain
  next_at BIGINT NOT NULL,  -- plain
  fire_at BIGINT NOT NULL,  -- plain
  outcome TEXT NOT NULL,    -- plain
  instant BIGINT NOT NULL,  -- plain
  at      BIGINT NOT NULL,  -- plain
  run     TEXT NOT NULL,    -- plain
  error   BYTEA NOT NULL,   -- sealed
  fired   BIGINT NOT NULL,  -- plain
  missed  BIGINT NOT NULL,  -- plain
  version BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE UNIQUE INDEX schedules_key ON schedules (key);
CREATE UNIQUE INDEX schedules_seq ON schedules (seq);
CREATE INDEX schedules_owner ON schedules (owner, seq);
CREATE INDEX schedules_due ON schedules (fire_at, seq) WHERE state = 'active';

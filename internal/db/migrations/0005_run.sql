-- runs: one row per piece of work, a projection of its events. The columns slot
-- and next_at are for the dispatcher only and are not part of the projection.
CREATE TABLE runs (
  id          TEXT PRIMARY KEY,     -- plain
  kind        TEXT NOT NULL,        -- plain
  name        TEXT NOT NULL,        -- plain
  definition  TEXT NOT NULL,        -- plain
  key         TEXT NOT NULL,        -- plain
  width       BIGINT NOT NULL,      -- plain
  slot        BIGINT,               -- plain
  state       TEXT NOT NULL,        -- plain
  wait        TEXT NOT NULL,        -- plain
  wait_ref    TEXT NOT NULL,        -- plain
  owner       TEXT NOT NULL,        -- plain
  fence       BIGINT NOT NULL,      -- plain
  attempt     BIGINT NOT NULL,      -- plain
  crashes     BIGINT NOT NULL,      -- plain
  next_at     BIGINT NOT NULL,      -- plain
  seq         BIGINT NOT NULL,      -- plain
  parent      TEXT NOT NULL,        -- plain
  cause       TEXT NOT NULL,        -- plain
  actor       TEXT NOT NULL,        -- plain
  created     BIGINT NOT NULL,      -- plain
  started     BIGINT NOT NULL,      -- plain
  resumed     BIGINT NOT NULL,      -- plain
  ended       BIGINT NOT NULL,      -- plain
  spent       BIGINT NOT NULL,      -- plain
  cost        BIGINT NOT NULL,      -- plain
  cost_known  BIGINT NOT NULL,      -- plain
  version     BIGINT NOT NULL,      -- plain
  head        BYTEA NOT NULL,       -- plain
  error_class TEXT NOT NULL,        -- plain
  input       BYTEA NOT NULL,       -- sealed
  result      BYTEA,                -- sealed
  error       BYTEA                 -- sealed
) /*strict*/;

CREATE INDEX runs_due ON runs (next_at) WHERE state IN ('queued', 'waiting');
CREATE INDEX runs_owned ON runs (owner) WHERE state IN ('running', 'cancelling');
CREATE INDEX runs_list ON runs (seq);
CREATE INDEX runs_live ON runs (state) WHERE ended = 0;
CREATE INDEX runs_cause ON runs (cause) WHERE cause <> '';
CREATE INDEX runs_parent ON runs (parent) WHERE parent <> '';
CREATE INDEX runs_line ON runs (key, seq) WHERE state = 'queued' AND key <> '';
CREATE UNIQUE INDEX runs_slot ON runs (key, slot) WHERE slot IS NOT NULL AND key <> '';

-- steps: the recorded intents and outcomes of a run.
CREATE TABLE steps (
  run         TEXT NOT NULL,        -- plain
  name        TEXT NOT NULL,        -- plain
  seq         BIGINT NOT NULL,      -- plain
  kind        TEXT NOT NULL,        -- plain
  policy      TEXT NOT NULL,        -- plain
  state       TEXT NOT NULL,        -- plain
  repeats     BIGINT NOT NULL,      -- plain
  timeout     BIGINT NOT NULL,      -- plain
  opened      BIGINT NOT NULL,      -- plain
  closed      BIGINT NOT NULL,      -- plain
  cost        BIGINT NOT NULL,      -- plain
  cost_known  BIGINT NOT NULL,      -- plain
  error_class TEXT NOT NULL,        -- plain
  audit_chain TEXT NOT NULL,        -- plain
  audit_seq   BIGINT NOT NULL,      -- plain
  audit_hash  BYTEA,                -- plain
  input_mac   BYTEA,                -- plain
  result      BYTEA,                -- sealed
  error       BYTEA,                -- sealed
  PRIMARY KEY (run, name)
) /*strict*/;

-- nodes: the daemons that may own runs, each until its lease ends.
CREATE TABLE nodes (
  id      TEXT PRIMARY KEY,         -- plain
  expires BIGINT NOT NULL           -- plain
) /*strict*/;

-- timers: each fires once per nominal instant.
CREATE TABLE timers (
  id      TEXT PRIMARY KEY,         -- plain
  kind    TEXT NOT NULL,            -- plain
  owner   TEXT NOT NULL,            -- plain
  nominal BIGINT NOT NULL,          -- plain
  fire_at BIGINT NOT NULL,          -- plain
  state   TEXT NOT NULL,            -- plain
  payload BYTEA NOT NULL            -- sealed
) /*strict*/;

CREATE INDEX timers_due ON timers (fire_at) WHERE state = 'armed';

-- delegation_sessions: what a coding agent remembers under an id of ours. body has whose
-- it is, the program's own id of it, where it works and what it has cost so far.
CREATE TABLE delegation_sessions (
  id      TEXT PRIMARY KEY, -- plain
  harness TEXT NOT NULL,    -- plain
  body    BYTEA NOT NULL,   -- sealed
  created BIGINT NOT NULL,  -- plain
  used    BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE INDEX delegation_sessions_used ON delegation_sessions (used);

-- delegations: the runs in which one worked. tries counts how often its program was
-- started; record is what that told and the patch it left.
CREATE TABLE delegations (
  run     TEXT PRIMARY KEY, -- plain
  session TEXT NOT NULL,    -- plain
  harness TEXT NOT NULL,    -- plain
  body    BYTEA NOT NULL,   -- sealed
  record  BYTEA,            -- sealed
  tries   BIGINT NOT NULL,  -- plain
  outcome TEXT NOT NULL,    -- plain
  cost    BIGINT NOT NULL,  -- plain
  priced  BIGINT NOT NULL,  -- plain
  started BIGINT NOT NULL,  -- plain
  ended   BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE INDEX delegations_started ON delegations (started, run);

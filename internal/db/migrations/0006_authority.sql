-- approvals: questions to a person about one call each.
CREATE TABLE approvals (
  id           TEXT PRIMARY KEY,     -- plain
  run          TEXT NOT NULL,        -- plain
  step         TEXT NOT NULL,        -- plain
  call_hash    BYTEA NOT NULL,       -- plain
  state        TEXT NOT NULL,        -- plain
  subject      TEXT NOT NULL,        -- plain
  tool         TEXT NOT NULL,        -- plain
  tool_digest  TEXT NOT NULL,        -- plain
  conversation TEXT NOT NULL,        -- plain
  detached     BIGINT NOT NULL,      -- plain
  asked        BIGINT NOT NULL,      -- plain
  expires      BIGINT NOT NULL,      -- plain
  hold_until   BIGINT NOT NULL,      -- plain
  resolved     BIGINT NOT NULL,      -- plain
  resolver     TEXT NOT NULL,        -- plain
  summary      BYTEA NOT NULL,       -- sealed
  input        BYTEA NOT NULL,       -- sealed
  details      BYTEA NOT NULL,       -- sealed
  note         BYTEA,                -- sealed
  UNIQUE (run, step, call_hash)
) /*strict*/;

CREATE INDEX approvals_open ON approvals (expires) WHERE state IN ('pending', 'approved');

-- budget_reservations: what one call may cost, and what it did.
CREATE TABLE budget_reservations (
  id       TEXT PRIMARY KEY,         -- plain
  run      TEXT NOT NULL,            -- plain
  root     TEXT NOT NULL,            -- plain
  step     TEXT NOT NULL,            -- plain
  agent    TEXT NOT NULL,            -- plain
  provider TEXT NOT NULL,            -- plain
  model    TEXT NOT NULL,            -- plain
  day      TEXT NOT NULL,            -- plain
  at       BIGINT NOT NULL,          -- plain
  state    TEXT NOT NULL,            -- plain
  priced   BIGINT NOT NULL,          -- plain
  amount   BIGINT NOT NULL,          -- plain
  actual   BIGINT NOT NULL,          -- plain
  possible BIGINT NOT NULL,          -- plain
  calls    BIGINT NOT NULL,          -- plain
  unknown  BIGINT NOT NULL,          -- plain
  tokens_in          BIGINT NOT NULL, -- plain
  tokens_out         BIGINT NOT NULL, -- plain
  tokens_cache_read  BIGINT NOT NULL, -- plain
  tokens_cache_write BIGINT NOT NULL  -- plain
) /*strict*/;

CREATE INDEX budget_reservations_day ON budget_reservations (day);
CREATE INDEX budget_reservations_run ON budget_reservations (run) WHERE state = 'open';

-- budget_totals: the sums of a node of the tree in one window.
CREATE TABLE budget_totals (
  node     TEXT NOT NULL,            -- plain
  period   TEXT NOT NULL,            -- plain
  spent    BIGINT NOT NULL,          -- plain
  reserved BIGINT NOT NULL,          -- plain
  possible BIGINT NOT NULL,          -- plain
  unknown  BIGINT NOT NULL,          -- plain
  PRIMARY KEY (node, period)
) /*strict*/;

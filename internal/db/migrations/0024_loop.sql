-- loop_notes: the short memory of loops, one row an entry. grp is of subject and group,
-- entry of those and the key. expires is when it is over, 0 for never.
CREATE TABLE loop_notes (
  id      TEXT PRIMARY KEY, -- plain
  subject TEXT NOT NULL,    -- plain
  grp     BYTEA NOT NULL,   -- blind
  entry   BYTEA NOT NULL,   -- blind
  body    BYTEA NOT NULL,   -- sealed
  expires BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE UNIQUE INDEX loop_notes_entry ON loop_notes (grp, entry);
CREATE INDEX loop_notes_expires ON loop_notes (expires) WHERE expires > 0;

-- loop_logs: what runs of loops and recipes wrote to their log.
CREATE TABLE loop_logs (
  id      TEXT PRIMARY KEY, -- plain
  seq     BIGINT NOT NULL,  -- plain
  subject TEXT NOT NULL,    -- plain
  run     TEXT NOT NULL,    -- plain
  at      BIGINT NOT NULL,  -- plain
  level   TEXT NOT NULL,    -- plain
  text    BYTEA NOT NULL    -- sealed
) /*strict*/;

CREATE UNIQUE INDEX loop_logs_seq ON loop_logs (seq);
CREATE INDEX loop_logs_subject ON loop_logs (subject, seq);
CREATE INDEX loop_logs_run ON loop_logs (run, seq);

-- integrations: how each thing ombud depends on stands, and since when. told is the state
-- the operator was told of.
CREATE TABLE integrations (
  name    TEXT PRIMARY KEY, -- plain
  kind    TEXT NOT NULL,    -- plain
  state   TEXT NOT NULL,    -- plain
  told    TEXT NOT NULL,    -- plain
  reason  BYTEA NOT NULL,   -- sealed
  since   BIGINT NOT NULL,  -- plain
  checked BIGINT NOT NULL   -- plain
) /*strict*/;

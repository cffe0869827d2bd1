-- checkpoints: what was kept of a git work tree before and after a call. A ref is "" where
-- there is none; a tree may be held by the ref of another row.
CREATE TABLE checkpoints (
  id          TEXT PRIMARY KEY,  -- plain
  seq         BIGINT NOT NULL,   -- plain
  run         TEXT NOT NULL,     -- plain
  step        TEXT NOT NULL,     -- plain
  repository  BYTEA NOT NULL,    -- blind
  state       TEXT NOT NULL,     -- plain
  before_ref  TEXT NOT NULL,     -- plain
  before_tree TEXT NOT NULL,     -- plain
  after_ref   TEXT NOT NULL,     -- plain
  after_tree  TEXT NOT NULL,     -- plain
  body        BYTEA NOT NULL,    -- sealed
  at          BIGINT NOT NULL,   -- plain
  ended       BIGINT NOT NULL    -- plain
) /*strict*/;

CREATE UNIQUE INDEX checkpoints_seq ON checkpoints (seq);
CREATE INDEX checkpoints_step ON checkpoints (run, step);
CREATE INDEX checkpoints_repository ON checkpoints (repository, seq);

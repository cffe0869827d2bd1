-- signals: what was sent to a run and not taken by it yet. seq is the position of its event.
CREATE TABLE signals (
  seq     BIGINT PRIMARY KEY,       -- plain
  run     TEXT NOT NULL,            -- plain
  name    TEXT NOT NULL,            -- plain
  payload BYTEA NOT NULL            -- sealed
) /*strict*/;

CREATE INDEX signals_run ON signals (run, name, seq);

-- waiters: the runs that wait for the end of another.
CREATE TABLE waiters (
  child  TEXT NOT NULL,             -- plain
  parent TEXT NOT NULL,             -- plain
  PRIMARY KEY (child, parent)
) /*strict*/;

CREATE INDEX waiters_parent ON waiters (parent);

-- How far a long piece of work has come, in its own words; not part of the projection.
ALTER TABLE runs ADD COLUMN progress BYTEA; -- sealed

-- blocked: since is when the event at from_position first failed, 0 if it did not yet.
ALTER TABLE blocked ADD COLUMN since BIGINT NOT NULL DEFAULT 0; -- plain

-- dead_letters: what was given up: an event by a subscription, a run after its last
-- attempt, a delivery for good or in doubt. source and name say by whom, ref is the id
-- of the thing itself, run what the last replay of it works as.
ALTER TABLE dead_letters RENAME TO dead_letters_before;
CREATE TABLE dead_letters (
  id         TEXT PRIMARY KEY, -- plain
  source     TEXT NOT NULL,    -- plain
  name       TEXT NOT NULL,    -- plain
  ref        TEXT NOT NULL,    -- plain
  title      TEXT NOT NULL,    -- plain
  position   BIGINT NOT NULL,  -- plain
  stream     TEXT NOT NULL,    -- plain
  cause      TEXT NOT NULL,    -- plain
  class      TEXT NOT NULL,    -- plain
  attempts   BIGINT NOT NULL,  -- plain
  first_at   BIGINT NOT NULL,  -- plain
  last_at    BIGINT NOT NULL,  -- plain
  error      BYTEA NOT NULL,   -- sealed
  state      TEXT NOT NULL,    -- plain
  replays    BIGINT NOT NULL,  -- plain
  settled_at BIGINT NOT NULL,  -- plain
  settled_by TEXT NOT NULL,    -- plain
  run        TEXT NOT NULL,    -- plain
  UNIQUE (source, name, ref)
) /*strict*/;
INSERT INTO dead_letters SELECT id, 'subscription', subscription, event, '', position, stream, '', 'internal', attempts, at, at, error,
  CASE WHEN replayed_at = 0 THEN 'waiting' ELSE 'replayed' END, CASE WHEN replayed_at = 0 THEN 0 ELSE 1 END, replayed_at, '', ''
  FROM dead_letters_before;
DROP TABLE dead_letters_before;

CREATE INDEX dead_letters_waiting ON dead_letters (source, name) WHERE state = 'waiting';
CREATE INDEX dead_letters_events ON dead_letters (position) WHERE state = 'waiting' AND position > 0;
CREATE INDEX dead_letters_age ON dead_letters (last_at);

-- letter_bursts: dead letters of one source that came together, so that one notice
-- tells of them. untold counts those since the last notice; when due comes they are
-- told, or the burst is over.
CREATE TABLE letter_bursts (
  source  TEXT NOT NULL,   -- plain
  name    TEXT NOT NULL,   -- plain
  since   BIGINT NOT NULL, -- plain
  total   BIGINT NOT NULL, -- plain
  untold  BIGINT NOT NULL, -- plain
  notices BIGINT NOT NULL, -- plain
  pause   BIGINT NOT NULL, -- plain
  due     BIGINT NOT NULL, -- plain
  PRIMARY KEY (source, name)
) /*strict*/;

CREATE INDEX letter_bursts_due ON letter_bursts (due);

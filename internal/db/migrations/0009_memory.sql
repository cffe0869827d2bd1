-- memories: every version of every fact agents remember. change is the place of
-- the row's last change among all changes, so that a reader of memory misses none.
CREATE TABLE memories (
  id           TEXT NOT NULL,    -- plain
  version      BIGINT NOT NULL,  -- plain
  agent        TEXT NOT NULL,    -- plain
  state        TEXT NOT NULL,    -- plain
  change       BIGINT NOT NULL,  -- plain
  key          BYTEA,            -- blind
  slot         BYTEA,            -- blind
  text         BYTEA,            -- sealed
  label        BYTEA,            -- sealed
  importance   BIGINT NOT NULL,  -- plain
  pinned       BIGINT NOT NULL,  -- plain
  expires      BIGINT NOT NULL,  -- plain
  created      BIGINT NOT NULL,  -- plain
  said         BIGINT NOT NULL,  -- plain
  run          TEXT NOT NULL,    -- plain
  conversation TEXT NOT NULL,    -- plain
  event        TEXT NOT NULL,    -- plain
  PRIMARY KEY (id, version)
) /*strict*/;

CREATE UNIQUE INDEX memories_live ON memories (id) WHERE state = 'live';
CREATE UNIQUE INDEX memories_key ON memories (agent, key) WHERE state = 'live';
CREATE UNIQUE INDEX memories_slot ON memories (agent, slot) WHERE state = 'live';
CREATE UNIQUE INDEX memories_change ON memories (agent, change);
CREATE INDEX memories_said ON memories (conversation, said) WHERE state = 'live';
CREATE INDEX memories_expires ON memories (expires) WHERE state = 'live' AND expires > 0;

-- targets: what can be started. body holds what each is and what starts it; paused_by is
-- who paused it, whatever its definition says; withheld counts what came while it was
-- paused.
CREATE TABLE targets (
  name        TEXT PRIMARY KEY, -- plain
  owner       TEXT NOT NULL,    -- plain
  body        BYTEA NOT NULL,   -- sealed
  paused_by   TEXT NOT NULL,    -- plain
  created     BIGINT NOT NULL,  -- plain
  started     BIGINT NOT NULL,  -- plain
  last_run    TEXT NOT NULL,    -- plain
  last_at     BIGINT NOT NULL,  -- plain
  withheld    BIGINT NOT NULL,  -- plain
  withheld_at BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE INDEX targets_owner ON targets (owner);

-- listeners: the kinds of event a target is started by, from after a position of the log.
CREATE TABLE listeners (
  kind   TEXT NOT NULL,   -- plain
  target TEXT NOT NULL,   -- plain
  since  BIGINT NOT NULL, -- plain
  PRIMARY KEY (kind, target)
) /*strict*/;

CREATE INDEX listeners_target ON listeners (target);

-- cascades: how many runs were started, one by another, from one first cause, and how
-- many more were refused.
CREATE TABLE cascades (
  root    TEXT PRIMARY KEY, -- plain
  runs    BIGINT NOT NULL,  -- plain
  refused BIGINT NOT NULL,  -- plain
  at      BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE INDEX cascades_at ON cascades (at);

-- routes: what has come of each path that is called from outside.
CREATE TABLE routes (
  path       TEXT PRIMARY KEY, -- plain
  target     TEXT NOT NULL,    -- plain
  accepted   BIGINT NOT NULL,  -- plain
  repeated   BIGINT NOT NULL,  -- plain
  refused    BIGINT NOT NULL,  -- plain
  seen_at    BIGINT NOT NULL,  -- plain
  refused_at BIGINT NOT NULL,  -- plain
  refusal    TEXT NOT NULL     -- plain
) /*strict*/;

-- hooks: every call that was accepted. key is of route and id, or of route and body where
-- a call has no id; content is of route and body. A key is there once, so that nothing
-- starts twice.
CREATE TABLE hooks (
  id      TEXT PRIMARY KEY, -- plain
  route   TEXT NOT NULL,    -- plain
  key     BYTEA,            -- blind
  content BYTEA NOT NULL,   -- blind
  event   TEXT NOT NULL,    -- plain
  at      BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE UNIQUE INDEX hooks_key ON hooks (key);
CREATE INDEX hooks_content ON hooks (content);
CREATE INDEX hooks_at ON hooks (at);

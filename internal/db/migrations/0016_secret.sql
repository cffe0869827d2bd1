-- secrets: values the operator gave, by the names that stand for them everywhere else.
-- body holds all of it; version has to agree. used is when one was last given out, to
-- the minute, and may be behind after a crash.
CREATE TABLE secrets (
  name    TEXT PRIMARY KEY,  -- plain
  version BIGINT NOT NULL,   -- plain
  body    BYTEA NOT NULL,    -- sealed
  used    BIGINT NOT NULL    -- plain
) /*strict*/;

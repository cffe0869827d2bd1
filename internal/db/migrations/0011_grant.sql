-- grants: what the operator gave to a subject, or took from it, beside its role.
-- body holds all of it; the other columns only find rows and have to agree.
CREATE TABLE grants (
  id           TEXT PRIMARY KEY,  -- plain
  subject      TEXT NOT NULL,     -- plain
  effect       TEXT NOT NULL,     -- plain
  scope        BYTEA NOT NULL,    -- blind
  conversation TEXT NOT NULL,     -- plain
  expires      BIGINT NOT NULL,   -- plain
  body         BYTEA NOT NULL,    -- sealed
  revoked      BIGINT NOT NULL,   -- plain
  revoked_by   TEXT NOT NULL      -- plain
) /*strict*/;

CREATE UNIQUE INDEX grants_live ON grants (subject, conversation, effect, scope) WHERE revoked = 0;

-- levels: how much a subject does without asking, everywhere ('') or in one area.
CREATE TABLE levels (
  subject TEXT NOT NULL,  -- plain
  area    TEXT NOT NULL,  -- plain
  body    BYTEA NOT NULL, -- sealed
  PRIMARY KEY (subject, area)
) /*strict*/;

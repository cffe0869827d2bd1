-- jobs: the work of a process that may call back, and what its token is good for.
CREATE TABLE jobs (
  id           TEXT PRIMARY KEY,  -- plain
  token        BYTEA NOT NULL,    -- plain
  subject      TEXT NOT NULL,     -- plain
  run          TEXT NOT NULL,     -- plain
  fence        BIGINT NOT NULL,   -- plain
  conversation TEXT NOT NULL,     -- plain
  body         BYTEA NOT NULL,    -- sealed
  calls        BIGINT NOT NULL,   -- plain
  created      BIGINT NOT NULL,   -- plain
  expires      BIGINT NOT NULL,   -- plain
  ended        BIGINT NOT NULL    -- plain
) /*strict*/;

CREATE INDEX jobs_live ON jobs (run) WHERE ended = 0;

-- job_calls: the calls of a job by its keys, so that none is made twice.
CREATE TABLE job_calls (
  job  TEXT NOT NULL,   -- plain
  key  BYTEA NOT NULL,  -- blind
  run  TEXT NOT NULL,   -- plain
  body_mac BYTEA NOT NULL, -- plain
  PRIMARY KEY (job, key)
) /*strict*/;

CREATE UNIQUE INDEX job_calls_run ON job_calls (run);

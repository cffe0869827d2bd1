-- outbox: what goes out, one row a result, in order within a conversation.
CREATE TABLE outbox (
  id              TEXT PRIMARY KEY,  -- plain
  seq             BIGINT NOT NULL,   -- plain
  conversation    TEXT NOT NULL,     -- plain
  channel         TEXT NOT NULL,     -- plain
  run             TEXT NOT NULL,     -- plain
  ordinal         BIGINT NOT NULL,   -- plain
  digest          BYTEA,             -- plain
  state           TEXT NOT NULL,     -- plain
  attempts        BIGINT NOT NULL,   -- plain
  probes          BIGINT NOT NULL,   -- plain
  next_at         BIGINT NOT NULL,   -- plain
  owner           TEXT NOT NULL,     -- plain
  lease           BIGINT NOT NULL,   -- plain
  queued          BIGINT NOT NULL,   -- plain
  since           BIGINT NOT NULL,   -- plain
  delivered_at    BIGINT NOT NULL,   -- plain
  possible_repeat BIGINT NOT NULL,   -- plain
  error_class     TEXT NOT NULL,     -- plain
  recipient       BYTEA NOT NULL,    -- blind
  body            BYTEA NOT NULL,    -- sealed
  ref             BYTEA,             -- sealed
  error           BYTEA,             -- sealed
  UNIQUE (run, ordinal)
) /*strict*/;

CREATE UNIQUE INDEX outbox_seq ON outbox (seq);
CREATE INDEX outbox_due ON outbox (channel, next_at) WHERE state = 'queued';
CREATE INDEX outbox_line ON outbox (conversation, seq) WHERE state IN ('queued', 'sending');
CREATE UNIQUE INDEX outbox_flight ON outbox (conversation) WHERE state = 'sending';

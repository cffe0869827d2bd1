-- channels: the chat networks ombud is connected to. body has the settings; cursor is where
-- the network goes on from, and is committed with the messages it is behind.
CREATE TABLE channels (
  name    TEXT PRIMARY KEY, -- plain
  kind    TEXT NOT NULL,    -- plain
  body    BYTEA NOT NULL,   -- sealed
  cursor  BYTEA,            -- sealed
  paused  BIGINT NOT NULL,  -- plain
  added   BIGINT NOT NULL,  -- plain
  removed BIGINT NOT NULL   -- plain
) /*strict*/;

-- channel_pieces: the parts of an item of the outbox as they are sent. state is waiting,
-- sending (a send was begun, and what came of it is not known) or sent.
CREATE TABLE channel_pieces (
  item  TEXT NOT NULL,   -- plain
  n     BIGINT NOT NULL, -- plain
  body  BYTEA NOT NULL,  -- sealed
  state TEXT NOT NULL,   -- plain
  ref   BYTEA,           -- sealed
  at    BIGINT NOT NULL, -- plain
  PRIMARY KEY (item, n)
) /*strict*/;

CREATE INDEX channel_pieces_at ON channel_pieces (at);

-- What the operator has said of an adapter; NULL is nothing.
ALTER TABLE adapters ADD COLUMN settings BYTEA; -- sealed

-- Questions are counted and looked up by where they were asked.
CREATE INDEX approvals_conversation ON approvals (conversation, id);

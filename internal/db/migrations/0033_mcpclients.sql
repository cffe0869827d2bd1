-- mcp_clients: coding agents that may connect by themselves. token is a digest.
CREATE TABLE mcp_clients (
  name    TEXT PRIMARY KEY, -- plain
  token   BYTEA NOT NULL,   -- plain
  added   BIGINT NOT NULL,  -- plain
  removed BIGINT NOT NULL   -- plain
) /*strict*/;

-- mcp_calls: their calls by key, so that none is made twice. waits is 1 from when a client
-- was told that its call waits for a person until it is told what became of it.
CREATE TABLE mcp_calls (
  client   TEXT NOT NULL,   -- plain
  key      BYTEA NOT NULL,  -- blind
  run      TEXT NOT NULL,   -- plain
  body_mac BYTEA NOT NULL,  -- plain
  waits    BIGINT NOT NULL, -- plain
  at       BIGINT NOT NULL, -- plain
  PRIMARY KEY (client, key)
) /*strict*/;

CREATE INDEX mcp_calls_run ON mcp_calls (run);
CREATE INDEX mcp_calls_waits ON mcp_calls (client, at) WHERE waits = 1;
CREATE INDEX mcp_calls_at ON mcp_calls (at);

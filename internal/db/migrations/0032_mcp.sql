-- mcp_servers: servers of the Model Context Protocol whose tools are ours to call. body is
-- what the operator said of each; pinned is what they accepted of what it offers; offered is
-- what it offered last; login holds the tokens it takes, NULL where it takes none.
CREATE TABLE mcp_servers (
  name    TEXT PRIMARY KEY, -- plain
  body    BYTEA NOT NULL,   -- sealed
  pinned  BYTEA NOT NULL,   -- sealed
  offered BYTEA NOT NULL,   -- sealed
  login   BYTEA,            -- sealed
  added   BIGINT NOT NULL,  -- plain
  changed BIGINT NOT NULL   -- plain
) /*strict*/;

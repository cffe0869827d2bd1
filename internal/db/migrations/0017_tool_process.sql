-- tool_processes: programs of others whose tools are ours to call: what the operator
-- said of each, and what it registered last.
CREATE TABLE tool_processes (
  name       TEXT PRIMARY KEY, -- plain
  body       BYTEA NOT NULL,   -- sealed
  registered BYTEA NOT NULL,   -- sealed
  added      BIGINT NOT NULL,  -- plain
  changed    BIGINT NOT NULL   -- plain
) /*strict*/;

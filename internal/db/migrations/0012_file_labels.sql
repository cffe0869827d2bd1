-- file_labels: which context the content of a file that ombud wrote came from.
CREATE TABLE file_labels (
  path   BYTEA PRIMARY KEY,   -- blind
  digest BYTEA NOT NULL,      -- plain
  label  BYTEA NOT NULL,      -- sealed
  run    TEXT NOT NULL,       -- plain
  at     BIGINT NOT NULL      -- plain
) /*strict*/;

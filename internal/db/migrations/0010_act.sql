-- results: which conversation may read a result that was kept whole.
CREATE TABLE results (
  blob         TEXT NOT NULL,       -- plain
  conversation TEXT NOT NULL,       -- plain
  run          TEXT NOT NULL,       -- plain
  step         TEXT NOT NULL,       -- plain
  label        BYTEA NOT NULL,      -- sealed
  PRIMARY KEY (blob, conversation)
) /*strict*/;

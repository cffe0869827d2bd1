-- recipe_definitions: what recipes say, by the hash of their text. A run holds the hash, so
-- it goes on by the text it began with, whatever became of the file.
CREATE TABLE recipe_definitions (
  hash TEXT PRIMARY KEY, -- plain
  body BYTEA NOT NULL,   -- sealed
  at   BIGINT NOT NULL   -- plain
) /*strict*/;

-- recipe_files: what the files of recipes come to. id is of the path; name and hash are
-- those of the version in use, '' if there never was a good one; body tells the path and
-- what is wrong with what the file holds now.
CREATE TABLE recipe_files (
  id   TEXT PRIMARY KEY, -- plain
  name TEXT NOT NULL,    -- plain
  hash TEXT NOT NULL,    -- plain
  body BYTEA NOT NULL,   -- sealed
  at   BIGINT NOT NULL   -- plain
) /*strict*/;

CREATE UNIQUE INDEX recipe_files_name ON recipe_files (name) WHERE name <> '';

-- A client that got no answer asks again: key is what it gave its task, body_mac what the
-- task was, both NULL for one that came without.
ALTER TABLE delegations ADD COLUMN key BYTEA;      -- blind
ALTER TABLE delegations ADD COLUMN body_mac BYTEA; -- plain

CREATE UNIQUE INDEX delegations_key ON delegations (key) WHERE key IS NOT NULL;

-- What a run may have cost beside cost, where not all of it is known.
ALTER TABLE delegations ADD COLUMN possible BIGINT NOT NULL DEFAULT 0; -- plain

-- Runs whose end could not be told are looked for at each start.
CREATE INDEX delegations_open ON delegations (run) WHERE ended = 0;

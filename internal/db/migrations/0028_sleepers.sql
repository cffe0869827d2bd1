-- An owner's armed timers are looked up whenever it sets or cancels one, and the live runs
-- of a key whenever one of them begins or ends: neither looks at what others have, nor at
-- what is over.
CREATE INDEX timers_owner ON timers (owner, fire_at, id) WHERE state = 'armed';
DROP INDEX runs_line;
CREATE INDEX runs_keyed ON runs (key, seq) WHERE ended = 0 AND key <> '';

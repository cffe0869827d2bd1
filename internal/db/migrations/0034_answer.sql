-- What a person filled in with a yes, where the question had a form; else NULL.
ALTER TABLE approvals ADD COLUMN answer BYTEA; -- sealed

-- A timer that fired or was taken back leaves no row any more: the log has what fired.
DELETE FROM timers WHERE state <> 'armed';

-- Jobs are forgotten some time after their end.
CREATE INDEX jobs_ended ON jobs (ended) WHERE ended > 0;

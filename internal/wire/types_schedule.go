package wire

// Schedule is something that starts by itself at times.
type Schedule struct {
	ID           string        `json:"id"`
	Name         string        `json:"name"`                   // the id if it was given none
	Owner        string        `json:"owner"`                  // operator, agent:NAME
	When         string        `json:"when"`                   // as it was written
	Zone         string        `json:"zone"`                   // IANA name; Local is the machine's
	Target       string        `json:"target,omitempty"`       // what is started, see triggers.list; absent: something is said
	Say          string        `json:"say,omitempty"`          // what is said to the agent
	Agent        string        `json:"agent,omitempty"`        // who is told; empty: the default
	Conversation string        `json:"conversation,omitempty"` // where; empty: main
	Missed       string        `json:"missed"`                 // once, skip, all
	GraceS       int64         `json:"grace_s"`                // how late one still fires, with once
	Overlap      string        `json:"overlap"`                // skip, queue
	JitterS      int64         `json:"jitter_s,omitempty"`     // each instant is delayed by less than this
	State        string        `json:"state"`                  // active, paused, done
	AddedAt      int64         `json:"added_at"`               // Unix µs
	NextAt       int64         `json:"next_at,omitempty"`      // the next nominal instant, Unix µs; absent: none
	Next         string        `json:"next,omitempty"`         // the same in its zone, RFC 3339
	FireAt       int64         `json:"fire_at,omitempty"`      // when that is due with its jitter, Unix µs
	Last         *ScheduleLast `json:"last,omitempty"`         // absent: no instant of this rule has come yet
	Fired        int64         `json:"fired"`                  // instants of this rule that fired
	MissedCount  int64         `json:"missed_count"`           // instants of this rule that were missed, skipped or failed
	Problem      *Problem      `json:"problem,omitempty"`      // why it cannot be read
}

// ScheduleLast is how the newest instant of a schedule ended.
type ScheduleLast struct {
	Outcome string `json:"outcome"`          // fired, late, manual, missed, skipped, failed
	At      int64  `json:"at"`               // the nominal instant, Unix µs
	InZone  string `json:"in_zone"`          // the same in its zone, RFC 3339
	EndedAt int64  `json:"ended_at"`         // when that was settled, Unix µs
	RunID   string `json:"run_id,omitempty"` // what the last firing started
	Error   string `json:"error,omitempty"`  // with failed
}

// ScheduleListRequest asks for schedules in the order they were added.
type ScheduleListRequest struct {
	Owner string `json:"owner,omitempty"`
	After string `json:"after,omitempty"` // the id of a schedule: those added after it
	Limit int    `json:"limit,omitempty"` // at most and by default 1000
}

// ScheduleListResult is a page of schedules.
type ScheduleListResult struct {
	Schedules []Schedule `json:"schedules"`
}

// ScheduleAddRequest adds a schedule. The fields are as in Schedule.
type ScheduleAddRequest struct {
	When         string `json:"when"`
	Zone         string `json:"zone,omitempty"` // empty: the machine's
	Name         string `json:"name,omitempty"` // 1 to 64 of A-Z a-z 0-9 . _ : -
	Say          string `json:"say"`            // what is said to the agent
	Agent        string `json:"agent,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Missed       string `json:"missed,omitempty"`  // empty: once
	GraceS       *int64 `json:"grace_s,omitempty"` // absent: 3600
	Overlap      string `json:"overlap,omitempty"` // empty: skip, or queue where all missed ones are made up for
	JitterS      int64  `json:"jitter_s,omitempty"`
	Replace      bool   `json:"replace,omitempty"` // the operator's schedule of that name becomes this one
}

// ScheduleRequest names a schedule by its id, by the beginning of that, or by its name:
// plain for the operator's, OWNER/NAME for others.
type ScheduleRequest struct {
	Schedule string `json:"schedule"`
}

// ScheduleResult is a schedule as it stands now.
type ScheduleResult struct {
	Schedule Schedule `json:"schedule"`
}

// ScheduleRunResult is what was started by hand.
type ScheduleRunResult struct {
	Schedule Schedule `json:"schedule"`
	RunID    string   `json:"run_id,omitempty"`
}

package wire

// DeadLetter is something that was given up: an event by a subscription, a run after
// its last attempt, a delivery for good or in doubt.
type DeadLetter struct {
	ID         string   `json:"id"`
	Source     string   `json:"source"`          // subscription, run or delivery
	Name       string   `json:"name"`            // by whom: the subscription, the kind of the run, the channel
	Ref        string   `json:"ref"`             // id of the event, run or delivery
	Title      string   `json:"title,omitempty"` // of it, for people
	State      string   `json:"state"`           // waiting, replayed or dropped
	Attempts   int      `json:"attempts"`
	Problem    Problem  `json:"problem"`          // of the last attempt
	FirstAt    int64    `json:"first_at"`         // Unix µs, when it first failed
	At         int64    `json:"at"`               // Unix µs, when it was given up
	Cause      string   `json:"cause,omitempty"`  // id of what led to it
	Event      *Event   `json:"event,omitempty"`  // of a subscription: the event, while the log has it
	RunID      string   `json:"run_id,omitempty"` // what the last replay of it works as
	Replays    int      `json:"replays,omitempty"`
	SettledAt  int64    `json:"settled_at,omitempty"` // Unix µs, when it was replayed or dropped
	SettledBy  string   `json:"settled_by,omitempty"`
	WaysToGoOn []DLQWay `json:"ways_to_go_on,omitempty"`
}

// DLQWay is one thing that can be done about a dead letter.
type DLQWay struct {
	Command string `json:"command"`
	Does    string `json:"does"`
}

// DLQListRequest selects dead letters, oldest first.
type DLQListRequest struct {
	All    bool   `json:"all,omitempty"`    // with those that were replayed or dropped
	Source string `json:"source,omitempty"` // subscription, run or delivery
	Name   string `json:"name,omitempty"`   // of one subscription, kind of run or channel
	Class  string `json:"class,omitempty"`  // of one class of error
	Since  int64  `json:"since,omitempty"`  // Unix µs: given up then or later
	After  string `json:"after,omitempty"`  // go on behind this letter
	Limit  int    `json:"limit,omitempty"`  // 0: 100, at most 1,000
}

// DLQListResult answers dlq.list.
type DLQListResult struct {
	Letters []DeadLetter `json:"letters"`
	Next    string       `json:"next,omitempty"` // value of after that reads on; absent at the end
}

// DLQRequest names a dead letter.
type DLQRequest struct {
	ID string `json:"id"` // or the beginning of it
}

// DLQReplayRequest has what was given up done again.
type DLQReplayRequest struct {
	ID    string `json:"id"`              // or the beginning of it
	Fresh bool   `json:"fresh,omitempty"` // of a run: begin a new one instead of going on from the recorded steps
	Note  string `json:"note,omitempty"`
}

// DLQDropRequest lays a dead letter to rest.
type DLQDropRequest struct {
	ID   string `json:"id"` // or the beginning of it
	Note string `json:"note,omitempty"`
}

// DLQResult is the letter as it is now.
type DLQResult struct {
	Letter DeadLetter `json:"letter"`
}

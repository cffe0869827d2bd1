package wire

import "encoding/json"

// Loop is work that starts by itself.
type Loop struct {
	Name        string        `json:"name"`
	Kind        string        `json:"kind"` // compiled, signed
	Description string        `json:"description"`
	State       string        `json:"state"`            // ok, idle, failing, dark, disabled, off
	Reason      string        `json:"reason,omitempty"` // why, unless it is well
	Subject     string        `json:"subject"`          // who it acts as
	Role        string        `json:"role,omitempty"`
	Triggers    []string      `json:"triggers"`             // what starts it, for people
	Settings    []LoopSetting `json:"settings"`             // of the configuration; of a signed loop, its own
	TimeoutS    int64         `json:"timeout_s"`            // of one run's work
	NextAt      int64         `json:"next_at,omitempty"`    // Unix µs, of its schedules; absent: none
	Started     int64         `json:"started"`              // runs so far
	LastOKAt    int64         `json:"last_ok_at,omitempty"` // Unix µs
	Last        *Run          `json:"last,omitempty"`       // the newest run
	Signed      *LoopSigned   `json:"signed,omitempty"`     // of a signed loop
}

// LoopSetting is a setting of a loop.
type LoopSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// LoopListRequest asks for loops by name.
type LoopListRequest struct {
	Name string `json:"name,omitempty"` // only this one; NotFound if there is none
}

// LoopListResult is loops.
type LoopListResult struct {
	Loops []Loop `json:"loops"`
}

// LoopRunRequest starts a loop now.
type LoopRunRequest struct {
	Name    string          `json:"name"`
	Payload json.RawMessage `json:"payload,omitempty"` // an object
	Force   bool            `json:"force,omitempty"`   // also one that is disabled
}

// LoopRunResult is what was started.
type LoopRunResult struct {
	RunID string `json:"run_id"`
}

// LoopRequest names a loop.
type LoopRequest struct {
	Name string `json:"name"`
}

// LoopResult is a loop as it is now.
type LoopResult struct {
	Loop Loop `json:"loop"`
}

// LoopLogsRequest asks for lines of a loop's log, oldest first.
type LoopLogsRequest struct {
	Name  string `json:"name"`             // of the loop, or a whole subject such as recipe:NAME
	RunID string `json:"run_id,omitempty"` // of this run only
	After int64  `json:"after,omitempty"`  // lines behind this one; 0: the newest
	Limit int    `json:"limit,omitempty"`  // default 100, at most 1000
}

// LoopLogsResult is lines of a log.
type LoopLogsResult struct {
	Lines []LoopLine `json:"lines"`
}

// LoopLine is a line that a loop or a recipe wrote.
type LoopLine struct {
	Seq   int64  `json:"seq"`
	RunID string `json:"run_id"`
	At    int64  `json:"at"`    // Unix µs
	Level string `json:"level"` // debug, info, warn, error
	Text  string `json:"text"`
}

// Integration is how something stands that ombud depends on.
type Integration struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`  // model, tool process, channel, webhook, …
	State     string `json:"state"` // working, degraded, failing, not connected
	Reason    string `json:"reason,omitempty"`
	SinceAt   int64  `json:"since_at"`   // Unix µs, in this state
	CheckedAt int64  `json:"checked_at"` // Unix µs, last
}

// IntegrationsRequest asks how they stand.
type IntegrationsRequest struct {
	Check bool `json:"check,omitempty"` // look now, at all of them
}

// IntegrationsResult is all of them, by kind and name.
type IntegrationsResult struct {
	Integrations []Integration `json:"integrations"`
}

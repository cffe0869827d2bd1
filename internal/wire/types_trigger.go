package wire

// TriggersListRequest asks what can be started, and by what.
type TriggersListRequest struct {
	Owner string `json:"owner,omitempty"` // recipe, loop; empty: all
}

// TriggersListResult is what can be started, by name, and the webhooks, by path.
type TriggersListResult struct {
	Targets  []Target  `json:"targets"`
	Webhooks []Webhook `json:"webhooks"`
	Listener string    `json:"listener,omitempty"` // where webhooks are called, IP:port; absent: nowhere now
	Problem  *Problem  `json:"problem,omitempty"`  // why nothing is listened on
}

// Target is something that can be started.
type Target struct {
	Name       string   `json:"name"` // recipe:NAME, loop:NAME
	Owner      string   `json:"owner"`
	On         []string `json:"on"`                    // what starts it, for a person
	Paused     bool     `json:"paused"`                // it starts nothing
	PausedBy   string   `json:"paused_by,omitempty"`   // who said so; absent: its definition
	Started    int64    `json:"started"`               // how often
	LastRun    string   `json:"last_run,omitempty"`    // what it was last started as
	LastAt     int64    `json:"last_at,omitempty"`     // when, Unix µs
	Withheld   int64    `json:"withheld"`              // triggers that came while it was paused
	WithheldAt int64    `json:"withheld_at,omitempty"` // the last of them, Unix µs
	Problem    *Problem `json:"problem,omitempty"`     // why it cannot be read
}

// Webhook is a path that starts a target when it is called.
type Webhook struct {
	Path      string   `json:"path"` // with /hooks/
	Target    string   `json:"target"`
	Scheme    string   `json:"scheme"`               // standard-webhooks, github, slack, generic, open
	Secrets   []string `json:"secrets,omitempty"`    // names of those that may have signed
	Missing   []string `json:"missing,omitempty"`    // those of them that are not set
	Accepted  int64    `json:"accepted"`             // calls that started it
	Repeated  int64    `json:"repeated"`             // calls that had been taken before
	Refused   int64    `json:"refused"`              // calls that were not taken
	SeenAt    int64    `json:"seen_at,omitempty"`    // the last that was accepted, Unix µs
	RefusedAt int64    `json:"refused_at,omitempty"` // the last that was refused, Unix µs
	Refusal   string   `json:"refusal,omitempty"`    // why
}

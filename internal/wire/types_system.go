package wire

import (
	"encoding/json"

	"github.com/ombud-run/ombud/internal/fault"
)

// Empty is the params or the result of a method that needs none.
type Empty struct{}

// Problem is a failure told as data: of a step, a turn, a dead letter.
type Problem struct {
	Class   fault.Class `json:"class"`             // what kind of failure it is
	Message string      `json:"message"`           // what happened
	Hint    string      `json:"hint,omitempty"`    // the way out, for a person
	Unknown bool        `json:"unknown,omitempty"` // it may or may not have happened: not to be repeated blindly
}

// Pong answers system.ping.
type Pong struct {
	At int64 `json:"at"` // the daemon's clock, Unix µs
}

// Status is what the daemon is and has to do.
type Status struct {
	PID           int       `json:"pid"`                 // process id of the daemon
	Version       string    `json:"version"`             // of the daemon's binary
	Instance      string    `json:"instance"`            // name of the instance, "default" unless chosen
	Store         string    `json:"store"`               // "sqlite" or "postgres"
	StartedAt     int64     `json:"started_at"`          // Unix µs
	UptimeS       int64     `json:"uptime_s"`            // seconds since started_at
	Detached      bool      `json:"detached"`            // a command started it by itself, nobody asked for it with `up`
	Idle          bool      `json:"idle"`                // no run is queued or running and nobody watches
	Ready         bool      `json:"ready"`               // it takes messages
	Models        Models    `json:"models"`              // which model serves which role, and why
	Missing       []Missing `json:"missing"`             // what the daemon lacks that it could use
	Conversations int64     `json:"conversations"`       // number of conversations
	Runs          RunCounts `json:"runs"`                // unfinished work
	Approvals     int64     `json:"approvals"`           // open questions to the operator
	DeadLetters   int64     `json:"dead_letters"`        // what was given up and waits, see dlq.list
	Disk          Disk      `json:"disk"`                // where the store lives
	Listeners     []string  `json:"listeners,omitempty"` // addresses it listens on, the socket first
	Held          *Held     `json:"held,omitempty"`      // it was restored and does nothing until it is let go
	Standby       *Standby  `json:"standby,omitempty"`   // it waits for the active daemon of its store to end
}

// Standby is a daemon that waits to become the active one of a store on PostgreSQL.
type Standby struct {
	Active string `json:"active"` // who is active: machine, process, instance
	Since  int64  `json:"since"`  // Unix µs by the server's clock
}

// Models says which model serves each role.
type Models struct {
	Main    Model  `json:"main"`              // answers turns
	Memory  *Model `json:"memory,omitempty"`  // retrieval; absent: main
	Summary *Model `json:"summary,omitempty"` // compaction; absent: main
}

// Model is one model in use.
type Model struct {
	Provider string `json:"provider"` // anthropic, openai, ollama, builtin, scripted
	Model    string `json:"model"`    // the provider's name for it
	Why      string `json:"why"`      // what made the daemon choose it, for a person
}

// Missing is something the daemon does without.
type Missing struct {
	Name string `json:"name"`           // what is missing
	Hint string `json:"hint,omitempty"` // how to give it to the daemon
}

// RunCounts counts unfinished runs by state.
type RunCounts struct {
	Queued    int64 `json:"queued"`    // not started, or waiting for a worker again
	Running   int64 `json:"running"`   // a worker has it
	Waiting   int64 `json:"waiting"`   // for a timer, signal, approval, retry or another run
	Uncertain int64 `json:"uncertain"` // for a person to say what happened, see runs.resolve
	KeptBack  int64 `json:"kept_back"` // of those queued and waiting: their kind or definition is missing here
}

// Disk is the room around the store.
type Disk struct {
	FreeBytes  int64 `json:"free_bytes"`  // free on the file system of the state directory
	StoreBytes int64 `json:"store_bytes"` // database and its log; 0 on PostgreSQL
	ReadOnly   bool  `json:"read_only"`   // the disk is full: reads go on, nothing new is taken
}

// StopResult answers system.stop: the daemon ends after this answer.
type StopResult struct {
	PID int `json:"pid"` // the process to wait for
}

// DoctorResult is every check doctor.run made.
type DoctorResult struct {
	Checks []Check `json:"checks"`
}

// Check is one thing doctor looked at.
type Check struct {
	ID     string `json:"id"`             // stable name, noun.question
	Status string `json:"status"`         // "ok", "warn", "fail" or "skip"
	Detail string `json:"detail"`         // what was found
	Hint   string `json:"hint,omitempty"` // the way out
}

// ConfigExplainRequest asks where a value comes from.
type ConfigExplainRequest struct {
	Key string `json:"key,omitempty"` // dotted path; empty: every key
}

// ConfigExplainResult is the asked key, or all below it.
type ConfigExplainResult struct {
	Values []ConfigValue `json:"values"` // in the order of the reference
}

// ConfigValue is one configuration value and its origin.
type ConfigValue struct {
	Key     string `json:"key"`             // dotted path
	Value   string `json:"value"`           // as YAML; a secret is "(secret)"
	Default string `json:"default"`         // as YAML
	Origin  string `json:"origin"`          // "default", "file", "env" or "flag"
	Where   string `json:"where,omitempty"` // file:line or the variable's name
	Doc     string `json:"doc,omitempty"`   // what it does
}

// LogsTailRequest asks for the daemon's own log.
type LogsTailRequest struct {
	Lines  int    `json:"lines,omitempty"`  // how many past lines first; 0: 100, at most 10,000
	Level  string `json:"level,omitempty"`  // lowest level: debug, info, warn, error; empty: info
	Follow bool   `json:"follow,omitempty"` // go on until the caller ends it
}

// LogLine is one line of the daemon's log.
type LogLine struct {
	At      int64           `json:"at"`              // Unix µs
	Level   string          `json:"level"`           // debug, info, warn, error
	Message string          `json:"message"`         // constant text
	Attrs   json.RawMessage `json:"attrs,omitempty"` // object of attributes
}

// NoteName implements Note.
func (LogLine) NoteName() string { return "logs.line" }

// RequestCancelRequest names a request of the same connection.
type RequestCancelRequest struct {
	ID json.RawMessage `json:"id"` // as it was sent
}

// RequestCancelResult answers request.cancel when it was sent with an id.
type RequestCancelResult struct {
	Cancelled bool `json:"cancelled"` // false: no such request is running
}

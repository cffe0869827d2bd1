package abi

import "encoding/json"

// What follows is said through the module "ombud" only.

// Status is what the module "ombud" says of a call, in the upper half of its result.
type Status int32

// The statuses. With every one but StatusOK the lower half is the length of a text that
// says what was wrong.
const (
	StatusOK         Status = 0
	StatusFailed     Status = 1
	StatusUndeclared Status = 2 // the manifest does not name it
	StatusRefused    Status = 3 // the loop may not
	StatusMalformed  Status = 5 // name or request cannot be read
	StatusUnknown    Status = 6 // it may or may not have happened: do not repeat it
)

// StepBegin is the request of "step_begin".
type StepBegin struct {
	Name string `json:"name"`
	Once bool   `json:"once"` // it must not be begun again if it cannot be told whether it was done
}

// StepBegun answers it. Of a step that is done it has the result.
type StepBegun struct {
	Done   bool            `json:"done"`
	Result json.RawMessage `json:"result,omitempty"`
}

// StepEnd is the request of "step_end".
type StepEnd struct {
	Name   string          `json:"name"`
	Result json.RawMessage `json:"result"`
}

// Sleep is the request of "sleep".
type Sleep struct {
	Milliseconds int64 `json:"ms"`
}

// After is the request of "after". What is asked for within a second is put off.
type After struct {
	ID           string          `json:"id"`
	Milliseconds int64           `json:"ms"`
	Payload      json.RawMessage `json:"payload"`
}

// CancelAfter is the request of "cancel_after".
type CancelAfter struct {
	ID string `json:"id"`
}

// WaitSignal is the request of "wait_signal".
type WaitSignal struct {
	Name         string `json:"name"`
	Milliseconds int64  `json:"timeout_ms"`
}

// Signal answers it.
type Signal struct {
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Foreign is the request of "fence".
type Foreign struct {
	Text string `json:"text"`
	From string `json:"from"`
}

// Fenced answers it.
type Fenced struct {
	Text string `json:"text"`
}

// Line is the request of "write_log".
type Line struct {
	Level  string            `json:"level"` // debug, info, warn or error
	Text   string            `json:"text"`
	Fields map[string]string `json:"fields,omitempty"`
}

// Progress is the request of "progress".
type Progress struct {
	Text  string `json:"text"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
}

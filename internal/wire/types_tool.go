package wire

import (
	"encoding/json"

	"github.com/ombud-run/ombud/internal/fault"
)

// ToolProcess is a program of others whose tools can be called.
type ToolProcess struct {
	Name       string            `json:"name"`
	Command    []string          `json:"command"`              // the program and its arguments
	Scopes     []string          `json:"scopes"`               // SCOPE or TOOL=SCOPE: the most its tools may need
	Narrow     []string          `json:"narrow,omitempty"`     // TOOL=SCOPE: less than the tool says it needs
	Network    string            `json:"network"`              // none, proxy, all
	Secrets    []string          `json:"secrets,omitempty"`    // VARIABLE=NAME
	Read       []string          `json:"read,omitempty"`       // paths it may read besides its program and the system's
	Write      []string          `json:"write,omitempty"`      // paths it may change besides its own directory
	Reads      []string          `json:"reads,omitempty"`      // tools that change nothing, as the operator says
	Repeatable []string          `json:"repeatable,omitempty"` // tools of which a second call is as good as one, as the operator says
	TimeoutS   int               `json:"timeout_s"`            // seconds a call may take
	State      string            `json:"state"`                // stopped, starting, ready, waiting
	SinceAt    int64             `json:"since_at"`             // Unix µs
	PID        int               `json:"pid,omitempty"`        //
	Failures   int               `json:"failures,omitempty"`   // in a row
	CrashLoop  bool              `json:"crash_loop,omitempty"` // it ends again and again
	Error      string            `json:"error,omitempty"`      // why it ended last, while it is not well
	NextAt     int64             `json:"next_at,omitempty"`    // Unix µs: when it is started again
	AddedAt    int64             `json:"added_at"`             // Unix µs
	ChangedAt  int64             `json:"changed_at,omitempty"` // Unix µs: when it last registered other tools than before
	Says       string            `json:"says,omitempty"`       // what it calls itself
	Tools      []ToolProcessTool `json:"tools"`                // what it registers; last known, while it is not ready
}

// ToolProcessTool is what became of a tool that a process registered.
type ToolProcessTool struct {
	Name        string   `json:"name"`                 // NAME.tool
	Description string   `json:"description"`          // the process's words
	Says        string   `json:"says"`                 // the scope the process says it needs
	Needs       []string `json:"needs,omitempty"`      // scopes a call needs
	Access      string   `json:"access,omitempty"`     // for the default agent, now: allow, ask, deny
	Why         string   `json:"why,omitempty"`        // why not allow
	ReadOnly    bool     `json:"read_only,omitempty"`  //
	Repeatable  bool     `json:"repeatable,omitempty"` //
	Refused     string   `json:"refused,omitempty"`    // why it cannot be used
}

// ToolsAddRequest adds a tool process. The fields are as in ToolProcess.
type ToolsAddRequest struct {
	Name       string   `json:"name"`
	Command    []string `json:"command"` // the program is an absolute path
	Scopes     []string `json:"scopes"`  // at least one
	Narrow     []string `json:"narrow,omitempty"`
	Network    string   `json:"network,omitempty"` // empty: none
	Secrets    []string `json:"secrets,omitempty"`
	Read       []string `json:"read,omitempty"`
	Write      []string `json:"write,omitempty"`
	Reads      []string `json:"reads,omitempty"`
	Repeatable []string `json:"repeatable,omitempty"`
	TimeoutS   int      `json:"timeout_s,omitempty"` // 0: 60
}

// ToolsAddResult is the process as it was added; it is being started.
type ToolsAddResult struct {
	Process ToolProcess `json:"process"`
}

// ToolsRemoveRequest names a tool process to be ended and forgotten.
type ToolsRemoveRequest struct {
	Name string `json:"name"`
}

// ToolsTestRequest starts a tool process, and makes one call if it names a tool.
type ToolsTestRequest struct {
	Name  string          `json:"name"`
	Tool  string          `json:"tool,omitempty"`  // empty: nothing is called
	Input json.RawMessage `json:"input,omitempty"` // absent: {}
}

// ToolsTestResult is what the process registers, and what the call came to.
type ToolsTestResult struct {
	Process ToolProcess    `json:"process"`
	Problem *Problem       `json:"problem,omitempty"` // why it does not get ready
	Call    *ToolsTestCall `json:"call,omitempty"`
}

// ToolsTestCall is a call made for a test. It is a run like any other.
type ToolsTestCall struct {
	RunID  string      `json:"run_id"`
	Status string      `json:"status"` // ok, failed, refused, parked, unknown
	Class  fault.Class `json:"class,omitempty"`
	Text   string      `json:"text"`
	Label  string      `json:"label,omitempty"`
	BlobID string      `json:"blob_id,omitempty"` // the whole output, if Text is not all of it
	TookUS int64       `json:"took_us"`           // µs
}
